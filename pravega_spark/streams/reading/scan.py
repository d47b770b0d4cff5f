"""Reads the events of slices (see `slices`), in any process.

Keeps that events come out in the order of the segment, and that a truncated range is an error that names it. Of events
larger than the reader wants only the headers are read; other large events are read one at a time (L1).
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chunkstore import ObjectNotFound
from chunkstore.checksums import BLOCK
from engine.errors import DataCorruption, ObjectLost, SegmentNotFound
from engine.storage.object_reads import ObjectRange, fetch, fetch_through, measured
from pravega_spark.errors import TruncatedData
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent, decode, event_header
from pravega_spark.streams.model.index import WIDEST_GAP, InvalidIndex, decode_records
from pravega_spark.streams.reading import slices
from pravega_spark.streams.reading.error_context import with_recovery_advice
from pravega_spark.streams.reading.large_events import gaps
from pravega_spark.streams.reading.object_ranges import between, fetch_whole
from pravega_spark.streams.reading.slices import Events, ScanSlice, plan_slice
from pravega_spark.streams.reading.unindexed import UnindexedEvents

if TYPE_CHECKING:
    from engine.root import Root
    from engine.storage.cache import Cache

logger = logging.getLogger(__name__)

STEP = 8 << 20
"""About how many bytes of a slice are in memory at once."""

AHEAD = 1
"""Number of steps that are fetched while one is decoded."""

SHARED = 256 << 10
"""Steps up to this size are read through the cache, if there is one."""


class _Step(NamedTuple):
    """A range of a segment that is read at once, the known event boundaries in it (lanes), and the rest of the scan.

    large: it is probably one large event. records: index records up to the end, if events are numbered. parser: of a
    slice without an index, where a step may begin and end inside an event.
    """

    segment_id: int
    start: int
    end: int
    pieces: tuple[ObjectRange, ...]
    lanes: np.ndarray
    rest: list[ScanSlice]
    large: bool
    first: int
    records: np.ndarray | None
    parser: UnindexedEvents | None = None

    def object_at(self, offset: int) -> str:
        """The object with this offset of the segment; the first one, if the offset is before the step."""
        place = max(offset - self.start, 0)
        return between(self.pieces, place, place + 1)[0].path


class _Room:
    """A reused buffer, in huge pages where the system has them: page faults of a new buffer cost more than reading."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def of(self, size: int) -> mmap.mmap | None:
        """The buffer, for a step of `size` bytes and the blocks around it; None for unusual sizes."""
        if not slices.MAX_UNINDEXED < size <= 2 * STEP:
            return None
        if self._memory is None:
            # Private: Linux gives no huge pages to a shared mapping, which is the default.
            self._memory = mmap.mmap(-1, 2 * STEP + 2 * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        return self._memory


class SliceReader:
    """Reads slices of a stream.

    fail_on_data_loss: a range that was truncated meanwhile is an error; otherwise reading continues behind it.
    wanted: payloads of large events of more bytes are not read; None: all payloads are.
    cache: for small reads, shared by the followers of a stream in this process.
    """

    def __init__(
        self,
        root: Root,
        scope: str,
        name: str,
        fail_on_data_loss: bool = True,
        wanted: int | None = None,
        cache: Cache | None = None,
    ) -> None:
        self._root, self._scope, self._name = root, scope, name
        self._fail_on_data_loss = fail_on_data_loss
        self._wanted = wanted
        self._cache = cache

    def read(self, parts: Sequence[ScanSlice]) -> Iterator[Events]:
        """The events of slices, in order, some MiB at a time, while the next ones are fetched.

        Raises TruncatedData, DataCorruption, StorageError.
        """
        place: list[str] = []
        with with_recovery_advice(self._root, self._scope, self._name, place):
            yield from self._read(parts, place)

    def _read(self, parts: Sequence[ScanSlice], place: list[str]) -> Iterator[Events]:
        rest: list[ScanSlice] = list(parts)
        failed_at: tuple[int, int] | None = None
        with ThreadPoolExecutor(1, "fetch") as pool:
            while rest:
                try:
                    for events, left in self._events(pool, rest):
                        rest = left
                        yield events
                    return
                except (ObjectNotFound, DataCorruption) as error:
                    first = rest[0]
                    place[:] = [f"segment {segment_label(first.segment_id)}", f"from offset {first.start} on"]
                    if failed_at == (first.segment_id, first.start):
                        if isinstance(error, ObjectNotFound):  # it was planned again and is still not there
                            raise ObjectLost(str(error)) from error
                        raise
                    again = self._planned_again(first, error)
                    failed_at = (first.segment_id, again[0].start) if again else None
                    rest = [*again, *rest[1:]]

    def _events(self, pool: Executor, parts: list[ScanSlice]) -> Iterator[tuple[Events, list[ScanSlice]]]:
        """The events of slices, step by step, each with the slices that are left after them."""
        in_flight: deque[tuple[_Step, Callable[[], list[memoryview]]]] = deque()
        rooms = cycle([_Room() for _ in range(AHEAD + 1)])
        steps, failure = self._all_steps(parts), None
        while failure is None:
            try:
                step = next(steps)
            except StopIteration:
                break
            except (ObjectNotFound, DataCorruption) as error:
                failure = error  # of a later slice than those in flight
            else:
                in_flight.append((step, self._fetched(pool, step, next(rooms))))
                if len(in_flight) > AHEAD:
                    yield from self._found(*in_flight.popleft())
        while in_flight:
            yield from self._found(*in_flight.popleft())
        if failure is not None:
            raise failure

    def _found(self, step: _Step, fetched: Callable[[], list[memoryview]]) -> Iterator[tuple[Events, list[ScanSlice]]]:
        """The events of a step, with the slices left after them. Raises InvalidEvent, which names the object."""
        try:
            if step.parser is None:
                yield self._decoded(step, fetched)
                return
            for events in step.parser.events(_joined(fetched()), step.end):
                yield events, [*step.parser.rest(), *step.rest]
        except InvalidEvent as error:
            segment = f"stream {self._scope}/{self._name}, segment {segment_label(step.segment_id)}"
            raise InvalidEvent(
                f"{segment}, in {step.object_at(error.offset)}: {error.problem}", error.offset
            ) from error

    def _fetched(self, pool: Executor, step: _Step, room: _Room) -> Callable[[], list[memoryview]]:
        """Begin to fetch a step. A whole large event is fetched only when it is decoded."""
        stores, size = self._root.stores, step.end - step.start
        if self._cache is not None and size <= SHARED and all(piece.checksums for piece in step.pieces):
            cache = self._cache
            return partial(measured, lambda: [memoryview(part) for part in fetch_through(stores, step.pieces, cache)])
        if step.large and not self._leaves_out(size):
            return partial(measured, partial(fetch_whole, stores, step.pieces))
        if step.large:
            read = partial(fetch, stores, between(step.pieces, 0, HEADER_SIZE))
        else:
            read = partial(fetch, stores, step.pieces, room.of(size))
        return pool.submit(copy_context().run, measured, read).result  # in the caller's context, for its spans

    def _leaves_out(self, size: int) -> bool:
        return self._wanted is not None and size - HEADER_SIZE > self._wanted

    def _all_steps(self, parts: list[ScanSlice]) -> Iterator[_Step]:
        for number, part in enumerate(parts):
            if not part.indexed:
                yield from self._unindexed_steps(part, parts[number + 1 :])
                continue
            records = self._records(part)
            self._check_numbered(part, records)
            boundaries = records[:, 0]
            seams = _seams(part)
            for start, end, large in gaps(boundaries, part.start, part.end, WIDEST_GAP):
                for low, high in [(start, end)] if large else _steps(boundaries, seams, start, end):
                    lanes = boundaries[(boundaries > low) & (boundaries < high)] - low
                    later = [_cut(part, high, part.end, records)] if high < part.end else []
                    step = _cut(part, low, high, records)
                    yield _Step(
                        part.segment_id,
                        low,
                        high,
                        step.pieces,
                        np.concatenate(([0], lanes)),
                        [*later, *parts[number + 1 :]],
                        large,
                        step.first,
                        records if part.first >= 0 else None,
                    )

    def _unindexed_steps(self, part: ScanSlice, later: list[ScanSlice]) -> Iterator[_Step]:
        """The steps of a slice without an index."""
        parser = UnindexedEvents(part, self._wanted)
        for low in range(part.start, part.end, STEP):
            high = min(low + STEP, part.end)
            pieces = tuple(between(part.pieces, low - part.start, high - part.start))
            yield _Step(part.segment_id, low, high, pieces, np.zeros(1, np.int64), later, False, -1, None, parser)

    def _decoded(self, step: _Step, fetched: Callable[[], list[memoryview]]) -> tuple[Events, list[ScanSlice]]:
        data, size = _joined(fetched()), step.end - step.start
        if step.large and self._leaves_out(size):
            if data == event_header(size - HEADER_SIZE):
                starts, lengths = np.zeros(1, np.int64), np.array([size - HEADER_SIZE])
                return _marked(Events(step.segment_id, step.start, data[:0], starts, lengths, True), step), step.rest
            data = fetch_whole(self._root.stores, step.pieces)[0]  # decoding raises the error
        starts, lengths = decode(data, step.lanes, size, step.start)
        large = step.large and len(starts) == 1
        return _marked(Events(step.segment_id, step.start, data, starts, lengths, large), step), step.rest

    def _records(self, part: ScanSlice) -> np.ndarray:
        """The index records of the slice, one for each offset."""
        if not part.records:
            return np.empty((0, 4), np.int64)
        stored = part.records
        if not isinstance(stored, bytes):
            stored = _joined(fetch(self._root.stores, stored))  # type: ignore[assignment]
        records = decode_records(stored)  # type: ignore[arg-type]
        steps = np.diff(records[:, 0], prepend=-1)
        if (steps < 0).any():
            what = f"stream {self._scope}/{self._name}, segment {segment_label(part.segment_id)}, its index"
            raise InvalidIndex(f"{what}: its records are not in order from offset {part.start} to {part.end}")
        return records[steps > 0]  # an append without events repeats an offset

    def _check_numbered(self, part: ScanSlice, records: np.ndarray) -> None:
        """Raise InvalidIndex unless the records reach up to the end of a numbered slice."""
        if part.first >= 0 and (not len(records) or records[-1, 0] < part.end):
            what = f"stream {self._scope}/{self._name}, segment {segment_label(part.segment_id)}, its index"
            raise InvalidIndex(f"{what}: it has events up to offset {part.end}, but no record up to there")

    def _planned_again(self, part: ScanSlice, error: Exception) -> list[ScanSlice]:
        """A slice whose objects are gone, because a flush moved the data or the stream was truncated."""
        from pravega_spark.streams.reading.stream_view import StreamView  # few tasks read the log

        stream = StreamView(self._root, self._scope, self._name)
        snapshot = stream.snapshot()
        try:
            head = min(max(snapshot.segments.segment(part.segment_id).start_offset, part.start), part.end)
        except SegmentNotFound:
            head = part.end
        if head > part.start:
            loss = TruncatedData(stream.key, part.segment_id, part.start, head)
            if self._fail_on_data_loss:
                raise loss from error
            logger.warning("%s Reading continues after it.", loss.fact)
        return [plan_slice(snapshot, part.segment_id, head, part.end, part.first >= 0)] if head < part.end else []


def _marked(events: Events, step: _Step) -> Events:
    """The events with their numbers and times, if the slice was planned so."""
    if step.records is None:
        return events
    ends = events.starts + (events.lengths + HEADER_SIZE + events.offset)
    found = step.records[np.searchsorted(step.records[:, 0], ends)]
    return events._replace(first=step.first, times=found[:, 2], appends=found[:, 3])


def _steps(boundaries: np.ndarray, seams: np.ndarray, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a slice into steps at event boundaries, and at ends of objects where possible, which saves a copy."""
    seams = np.intersect1d(boundaries, seams)
    while end - start > STEP:
        near = seams[(seams >= start + STEP // 2) & (seams <= start + STEP * 3 // 2)]
        cuts = near[-1:] if len(near) else boundaries[np.searchsorted(boundaries, start + STEP) :][:1]
        if not len(cuts) or cuts[0] >= end:
            break
        yield start, int(cuts[0])
        start = int(cuts[0])
    yield start, end


def _seams(part: ScanSlice) -> np.ndarray:
    """The offsets at which a piece of the slice ends."""
    return part.start + np.cumsum([piece.taken for piece in part.pieces])


def _cut(part: ScanSlice, start: int, end: int, records: np.ndarray) -> ScanSlice:
    """A part of a slice; it begins where the slice does, or at one of its records."""
    first = part.first
    if first >= 0 and start > part.start:
        first = int(records[np.searchsorted(records[:, 0], start), 1])
    pieces = between(part.pieces, start - part.start, end - part.start)
    return ScanSlice(part.segment_id, start, end, tuple(pieces), part.records, first)


def _joined(parts: Sequence[memoryview]) -> memoryview:
    """The parts as one buffer, without a copy if they are adjacent in memory."""
    if len(parts) == 1:
        return parts[0]
    if parts and all(part.obj is parts[0].obj for part in parts):
        places = [np.frombuffer(part, np.uint8).ctypes.data for part in parts]
        ends = [place + len(part) for place, part in zip(places, parts, strict=True)]
        if places[1:] == ends[:-1]:
            whole = memoryview(parts[0].obj)
            first = places[0] - np.frombuffer(whole, np.uint8).ctypes.data
            return whole[first : first + ends[-1] - places[0]]
    return memoryview(b"".join(parts))
