"""A reader of a group: chooses the segment to read next, and handles segments that end or were truncated.

Events are delivered at least once, and those of a routing key in order: a segment is read from its position in the
group's state, and its successors once the group assigns them.

Before a checkpoint of the group the reader gives out no more slices until the program has returned those that it has.
Then the program gets the event of the checkpoint, and the next call records that the reader has passed it: only then is
it certain that the program has dealt with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress

from engine.containers.container import Container
from engine.errors import SegmentNotFound, SegmentTruncated
from pravega_spark.client.groups.event_read import EventRead, Position, position_of
from pravega_spark.client.groups.events import read_slice
from pravega_spark.client.groups.member import Member
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.slices import OpenSpan, SegmentSlice, owner_of, span_of
from pravega_spark.client.groups.state import GroupSegment, GroupState, SegmentNotHeld, followers, places
from pravega_spark.errors import StreamError, StreamNotFound, StreamRecreated, TruncatedData
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.stream_record import StreamRecord, former_segments
from pravega_spark.streams.model.watermarks import TimeWindow
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.stream_time import time_window

SLICE_BYTES = 8 << 20
"""About how many bytes of a segment a slice holds, by default (Pravega: READ_BUFFER_SIZE)."""

SLICE_TIME = 10.0
"""Seconds after which a slice ends, by default."""

PATIENCE = 1.0
"""Seconds for which `get_segment_slice_async` waits for events before it returns an empty slice."""

POLL = 0.1
"""Maximum seconds between two polls meanwhile. The readers of one process share polls."""


def join(group: OpenGroup, name: str, slice_bytes: int | None) -> Member:
    """The membership of a new reader. Raises ReaderOnline, GroupNotFound."""
    return Member(group, name, SLICE_BYTES if slice_bytes is None else slice_bytes)


@checks_parameters(but=("__init__",), hints={"slice": "give what get_segment_slice_async() returned"})
class StreamReader:
    """A reader of a group. Made by `StreamReaderGroup.create_reader`; take it offline when done.

    Any number of readers may be used in one event loop. A reader that is not used for the duration of its lease may
    lose its segments to other readers, whether it holds a slice or not; its methods raise ReaderOffline then.

    slice_bytes, slice_events, slice_time: a slice holds about so many bytes, and no more events, and ends so many
    seconds after it was returned to the program.
    """

    def __init__(
        self,
        member: Member,
        slice_events: int | None = None,
        slice_time: float = SLICE_TIME,
    ) -> None:
        self.name = member.name
        self._slice_events = slice_events
        self._slice_time = slice_time
        self._group = member.group
        self._member = member
        self._segments = self._member.segments
        self._streams: dict[str, Stream] = {}
        self._records: dict[str, StreamRecord] = {}  # the states of its streams at the last fresh read
        self._lost: deque[TruncatedData] = deque()  # to be raised to the user
        self._due: tuple[str, str] | None = None  # run and name of the checkpoint whose event comes next
        self._at: str | None = None  # the run of the checkpoint whose event the program has
        self._current: tuple[GroupSegment, SegmentSlice, dict[GroupSegment, int]] | None = None  # of read_next_event

    def __repr__(self) -> str:
        return repr(self._member)

    def to_str(self) -> str:
        """The reader as text for people."""
        return self._member.to_str()

    @property
    def offline(self) -> bool:
        """Whether it has left the group, or is known to have lost its lease."""
        return self._member.offline

    async def get_segment_slice_async(self) -> SegmentSlice:
        """The next events of one of the reader's segments; an empty slice if there are none for a second.

        A slice is returned by `release_segment`, by dropping it, or by calling this method again once all its events
        were read; until then its segment gives no more events. Cancelling a call loses nothing.

        A slice with a `checkpoint_name` has no events: it is the event of a checkpoint, which the reader passes by the
        next call. It comes when the program has returned all slices, which end early for it. A slice with
        `is_read_completed` comes at once when the group has nothing left to read.

        Raises ReaderOffline; TruncatedData once if unread events were truncated, and the next call continues after
        them; StreamRecreated if a stream was deleted and another has its name: reset the group; StreamNotFound,
        DataCorruption, StorageError.
        """
        self._member.check_online()
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        fresh, passed = True, self._at
        while True:
            await loop.run_in_executor(self._group.pool(), self._advance, fresh, passed)
            if (made := self._handed_out()) is not None:
                return made
            if loop.time() >= until:
                return self._empty()
            await asyncio.sleep(self._pause())
            fresh = False

    def get_segment_slice(self, timeout: DurationLike | None = None) -> SegmentSlice:
        """The same as `get_segment_slice_async`, without an event loop: waits up to `timeout` (a second; or "10s") for
        events. Raises what that raises."""
        return self._next_slice(PATIENCE if timeout is None else parse_seconds(timeout))

    def _next_slice(self, patience: float) -> SegmentSlice:
        self._member.check_online()
        until = time.monotonic() + patience
        fresh, passed = True, self._at
        while True:
            self._advance(fresh, passed)
            if (made := self._handed_out()) is not None:
                return made
            if (rest := until - time.monotonic()) <= 0:
                return self._empty()
            time.sleep(min(self._pause(), rest))
            fresh = False

    def read_next_event(self, timeout: DurationLike | None = None) -> EventRead:
        """The next event, or checkpoint, of the reader; without an event if there is none for `timeout` (a second; or
        "10s"). (Pravega: readNextEvent.)

        Events are recorded as read when the reader records its positions, within seconds after the slice that they come
        from is finished, and when it passes a checkpoint or leaves. One thread may call it at a time. Raises what
        `get_segment_slice_async` raises.
        """
        patience = PATIENCE if timeout is None else parse_seconds(timeout)
        while True:
            if self._current is not None:
                segment, piece, held = self._current
                with self._member.lock:  # a checkpoint ends the slice
                    self._member.check_online()
                    self._member.sync_if_due()
                if (event := next(piece, None)) is not None:
                    return EventRead(event, held, (segment, span_of(piece).position))
                self._current = None
                if not span_of(piece).lost:
                    span_of(piece).returned = True
            piece = self._next_slice(patience)
            held = self._segments.reached()
            if span_of(piece).end == 0:
                return EventRead(None, held, None, piece.checkpoint_name, piece.is_read_completed)
            assert piece.segment is not None
            self._current = piece.segment, piece, held

    def release_segment(self, slice: SegmentSlice) -> None:
        """Return a slice: its unread events are read again by the next reader of the segment.

        Raises ReaderOffline; ValueError for a slice of another reader. Does not wait for the storage.
        """
        if owner_of(slice) is not self._member:
            raise ValueError(f"the slice belongs to {owner_of(slice)!r}, not to {self!r}")
        span = span_of(slice)
        if span.end == 0 or span.returned:
            return
        self._member.check_online()
        span.returned = True
        self._member.record_soon()

    def reader_offline(self) -> None:
        """Leave the group. Other readers read unreleased events again. Does nothing the second time."""
        self._member.leave()

    def position(self) -> Position:
        """The position after the events that were taken so far, released or not."""
        with self._member.lock:
            return position_of(self._segments.reached())

    def get_current_time_window(self, stream: str) -> TimeWindow:
        """The bounds of the times of the events that the group reads now in one of its streams, as writers noted them.
        (Pravega: getCurrentTimeWindow.)

        stream: its name, or "scope/stream". The lower bound is that of the group's recorded position, so it holds for
        all events that any reader has yet to deal with. The upper bound is that of what this reader has taken. Raises
        ValueError for another stream.
        """
        key = stream if "/" in stream else f"{self._group.entry.key.partition('/')[0]}/{stream}"
        state = self._group.entry.state()
        if key not in state.streams:
            raise ValueError(f"stream {stream!r} is not one of the group, which reads {', '.join(state.streams)}")
        cut = state.cut(key)
        with self._member.lock:
            taken = {place.id: offset for place, offset in self._segments.reached().items() if place.stream == key}

        def window(snapshot: Snapshot) -> TimeWindow:
            if not cut.positions:  # read to its end
                return time_window(snapshot, snapshot.tail_cut())
            ahead = {number: max(offset, taken.get(number, offset)) for number, offset in cut.positions.items()}
            return time_window(snapshot, cut, StreamCut(cut.scope, cut.stream, ahead))

        return self._group.stream(key).query(window)

    def close_at(self, position: Position) -> None:
        """Leave the group at a position that `read_next_event` returned: other readers continue there.

        It may lie before what the reader has recorded, and after it. Does nothing if the reader is offline. (Pravega:
        closeAt.)

        Raises InvalidStreamCut if no event begins there.
        """
        if not self.offline:
            self._member.leave(self._group.positions_at(position))

    def record(self) -> None:
        """Record the released positions in the group. Raises ReaderOffline."""
        self._member.record_returned()

    # --- reading -----------------------------------------------------------------------------------------------

    def _handed_out(self) -> SegmentSlice | None:
        """What `_advance` has made: the event of a checkpoint, a slice, or the end of all streams."""
        if self._due is not None:
            (self._at, name), self._due = self._due, None
            return SegmentSlice(self._member, OpenSpan(0, 0), iter(()), checkpoint_name=name)
        if self._member.checkpoint is not None:
            return None
        with suppress(IndexError):
            made = self._segments.hand_out(self._group.clock() + self._slice_time)
            self._member.share_soon()
            return made
        return self._empty() if self._member.read_completely else None

    def _empty(self) -> SegmentSlice:
        completed = self._member.read_completely and self._member.checkpoint is None
        return SegmentSlice(self._member, OpenSpan(0, 0), iter(()), is_read_completed=completed)

    def _pause(self) -> float:
        """Seconds until the next poll."""
        return min((each.due_in(POLL) for each in self._containers()), default=POLL)

    def _pass_checkpoints(self, passed: str | None) -> bool:
        """Whether a checkpoint stops the reader: its event comes next, or when the program has returned its slices.

        passed: the checkpoint whose event the program had when it made this call.
        """
        self._segments.take_back_done()
        if passed is not None and passed == self._at:
            self._member.pass_checkpoint(passed)
            self._at = None
        self._member.sync_if_due()
        while (checkpoint := self._member.checkpoint) is not None:
            self._segments.stop_handed_out()
            run, name = checkpoint
            if self._at is not None or self._segments.handed_out:
                return True
            if name is not None:
                self._due = run, name
                return True
            self._member.pass_checkpoint(run)
        self._due = None  # one that was cancelled
        return False

    def _advance(self, fresh: bool, passed: str | None) -> None:
        """Make a slice, if there are events. fresh: by the current state of streams and group; otherwise by polls that
        readers of this process share, which cost nothing while the stream is idle. passed: see
        `_pass_checkpoints`."""
        with self._member.lock:
            self._member.check_online()
            if self._lost:
                raise self._lost.popleft()
            if self._pass_checkpoints(passed):
                return
            if self._segments.ready:
                return
            if not fresh:
                for container in self._containers():
                    container.look(POLL)
            if self._read(fresh=False) or not (fresh or self._changed()):
                return
            made = self._read(fresh=True)
            if self._lost:
                raise self._lost.popleft()
            if not made:
                self._member.sync()
                if not self._pass_checkpoints(None) and not self._read(fresh=False):  # segments that were just assigned
                    self._check_end()

    def _check_end(self) -> None:
        """Raise StreamRecreated if the group has read a stream to its end, and another has its name now."""
        if not self._member.read_completely:
            return
        state, recreated = self._group.entry.state(), list[str]()
        for key in state.streams:
            with suppress(StreamNotFound):  # a stream that was read completely may be deleted
                record = self._stream(key).snapshot().record
                if former_segments(record, (segment.id for segment in state.positions(key))):
                    recreated.append(key)
        if recreated:
            raise StreamRecreated(recreated[0])

    def _read(self, fresh: bool) -> bool:
        """Make a slice of a segment that has events, by the state known to this process or, with `fresh`, the current
        state."""
        if fresh:
            for container in self._containers():
                container.refresh()
        snapshots = self._snapshots()
        if fresh:
            self._records = {key: snapshot.record for key, snapshot in snapshots.items()}
        for segment in self._segments.waiting():
            if segment in self._segments.positions and self._read_one(segment, snapshots[segment.stream], fresh):
                return True
        return False

    def _changed(self) -> bool:
        """Whether a stream was scaled or truncated, or other streams were assigned, since the last fresh read."""
        return self._records != {key: snapshot.record for key, snapshot in self._snapshots().items()}

    def _snapshots(self) -> dict[str, Snapshot]:
        """Its streams, as this process knows them."""
        return {stream.key: stream.snapshot(refresh=False) for stream in self._assigned()}

    def _containers(self) -> Collection[Container]:
        return {stream.number: stream.container for stream in self._assigned()}.values()

    def _assigned(self) -> list[Stream]:
        """The streams of its segments."""
        return [self._stream(key) for key in {segment.stream for segment in list(self._segments.positions)}]

    def _stream(self, key: str) -> Stream:
        """A stream, always the same object, which caches its decoded record."""
        if key not in self._streams:
            self._streams[key] = self._group.stream(key)
        return self._streams[key]

    def _read_one(self, segment: GroupSegment, snapshot: Snapshot, fresh: bool) -> bool:
        position = self._segments.positions[segment]
        if segment.id not in snapshot.record.history.segments:
            if fresh:
                if snapshot.record.history.unknown([segment.id]) and not former_segments(snapshot.record, [segment.id]):
                    return self._refuse(segment, position, "which the stream does not have")
                self._skip_truncated(self._stream(segment.stream))
            return False
        known = snapshot.segments.segment(segment.id)
        limit = min(known.length, self._member.ends.get(segment, known.length))
        if known.start_offset <= position < limit:
            return self._fetch(segment, snapshot, position, limit)
        if not fresh:
            return False
        if position < known.start_offset and position < limit:
            self._segments.positions[segment] = min(known.start_offset, limit)
            raise TruncatedData(segment.stream, segment.id, position, known.start_offset)
        if position > known.length:
            return self._refuse(segment, position, f"which ends at {known.length}")
        self._complete(segment, position, snapshot.record)
        return False

    def _complete(self, segment: GroupSegment, position: int, record: StreamRecord) -> None:
        """Record that a segment was read to its end, if it has one: successors, an end of the group, or the end of a
        sealed stream."""
        end = self._member.ends.get(segment)
        ends = end is not None and position >= end
        following = {} if ends else followers(record.history, segment.stream, segment.id)
        if not (ends or following or record.sealed):
            return
        try:
            self._member.record(lambda state: state.ended(self.name, self._member.token, segment, following))
        except SegmentNotHeld:
            self._member.sync()  # the group was reset meanwhile

    def _refuse(self, segment: GroupSegment, position: int, why: str) -> bool:
        """Raise the error for a position that was lost in a restore if no restored position is known (P4), unless the
        group was reset meanwhile."""
        self._member.sync()
        if self._segments.positions.get(segment) != position:
            return False
        raise StreamError(
            f"reader group {self._group.entry.key} has read stream {segment.stream} up to offset {position} of segment "
            f"{segment_label(segment.id)}, {why}: that was before the root was restored or a container recovered, or "
            "in another root. Choose where it continues, as with group.reset('earliest'): events that it has read may "
            "come again"
        )

    def _fetch(self, segment: GroupSegment, snapshot: Snapshot, position: int, end: int) -> bool:
        """Read what a slice holds, to the end of an event. False if the events were truncated meanwhile."""
        size = self._segments.bytes
        with suppress(TruncatedData, SegmentTruncated, SegmentNotFound):  # the index may be truncated too
            if end - position > size * 5 // 4:
                record = snapshot.segments.index(segment.id).locate_offset(position + size)
                end = min(end, record.offset) if record is not None else end
            if self._slice_events is not None:
                end = min(end, snapshot.segments.offset_of_event(segment.id, position, self._slice_events))
            events = read_slice(snapshot, segment.id, position, end)
            self._segments.put(segment, SegmentSlice(self._member, OpenSpan(position, end), events, segment))
            return True
        return False

    def _skip_truncated(self, stream: Stream) -> None:
        """Continue at the head of a stream whose segments were deleted by truncation."""
        lost: dict[int, TruncatedData] = {}

        def step(state: GroupState) -> GroupState:
            record = stream.snapshot().record  # newer than `state`: segments that only `state` has are gone
            there, positions = record.history.segments, state.positions(stream.key)
            if former_segments(record, (key.id for key in positions)):
                raise StreamRecreated(stream.key)
            gone = {key for key in positions if key.id not in there}
            lost.clear()
            for key in sorted(gone):
                ended = record.ended.get(key.id)
                end = ended.length if ended is not None else None
                if positions[key] != end:
                    lost[key.id] = TruncatedData(key.stream, key.id, positions[key], end)
            head = StreamCut(stream.scope, stream.name, record.head_positions())
            return state.truncated(gone, places(record.history, head))

        self._member.record(step)
        self._lost.extend(lost.values())
