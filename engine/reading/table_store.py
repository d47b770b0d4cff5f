"""Reading the tables of a container, from memory or LTS (Pravega: TableStore).

Objects that an old state names may be deleted; then a newer state is read. Tables are changed by operations
(`PutEntry`, `CheckEntry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from chunkstore import ObjectNotFound
from engine.errors import ObjectLost
from engine.logs.durable_log import DurableLog
from engine.state.state import State
from engine.state.tables import Entry
from engine.storage.lookups import Lookups

T = TypeVar("T")


class TableStore:
    """The tables of one container. Thread-safe."""

    def __init__(self, log: DurableLog, lookups: Lookups) -> None:
        self._log = log
        self._lookups = lookups

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> dict[str, Entry | None]:
        """Entries of a table, as of `state` or the state that this process knows; None for those that do not exist."""
        return self.looked_up(lambda state: self._lookups.entries(state, table, keys), state)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, as this process knows them, in no order.

        Changes during the scan may be included or not. No key is returned twice.
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

    def range(
        self, table: str, start: str = "", end: str | None = None, state: State | None = None, *, whole: bool = True
    ) -> Iterator[tuple[str, Entry]]:
        """The entries of a created table whose keys are in `[start, end)`, in the order of the keys, as of `state` or
        the state that this process knows. It takes bounded memory, whatever the size of the table.

        If objects of that state are deleted meanwhile, it continues in a newer one behind the last key. Unless `whole`,
        values are left out (empty) or not.
        """
        known = state or self._log.state
        while True:
            try:
                for key, entry in self._lookups.range(known, table, start, end, whole=whole):
                    start = key + "\0"
                    yield key, entry
                return
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def looked_up(self, find: Callable[[State], T], state: State | None = None) -> T:
        """The result of `find` for a state; for a newer one if objects of that state are deleted. Raises ObjectLost."""
        known = state or self._log.state
        while True:
            try:
                return find(known)
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def _newer(self, known: State, error: ObjectNotFound) -> State:
        """A newer state than `known`, whose objects are deleted. Raises ObjectLost if there is none."""
        newer = self._log.refresh()
        if newer.tables == known.tables and newer.segments == known.segments:
            raise ObjectLost(str(error)) from error
        return newer
