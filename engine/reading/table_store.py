"""Reading the tables of a container, from memory or LTS (Pravega: TableStore).

What a state names in LTS may be gone once that state is old: then a newer one is asked for. Whoever changes tables
commits operations (`PutEntry`, `CheckEntry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from chunkstore import ObjectNotFound
from engine.errors import ObjectLost
from engine.logs.durable_log import DurableLog
from engine.state.state import State
from engine.state.tables import Entry
from engine.storage.lookups import Changes, Lookups

T = TypeVar("T")


class TableStore:
    """The tables of one container. May be used by many threads."""

    def __init__(self, log: DurableLog, lookups: Lookups) -> None:
        self._log = log
        self._lookups = lookups

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> dict[str, Entry | None]:
        """Entries of a table as `state` has them, or this process knows them, None where there is none."""
        return self.looked_up(lambda state: self._lookups.entries(state, table, keys), state)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, as this process knows them, in no order.

        What changes meanwhile may be met or not, and nothing is met twice.
        """
        known, met = self._log.state, set()
        while True:
            try:
                for key, entry in self._lookups.scan(known, table, prefix):
                    if key not in met:
                        met.add(key)
                        yield key, entry
                return
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def changed_entries(self, table: str, position: int = 0) -> Changes:
        """What was put into a table, or removed, since an earlier call, as this process knows it (Pravega:
        TableStore.entryDeltaIterator).

        `position` is that of the earlier call's result, 0 for all; what was not flushed by then may come again. Raises
        ChangesLost where compaction has passed it: begin at 0.
        """
        return self.looked_up(lambda state: self._lookups.changes(state, table, position))

    def looked_up(self, find: Callable[[State], T], state: State | None = None) -> T:
        """What `find` finds in a state; in a newer one, if what it names in LTS is gone. Raises ObjectLost."""
        known = state or self._log.state
        while True:
            try:
                return find(known)
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def _newer(self, known: State, error: ObjectNotFound) -> State:
        """A newer state, where what an older one names in LTS is gone. ObjectLost if there is none."""
        newer = self._log.refresh()
        if newer.tables == known.tables and newer.segments == known.segments:
            raise ObjectLost(str(error)) from error
        return newer
