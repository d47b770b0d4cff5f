"""Verification of the segments of streams: they hold whole events, and their sparse indexes are correct.

`engine.admin.verify`, which does not know events, gets these checks from its callers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from chunkstore.errors import fact_of
from engine.admin.checks.findings import Problem
from engine.admin.checks.segment_content import SegmentView, Unreadable
from engine.errors import DataCorruption
from engine.state.index_records import RECORD_SIZE
from engine.state.segments import EVENT_COUNT, parent_in
from pravega_spark.streams.maintenance.recorded_cuts import RECORDED, decode_recorded
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.index import decode_records
from pravega_spark.streams.model.names import index_segment_name, parse_segment_name
from pravega_spark.streams.writing.event_order import ORDER, Interleaving
from pravega_spark.streams.writing.uploads import upload_problem

_HEADER = struct.Struct(">ii")
_TOGETHER = 64 * 1024  # index records that are read at once

INDEX_REMEDY = (
    "events are readable, but cuts by time, counts and split reads may be wrong: run "
    "`pravega-spark stream rebuild-index` with the stream's name, which makes the index from the events"
)
RECORDED_REMEDY = "events are readable, but retention of this stream has stopped: copy the stream"
ORDER_REMEDY = "events are readable, but the last events may be listed in another order: copy the stream"
EVENT_REMEDY = "restore the segment's objects from a copy; events after this offset may be unreadable"


def check_events(view: SegmentView, deep: bool) -> Iterator[Problem]:
    """The problems in the index of a stream's segment, and with `deep` in its events. Other segments have none."""
    try:
        parse_segment_name(view.name)
    except ValueError:
        return
    index = view.other(index_segment_name(view.name))
    if index is None or (index.length == index.start == 0 and not view.attributes.get(EVENT_COUNT, 0)):
        return  # a byte stream has nothing to check
    if index.start % RECORD_SIZE or index.length % RECORD_SIZE:
        problem = f"its bytes {index.start} to {index.length} are not whole records of {RECORD_SIZE} bytes"
        yield Problem(index.name, problem, INDEX_REMEDY)
        return
    yield from _index_problems(view, index)
    if deep:
        yield from _EventCheck(view, index).problems()


def check_uploads(view: SegmentView, deep: bool) -> Iterator[Problem]:
    """The problems of a transient segment, which holds the upload of a large event. Other segments have none."""
    if parent_in(view.name) is not None:
        problem = upload_problem(view.name, view.attributes)
        if problem is not None:
            yield Problem(view.name, problem, "see the message; the rest of the stream can be used meanwhile")


def check_recorded(view: SegmentView, deep: bool) -> Iterator[Problem]:
    """The problems of the segment with the cuts recorded for retention. Other segments have none."""
    scope, _, rest = view.name.partition("/")
    stream, _, own = rest.partition("/")
    records = view.other(index_segment_name(view.name)) if own == RECORDED else None
    if records is None:
        return
    if records.start % RECORD_SIZE or records.length % RECORD_SIZE:
        problem = f"its bytes {records.start} to {records.length} are not whole records of {RECORD_SIZE} bytes"
        yield Problem(records.name, problem, RECORDED_REMEDY)
        return
    places = [int(place) for _, rows in _records(records) for place in rows[:, 1]]
    for place, end in pairwise([*places, view.length]):
        if not view.start <= place < end <= view.length:
            yield Problem(view.name, f"a cut is said to lie between {place} and {end}", RECORDED_REMEDY)
            continue
        try:
            decode_recorded(view.read(place, end), scope, stream, f"{view.name}, offset {place}")
        except DataCorruption as error:
            yield Problem(view.name, fact_of(error), RECORDED_REMEDY)


def check_order(view: SegmentView, deep: bool) -> Iterator[Problem]:
    """The problems of the segment with the stored order of events. Other segments have none."""
    records = view.other(index_segment_name(view.name)) if view.name.split("/")[2:] == [ORDER] else None
    if records is None:
        return
    if records.start % RECORD_SIZE or records.length % RECORD_SIZE:
        problem = f"its bytes {records.start} to {records.length} are not whole records of {RECORD_SIZE} bytes"
        yield Problem(records.name, problem, ORDER_REMEDY)
        return
    place = view.start
    for _, rows in _records(records):
        for end in rows[:, 0].tolist():
            if not place < end <= view.length:
                yield Problem(view.name, f"an entry is said to lie between {place} and {end}", ORDER_REMEDY)
                return
            try:
                Interleaving.decode(view.read(place, end), f"{view.name}, offset {place}")
            except DataCorruption as error:
                yield Problem(view.name, fact_of(error), ORDER_REMEDY)
            place = end
    if place != view.length:
        yield Problem(records.name, f"no entry ends at {view.length}", ORDER_REMEDY)


def _index_problems(view: SegmentView, index: SegmentView) -> Iterator[Problem]:
    """Offsets, counts and append numbers must not descend, from the segment's start to its end."""
    before = np.array([view.start + 1, 0, 0, 0])
    for first, records in _records(index):
        rows = np.vstack((before, records))
        for column, what in ((0, "offset"), (1, "event count"), (3, "append's number")):
            for place in np.flatnonzero(np.diff(rows[:, column]) < 0):
                low, high = rows[place, column], rows[place + 1, column]
                problem = f"record {first + place}: its {what} is {high}, but must be at least {low}"
                yield Problem(index.name, problem, INDEX_REMEDY)
        before = records[-1]
    if index.length > index.start and before[0] != view.length:
        problem = f"its last record is of offset {before[0]}, but the segment ends at {view.length}"
        yield Problem(index.name, problem, INDEX_REMEDY)
    if index.length == index.start and view.length > view.start:
        yield Problem(index.name, f"it has no records, but the segment has bytes up to {view.length}", INDEX_REMEDY)
    if index.length > index.start and before[1] != (count := view.attributes.get(EVENT_COUNT, 0)):
        problem = f"its last record counts {before[1]} events, but the segment {count}"
        yield Problem(index.name, problem, INDEX_REMEDY)


def _records(index: SegmentView) -> Iterator[tuple[int, np.ndarray]]:
    """All records in batches, each with the number of its first."""
    step = _TOGETHER * RECORD_SIZE
    for start in range(index.start, index.length, step):
        yield start // RECORD_SIZE, decode_records(index.read(start, min(start + step, index.length)))


class _EventCheck:
    """Checks the events of a segment, of any size, against its index records."""

    def __init__(self, view: SegmentView, index: SegmentView) -> None:
        self._view = view
        self._index = index
        self._marks = ((int(row[0]), int(row[1])) for _, rows in _records(index) for row in rows)
        self._mark = next(self._marks, None)
        self._place = view.start  # where the next event begins
        self._count: int | None = 0 if view.start == 0 else None  # events before that; None while it is unknown
        self._rest = b""  # the beginning of a header that continues in the next bytes
        self._seen = view.start  # the end of the bytes that were read last, -1 after unreadable ones

    def problems(self) -> Iterator[Problem]:
        """The problems of events, and of index records at whose offset no event ends."""
        while True:
            try:
                for offset, data in self._view.windows:
                    yield from self._take(offset, data)
            except Unreadable:  # continue at the next index record
                self._resume(self._place)
                self._seen = -1
                continue
            break
        if self._seen == self._view.length != self._place >= 0:
            yield self._broken(f"an event runs over the end of the segment at {self._view.length}")

    def _take(self, offset: int, data: bytes) -> Iterator[Problem]:
        data, offset = self._rest + data, offset - len(self._rest)
        self._rest = b""
        end = self._seen = offset + len(data)
        while 0 <= self._place < end:
            yield from self._compare()
            at = self._place - offset
            if at < 0:  # the bytes between could not be read
                self._resume(offset)
                continue
            if len(data) - at < HEADER_SIZE:
                self._rest = data[at:] if end < self._view.length else b""
                return
            kind, length = _HEADER.unpack_from(data, at)
            if kind != 0 or length < 0:
                yield self._broken(f"an event has type {kind} and length {length}")
                self._resume(self._place + 1)
                continue
            self._place += HEADER_SIZE + length
            self._count = self._count + 1 if self._count is not None else None
        if self._place == end == self._view.length:
            yield from self._compare()

    def _compare(self) -> Iterator[Problem]:
        """Check the index records up to the start of an event."""
        while self._mark is not None and self._mark[0] <= self._place:
            offset, count = self._mark
            if offset < self._place:
                yield Problem(self._index.name, f"no event ends at offset {offset}, as a record says", INDEX_REMEDY)
            elif self._count is not None and self._count != count:
                problem = f"a record counts {count} events up to offset {offset}, where there are {self._count}"
                yield Problem(self._index.name, problem, INDEX_REMEDY)
            if offset == self._place:
                self._count = count
            self._mark = next(self._marks, None)

    def _resume(self, after: int) -> None:
        """Continue at the first index record at or after `after`; stop if there is none."""
        self._rest = b""
        while self._mark is not None and self._mark[0] < after:
            self._mark = next(self._marks, None)
        self._place, self._count = self._mark or (-1, None)

    def _broken(self, what: str) -> Problem:
        return Problem(self._view.name, f"offset {self._place}: {what}", EVENT_REMEDY)
