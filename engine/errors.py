"""Errors of the engine. Each names the object it is about and what the caller can do."""

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
    """Nothing of a root lies in the place that was named. `root`: the place, without credentials.

    similar: roots that may be meant: around it, or beside it with a name like its own. names: of `similar`, the only
    one, which is around it, the scope and the stream that are meant too. fact: the message without what can be done
    about it.
    """

    def __init__(self, root: str, similar: Sequence[str] = (), names: Sequence[str] | None = None) -> None:
        inside = names is not None
        self.fact = (
            f"{root} holds no streams: it lies in a root.{root_meant(similar[0], names)}"
            if names is not None
            else f"{root} holds no streams: there is no {ROOT}.{did_you_mean(similar)}"
        )
        make = (
            f"Look whether this is the right place, and whether its storage is mounted. To make a root there: "
            f"`{root_command(root)}`, create_scope of a StreamManager if the place is empty, or StreamManager(…, "
            "create=True)"
        )
        super().__init__(f"{self.fact} {'No root can be made there' if inside else make}")
        self.root = root
        self.similar = tuple(similar)
        self.inside = inside


class RootReplaced(StorageRefused):
    """Another root, or another generation of this root, is in the place of the one that this process opened (P4).

    `root`: the place, without credentials.
    """

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{root}: the root that this process opened is not there any more: meanwhile it was created anew, restored "
            "or recovered. What this process appended since then is not in it. Close what uses the earlier root "
            "(managers, writers, readers, queries), and open the root again"
        )
        self.root = root

    def __reduce__(self) -> tuple[type[RootReplaced], tuple[str]]:
        return RootReplaced, (self.root,)


def root_command(root: str) -> str:
    """The command that makes a root in a place."""
    return f"pravega-spark --root {shlex.quote(root)} root create"


def did_you_mean(similar: Sequence[str]) -> str:
    """The question that follows what is wrong, if there is anything like what was named; else nothing."""
    return f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""


def root_meant(root: str, names: Sequence[str]) -> str:
    """The question that follows where a place in a root was named as one. names: of a scope and a stream, or less."""
    parts = [f"{what} {name!r}" for what, name in zip(("root", "scope", "stream"), (root, *names), strict=False)]
    return f" Did you mean {', '.join(parts)}?"


class DataCorruption(Damaged, EngineError):
    """An object in storage fails its checks (W8). It is never applied and never passed over silently."""


class ObjectLost(DataCorruption):
    """An object is gone that the newest state names: somebody deleted it, or the storage lost it. gone: which one."""

    def __init__(self, gone: str) -> None:
        super().__init__(f"{gone}, though the container's state names it. Restore the object from a copy")


class UnknownFormat(DataCorruption):
    """An object was written by a newer version of this program. It is whole: upgrade, and it can be read."""

    remedy = "Upgrade this installation, and it can be read: it is whole."


def understanding(what: str, remedy: str) -> decoding:
    """Within it, whatever cannot be understood of the object `what` is DataCorruption, or UnknownFormat (P2)."""

    def failure(problem: InvalidData) -> DataCorruption:
        if isinstance(problem, NewerFormat):
            return UnknownFormat(f"{what}: {problem}")
        return DataCorruption(f"{what}: it cannot be understood: {problem}. {remedy}")

    return decoding(failure)


class FrameDamaged(DataCorruption):
    """A frame of the write-ahead log fails its checks. `address` is its address in the log."""

    def __init__(self, path: str, address: int, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. The log cannot be read past this frame; restore the object from a copy, or give it up "
            f"with `container repair`, or Root.repair(container, {address})"
        )
        self.path = path
        self.address = address


class LogLost(EngineError):
    """The write-ahead log of a container is gone. LTS holds what it held at the end of its last flush cycle."""

    def __init__(self, container: int, log: str, cycle: int) -> None:
        super().__init__(
            f"container {container}: its write-ahead log below {log} is gone, and its chunks are not. Make the log "
            f"available again; if it is lost, recover what flush cycle {cycle} brought to LTS: "
            f"Root.recover({container}), or `container recover`"
        )
        self.container = container


class LogMoved(EngineError):
    """The address that was touched lies behind a newer boundary, so what was seen there proves nothing (W7)."""


class Overtaken(EngineError):
    """Another writer's frame stands where ours was to stand: read on, validate again, append after it (W2)."""


class OutcomeUnknown(EngineError):
    """The process gave up before it learned whether the operation is in the log. Read the segment to find out."""


class Throttled(EngineError):
    """So much waits to be written to LTS, or to the log, that nothing more is taken. Nothing was appended."""

    def __init__(self, backlog: int, outstanding: int, trouble: str) -> None:
        why = f"; flushing fails: {trouble}" if trouble else ""
        super().__init__(
            f"{backlog} bytes in the log wait for LTS, and {outstanding} for the log: as much as may be{why}. "
            "Nothing was appended; try again when the storage takes writes again"
        )


class ContainerOffline(EngineError):
    """The container does not take operations any more; `__cause__` tells why. Open it again."""


class NotPrimary(ContainerOffline):
    """Another process appended to a container that was held exclusively (Pravega: DataLogWriterNotPrimary)."""


class InvalidOperation(EngineError, ValueError):
    """An operation has a value that nobody could read back from the log (W14). It was not queued: nothing was done."""


class Rejected(EngineError):
    """Base of the errors by which an operation is refused because of the state it would be applied to."""


class SegmentNotFound(Rejected):
    """The segment does not exist (Pravega: StreamSegmentNotExists). similar: segments whose names are like its name, if
    they were looked for."""

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
        super().__init__(f"segment {segment!r} must be sealed before it is merged; seal it first")
        self.segment = segment


class SegmentTransient(Rejected):
    """A transient segment takes appends only, until it is merged or deleted (PDP-43)."""

    def __init__(self, segment: str, refused: str) -> None:
        super().__init__(
            f"segment {segment!r} is transient and cannot {refused}; it can be appended to, merged and deleted"
        )
        self.segment = segment


class SegmentTruncated(Rejected):
    """Data before `start_offset` is gone (Pravega: StreamSegmentTruncated)."""

    def __init__(self, segment: str, offset: int, start_offset: int) -> None:
        super().__init__(
            f"segment {segment!r}: offset {offset} has been truncated away; its first readable offset is {start_offset}"
        )
        self.segment = segment
        self.offset = offset
        self.start_offset = start_offset


class BadOffset(Rejected):
    """An offset does not fit the segment (Pravega: BadOffset)."""

    def __init__(self, segment: str, expected: str | int, given: int) -> None:
        super().__init__(f"segment {segment!r}: offset {given} was given where {expected} is expected")
        self.segment = segment
        self.expected = expected
        self.given = given


class BadAttributeUpdate(Rejected):
    """An attribute's condition does not hold (Pravega: BadAttributeUpdate). `previous` is None where it is not set."""

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


class ChunksGivenUp(Rejected):
    """The chunks of an append are so old that a sweep of orphans gave them up (G1). Nothing was appended.

    created_at: when the first of them was begun; orphan_horizon: what was begun earlier is given up. Both in ms since
    the epoch; created_at is 0 where the append does not say it. reason: both, for people.
    """

    def __init__(self, segment: str, created_at: int, orphan_horizon: int) -> None:
        begun = f"were begun at {_moment(created_at)}" if created_at else "do not say when they were begun"
        self.reason = (
            f"its chunks {begun}, and a clean-up has given up all that were begun before "
            f"{_moment(orphan_horizon)} and not attached by then"
        )
        super().__init__(
            f"segment {segment!r}: the append is refused: {self.reason}. Nothing was written: write it again. If "
            "writing takes that long, let clean-ups leave chunks alone for longer than it may take: `maintain "
            "--orphan-age`, `gc --older-than`"
        )
        self.segment = segment
        self.created_at = created_at
        self.orphan_horizon = orphan_horizon


class ClocksDisagree(EngineError):
    """The storage's clock and this host's are too far apart for anything to be deleted, truncated or given up (W13).

    Nothing was done; the message says both times.
    """


def _moment(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds / 1000))


class FlushOvertaken(Rejected):
    """The flush cycle is not the present one any more, or the segment is not as it was when the cycle began."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; another process flushes, or a segment was truncated or deleted meanwhile")


class FlushIncomplete(EngineError):
    """No recovery point covers what was acknowledged before the flush. All of it is in the log, and stays there (W17).

    wanted: number of the last operation before the flush; covered: of the last one that a recovery point covers, -1 if
    there is none.
    """

    def __init__(self, container: int, wanted: int, covered: int, attempts: int, trouble: str) -> None:
        why = f": the last one failed: {trouble}" if trouble else ", as others flush, truncate or delete meanwhile"
        found = f"the newest recovery point covers {covered}" if covered >= 0 else "there is no recovery point"
        super().__init__(
            f"container {container}: {attempts} flush cycles were begun and none was completed{why}. {wanted} "
            f"operations were acknowledged before the flush, and {found}. All of them are in the log: flush again"
        )
        self.wanted = wanted
        self.covered = covered


class Unresolved(Rejected):
    """What LTS holds has to be looked up before the operation can be judged. Callers never see it.

    `keys` of `table` are to be looked up; `segment` is the one whose attributes they are.
    """

    def __init__(self, table: str, keys: tuple[str, ...], segment: str = "") -> None:
        super().__init__(f"table {table!r}: {keys} are to be looked up in LTS")
        self.table = table
        self.keys = keys
        self.segment = segment
