"""The errors of streams. Each names its scope, stream or cut, and says what to do."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from chunkstore.errors import DeclaredError
from engine.errors import did_you_mean
from pravega_spark.segment_ids import segment_label

_MOST_SHOWN = 64
"""The most bytes of a key in a message."""


class StreamError(DeclaredError):
    """The base class of errors of streams."""


class AdvisedError(StreamError):
    """The base class of errors whose remedy depends on how the user got them. fact: what is wrong, without a remedy.

    `str(error)` ends with the remedy for Python programs; Spark's data source and the command line have others. The
    fact is the class attribute `problem` with the details filled in.
    """

    problem = "{0}"
    remedy = ""

    def __init__(self, **details: object) -> None:
        self.fact = self.problem.format(**details)
        super().__init__(f"{self.fact} {self.remedy}")


class ScopeNotFound(AdvisedError):
    """The scope does not exist. similar: scopes with similar names. read_only: it cannot be created either, as its root
    can only be read."""

    problem = "Scope does not exist: {scope}.{similar}"
    remedy = "Create it first with create_scope."

    def __init__(self, scope: str, similar: Sequence[str] = (), *, read_only: bool = False) -> None:
        self.read_only = read_only
        if read_only:
            self.remedy = "list_scope returns those that exist."
        super().__init__(scope=scope, similar=did_you_mean(similar))
        self.scope = scope
        self.similar = tuple(similar)


def missing(kind: str, name: str, *, without_scope: bool) -> str:
    """The beginning of an error for a missing "scope/name". If the scope is missing too, it comes first, as its
    cause."""
    if without_scope:
        return f"Scope does not exist: {name.partition('/')[0]}, so there is no {kind.lower()} {name}"
    return f"{kind} does not exist: {name}"


class ScopeNotEmpty(StreamError):
    """The scope still has streams, reader groups or key-value tables. groups, tables: the names of the latter."""

    def __init__(self, scope: str, groups: Sequence[str] = (), tables: Sequence[str] = ()) -> None:
        found = {"reader groups": groups, "key-value tables": tables}
        listed = [f"{what} first: {_listed(names)}" for what, names in found.items() if names]
        super().__init__(f"Scope is not empty: {scope}. Delete its {', and its '.join(listed) or 'streams first'}.")
        self.scope = scope
        self.groups = tuple(groups)
        self.tables = tuple(tables)


def _listed(names: Sequence[str]) -> str:
    """Up to ten names, and how many more there are."""
    return f"{', '.join(names[:10])}{f' and {len(names) - 10} more' if len(names) > 10 else ''}"


class StreamNotFound(AdvisedError):
    """The stream does not exist.

    similar: streams of the root with similar names, as "scope/stream". without_scope: the scope does not exist either,
    and `similar` has scopes with similar names. read_only: see ScopeNotFound.
    """

    problem = "Stream does not exist: {stream}.{similar}"
    remedy = "Create it first with create_stream."

    def __init__(
        self, stream: str, similar: Sequence[str] = (), *, without_scope: bool = False, read_only: bool = False
    ) -> None:
        self.read_only = read_only
        if without_scope:
            self.problem, self.remedy = (
                f"{missing('Stream', stream, without_scope=True)}.{{similar}}",
                ScopeNotFound.remedy,
            )
        if read_only:
            self.remedy = f"{'list_scope' if without_scope else 'list_stream'} returns those that exist."
        super().__init__(stream=stream, similar=did_you_mean(similar))
        self.stream = stream
        self.similar = tuple(similar)
        self.without_scope = without_scope


class StreamDeleted(StreamNotFound):
    """The stream was deleted while it was read."""

    problem = "Stream {stream} was deleted while it was read.{similar}"
    remedy = "Read another stream."


class StreamRecreated(StreamNotFound):
    """The stream was deleted, and another one was created under its name. The new stream was not changed."""

    problem = "Stream {stream} was deleted, and another one was created under its name.{similar}"
    remedy = (
        "To use the new stream, create a new writer, upload or transaction, reset the reader group, or get its segment "
        "ranges."
    )


class KeyValueTableNotFound(AdvisedError):
    """The key-value table does not exist.

    similar: tables with similar names, as "scope/table". without_scope: see StreamNotFound.
    """

    problem = "{missing}.{similar}"
    remedy = "Create it first with create_key_value_table."

    def __init__(self, table: str, similar: Sequence[str] = (), *, without_scope: bool = False) -> None:
        found = missing("Key-value table", table, without_scope=without_scope)
        super().__init__(missing=found, similar=did_you_mean(similar))
        self.table = table
        self.similar = tuple(similar)
        self.without_scope = without_scope


class KeyValueTableRecreated(StreamError):
    """The key-value table was deleted, and another one was created under its name. The new table was not changed."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"Key-value table {table} was deleted, and another one was created under its name. To use the new one, "
            "open it with key_value_table."
        )
        self.table = table


class ConditionalTableUpdateFailed(StreamError):
    """The condition of an update of a key-value table does not hold, and nothing was changed (Pravega:
    ConditionalTableUpdateException). key: the primary and secondary key."""

    def __init__(self, table: str, key: tuple[bytes, bytes], problem: str) -> None:
        parts = " and ".join(repr(part[:_MOST_SHOWN]) for part in key if part)
        super().__init__(f"Key-value table {table}, key {parts}: {problem}")
        self.table = table
        self.key = key


class BadKeyVersion(ConditionalTableUpdateFailed):
    """The entry has another version than the update demands (Pravega: BadKeyVersionException).

    expected, actual: versions as text; expected "" for a key that must not exist, actual "" if it was not looked up.
    """

    def __init__(self, table: str, key: tuple[bytes, bytes], expected: str = "", actual: str = "") -> None:
        found = f"it has version {actual}" if actual else "it has another version"
        wanted = f"version {expected} was expected" if expected else "it was not to exist"
        super().__init__(table, key, f"{found}, but {wanted}. Nothing was changed: read the entry, and decide again")
        self.expected = expected
        self.actual = actual


class NoSuchKey(ConditionalTableUpdateFailed):
    """The key does not exist, though the update demands a version of it (Pravega: NoSuchKeyException).

    expected: the version, as text.
    """

    def __init__(self, table: str, key: tuple[bytes, bytes], expected: str) -> None:
        super().__init__(
            table, key, f"it does not exist, but version {expected} was expected. Nothing was changed: insert the key"
        )
        self.expected = expected


class StreamSealed(StreamError):
    """The stream is sealed: it can be read, but not written."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"Stream is sealed: {stream}. It can be read and deleted, not written, scaled or truncated, and sealing "
            "cannot be undone: write to another stream."
        )


class StreamNotSealed(AdvisedError):
    """Only a sealed stream can be deleted."""

    problem = "Stream is not sealed: {stream}."
    remedy = "Seal it first, then delete it."

    def __init__(self, stream: str) -> None:
        super().__init__(stream=stream)
        self.stream = stream


class Interrupted(StreamError):
    """An exception ended a call between two of its steps, so its object cannot continue.

    what: the call. cause: the exception, as text. instead: what to do.
    """

    def __init__(self, what: str, cause: str, instead: str) -> None:
        super().__init__(f"{what} was interrupted ({cause}): {instead}")
        self.what = what
        self.cause = cause
        self.instead = instead


class TransactionIncomplete(StreamError):
    """A write to a transaction failed before, so it cannot be committed; `__cause__` says why.

    transaction: "scope/stream/id". cause: the failure, as text.
    """

    def __init__(self, transaction: str, cause: str) -> None:
        super().__init__(
            f"transaction {transaction} cannot be committed: a write to it failed before ({cause}), so some of its "
            "events may be missing. Abort it, and write all of it again"
        )
        self.transaction = transaction
        self.cause = cause


class Closed(StreamError, ValueError):
    """An object was used after it was closed. what: a description of the object."""

    def __init__(self, what: str, instead: str = "create a new one") -> None:
        super().__init__(f"{what} is closed, by close() or by the end of its with block: {instead}")
        self.what = what


class ReplayChanged(StreamError):
    """An idempotent producer wrote this number before, with other data. Nothing was written.

    number, given: the rejected write and its digest. remembered, there: the producer's last write and its digest.
    """

    def __init__(self, stream: str, writer: str, number: int, given: str, remembered: int, there: str) -> None:
        last = "with" if remembered == number else f"and its last one, write {remembered}, had"
        super().__init__(
            f"Stream {stream}: write {number} of {writer!r} was committed before, {last} {there}, and is repeated with "
            f"{given}. If the query is not deterministic, the committed data is valid and nothing is missing. If the "
            "query's checkpoint was rolled back, or its offsets were deleted while its id was kept, or the checkpoint "
            "is new and the 'txn_app_id' is not, the new data is missing in the stream: to write it, start the query "
            "with a new checkpoint, and with another 'txn_app_id' if it gives one."
        )
        self.stream = stream
        self.writer = writer
        self.number = number
        self.given = given
        self.remembered = remembered
        self.there = there


class WritesLost(AdvisedError):
    """Writes of an idempotent producer were lost when the root was restored or the container recovered. Nothing was
    written.

    number: that of the rejected write. remembered: that of the producer's last stored write, None if there is none.
    """

    problem = (
        "Stream {stream}: write {number} of {writer!r} was rejected, as {last}: the root was restored or recovered, "
        "which lost {lost} if they had data."
    )
    remedy = (
        "Write them again from their source, beginning with number {first}. To continue without them, set option "
        "'accept_lost_batches' to true."
    )

    def __init__(self, stream: str, writer: str, number: int, remembered: int | None) -> None:
        first = 0 if remembered is None else remembered + 1
        lost = f"its write {first}" if first + 1 == number else f"its writes {first} to {number - 1}"
        last = "none of its writes is stored" if remembered is None else f"its last stored write is {remembered}"
        self.remedy = self.remedy.format(first=first)
        super().__init__(stream=stream, writer=writer, number=number, last=last, lost=lost)
        self.stream = stream
        self.writer = writer
        self.number = number
        self.remembered = remembered


class NumbersLost(StreamError):
    """Events that a numbering producer had written are not in the stream any more, because the root was restored or the
    container recovered. Nothing was written.

    before: the number of the producer's last acknowledged event. present: that of its last event in the stream, None if
    there is none.
    """

    def __init__(self, stream: str, producer: str, before: int | None, present: int | None) -> None:
        there = "none of its events is" if present is None else f"only its events up to number {present} are"
        super().__init__(
            f"Stream {stream}: event {before} of producer {producer!r} was acknowledged, and {there} in the stream: "
            "the root was restored or recovered, or the stream was created again. Nothing more was written. Create a "
            "new writer, and continue after its `last_number`."
        )
        self.stream = stream
        self.producer = producer
        self.before = before
        self.present = present


class TransactionNotFound(StreamError):
    """The transaction does not exist: it was never begun, its record has expired, or its stream was deleted and created
    again."""

    def __init__(self, stream: str, transaction: uuid.UUID) -> None:
        super().__init__(
            f"Stream {stream} has no transaction {transaction}: it was never begun, it ended too long ago, or its "
            "stream was deleted and created again. Begin a new one."
        )
        self.stream = stream
        self.transaction = transaction


class TransactionClosed(StreamError):
    """The transaction has ended. status: "committed" or "aborted"."""

    def __init__(self, stream: str, transaction: uuid.UUID, status: str) -> None:
        what = (
            "is committed: nothing is left to do. Begin a new one for other events."
            if status == "committed"
            else "was aborted, by its writer or because its lease expired: none of its events is in the stream. Begin "
            "a new one, and write them again."
        )
        super().__init__(f"Transaction {transaction} of stream {stream} {what}")
        self.stream = stream
        self.transaction = transaction
        self.status = status


class TransactionTooLong(StreamError):
    """A ping would keep the transaction open for too long. longest, left: seconds in total, and from now."""

    def __init__(self, stream: str, transaction: uuid.UUID, longest: float, left: float) -> None:
        super().__init__(
            f"Transaction {transaction} of stream {stream} may be open for {longest:g} seconds in total, and has "
            f"{left:g} seconds left, less than the lease. Commit it in time, or ping it with a shorter lease."
        )
        self.stream = stream
        self.transaction = transaction
        self.longest = longest
        self.left = left


class LargeEventError(StreamError):
    """The base class of errors when a large event is written. `details` are filled into the class's `problem`."""

    problem = "{0}"

    def __init__(self, stream: str, *details: object) -> None:
        super().__init__(f"Large event of stream {stream}: {self.problem.format(*details)}")
        self.stream = stream
        self.details = details


class EventTooLong(LargeEventError, ValueError):
    """A large event exceeds its limit, and was aborted. Details: its bytes, the limit."""

    problem = "{0} bytes exceed the limit of {1} bytes. It was aborted: split the event"


class EventClosed(LargeEventError, ValueError):
    """The large event has ended. Detail: "committed" or "aborted"."""

    problem = "it was {0} before. Begin a new one"


class EventExists(LargeEventError):
    """An event with this name was committed before."""

    problem = "the event {0!r} was committed before and is not written twice. Use another name for another event"


class EventTaken(LargeEventError):
    """Another process took over the upload of this name, so this one must not continue."""

    problem = "another process has taken over or aborted the event {0!r}. This process writes nothing more of it"


class EventExpired(LargeEventError):
    """The upload was deleted. Detail: why."""

    problem = "{0}, so its upload was deleted. Begin it again"


class EventSegmentSealed(LargeEventError):
    """The segment of the event was sealed by scaling. Nothing was committed, nothing is lost. Detail: the segment."""

    problem = (
        "its segment {0} was sealed because the stream was scaled. Nothing is lost: commit(move=True) commits it to "
        "the segment that owns its key now, without a new upload; or abort it and begin a new one"
    )


class InvalidStreamCut(StreamError, ValueError):
    """A stream cut belongs to another stream, or names segments or offsets that the stream does not have."""


class PositionLost(AdvisedError, InvalidStreamCut):
    """A position in a stream is from before its root was restored or recovered, or from another root.

    position: as text. restored: the text of the stream cut at which the restored events end that are before the lost
    position, if it is known. No later event is before this cut, and it stays valid.
    """

    problem = (
        "{position} is not a position in stream {stream} any more: {what}. It is from before the root was restored or "
        "a container recovered, or from another root, so some of the events before it are missing.{ends}"
    )
    remedy = "Continue from there."

    def __init__(self, stream: str, position: str, what: str, restored: str | None = None) -> None:
        ends = f" The restored events end at stream cut {restored}." if restored is not None else ""
        if restored is None:
            self.remedy = "Continue from the head of the stream ('earliest'), or from a time."
        super().__init__(stream=stream, position=position, what=what, ends=ends)
        self.stream = stream
        self.position = position
        self.what = what
        self.restored = restored


class CutOfDeletedStream(InvalidStreamCut):
    """A stream cut belongs to a stream that was deleted, or lost by a restore, and another stream has its name now."""

    def __init__(self, cut: str, stream: str, first_number: int) -> None:
        super().__init__(
            f"stream cut {cut} belongs to a stream that was deleted, or lost when the root was restored: another "
            f"stream {stream} was created since, whose segments have numbers from {first_number} on. Give a cut of "
            "this stream; if the cut comes from the checkpoint of a query, give the query a checkpoint of its own; if "
            "from a reader group, reset the group"
        )
        self.cut = cut
        self.stream = stream
        self.first_number = first_number


class TooManySegments(StreamError, ValueError):
    """A stream would have more segments at the same time than its root allows."""

    def __init__(self, stream: str, count: int, limit: int) -> None:
        super().__init__(
            f"Stream {stream} cannot have {count} segments: the root's limit is {limit} at a time (setting "
            "'max_segments'). Use fewer; a few per core of all readers and writers are enough."
        )
        self.stream = stream
        self.count = count
        self.limit = limit


class RecordTooLarge(StreamError, ValueError):
    """The record of a stream (epochs, policies, tags) would be larger than a table entry may be."""

    def __init__(self, stream: str, size: int, limit: int) -> None:
        super().__init__(
            f"Stream {stream}: its record would have {size} bytes, more than the limit of {limit}. Use fewer or "
            "shorter tags, use fewer segments, or truncate the stream, which drops the epochs before its head."
        )
        self.stream = stream
        self.size = size
        self.limit = limit


class NotOneSegment(StreamError, ValueError):
    """A revisioned stream must have one segment at a time. count: how many it has, or had since its head."""

    def __init__(self, stream: str, count: int) -> None:
        super().__init__(
            f"Stream {stream} has, or had since its head, {count} segments at a time, but a revisioned stream has one: "
            "create one with a fixed scaling policy of one segment"
        )
        self.stream = stream
        self.count = count


class TooManyNotingWriters(StreamError):
    """More writers of a stream note time than are waited for. limit: how many are."""

    def __init__(self, stream: str, limit: int) -> None:
        super().__init__(
            f"Stream {stream}: {limit} writers note time, which is the limit. Close writers that are done, or wait "
            "until the lease of a dead one has expired; or let one writer of each process note time"
        )
        self.stream = stream
        self.limit = limit


class NotInitialized(StreamError):
    """A StateSynchronizer has no state that it could change: none was initialized. stream: scope/stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"The state in stream {stream} is not initialized: call initialize first")
        self.stream = stream


class CorruptedState(StreamError):
    """An event of the stream of a StateSynchronizer is no update, or an initial state is missing (Pravega:
    CorruptedStateException). revision: the place after the event, as text."""

    def __init__(self, stream: str, revision: str, problem: str) -> None:
        super().__init__(
            f"The state in stream {stream} cannot be read at revision {revision}: {problem}. Only state synchronizers "
            "must write to the stream; use another one for other events"
        )
        self.stream = stream
        self.revision = revision
        self.problem = problem


class InvalidScale(StreamError, ValueError):
    """A scale request does not fit the stream."""

    def __init__(self, stream: str, problem: str) -> None:
        super().__init__(f"Invalid scale request for stream {stream}: {problem}")
        self.stream = stream
        self.problem = problem


class TooFewSegments(InvalidScale):
    """A scale request leaves fewer segments than the stream's scaling policy requires.

    left: how many it leaves. fact: what is wrong, without a remedy.
    """

    def __init__(self, stream: str, left: int, minimum: int) -> None:
        remain = "1 segment would remain" if left == 1 else f"{left} segments would remain"
        remedy = "Change the policy first with update_stream_with_policy, or keep more segments"
        super().__init__(stream, f"{remain}, but its scaling policy requires at least {minimum}. {remedy}")
        self.left = left
        self.fact = str(self).removesuffix(f" {remedy}")


class TruncatedData(AdvisedError):
    """A range that should be read was truncated.

    stream: "scope/stream"; segment_id; [start, end): the lost offsets. end is None if the segment is deleted and its
    length unknown.
    """

    problem = "Stream {stream}, segment {segment}: the data {lost} has been truncated and cannot be read any more."
    remedy = "Start from the head of the stream, or from a later cut."

    def __init__(self, stream: str, segment_id: int, start: int, end: int | None) -> None:
        lost = f"between offsets {start} and {end}" if end is not None else f"from offset {start} on"
        super().__init__(stream=stream, segment=segment_label(segment_id), lost=lost)
        self.stream = stream
        self.segment_id = segment_id
        self.start = start
        self.end = end


class NoSuchEvent(StreamError):
    """The event of a pointer was truncated (Pravega: NoSuchEventException)."""

    def __init__(self, pointer: str) -> None:
        super().__init__(
            f"Event {pointer} does not exist: it was truncated, or its segment never existed, or it was lost when the "
            "root was restored or a container recovered. Read the stream from its head to find the events that are "
            "left."
        )
        self.pointer = pointer


class InvalidEventPointer(StreamError, ValueError):
    """A pointer does not name the position of an event."""

    def __init__(self, pointer: str) -> None:
        super().__init__(
            f"Pointer {pointer}: no event of this length begins at this offset. Use pointers as readers return them; "
            "each belongs to one stream of one root. If the root was restored or a container recovered since the "
            "pointer was returned, the event was lost then."
        )
        self.pointer = pointer


class InvalidValueSchema(StreamError, ValueError):
    """A schema of structured values is wrong, or has what columns cannot hold."""


class ValueFormatFixed(StreamError, ValueError):
    """A stream keeps an Avro schema, which cannot be replaced by another one. stream: scope/stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"Stream {stream} keeps another Avro schema, without which its events cannot be decoded. Write values of a "
            "new schema to a new stream. If the stream has no events, remove its value format first."
        )
        self.stream = stream


class MalformedEvent(StreamError, ValueError):
    """An event is no value of the schema by which it is decoded. stream: scope/stream. segment: its label.

    forbidden_null: whether the schema is in the way, which forbids a null.
    """

    def __init__(self, stream: str, segment: str, offset: int, reason: str, forbidden_null: bool = False) -> None:
        remedy = (
            "Leave NOT NULL out of the schema to read it"
            if forbidden_null
            else "Set 'on_malformed' to 'null' to read it with null fields"
        )
        super().__init__(
            f"Stream {stream}, segment {segment}, offset {offset}: the event is malformed: {reason}. {remedy}, or read "
            "the column event as bytes to look at it."
        )
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.reason = reason


class EventTooLarge(StreamError, ValueError):
    """An event is larger than the caller's limit (PDP-43: EventTooLargeException). pointer: its pointer as text."""

    def __init__(self, pointer: str, size: int, limit: int) -> None:
        super().__init__(
            f"Event {pointer} has {size} bytes, more than the limit of {limit}. Read it in parts: "
            "StreamManager.open_event(pointer) opens it as a file."
        )
        self.pointer = pointer
        self.size = size
        self.limit = limit
