"""Findings: the problems of a root. They are kept in a temporary file, so there may be any number of them."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple


class Severity(str, enum.Enum):
    """ERROR: acknowledged data is lost, wrong or unreadable. WARNING: no data is affected. FOREIGN: an object that this
    project did not create; nothing reads, follows or deletes it (P1)."""

    ERROR = "error"
    WARNING = "warning"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """One problem. container: its number, None for the root. object: the path of an object, or the name of a segment or
    table. remedy: what to do."""

    severity: Severity
    container: int | None
    object: str
    problem: str
    remedy: str


class Problem(NamedTuple):
    """A finding without its container."""

    object: str
    problem: str
    remedy: str
    severity: Severity = Severity.ERROR


class Findings:
    """Findings in the order in which they were added, without duplicates."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "CREATE TABLE findings (id INTEGER PRIMARY KEY, severity TEXT, container INTEGER, object TEXT,"
            " problem TEXT, remedy TEXT)"
        )
        self._db.execute("CREATE UNIQUE INDEX one ON findings (ifnull(container, -1), object, problem)")

    def __del__(self) -> None:
        self._db.close()  # the report that holds the findings has no close method

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self._db.execute(
            "INSERT OR IGNORE INTO findings (severity, container, object, problem, remedy) VALUES (?, ?, ?, ?, ?)",
            (finding.severity.value, *finding[1:]),
        )

    def mark(self) -> int:
        """The present position, for `rewind`."""
        return int(self._db.execute("SELECT ifnull(max(id), 0) FROM findings").fetchone()[0])

    def rewind(self, mark: int) -> None:
        """Remove the findings that were added since `mark`."""
        self._db.execute("DELETE FROM findings WHERE id > ?", (mark,))

    def count(self, severity: Severity) -> int:
        """The number of findings of a severity."""
        query = "SELECT count(*) FROM findings WHERE severity = ?"
        return int(self._db.execute(query, (severity.value,)).fetchone()[0])

    def names(self, object: str) -> bool:
        """Whether there is a finding about an object."""
        return self._db.execute("SELECT 1 FROM findings WHERE object = ? LIMIT 1", (object,)).fetchone() is not None

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM findings").fetchone()[0])

    def __iter__(self) -> Iterator[Finding]:
        rows = self._db.execute("SELECT severity, container, object, problem, remedy FROM findings ORDER BY id")
        for severity, *rest in rows:
            yield Finding(Severity(severity), *rest)
