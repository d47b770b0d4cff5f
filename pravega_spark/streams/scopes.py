"""Scopes, and the protocol for deleting one while other processes create something in it.

A scope and its streams have different containers, so no single append covers both. The process that deletes a scope
marks this in the scope's entry, then in every container, and checks after that whether the scope is empty. A process
that creates something first reads the marks of its container, then the scope's entry; it aborts a deletion in
progress by changing the entry, which the last step of the deletion depends on. Its creation is conditional on the
container's marks being unchanged. So one of the two fails in any interleaving, and an interrupted deletion does not
block other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from chunkstore.decoding import check_format, reader, unpack
from chunkstore.optional_fields import NONE, OptionalFields, with_optional, without_optional
from engine.errors import BadKeyVersion, understanding
from engine.state.operations import CheckEntry, PutEntry
from engine.state.state import NOT_EXISTS, State
from pravega_spark.streams.model.names import container_of, validate_scope_name
from pravega_spark.streams.model.stream_record import FORMAT, REMEDY
from pravega_spark.streams.model.system_tables import DELETIONS, SCOPES

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.root import Root

_SCOPES = "scopes"
"""The key of the mark in a container that a deletion of some scope has begun."""


class ScopeRecord(NamedTuple):
    """The stored record of a scope. deleting: whether a deletion of it has begun. optional: what newer versions added
    that this one need not know (W19)."""

    deleting: bool
    optional: OptionalFields = NONE

    def encode(self) -> bytes:
        """The table entry's value."""
        return bytes(msgpack.packb(with_optional([FORMAT, self.deleting], self.optional)))

    @classmethod
    def decode(cls, data: bytes, scope: str) -> ScopeRecord:
        """The inverse of `encode`. Raises DataCorruption, which names the scope."""
        with understanding(f"scope {scope}", REMEDY):
            known, *fields = unpack(data)
            check_format(known, FORMAT)
            [deleting], optional = without_optional(fields, 1)
            return cls(_FLAG(deleting), optional)


_FLAG = reader(bool)


def unless_deleted(container: Container, state: State) -> CheckEntry:
    """The condition for creating something in a scope that is read after `state`: no deletion has begun since."""
    said = container.entries(DELETIONS, [_SCOPES], state)[_SCOPES]
    return CheckEntry(DELETIONS, _SCOPES, said.version if said is not None else NOT_EXISTS)


class Scope:
    """A scope by name, whether it exists or not. Raises ValueError for a name that no scope can have."""

    def __init__(self, root: Root, name: str) -> None:
        self.name = validate_scope_name(name)
        self._root = root

    @property
    def _container(self) -> Container:
        return self._root.container(container_of(self.name, self._root.config.containers))

    def _stored(self) -> tuple[bytes, int] | None:
        """Its entry now, and the entry's version; None if it does not exist."""
        container = self._container
        entry = container.entries(SCOPES, [self.name], container.refresh())[self.name]
        return (entry.value, entry.version) if entry is not None and entry.value is not None else None

    def _record(self) -> tuple[ScopeRecord, int] | None:
        """Its record now, and the version of its entry; None if it does not exist. Raises DataCorruption."""
        stored = self._stored()
        return (ScopeRecord.decode(stored[0], self.name), stored[1]) if stored is not None else None

    def _put(self, record: ScopeRecord, version: int) -> None:
        """Raises BadKeyVersion."""
        self._container.commit([PutEntry(SCOPES, self.name, record.encode(), version)])

    def exists(self) -> bool:
        """Whether it exists now."""
        return self._stored() is not None

    def create(self) -> bool:
        """Create it. False if it exists already."""
        try:
            self._put(ScopeRecord(deleting=False), NOT_EXISTS)
        except BadKeyVersion:
            return False
        return True

    def keep(self) -> bool:
        """Abort a deletion in progress, so that something can be created in it. False if it does not exist."""
        while (stored := self._record()) is not None:
            record, version = stored
            if not record.deleting:
                return True
            with suppress(BadKeyVersion):
                self._put(record._replace(deleting=False), version)
                return True
        return False

    def delete(self, check_empty: Callable[[], None]) -> bool:
        """Delete it. False if it does not exist. check_empty: raises ScopeNotEmpty if it is not empty now."""
        while True:
            check_empty()
            version = self._begun_deletion()
            if version is None:
                return False
            for number in range(self._root.config.containers):
                said = PutEntry(DELETIONS, _SCOPES, ScopeRecord(deleting=True).encode())
                self._root.container(number).commit([said])
            check_empty()
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, None, version)])
                return True

    def _begun_deletion(self) -> int | None:
        """Mark it as being deleted. The version of its entry with the mark; None if it does not exist."""
        while (stored := self._record()) is not None:
            record, version = stored
            if record.deleting:
                return version
            with suppress(BadKeyVersion):
                self._put(record._replace(deleting=True), version)
        return None
