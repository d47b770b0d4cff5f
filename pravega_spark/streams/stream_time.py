"""The time of a stream: writers note it, and readers ask for its bounds at their place (Pravega: PeriodicWatermarking).

Nothing runs periodically: the process that notes a time computes the watermark, in the same append. All of a stream
lies in one container (X1), so the tail at that moment is after everything that was written before any of the marks; it
is the cut of the watermark. So an event after the cut was written after each writer that is waited for had noted the
lower bound, or a later time.

Marks and watermarks are two entries of a table of the stream's container, `<scope>/<stream>/marks` and `…/watermarks`,
which are changed on the condition of their versions and that of the stream's record. A writer whose lease has expired,
by the storage's clock (W13), is waited for no longer; it comes back with its next note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from chunkstore.decoding import InvalidData, decoding
from engine.errors import BadKeyVersion, ClocksDisagree, understanding
from engine.state.operations import CheckEntry, Operation, PutEntry
from engine.state.state import NOT_EXISTS
from engine.state.tables import Entry
from pravega_spark.errors import StreamNotFound, TooManyNotingWriters
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison, Positions
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.stream_record import removal
from pravega_spark.streams.model.system_tables import STREAMS, TIMES
from pravega_spark.streams.model.watermarks import (
    LEAST_TIME,
    MAX_WRITERS,
    MOST_TIME,
    NO_MARKS,
    Marks,
    TimeWindow,
    Watermark,
    Watermarks,
    WriterMark,
    decode_marks,
    decode_watermarks,
    encode_marks,
    encode_watermarks,
    next_watermark,
    thinned,
    window_at,
)
from pravega_spark.streams.reading.snapshot import Snapshot

if TYPE_CHECKING:
    from pravega_spark.streams.writing.writable_stream import WritableStream

LEASE = 60.0
"""Seconds for which a writer is waited for without another note, by default."""


def decode_time(data: bytes, key: str) -> Marks | Watermarks:
    """The marks or watermarks of a stream, by the key of the entry. Raises DataCorruption, which names them."""
    return _stored_marks(data, key) if key.endswith("/marks") else _stored_watermarks(data, key)


def _stored_marks(data: bytes, key: str) -> Marks:
    with _understanding(key):
        return decode_marks(data)


def _stored_watermarks(data: bytes, key: str) -> Watermarks:
    with _understanding(key):
        found = decode_watermarks(data)
        if not found:
            raise InvalidData("it has none")
        return found


def _understanding(key: str) -> decoding:
    stream, _, kind = key.rpartition("/")
    return understanding(f"the {kind} of stream {stream}", removal(f"pravega-spark stream delete {stream} --yes"))


class _Moment(NamedTuple):
    """The storage's time (ms since the epoch), and whether this host's agrees with it: otherwise no lease expires
    (W13)."""

    now: int
    agreed: bool


_Change: TypeAlias = Callable[[Marks, _Moment], Marks]
"""The next marks of these, at a moment."""


class _Stored(NamedTuple):
    """What is stored of a stream's time, with the versions of the entries."""

    marks: Marks
    marks_version: int
    watermarks: Watermarks
    watermarks_version: int


def check_time(timestamp: int) -> None:
    """Raise ValueError for a time that cannot be noted."""
    if not LEAST_TIME <= timestamp <= MOST_TIME:
        raise ValueError(f"timestamp must be a number of 64 bits, not {timestamp}")


class StreamTime:
    """The time of one life of a stream. stream_id: a later stream of the name raises StreamRecreated."""

    def __init__(self, stream: WritableStream, stream_id: bytes) -> None:
        self._stream = stream
        self._id = stream_id
        self._marks, self._watermarks = f"{stream.key}/marks", f"{stream.key}/watermarks"

    def note(self, writer: str, timestamp: int, lease: float, *, strict: bool = True) -> None:
        """Note the time of a writer, all of whose events are durable. lease: seconds.

        strict: whether a time before the last one that the writer has noted is an error (ValueError); otherwise it
        changes nothing. Raises TooManyNotingWriters, StreamNotFound, StreamRecreated.
        """
        check_time(timestamp)

        def with_mark(marks: Marks, moment: _Moment) -> Marks:
            known = marks.writers.get(writer)
            if known is not None and known.timestamp > timestamp:
                if not strict:
                    return marks
                raise ValueError(
                    f"timestamp {timestamp} is before {known.timestamp}, which this writer of stream "
                    f"{self._stream.key} has noted: the time of a writer never goes back"
                )
            others = {each: mark for each, mark in marks.writers.items() if each != writer}
            kept = {each: mark for each, mark in others.items() if not (moment.agreed and mark.expired(moment.now))}
            if len(kept) >= MAX_WRITERS:
                raise TooManyNotingWriters(self._stream.key, MAX_WRITERS)
            highest = timestamp if marks.highest is None else max(timestamp, marks.highest)
            mark = WriterMark(timestamp, moment.now, int(lease * 1000))
            return marks._replace(highest=highest, writers={**kept, writer: mark})

        self._change(with_mark)

    def leave(self, writer: str) -> None:
        """Wait no longer for a writer. Nothing happens if the stream is gone, or the writer has noted nothing."""

        def without(marks: Marks, moment: _Moment) -> Marks:
            return marks._replace(writers={each: mark for each, mark in marks.writers.items() if each != writer})

        with suppress(StreamNotFound):
            self._change(without)

    def _change(self, change: _Change) -> None:
        container = self._stream.container
        while True:
            operations = self._stream.query(partial(self._operations, change, self._moment()))
            if not operations:
                return
            with suppress(BadKeyVersion):  # another writer has noted a time, or the stream was changed
                container.commit(operations)
                return

    def _moment(self) -> _Moment:
        clock = self._stream.container.storage_clock
        try:
            return _Moment(int(clock.agreed("no lease of a writer's time expires") * 1000), True)
        except ClocksDisagree:
            return _Moment(int(clock.now() * 1000), False)

    def _operations(self, change: _Change, moment: _Moment, snapshot: Snapshot) -> list[Operation]:
        snapshot.require(self._id)
        stored = self._stored(snapshot)
        marks = change(stored.marks, moment)
        if marks == stored.marks:
            return []
        operations: list[Operation] = [
            CheckEntry(STREAMS, self._stream.key, snapshot.record.version),
            PutEntry(TIMES, self._marks, readable("marks", marks, encode_marks, decode_marks), stored.marks_version),
        ]
        last = stored.watermarks[-1] if stored.watermarks else None
        following = next_watermark(marks, last, snapshot.tail_cut().positions)
        if following is not None:
            kept = self._kept(snapshot, (*stored.watermarks, following))
            data = readable("watermarks", kept, self._encoded, decode_watermarks)
            operations.append(PutEntry(TIMES, self._watermarks, data, stored.watermarks_version))
        return operations

    def _kept(self, snapshot: Snapshot, watermarks: Watermarks) -> Watermarks:
        """Without those that no reader needs: all before the last one at or before the head."""
        history, head = snapshot.record.history, snapshot.record.head_positions()
        passed, _ = window_at(watermarks, lambda positions: history.compare(head, positions))
        return thinned(watermarks[max(passed - 1, 0) :], lambda some: len(self._encoded(some)))

    def _encoded(self, watermarks: Sequence[Watermark]) -> bytes:
        return encode_watermarks(watermarks, self._stream.scope, self._stream.name)

    def _stored(self, snapshot: Snapshot) -> _Stored:
        found = self._stream.container.entries(TIMES, [self._marks, self._watermarks], snapshot.state)
        marks, watermarks = (
            entry if entry is not None and entry.value is not None else Entry(None, NOT_EXISTS)
            for entry in (found[self._marks], found[self._watermarks])
        )
        return _Stored(
            _stored_marks(marks.value, self._marks) if marks.value is not None else NO_MARKS,
            marks.version,
            _stored_watermarks(watermarks.value, self._watermarks) if watermarks.value is not None else (),
            watermarks.version,
        )


def time_window(snapshot: Snapshot, cut: StreamCut, furthest: StreamCut | None = None) -> TimeWindow:
    """The bounds of time at a cut. furthest: the upper bound is that of this cut, which is not before it.

    Raises InvalidStreamCut.
    """
    snapshot.check(cut)
    stream, key = snapshot.stream, f"{snapshot.stream.key}/watermarks"
    entry = stream.container.entries(TIMES, [key], snapshot.state)[key]
    if entry is None or entry.value is None:
        return TimeWindow(None, None)
    watermarks, history = _stored_watermarks(entry.value, key), snapshot.record.history

    def compared(place: StreamCut) -> Callable[[Positions], Comparison]:
        return lambda positions: history.compare(place.positions, positions)

    passed, window = window_at(watermarks, compared(cut))
    if furthest is None or furthest == cut:
        return window
    snapshot.check(furthest)
    _, beyond = window_at(watermarks, compared(furthest), beyond=passed)
    return TimeWindow(window.lower_time_bound, beyond.upper_time_bound)
