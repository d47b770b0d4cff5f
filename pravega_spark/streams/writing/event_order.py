"""The order of a stream's events across its segments.

The log orders appends, and index records hold the number of each append. The order of the events within one append that
went to several segments is stored here: a segment of the stream has an entry for each such append, with some bits for
each event, and an ordinary index of that segment finds an entry by the append's number. The first append that needs the
two segments creates them. They are truncated with the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgpack
import numpy as np

from chunkstore.decoding import InvalidData, check_format, reader, unpack
from engine.errors import understanding
from engine.state.index_records import RECORD_SIZE, THIS_APPEND, IndexRecords
from engine.state.operations import Append, CreateSegment, Operation, Payload, TruncateSegment
from pravega_spark.streams.model.index import UNKNOWN_TIME, IndexReader, encode_records
from pravega_spark.streams.model.names import index_segment_name
from pravega_spark.streams.model.stream_record import FORMAT, REMEDY

if TYPE_CHECKING:
    from pravega_spark.streams.reading.readable import ReadableContainer
    from pravega_spark.streams.reading.snapshot import Snapshot

ORDER = "order"
"""The name of the segment in the stream."""


class Interleaving(NamedTuple):
    """How the events of an append to several segments interleave.

    segments: their ids. places: for each event, in the order of writing, the index of its segment in `segments`.
    """

    segments: tuple[int, ...]
    places: np.ndarray

    def encode(self) -> bytes:
        """The stored entry: for each event as many bits as the number of segments needs."""
        bits = _bits(self.segments)
        packed = np.packbits(self.places[:, None] >> np.arange(bits, dtype=self.places.dtype) & 1)
        return bytes(msgpack.packb([FORMAT, self.segments, len(self.places), packed.tobytes()]))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Interleaving:
        """The inverse of `encode`. Raises DataCorruption with `where` in its message."""
        with understanding(where, REMEDY):
            known, segments, events, packed = unpack(data)
            check_format(known, FORMAT)
            ids, count = _SEGMENTS(segments), _COUNT(events)
            bits, codes = _bits(ids), np.frombuffer(_BYTES(packed), np.uint8)
            if count < 0 or len(codes) != -(-count * bits // 8):
                raise InvalidData(f"{len(codes)} bytes cannot hold the segments of {count} events")
            rows = np.unpackbits(codes, count=count * bits).reshape(count, bits)
            places = rows.astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
            if places.max(initial=0) >= len(ids):
                raise InvalidData(f"it puts an event into segment number {places.max()} of {len(ids)}")
            return cls(ids, places)

    @classmethod
    def of_appends(
        cls, segments: Sequence[int], records: Sequence[np.ndarray], columns: Mapping[int, Interleaving]
    ) -> Interleaving:
        """Of the events that several appends wrote to segments. records: all index records of each segment. columns: of
        the events of single appends, by their numbers; those of any other append come segment by segment."""
        appends = np.concatenate([np.repeat(each[:, 3], np.diff(each[:, 1], prepend=0)) for each in records])
        places = np.repeat(np.arange(len(records)), [each[-1, 1] for each in records])
        known = tuple(dict.fromkeys(segments))
        own = np.array([known.index(number) for number in segments])
        order = np.argsort(appends, kind="stable")
        found, ordered = own[places[order]], appends[order]
        for append, column in columns.items():
            first, end = np.searchsorted(ordered, [append, append + 1])
            found[first:end] = np.array([known.index(number) for number in column.segments])[column.places]
        return cls(known, found)

    @classmethod
    def of_column(cls, segments: Sequence[int], indexes: np.ndarray) -> Interleaving | None:
        """Of the rows of a column. indexes: of each row's segment in `segments`. None if all rows have one segment."""
        used, places = np.unique(indexes, return_inverse=True)
        if len(used) < 2:
            return None
        return cls(tuple(segments[index] for index in used), places.astype(np.min_scalar_type(len(used))))

    @classmethod
    def concatenated(cls, interleavings: Sequence[Interleaving]) -> Interleaving:
        """Of the events of one interleaving after the other."""
        segments = tuple(dict.fromkeys(number for each in interleavings for number in each.segments))
        known = {number: place for place, number in enumerate(segments)}
        places = [
            np.array([known[number] for number in interleaving.segments], np.int64)[interleaving.places]
            for interleaving in interleavings
        ]
        return cls(segments, np.concatenate(places))


def _bits(segments: Sequence[int]) -> int:
    return max(len(segments) - 1, 1).bit_length()


_SEGMENTS, _COUNT, _BYTES = reader(tuple[int, ...]), reader(int), reader(bytes)


def order_segments(stream: str) -> tuple[str, str]:
    """The names of the segment, and of its index, of the stream `scope/stream`."""
    name = f"{stream}/{ORDER}"
    return name, index_segment_name(name)


def order_operations(container: ReadableContainer, stream: str, interleaving: Interleaving | None) -> list[Operation]:
    """The operations that store an interleaving in the same append as its events. None are needed for one segment.

    They create the segment if it does not exist, as far as this process knows. The append fails with SegmentExists or
    SegmentNotFound if that was wrong.
    """
    if interleaving is None or len(interleaving.segments) < 2:
        return []
    name, index = order_segments(stream)
    data = interleaving.encode()
    record = IndexRecords(name, encode_records(np.array([[len(data), 0, UNKNOWN_TIME, THIS_APPEND]])))
    there = container.activated([name])[name] is not None
    created: list[Operation] = [] if there else [CreateSegment(name), CreateSegment(index)]
    return [*created, Append(index, record), Append(name, Payload(data))]


class StoredOrder:
    """The stored interleavings of a stream, as of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._container = snapshot.stream.container
        self._names = order_segments(snapshot.stream.key)
        known = self._container.activated(self._names, snapshot.state)
        content, indexed = (known[name] for name in self._names)
        self._begin, self._length = (content.start_offset, content.length) if content is not None else (0, 0)
        start, end = (indexed.start_offset, indexed.length) if indexed is not None else (0, 0)
        self._first, self._end = start // RECORD_SIZE, end // RECORD_SIZE
        self._index = IndexReader(lambda low, high: self._container.read(self._names[1], low, high), start, end)

    @property
    def has_entries(self) -> bool:
        """Whether anything is stored."""
        return self._begin < self._length

    def of(self, append: int) -> Interleaving | None:
        """The interleaving of the append with this number, if stored. Raises SegmentTruncated, DataCorruption."""
        place = self._index.position_of_append(append)
        if place >= self._end:
            return None
        end, _, _, found = self._index.records(place, place + 1)[0].tolist()
        if found != append:
            return None
        start, name = self._start(place), self._names[0]
        return Interleaving.decode(self._container.read(name, start, end), f"{name}, offset {start}")

    def _start(self, place: int) -> int:
        """Where the entry of a record starts: the end of the entry before it."""
        return int(self._index.records(place - 1, place)[0, 0]) if place > self._first else self._begin

    def truncation(self, append: int | None) -> list[Operation]:
        """The operations that delete the entries of the appends before this number; None: all entries."""
        place = self._end if append is None else self._index.position_of_append(append)
        if place == self._first:
            return []
        offset = self._length if place == self._end else self._start(place)
        return [TruncateSegment(self._names[0], offset), TruncateSegment(self._names[1], place * RECORD_SIZE)]
