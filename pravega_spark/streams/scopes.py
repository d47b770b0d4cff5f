"""Scopes, and how one is deleted while others make something in it.

A scope and what lies in it have containers of their own, so no append is about both. Who deletes one says so in its
entry, then in every container, and looks after that whether anything lies in it. Who makes something looks first what
was said in its container, then at the scope, and ends a deletion that was begun by changing the entry, on which its
last step depends; what it makes depends on nothing having been said in its container since. So one of the two fails,
whatever comes between, and a deletion that was interrupted holds nobody up.
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
from engine.state.tables import Entry
from pravega_spark.streams.model.names import container_of, validate_scope_name
from pravega_spark.streams.model.stream_record import FORMAT, REMEDY
from pravega_spark.streams.model.system_tables import DELETIONS, SCOPES

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.root import Root

_SCOPES = "scopes"
"""The key of the entry that says in a container that a scope is being deleted, whichever."""


def encode_scope(deleting: bool) -> bytes:
    """A scope's entry. deleting: whether somebody began to delete it."""
    return bytes(msgpack.packb([FORMAT, deleting]))


def decode_scope(data: bytes, scope: str) -> bool:
    """The inverse of `encode_scope`. Raises DataCorruption."""
    with understanding(f"scope {scope}", REMEDY):
        known, deleting = unpack(data)
        check_format(known, FORMAT)
        return bool(_FLAG(deleting))


_FLAG = reader(bool)


def unless_deleted(container: Container, state: State) -> CheckEntry:
    """The condition on which something is made in a scope that is looked at after `state`: no deletion began since."""
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

    def _entry(self) -> Entry | None:
        container = self._container
        entry = container.entries(SCOPES, [self.name], container.refresh())[self.name]
        return entry if entry is not None and entry.value is not None else None

    def exists(self) -> bool:
        """Whether it exists now."""
        return self._entry() is not None

    def create(self) -> bool:
        """Make it. False when it exists already."""
        try:
            self._container.commit([PutEntry(SCOPES, self.name, encode_scope(False), NOT_EXISTS)])
        except BadKeyVersion:
            return False
        return True

    def keep(self) -> bool:
        """Let it exist for what is going to be made in it: who began to delete it fails. False if it does not exist."""
        while True:
            entry = self._entry()
            if entry is None or entry.value is None:
                return False
            if not decode_scope(entry.value, self.name):
                return True
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, encode_scope(False), entry.version)])
                return True

    def delete(self, check_empty: Callable[[], None]) -> bool:
        """Delete it. False when it does not exist. check_empty: raises ScopeNotEmpty if anything lies in it now."""
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
        """The version of its entry that says that it is being deleted; None if it does not exist."""
        while True:
            entry = self._entry()
            if entry is None or entry.value is None:
                return None
            if decode_scope(entry.value, self.name):
                return entry.version
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(SCOPES, self.name, encode_scope(True), entry.version)])
