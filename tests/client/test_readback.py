"""What the public calls acknowledge, another process reads back, whatever they were given (W14)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from chunkstore.decoding import NewerFormat
from chunkstore.errors import DeclaredError
from engine.root import Root
from engine.settings import Settings
from pravega_spark import (
    EventPointer,
    KeyValueTableConfiguration,
    Position,
    Put,
    Revision,
    StreamCut,
    StreamManager,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    StreamScalingPolicy,
    TableKey,
    ValueFormat,
    Version,
)
from pravega_spark.checks import verify_root
from pravega_spark.client.groups.state import GroupReader, GroupSegment, GroupState, Outstanding
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.recorded_cuts import encode_recorded
from pravega_spark.streams.maintenance.subscribers import subscribe
from pravega_spark.streams.model.epochs import EpochRecord
from pravega_spark.streams.model.readback import UnreadableRecord
from pravega_spark.streams.model.stream_record import StreamRecord, encode_number, first_epoch
from pravega_spark.streams.writing.transactions import TransactionRecord
from tests.fuzz.stream_parsers import GROUP, RECORDS, TRANSACTION

WRONG: list[Any] = [
    30.0,
    np.float64(30),
    np.float32(0),
    True,
    np.True_,
    "30",
    b"30",
    None,
    Decimal(30),
    3j,
    (),
    ...,
]
"""What is no whole number."""


def everything_is_readable(root: str) -> None:
    """Another process reads all that there is."""
    opened = Root.open(root, create=False, settings=Settings(maintenance=False, threaded=False))
    with StreamManager.over(opened) as manager:
        for scope in manager.list_scope():
            for info in manager.stream_infos(scope):
                list(manager.read_events(info.scope, info.stream))
            for group in manager.list_reader_group(scope):
                manager.reader_group_cuts(group, scope)
        report = verify_root(opened)
        assert not report.errors, list(report.findings)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def manager(root: str) -> Iterator[StreamManager]:
    with StreamManager.over(Root.open(root, settings=Settings(maintenance=False, threaded=False))) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "a")
        with manager.create_writer("s", "a") as writer:
            writer.write_events([f"event {number:014}" for number in range(5)])  # 28 bytes each
        yield manager


# --- public values check themselves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_cut_of_anything_but_whole_numbers_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"positions of a stream cut of s/a: the offset in segment 0 must be a whole"):
        StreamCut("s", "a", {0: wrong})
    with pytest.raises(TypeError, match=r"a segment id must be a whole number, not"):
        StreamCut("s", "a", {wrong: 30})


@pytest.mark.parametrize("field", ["segment_id", "offset", "length"])
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_pointer_of_anything_but_whole_numbers_is_refused_by_name(field: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"EventPointer: {field} must be an int, not"):
        EventPointer(**{"scope": "s", "stream": "a", "segment_id": 0, "offset": 0, "length": 30, field: wrong})


@pytest.mark.parametrize("wrong", [each for each in WRONG if each is not None], ids=repr)
def test_policies_of_anything_but_whole_numbers_are_refused_by_name(wrong: Any) -> None:
    for make in (
        lambda: StreamScalingPolicy("events", wrong, 10, 2),
        lambda: StreamScalingPolicy("events", 1, wrong, 2),
        lambda: StreamScalingPolicy("events", 1, 10, wrong),
        lambda: StreamRetentionPolicy("size", wrong),
        lambda: StreamRetentionPolicy("size", 1, wrong),
    ):
        with pytest.raises(ValueError, match=r"policy.* must be a whole number"):
            make()


def test_numbers_of_numpy_are_whole_numbers(manager: StreamManager, root: str) -> None:
    """Programs without type checks pass them."""
    number: Any = np.int64
    cut = StreamCut("s", "a", {number(0): number(28)})
    assert cut == StreamCut("s", "a", {0: 28}) == StreamCut.from_bytes(cut.to_bytes())
    assert all(type(number) is int for pair in cut.positions.items() for number in pair)
    pointer = EventPointer("s", "a", number(0), number(28), number(28))
    assert pointer == EventPointer.from_bytes(pointer.to_bytes()) and type(pointer.offset) is int
    scaling = StreamScalingPolicy("events", number(2), number(10), number(2))
    retention = StreamRetentionPolicy("size", number(5), number(9))
    assert type(scaling.min_segments) is int and type(retention.maximum) is int
    manager.create_stream_with_policy("s", "numpy", scaling, retention, [np.str_("tag")])
    manager.create_stream("s", "two", number(2))
    manager.scale_stream("s", "two", [number(0)], [(np.float64(0), np.float64(0.25)), (0.25, 0.5)])
    manager.truncate_stream("s", "a", cut)
    group = manager.create_reader_group_with_config(
        "g", "s", StreamReaderGroupConfig(False, "s", "a", lease=number(5), start=cut)
    )
    group.reset(StreamCut("s", "a", {number(0): number(56)}))
    assert manager.next_stream_cut("s", "a", cut, number(28)).positions == {0: 140}
    everything_is_readable(root)


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [{0: 28.0}, {0: np.float64(28)}, {False: 28}, {0: True}], ids=repr)
def test_a_cut_that_is_none_reaches_no_stream_and_no_group(
    manager: StreamManager, root: str, positions: dict[Any, Any]
) -> None:
    group = manager.create_reader_group("g", "s", "a")
    for call in (
        lambda cut: manager.truncate_stream("s", "a", cut),
        group.reset,
        lambda cut: manager.create_reader_group_with_config(
            "h", "s", StreamReaderGroupConfig(False, "s", "a", start=cut)
        ),
    ):
        with pytest.raises(TypeError, match="must be a whole number"):
            call(StreamCut("s", "a", positions))
        cut = StreamCut("s", "a", {0: 28})
        object.__setattr__(cut, "positions", positions)  # as one may be that came from somewhere else
        if list(map(type, positions)) != [bool]:
            with pytest.raises((ValueError, TypeError)):
                call(cut)
        with manager.create_writer("s", "a") as writer:
            writer.write_event("goes on")
        everything_is_readable(root)


ODD: list[Any] = [
    *WRONG, 0, 1, -1, 28, np.int64(28), np.int64(-1), 1 << 31, 1 << 61, 1 << 62, 1 << 63, 1 << 64, float("nan"),
    float("inf"), "", "a", "s", "s/a", "new", "half \ud800", "\0", "a" * 300, "../x", np.str_("a"), "earliest",
    "tail", b"", [], [0], [0.5], [True], ["a"], [b"a"], ["half \ud800"], [(0.0, 0.5), (0.5, 1.0)], [("0", 1)], {},
    [(False, True)], {"s/a": 5}, {0: 28.0}, uuid.UUID(int=5), StreamCut("s", "a", {0: 28}),
    StreamCut("s", "b", {0: 28}), StreamCut("s", "a", {7: 28}),
    StreamCut("s", "a", {}), EventPointer("s", "a", 0, 28, 28), StreamScalingPolicy(), StreamRetentionPolicy("size", 5),
]  # fmt: skip


def odd_calls(manager: StreamManager) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every call that changes something, with each odd value for each of its arguments."""
    cut = StreamCut("s", "a", {0: 28})
    group = manager.create_reader_group("g", "s", "a")
    manual = manager.create_reader_group_with_config(
        "m", "s", StreamReaderGroupConfig(False, "s", "a", retention="manual")
    )
    transactions = manager.create_transaction_writer("s", "a")
    writer = manager.create_writer("s", "a")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1, 1, 1))
    table, key = manager.key_value_table("s", "t"), TableKey(b"k", b"s")
    manager.create_stream("s", "r")
    revisions = manager.create_revisioned_stream_client("s", "r")
    revisions.write_unconditionally(b"20 bytes in all!")
    start, after = revisions.fetch_oldest_revision(), revisions.fetch_latest_revision()
    calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("create_scope", manager.create_scope, ("t",)),
        ("delete_scope", manager.delete_scope, ("t", False)),
        ("create_stream", manager.create_stream, ("s", "b", 2)),
        (
            "create_stream_with_policy",
            manager.create_stream_with_policy,
            ("s", "c", StreamScalingPolicy(), StreamRetentionPolicy("size", 5), ["tag"]),
        ),
        (
            "update_stream_with_policy",
            manager.update_stream_with_policy,
            ("s", "a", StreamScalingPolicy(), StreamRetentionPolicy("size", 5), ["tag"]),
        ),
        ("set_tags", manager.set_tags, ("s", "a", ["tag"])),
        ("set_value_format", manager.set_value_format, ("s", "a", ValueFormat("json", "id bigint"))),
        ("set_scaling", manager.set_scaling, ("s", "a", StreamScalingPolicy())),
        ("set_retention", manager.set_retention, ("s", "a", StreamRetentionPolicy("size", 5))),
        ("scale_stream", manager.scale_stream, ("s", "a", [0], [(0.0, 1.0)])),
        ("truncate_stream", manager.truncate_stream, ("s", "a", cut)),
        ("retain", manager.retain, ("s", "a", 5)),
        ("seal_stream", manager.seal_stream, ("s", "never")),
        ("delete_stream", manager.delete_stream, ("s", "never")),
        ("remove_subscriber", manager.remove_subscriber, ("s", "a", "m")),
        ("create_reader_group", manager.create_reader_group, ("h", "s", "a", False)),
        ("delete_reader_group", manager.delete_reader_group, ("never", "s")),
        ("reset", group.reset, (cut,)),
        ("checkpoint", group.checkpoint, ("name",)),
        ("initiate_checkpoint", group.initiate_checkpoint, ("name",)),
        ("reset_reader_group", group.reset_reader_group, (StreamReaderGroupConfig(False, "s", "a"),)),
        ("get_reader_group", manager.get_reader_group, ("never", "s")),
        ("reader_offline", group.reader_offline, ("reader", Position({("s/a", 0): 28}))),
        ("update_retention_stream_cut", manual.update_retention_stream_cut, (cut,)),
        ("config", lambda *given: StreamReaderGroupConfig(
            *given[:3], lease=given[3], start=given[4], end=given[5], checkpoint_interval=given[6],
            max_outstanding_checkpoints=given[7],
        ), (False, "s", "a", 60, cut, StreamCut("s", "a", {0: 56}), 60, 3)),
        (
            "create_key_value_table",
            manager.create_key_value_table,
            ("s", "u", KeyValueTableConfiguration(1, 1)),
        ),
        ("delete_key_value_table", manager.delete_key_value_table, ("s", "never")),
        ("configuration", KeyValueTableConfiguration, (1, 2, 3, 4)),
        ("put", table.put, (key, b"value", Version(0, 1))),
        ("insert", table.insert, (key, b"value")),
        ("replace", table.replace, (key, b"value", Version(0, 1))),
        ("remove", table.remove, (key, Version(0, 1))),
        ("update", lambda *given: table.update(Put(TableKey(*given[:2]), *given[2:])), (b"k", b"s", b"", None)),
        ("update", lambda *given: table.update(Put(key, b"", Version(*given))), (0, 1)),
        ("write_conditionally", revisions.write_conditionally, (after, b"value")),
        ("write_conditionally", lambda *given: revisions.write_conditionally(Revision(*given), b""), ("s", "r", 0, 0)),
        ("write_unconditionally", revisions.write_unconditionally, (b"value",)),
        ("compare_and_set_mark", revisions.compare_and_set_mark, (None, start)),
        ("compare_and_set_mark", lambda *it: revisions.compare_and_set_mark(None, Revision(*it)), ("s", "r", 0, 0)),
        ("truncate_to_revision", revisions.truncate_to_revision, (start,)),
        ("truncate_to_revision", lambda *given: revisions.truncate_to_revision(Revision(*given)), ("s", "r", 0, 0)),
        ("note_time", writer.note_time, (5, 60)),
        ("commit", lambda time: transactions.begin_txn().commit(time), (5,)),
        ("begin_txn", transactions.begin_txn, ()),
        ("begin_event", manager.begin_event, ("s", "a", "key")),
        ("write_event", writer.write_event, ("event", "key")),
        ("write_events", writer.write_events, (["event"], ["key"])),
        ("write_events", lambda *given: writer.write_events(given[0], routing_key=given[1], atomic=given[2]),
         (["event"], "key", True)),
    ]  # fmt: skip
    for name, call, arguments in calls:
        for place in range(len(arguments)):
            for odd in ODD:
                yield (
                    f"{name} argument {place}: {odd!r}",
                    partial(call, *arguments[:place], odd, *arguments[place + 1 :]),
                )


CHANGES_NOTHING = {
    *("list_scope", "list_stream", "list_key_value_table", "list_reader_group", "read_key_value_table", "read_events"),
    *("key_value_table", "key_value_table_info", "key_value_table_exists"),
    *("get_stream_tags", "stream_info", "stream_infos", "stream_timeline", "page", "stream_cut_at", "lag"),
    *("next_stream_cut",),
    *("reader_group_cuts", "group_lag", "last_events", "tail", "to_arrow", "open_event", "losses", "root", "to_str"),
    *("check_scope_exists", "check_stream_exists", "distance", "list_completed_transactions"),
    *("over", "close", "value_format", "segment_ranges", "read_segment", "tail_async"),
    *("create_revisioned_stream_client", "create_state_synchronizer", "recovered", "time_window"),
}
"""Calls of a manager that store nothing."""

OF_ITS_OWN = {
    *("create_writer", "create_transaction_writer", "create_byte_stream", "create_reader_group_with_config"),
    *("backup", "restore", "import_streams", "create_async_writer"),
}
"""Calls whose handles or values are tried, or whose arguments are URLs."""


def test_each_call_of_a_manager_is_tried_or_changes_nothing(manager: StreamManager) -> None:
    tried = {what.partition(" ")[0] for what, _ in odd_calls(manager)}
    public = {name for name in dir(StreamManager) if not name.startswith("_")}
    assert public == (tried & public) | CHANGES_NOTHING | OF_ITS_OWN
    assert not tried & (CHANGES_NOTHING | OF_ITS_OWN)


def test_whatever_public_calls_are_given_another_process_reads_everything(manager: StreamManager, root: str) -> None:
    tried = refused = 0
    for what, call in odd_calls(manager):
        tried += 1
        try:
            found = call()
            if what.startswith("config"):
                manager.create_reader_group_with_config(f"g{tried}", "s", found)
            elif hasattr(found, "close") and what.startswith("begin_event"):
                found.close()
        except (DeclaredError, ValueError, TypeError) as error:
            refused += 1
            assert not isinstance(error, NewerFormat) and "went offline" not in str(error), what
        if tried % 200 == 0:
            everything_is_readable(root)
    manager.create_stream("s", "last")
    with manager.create_writer("s", "last") as writer:
        writer.write_event("goes on")
    everything_is_readable(root)
    assert tried > 2500 and refused > 2000


# --- records ---------------------------------------------------------------------------------------------------------


def stream_records() -> Iterator[tuple[str, Callable[[], object]]]:
    odd: list[Any] = [
        5.0,
        np.float64(5),
        np.int64(5),
        True,
        "5",
        None,
        (),
        ...,
        1 << 64,
        {5: 1.0},
        {True: 1},
        {-1: 0},
        {0: -1},
    ]
    names = ("created", "epochs", "scaling", "retention", "tags", "sealed", "head", "ended", "passed")
    for record in RECORDS:
        for field in names:
            for value in odd:
                yield f"{field}={value!r}", partial(replace, record, **{field: value})
        for field in EpochRecord._fields:
            for value in odd:
                epochs = (record.epochs[0]._replace(**{field: value}), *record.epochs[1:])
                yield f"epoch {field}={value!r}", partial(replace, record, epochs=epochs)


def test_a_streams_record_is_refused_or_read_back() -> None:
    counts = [0, 0]
    for what, make in stream_records():
        record = make()
        assert isinstance(record, StreamRecord)
        try:
            data = record.encode()
        except UnreadableRecord as error:
            counts[0] += 1
            assert "it could not be read back" in str(error)
            continue
        counts[1] += 1
        assert StreamRecord.decode(data, record.version, "s/a") == record, what
    assert counts[0] > 200 and counts[1], counts


def test_the_error_names_the_field_of_a_streams_record() -> None:
    wrong: Any = 5.0
    with pytest.raises(UnreadableRecord, match=r"read back: created: 5\.0 stands where a number of 64 bits is due"):
        replace(RECORDS[0], created=wrong).encode()


def test_a_transactions_record_is_refused_or_read_back() -> None:
    counts = [0, 0]
    key = f"s/a/{uuid.UUID(int=7).hex}"
    for field in TransactionRecord._fields:
        odd: list[Any] = [5.0, np.float64(5), True, "open", "gone", None, -1, 1 << 63, (), ..., {}]
        for value in odd:
            record = TRANSACTION._replace(**{field: value})
            try:
                data = record.encode()
            except UnreadableRecord:
                counts[0] += 1
                continue
            counts[1] += 1
            assert TransactionRecord.decode(data, record.version, key) == record, (field, value)
    assert counts[0] > 40 and counts[1], counts


def test_a_groups_state_is_refused_or_read_back() -> None:
    place: Any = GroupSegment("s/a", 7, 0.0, 1.0)
    odd: list[Any] = [
        5.0,
        np.float64(5),
        True,
        "5",
        None,
        -1,
        1 << 63,
        (),
        ...,
        {place: 5.5},
        {place: True},
        {5: 5},
        {"r": 5},
    ]
    odd += [{place: -1}, {place: frozenset()}, {place: frozenset({1.5})}, {place._replace(stream="s/none"): 5}]
    beat: Any = 1.5
    odd += [
        {place._replace(id=7.0): 5},
        {place._replace(low="0"): 5},
        {"c": (5,)},
        {"r": GroupReader("t", beat, {})},
    ]
    counts = [0, 0]
    odd += [{"run": Outstanding(None, frozenset({name}), {place: 5})} for name in cast("list[str]", ["r", "nobody", 7])]
    odd += [{"c": 7}, {"c": "run"}, {"run": (StreamCut("s", "a", {0: 5}),)}, {7: ()}, (StreamCut("s", "a", {0: 5}),)]
    names = ("streams", "retention", "lease", "readers", "unassigned", "completed", "future", "checkpoints", "starts")
    for field in (*names, "ends", "interval", "max_outstanding", "outstanding", "runs", "silent"):
        for value in odd:
            state = replace(GROUP, **{field: value})
            try:
                data = state.encode()
            except UnreadableRecord:
                counts[0] += 1
                continue
            counts[1] += 1
            assert GroupState.decode(data, "s/g") == state, (field, value)
    assert counts[0] > 100 and counts[1], counts


@pytest.mark.parametrize("positions", [{0: 5.0}, {False: 5}, {0: None}, {"0": 5}, {0: 1 << 70}, {1.5: 5}], ids=repr)
def test_a_recorded_cut_is_refused_if_it_is_none(positions: Any) -> None:
    with pytest.raises(UnreadableRecord, match="a recorded stream cut was not stored") as refused:
        encode_recorded(positions)
    assert "estore" not in str(refused.value), "nothing was stored, so there is nothing to restore"


@pytest.mark.parametrize("number", [5.0, True, "5", None, -1, 1 << 31, 1 << 64], ids=repr)
def test_the_number_of_a_deleted_stream_is_refused_if_it_is_none(number: Any) -> None:
    with pytest.raises(UnreadableRecord) as refused:
        encode_number(number)
    assert "estore" not in str(refused.value) and "delete" not in str(refused.value)
    assert first_epoch(StreamScalingPolicy(), 1, 5).segments[0].id == 5


def test_a_subscribers_cut_is_refused_if_it_is_of_another_stream(manager: StreamManager, root: str) -> None:
    refused = pytest.raises(UnreadableRecord, match="the released cut of subscriber s/a/x was not stored")
    with Root.open(root, create=False) as opened, refused:
        subscribe(Catalog(opened).stream("s", "a"), "x", StreamCut("s", "b", {0: 0}))
