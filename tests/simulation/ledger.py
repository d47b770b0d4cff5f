"""What callers were told of their appends, what readers saw, and whether both agree.

Keeps, of each segment, every byte that was seen or acknowledged, by its offset: no offset may ever hold another one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What became of an append. PENDING: its process died or still waits; UNKNOWN: the caller got OutcomeUnknown;
    REFUSED: it was told that the append was not done."""

    PENDING = "pending"
    DONE = "done"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class Violation(AssertionError):
    """A broken promise."""


def require(holds: object, what: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(what)


@dataclass
class Written:
    """A record that somebody appends. begun, ended: when; ended is endless until then. key: records of one key keep
    the order of their numbers."""

    key: str
    number: int
    segment: str
    data: bytes
    begun: float
    ended: float = float("inf")
    offset: int | None = None
    outcome: Outcome = Outcome.PENDING

    def __str__(self) -> str:
        return f"{self.key}.{self.number} of {self.segment} ({self.outcome.value}, offset {self.offset})"


@dataclass
class Content:
    """What is known of a segment. length, start: the least that they are, of a state that was seen."""

    data: bytearray = field(default_factory=bytearray)
    known: bytearray = field(default_factory=bytearray)
    length: int = 0
    start: int = 0


class Ledger:
    """The appends of a history. clock: the world's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.written: list[Written] = []
        self.contents: dict[str, Content] = defaultdict(Content)
        self.together: list[list[Written]] = []
        self._clock = clock
        self._numbers: Counter[str] = Counter()

    def begin(self, key: str, segment: str, padding: int = 0) -> Written:
        """A record that is about to be appended."""
        self._numbers[key] += 1
        number = self._numbers[key]
        data = f"{key}.{number}|".encode() + b"x" * padding + b"\n"
        written = Written(key, number, segment, data, self._clock())
        self.written.append(written)
        return written

    def begin_together(self, key: str, segments: Iterable[str], padding: int = 0) -> list[Written]:
        """Records that are appended in one step, or not at all."""
        group = [self.begin(key, segment, padding) for segment in segments]
        self.together.append(group)
        return group

    def done(self, written: Written, offset: int | None) -> None:
        """It was acknowledged, at an offset if that is known."""
        require(written.outcome is Outcome.PENDING, f"{written} is completed twice")
        written.outcome, written.offset, written.ended = Outcome.DONE, offset, self._clock()
        if offset is not None:
            self.saw(written.segment, offset, written.data, str(written))
            self.reached(written.segment, offset + len(written.data))

    def ended(self, written: Written, outcome: Outcome) -> None:
        """It was not acknowledged."""
        require(written.outcome is Outcome.PENDING, f"{written} is completed twice")
        written.outcome, written.ended = outcome, self._clock()

    def reached(self, segment: str, length: int, start: int = 0) -> None:
        """A state with this length and start was seen."""
        content = self.contents[segment]
        content.length = max(content.length, length)
        content.start = max(content.start, start)

    def saw(self, segment: str, start: int, data: bytes, by: str) -> None:
        """These bytes were read or acknowledged there. Raises Violation if the segment had others there."""
        content, end = self.contents[segment], start + len(data)
        if len(content.data) < end:
            more = bytes(end - len(content.data))
            content.data += more
            content.known += more
        before, mask = content.data[start:end], content.known[start:end]
        differs = (int.from_bytes(before, "big") ^ int.from_bytes(data, "big")) & int.from_bytes(mask, "big")
        if differs:
            raise Violation(f"{by}: {segment} has {bytes(data)!r} at {start}, where {bytes(before)!r} was")
        content.data[start:end] = data
        content.known[start:end] = b"\xff" * len(data)

    def check(self, ends: dict[str, tuple[int, int]]) -> None:
        """Check all appends. ends: start and length of each segment, all of whose bytes from the start on were seen."""
        places = {segment: self._places(segment, start, length) for segment, (start, length) in ends.items()}
        for written in self.written:
            where = places.get(written.segment, {}).get(written.data, [])
            start = ends.get(written.segment, (0, 0))[0]
            require(len(where) <= 1, f"{written} is there {len(where)} times, at {where}")
            if written.outcome is Outcome.REFUSED:
                require(not where, f"{written} is there, at {where}")
            if written.outcome is Outcome.DONE and written.offset is None:
                require(where or start, f"{written} is lost")
            if written.outcome is Outcome.DONE and written.offset is not None and written.offset >= start:
                require(where == [written.offset], f"{written} is lost: it is at {where}")
            if where and written.offset is None:
                written.offset = where[0]
        for group in self.together:
            there = [written for written in group if written.offset is not None]
            truncated = any(ends.get(written.segment, (0, 0))[0] for written in group)
            require(len(there) in (0, len(group)) or truncated, f"only some of a transaction are there: {there}")
        self._check_order()

    def _places(self, segment: str, start: int, length: int) -> dict[bytes, list[int]]:
        """Where each record is."""
        content = self.contents[segment]
        require(length >= content.length, f"{segment} has {length} bytes, and had {content.length}")
        known = {written.data for written in self.written if written.segment == segment}
        found: dict[bytes, list[int]] = defaultdict(list)
        place = start
        for line in bytes(content.data[start:length]).splitlines(keepends=True):
            require(line in known, f"{segment} has {line!r} at {place}, which nobody wrote there")
            found[line].append(place)
            place += len(line)
        return found

    def _check_order(self) -> None:
        """What began after another append had been acknowledged is behind it; records of one key are in order."""
        by_segment: dict[str, list[Written]] = defaultdict(list)
        for written in self.written:
            if written.offset is not None:
                by_segment[written.segment].append(written)
        for there in by_segment.values():
            there.sort(key=lambda each: each.offset or 0)
            begun_before: float = -1.0  # the latest beginning so far
            last: Written | None = None
            latest: dict[str, Written] = {}
            for written in there:
                if last is not None and written.ended < begun_before:
                    raise Violation(f"{written} ended before {last} began, which is before it")
                if written.begun > begun_before:
                    begun_before, last = written.begun, written
                other = latest.get(written.key)
                if other is not None and other.number > written.number:
                    raise Violation(f"{other} is before {written}")
                latest[written.key] = written
