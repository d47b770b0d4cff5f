"""Errors of the engine. Each names the object that it is about, and says what the caller can do."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from chunkstore import StorageRefused
from chunkstore.decoding import InvalidData, NewerFormat, decoding
from chunkstore.errors import Damaged, DeclaredError
from chunkstore.paths import ROOT


class EngineError(DeclaredError):
    """Base of all errors of the engine."""


class RootNotFound(StorageRefused):
    """There is no root at this location. root: its URL, without credentials.

    similar: roots that the caller may have meant: one that contains the location, or neighbours with similar names.
    names: if the location is inside a root, the names of the scope and the stream that the caller may have meant.
    content: what is there instead, as a sentence's end, such as "it is a Delta table"; "" if the location is empty.
    fact: the message without the remedy.
    """

    def __init__(
        self, root: str, similar: Sequence[str] = (), names: Sequence[str] | None = None, content: str = ""
    ) -> None:
        inside = names is not None
        self.fact = (
            f"{root} holds no streams: it lies inside a root.{root_meant(similar[0], names)}"
            if names is not None
            else f"{root} holds no streams: {content or f'there is no {ROOT}'}.{did_you_mean(similar)}"
        )
        create = (
            f"Check that the location is right and its storage is mounted. To create a root there: "
            f"`{root_command(root)}`, create_scope of a StreamManager if the location is empty, or StreamManager(…, "
            "create=True)"
        )
        other = (
            "Give the location of a root; a new one needs an empty folder or bucket of its own. If a root should be "
            "here, check that its storage is mounted"
        )
        remedy = "No root can be created there" if inside else other if content else create
        super().__init__(f"{self.fact} {remedy}")
        self.root = root
        self.similar = tuple(similar)
        self.inside = inside
        self.content = content


class RootReplaced(StorageRefused):
    """The root that this process opened was replaced by another root, or by another generation of it (P4).

    root: its URL, without credentials.
    """

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{root}: the root that this process opened was replaced: it was created again, restored or recovered "
            "meanwhile. What this process appended since then is not in it. Close all users of the earlier root "
            "(managers, writers, readers, queries), and open the root again"
        )
        self.root = root

    def __reduce__(self) -> tuple[type[RootReplaced], tuple[str]]:
        return RootReplaced, (self.root,)


def root_command(root: str) -> str:
    """The command that creates a root."""
    return f"pravega-spark --root {shlex.quote(root)} root create"


def did_you_mean(similar: Sequence[str]) -> str:
    """A suggestion that ends an error message; "" if there are no similar names."""
    return f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""


def root_meant(root: str, names: Sequence[str]) -> str:
    """The suggestion where a location inside a root was given. names: of a scope and a stream, of a scope, or none."""
    parts = [f"{what} {name!r}" for what, name in zip(("root", "scope", "stream"), (root, *names), strict=False)]
    return f" Did you mean {', '.join(parts)}?"


class DataCorruption(Damaged, EngineError):
    """An object in storage fails its checks (W8). It is never applied, and never skipped silently.

    problem: why its bytes cannot be decoded, without the object's name and the remedy; "" if that is not the reason.
    """

    problem = ""

    remedy = (
        "`pravega-spark verify --deep` tells all that is damaged or missing: restore it from a backup "
        "(docs/operations.md, When something fails)."
    )


class ObjectLost(DataCorruption):
    """An object that the newest state names is missing: it was deleted by hand, or lost by the storage. gone: the error
    for it."""

    def __init__(self, gone: str) -> None:
        super().__init__(f"{gone}, though the container's state names it. Restore the object from a copy")


class UnknownFormat(DataCorruption):
    """An object was written by a newer version of this program. It is undamaged: upgrade to read it."""

    remedy = "It is undamaged: upgrade this installation to read it."


def understanding(what: str, remedy: str) -> decoding:
    """A context in which each decoding error of the object `what` becomes DataCorruption or UnknownFormat (P2)."""

    def failure(problem: InvalidData) -> DataCorruption:
        if isinstance(problem, NewerFormat):
            return UnknownFormat(f"{what}: {problem}")
        damage = DataCorruption(f"{what}: it cannot be understood: {problem}. {remedy}")
        damage.problem = str(problem)
        return damage

    return decoding(failure)


class BadSignature(DataCorruption):
    """An object of a signed root has no signature that fits: somebody without the key has changed or made it (W20).

    The message names the object, and the key that this process has, by its id.
    """

    remedy = (
        "Restore the object from a copy, and find out who can write to the storage. `pravega-spark verify` lists all "
        "objects whose signatures do not fit."
    )


class FrameDamaged(DataCorruption):
    """A frame of the write-ahead log fails its checks. `address` is its address in the log."""

    def __init__(self, path: str, address: int, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. The log cannot be read past this frame. Restore the object from a copy, or skip it "
            f"with `container repair`, or Root.repair(container, {address})"
        )
        self.path = path
        self.address = address


class FrameForged(FrameDamaged, BadSignature):
    """A frame of the write-ahead log of a signed root has no signature that fits (W20). Only an operator's repair skips
    it, as any damaged frame. `address` is its address in the log."""

    remedy = "Find out who can write to the storage."


class FrameMissing(DataCorruption):
    """A frame of the write-ahead log was deleted: frames behind it show that it was there (W21). `address` is its
    address in the log. shown_by: what shows it."""

    remedy = "Find out what deleted it: an expiry rule of the bucket, an incomplete copy, or somebody by hand."

    def __init__(self, path: str, container: int, address: int, shown_by: str) -> None:
        super().__init__(
            f"{path}: the frame is missing, but was in the log: {shown_by}. The frames behind it cannot be read "
            "without it. Nothing was changed. Restore the object from a copy. If there is none, "
            f"`pravega-spark container repair {container} {address}`, or Root.repair({container}, {address}), gives up "
            "the frames behind it"
        )
        self.path = path
        self.address = address


class LogLost(EngineError):
    """The write-ahead log of a container is missing. The container can be recovered as of its last flush cycle."""

    def __init__(self, container: int, log: str, cycle: int) -> None:
        super().__init__(
            f"container {container}: its write-ahead log below {log} is missing, but its chunks exist. Make the log "
            f"available again. If it is lost, recover the container as of flush cycle {cycle}: "
            f"Root.recover({container}), or `container recover`"
        )
        self.container = container


class LogMoved(EngineError):
    """The address lies before a newer checkpoint, so what was found there proves nothing (W7)."""


class Overtaken(EngineError):
    """Another writer created the frame at this address first: read it, validate again, and append after it (W2)."""


class OutcomeUnknown(EngineError):
    """The process stopped waiting before it learned whether the operation is in the log. Read the segment to find
    out."""


class Throttled(EngineError):
    """Too many bytes wait to be written to LTS or to the log. Nothing was appended."""

    def __init__(self, backlog: int, outstanding: int, error: str) -> None:
        why = f"; flushing fails: {error}" if error else ""
        super().__init__(
            f"{backlog} bytes in the log wait for LTS, and {outstanding} for the log, which is the limit{why}. "
            "Nothing was appended; try again when the storage accepts writes again"
        )


class ContainerOffline(EngineError):
    """The container accepts no more operations; `__cause__` is the reason. Open it again."""


class NotPrimary(ContainerOffline):
    """Another process appended to a container that was held exclusively (Pravega: DataLogWriterNotPrimary)."""


class InvalidOperation(EngineError, ValueError):
    """An operation has a value that could not be decoded from the log (W14). It was not queued, and nothing was
    done."""


class Rejected(EngineError):
    """Base of the errors that reject an operation because of the state to which it would be applied."""


class SegmentNotFound(Rejected):
    """The segment does not exist (Pravega: StreamSegmentNotExists). similar: segments with similar names, if the caller
    looked for them."""

    def __init__(self, segment: str, similar: Sequence[str] = ()) -> None:
        asked = did_you_mean(similar)
        super().__init__(f"segment {segment!r} does not exist{'.' if asked else ''}{asked}")
        self.segment = segment
        self.similar = tuple(similar)


class SegmentExists(Rejected):
    """The segment exists already (Pravega: StreamSegmentExists)."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment!r} exists already")
        self.segment = segment


class SegmentSealed(Rejected):
    """The segment is sealed and takes no more data (Pravega: StreamSegmentSealed)."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment!r} is sealed")
        self.segment = segment


class SegmentNotSealed(Rejected):
    """The segment must be sealed before it can be merged (Pravega: StreamSegmentNotSealed)."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment!r} must be sealed before it is merged")
        self.segment = segment


class SegmentTransient(Rejected):
    """A transient segment only accepts appends until it is merged or deleted (PDP-43)."""

    def __init__(self, segment: str, refused: str) -> None:
        super().__init__(
            f"segment {segment!r} is transient and cannot {refused}; it can be appended to, merged and deleted"
        )
        self.segment = segment


class SegmentTruncated(Rejected):
    """Data before `start_offset` was truncated (Pravega: StreamSegmentTruncated)."""

    def __init__(self, segment: str, offset: int, start_offset: int) -> None:
        super().__init__(
            f"segment {segment!r}: offset {offset} has been truncated; the first readable offset is {start_offset}"
        )
        self.segment = segment
        self.offset = offset
        self.start_offset = start_offset


class BadOffset(Rejected):
    """An offset does not match the segment (Pravega: BadOffset)."""

    def __init__(self, segment: str, expected: str | int, given: int) -> None:
        super().__init__(f"segment {segment!r}: offset {given} was given where {expected} is expected")
        self.segment = segment
        self.expected = expected
        self.given = given


class BadAttributeUpdate(Rejected):
    """An attribute's condition does not hold (Pravega: BadAttributeUpdate). previous: its value, None if it is not
    set."""

    def __init__(self, segment: str, attribute: bytes, previous: int | None, rule: str) -> None:
        super().__init__(f"segment {segment!r}, attribute {attribute.hex()}: {rule}, but its value is {previous}")
        self.segment = segment
        self.attribute = attribute
        self.previous = previous


class BadKeyVersion(Rejected):
    """A table entry's version is not the expected one (Pravega: BadKeyVersion). Version -1 means absent."""

    def __init__(self, table: str, key: str, expected: int, actual: int) -> None:
        super().__init__(f"table {table!r}, key {key!r}: version {expected} was expected, but it is {actual}")
        self.table = table
        self.key = key
        self.expected = expected
        self.actual = actual


class TableExists(Rejected):
    """The table exists already."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table!r} exists already")
        self.table = table


class TableNotFound(Rejected):
    """The table does not exist, or is one that was not created by itself."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table!r} does not exist")
        self.table = table


class WrongKeyLength(Rejected):
    """A key has another length, in bytes, than all keys of its table."""

    def __init__(self, table: str, length: int, expected: int) -> None:
        super().__init__(f"table {table!r}: a key has {length} bytes, but all keys of the table have {expected}")
        self.table = table
        self.length = length
        self.expected = expected


class ChunksExpired(Rejected):
    """The chunks of an append are older than the container's attach fence, so a sweep of orphans may have deleted them
    (G1). Nothing was appended.

    created_at: when the first of them was created, 0 if the append does not state it. min_attach_time: the fence. Both
    in ms since the epoch. reason: both, as text.
    """

    def __init__(self, segment: str, created_at: int, min_attach_time: int) -> None:
        created = f"were created at {utc(created_at / 1000)}" if created_at else "have no known creation time"
        self.reason = (
            f"its chunks {created}, but garbage collection has deleted chunks that were created before "
            f"{utc(min_attach_time / 1000)} and not attached"
        )
        super().__init__(
            f"segment {segment!r}: the append is rejected: {self.reason}. Nothing was written: write it again. If "
            "writing takes that long, let garbage collection wait longer before it deletes such chunks: `maintain "
            "--orphan-age`, `gc --older-than`"
        )
        self.segment = segment
        self.created_at = created_at
        self.min_attach_time = min_attach_time


class ClocksDisagree(EngineError):
    """The clocks of the storage and of this host differ by too much to delete, truncate or expire anything (W13).

    Nothing was done. The message has both times.
    """


def utc(seconds: float) -> str:
    """A time (seconds since the epoch) as text."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


class FlushOvertaken(Rejected):
    """The flush cycle is over, or the segment changed since the cycle began."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; another process flushes, or a segment was truncated or deleted meanwhile")


class FlushIncomplete(EngineError):
    """No recovery point covers everything that was acknowledged before the flush. All of it stays in the log (W17).

    wanted: number of the last operation before the flush. covered: number of the last operation that a recovery point
    covers, -1 if there is none.
    """

    def __init__(self, container: int, wanted: int, covered: int, attempts: int, error: str) -> None:
        why = f": the last one failed: {error}" if error else ", as other processes flush, truncate or delete meanwhile"
        found = f"the newest recovery point covers {covered}" if covered >= 0 else "there is no recovery point"
        super().__init__(
            f"container {container}: {attempts} flush cycles were begun, but none was completed{why}. {wanted} "
            f"operations were acknowledged before the flush, but {found}. All of them are in the log: flush again"
        )
        self.wanted = wanted
        self.covered = covered


class Unresolved(Rejected):
    """Entries in LTS have to be looked up before the operation can be validated. Callers never see this error.

    keys: the entries of `table`. segment: whose attributes they are, if any.
    """

    def __init__(self, table: str, keys: tuple[str, ...], segment: str = "") -> None:
        super().__init__(f"table {table!r}: {keys} have to be looked up in LTS")
        self.table = table
        self.keys = keys
        self.segment = segment
