"""Ledgers: what an actor knows to be durable, in a file outside the root that survives its death.

A line is `B RUN` (begun), `A RUN NUMBER` (all up to this number is acknowledged), `U RUN COUNT` (outcome unknown),
`X RUN NUMBER` (aborted: must not be there), or `I KEY NUMBER` and `K KEY NUMBER` (a table's value: begun,
acknowledged). Lines are synced, so what was acknowledged a moment before a kill is missing at most in its last line. A
line that was torn by a kill is the last one, and is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class Ledger:
    """An actor's ledger, to be continued."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / "ledgers" / f"{name}.txt"
        whole = b"".join(line for line in _lines(self.path))
        self._file = self.path.open("ab")
        if self._file.tell() > len(whole):  # a torn line
            self._file.truncate(len(whole))

    def note(self, kind: str, *numbers: int) -> None:
        """Add a line, synced."""
        self._file.write(f"{kind} {' '.join(map(str, numbers))}\n".encode())
        self._file.flush()
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def next_run(self) -> int:
        """Begin another run, and return its number."""
        run = max((numbers[0] for kind, numbers in entries(self.path) if kind == "B"), default=-1) + 1
        self.note("B", run)
        return run

    def last(self, run: int) -> int:
        """The last number of a run that was acknowledged, or -1."""
        return acknowledged(self.path).get(run, -1)


def entries(path: Path) -> Iterator[tuple[str, list[int]]]:
    """The whole lines of a ledger."""
    for line in _lines(path):
        kind, *numbers = line.split()
        yield kind.decode(), [int(number) for number in numbers]


def acknowledged(path: Path) -> dict[int, int]:
    """The last acknowledged number of each run."""
    found: dict[int, int] = {}
    for kind, numbers in entries(path):
        if kind == "A":
            found[numbers[0]] = max(numbers[1], found.get(numbers[0], -1))
    return found


def ledgers(folder: Path) -> dict[str, Path]:
    """All ledgers of a run, by the names of their actors."""
    return {path.stem: path for path in sorted((folder / "ledgers").glob("*.txt"))}


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
