"""The stream cuts recorded for retention, in the order of their times (Pravega: RetentionSet).

A segment holds the cuts one after the other. Another segment holds an index record for each: bytes of the stream
before it, offset of the cut, and time of recording. None of the three ever descends, so the records are searched
like the index of events, and a search is cheap however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgpack
import numpy as np

from chunkstore.decoding import check_format, reader, unpack
from engine.clocks import is_plausible
from engine.errors import understanding
from engine.state.index_records import RECORD_SIZE
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Operation,
    Payload,
    TruncateSegment,
    UpdateKind,
)
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import UNKNOWN_APPEND, IndexReader, IndexRecord, encode_records
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.stream_record import FORMAT, REMEDY
from pravega_spark.streams.reading.snapshot import Snapshot

if TYPE_CHECKING:
    from pravega_spark.streams.reading.readable import ReadableContainer

_LATEST_TIME = (1 << 127 | 1 << 32).to_bytes(16, "big")
_LATEST_SIZE = (1 << 127 | 1 << 32 | 1).to_bytes(16, "big")
"""Core attributes of the segment with the records, which are always in memory."""

RECORDED = "recorded"
"""The name of the segment with a stream's cuts, in the stream."""

RECORDED_SEGMENTS = (RECORDED, f"{RECORDED}#index")
"""The names of the segments with a stream's cuts and their records, in the stream."""

_BLOCK = 4096  # cuts that are read at once


class Recorded(NamedTuple):
    """A recorded cut: its number, when it was recorded (ms since the epoch), how many bytes the stream had before."""

    number: int
    time: int
    size: int


def with_recorded_cuts(container: ReadableContainer, keys: Sequence[str]) -> list[str]:
    """The streams of a container with recorded cuts, as "scope/stream", as far as this process knows."""
    known = container.activated([_names(key)[1] for key in keys])
    records = {key: known[_names(key)[1]] for key in keys}
    return [key for key, segment in records.items() if segment is not None and segment.start_offset < segment.length]


def _names(key: str) -> tuple[str, str]:
    """The segments with a stream's cuts, and with their records."""
    cuts, records = RECORDED_SEGMENTS
    return f"{key}/{cuts}", f"{key}/{records}"


def recording(key: str, cuts: Sequence[tuple[int, int, Mapping[int, int]]]) -> list[Operation]:
    """The operations that record the cuts of a new stream: time (ms), bytes before it, and positions of each, in the
    order of times and sizes."""
    if not cuts:
        return []
    names, (content, records) = _names(key), contents(cuts)
    return [
        *map(CreateSegment, names),
        Append(names[0], Payload(content), 0),
        Append(names[1], Payload(records), 0, _latest(cuts[-1][0], cuts[-1][1])),
    ]


def contents(cuts: Sequence[tuple[int, int, Mapping[int, int]]]) -> tuple[bytes, bytes]:
    """The content of the segments with the cuts and with their records. cuts: time (ms), bytes before it, and
    positions of each, in the order of times and sizes."""
    rows, content = [], bytearray()
    for time_ms, size, positions in cuts:
        rows.append((size, len(content), time_ms, UNKNOWN_APPEND))
        content += encode_recorded(positions)
    return bytes(content), encode_records(np.array(rows))


def encode_recorded(positions: Mapping[int, int]) -> bytes:
    """The stored form of a recorded cut. Raises UnreadableRecord."""
    return readable(
        "a recorded stream cut",
        positions,
        lambda found: bytes(msgpack.packb([FORMAT, dict(found)])),
        lambda data: decode_recorded(data, "s", "s", "it").positions,
    )


def decode_recorded(data: bytes, scope: str, stream: str, where: str) -> StreamCut:
    """The inverse of `encode_recorded`. Raises DataCorruption with `where` in its message."""
    with understanding(where, REMEDY):
        known, positions = unpack(data)
        check_format(known, FORMAT)
        return StreamCut(scope, stream, _POSITIONS(positions))


_POSITIONS = reader(dict[int, int])


def latest_attributes(time_ms: int, size: int) -> dict[bytes, int]:
    """The attributes with the last recorded cut."""
    return {update.attribute: update.value for update in _latest(time_ms, size)}


def _latest(time_ms: int, size: int) -> tuple[AttributeUpdate, ...]:
    """The last recorded cut, from the attributes."""
    return (
        AttributeUpdate(_LATEST_TIME, UpdateKind.REPLACE, time_ms),
        AttributeUpdate(_LATEST_SIZE, UpdateKind.REPLACE, size),
    )


class RecordedCuts:
    """The recorded cuts of a stream, as of a snapshot. Each search reads a block or two of the records.

    following: a cut, the bytes before it and its time (ms), as if it had been recorded too.
    """

    def __init__(self, snapshot: Snapshot, following: tuple[StreamCut, int, int] | None = None) -> None:
        self._stream = snapshot.stream
        self._names = _names(self._stream.key)
        known = self._stream.container.activated(self._names, snapshot.state)
        cuts, self._records = (known[name] for name in self._names)
        self._length = cuts.length if cuts is not None else 0  # bytes of all cuts
        start, end = (self._records.start_offset, self._records.length) if self._records is not None else (0, 0)
        self._first, self._end = start // RECORD_SIZE, end // RECORD_SIZE
        self._index: IndexReader | None = None
        self._following: Recorded | None = None
        if following is not None:
            self._following_cut, size, time_ms = following
            self._following = Recorded(self._end, self._moment(time_ms), size)

    def latest(self) -> Recorded | None:
        """The last one. Makes no request."""
        records = self._records
        if self._following is not None:
            return self._following
        if records is None or records.length == records.start_offset:
            return None
        number = records.length // RECORD_SIZE - 1
        return Recorded(number, records.attributes[_LATEST_TIME], records.attributes[_LATEST_SIZE])

    @property
    def last_time(self) -> int | None:
        """The time of the last one, even if it was deleted since. Makes no request."""
        return self._records.attributes.get(_LATEST_TIME) if self._records is not None else None

    def last_of_size(self, most: int) -> Recorded | None:
        """The last one with at most so many bytes before it."""
        return self._at(self._of_size(most + 1) - 1)

    def first_of_size(self, least: int) -> Recorded | None:
        """The first one with at least so many bytes before it."""
        return self._at(self._of_size(least))

    def last_of_time(self, most: int) -> Recorded | None:
        """The last one that was recorded then or earlier."""
        return self._at(self._of_time(most + 1) - 1)

    def first_of_time(self, least: int) -> Recorded | None:
        """The first one that was recorded then or later."""
        return self._at(self._of_time(least))

    def last_cut(self, last: Recorded | None, holds: Callable[[StreamCut], bool]) -> StreamCut | None:
        """The last cut up to `last` for which a predicate holds that also holds for all cuts before it."""
        low, high, found = self._first, last.number + 1 if last is not None else 0, None
        while low < high:
            middle = (low + high) // 2
            cut = self.cut(self._row_at(middle))
            if holds(cut):
                low, found = middle + 1, cut
            else:
                high = middle
        return found

    def cut(self, recorded: Recorded) -> StreamCut:
        """The cut itself."""
        if recorded == self._following:
            return self._following_cut
        place, end = self._place(recorded.number), self._place(recorded.number + 1)
        return self._decoded(self._stream.container.read(self._names[0], place, end), place)

    def _decoded(self, data: bytes, place: int) -> StreamCut:
        return decode_recorded(data, self._stream.scope, self._stream.name, f"{self._names[0]}, offset {place}")

    def all(self) -> Iterator[tuple[Recorded, StreamCut]]:
        """All of them in their order, read in blocks."""
        stream, last = self._stream, self._end
        for first in range(self._first, last, _BLOCK):
            rows = self._reader().records(first, min(first + _BLOCK, last)).tolist()
            content = stream.container.read(self._names[0], rows[0][1], self._place(first + len(rows)))
            places = [place - rows[0][1] for _, place, _, _ in rows] + [len(content)]
            for number, (size, _, time_ms, _) in enumerate(rows):
                data = content[places[number] : places[number + 1]]
                yield Recorded(first + number, time_ms, size), self._decoded(data, rows[number][1])

    # --- changes -----------------------------------------------------------------------------------------------

    def record(self, positions: Mapping[int, int], size: int, time_ms: int) -> list[Operation]:
        """The operations that record a cut. They fail with BadOffset if another process recorded one meanwhile."""
        records = self._records
        if self.last_time is not None and not is_plausible(self.last_time / 1000, time_ms / 1000):
            return self._record_anew(positions, size, time_ms)
        operations: list[Operation] = [] if records is not None else [CreateSegment(name) for name in self._names]
        index, moment = (records.length if records is not None else 0), self._moment(time_ms)
        row = np.array([[size, self._length, moment, UNKNOWN_APPEND]])
        return [
            *operations,
            Append(self._names[0], Payload(encode_recorded(positions))),  # the record tells whether it is the next one
            Append(self._names[1], Payload(encode_records(row)), index, _latest(moment, size)),
        ]

    def _record_anew(self, positions: Mapping[int, int], size: int, time_ms: int) -> list[Operation]:
        """The same if the last time is in the future, by a clock that was wrong (W13). As times must not descend,
        all cuts are recorded again, those of the future with the present time."""
        assert self._records is not None
        known = [(min(found.time, time_ms), found.size, cut.positions) for found, cut in self.all()]
        return [
            Append(self._names[1], Payload(b""), self._records.length),  # rejects the commit unless it is unchanged
            *map(DeleteSegment, self._names),
            *recording(self._stream.key, [*known, (time_ms, size, positions)]),
        ]

    def forget(self, size: int) -> list[Operation]:
        """The operations that delete the cuts before the first `size` bytes of the stream, or at their end."""
        following = min(self._of_size(size + 1), self._end)
        if following <= self._first:
            return []
        end, records = self._place(following), following * RECORD_SIZE
        return [TruncateSegment(self._names[0], end), TruncateSegment(self._names[1], records)]

    # --- the records -------------------------------------------------------------------------------------------

    def _reader(self) -> IndexReader:
        if self._index is None:
            container, name = self._stream.container, self._names[1]
            self._index = IndexReader(
                lambda start, end: container.read(name, start, end), self._first * RECORD_SIZE, self._end * RECORD_SIZE
            )
        return self._index

    def _of_size(self, least: int) -> int:
        """The number of the first one with at least so many bytes before it; where there is none, that of the next."""
        if self._following is not None and self._following.size < least:
            return self._end + 1
        return self._number(self._reader().locate_offset(least))

    def _of_time(self, least: int) -> int:
        """The same of the first one that was recorded then or later."""
        if self._following is not None and self._following.time < least:  # so are all, when recorded again
            return self._end + 1
        return self._number(self._reader().locate_time(least))

    def _number(self, found: IndexRecord | None) -> int:
        """The number of a record that a search found: places never repeat, unlike times and sizes."""
        return self._end if found is None else self._reader().position_of_count(found.count)

    def _moment(self, time_ms: int) -> int:
        """The time at which a cut is recorded: not before that of the last one, unless a wrong clock wrote that."""
        last = self.last_time
        wrong = last is not None and not is_plausible(last / 1000, time_ms / 1000)
        return time_ms if last is None or wrong else max(time_ms, last)

    def _place(self, number: int) -> int:
        """Where the cut of this number begins; of the number after the last one, where that ends."""
        return self._length if number == self._end else self._row(number)[1]

    def _row(self, number: int) -> list[int]:
        row: list[int] = self._reader().records(number, number + 1)[0].tolist()
        return row

    def _at(self, number: int) -> Recorded | None:
        known = self._end + (self._following is not None)
        return self._row_at(number) if self._first <= number < known else None

    def _row_at(self, number: int) -> Recorded:
        if self._following is not None and number == self._following.number:
            return self._following
        size, _, time_ms, _ = self._row(number)
        return Recorded(number, time_ms, size)
