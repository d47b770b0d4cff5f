"""What actors write, and what readers demand of it.

An event is `WRITER RUN NUMBER PADDING`. A run is the life of one writer object; its numbers begin with 0 and have no
gaps. So per writer, run and key each number follows the one before it by KEYS: that is all of "exactly once, in order,
nothing missing in between", with a few numbers of memory however long the stream is.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.soak import KEYS

PROBLEMS = 20
"""So many are kept; the others are counted."""


class Written(NamedTuple):
    """The name of an event."""

    writer: str
    run: int
    number: int

    @property
    def key(self) -> str:
        """Its routing key."""
        return f"{self.writer}-{self.number % KEYS}"

    def encoded(self, padding: int = 0) -> bytes:
        """The event, with so many bytes that mean nothing."""
        return f"{self.writer} {self.run} {self.number} ".encode() + b"." * padding


def decoded(data: bytes) -> Written:
    """The name in an event. Raises ValueError for what no actor wrote."""
    writer, run, number, padding = data.split(b" ", 3)
    if padding.strip(b"."):
        raise ValueError(f"an event that no actor wrote: {data[:100]!r}")
    return Written(writer.decode(), int(run), int(number))


class Sequences:
    """The last number that was seen of each writer, run and key; problems as text.

    suffix: what is read may begin anywhere: the first number of a key is accepted, whatever it is.
    """

    def __init__(self, suffix: bool = False) -> None:
        self.suffix = suffix
        self.last: dict[tuple[str, int, int], int] = {}
        self.events = 0
        self.problems: list[str] = []
        self.wrong = 0

    def add(self, written: Written) -> None:
        """The next event that was read."""
        self.events += 1
        place = written.writer, written.run, written.number % KEYS
        before = self.last.get(place)
        expected = place[2] if before is None else before + KEYS
        if written.number != expected and not (before is None and self.suffix):
            what = "repeated or out of order" if written.number < expected else "missing"
            self.problem(f"{written}: expected {expected}: {what}")
        self.last[place] = max(written.number, before or 0)

    def problem(self, text: str) -> None:
        """Note that something is wrong."""
        self.wrong += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)

    def forget(self) -> None:
        """Begin anywhere once more, as what is between was truncated."""
        self.last.clear()

    def missing(self, acknowledged: dict[tuple[str, int], int]) -> list[str]:
        """The runs of which less was seen than was acknowledged: the last number by writer and run."""
        found = []
        for (writer, run), number in sorted(acknowledged.items()):
            for key in range(KEYS):
                wanted = number - (number - key) % KEYS
                seen = self.last.get((writer, run, key), -1)
                if wanted >= 0 and seen < wanted:
                    found.append(f"{writer} run {run} key {key}: {wanted} was acknowledged, {seen} is the last one")
        return found


class Transactions:
    """Transactions of several events: all of one is there, or nothing. Numbers of one writer ascend."""

    def __init__(self) -> None:
        self.whole: dict[str, set[int]] = {}
        self._parts: dict[tuple[str, int], set[int]] = {}
        self._completed: list[tuple[str, int]] = []  # since the last cut
        self.events = 0
        self.problems: list[str] = []

    def add(self, data: bytes, parts: int) -> None:
        """The next event that was read: `WRITER TRANSACTION PART `."""
        self.events += 1
        writer, number, part, _ = data.split(b" ", 3)
        key = writer.decode(), int(number)
        found = self._parts.setdefault(key, set())
        if int(part) in found or key[1] in self.whole.get(key[0], ()):
            self._problem(f"part {int(part)} of transaction {key} is there twice")
        found.add(int(part))
        if len(found) == parts:
            del self._parts[key]
            self.whole.setdefault(key[0], set()).add(key[1])
            self._completed.append(key)

    def at_a_cut(self) -> None:
        """All events up to a cut were read: every transaction is whole now."""
        for key, found in self._parts.items():
            self._problem(f"of transaction {key} only parts {sorted(found)} are there")
        self._parts.clear()
        self._completed.clear()

    def start_again(self) -> None:
        """What was read since the last cut is read again."""
        for writer, number in self._completed:
            self.whole[writer].discard(number)
        self._parts.clear()
        self._completed.clear()

    def _problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)
