"""Histories of one segment: recording what concurrent callers did and heard, and checking that it can be explained.

A history is *linearizable* (Herlihy and Wing 1990) when every call can be given one moment between its invocation and
its response such that, carried out at these moments, all calls have the results that were heard. A call whose outcome
is unknown happened at any moment after its invocation, or never. A call that was refused did nothing, and the reason
that it was given must have held at its moment. The segment exists, and is empty, when the history begins; or it does
not exist before a call creates it.

The general problem is exponential. Here appends return offsets, which order them, so that one way of explaining what
happened is followed through the history; only calls of unknown outcome make it fork. End a history with a read of the
whole segment, and begin a truncation with one of what is to go: they tell which of these appends happened, and that
every byte is there.

    with Recorder(container, "scope/stream/0", process="a", path="a.jsonl") as recorder:
        recorder.append(b"some")
    ...
    check(load("a.jsonl", "b.jsonl"))
"""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from engine.containers.container import Container
from engine.errors import (
    BadOffset,
    ContainerOffline,
    NotPrimary,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
)

Result = TypeVar("Result")

MAX_WAYS = 20_000
"""Where so many ways to explain a history are open at once, the search is given up."""

NEIGHBOURS = 6
"""How many other calls the message of `NotLinearizable` shows at most because they were near in time."""


class NotLinearizable(Exception):
    """No order of the calls explains the history. The message shows the call that nothing explains, and others near."""


class Undecided(Exception):
    """Too many calls of unknown outcome could each have happened or not. Read all bytes before they go."""


# --- histories -------------------------------------------------------------------------------------------------------


class Properties(NamedTuple):
    """What `Recorder.info` tells of a segment: its length, its first readable offset, whether it is sealed."""

    length: int
    start: int
    sealed: bool


@dataclass(frozen=True)
class Create:
    """Make the segment, empty. Gives None."""


@dataclass(frozen=True)
class Append:
    """Append bytes, at the end or only if that is at `at`. Gives the offset of the first byte."""

    data: bytes
    at: int | None = None


@dataclass(frozen=True)
class Read:
    """Read the bytes `[start, end)`. Gives them."""

    start: int
    end: int


@dataclass(frozen=True)
class Info:
    """Look at the segment's Properties. Gives them."""


@dataclass(frozen=True)
class Seal:
    """Let the segment take no more data. Gives None."""


@dataclass(frozen=True)
class Truncate:
    """Forget what lies before `offset`. Gives None."""

    offset: int


@dataclass(frozen=True)
class Ok:
    """The operation happened, with this result."""

    result: Any = None


@dataclass(frozen=True)
class Refused:
    """The operation did not happen.

    error: the name of an error class of engine.errors. value: the offset that was expected instead (BadOffset), or the
    first readable one (SegmentTruncated), if the error told it.
    """

    error: str
    value: int | None = None


@dataclass(frozen=True)
class Unknown:
    """Nobody knows whether the operation happened, or will happen."""


Operation: TypeAlias = "Create | Append | Read | Info | Seal | Truncate"
Outcome: TypeAlias = "Ok | Refused | Unknown"


class Invocation(NamedTuple):
    """A call began. `process` and `call` identify it; time: ns of a clock that all processes share."""

    process: str
    call: int
    time: int
    operation: Operation


class Response(NamedTuple):
    """A call ended. One that never did is of unknown outcome, like one of a process that was killed."""

    process: str
    call: int
    time: int
    outcome: Outcome


Event: TypeAlias = "Invocation | Response"

_FIELDS: dict[type[Any], tuple[type[Any] | UnionType, ...]] = {
    Create: (),
    Append: (bytes, int | None),
    Read: (int, int),
    Info: (),
    Seal: (),
    Truncate: (int,),
    Ok: (int | bytes | Properties | None,),
    Refused: (str, int | None),
    Unknown: (),
}
_KINDS = {kind.__name__.lower(): kind for kind in _FIELDS}


def _to_line(event: Event) -> bytes:
    """An event as a line of JSON, bytes as an object that holds text of the same code points."""
    what = event.operation if isinstance(event, Invocation) else event.outcome
    values = [{"bytes": v.decode("latin-1")} if isinstance(v, bytes) else v for v in vars(what).values()]
    return json.dumps([event.process, event.call, event.time, type(what).__name__.lower(), *values]).encode() + b"\n"


def _from_line(line: bytes) -> Event:
    process, call, time, name, *values = json.loads(line)
    kind, values = _KINDS[name], [_from_json(value) for value in values]
    given, wanted = (process, call, time, *values), (str, int, int, *_FIELDS[kind])
    if len(given) != len(wanted) or not all(map(isinstance, given, wanted)):
        raise ValueError(f"{name} with {values!r}")
    what = kind(*values)
    return (Response if isinstance(what, Ok | Refused | Unknown) else Invocation)(process, call, time, what)


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return value["bytes"].encode("latin-1")
    if isinstance(value, list):
        length, start, sealed = value
        if not (isinstance(length, int) and isinstance(start, int) and isinstance(sealed, bool)):
            raise ValueError(f"{value} are no properties")
        return Properties(length, start, sealed)
    return value


def save(path: str | os.PathLike[str], history: Iterable[Event]) -> None:
    """Write a history to a file, one line of JSON for each event."""
    with open(path, "wb") as file:
        file.writelines(map(_to_line, history))


def load(*paths: str | os.PathLike[str]) -> list[Event]:
    """The history that several files hold together, as `save` and `Recorder` write them.

    A last line without its end, of a process that was killed, is left out. Raises ValueError for one that is no event.
    """
    history = []
    for path in paths:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    history.append(_from_line(line))
                except (ValueError, TypeError, KeyError) as error:
                    raise ValueError(f"{os.fspath(path)}, line {number} is no event of a history: {error!r}") from error
    return history


def _clock() -> int:
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Recorder:
    """Does operations on a segment of a container and records what was asked and heard. Thread-safe.

    Args:
        container, segment: what to work on.
        process: tells this recorder's calls from all others' in a history; so each recorder has its own.
        path: a file to which each event is added at once, the invocation before the call begins.
        clock: nanoseconds; must be the same for all processes whose histories are merged.

    `events` is what was recorded so far. All errors of the container are passed on.
    """

    def __init__(
        self,
        container: Container,
        segment: str,
        process: str = "",
        path: str | os.PathLike[str] | None = None,
        clock: Callable[[], int] = _clock,
    ) -> None:
        self.container = container
        self.segment = segment
        self.process = process
        self.events: list[Event] = []
        self._clock = clock
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._file = open(path, "ab", buffering=0) if path is not None else None  # noqa: SIM115

    def create(self) -> None:
        """Make the segment."""
        self._record(Create(), lambda: self.container.create_segment(self.segment))

    def append(self, data: bytes, at: int | None = None) -> int:
        """Append, at offset `at` if given. Returns the first byte's offset."""
        return self._record(Append(data, at), lambda: self.container.append(self.segment, data, at))

    def read(self, start: int, end: int) -> bytes:
        """The bytes `[start, end)`, of a state that is up to date: `Container.read` is content with an older one."""

        def read() -> bytes:
            self.container.refresh()
            return self.container.read(self.segment, start, end)

        return self._record(Read(start, end), read)

    def info(self) -> Properties:
        """Length, first readable offset, and whether the segment is sealed."""

        def info() -> Properties:
            segment = self.container.info(self.segment)
            return Properties(segment.length, segment.start_offset, segment.sealed)

        return self._record(Info(), info)

    def seal(self) -> None:
        """Seal the segment."""
        self._record(Seal(), lambda: self.container.seal(self.segment))

    def truncate(self, offset: int) -> None:
        """Truncate the segment."""
        self._record(Truncate(offset), lambda: self.container.truncate(self.segment, offset))

    def close(self) -> None:
        """Close the file; not the container."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, operation: Operation, call: Callable[[], Result]) -> Result:
        number = next(self._numbers)
        self._note(Invocation(self.process, number, self._clock(), operation))
        outcome: Outcome = Unknown()
        try:
            result = call()
            outcome = Ok(result)
            return result
        except (Rejected, ContainerOffline) as error:
            outcome = _refusal(error)
            raise
        finally:
            self._note(Response(self.process, number, self._clock(), outcome))

    def _note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            if self._file is not None:
                self._file.write(_to_line(event))


def _refusal(error: Rejected | ContainerOffline) -> Refused:
    value: object = None
    if isinstance(error, BadOffset):
        value = error.expected
    elif isinstance(error, SegmentTruncated):
        value = error.start_offset
    return Refused(type(error).__name__, value if isinstance(value, int) else None)


# --- calls -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """An invocation and its response. `returned` is infinite when nobody heard of the outcome."""

    number: int
    process: str
    operation: Operation
    outcome: Outcome
    invoked: int
    returned: float
    last_seen: int = field(compare=False)

    def describe(self, since: int) -> str:
        """One line, times in ms after `since`."""
        begin, end = ((moment - since) / 1e6 for moment in (self.invoked, self.last_seen))
        heard = f"-> {_shown(self.outcome.result)}" if isinstance(self.outcome, Ok) else _shown(self.outcome)
        return f"{begin:.3f} to {end:.3f} ms, {self.process}: {_shown(self.operation)} {heard}"


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value) if len(value) <= 40 else f"{value[:16]!r}…{value[-16:]!r} ({len(value)} bytes)"
    if isinstance(value, Create | Append | Read | Info | Seal | Truncate | Refused | Unknown):
        return f"{type(value).__name__.lower()}({', '.join(_shown(v) for v in vars(value).values() if v is not None)})"
    return repr(value)


def _paired(history: Iterable[Event]) -> list[_Call]:
    """The calls of a history, by the time of invocation."""
    begun: dict[tuple[str, int], Invocation] = {}
    ended: dict[tuple[str, int], Response] = {}
    for event in history:
        known: dict[tuple[str, int], Any] = begun if isinstance(event, Invocation) else ended
        if known.setdefault(event[:2], event) is not event:
            raise ValueError(f"{event[:2]} is there twice; give every recorder of a history its own `process`")
    if missing := ended.keys() - begun.keys():
        raise ValueError(f"{min(missing)} has a response and no invocation")
    calls = []
    for number, begin in enumerate(sorted(begun.values(), key=lambda event: event.time)):
        end = ended.get(begin[:2], Response(*begin[:3], Unknown()))
        if end.time < begin.time:
            raise ValueError(f"{begin[:2]} ended before it began; all processes must use one monotonic clock")
        returned = math.inf if isinstance(end.outcome, Unknown) else end.time
        calls.append(_Call(number, begin.process, begin.operation, end.outcome, begin.time, returned, end.time))
    return calls


# --- contents --------------------------------------------------------------------------------------------------------


class _Contents:
    """The bytes of the segment as acknowledged appends and reads tell them. What was once at an offset stays.

    acknowledged: the appends of at least one byte whose offset is known, by that.
    """

    def __init__(self, calls: Iterable[_Call], piece: _Piece) -> None:
        self.acknowledged: dict[int, _Call] = {}
        self._piece = piece
        self._claims: list[tuple[int, int, _Call]] = []
        sizes = (len(c.operation.data) for c in calls if _may_change(c) and isinstance(c.operation, Append))
        self._bytes = bytearray(sum(sizes))
        self._told = bytearray(len(self._bytes))  # which of these are known
        for call in calls:
            if isinstance(call.operation, Append) and isinstance(call.outcome, Ok):
                self._put_append(call, call.operation.data, call.outcome.result)
        for call in calls:
            if isinstance(call.operation, Read) and isinstance(call.outcome, Ok):
                self._put_read(call, call.operation, call.outcome.result)

    def fits(self, offset: int, data: bytes) -> bool:
        """Whether an append may have put these bytes there, as far as is known."""
        return offset + len(data) <= len(self._bytes) and self._difference(offset, data) is None

    def _put_append(self, call: _Call, data: bytes, offset: int) -> None:
        if data and self.acknowledged.setdefault(offset, call) is not call:
            raise self._piece("Two appends were acknowledged at one offset", call, [self.acknowledged[offset]])
        if data and 0 <= offset <= len(self._bytes) - len(data) and any(self._told[offset : offset + len(data)]):
            raise self._piece("Acknowledged appends overlap", call, self._claimants(offset, offset + len(data)))
        self._put(call, offset, data)

    def _put_read(self, call: _Call, read: Read, data: bytes) -> None:
        if len(data) != read.end - read.start:
            raise self._piece(f"A read gave {len(data)} bytes instead of {read.end - read.start}", call)
        self._put(call, read.start, data)

    def _put(self, call: _Call, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if not 0 <= offset <= end <= len(self._bytes):
            raise self._piece(f"All appends together are no more than {len(self._bytes)} bytes", call)
        wrong = self._difference(offset, data)
        if wrong is not None:
            raise self._piece(f"The byte at offset {wrong} was another one", call, self._claimants(wrong, wrong + 1))
        self._bytes[offset:end] = data
        self._told[offset:end] = b"\1" * len(data)
        self._claims.append((offset, end, call))

    def _difference(self, offset: int, data: bytes) -> int | None:
        """The first offset where `data` is not what is known."""
        end = offset + len(data)
        first = self._told.find(1, offset, end)
        if first < 0 or self._bytes[offset:end] == data:
            return None
        return next((n for n in range(first, end) if self._told[n] and data[n - offset] != self._bytes[n]), None)

    def _claimants(self, start: int, end: int) -> list[_Call]:
        return [call for first, last, call in self._claims if first < end and start < last][:1]


# --- the search ------------------------------------------------------------------------------------------------------


def _may_change(call: _Call) -> bool:
    """Whether the call may have changed the segment. One that appends nothing does not."""
    if isinstance(call.outcome, Refused):
        return False
    operation = call.operation
    return isinstance(operation, Create | Seal | Truncate) or (isinstance(operation, Append) and operation.data != b"")


def _explained(call: _Call, segment: Properties | None) -> bool:
    """Whether the segment, being like this (None: not there), explains what was heard of the call.

    Not for acknowledged appends of some bytes, nor for Create: these happen once. Seal and Truncate that were carried
    out again change nothing, so all that can be heard of them is that the segment is sealed, or truncated so far.
    """
    operation, outcome = call.operation, call.outcome
    if isinstance(outcome, Refused):
        return outcome.error in _OFFLINE or _refused(operation, outcome, segment)
    if segment is None or isinstance(operation, Create):
        return False
    if isinstance(operation, Append):
        return not segment.sealed and outcome == Ok(segment.length) and operation.at in (None, segment.length)
    if isinstance(operation, Read):
        return segment.start <= operation.start <= operation.end <= segment.length
    if isinstance(operation, Truncate):
        return 0 <= operation.offset <= segment.start
    return outcome == Ok(segment) if isinstance(operation, Info) else segment.sealed


_OFFLINE = {ContainerOffline.__name__, NotPrimary.__name__}
"""These errors tell nothing of the segment, only that nothing was done."""


def _refused(operation: Operation, outcome: Refused, segment: Properties | None) -> bool:
    """Whether the segment, being like this, refuses the operation so."""
    error, value = outcome.error, outcome.value
    reason: type[Exception] | None = None
    expected: int | None = None
    if isinstance(operation, Create):
        reason = SegmentExists if segment is not None else None
    elif segment is None:
        reason = SegmentNotFound
    elif isinstance(operation, Append):
        if segment.sealed:
            reason = SegmentSealed
        elif operation.at not in (None, segment.length):
            reason, expected = BadOffset, segment.length
    elif isinstance(operation, Read):
        if operation.start < segment.start:
            reason, expected = SegmentTruncated, segment.start
        elif not operation.start <= operation.end <= segment.length:
            reason = BadOffset
    elif isinstance(operation, Truncate) and not 0 <= operation.offset <= segment.length:
        reason = BadOffset
    return reason is not None and error == reason.__name__ and value in (None, expected)


_NEW = Properties(0, 0, False)
_ABSENT = Properties(-1, 0, False)


class _Way(NamedTuple):
    """A way to explain the history so far.

    segment: what it has come to, None: it is not there. done: the calls under way that have had their moment, by
    number.
    """

    segment: Properties | None
    done: frozenset[int]


class _Search:
    """Goes through a history in time and keeps all ways to explain it.

    Changes are made as late as possible: only when a call returns that has not had its moment yet (after Wing and Gong
    1993, and Lowe's just-in-time linearization). A call that changes nothing has its moment as soon as the segment
    explains it.
    """

    def __init__(self, contents: _Contents, piece: _Piece, exists: bool) -> None:
        self._contents = contents
        self._piece = piece
        self._ways = {_Way(_NEW if exists else None, frozenset())}
        self._creations: dict[int, Create] = {}  # under way, or of unknown outcome
        self._appends: dict[int, Append] = {}  # under way, that will be acknowledged
        self._doubtful: dict[int, Append] = {}  # of unknown outcome
        self._limits: dict[int, Truncate | Seal] = {}  # under way, or of unknown outcome
        self._judged: dict[int, _Call] = {}  # under way, and explained by what the segment is

    def invoke(self, call: _Call) -> None:
        """A call begins."""
        operation, unknown = call.operation, isinstance(call.outcome, Unknown)
        if _may_change(call):
            if isinstance(operation, Append):
                (self._doubtful if unknown else self._appends)[call.number] = operation
                return
            if isinstance(operation, Create):
                self._creations[call.number] = operation
                return
            if isinstance(operation, Truncate | Seal):
                self._limits[call.number] = operation
        if not unknown:
            self._judged[call.number] = call
            self._ways = {self._judge(way.segment, way.done) for way in self._ways}

    def end(self, call: _Call) -> None:
        """A call ends whose outcome is known: ways in which it has not had its moment go on until it has, or end."""
        seen = set(self._ways)
        waiting, explained = list(seen), set()
        while waiting:
            way = waiting.pop()
            if call.number in way.done:
                explained.add(way._replace(done=way.done - {call.number}))
                continue
            fresh = set(self._changed(way)) - seen
            seen |= fresh
            waiting += fresh
            if len(seen) > MAX_WAYS:
                raise Undecided(f"more than {MAX_WAYS} ways explain what happened until {call.describe(0)}")
        if not explained:
            raise self._failed(call, seen)
        self._ways = explained
        open_calls: Iterable[dict[int, Any]] = (self._appends, self._creations, self._limits, self._judged)
        for calls in open_calls:
            calls.pop(call.number, None)

    def _changed(self, way: _Way) -> Iterator[_Way]:
        """The ways that are one change further."""
        segment, done = way
        if segment is None:
            for number in self._creations:
                yield self._judge(_NEW, done | {number})
            return
        for number, size in self._next_appends(segment, done):
            yield self._judge(segment._replace(length=segment.length + size), done | {number})
        for operation in self._limits.values():
            if isinstance(operation, Seal):
                if not segment.sealed:
                    yield self._judge(segment._replace(sealed=True), done)
            elif segment.start < operation.offset <= segment.length:
                yield self._judge(segment._replace(start=operation.offset), done)

    def _next_appends(self, segment: Properties, done: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Number and size of the appends that may come next: the acknowledged one, or else any of unknown outcome."""
        length = segment.length
        known = self._contents.acknowledged.get(length)
        if segment.sealed:
            return
        if known is not None:
            append = self._appends.get(known.number)
            if append is not None and append.at in (None, length):
                yield known.number, len(append.data)
            return
        found: dict[bytes, int] = {}  # of those that ask for the same it does not matter which
        for number, append in self._doubtful.items():
            data, at = append.data, append.at
            # One that asks for this very place goes first: it will never get another.
            eligible = at == length or (at is None and data not in found)
            if eligible and number not in done and self._contents.fits(length, data):
                found[data] = number
        yield from ((number, len(data)) for data, number in found.items())

    def _judge(self, segment: Properties | None, done: frozenset[int]) -> _Way:
        """The way that has come to this, where all calls that are explained by it have had their moment."""
        explained = [n for n, call in self._judged.items() if n not in done and _explained(call, segment)]
        return _Way(segment, done.union(explained) if explained else done)

    def _failed(self, call: _Call, ways: Iterable[_Way]) -> NotLinearizable:
        segments = sorted({way.segment or _ABSENT for way in ways}, reverse=True)
        next_ones = [self._contents.acknowledged.get(segment.length) for segment in segments]
        shown = ["absent" if segment == _ABSENT else str(segment) for segment in segments[:3]]
        reason = f"Until this call returned the segment can have been {' or '.join(shown)}"
        if len(segments) > 3:
            reason += f" or one of {len(segments) - 3} others"
        return self._piece(reason + ", which does not explain it", call, [c for c in next_ones[:2] if c is not None])


class _Piece:
    """Makes the error of a history that cannot be explained: a call, what it is at odds with, and the nearest ones."""

    def __init__(self, calls: list[_Call]) -> None:
        self._calls = calls

    def __call__(self, reason: str, call: _Call, others: Iterable[_Call] = ()) -> NotLinearizable:
        def distance(other: _Call) -> float:
            return max(0, other.invoked - call.last_seen, call.invoked - other.last_seen)

        nearest = sorted((c for c in self._calls if c is not call), key=lambda c: (distance(c), -c.invoked))
        shown = {c.number: c for c in (call, *others, *nearest[:NEIGHBOURS])}
        lines = [
            f"{'>' if number == call.number else ' '} {shown[number].describe(self._calls[0].invoked)}"
            for number in sorted(shown)
        ]
        return NotLinearizable("\n".join([f"{reason}:", *lines]))


def check(history: Iterable[Event], exists: bool = True) -> None:
    """Check that a segment's history is linearizable; its events may be in any order. exists: it does at the beginning.

    Raises NotLinearizable; Undecided when the search gets too large; ValueError when this is no history at all, as when
    a response has no invocation.
    """
    calls = _paired(history)
    piece = _Piece(calls)
    search = _Search(_Contents(calls, piece), piece, exists)
    # Calls that touch at one instant of the clock overlap: first those that begin, then those that end.
    moments: list[tuple[float, bool, int]] = [(call.invoked, False, call.number) for call in calls]
    moments += [(call.returned, True, call.number) for call in calls if call.returned < math.inf]
    for _, ends, number in sorted(moments):
        (search.end if ends else search.invoke)(calls[number])
