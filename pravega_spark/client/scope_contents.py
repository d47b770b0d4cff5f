"""The contents of a scope: its streams, reader groups and key-value tables, and deleting a scope with all of them
(Pravega: StreamManager.deleteScopeRecursive, DeleteScopeTask).

Keeps that a deletion that was interrupted anywhere is completed by repeating it: the scope itself goes last.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from engine.root import Root
from pravega_spark.client.groups.entry import GroupNotFound
from pravega_spark.client.groups.opening import delete_group
from pravega_spark.client.groups.positions import group_names
from pravega_spark.errors import ScopeNotEmpty, StreamNotFound, StreamNotSealed
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.key_value_table import key_value_tables
from pravega_spark.streams.maintenance.subscribers import unsubscribe
from pravega_spark.streams.model.system_tables import SUBSCRIBERS
from pravega_spark.streams.stream import Stream

_ATTEMPTS = 10
"""How often a scope is emptied while other processes create something in it."""


class ScopeContents(NamedTuple):
    """The names of what a scope has, sorted."""

    streams: tuple[str, ...]
    reader_groups: tuple[str, ...]
    key_value_tables: tuple[str, ...]

    @classmethod
    def of(cls, root: Root, scope: str) -> ScopeContents:
        """What the scope has now; nothing if it does not exist."""
        return cls(
            tuple(sorted(Catalog(root).streams(scope))),
            tuple(group_names(root, scope)),
            tuple(key_value_tables(root, scope, ready=False)),
        )

    def check_empty(self, scope: str) -> None:
        """Raise ScopeNotEmpty if there is anything."""
        if any(self):
            raise ScopeNotEmpty(scope, self.reader_groups, self.key_value_tables)


def delete_scope(catalog: Catalog, scope: str) -> bool:
    """Delete an empty scope. False if it does not exist. Raises ScopeNotEmpty."""
    return catalog.delete_scope(scope, lambda: group_names(catalog.root, scope))


def delete_scope_with_contents(catalog: Catalog, scope: str) -> bool:
    """Delete a scope with its streams, sealed or not, its reader groups and its key-value tables. False if it does not
    exist. Raises ScopeNotEmpty if other processes create something in it again and again."""
    for _ in range(_ATTEMPTS):
        if not catalog.scope_exists(scope):
            return False
        _empty(catalog, scope)
        with suppress(ScopeNotEmpty):
            return delete_scope(catalog, scope)
    return delete_scope(catalog, scope)


def _empty(catalog: Catalog, scope: str) -> None:
    """Delete what the scope has now. Reader groups go first: they hold back the retention of streams, also of other
    scopes."""
    contents = ScopeContents.of(catalog.root, scope)
    for name in contents.reader_groups:
        with suppress(GroupNotFound):  # another process was faster, here and below
            delete_group(catalog.root, scope, name)
    _unsubscribe_groups(catalog.root, scope)
    for name in contents.key_value_tables:
        catalog.key_value_table(scope, name).delete()
    for name in contents.streams:
        stream = catalog.stream(scope, name)
        with suppress(StreamNotFound, StreamNotSealed):  # or it was created again: the next attempt deletes it
            if stream.unreadable() is None:
                stream.seal()
            stream.delete()


def _unsubscribe_groups(root: Root, scope: str) -> None:
    """Remove what groups of the scope have left in streams of other scopes, if a deletion of them was interrupted."""
    for container in (root.container(number) for number in range(root.config.containers)):
        container.refresh()
        for key, _ in list(container.scan_entries(SUBSCRIBERS)):
            where, stream, name = key.split("/", 2)
            if where != scope and name.startswith(f"{scope}/"):
                unsubscribe(Stream(root, where, stream), name)
