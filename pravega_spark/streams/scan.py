"""Reading a range of a stream: from two cuts to slices that can be read anywhere, and from a slice to columns.

A slice is a range of one segment with the places of its bytes, so a task reads the objects itself, without looking at
the log (S1). Events come out in the order of the segment; a range that has gone is an error that names it.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import cycle, pairwise
from typing import NamedTuple

import numpy as np

from chunkstore import ObjectNotFound
from chunkstore.checksums import BLOCK
from engine.errors import DataCorruption, SegmentNotFound
from engine.reads import Piece, fetch
from engine.root import Root
from pravega_spark.errors import TruncatedData
from pravega_spark.streams.events import decode
from pravega_spark.streams.index import RECORD_SIZE, decode_records
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

STEP = 8 << 20
"""How many bytes of a slice are in memory at once, about."""

AHEAD = 1
"""How many steps are fetched while one is decoded."""

UNINDEXED = 256 << 10
"""A slice that is not larger than this is read without its index: finding its events one by one costs less."""


class Slice(NamedTuple):
    """Bytes `[start, end)` of a segment, beginning and ending at event boundaries. Plain values: may be pickled.

    records: where the index records of this range lie; empty for a small range.
    """

    segment_id: int
    start: int
    end: int
    pieces: tuple[Piece, ...]
    records: tuple[Piece, ...]


class _Step(NamedTuple):
    """What is read at once: a range of a segment, the event boundaries known in it, and what is left after it."""

    segment_id: int
    start: int
    end: int
    pieces: tuple[Piece, ...]
    lanes: np.ndarray
    rest: list[Slice]


class Events(NamedTuple):
    """Some consecutive events of a segment: their framed bytes, where each header lies in them, payload lengths.

    Valid until the reader is asked for the next ones, which come to lie in the same memory.
    `offset`: the segment's offset of the first byte of `data`. `start`: where in `data` the first event begins.
    """

    segment_id: int
    offset: int
    data: memoryview
    starts: np.ndarray
    lengths: np.ndarray


def plan_slices(snapshot: Snapshot, ranges: dict[int, tuple[int, int]], target_bytes: int) -> list[Slice]:
    """Slices of at most about `target_bytes` that cover the ranges in their order; none for an empty range."""
    slices = []
    for number, (start, end) in ranges.items():
        bounds = _bounds(snapshot, number, start, end, target_bytes)
        for low, high in pairwise(bounds):
            slices.append(plan_slice(snapshot, number, low, high))
    return slices


def _bounds(snapshot: Snapshot, number: int, start: int, end: int, target_bytes: int) -> list[int]:
    """Where to cut a range: at index records, which are event boundaries."""
    bounds = [start]
    if end - start > target_bytes:
        index = snapshot.index(number)
        while end - bounds[-1] > target_bytes * 5 // 4:
            record = index.locate_offset(bounds[-1] + target_bytes)
            if record is None or record.offset >= end:
                break
            bounds.append(record.offset)
    return [*bounds, end] if end > start else []


def plan_slice(snapshot: Snapshot, number: int, start: int, end: int) -> Slice:
    """One slice. Raises SegmentTruncated when it is gone."""
    container = snapshot.stream.container
    pieces = container.plan_of(snapshot.segment(number), start, end)
    index: list[Piece] = []
    if end - start > UNINDEXED:
        records = snapshot.index_segment(number)
        first = max(snapshot.index_position(number, start) * RECORD_SIZE, records.start_offset)
        last = snapshot.index_position(number, end) * RECORD_SIZE
        index = container.plan_of(records, first, last)
    return Slice(number, start, end, tuple(pieces), tuple(index))


class _Room:
    """Memory that is used again, in large pages where the system has them: fresh small ones cost more than reading."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def of(self, size: int) -> mmap.mmap | None:
        """Room for a step of `size` bytes and the blocks around it, unless it is of an unusual size."""
        if not UNINDEXED < size <= 2 * STEP:
            return None
        if self._memory is None:
            self._memory = mmap.mmap(-1, 2 * STEP + 2 * BLOCK)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        return self._memory


class SliceReader:
    """Reads slices of a stream in whatever process it is made.

    fail_on_data_loss: a range that was truncated meanwhile is an error; otherwise reading goes on behind it.
    """

    def __init__(self, root: Root, scope: str, name: str, fail_on_data_loss: bool = True) -> None:
        self._stream = Stream(root, scope, name)
        self._fail_on_data_loss = fail_on_data_loss

    def read(self, slices: Sequence[Slice]) -> Iterator[Events]:
        """The events of slices, in order, some MiB at a time, while the next ones are fetched.

        Raises TruncatedData, DataCorruption, StorageError.
        """
        rest: list[Slice] = list(slices)
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
                    if failed_at == (first.segment_id, first.start):
                        raise  # it was planned again and is still not there
                    again = self._planned_again(first, error)
                    failed_at = (first.segment_id, again[0].start) if again else None
                    rest = [*again, *rest[1:]]

    def _events(self, pool: Executor, slices: list[Slice]) -> Iterator[tuple[Events, list[Slice]]]:
        """The events of slices, step by step, and after each step what is left of them."""
        stores = self._stream.root.stores
        flying: deque[tuple[_Step, Future[list[memoryview]]]] = deque()
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
                room = next(rooms).of(step.end - step.start)
                flying.append((step, pool.submit(fetch, stores, step.pieces, room)))
                if len(flying) > AHEAD:
                    yield self._decoded(*flying.popleft())
        while flying:
            yield self._decoded(*flying.popleft())
        if failure is not None:
            raise failure

    def _all_steps(self, slices: list[Slice]) -> Iterator[_Step]:
        for number, part in enumerate(slices):
            boundaries = self._boundaries(part)
            for low, high in _steps(boundaries, _seams(part), part.start, part.end):
                lanes = boundaries[(boundaries > low) & (boundaries < high)] - low
                later = [_cut(part, high, part.end)] if high < part.end else []
                yield _Step(
                    part.segment_id,
                    low,
                    high,
                    _cut(part, low, high).pieces,
                    np.concatenate(([0], lanes)),
                    [*later, *slices[number + 1 :]],
                )

    @staticmethod
    def _decoded(step: _Step, fetched: Future[list[memoryview]]) -> tuple[Events, list[Slice]]:
        data = _joined(fetched.result())
        starts, lengths = decode(data, step.lanes, step.end - step.start, step.start)
        return Events(step.segment_id, step.start, data, starts, lengths), step.rest

    def _boundaries(self, part: Slice) -> np.ndarray:
        """The event boundaries that are known of the slice."""
        if not part.records:
            return np.empty(0, np.int64)
        records = decode_records(_joined(fetch(self._stream.root.stores, part.records)))
        offsets = records[:, 0]  # in order; an append without events repeats one
        return offsets[np.diff(offsets, prepend=-1) > 0]

    def _planned_again(self, part: Slice, error: Exception) -> list[Slice]:
        """A slice whose objects have gone: moved, or truncated away."""
        snapshot = self._stream.snapshot()
        try:
            head = min(max(snapshot.segment(part.segment_id).start_offset, part.start), part.end)
        except SegmentNotFound:
            head = part.end
        if head > part.start and self._fail_on_data_loss:
            raise TruncatedData(self._stream.key, part.segment_id, part.start, head) from error
        return [plan_slice(snapshot, part.segment_id, head, part.end)] if head < part.end else []


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


def _seams(part: Slice) -> np.ndarray:
    """The offsets at which a piece of the slice ends."""
    return part.start + np.cumsum([piece.taken for piece in part.pieces])


def _cut(part: Slice, start: int, end: int) -> Slice:
    """A part of a slice."""
    found, offset = [], part.start
    for piece in part.pieces:
        low, high = max(start, offset), min(end, offset + piece.taken)
        if low < high:
            found.append(piece._replace(skip=piece.skip + low - offset, taken=high - low))
        offset += piece.taken
    return Slice(part.segment_id, start, end, tuple(found), part.records)


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
