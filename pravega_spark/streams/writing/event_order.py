"""The order of a stream's events across its segments: by the numbers of their appends, and within one by what is kept
here.

The log has an order of appends, and index records tell the number of each. How the events of one append were mixed
that went to several segments is known to its writer alone, so it says so: a segment of the stream holds an entry for
each such append, of some bits for each event, and its index, which is one as other segments have, tells by the appends'
numbers where they lie. Both are made by the first append that needs them, and truncated with the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    from engine.containers.container import Container
    from pravega_spark.streams.reading.snapshot import Snapshot

ORDER = "order"
"""What the segment is called in the stream."""


class Mix(NamedTuple):
    """How the events of an append to several segments were mixed.

    segments: their ids. places: of each event, in the order in which it was written, the place of its segment there.
    """

    segments: tuple[int, ...]
    places: np.ndarray

    def encode(self) -> bytes:
        """As it is kept: so many bits for each event as the number of segments needs."""
        bits = _bits(self.segments)
        packed = np.packbits(self.places[:, None] >> np.arange(bits, dtype=self.places.dtype) & 1)
        return bytes(msgpack.packb([FORMAT, self.segments, len(self.places), packed.tobytes()]))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Mix:
        """The inverse of `encode`. Raises DataCorruption, which names the place."""
        with understanding(where, REMEDY):
            known, segments, events, packed = unpack(data)
            check_format(known, FORMAT)
            ids, count = _SEGMENTS(segments), _COUNT(events)
            bits, codes = _bits(ids), np.frombuffer(_BYTES(packed), np.uint8)
            if count < 0 or len(codes) != -(-count * bits // 8):
                raise InvalidData(f"{len(codes)} bytes cannot tell the segments of {count} events")
            rows = np.unpackbits(codes, count=count * bits).reshape(count, bits)
            places = rows.astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
            if places.max(initial=0) >= len(ids):
                raise InvalidData(f"an event is said to be in segment number {places.max()} of {len(ids)}")
            return cls(ids, places)

    @classmethod
    def of_appends(cls, segments: Sequence[int], records: Sequence[np.ndarray]) -> Mix:
        """That of what several appends wrote to segments; records: of the index of each segment, from its beginning."""
        appends = np.concatenate([np.repeat(each[:, 3], np.diff(each[:, 1], prepend=0)) for each in records])
        places = np.repeat(np.arange(len(records)), [each[-1, 1] for each in records])
        known = tuple(dict.fromkeys(segments))
        own = np.array([known.index(number) for number in segments])
        return cls(known, own[places[np.argsort(appends, kind="stable")]])

    @classmethod
    def together(cls, mixes: Sequence[Mix]) -> Mix:
        """That of events that come one behind the other."""
        segments = tuple(dict.fromkeys(number for mix in mixes for number in mix.segments))
        known = {number: place for place, number in enumerate(segments)}
        places = [np.array([known[number] for number in mix.segments], np.int64)[mix.places] for mix in mixes]
        return cls(segments, np.concatenate(places))


def _bits(segments: Sequence[int]) -> int:
    return max(len(segments) - 1, 1).bit_length()


_SEGMENTS, _COUNT, _BYTES = reader(tuple[int, ...]), reader(int), reader(bytes)


def order_segments(stream: str) -> tuple[str, str]:
    """The names of the segment, and of its index, of the stream `scope/stream`."""
    name = f"{stream}/{ORDER}"
    return name, index_segment_name(name)


def keeping(container: Container, stream: str, mix: Mix | None) -> list[Operation]:
    """What keeps a mix in the same append as its events: nothing of what went to one segment.

    Makes the segment if it is not there, as far as this process knows: SegmentExists if it is, SegmentNotFound if it is
    gone with the stream.
    """
    if mix is None or len(mix.segments) < 2:
        return []
    name, index = order_segments(stream)
    data = mix.encode()
    record = IndexRecords(name, encode_records(np.array([[len(data), 0, UNKNOWN_TIME, THIS_APPEND]])))
    there = container.activated([name])[name] is not None
    made: list[Operation] = [] if there else [CreateSegment(name), CreateSegment(index)]
    return [*made, Append(index, record), Append(name, Payload(data))]


class KeptOrder:
    """The mixes that are kept of a stream, as of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._container = snapshot.stream.container
        self._names = order_segments(snapshot.stream.key)
        known = self._container.activated(self._names, snapshot.state)
        self._content, self._indexed = (known[name] for name in self._names)
        self._index: IndexReader | None = None
        if self._indexed is not None:
            index = self._indexed
            self._index = IndexReader(
                lambda start, end: self._container.read(index.name, start, end), index.start_offset, index.length
            )

    @property
    def there(self) -> bool:
        """Whether anything is kept."""
        return self._content is not None and self._content.start_offset < self._content.length

    def of(self, append: int) -> Mix | None:
        """That of the append of this number, if it is kept. Raises SegmentTruncated if it was, and DataCorruption."""
        if self._index is None or self._content is None or self._indexed is None:
            return None
        place = self._index.position_of_append(append)
        if place * RECORD_SIZE >= self._indexed.length:
            return None
        end, _, _, found = self._index.records(place, place + 1)[0].tolist()
        if found != append:
            return None
        start = self._start(place)
        return Mix.decode(self._container.read(self._names[0], start, end), f"{self._names[0]}, offset {start}")

    def _start(self, place: int) -> int:
        """Where the entry of a record begins: where that of the one before it ends."""
        assert self._index is not None and self._content is not None and self._indexed is not None
        first = self._indexed.start_offset // RECORD_SIZE
        return int(self._index.records(place - 1, place)[0, 0]) if place > first else self._content.start_offset

    def forget(self, append: int | None) -> list[Operation]:
        """The operations that forget those of the appends before that of this number; None: all that there are."""
        if self._index is None or self._content is None or self._indexed is None:
            return []
        end = self._indexed.length // RECORD_SIZE
        place = end if append is None else self._index.position_of_append(append)
        if place == self._indexed.start_offset // RECORD_SIZE:
            return []
        offset = self._content.length if place == end else self._start(place)
        return [TruncateSegment(self._names[0], offset), TruncateSegment(self._names[1], place * RECORD_SIZE)]
