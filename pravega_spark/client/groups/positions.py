"""The positions of reader groups, in a root of this project or in the storage of a Pravega."""

from __future__ import annotations

from chunkstore.similarity import suggest
from engine.root import Root
from pravega_spark.client.groups.entry import GroupEntry, GroupNotFound
from pravega_spark.client.groups.state import GroupState
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.system_tables import SCOPES
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.reading.suggestions import similar_keys


def group_names(root: Root, scope: str) -> list[str]:
    """The names of the groups of a scope, sorted. In the storage of a Pravega: groups whose state was flushed."""
    if not isinstance(root, ForeignRoot):
        return GroupEntry.names(root, scope)
    try:
        return root.reader_groups(scope)
    except ScopeNotFound:
        return []


def group_state(root: Root, scope: str, group: str) -> GroupState | None:
    """The state of a group; None in the storage of a Pravega, of which only positions are read. Raises
    GroupNotFound."""
    return None if isinstance(root, ForeignRoot) else GroupEntry(root, f"{scope}/{group}").state()


def group_cuts(root: Root, scope: str, group: str) -> list[StreamCut]:
    """A cut of each of a group's streams, up to which it has read them. Raises GroupNotFound."""
    if not isinstance(root, ForeignRoot):
        return list(GroupEntry(root, f"{scope}/{group}").state().cuts())
    try:
        return root.reader_group_cuts(scope, group)
    except ScopeNotFound:
        raise GroupNotFound(f"{scope}/{group}", similar_keys(root, SCOPES, scope), without_scope=True) from None
    except StreamNotFound:
        there = group_names(root, scope)
        similar = [f"{scope}/{name}" for name in suggest(group, there)]
        raise GroupNotFound(f"{scope}/{group}", similar, there) from None


def group_positions(root: Root, scope: str, stream: str) -> dict[str, StreamCut]:
    """Where the groups of a scope are in a stream of it, by their names; damaged groups are left out.

    Reads the groups' table once, however many groups there are. Empty in the storage of a Pravega.
    """
    if isinstance(root, ForeignRoot):
        return {}
    key, states = f"{scope}/{stream}", GroupEntry.states(root, scope)
    return {name: state.cut(key) for name, state in states.items() if key in state.streams}
