"""Uploads: large events that are being written (PDP-43; Pravega: LargeEventWriter).

An upload collects the event's bytes, in order, in a transient segment of the segment that owns the event's key. One
writer attaches them: the last one that took the upload over. A commit adds the whole event to the stream in one append
(X1), with its header, its index record and its count; before that, readers see nothing of it (L1). An event with a name
is committed once (X3).

The transient segment has two attributes: the number of the upload's writer, and the hash of the event's key. Each name
has an attribute in the segment that holds the state of producers: the number of the transient segment, negated once the
event is committed. So a name has at most one upload, even if several processes race for it.
"""

from __future__ import annotations

import secrets
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from random import random

import numpy as np

from chunkstore import StorageError
from engine.errors import (
    BadAttributeUpdate,
    BadOffset,
    ChunksExpired,
    DataCorruption,
    OutcomeUnknown,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
)
from engine.logs.transaction import Receipt
from engine.state.index_records import RECORD_SIZE, THIS_APPEND
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT, NULL_VALUE, Extent, Segment, parent_in, transient_name
from pravega_spark.errors import (
    EventExists,
    EventExpired,
    EventSegmentSealed,
    EventTaken,
    StreamError,
    StreamRecreated,
    StreamSealed,
)
from pravega_spark.streams.model.events import HEADER_SIZE, event_header
from pravega_spark.streams.model.names import parse_segment_name
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.producer_state import writer_attribute
from pravega_spark.streams.writing.writable_stream import WritableStream
from pravega_spark.streams.writing.writes import SegmentAppend, append_operations, index_append

OWNER = uuid.UUID(int=1).bytes
PLACE = uuid.UUID(int=2).bytes
"""Attributes of a transient segment: its writer's number, and the event's key hash in units of 2^-52."""

_KEY_SPACE = 1 << 52
_KEPT_ALIVE = 4  # times within the idle time

_SAFE = (
    "The event is committed completely or not at all. With a name it can be begun again safely: it never comes twice; "
    "without one, read the stream to find out"
)


class Upload:
    """A large event that is not committed yet. For one thread; made by `begin`.

    length: bytes that are attached to the transient segment, with those that are being attached. segment: the name of
    the transient segment; empty until the first bytes are attached.
    """

    def __init__(
        self, stream: WritableStream, stream_id: bytes, place: int, name: str | None, registered: int | None
    ) -> None:
        self.stream = stream
        self.name = name
        self.segment = ""
        self.length = 0
        self._stream_id = stream_id
        self._place = place
        self._number = secrets.randbelow(1 << 62) + 1
        self._owner = self._number
        self._registered = registered
        self._writer = _writer_of(name) if name is not None else uuid.uuid4()
        self._under_way: Future[Receipt] | None = None
        self._submitted: Append | None = None
        self._used = 0.0

    def __repr__(self) -> str:
        return f"Upload({self.stream.key!r}, {self.segment!r}, {self.length})"

    def take_over(self, found: Segment) -> None:
        """Become the writer of an existing transient segment. Raises SegmentNotFound, OutcomeUnknown, StorageError."""
        assert self._registered is not None
        self._number, self._owner = self._registered, secrets.randbelow(1 << 62) + 1
        self._place, self.segment = place_of(found), found.name
        mine = AttributeUpdate(OWNER, UpdateKind.REPLACE, self._owner)
        self.length = self.stream.container.commit([Append(self.segment, (), None, (mine,))]).results[0]
        self._used = self.stream.container.clock()

    # --- what it writes ----------------------------------------------------------------------------------------

    def target(self) -> str:
        """The segment that owns the event's key, as far as this process knows. Raises StreamNotFound."""
        snapshot = self.stream.snapshot(refresh=False)
        return parent_in(self.segment) or snapshot.segments.name_of(self._home(snapshot))

    def ready(self) -> bool:
        """Whether no attachment is in flight."""
        return self._under_way is None or self._under_way.done()

    def attach(self, content: tuple[Extent, ...] | Payload, created_at: int = 0) -> None:
        """Begin to append extents of chunks, or bytes, to the transient segment. `settle` waits for the outcome.

        created_at: when the upload of the first chunk began (see `engine.state.attach_fence`). Chunks do not expire
        once they are attached. Raises EventTaken, EventExpired, EventExists, StreamSealed,
        StreamNotFound, StorageError.
        """
        self.settle()
        if content:
            self.stream.container.check_room()
        if not self.segment:
            self._create(content, created_at)
        else:
            self._submitted = self._append(content, self.length, created_at=created_at)
            self._under_way = self.stream.container.submit([self._submitted])
        self.length += len(content) if isinstance(content, Payload) else sum(extent.length for extent in content)
        self._used = self.stream.container.clock()

    def keep(self) -> None:
        """Reset the idle time of the transient segment, which expires otherwise while its writer writes slowly."""
        if not self.segment or not self.ready():
            return
        if self.stream.container.clock() - self._used > self.stream.container.settings.transient_idle / _KEPT_ALIVE:
            self.attach(())

    def settle(self) -> None:
        """Wait until everything attached is durable. Raises as `attach`."""
        while self._under_way is not None and self._submitted is not None:
            try:
                self._under_way.result()
            except OutcomeUnknown:
                self._settle_unknown(self._submitted)
            except Rejected as error:
                self._under_way = None
                raise self._lost(error) from error
            self._under_way = None

    def _retry(self, what: str) -> OutcomeRetry:
        """The retry of one change of this upload."""
        name = f"upload {self.name!r}" if self.name is not None else "upload"
        return OutcomeRetry(
            self.stream.container, f"stream {self.stream.key}, {name}: it is unknown whether {what}", _SAFE
        )

    def _settle_unknown(self, submitted: Append) -> None:
        """Repeat an append with an unknown outcome until it is known."""
        retry = self._retry("its last part is there")
        while True:
            try:
                self.stream.container.commit([submitted])
                return
            except OutcomeUnknown as error:
                retry.wait_or_raise(error)
            except BadOffset as error:
                if error.expected == self.length:  # it was committed: only the owner appends
                    return
                raise
            except Rejected as error:
                raise self._lost(error) from error

    def _append(
        self, content: tuple[Extent, ...] | Payload, offset: int | None, *updates: AttributeUpdate, created_at: int = 0
    ) -> Append:
        mine = AttributeUpdate(OWNER, UpdateKind.REPLACE_IF_EQUALS, self._owner, self._owner)
        return Append(self.segment, content, offset, (mine, *updates), created_at)

    def _create(self, content: tuple[Extent, ...] | Payload, created_at: int) -> None:
        """Create the transient segment, with its first bytes."""
        marks = tuple(
            AttributeUpdate(attribute, UpdateKind.NONE, value)
            for attribute, value in ((OWNER, self._owner), (PLACE, self._place))
        )
        retry = self._retry("it was begun")
        self.stream.begin_generation()
        while True:
            snapshot = self._snapshot()
            found = find_transient(snapshot, self._writer, self._number)
            if found is not None:  # by an attempt whose response was lost
                self.segment = found
            else:
                parent = snapshot.segments.name_of(self._home(snapshot))
                self.segment = transient_name(parent, self._writer, uuid.UUID(int=self._number))
                create = CreateSegment(self.segment, marks, parent)
                first = Append(self.segment, content, 0, created_at=created_at)
                operations = [create, *self._registering(self._number), first]
                try:
                    self.stream.container.commit(operations)
                except (SegmentSealed, SegmentNotFound, SegmentExists):
                    self.segment = ""
                    continue  # the stream was scaled, or is gone
                except OutcomeUnknown as error:
                    self.segment = ""
                    retry.wait_or_raise(error)
                    continue
                except (BadAttributeUpdate, ChunksExpired) as error:
                    self.segment = ""
                    raise self._lost(error) from error
            self._registered = self._number
            return

    def _registering(self, value: int) -> list[Operation]:
        """The operation that records an upload's name among the producers, if its attribute is unchanged."""
        if self.name is None:
            return []
        known = self._registered if self._registered is not None else NULL_VALUE
        update = AttributeUpdate(_attribute_of(self.name), UpdateKind.REPLACE_IF_EQUALS, value, known)
        return [UpdateAttributes(self.stream.writers, (update,))]

    def _snapshot(self) -> Snapshot:
        """The stream as it is now. Raises StreamNotFound, StreamRecreated if another stream has its name, and
        StreamSealed."""
        snapshot = self.stream.snapshot()
        snapshot.require(self._stream_id)
        if snapshot.record.sealed:
            raise StreamSealed(self.stream.key)
        return snapshot

    def _home(self, snapshot: Snapshot) -> int:
        """The open segment that owns the event's key."""
        segments = snapshot.record.current.segments
        return segments[bisect_left([segment.high for segment in segments], self._place / _KEY_SPACE)].id

    # --- its end -----------------------------------------------------------------------------------------------

    def commit(self, move: bool) -> EventPointer:
        """Commit the attached bytes as one event, in one append.

        move: if its segment was sealed by a scale, commit to the segment that owns its key now; no byte is moved.
        Otherwise EventSegmentSealed is raised and nothing is committed. Raises EventTaken, EventExpired,
        EventExists, StreamSealed, StreamNotFound, StorageError; OutcomeUnknown if it may be committed and cannot be
        found.
        """
        self.settle()
        target = str(parent_in(self.segment))
        self.stream.begin_generation()
        try:
            first = self._place_of(self.segment, 0)
        except SegmentNotFound as error:
            raise self._lost(error) from error
        since, unknown, retry = self._length(target), None, self._retry("it is committed")
        while True:
            try:
                offset = self.stream.container.commit(self._merge(target)).results[-1]
                return self._pointer(target, offset, self.length)
            except OutcomeUnknown as error:
                unknown = error
                retry.wait_or_raise(error)
            except SegmentSealed as error:
                snapshot = self._snapshot()
                if not move:
                    raise EventSegmentSealed(self.stream.key, target) from error
                target = snapshot.segments.name_of(self._home(snapshot))
                since, unknown = self._length(target), None  # the transient segment is there, so it was not merged
            except Rejected as error:
                if unknown is None:
                    raise self._lost(error) from error
                found = self._found(target, since, self.length, partial(self._begins, target, first))
                if found is None:
                    raise unknown from error
                return found
            except StorageError as error:
                if unknown is None:
                    raise
                raise unknown from error  # it may be committed, whatever fails now

    def _merge(self, target: str) -> list[Operation]:
        record = np.array([[self.length + HEADER_SIZE, 1, _now(), THIS_APPEND]], np.int64)
        one = AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, 1)
        return [
            self._append((), self.length, one),  # rejects the commit unless it is unchanged
            *self._registering(-self._number),
            index_append(target, record),
            MergeSegment(target, self.segment, Payload(event_header(self.length))),
        ]

    def append(self, framed: memoryview) -> EventPointer:
        """Append a small event with its header directly, without a transient segment.

        Raises EventExists, EventTaken, StreamSealed, StreamNotFound, OutcomeUnknown (only without a name),
        StorageError.
        """
        self.stream.container.check_room()
        size = len(framed) - HEADER_SIZE
        unknown, target, since, retry = False, "", 0, self._retry("it is committed")
        self.stream.begin_generation()
        while True:
            snapshot = self._snapshot()
            if not unknown:
                target = snapshot.segments.name_of(self._home(snapshot))
                since = self._length(target)
            number = parse_segment_name(target).segment_id
            part = SegmentAppend(
                number, Payload(framed), np.array([[len(framed), 1, _now(), THIS_APPEND]], np.int64), 1
            )
            operations = [*self._registering(-self._number), *append_operations(target, part)]
            try:
                return self._pointer(target, self.stream.container.commit(operations).results[-1], size)
            except OutcomeUnknown as error:
                if self.name is None:
                    raise
                retry.wait_or_raise(error)
                unknown = True
            except (SegmentSealed, SegmentNotFound):
                unknown = False  # the name is not recorded, or the append would be rejected for that
            except BadAttributeUpdate as error:
                if unknown and error.previous == -self._number:
                    found = self._found(target, since, size, partial(self._holds, target, framed))
                    if found is not None:
                        return found
                raise self._lost(error) from error

    def abandon(self) -> None:
        """Delete the transient segment, unless another writer took it over.

        Raises OutcomeUnknown, StorageError: it expires once it has been idle.
        """
        if self.segment:
            forgotten = self._registering(NULL_VALUE)
            with suppress(Rejected):
                self.stream.container.commit([self._append((), None), *forgotten, DeleteSegment(self.segment)])

    def discard(self, chunks: Sequence[str]) -> None:
        """Discard the chunks that the stream does not reference (G1). Raises as `abandon`."""
        if chunks:
            self.stream.discard(chunks)

    def _pointer(self, segment: str, offset: int, size: int) -> EventPointer:
        return EventPointer(*parse_segment_name(segment), offset, size + HEADER_SIZE)

    # --- its outcome -----------------------------------------------------------------------------------

    def _length(self, segment: str) -> int:
        found = self.stream.container.activated([segment])[segment]
        return found.length if found is not None else 0

    def _place_of(self, segment: str, offset: int) -> tuple[str, int]:
        """The object, and the position in it, of the byte at `offset`."""
        (piece,) = self.stream.container.plan(segment, offset, offset + 1)
        return piece.path, piece.position + piece.skip

    def _begins(self, segment: str, first: tuple[str, int], offset: int) -> bool:
        return self._place_of(segment, offset + HEADER_SIZE) == first

    def _holds(self, segment: str, framed: memoryview, offset: int) -> bool:
        return self.stream.container.read(segment, offset, offset + len(framed)) == framed

    def _found(self, segment: str, since: int, size: int, is_it: Callable[[int], bool]) -> EventPointer | None:
        """The pointer of the event, if it was committed to a segment at or after the offset `since`. The index has a
        record at the end of each event that an upload committed."""
        snapshot = self.stream.snapshot()
        number = parse_segment_name(segment).segment_id
        with suppress(SegmentNotFound):
            index, records = snapshot.segments.index(number), snapshot.segments.index_segment(number)
            start = max(since, snapshot.segments.segment(number).start_offset)
            first = index.position_of(start + size + HEADER_SIZE)
            for end in index.records(first, records.length // RECORD_SIZE)[:, 0].tolist():
                if is_it(end - size - HEADER_SIZE):
                    return self._pointer(segment, end - size - HEADER_SIZE, size)
        return None

    def _lost(self, error: Rejected) -> Exception:
        """The error for a rejected append: who owns the upload now, or why it was deleted."""
        if isinstance(error, ChunksExpired):
            return EventExpired(self.stream.key, error.reason)
        snapshot = self.stream.snapshot()
        key, container = self.stream.key, self.stream.container
        if snapshot.record.id != self._stream_id:
            return StreamRecreated(key)
        if self.name is not None:
            value = _registered(self.stream, self.name)
            if value is not None and value < 0:
                return EventExists(key, self.name)
            if value != self._registered:
                return EventTaken(key, self.name)
        found = container.activated([self.segment, str(parent_in(self.segment))]) if self.segment else {}
        present, parent = [*found.values(), None, None][:2]
        if present is not None:
            return EventTaken(key, self.name) if isinstance(error, BadAttributeUpdate) else StreamError(str(error))
        if parent is None and self.segment:
            return EventExpired(key, "the stream was truncated behind its segment")
        return EventExpired(key, f"nothing was written to it for {container.settings.transient_idle:g} seconds")


def begin(stream: WritableStream, routing_key: str | None = None, name: str | None = None) -> Upload:
    """Begin an upload, or take over the one with this name, so that no other process can continue it.

    Raises EventExists if the name is committed, ValueError for another routing key than it was begun with,
    StreamSealed, StreamNotFound, StorageError.
    """
    place = int((hash_key(routing_key) if routing_key is not None else random()) * _KEY_SPACE)
    what = f"stream {stream.key}, upload {name!r}: it is unknown whether it was taken over"
    retry = OutcomeRetry(stream.container, what, _SAFE)
    while True:
        snapshot = stream.snapshot()
        if snapshot.record.sealed:
            raise StreamSealed(stream.key)
        if name is None:
            return Upload(stream, snapshot.record.id, place, None, None)
        try:
            registered = _registered(stream, name)
        except SegmentNotFound:
            continue  # the stream was deleted meanwhile
        if registered is not None and registered < 0:
            raise EventExists(stream.key, name)
        upload = Upload(stream, snapshot.record.id, place, name, registered)
        found = _present(snapshot, name, registered)
        if found is None:
            return upload
        if routing_key is not None and place_of(found) != place:
            raise ValueError(
                f"the event {name!r} of stream {stream.key} was begun with another routing key than "
                f"{routing_key!r}: continue with that key, or choose another name"
            )
        try:
            upload.take_over(found)
            return upload
        except SegmentNotFound:
            continue  # it was committed or expired meanwhile
        except OutcomeUnknown as error:
            retry.wait_or_raise(error)


def upload_problem(name: str, attributes: Mapping[bytes, int]) -> str | None:
    """Why a transient segment cannot be continued as an upload; None if it can."""
    if attributes.get(OWNER, 0) < 1 or not 0 <= attributes.get(PLACE, -1) < _KEY_SPACE:
        return (
            f"segment {name!r} is not a valid upload: its attributes do not say who writes it and where it "
            "belongs. It is deleted once it has been idle for the root's transient_idle_seconds, by `maintain`, `gc` "
            "or the next append; begin the event under another name until then"
        )
    return None


def place_of(found: Segment) -> int:
    """The event's key hash, in units of 2^-52. Raises DataCorruption."""
    problem = upload_problem(found.name, found.attributes)
    if problem is not None:
        raise DataCorruption(problem)
    return found.attributes[PLACE]


def _present(snapshot: Snapshot, name: str, registered: int | None) -> Segment | None:
    """The transient segment of the upload with this name, if there is one."""
    if registered is None:
        return None
    segment = find_transient(snapshot, _writer_of(name), registered)
    return snapshot.stream.container.activated([segment])[segment] if segment is not None else None


def find_transient(snapshot: Snapshot, writer: uuid.UUID, number: int) -> str | None:
    """The name of a writer's transient segment with this number, if the stream has one."""
    ends = transient_name("", writer, uuid.UUID(int=number))
    below = f"{snapshot.stream.key}/"
    return next((name for name in snapshot.state.transients if name.startswith(below) and name.endswith(ends)), None)


def _registered(stream: WritableStream, name: str) -> int | None:
    """The recorded value of an upload's name: its number, negated once it is committed."""
    attribute = _attribute_of(name)
    return stream.container.known_attributes(stream.writers, [attribute]).get(attribute)


def _attribute_of(name: str) -> bytes:
    return writer_attribute(f"event:{name}")


def _writer_of(name: str) -> uuid.UUID:
    return uuid.UUID(bytes=_attribute_of(name))


def _now() -> int:
    return int(time.time() * 1000)
