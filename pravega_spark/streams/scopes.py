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
from typing import TYPE_CHECKING

import msgpack

from chunkstore.decoding import check_format, reader, unpack
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


def encode_scope(deleting: bool) -> bytes:
    """A scope's entry. deleting: whether a deletion of it has begun."""
    return bytes(msgpack.packb([FORMAT, deleting]))


def decode_scope(data: bytes, scope: str) -> bool:
    """The inverse of `encode_scope`. Raises DataCorruption."""
    with understanding(f"scope {scope}", REMEDY):
        known, deleting = unpack(data)
        check_format(known, FORMAT)
        return bool(_FLAG(deleting))


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

    def exists(self) -> bool:
        """Whether it exists now."""
        return self._stored() is not None

    def create(self) -> bool:
        """Create it. False if it exists already."""
        try:
            self._container.commit([PutEntry(SCOPES, self.name, encode_scope(False), NOT_EXISTS)])
        except BadKeyVersion:
            return False
        return True

    def keep(self) -> bool:
        """Abort a deletion in progress, so that something can be created in it. False if it does not exist."""
        while (stored := self._stored()) is not None:
            if not decode_scope(stored[0], self.name):
                return True
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, encode_scope(False), stored[1])])
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
                said = PutEntry(DELETIONS, _SCOPES, encode_scope(True))
                self._root.container(number).commit([said])
            check_empty()
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, None, version)])
                return True

    def _begun_deletion(self) -> int | None:
        """Mark it as being deleted. The version of its entry with the mark; None if it does not exist."""
        while (stored := self._stored()) is not None:
            if decode_scope(stored[0], self.name):
                return stored[1]
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, encode_scope(True), stored[1])])
        return None
