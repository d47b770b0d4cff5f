"""Findings: what is wrong with a root, one by one. Any number of them; they are kept in a temporary file, not in
memory."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple


class Severity(str, enum.Enum):
    """ERROR: something that was acknowledged is lost, wrong, or cannot be read. WARNING: nothing is, but it is not as
    it should be. FOREIGN: somebody else has put something there, which nothing reads, follows or deletes (P1)."""

    ERROR = "error"
    WARNING = "warning"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """One thing that is wrong.

    container: its number, None for the root. object: the path of an object, or the name of a segment or table.
    problem: what is wrong with it. remedy: what to do.
    """

    severity: Severity
    container: int | None
    object: str
    problem: str
    remedy: str


class Problem(NamedTuple):
    """A finding before it is known in which container it is."""

    object: str
    problem: str
    remedy: str
    severity: Severity = Severity.ERROR


class Findings:
    """Findings in the order in which they were added; the same one is kept once."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "CREATE TABLE findings (id INTEGER PRIMARY KEY, severity TEXT, container INTEGER, object TEXT,"
            " problem TEXT, remedy TEXT)"
        )
        self._db.execute("CREATE UNIQUE INDEX one ON findings (ifnull(container, -1), object, problem)")

    def __del__(self) -> None:
        self._db.close()  # a report is kept, and dropped, by whoever asked for it

    def add(self, finding: Finding) -> None:
        """Keep a finding."""
        self._db.execute(
            "INSERT OR IGNORE INTO findings (severity, container, object, problem, remedy) VALUES (?, ?, ?, ?, ?)",
            (finding.severity.value, *finding[1:]),
        )

    def mark(self) -> int:
        """What `rewind` goes back to."""
        return int(self._db.execute("SELECT ifnull(max(id), 0) FROM findings").fetchone()[0])

    def rewind(self, mark: int) -> None:
        """Forget what was added since `mark`."""
        self._db.execute("DELETE FROM findings WHERE id > ?", (mark,))

    def count(self, severity: Severity) -> int:
        """How many there are of that severity."""
        query = "SELECT count(*) FROM findings WHERE severity = ?"
        return int(self._db.execute(query, (severity.value,)).fetchone()[0])

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM findings").fetchone()[0])

    def __iter__(self) -> Iterator[Finding]:
        rows = self._db.execute("SELECT severity, container, object, problem, remedy FROM findings ORDER BY id")
        for severity, *rest in rows:
            yield Finding(Severity(severity), *rest)
