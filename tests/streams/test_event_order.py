"""The stored order of events across segments: its entries, and which of them a stream keeps."""

from __future__ import annotations

import random

import msgpack
import numpy as np
import pyarrow as pa
import pytest

from chunkstore.testing import SimulatedStore
from engine.errors import DataCorruption, SegmentExists
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload, TruncateSegment
from engine.storage.object_reads import Stores
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.event_order import Interleaving, StoredOrder, order_operations, order_segments
from pravega_spark.streams.writing.writes import SegmentAppend

# --- entries ------------------------------------------------------------------------------------------------------


def placed(interleaving: Interleaving) -> list[int]:
    """The segment of each event."""
    return [interleaving.segments[place] for place in interleaving.places.tolist()]


@pytest.mark.parametrize("segments", [2, 3, 4, 5, 8, 9, 300])
def test_an_entry_is_what_was_encoded_with_as_few_bits_as_its_segments_need(segments: int) -> None:
    chance = random.Random(segments)
    ids = tuple(chance.sample(range(1 << 40), segments))
    for events in (0, 1, 7, 8, 9, 100):
        places = np.array([chance.randrange(segments) for _ in range(events)], np.int64)
        data = Interleaving(ids, places).encode()
        assert placed(Interleaving.decode(data, "here")) == [ids[place] for place in places]
        bits = (segments - 1).bit_length()
        assert len(msgpack.unpackb(data)[3]) == (events * bits + 7) // 8


@pytest.mark.parametrize(
    "entry",
    [
        [1, [0, 1], 8, b"\0\0"],  # a byte too many
        [1, [0, 1], 9, b"\0"],
        [1, [0, 1], -1, b""],
        [1, [0, 1], -8, b"\0"],
        [1, [0, 1, 2], 1, b"\xc0"],  # the fourth of three segments
        [1, [], 1, b"\x80"],
        [1, [0, 1], "8", b"\0"],
        [1, ["0", 1], 8, b"\0"],
        [1, [0, 1], 8, "\0"],
        [2, [0, 1], 8, b"\0"],  # a newer format
        [1, [0, 1], 8],
    ],
)
def test_an_entry_that_cannot_be_right_is_damage(entry: list[object]) -> None:
    with pytest.raises(DataCorruption, match=r"sc/st/order, offset 7"):
        Interleaving.decode(msgpack.packb(entry), "sc/st/order, offset 7")


def test_the_last_segment_of_an_entry_may_have_events() -> None:
    entry = msgpack.packb([1, [5, 6, 7], 4, bytes([0b00_01_10_00])])
    assert placed(Interleaving.decode(entry, "here")) == [5, 7, 6, 5]


def test_the_rows_of_a_column_have_an_order_if_they_go_to_several_segments() -> None:
    found = Interleaving.of_column([10, 11, 12], np.array([2, 0, 2, 2, 0]))
    assert found is not None
    assert found.segments == (10, 12)
    assert placed(found) == [12, 10, 12, 12, 10]
    assert Interleaving.of_column([10, 11, 12], np.array([1, 1])) is None
    assert Interleaving.of_column([10, 11, 12], np.array([], np.int64)) is None


def test_orders_of_different_segments_are_put_one_after_the_other() -> None:
    first = Interleaving((4, 2), np.array([0, 1, 1], np.uint8))
    second = Interleaving((2, 9), np.array([1, 0], np.uint8))
    found = Interleaving.concatenated([first, second])
    assert len(found.segments) == 3
    assert placed(found) == [4, 2, 2, 9, 2]


def test_the_events_of_several_appends_are_in_the_order_of_the_appends() -> None:
    """Of append 5, a column, the order is known; those of the others come segment by segment."""
    records = [
        np.array([[10, 1, 0, 3], [30, 3, 0, 5], [60, 6, 0, 6]]),  # of segment 20: 1, 2 and 3 events
        np.array([[20, 2, 0, 5], [30, 3, 0, 6]]),  # of segment 21: 2 and 1
    ]
    columns = {5: Interleaving((21, 20), np.array([0, 1, 1, 0]))}
    found = Interleaving.of_appends([20, 21], records, columns)
    assert placed(found) == [20, 21, 20, 20, 21, 20, 20, 20, 21]
    assert placed(Interleaving.of_appends([20, 21], records, {})) == [20, 20, 20, 21, 21, 20, 20, 20, 21]


def test_many_events_of_an_append_come_segment_by_segment() -> None:
    many = 1000
    records = [np.array([[many, many, 0, 2], [2 * many, 2 * many, 0, 3]]), np.array([[many, many, 0, 2]])]
    found = Interleaving.of_appends([7, 8], records, {})
    assert placed(found) == [7] * many + [8] * many + [7] * many


def test_records_of_one_segment_may_come_in_several_parts() -> None:
    """As of a transaction whose segment has moved: both parts are of the segment that it has now."""
    records = [np.array([[10, 2, 0, 1]]), np.array([[10, 1, 0, 2]]), np.array([[10, 1, 0, 1]])]
    found = Interleaving.of_appends([7, 7, 8], records, {})
    assert found.segments == (7, 8)
    assert placed(found) == [7, 7, 8, 7]


# --- what a stream keeps ------------------------------------------------------------------------------------------


@pytest.fixture
def stream() -> Stream:
    store = SimulatedStore(0)
    settings = Settings(maintenance=False, threaded=False)
    made = Stream(Root(Stores(store, store), RootConfig("root", containers=1), settings), "sc", "st")
    made.create(ScalingPolicy(min_segments=3))
    return made


def write(stream: Stream, *segments: int, stored: bool = True) -> int:
    """Append an event to each of these segments, in this order. Returns the number of the append."""
    parts = []
    for segment in sorted(set(segments)):
        count = segments.count(segment)
        framed = frame_column(pa.array(["x"] * count), None, 1)
        records = sparse_records(framed.lengths, 0)
        parts.append(SegmentAppend(segment, Payload(framed.data.to_pybytes()), records, count))
    order = Interleaving.of_column([0, 1, 2], np.array(segments)) if stored else None
    stream.write(parts, interleaving=order)
    known = stream.snapshot().segments
    record = known.index(segments[0]).locate_offset(known.length(segments[0]))
    assert record is not None
    return record.append


def order(stream: Stream) -> StoredOrder:
    return StoredOrder(stream.snapshot())


def kept(stream: Stream, append: int) -> list[int] | None:
    found = order(stream).of(append)
    return None if found is None else placed(found)


def test_an_append_to_several_segments_stores_its_order(stream: Stream) -> None:
    assert not order(stream).has_entries
    assert kept(stream, 0) is None
    one = write(stream, 1, 1)
    assert not order(stream).has_entries
    written = {write(stream, *segments): [*segments] for segments in ((2, 0, 0), (0, 1, 2, 1), (1, 0))}
    without = write(stream, 0, 2, stored=False)
    written |= {write(stream, *segments): [*segments] for segments in ((2, 1, 2),)}
    assert order(stream).has_entries
    assert {append: kept(stream, append) for append in written} == written
    assert [kept(stream, append) for append in (one, without, 0, max(written) + 1)] == [None] * 4


def test_a_truncation_deletes_the_entries_before_an_append(stream: Stream) -> None:
    appends = [write(stream, *segments) for segments in ((2, 0, 0), (0, 1), (1, 0, 1, 2))]
    content, index = order_segments("sc/st")
    assert order(stream).truncation(appends[0]) == []
    for first in (1, 2):
        stream.container.commit(order(stream).truncation(appends[first]))
        assert [kept(stream, append) for append in appends[:first]] == [None] * first
        assert kept(stream, appends[2]) == [1, 0, 1, 2]
        assert order(stream).truncation(appends[first]) == []
    info = stream.container.info(content), stream.container.info(index)
    assert order(stream).truncation(None) == order(stream).truncation(appends[2] + 1)
    assert order(stream).truncation(None) == [
        TruncateSegment(content, info[0].length),
        TruncateSegment(index, info[1].length),
    ]
    stream.container.commit(order(stream).truncation(None))
    assert not order(stream).has_entries
    assert kept(stream, appends[2]) is None
    assert order(stream).truncation(None) == []
    again = write(stream, 2, 0)
    assert kept(stream, again) == [2, 0]


def test_the_first_entry_creates_the_segments(stream: Stream) -> None:
    """A process that does not know that they exist is rejected."""
    mixed = Interleaving((0, 1), np.array([1, 0]))
    assert order_operations(stream.container, "sc/st", None) == []
    assert order_operations(stream.container, "sc/st", Interleaving((0,), np.array([0, 0]))) == []
    first = order_operations(stream.container, "sc/st", mixed)
    stream.container.commit(first)
    with pytest.raises(SegmentExists):
        stream.container.commit(first)
    stream.container.commit(order_operations(stream.container, "sc/st", mixed))
    for name in order_segments("sc/st"):
        assert stream.container.info(name).length
    other = order_operations(stream.container, "sc/st", mixed)
    assert len(other) == len(first) - 2
