"""What cannot be understood of a root is named, costs nothing else, and is deleted by its ordinary command (W14)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from engine.errors import DataCorruption, UnknownFormat
from engine.logs import frames
from engine.logs.log import frame_path
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import AttributeUpdate, CreateSegment, PutEntry, UpdateAttributes, UpdateKind
from engine.state.segments import transient_name
from pravega_spark import StreamManager, StreamReaderGroupConfig, StreamRetentionPolicy
from pravega_spark.checks import verify_root
from pravega_spark.client.groups.entry import GROUPS
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.subscribers import subscriber_names
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.model.system_tables import NUMBERS, STREAMS, SUBSCRIBERS, TRANSACTIONS
from pravega_spark.streams.pravega_lts import unfinished_imports
from pravega_spark.streams.writing.producer_state import writer_attribute
from pravega_spark.streams.writing.transactions import begin, expire
from tests.cli.test_cli import document, run

NONSENSE = {
    "empty": b"",
    "no msgpack": b"\xc1",
    "another type": bytes(msgpack.packb("text")),
    "fields are missing": bytes(msgpack.packb({"format": 1})),
    "a float": bytes(msgpack.packb([1, 30.0])),
}
PRESENT = {name: value for name, value in NONSENSE.items() if value}
"""An empty entry is none, and empty bytes are the cut UNBOUNDED."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A root with two streams, `a` and `good`, a group of each, and a transaction and a subscriber of each."""
    url = str(tmp_path / "root")
    with StreamManager.over(opened(url, containers=2)) as manager:
        manager.create_scope("s")
        for name in ("a", "good"):
            manager.create_stream_with_policy("s", name, retention_policy=StreamRetentionPolicy("size", 5))
            with manager.create_writer("s", name) as writer:
                writer.write_events([f"event {number}" for number in range(10)])
            manager.create_reader_group_with_config(
                f"g-{name}", "s", StreamReaderGroupConfig(False, "s", name, retention="manual")
            )
    return url


def opened(url: str, **agreed: Any) -> Root:
    return Root.open(url, settings=Settings(maintenance=False, threaded=False), **agreed)


@pytest.fixture
def root(url: str) -> Iterator[Root]:
    with opened(url) as root:
        yield root


@pytest.fixture
def manager(root: Root) -> StreamManager:
    return StreamManager.over(root)


def spoil(root: Root, table: str, key: str, value: bytes) -> None:
    """Put an entry as a program that was wrong might have, without any of our checks of it."""
    number = container_of(key if table == GROUPS else "/".join(key.split("/")[:2]), root.config.containers)
    root.container(number).commit([PutEntry(table, key, value)])


def named(root: Root, what: str) -> str:
    """The one finding of a verification, which is about this."""
    findings = [f"{each.object}: {each.problem} {each.remedy}" for each in verify_root(root).findings]
    [found] = [each for each in findings if what in each]
    return found


def nothing_is_wrong(root: Root) -> None:
    assert not list(verify_root(root).findings)


@pytest.mark.parametrize("value", PRESENT.values(), ids=PRESENT)
def test_a_stream_whose_record_nobody_understands_is_named_and_deleted(
    root: Root, manager: StreamManager, url: str, value: bytes
) -> None:
    spoil(root, STREAMS, "s/a", value)
    assert "pravega-spark stream delete s/a --yes" in named(root, "stream s/a: its record")
    problems: list[str] = []
    infos = list(manager.stream_infos("s", lambda name, error: problems.append(name)))
    assert [info.stream for info in infos] == ["good"] and problems == ["a"]
    with pytest.raises(DataCorruption, match="stream s/a"):
        list(manager.stream_infos("s"))
    with pytest.raises(DataCorruption, match="stream delete s/a"):
        manager.stream_info("s", "a")
    manager.delete_stream("s", "a")
    manager.delete_reader_group("g-a", "s")
    nothing_is_wrong(root)
    assert manager.create_stream("s", "a") and manager.stream_info("s", "a").events == 0
    assert min(manager.stream_info("s", "a").head.positions) == 1, "its segments are none of those that it had"
    assert manager.stream_info("s", "good").events == 10


def test_the_commands_go_on_and_delete_a_stream_that_nobody_understands(url: str) -> None:
    with opened(url) as root:
        spoil(root, STREAMS, "s/a", NONSENSE["a float"])
    listed = run("stream", "list", root=url, code=1)
    assert "s/good" in listed.stdout and "stream s/a: its record" in listed.stderr + listed.stdout
    found = json.loads(run("--json", "stream", "list", root=url, code=1).stdout)
    assert [row["stream"] for row in found["streams"]] == ["s/good"] and len(found["unreadable"]) == 1
    done = run("maintain", "--yes", root=url, code=1)
    assert "s/a" in done.stdout + done.stderr and "stream s/good" not in done.stderr
    assert "would delete stream s/a" in run("stream", "delete", "s/a", "--dry-run", root=url).stdout
    assert "nothing was changed" in run("stream", "delete", "s/a", root=url, code=1).stderr
    run("stream", "delete", "s/a", "--yes", root=url)
    assert [row["stream"] for row in document("stream", "list", root=url)["streams"]] == ["s/good"]
    run("group", "delete", "s/g-a", "--yes", root=url)
    run("maintain", "--yes", root=url)
    assert document("verify", root=url)["verify"]["findings"] == []


def test_a_list_by_tag_leaves_a_damaged_stream_out_and_a_forced_deletion_of_the_scope_deletes_it(
    root: Root, manager: StreamManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.set_tags("s", "good", ["tag"])
    spoil(root, STREAMS, "s/a", b"\xc1")
    spoil(root, GROUPS, "s/g-good", b"\xc1")
    assert manager.list_stream("s", "tag") == ["good"] and "stream s/a" in caplog.text
    assert manager.delete_scope("s", force=True) and manager.list_scope() == []
    nothing_is_wrong(root)


@pytest.mark.parametrize("value", NONSENSE.values(), ids=NONSENSE)
def test_a_group_that_nobody_understands_is_named_and_deleted(root: Root, manager: StreamManager, value: bytes) -> None:
    spoil(root, GROUPS, "s/g-a", value)
    assert "pravega-spark group delete s/g-a --yes" in named(root, "reader group s/g-a")
    assert manager.list_reader_group("s") == ["g-a", "g-good"]
    assert manager.group_lag("g-good", "s")["s/good"].events == 10
    for use in (
        lambda: manager.reader_group_cuts("g-a", "s"),
        lambda: manager.create_reader_group("g-a", "s", "a"),
    ):
        with pytest.raises(DataCorruption, match="group delete s/g-a"):
            use()
    manager.delete_reader_group("g-a", "s")
    assert manager.list_reader_group("s") == ["g-good"]
    assert subscriber_names(Catalog(root).stream("s", "a")) == [], "it holds back nothing any more"
    assert subscriber_names(Catalog(root).stream("s", "good")) == ["g-good"]
    nothing_is_wrong(root)
    manager.create_reader_group("g-a", "s", "a")


def test_the_command_deletes_groups_that_are_understood_and_others(url: str) -> None:
    with opened(url) as root:
        spoil(root, GROUPS, "s/g-a", NONSENSE["no msgpack"])
    assert "cannot be understood" in run("group", "delete", "s/g-a", "--dry-run", root=url).stdout
    assert "g-a" in run("group", "list", root=url).stdout
    assert "s/good at 0.0 at 0" in run("group", "delete", "s/g-good", root=url, code=1).stdout
    for name in ("s/g-a", "s/g-good"):
        assert document("group", "delete", name, "--yes", root=url) == {"group": name, "deleted": True}
    assert document("group", "list", root=url)["groups"] == []
    assert "does not exist" in run("group", "delete", "s/g-a", "--yes", root=url, code=1).stderr


@pytest.mark.parametrize("value", PRESENT.values(), ids=PRESENT)
def test_a_subscriber_that_nobody_understands_holds_back_its_stream_only_until_it_is_removed(
    root: Root, manager: StreamManager, url: str, value: bytes
) -> None:
    spoil(root, SUBSCRIBERS, "s/a/query:x", value)
    assert "stream unsubscribe s/a query:x --yes" in named(root, "subscriber s/a/query:x")
    with pytest.raises(DataCorruption, match="stream unsubscribe s/a query:x"):
        manager.retain("s", "a", 0)
    manager.retain("s", "good", 0)
    assert "would remove" in run("stream", "unsubscribe", "s/a", "query:x", "--dry-run", root=url).stdout
    run("stream", "unsubscribe", "s/a", "query:x", "--yes", root=url)
    manager.retain("s", "a", 0)
    nothing_is_wrong(root)
    assert set(manager.stream_info("s", "a").subscribers) == {"g-a"}


@pytest.mark.parametrize("value", PRESENT.values(), ids=PRESENT)
def test_a_transaction_that_nobody_understands_is_named_and_aborted(
    root: Root, manager: StreamManager, value: bytes
) -> None:
    writer = manager.create_transaction_writer("s", "a")
    bad, other = writer.begin_txn(), writer.begin_txn()
    for each in (bad, other):
        each.write_event("in a transaction")
        each.flush()
    number = uuid.UUID(int=bad.get_txn_id())
    spoil(root, TRANSACTIONS, f"s/a/{number.hex}", value)
    assert "abort_txn" in named(root, f"transaction s/a/{number.hex}")
    other.commit()
    assert manager.stream_info("s", "a").events == 11
    with pytest.raises(DataCorruption, match="abort_txn"):
        writer.get_txn(number)
    writer.abort_txn(number)
    nothing_is_wrong(root)
    container = Catalog(root).stream("s", "a").container
    assert not [name for name in container.refresh().segments if number.hex in name]
    assert manager.stream_info("s", "a").events == 11


def test_expired_transactions_beside_one_that_nobody_understands_are_aborted(
    root: Root, manager: StreamManager
) -> None:
    stream = Catalog(root).stream("s", "a")
    begun = {each.key: each for each in (begin(stream, 1.0)[0] for _ in range(3))}
    first, *others = (key for key, _ in stream.container.scan_entries(TRANSACTIONS, f"{stream.key}/"))
    spoil(root, TRANSACTIONS, first, NONSENSE["a float"])
    with pytest.raises(DataCorruption, match=first):
        expire(stream, now=1 << 50)
    assert [begun[key].record().status for key in others] == ["aborted", "aborted"]


def test_the_number_of_a_deleted_stream_that_nobody_understands_is_removed(root: Root, manager: StreamManager) -> None:
    manager.seal_stream("s", "a")
    manager.delete_stream("s", "a")
    manager.delete_reader_group("g-a", "s")
    spoil(root, NUMBERS, "s/a", NONSENSE["a float"])
    with pytest.raises(DataCorruption, match="stream delete s/a"):
        manager.create_stream("s", "a")
    manager.delete_stream("s", "a")
    assert manager.create_stream("s", "a")
    assert min(manager.stream_info("s", "a").head.positions) > 1000, "none of its segments is one that it had"
    nothing_is_wrong(root)


def test_an_upload_that_nobody_understands_is_named_and_expires(tmp_path: Path) -> None:
    settings = Settings(maintenance=False, threaded=False)
    with Root.open(str(tmp_path / "other"), settings=settings, transient_idle_seconds=0.05, containers=1) as root:
        manager, container = StreamManager.over(root), root.container(0)
        manager.create_scope("s")
        manager.create_stream("s", "a")
        attribute = writer_attribute("event:big")
        segment = transient_name("s/a/0.#epoch.0", uuid.UUID(bytes=attribute), uuid.UUID(int=5))
        container.commit(
            [
                CreateSegment(segment, (), "s/a/0.#epoch.0"),
                UpdateAttributes("s/a#writers", (AttributeUpdate(attribute, UpdateKind.REPLACE, 5),)),
            ]
        )
        assert "is deleted once it has been idle" in named(root, segment)
        with pytest.raises(DataCorruption, match="is not a valid upload"):
            manager.begin_event("s", "a", name="big")
        with manager.begin_event("s", "a", name="other") as event:
            event.write(b"payload")
            event.commit()
        time.sleep(0.1)
        assert container.expire_transients() == (segment,)
        with manager.begin_event("s", "a", name="big") as event:
            event.write(b"payload")
            event.commit()
        nothing_is_wrong(root)


def test_an_import_that_nobody_understands_is_begun_anew(root: Root) -> None:
    store = root.stores.chunks
    store.put("_system/imports/s/new/begun", b"nonsense")
    begun = unfinished_imports.begin(store, "s/new", b"source")
    assert begun.source == b"source" and unfinished_imports.begin(store, "s/new", b"source") == begun
    store.put(f"{begun.folder}0-{0:020d}", b"nonsense")
    assert list(unfinished_imports.reached(store, begun, 0, 0)) == []
    unfinished_imports.finish(store, "s/new")
    assert not list(store.list("_system/imports/"))


NEWER: dict[str, tuple[str, bytes, Callable[[StreamManager], object]]] = {
    STREAMS: ("s/a", bytes(msgpack.packb({"format": 2})), lambda manager: manager.delete_stream("s", "a")),
    GROUPS: ("s/g-a", bytes(msgpack.packb({"format": 2})), lambda manager: manager.delete_reader_group("g-a", "s")),
    TRANSACTIONS: (
        f"s/a/{uuid.UUID(int=5).hex}",
        bytes(msgpack.packb([2])),
        lambda manager: manager.create_transaction_writer("s", "a").abort_txn(5),
    ),
}


@pytest.mark.parametrize("table", NEWER)
def test_what_a_newer_version_wrote_is_not_deleted(root: Root, manager: StreamManager, table: str) -> None:
    key, value, delete = NEWER[table]
    spoil(root, table, key, value)
    with pytest.raises(UnknownFormat, match="upgrade"):
        delete(manager)
    assert "upgrade" in named(root, key)


# --- a frame -----------------------------------------------------------------------------------------------------


def bad_frame(url: str, transactions: Any) -> tuple[int, int]:
    """A frame behind the log of s/a's container as a program that was wrong might have made it: container, address."""
    with opened(url) as root:
        number = container_of("s/a", root.config.containers)
        container = root.container(number)
        container.refresh()
        position, head = container.log.processor.log.upcoming(), container.head
        meta = bytes(msgpack.packb(transactions))
        data = b"".join(frames.encode(container.number, position, 1, head, meta))
        root.stores.log.put(frame_path(container.number, position.address), data)
    return number, position.address


def test_the_command_gives_up_what_nobody_understands_of_a_frame(url: str) -> None:
    segment = "s/a/0.#epoch.0"
    number, address = bad_frame(url, [[7, [[5, "t", "kept", b"kept", None]]], [7, [[7, segment, 30.0]]]])
    assert f"container repair {number} {address}" in run("verify", root=url, code=1).stdout
    assert f"container repair {number} {address}" in run("stream", "describe", "s/a", root=url, code=1).stderr
    dry = run("container", "repair", str(number), str(address), "--dry-run", root=url)
    assert "1 transaction that cannot be decoded; everything else is kept" in dry.stdout
    run("container", "repair", str(number), str(address), root=url, code=1)
    wrong = run("container", "repair", str(number), str(address + 1), "--yes", root=url, code=1)
    assert str(address) in wrong.stderr
    done = document("container", "repair", str(number), str(address), "--yes", root=url)
    assert done == {"repaired": {"number": number, "address": address, "whole": False, "transactions": [1]}}
    assert document("verify", root=url)["verify"]["findings"] == []
    with opened(url) as root:
        entry = root.container(number).entry("t", "kept")
        assert entry is not None and entry.value == b"kept"
        assert StreamManager.over(root).stream_info("s", "a").events == 10
    again = run("container", "repair", str(number), str(address), "--yes", root=url, code=1)
    assert "is not a damaged frame that stops the log" in again.stderr
