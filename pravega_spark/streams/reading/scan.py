"""Reading a range of a stream: from two cuts to slices that can be read anywhere, and from a slice to columns.

A slice is a range of one segment with the places of its bytes, so a task reads the objects itself, without looking at
the log (S1). Events come out in the order of the segment; a range that has gone is an error that names it. Of events
larger than the reader wants only the headers are read; other large ones are read one at a time (L1).
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chunkstore import ObjectNotFound
from chunkstore.checksums import BLOCK
from engine.errors import DataCorruption, ObjectLost, SegmentNotFound
from engine.state.index_records import RECORD_SIZE
from engine.storage.object_reads import ObjectRange, fetch, fetch_through
from pravega_spark.errors import TruncatedData
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent, decode, decode_whole, event_header
from pravega_spark.streams.model.index import WIDEST_GAP, InvalidIndex, decode_records
from pravega_spark.streams.model.index_builder import IndexBuilder
from pravega_spark.streams.reading.error_context import telling_the_rest
from pravega_spark.streams.reading.large_events import gaps
from pravega_spark.streams.reading.object_ranges import between, fetch_whole
from pravega_spark.streams.reading.rebuilt_index import IndexCache

if TYPE_CHECKING:
    from engine.root import Root
    from engine.storage.cache import Cache
    from pravega_spark.streams.reading.snapshot import Snapshot

logger = logging.getLogger(__name__)

STEP = 8 << 20
"""How many bytes of a slice are in memory at once, about."""

AHEAD = 1
"""How many steps are fetched while one is decoded."""

UNINDEXED = 256 << 10
"""A slice that is not larger than this is read without its index: finding its events one by one costs less."""

SHARED = 256 << 10
"""What is not larger than this is read through the cache, if there is one."""


class ScanSlice(NamedTuple):
    """Bytes `[start, end)` of a segment, beginning and ending at event boundaries. Plain values: may be pickled.

    records: where the index records of this range lie, or the records themselves; empty for a small range that is not
    numbered. first: the number of the first event in the segment, if it is to be told: then the records reach up to the
    end. chained: nothing is known of the events but where the first one begins, however large the range is.
    index_key: under which key whoever reads all of it keeps the index that it makes on the way; "" for none.
    """

    segment_id: int
    start: int
    end: int
    pieces: tuple[ObjectRange, ...]
    records: tuple[ObjectRange, ...] | bytes
    first: int = -1
    chained: bool = False
    index_key: str = ""


class _Step(NamedTuple):
    """What is read at once: a range of a segment, the event boundaries known in it, and what is left after it.

    large: it is probably one large event. records: those up to the end, if events are to be numbered.
    chain: finds the events of a chained slice, of which the range begins and ends anywhere.
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
    chain: Chain | None = None


class Chain:
    """The events of a chained slice, found in its bytes as these come, and the index of them."""

    def __init__(self, part: ScanSlice, wanted: int | None) -> None:
        """wanted: the payload of a large event of more bytes is left out; None: none is."""
        self._part = part
        self._wanted = wanted
        self._at = part.start  # where the first event is that was not given out yet
        self._rest: list[bytes] = []  # what is there of it
        self._have = 0
        self._large = 0  # its size, if it is a large one
        self._index = IndexBuilder(part.start)

    def events(self, data: memoryview, end: int) -> Iterator[Events]:
        """The events that are whole with the next bytes of the slice, which reach to `end`. Raises InvalidEvent."""
        if self._large:
            taken = min(self._large - self._have, len(data))
            self._keep(data[:taken])
            data = data[taken:]
            if self._have < self._large:
                return
            yield self._large_one()
        buffer = memoryview(b"".join([*self._rest, data])) if self._rest else data
        starts, lengths, behind = decode_whole(buffer, self._at)
        self._rest, self._have = [], 0
        base, self._at = self._at, self._at + behind
        self._index.add(starts + lengths + (HEADER_SIZE + base))
        rest = buffer[behind:]
        if len(rest) >= HEADER_SIZE:
            size = HEADER_SIZE + int.from_bytes(rest[4:HEADER_SIZE], "big")
            if self._at + size > self._part.end:
                raise InvalidEvent(f"it would end behind {self._part.end}", self._at)
            self._large = size if size > WIDEST_GAP else 0
        self._keep(rest)
        if end == self._part.end and len(rest):
            raise InvalidEvent(f"the last {len(rest)} bytes are no whole event", self._at)
        if len(starts):
            yield Events(self._part.segment_id, base, buffer[:behind], starts, lengths)
        if end == self._part.end and self._part.index_key:
            IndexCache().save(self._part.index_key, self._index.records())

    def left(self) -> list[ScanSlice]:
        """What is left of the slice."""
        start, end = self._at, self._part.end
        if start == end:
            return []
        pieces = between(self._part.pieces, start - self._part.start, end - self._part.start)
        return [self._part._replace(start=start, pieces=tuple(pieces), index_key="")]

    def _keep(self, data: memoryview) -> None:
        """Keep a copy: the memory is used again."""
        leaves_out = self._large and self._wanted is not None and self._large - HEADER_SIZE > self._wanted
        if not leaves_out and len(data):
            self._rest.append(bytes(data))
        self._have += len(data)

    def _large_one(self) -> Events:
        size, base, whole = self._large, self._at, self._rest
        self._at, self._rest, self._have, self._large = base + size, [], 0, 0
        self._index.add(np.array([base + size], np.int64))
        leaves_out = self._wanted is not None and size - HEADER_SIZE > self._wanted
        data = memoryview(b"" if leaves_out else b"".join(whole))
        starts, lengths = np.zeros(1, np.int64), np.array([size - HEADER_SIZE])
        return Events(self._part.segment_id, base, data, starts, lengths, True)


class Events(NamedTuple):
    """Some consecutive events of a segment: their framed bytes, where each header lies in them, payload lengths.

    Valid until the reader is asked for the next ones, which come to lie in the same memory.
    `offset`: the segment's offset of the first byte of `data`. `starts` count from there.
    `large`: this is one large event in memory of its own or, where `data` is empty, one whose payload was not read.
    `first`, `times`, `appends`: the number of the first event in the segment, when each was appended (ms since the
    epoch), and by the append of which number (see `index`), if the slices were planned to be numbered.
    """

    segment_id: int
    offset: int
    data: memoryview
    starts: np.ndarray
    lengths: np.ndarray
    large: bool = False
    first: int = -1
    times: np.ndarray | None = None
    appends: np.ndarray | None = None


def plan_slices(
    snapshot: Snapshot,
    ranges: dict[int, tuple[int, int]],
    target_bytes: int,
    numbered: bool = False,
) -> list[ScanSlice]:
    """Slices of at most about `target_bytes` that cover the ranges in their order; none for an empty range."""
    slices = []
    for number, (start, end) in ranges.items():
        bounds = _bounds(snapshot, number, start, end, target_bytes)
        for low, high in pairwise(bounds):
            slices.append(plan_slice(snapshot, number, low, high, numbered))
    return slices


def _bounds(snapshot: Snapshot, number: int, start: int, end: int, target_bytes: int) -> list[int]:
    """Where to cut a range: at index records, which are event boundaries."""
    bounds = [start]
    if end - start > target_bytes and snapshot.segments.is_indexed(number):
        index = snapshot.segments.index(number)
        while end - bounds[-1] > target_bytes * 5 // 4:
            record = index.locate_offset(bounds[-1] + target_bytes)
            if record is None or record.offset >= end:
                break
            bounds.append(record.offset)
    return [*bounds, end] if end > start else []


def plan_slice(snapshot: Snapshot, number: int, start: int, end: int, numbered: bool = False) -> ScanSlice:
    """One slice. numbered: events are to get their numbers and times. Raises SegmentTruncated when it is gone."""
    container = snapshot.stream.container
    segment = snapshot.segments.segment(number)
    pieces = container.plan_of(segment, start, end)
    if not numbered and not snapshot.segments.is_indexed(number):
        whole = (start, end) == (segment.start_offset, segment.length)
        key = snapshot.segments.index_key(number) if whole else ""
        return ScanSlice(number, start, end, tuple(pieces), (), chained=True, index_key=key)
    index: tuple[ObjectRange, ...] | bytes = ()
    if end - start > UNINDEXED or numbered:
        records = snapshot.segments.index_segment(number)
        first = max(snapshot.segments.index_position(number, start) * RECORD_SIZE, records.start_offset)
        last = snapshot.segments.index_position(number, end) * RECORD_SIZE
        if numbered and last < records.length:
            last += RECORD_SIZE  # if the slice ends between two records, its last events belong to the second one
        index = snapshot.segments.index_bytes(number, first, last)
    count = snapshot.segments.count_before(number, start) if numbered else -1
    return ScanSlice(number, start, end, tuple(pieces), index, count)


class _Room:
    """Memory that is used again, in large pages where the system has them: fresh small ones cost more than reading."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def of(self, size: int) -> mmap.mmap | None:
        """Room for a step of `size` bytes and the blocks around it, unless it is of an unusual size."""
        if not UNINDEXED < size <= 2 * STEP:
            return None
        if self._memory is None:
            # Private: what is mapped by default may be shared, and Linux gives that no large pages.
            self._memory = mmap.mmap(-1, 2 * STEP + 2 * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        return self._memory


class SliceReader:
    """Reads slices of a stream in whatever process it is made.

    fail_on_data_loss: a range that was truncated meanwhile is an error; otherwise reading goes on behind it.
    wanted: the payload of a large event of more bytes is not read; None: all are.
    cache: where small reads are kept for others of this process that read the same, as followers of a stream do.
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

    def read(self, slices: Sequence[ScanSlice]) -> Iterator[Events]:
        """The events of slices, in order, some MiB at a time, while the next ones are fetched.

        Raises TruncatedData, DataCorruption, StorageError.
        """
        place: list[str] = []
        with telling_the_rest(self._root, self._scope, self._name, place):
            yield from self._read(slices, place)

    def _read(self, slices: Sequence[ScanSlice], place: list[str]) -> Iterator[Events]:
        rest: list[ScanSlice] = list(slices)
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

    def _events(self, pool: Executor, slices: list[ScanSlice]) -> Iterator[tuple[Events, list[ScanSlice]]]:
        """The events of slices, step by step, and after each step what is left of them."""
        flying: deque[tuple[_Step, Callable[[], list[memoryview]]]] = deque()
        rooms = cycle([_Room() for _ in range(AHEAD + 1)])
        steps, failure = self._all_steps(slices), None
        while failure is None:
            try:
                step = next(steps)
            except StopIteration:
                break
            except (ObjectNotFound, DataCorruption) as error:
                failure = error  # of a slice behind those that fly
            else:
                flying.append((step, self._fetched(pool, step, next(rooms))))
                if len(flying) > AHEAD:
                    yield from self._found(*flying.popleft())
        while flying:
            yield from self._found(*flying.popleft())
        if failure is not None:
            raise failure

    def _found(self, step: _Step, fetched: Callable[[], list[memoryview]]) -> Iterator[tuple[Events, list[ScanSlice]]]:
        """The events of a step, and what is left after them. Raises InvalidEvent, which names the objects."""
        try:
            if step.chain is None:
                yield self._decoded(step, fetched)
                return
            for events in step.chain.events(_joined(fetched()), step.end):
                yield events, [*step.chain.left(), *step.rest]
        except InvalidEvent as error:
            where = ", ".join(sorted({piece.path for piece in step.pieces}))
            segment = f"stream {self._scope}/{self._name}, segment {segment_label(step.segment_id)}, in {where}"
            raise InvalidEvent(f"{segment}: {error.problem}", error.offset) from error

    def _fetched(self, pool: Executor, step: _Step, room: _Room) -> Callable[[], list[memoryview]]:
        """Begin to fetch what is to be read of a step. A whole large event is fetched when its turn comes."""
        stores, size = self._root.stores, step.end - step.start
        if self._cache is not None and size <= SHARED and all(piece.checksums for piece in step.pieces):
            cache = self._cache
            return lambda: [memoryview(part) for part in fetch_through(stores, step.pieces, cache)]
        if not step.large:
            return pool.submit(fetch, stores, step.pieces, room.of(size)).result
        if self._leaves_out(size):
            return pool.submit(fetch, stores, between(step.pieces, 0, HEADER_SIZE)).result
        return partial(fetch_whole, stores, step.pieces)

    def _leaves_out(self, size: int) -> bool:
        return self._wanted is not None and size - HEADER_SIZE > self._wanted

    def _all_steps(self, slices: list[ScanSlice]) -> Iterator[_Step]:
        for number, part in enumerate(slices):
            if part.chained:
                yield from self._windows(part, slices[number + 1 :])
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
                        [*later, *slices[number + 1 :]],
                        large,
                        step.first,
                        records if part.first >= 0 else None,
                    )

    def _windows(self, part: ScanSlice, later: list[ScanSlice]) -> Iterator[_Step]:
        """The steps of a chained slice."""
        chain = Chain(part, self._wanted)
        for low in range(part.start, part.end, STEP):
            high = min(low + STEP, part.end)
            pieces = tuple(between(part.pieces, low - part.start, high - part.start))
            yield _Step(part.segment_id, low, high, pieces, np.zeros(1, np.int64), later, False, -1, None, chain)

    def _decoded(self, step: _Step, fetched: Callable[[], list[memoryview]]) -> tuple[Events, list[ScanSlice]]:
        data, size = _joined(fetched()), step.end - step.start
        if step.large and self._leaves_out(size):
            if data == event_header(size - HEADER_SIZE):
                starts, lengths = np.zeros(1, np.int64), np.array([size - HEADER_SIZE])
                return _marked(Events(step.segment_id, step.start, data[:0], starts, lengths, True), step), step.rest
            data = fetch_whole(self._root.stores, step.pieces)[0]  # decoding tells what is wrong
        starts, lengths = decode(data, step.lanes, size, step.start)
        large = step.large and len(starts) == 1
        return _marked(Events(step.segment_id, step.start, data, starts, lengths, large), step), step.rest

    def _records(self, part: ScanSlice) -> np.ndarray:
        """The index records that are known of the slice, one for each offset."""
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
        """Events get their numbers and times by the records up to the slice's end."""
        if part.first >= 0 and (not len(records) or records[-1, 0] < part.end):
            what = f"stream {self._scope}/{self._name}, segment {segment_label(part.segment_id)}, its index"
            raise InvalidIndex(f"{what}: no record is of offset {part.end} or behind it, where events are")

    def _planned_again(self, part: ScanSlice, error: Exception) -> list[ScanSlice]:
        """A slice whose objects have gone: moved, or truncated away."""
        from pravega_spark.streams.reading.stream_view import StreamView  # few tasks have to look at the log

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
            logger.warning("%s Reading goes on behind it.", loss.fact)
        return [plan_slice(snapshot, part.segment_id, head, part.end, part.first >= 0)] if head < part.end else []


def _marked(events: Events, step: _Step) -> Events:
    """The events with their numbers and times, if they are to have them."""
    if step.records is None:
        return events
    ends = events.starts + (events.lengths + HEADER_SIZE + events.offset)
    found = step.records[np.searchsorted(step.records[:, 0], ends)]
    return events._replace(first=step.first, times=found[:, 2], appends=found[:, 3])


def _steps(boundaries: np.ndarray, seams: np.ndarray, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a slice into steps at event boundaries, and where it can be, where an object ends: that spares a copy."""
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
    """The parts as one; without a copy if they lie one behind the other already."""
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
