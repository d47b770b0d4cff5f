"""How much of a segment in a Pravega's long-term storage can be read: its sound events, and what continues them.

Nothing but the events themselves shows whether an object is the right one, as Pravega keeps no checksums. So nothing is
used behind a broken event, nor an object whose events do not lead from the one before it to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import immutables

from chunkstore import StorageError
from chunkstore.pravega.archive import Archive
from chunkstore.pravega.archived_segments import ArchivedChunk
from engine.state.segments import Extent, Extents, Segment
from engine.storage.object_reads import Stores, fetch, plan_extents
from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent
from pravega_spark.streams.model.index_builder import IndexBuilder, IndexedEvents, index_events

_SEARCHED = 64 << 20  # bytes in which one that was merged is looked for

Problem = InvalidEvent | StorageError


class Sound(NamedTuple):
    """The sound part of what the metadata records of a segment.

    end: where it ends. records: those of its events, if it was scanned. problem: what is wrong at its end. goes_on:
    whether what follows in objects can be the continuation.
    """

    end: int
    records: bytes | None = None
    problem: Problem | None = None
    goes_on: bool = True


class Tail(NamedTuple):
    """What objects have behind a segment's sound part.

    extents: of the whole segment, this part included. base: where the last whole event of the sound part ends. end:
    where the last whole event ends, or all bytes do if they are no events. reach: where the objects end. events: how
    many are in [base, end); None if they are no events.
    """

    extents: Extents
    base: int
    end: int
    reach: int
    events: int | None
    problem: Problem | None


def segment_of(name: str, start: int, length: int, sealed: bool, chunks: Sequence[ArchivedChunk]) -> Segment:
    """A segment of which only these chunks are there."""
    return Segment(name, 0, start, length, sealed, 0, 0, immutables.Map(), _extents(chunks), length)


class SegmentScan:
    """Scans a segment of an archive. segment: as the metadata has it. limit: where it ended, if that is recorded.
    events: False if its bytes are known not to be events."""

    window = 1 << 20
    """Bytes that are read at once, as parts may be missing."""

    def __init__(
        self, stores: Stores, archive: Archive, segment: Segment, limit: int | None, events: bool = True
    ) -> None:
        self._stores = stores
        self._archive = archive
        self._segment = segment
        self._limit = limit
        self._events = events

    def sound(self) -> Sound:
        """The sound part of the recorded bytes; all of them if they do not begin with an event, as in a byte stream."""
        segment, start, due = self._segment, self._segment.start_offset, self._segment.length
        there = min(due, self._reach())
        if not self._events:
            return Sound(there)
        found = self._index(segment.extents, start, there)
        if found.problem is None or there < due:
            # Where objects end, an event may be cut: what continues them has the rest of it.
            return Sound(found.end, found.records, found.problem, goes_on=True)
        if found.end == start and ((tail := self.tail(start)) is None or not tail.events):
            known = self._archive.segments().get(segment.name)
            if known is None or known.problem is None:
                return Sound(due)
            return Sound(start, found.records, found.problem, goes_on=False)
        header = self._read(segment.extents, found.end, min(found.end + HEADER_SIZE, there))
        overruns = len(header) < HEADER_SIZE or int.from_bytes(header, "big") < 1 << 31
        if overruns and (tail := self.tail(found.end)) is not None and tail.end > found.end:
            return Sound(found.end, found.records, found.problem, goes_on=True)
        end = self._trusted(found, overruns)
        trusted = found if end == found.end else self._index(segment.extents, start, end)
        return Sound(trusted.end, trusted.records, found.problem, goes_on=False)

    def tail(self, base: int) -> Tail | None:
        """What objects have from `base` on, where the sound part ends; None if there is nothing."""
        segment, start = self._segment, self._segment.start_offset
        chunks = self._archive.continued(segment.name, start, self._is_due)
        extents = _extents(_limited(chunks, self._limit))
        reach = _end(extents, start)
        if reach <= base:
            return None
        if not self._events:
            return Tail(extents, base, reach, reach, None, None)
        builder = IndexBuilder(base)
        found = self._index(extents, base, reach, builder)
        if found.end == base and start < base == segment.length:  # the recorded end may be within an event
            boundary = self._index(extents, start, base).end
            if boundary < base:
                builder = IndexBuilder(boundary)
                found = self._index(extents, boundary, reach, builder)
                if found.end == start:
                    return Tail(extents, base, reach, reach, None, None)
                base = boundary
        return Tail(extents, base, found.end, reach, builder.events, found.problem)

    def is_merged(self, chunks: Sequence[ArchivedChunk], tail: Tail | None) -> bool:
        """Whether the segment has the bytes of these chunks: they were merged, and the chunks are garbage.

        It is looked for at the end of the segment, as objects that became garbage before that are gone.
        """
        content, segment = _extents(chunks), self._segment
        size = _end(content, 0)
        extents, start = tail.extents if tail is not None else segment.extents, segment.start_offset
        reach = _end(extents, start)
        first, low = self._read(content, 0, min(size, self.window)), max(start, reach - size - _SEARCHED)
        places = self._places(first, extents, low)
        return any(self._equal(content, size, extents, place) for place in places if place + size <= reach)

    def _places(self, searched: bytes, extents: Extents, low: int) -> Iterator[int]:
        """Where these bytes are, from an offset on."""
        kept = b""
        for at in range(low, _end(extents, low), self.window):
            window = kept + self._read(extents, at, min(at + self.window, _end(extents, low)))
            place = window.find(searched)
            while place >= 0:
                yield at - len(kept) + place
                place = window.find(searched, place + 1)
            kept = window[max(0, len(window) - len(searched) + 1) :] if len(searched) > 1 else b""

    def _equal(self, content: Extents, size: int, extents: Extents, place: int) -> bool:
        """Whether all bytes of a content are at an offset."""
        return all(
            self._read(content, at, min(at + self.window, size))
            == self._read(extents, place + at, place + min(at + self.window, size))
            for at in range(0, size, self.window)
        )

    def _is_due(self, chunk: ArchivedChunk) -> bool:
        """Whether an object is the one that is due at a chunk.

        One that was exchanged has another size. But the last one may also have grown: then an event ends where the
        metadata says that the segment ends.
        """
        if not self._archive.may_be_another(chunk.name, chunk.length):
            return True
        segment, size = self._segment, (self._archive.object(chunk.name) or (0, 0.0))[0]
        if size < chunk.length or chunk.offset + chunk.length != segment.length or segment.length == 0:
            return False
        return self._index(segment.extents, segment.start_offset, segment.length).problem is None

    def _reach(self) -> int:
        """The end of the contiguous objects of the recorded part, by a listing."""
        end = self._segment.start_offset
        for offset, extent in self._segment.extents:
            if offset > end:
                break
            chunk = ArchivedChunk(str(extent.source), offset, extent.length)
            size = (self._archive.object(chunk.name) or (0, 0.0))[0]
            if not self._is_due(chunk):
                break
            end = max(end, offset + min(extent.length, size))
            if size < extent.length:
                break
        return end

    def _index(self, extents: Extents, start: int, end: int, builder: IndexBuilder | None = None) -> IndexedEvents:
        return index_events(lambda low, high: self._read(extents, low, high), start, end, self.window, builder)

    def _read(self, extents: Extents, low: int, high: int) -> bytes:
        return b"".join(fetch(self._stores, plan_extents(extents, 0, low, high)))

    def _trusted(self, found: IndexedEvents, overruns: bool) -> int:
        """The end of the events that can be trusted, if damaged data follows them.

        Another object of the same size may have replaced one. Then its last event does not end where the first event
        of the next object begins. So a broken event at the start of an object casts doubt on the object before it, and
        an event that crosses the end of the segment on its own object.
        """
        start = self._segment.start_offset
        objects = [(max(offset, start), str(extent.source)) for offset, extent in self._segment.extents]
        place = bisect_right(objects, found.end, key=lambda each: each[0]) - 1
        if not overruns:
            if place == 0 or found.last >= objects[place][0]:
                return found.end
            place -= 1
        return objects[place][0] if self._archive.has_twin(objects[place][1]) else found.end


def _extents(chunks: Sequence[ArchivedChunk]) -> Extents:
    """The extents of chunks that follow each other."""
    if not chunks:
        return Extents()
    return Extents().appended(chunks[0].offset, [Extent(chunk.name, 0, chunk.length, b"") for chunk in chunks])


def _end(extents: Extents, start: int) -> int:
    """Where extents end."""
    return max((offset + extent.length for offset, extent in extents), default=start)


def _limited(chunks: Sequence[ArchivedChunk], limit: int | None) -> list[ArchivedChunk]:
    """The chunks up to an offset of the segment."""
    if limit is None:
        return list(chunks)
    return [chunk._replace(length=min(chunk.length, limit - chunk.offset)) for chunk in chunks if chunk.offset < limit]
