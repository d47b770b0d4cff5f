"""The object index: the objects that containers name, and the objects that exist.

It is a temporary database file, so a root may have any number of objects.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from chunkstore import ObjectInfo


class ObjectKind(enum.IntEnum):
    """Why a container names an object."""

    CHUNK = 1  # of a segment, by the records of LTS
    ATTACHED = 2  # of a segment, by the container's state
    TABLE = 3
    FRAME = 4
    DELETED = 5  # of a deleted segment, not collected yet
    GARBAGE = 6
    RECOVERY = 7  # named by the last recovery point only


class Expected(NamedTuple):
    """An object that a container names.

    logged: it is below the log's root. owner: the segment or table that needs it. length: the bytes that it must have.
    live: how many of them can be read. required: it must exist.
    """

    logged: bool
    path: str
    container: int
    kind: ObjectKind
    owner: str
    length: int
    live: int
    required: bool = True


class Missing(NamedTuple):
    """An object that does not exist (size None), or is too short."""

    expected: Expected
    size: int | None


class Balance(NamedTuple):
    """The objects of a container below the root of the chunks, in bytes; they add up to `total`.

    live: readable bytes of segments. truncated: the other bytes in the same objects. tables: table objects, superseded
    entries included. garbage: objects that wait to be deleted, or are kept for the last recovery point. surplus: bytes
    behind the recorded length of an object (S2). log: frames and checkpoints, which are not in `total`.
    """

    container: int
    live: int
    truncated: int
    tables: int
    garbage: int
    recovery_points: int
    surplus: int
    total: int
    log: int


class Orphans(NamedTuple):
    """Objects below the root of the chunks that nothing names: how many, their bytes, and the first names.

    recent: how many of them are younger than a day, so that a task may be about to attach them.
    """

    number: int
    bytes: int
    recent: int
    names: tuple[str, ...]


_COLUMNS = "logged, path, container, kind, owner, length, live, required"


class ObjectIndex:
    """The objects that should exist, and those that do."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(
            """
            CREATE TABLE objects (logged INTEGER, path TEXT, container INTEGER, kind INTEGER, owner TEXT,
                length INTEGER, live INTEGER, required INTEGER, other TEXT, size INTEGER,
                PRIMARY KEY (logged, path)) WITHOUT ROWID;
            CREATE TABLE others (path TEXT PRIMARY KEY, size INTEGER, modified REAL) WITHOUT ROWID;
            CREATE TABLE names (container INTEGER, name TEXT, PRIMARY KEY (container, name)) WITHOUT ROWID;
            CREATE TABLE sums (container INTEGER, what TEXT, bytes INTEGER);
            CREATE TABLE stored (name TEXT PRIMARY KEY, owner TEXT, length INTEGER, start INTEGER) WITHOUT ROWID;
            CREATE TABLE seen (key TEXT PRIMARY KEY) WITHOUT ROWID;
            CREATE TABLE folded (key BLOB PRIMARY KEY, version INTEGER, live INTEGER) WITHOUT ROWID;
            """
        )

    # --- objects that should exist ---------------------------------------------------------------------------------

    def expect(self, objects: Iterable[Expected]) -> None:
        """Add objects. For one that is named again, the greater length counts, and live bytes add up. A chunk of two
        segments is a clash (see `clashes`)."""
        rows = [(*expected, ObjectKind.CHUNK) for expected in objects]
        self._db.execute("BEGIN")
        self._db.executemany(
            f"INSERT INTO objects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (logged, path) DO UPDATE SET"
            " length = max(length, excluded.length), live = live + excluded.live,"
            " owner = CASE WHEN required OR NOT excluded.required THEN owner ELSE excluded.owner END,"
            " required = max(required, excluded.required),"
            " other = CASE WHEN ? IN (kind, excluded.kind) AND kind IN (1, 2, 5) AND excluded.kind IN (1, 2, 5)"
            " THEN excluded.owner ELSE other END",
            rows,
        )
        self._db.execute("COMMIT")

    def forget(self, container: int) -> None:
        """Remove all objects that a container names, to scan it again."""
        for table in ("objects", "names"):
            self._db.execute(f"DELETE FROM {table} WHERE container = ?", (container,))

    def forget_recovery_point(self, container: int) -> None:
        """Remove the objects that a container's recovery point names, to scan another one."""
        self._db.execute("DELETE FROM objects WHERE container = ? AND kind = 7", (container,))
        self._db.execute("UPDATE objects SET required = 0 WHERE container = ? AND kind IN (5, 6)", (container,))

    def clashes(self, container: int) -> Iterator[tuple[str, str, str]]:
        """Chunks that belong to two segments: path, and the names of both."""
        query = "SELECT path, owner, other FROM objects WHERE container = ? AND other IS NOT NULL ORDER BY path"
        return iter(self._db.execute(query, (container,)).fetchall())

    def live(self, container: int) -> int:
        """The readable bytes of segments in the objects that a container names."""
        query = "SELECT ifnull(sum(live), 0) FROM objects WHERE container = ? AND kind IN (1, 2, 4)"
        return int(self._db.execute(query, (container,)).fetchone()[0])

    def name(self, container: int, segment: str) -> None:
        """Add the name of a segment."""
        self._db.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (container, segment))

    def names(self, container: int, together: int) -> Iterator[list[str]]:
        """The names of a container's segments, `together` at a time."""
        last = ""
        query = "SELECT name FROM names WHERE container = ? AND name > ? ORDER BY name LIMIT ?"
        while rows := [row[0] for row in self._db.execute(query, (container, last, together))]:
            yield rows
            last = rows[-1]

    # --- segments in LTS, of one container at a time ------------------------------------------------------------

    def begin_stored(self) -> None:
        """Begin with the segments in LTS of the next container."""
        self._db.execute("DELETE FROM stored")
        self._db.execute("DELETE FROM seen")

    def expect_stored(self, name: str, owner: str, length: int, start: int) -> None:
        """Add a segment in LTS: `name` holds the content of `owner` up to `length`, and is needed from `start`."""
        self._db.execute("INSERT OR REPLACE INTO stored VALUES (?, ?, ?, ?)", (name, owner, length, start))

    def take_stored(self, name: str) -> tuple[str, int, int] | None:
        """Remove a segment in LTS. Returns its owner, length and start, or None if it was not expected."""
        found = self._db.execute("SELECT owner, length, start FROM stored WHERE name = ?", (name,)).fetchone()
        self._db.execute("DELETE FROM stored WHERE name = ?", (name,))
        return found  # type: ignore[no-any-return]

    def left_stored(self) -> Iterator[tuple[str, str]]:
        """The segments in LTS that were expected and not removed, with their owners."""
        return iter(self._db.execute("SELECT name, owner FROM stored ORDER BY name").fetchall())

    def see(self, keys: Sequence[str]) -> None:
        """Add keys of records that are reachable from a segment."""
        self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(key,) for key in keys])

    def was_seen(self, key: str) -> bool:
        """Whether a record is reachable from a segment."""
        return self._db.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None

    # --- a table's entries, of one table at a time -----------------------------------------------------------------

    def begin_table(self) -> None:
        """Begin with the entries of the next table."""
        self._db.execute("DELETE FROM folded")

    def fold(self, entries: Sequence[tuple[bytes, int, bool]]) -> None:
        """Add entries in the order of writing: key, version, and whether it is a put (not a removal)."""
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO folded VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET version = excluded.version,"
            " live = excluded.live WHERE excluded.version >= version",
            entries,
        )
        self._db.execute("COMMIT")

    def folded(self) -> int:
        """The number of live entries."""
        return int(self._db.execute("SELECT count(*) FROM folded WHERE live").fetchone()[0])

    def newest(self, key: bytes) -> int | None:
        """The version of a live entry; None if there is none."""
        found = self._db.execute("SELECT version FROM folded WHERE key = ? AND live", (key,)).fetchone()
        return int(found[0]) if found is not None else None

    # --- objects that exist ----------------------------------------------------------------------------------------

    def met(self, logged: bool, objects: Sequence[ObjectInfo]) -> None:
        """Add objects that exist, with their sizes."""
        self._db.execute("BEGIN")
        for info in objects:
            update = "UPDATE objects SET size = ? WHERE logged = ? AND path = ?"
            if not self._db.execute(update, (info.size, logged, info.path)).rowcount and not logged:
                self._db.execute(
                    "INSERT OR REPLACE INTO others VALUES (?, ?, ?)", (info.path, info.size, info.modified)
                )
        self._db.execute("COMMIT")

    def count(self, container: int, what: str, size: int) -> None:
        """Add to a container's `log` or `recovery_points`."""
        self._db.execute("INSERT INTO sums VALUES (?, ?, ?)", (container, what, size))

    def missing(self, container: int) -> Iterator[list[Missing]]:
        """The required objects that do not exist or are too short, 500 at a time."""
        query = (
            f"SELECT {_COLUMNS}, size FROM objects WHERE container = ? AND required"
            " AND (size IS NULL OR size < length) AND (logged, path) > (?, ?) ORDER BY logged, path LIMIT 500"
        )
        last: tuple[int, str] = (-1, "")
        while rows := self._db.execute(query, (container, *last)).fetchall():
            yield [Missing(_expected(row[:-1]), row[-1]) for row in rows]
            last = rows[-1][:2]

    def others(self) -> Iterator[list[str]]:
        """The objects that no container names, 500 at a time."""
        last = ""
        query = "SELECT path FROM others WHERE path > ? ORDER BY path LIMIT 500"
        while rows := [row[0] for row in self._db.execute(query, (last,))]:
            yield rows
            last = rows[-1]

    def known(self, path: str, container: int, kind: ObjectKind) -> None:
        """Assign an object that nothing named to a container."""
        [size] = self._db.execute("SELECT size FROM others WHERE path = ?", (path,)).fetchone()
        self._db.execute("DELETE FROM others WHERE path = ?", (path,))
        self._db.execute(
            f"INSERT OR IGNORE INTO objects ({_COLUMNS}, size) VALUES (0, ?, ?, ?, '', ?, ?, 0, ?)",
            (path, container, kind, size, size, size),
        )

    def leave_out(self, folder: str) -> None:
        """Remove the objects in `folder` ("a/b/") from those that nothing names."""
        self._db.execute("DELETE FROM others WHERE substr(path, 1, ?) = ?", (len(folder), folder))

    def not_there(self, path: str) -> None:
        """Remove an object that nothing named, as it was deleted meanwhile."""
        self._db.execute("DELETE FROM others WHERE path = ?", (path,))

    # --- totals ---------------------------------------------------------------------------------------------------

    def orphans(self, before: float, names: int) -> Orphans:
        """The objects that nothing names. before: those created since then (epoch s) are recent. names: the most names
        in the result."""
        number, size, recent = self._db.execute(
            "SELECT count(*), ifnull(sum(size), 0), ifnull(sum(modified >= ?), 0) FROM others", (before,)
        ).fetchone()
        first = self._db.execute("SELECT path FROM others ORDER BY path LIMIT ?", (names,)).fetchall()
        return Orphans(number, size, recent, tuple(path for (path,) in first))

    def balance(self, container: int) -> Balance:
        """The sizes of a container's objects."""
        sums = dict.fromkeys(("live", "truncated", "tables", "garbage", "surplus"), 0)
        rows = self._db.execute(
            "SELECT kind, sum(min(live, length, size)), sum(min(length, size)), sum(size) FROM objects"
            " WHERE container = ? AND logged = 0 AND size IS NOT NULL GROUP BY kind",
            (container,),
        )
        for kind, live, counted, size in rows:
            if kind in (ObjectKind.CHUNK, ObjectKind.ATTACHED):
                sums["live"] += live
                sums["truncated"] += counted - live
                sums["surplus"] += size - counted
            else:
                sums["tables" if kind == ObjectKind.TABLE else "garbage"] += size
        recovery_points, log = self._sum(container, "recovery_points"), self._sum(container, "log")
        total = sum(sums.values()) + recovery_points
        return Balance(container, **sums, recovery_points=recovery_points, total=total, log=log)

    def _sum(self, container: int, what: str) -> int:
        query = "SELECT ifnull(sum(bytes), 0) FROM sums WHERE container = ? AND what = ?"
        return int(self._db.execute(query, (container, what)).fetchone()[0])

    def close(self) -> None:
        """Delete the temporary file."""
        self._db.close()


def _expected(row: Sequence[object]) -> Expected:
    logged, path, container, kind, owner, length, live, required = row
    return Expected(bool(logged), path, container, ObjectKind(kind), owner, length, live, bool(required))  # type: ignore[arg-type]
