"""The client of a revisioned stream (Pravega: RevisionedStreamClient).

It keeps nothing about the values: every call looks at the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pravega_spark.client.event_validation import frame_event
from pravega_spark.client.reader import EventRange, Ranges
from pravega_spark.errors import Closed
from pravega_spark.parameters import buffer_of, checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.revisions import Revision, revision_at
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.revisions import RevisionedStream

T = TypeVar("T")

_TOO_LARGE = "keep large values elsewhere, and write a reference to them"


@dataclass(frozen=True)
class Serializer(Generic[T]):
    """How values become bytes and come back: two functions. `deserialize` gets what any process has written, so it must
    not trust it: no pickle, unless all writers are trusted."""

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            if not callable(given):
                raise TypeError(f"Serializer: {name} must be a function, not {given!r}")


BYTES: Serializer[bytes] = Serializer(lambda value: bytes(buffer_of("value", value)), bytes)
"""Values that are bytes, or other buffers."""


@checks_parameters(but=("__init__",), hints={"revision": "give a revision that this client returned"})
class RevisionedStreamClient(Generic[T]):
    """Values in the order of their revisions. A write can depend on all that was written before.
    `StreamManager.create_revisioned_stream_client` opens it. Thread-safe.

    A write is durable on return. If OutcomeUnknown is raised, it may have been made or not: read from the revision.

    Every method raises StreamNotFound if the stream was deleted, StreamRecreated if another one was created under its
    name, NotOneSegment if it was scaled to several segments, InvalidStreamCut for a revision of another stream,
    PositionLost for one that a restore has lost, StorageError, and Closed after `close`. Writes raise StreamSealed.
    """

    def __init__(self, stream: RevisionedStream, serializer: Serializer[T], check_open: Callable[[], None]) -> None:
        """check_open: raises Closed once the manager is closed."""
        self._stream = stream
        self._serializer = serializer
        self._check_manager = check_open
        self._closed = False

    def __repr__(self) -> str:
        return f"RevisionedStreamClient({self._stream.stream.key!r})"

    def _check_open(self) -> None:
        self._check_manager()
        if self._closed:
            raise Closed(f"this revisioned client of stream {self._stream.stream.key}")

    def close(self) -> None:
        """Close the client. The stream stays as it is."""
        self._closed = True

    def __enter__(self) -> RevisionedStreamClient[T]:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading -----------------------------------------------------------------------------------------------

    def fetch_oldest_revision(self) -> Revision:
        """The first revision from which values can be read."""
        self._check_open()
        return self._stream.query(lambda snapshot: revision_at(snapshot.head_cut()))

    def fetch_latest_revision(self) -> Revision:
        """The revision after the last value."""
        self._check_open()
        return self._stream.query(lambda snapshot: revision_at(snapshot.tail_cut()))

    def read_from(self, revision: Revision) -> Iterator[tuple[Revision, T]]:
        """The values after a revision, up to the end of the stream at the call, each with the revision after it.

        Raises TruncatedData for a revision before `fetch_oldest_revision()`, also while iterating.
        """
        return self._read(lambda snapshot: snapshot.ranges(revision.cut, snapshot.tail_cut()))

    def read_range(self, start: Revision, end: Revision) -> Iterator[tuple[Revision, T]]:
        """The values between two revisions, each with the revision after it. Raises InvalidStreamCut if `end` is before
        `start`; TruncatedData, also while iterating."""
        return self._read(lambda snapshot: snapshot.ranges(start.cut, end.cut))

    def _read(self, ranges: Callable[[Snapshot], Ranges]) -> Iterator[tuple[Revision, T]]:
        self._check_open()
        events = EventRange(
            self._stream.stream, lambda snapshot: ranges(self._stream.checked(snapshot)), self._check_open
        )
        return self._values(events)

    def _values(self, events: EventRange) -> Iterator[tuple[Revision, T]]:
        for event in events:
            after = event.offset + HEADER_SIZE + event.size
            value = self._serializer.deserialize(bytes(event.value))
            yield Revision(event.scope, event.stream, event.segment_id, after), value

    def bytes_before(self, revision: Revision) -> int:
        """The number of bytes that were written before a revision, headers of 8 bytes included, whether they were
        truncated since or not."""
        self._check_open()

        def counted(snapshot: Snapshot) -> int:
            snapshot.check(revision.cut)
            return snapshot.bytes_before(snapshot.past_head(revision.cut, snapshot.tail_cut()).positions)

        return self._stream.query(counted)

    # --- writing -----------------------------------------------------------------------------------------------

    def write_conditionally(self, latest_revision: Revision, value: T) -> Revision | None:
        """Write a value if a revision is the latest one. Returns the revision after it; if there is a later one, None,
        and nothing is written. Raises ValueError for more than 8 MiB."""
        self._check_open()
        return self._stream.append_at(latest_revision, self._framed(value))

    def write_unconditionally(self, value: T) -> None:
        """Write a value at the end. Raises ValueError for more than 8 MiB."""
        self._check_open()
        self._stream.append(self._framed(value))

    def _framed(self, value: T) -> bytes:
        data: Any = self._serializer.serialize(value)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"the serializer must return bytes, not {type(data).__name__}")
        return frame_event(data, _TOO_LARGE)

    # --- mark and head -----------------------------------------------------------------------------------------

    def get_mark(self) -> Revision | None:
        """The revision that `compare_and_set_mark` has set last; None if it is not set."""
        self._check_open()
        return self._stream.mark()

    def compare_and_set_mark(self, expected: Revision | None, new_location: Revision | None) -> bool:
        """Set the mark, if it is the expected one now; None stands for no mark. False, and nothing is changed, if it is
        another one."""
        self._check_open()
        return self._stream.compare_and_set_mark(expected, new_location)

    def truncate_to_revision(self, revision: Revision) -> None:
        """Delete all values before a revision. Does nothing if they are deleted already. Raises InvalidStreamCut for a
        revision within a value."""
        self._check_open()
        self._stream.truncate(revision)
