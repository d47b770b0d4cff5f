"""What a stream's index or segment says and cannot be right is DataCorruption, which names the stream, the segment, the
place, and what to do: never an error of Python or NumPy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import numpy as np
import pytest

from chunkstore.errors import DeclaredError
from engine.errors import DataCorruption
from engine.root import Root
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Payload,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT
from pravega_spark import StreamManager, StreamReaderGroupConfig
from pravega_spark.client.groups.group import StreamReaderGroup
from pravega_spark.client.groups.opening import create_group
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.index_repair import rebuild_indexes
from pravega_spark.streams.model.index import encode_records
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import plan_slices

NAME, INDEX = "sc/st/0.#epoch.0", "sc/st/0.#epoch.0#index"
EVENTS = [f"event {number:04} {'x' * 1000}" for number in range(60)]
SIZE = 8 + len(EVENTS[0])  # 60 of them are four index records' worth
TIME = 1_700_000_000_000
HUGE = (1 << 62) - 1


def sound() -> np.ndarray:
    return np.array([[SIZE * count, count, TIME + count, count] for count in (17, 33, 49, 60)], np.int64)


def changed(row: int, column: int, value: int) -> np.ndarray:
    records = sound()
    records[row, column] = value
    return records


INDEXES: dict[str, bytes] = {
    "no records": b"",
    "half a record": encode_records(sound())[:-5],
    "zeros": bytes(32 * 4),
    "all ones": b"\xff" * 32 * 4,
    "random": np.random.default_rng(1).bytes(32 * 4),
    "descending": encode_records(sound()[::-1]),
    "twice": encode_records(np.concatenate((sound(), sound()))),
    "the last is missing": encode_records(sound()[:-1]),
    "the first is missing": encode_records(sound()[1:]),
    **{
        f"{name} of {what} {row}": encode_records(changed(row, column, value))
        for row in (0, 2, 3)
        for column, what in ((0, "offset"), (1, "count"), (3, "append"))
        for name, value in (("huge", HUGE), ("negative", -5), ("odd", 4001), ("zero", 0))
    },
}
COUNTS = {"count too small": 3, "count too large": 1000, "count negative": -7, "no count": 0}
EVENT = struct.Struct(">ii")
SEGMENTS = {
    "type": EVENT.pack(1, 10) + bytes(10),
    "length negative": EVENT.pack(0, -10) + bytes(10),
    "length too large": EVENT.pack(0, 1 << 29) + bytes(10),
    "no whole header": b"\0\0\0",
}


def a_slice(manager: StreamManager) -> None:
    group = create_group(manager.root, "sc", "g", StreamReaderGroupConfig(False, "sc", "st"))
    try:
        list(asyncio.run(StreamReaderGroup(group).create_reader("r").get_segment_slice_async()))
    finally:
        group.end_threads()


def limited(manager: StreamManager, root: Root) -> None:
    """As micro-batches plan: places behind so many events or bytes, and slices between them."""
    snapshot = Catalog(root).stream("sc", "st").snapshot()
    segments = snapshot.segments
    for events in (1, 20, 59, 60):
        segments.offset_of_event(0, 0, events)
    for size in (1, 20_000, 60_000):
        end = segments.offset_after(0, 0, size)
        segments.offset_within(0, 0, size)
        segments.events_in(0, 0, end)
    ranges = snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())
    for slices in (plan_slices(snapshot, ranges, 20_000), plan_slices(snapshot, ranges, 20_000, numbered=True)):
        list(SliceReader(root, "sc", "st", wanted=1 << 20).read(slices))


def time_text(at: int) -> str:
    return datetime.fromtimestamp((TIME + at) / 1000, timezone.utc).isoformat()


CALLS: dict[str, Callable[[StreamManager, Root], object]] = {
    "read_events": lambda manager, root: list(manager.read_events("sc", "st")),
    "to_arrow": lambda manager, root: manager.read_events("sc", "st").to_arrow(
        ["event", "timestamp", "event_number", "event_pointer"]
    ),
    "last_events": lambda manager, root: list(manager.last_events("sc", "st", 5)),
    "tail": lambda manager, root: next(manager.tail("sc", "st", "head")),
    "stream_info": lambda manager, root: manager.stream_info("sc", "st"),
    "stream_infos": lambda manager, root: list(manager.stream_infos("sc")),
    "stream_timeline": lambda manager, root: manager.stream_timeline("sc", "st"),
    "stream_cut_at": lambda manager, root: [manager.stream_cut_at("sc", "st", time_text(at)) for at in (-9, 30, 99)],
    "next_stream_cut": lambda manager, root: manager.next_stream_cut("sc", "st", "earliest", 20_000),
    "lag": lambda manager, root: manager.lag(Catalog(root).stream("sc", "st").snapshot().head_cut()),
    "get_segment_slice": lambda manager, root: a_slice(manager),
    "retain": lambda manager, root: manager.retain("sc", "st"),
    "planning": limited,
}


@pytest.fixture
def root(url: str) -> Iterator[Root]:
    with Root.open(url, containers=1) as root:
        yield root


@pytest.fixture
def manager(root: Root) -> StreamManager:
    manager = StreamManager.over(root)
    manager.create_scope("sc")
    manager.create_stream("sc", "st", 1)
    manager.set_retention("sc", "st", RetentionPolicy.by_size(1000))
    return manager


def build(root: Root, index: bytes, events: bytes, count: int) -> None:
    """Give the stream these bytes, index and count, whatever they are."""
    update = AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, count)
    root.container(0).commit(
        [
            Append(NAME, Payload(events)),
            UpdateAttributes(NAME, (update,)),
            DeleteSegment(INDEX),
            CreateSegment(INDEX),
            *([Append(INDEX, Payload(index))] if index else []),
        ]
    )


def framed(events: list[str]) -> bytes:
    return b"".join(EVENT.pack(0, len(event)) + event.encode() for event in events)


def check_all(manager: StreamManager, root: Root) -> None:
    """Each call is answered, or says what is damaged."""
    wrong = {}
    for name, call in CALLS.items():
        try:
            call(manager, root)
        except DataCorruption as error:
            text = str(error)
            if "sc/st" not in text or ("rebuild-index" not in text and "verify" not in text):
                wrong[name] = repr(error)
        except StopIteration:
            pass
        except Exception as error:
            wrong[name] = f"{isinstance(error, DeclaredError)} {error!r}"
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


@pytest.mark.parametrize("damage", INDEXES)
def test_an_index_that_cannot_be_right_is_told(manager: StreamManager, root: Root, damage: str) -> None:
    build(root, INDEXES[damage], framed(EVENTS), len(EVENTS))
    check_all(manager, root)
    rebuild_indexes(Catalog(root).stream("sc", "st"))
    assert [event.data.decode() for event in manager.read_events("sc", "st", "earliest")] == EVENTS


@pytest.mark.parametrize("damage", COUNTS)
def test_a_count_that_cannot_be_right_is_told(manager: StreamManager, root: Root, damage: str) -> None:
    build(root, encode_records(sound()), framed(EVENTS), COUNTS[damage])
    check_all(manager, root)


@pytest.mark.parametrize("place", [0, 20, 60])
@pytest.mark.parametrize("damage", SEGMENTS)
def test_bytes_that_are_no_events_are_told(manager: StreamManager, root: Root, damage: str, place: int) -> None:
    events = framed(EVENTS[:place]) + SEGMENTS[damage] + framed(EVENTS[place:])
    records = sound()
    records[-1, 0] = len(events)
    build(root, encode_records(records), events, len(EVENTS))
    check_all(manager, root)
