"""Programs that were written for the original Python client: what they call is here, called the same and does the same.

They change their import and their URI. Each test is such a program, so all of it is called as the original's signatures
have it, by position and by name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import pravega_spark as pravega_client
from chunkstore import StorageRefused
from pravega_spark import ScopeNotEmpty, WriteFailed
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import StreamSealed
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.stream_record import StreamRecord

API = {
    "StreamManager": (
        "create_scope(scope_name)",
        "delete_scope(scope_name)",
        "list_scope()",
        "list_stream(scope_name)",
        "create_stream(scope_name, stream_name, initial_segments)",
        "create_stream_with_policy(scope_name, stream_name, scaling_policy, retention_policy, tags)",
        "update_stream_with_policy(scope_name, stream_name, scaling_policy, retention_policy, tags)",
        "get_stream_tags(scope_name, stream_name)",
        "seal_stream(scope_name, stream_name)",
        "delete_stream(scope_name, stream_name)",
        "create_writer(scope_name, stream_name, max_inflight_events)",
        "create_transaction_writer(scope_name, stream_name, writer_id)",
        "create_reader_group(reader_group_name, scope_name, stream_name, read_from_tail, stream_cut)",
        "create_reader_group_with_config(reader_group_name, scope_name, rg_config)",
        "delete_reader_group(reader_group_name, scope_name)",
        "create_byte_stream(scope_name, stream_name)",
        "to_str()",
    ),
    "StreamWriter": (
        "write_event(event, routing_key)",
        "write_event_async(event, routing_key)",
        "write_event_bytes(event, routing_key)",
        "flush()",
        "to_str()",
    ),
    "StreamTxnWriter": ("begin_txn()", "get_txn(txn_id)", "to_str()"),
    "StreamTransaction": (
        "get_txn_id()",
        "is_open()",
        "write_event(event, routing_key)",
        "write_event_bytes(event, routing_key)",
        "commit()",
        "commit_timestamp(timestamp)",
        "abort()",
        "to_str()",
    ),
    "StreamReaderGroup": ("create_reader(reader_name)", "reader_offline(reader_name)", "get_streamcut()", "to_str()"),
    "StreamReader": ("get_segment_slice_async()", "reader_offline()", "release_segment(slice)", "to_str()"),
    "StreamReaderGroupConfig": ("to_str()",),
    "StreamCuts": ("get_segment_offset_map()", "to_str()"),
    "StreamScalingPolicy": (
        "fixed_scaling_policy(initial_segments)",
        "auto_scaling_policy_by_data_rate(target_rate_kbytes_per_sec, scale_factor, initial_segments)",
        "auto_scaling_policy_by_event_rate(target_events_per_sec, scale_factor, initial_segments)",
    ),
    "StreamRetentionPolicy": ("none()", "by_size(size_in_bytes)", "by_time(time_in_millis)"),
    "ByteStream": (
        "write(byte_array)",
        "flush()",
        "readinto(buffer)",
        "seek(position, whence)",
        "seekable()",
        "tell()",
        "truncate(offset)",
        "current_head_offset()",
        "current_tail_offset()",
        "to_str()",
    ),
}


@pytest.mark.parametrize("name", API)
def test_everything_is_there_and_called_alike(name: str) -> None:
    for each in API[name]:
        method, _, rest = each.partition("(")
        names = [text.strip() for text in rest.rstrip(")").split(",") if text]
        found = list(inspect.signature(getattr(getattr(pravega_client, name), method)).parameters.values())
        ours = [parameter for parameter in found if parameter.name != "self"]
        assert [parameter.name for parameter in ours][: len(names)] == names, each
        assert all(more.default is not inspect.Parameter.empty for more in ours[len(names) :]), each


@pytest.mark.parametrize(
    ("positional", "named"),
    [((), {}), ((False, False), {}), ((True, True, True), {}), ((), {"auth_enabled": True})],
)
def test_the_manager_is_made_as_the_original_is(
    url: str, positional: tuple[bool, ...], named: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pravega_client.StreamManager(url, *positional, **named) as manager:
        assert manager.create_scope("moved") and url.split("?")[0] in manager.to_str()
    assert ("have no effect" in caplog.text) == any((*positional, *named.values()))


def record_of(manager: pravega_client.StreamManager, stream: str) -> StreamRecord:
    return Catalog(manager.root).stream("sc", stream).snapshot().record


def test_an_update_replaces_everything_if_asked_to(manager: pravega_client.StreamManager) -> None:
    """As the original always does; by default what is left out is kept."""
    scaling = pravega_client.StreamScalingPolicy.auto_scaling_policy_by_event_rate(10, 2, 3)
    retention = pravega_client.StreamRetentionPolicy.by_size(1000)
    assert manager.create_stream_with_policy("sc", "policed", scaling, retention, ["a"])

    def now() -> tuple[object, object, list[str]]:
        record = record_of(manager, "policed")
        return record.scaling, record.retention, manager.get_stream_tags("sc", "policed")

    other = pravega_client.StreamRetentionPolicy.by_time(5)
    assert manager.update_stream_with_policy("sc", "policed", retention_policy=other)
    assert now() == (scaling, other, ["a"])
    fixed = pravega_client.StreamScalingPolicy.fixed_scaling_policy(2)
    assert manager.update_stream_with_policy("sc", "policed", fixed)
    assert now() == (fixed, other, ["a"])
    none = pravega_client.StreamRetentionPolicy.none()
    assert manager.update_stream_with_policy("sc", "policed", scaling, none)
    assert now() == (scaling, None, ["a"])
    assert manager.update_stream_with_policy("sc", "policed", retention_policy=retention, replace=True)
    assert now() == (pravega_client.StreamScalingPolicy.fixed_scaling_policy(1), retention, [])


def test_policies_and_tags_are_set_one_by_one(manager: pravega_client.StreamManager) -> None:
    scaling = pravega_client.StreamScalingPolicy.auto_scaling_policy_by_data_rate(10, 2, 3)
    retention = pravega_client.StreamRetentionPolicy.by_size(1000)
    manager.set_scaling("sc", "one", scaling)
    manager.set_retention("sc", "one", retention)
    manager.set_tags("sc", "one", ["a", "b"])
    record = record_of(manager, "one")
    assert (record.scaling, record.retention, record.tags) == (scaling, retention, ("a", "b"))
    manager.set_retention("sc", "one", None)
    manager.set_tags("sc", "one", [])
    manager.set_scaling("sc", "one", None)
    record = record_of(manager, "one")
    fixed = pravega_client.StreamScalingPolicy.fixed_scaling_policy(1)
    assert (record.scaling, record.retention, record.tags) == (fixed, None, ())
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed):
        manager.set_tags("sc", "one", ["c"])


def test_the_root_by_its_old_name(tmp_path: Path) -> None:
    with pravega_client.StreamManager(controller_uri=str(tmp_path / "root")) as manager:
        assert manager.create_scope("moved")
    for wrong in ((), ("",)):
        with pytest.raises(TypeError, match="one root"):
            pravega_client.StreamManager(*wrong)
    with pytest.raises(TypeError, match="one root"):
        pravega_client.StreamManager(str(tmp_path), controller_uri=str(tmp_path))
    for controller in ("tcp://127.0.0.1:9090", "tls://controller:9090", "127.0.0.1:9090", "controller.local:9090"):
        with pytest.raises(StorageRefused, match="there is no broker here"):
            pravega_client.StreamManager(controller)


def test_a_scope_with_reader_groups_is_not_deleted(manager: pravega_client.StreamManager) -> None:
    manager.create_scope("groups")
    config = pravega_client.StreamReaderGroupConfig(False, "sc", "one")
    manager.create_reader_group_with_config("first", "groups", config)
    manager.create_reader_group("second", "sc", "one")
    assert manager.list_reader_group("groups") == ["first"]
    with pytest.raises(ScopeNotEmpty, match="reader groups first: first") as caught:
        manager.delete_scope("groups")
    assert caught.value.groups == ("first",) and "groups" in manager.list_scope()
    manager.delete_reader_group("first", "groups")
    assert manager.delete_scope("groups") is True
    many = ScopeNotEmpty("s", [f"g{number}" for number in range(30)])
    assert "g9 and 20 more" in str(many)


def test_events_written_asynchronously_are_read(manager: pravega_client.StreamManager) -> None:
    async def program() -> Counter[bytes]:
        writer = manager.create_writer("sc", "one", 10)
        await writer.write_event_async("no key")
        await writer.write_event_async("a key", "k")
        assert writer.durable_events == 2
        waiting = [writer.write_event_async(f"many {number}", routing_key="k") for number in range(100)]
        assert await asyncio.gather(*waiting) == [None] * 100
        writer.write_event_async("nobody awaits this")
        writer.write_event_async("cancelled").cancel()
        writer.flush()
        group = manager.create_reader_group("group", "sc", "one")
        reader = group.create_reader("reader")
        found: Counter[bytes] = Counter()
        slice = await reader.get_segment_slice_async()
        places = []
        for event in slice:
            found[event.data()] += 1
            places.append(event.offset())
        assert places == sorted(set(places)) and places[0] == 0
        reader.release_segment(slice)
        reader.reader_offline()
        group.reader_offline("reader")
        assert group.get_streamcut().get_segment_offset_map() == manager.stream_info("sc", "one").tail.positions
        return found

    found = asyncio.run(program())
    assert set(found.values()) == {1} and len(found) == 104
    assert {b"nobody awaits this", b"cancelled", b"many 99"} < set(found)


def test_who_awaits_hears_of_failures(manager: pravega_client.StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sealed() -> None:
        writer = manager.create_writer("sc", "four")
        manager.seal_stream("sc", "four")
        with pytest.raises(StreamSealed):
            await writer.write_event_async("too late", "k")
        with pytest.raises(StreamSealed):
            writer.write_event_async("later still", "k")

    async def failed() -> None:
        writer = manager.create_writer("sc", "one")
        monkeypatch.setattr(writer, "_append_batch", lambda batch: 1 / 0)
        waiting = [writer.write_event_async("lost") for _ in range(3)]
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, WriteFailed) and isinstance(found.__cause__, ZeroDivisionError)
        writer.close()  # all failures were told

    asyncio.run(sealed())
    asyncio.run(failed())


def test_a_loop_that_ended_does_not_harm_the_writer(manager: pravega_client.StreamManager) -> None:
    writer: EventWriter = manager.create_writer("sc", "one")

    async def leave() -> None:
        writer.write_event_async("left behind")

    asyncio.run(leave())
    writer.write_event("afterwards")
    writer.flush()
    assert [event.data for event in manager.read_events("sc", "one")] == [b"left behind", b"afterwards"]
    with pytest.raises(RuntimeError, match="event loop"):
        writer.write_event_async("without a loop")
    assert manager.stream_info("sc", "one").events == 2


def test_a_transaction_ends_once(manager: pravega_client.StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "one", 1)
    committed, aborted = writer.begin_txn(), writer.begin_txn()
    for transaction in (committed, aborted):
        transaction.write_event("an event", "key")
        transaction.write_event_bytes(b"another", routing_key="key")
        assert transaction.is_open()
    committed.commit()
    aborted.abort()
    for transaction in (committed, aborted):
        assert not transaction.is_open() and not writer.get_txn(transaction.get_txn_id()).is_open()
        for call in (
            transaction.commit,
            transaction.abort,
            transaction.flush,
            partial(transaction.commit_timestamp, 0),
            partial(transaction.write_event, "too late"),
        ):
            with pytest.raises(pravega_client.TxnFailedException, match=str(UUID(int=transaction.get_txn_id()))):
                call()
    writer.get_txn(committed.get_txn_id()).commit()  # another process tries again, as it does not know
    assert manager.stream_info("sc", "one").events == 2
    with writer.begin_txn() as left:
        left.abort()
    with writer.begin_txn() as kept:
        kept.write_event("kept")
        kept.commit()
    assert manager.stream_info("sc", "one").events == 3


def test_a_byte_stream_seeks_as_the_original(manager: pravega_client.StreamManager) -> None:
    stream = manager.create_byte_stream("sc", "one")
    assert stream.write(b"0123456789") == 10
    stream.flush()
    assert (stream.seek(4, None), stream.tell(), stream.seekable()) == (4, 4, True)
    buffer = bytearray(3)
    assert stream.readinto(buffer) == 3 and buffer == b"456"
    assert (stream.seek(1, 1), stream.seek(-2, 2)) == (8, 8)
    stream.truncate(2)
    assert (stream.current_head_offset(), stream.current_tail_offset()) == (2, 10)
    with pytest.raises(ValueError, match="whence"):
        stream.seek(0, 6)
