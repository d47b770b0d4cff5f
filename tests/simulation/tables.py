"""The actors that use a key-value table from several processes, whose calls must be linearizable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.containers.container import Container
from pravega_spark import Insert, KeyValueTable, KeyValueTableConfiguration, KeyValueTableEntry, Put, Remove, TableKey
from pravega_spark.errors import ConditionalTableUpdateFailed, StreamError
from pravega_spark.streams.model.key_value_table import TableModification
from tests.simulation.actors import Actor, Collector, Flusher, begin_actors
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require
from tests.support.linearizability import Ok, Refused, Undecided, Unknown
from tests.support.table_histories import Call, TableHistory

SCOPE, TABLE = "scope", "table"

PRIMARY, SECONDARY = (b"p", b"q", b"r"), (b"1", b"2")


class TableActor(Actor):
    """An actor that uses the table."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._table: KeyValueTable | None = None

    @property
    def calls(self) -> TableHistory:
        """The calls of all actors of the history."""
        calls: TableHistory = self.history.shared
        return calls

    def table(self) -> KeyValueTable:
        """The table, opened at its first use."""
        if self._table is None:
            self._table = self.patiently("open", lambda: self.process.manager.key_value_table(SCOPE, TABLE))
        return self._table

    def key(self, primary: bytes | None = None) -> TableKey:
        """Some key."""
        return TableKey(primary or self.random.choice(PRIMARY), self.random.choice(SECONDARY))

    def attempt(self, what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
        """As of a container. A condition that did not hold is REFUSED, with its error."""
        try:
            return super().attempt(what, call)
        except ConditionalTableUpdateFailed as error:
            self.note(f"{what}: {type(error).__name__}: {error}")
            return Outcome.REFUSED, error
        except StreamError as error:
            raise AssertionError(f"{self.name}: {what}: {error!r}") from error

    def read(self, keys: Sequence[TableKey] | None) -> list[KeyValueTableEntry] | None:
        """The entries of some keys, or all; None if the read failed."""
        table = self.table()
        call = self.calls.read(self.name, keys)

        def read() -> list[KeyValueTableEntry]:
            found = table.entries() if keys is None else table.get_all(keys)
            return [entry for entry in found if entry is not None]

        outcome, result = self.attempt(f"read {keys or 'all'}", read)
        if outcome is not Outcome.DONE:
            self.calls.drop(call)
            return None
        self.calls.end(call, Ok(result))
        entries: list[KeyValueTableEntry] = result
        return entries


class Editor(TableActor):
    """Puts, inserts, replaces and removes entries, on conditions of what it last saw."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._seen: dict[TableKey, KeyValueTableEntry] = {}
        self._values = 0

    def act(self) -> None:
        if self.random.random() < 0.35:
            keys = self.random.choice((None, [self.key()], sorted({self.key(), self.key(), self.key()})))
            for entry in self.read(keys) or []:
                self._seen[entry.key] = entry
            return
        primary = self.random.choice(PRIMARY)
        keys = sorted({self.key(primary), self.key(primary)} if self.random.random() < 0.4 else {self.key(primary)})
        removes = self.random.random() < 0.25
        self._update([self._removal(key) if removes else self._put(key) for key in keys])

    def _removal(self, key: TableKey) -> TableModification:
        seen = self._seen.get(key)
        return Remove(key, seen.version if seen is not None and self.random.random() < 0.6 else None)

    def _put(self, key: TableKey) -> TableModification:
        self._values += 1
        value = f"{self.name}.{self._values}".encode() + b"x" * self.padding()
        seen, drawn = self._seen.get(key), self.random.random()
        if drawn < 0.25 or (seen is None and drawn < 0.6):
            return Insert(key, value)
        return Put(key, value, seen.version if seen is not None and drawn < 0.8 else None)

    def _update(self, modifications: list[TableModification]) -> None:
        table = self.table()
        call: Call = self.calls.update(self.name, modifications)
        outcome, result = self.attempt(f"update {modifications}", lambda: table.update(modifications))
        if outcome is Outcome.DONE:
            self.calls.end(call, Ok(result))
        elif isinstance(result, ConditionalTableUpdateFailed):
            self.calls.end(call, Refused(type(result).__name__))
        elif outcome is Outcome.UNKNOWN:
            self.calls.end(call, Unknown())
        else:
            self.calls.drop(call)


KINDS: dict[str, tuple[type[Actor], int]] = {
    "editor": (Editor, 8),
    "flusher": (Flusher, 2),
    "collector": (Collector, 1),
}
"""The actors, and how likely each is."""


def prepare(history: History) -> None:
    """A table, and the actors of the plan."""
    history.shared = TableHistory()
    manager = history.sound.manager
    manager.create_scope(SCOPE)
    manager.create_key_value_table(SCOPE, TABLE, KeyValueTableConfiguration(history.plan.segments, 1, 1))
    begin_actors(history, KINDS)
    history.actors.append(_Last(history, history.sound, "last"))


class _Last(TableActor):
    """Reads all at the end."""

    def run(self) -> None:
        pass

    def check(self, container: Container) -> None:
        require(self.read(None) is not None, "the table cannot be read")
        try:
            self.calls.check()
        except Undecided as undecided:
            self.note(str(undecided))
