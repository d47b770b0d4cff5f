"""The stored state of a reader group: one table entry, in the container of the group's name.

Each update is conditional on the entry's version, so every step applies to the newest state and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from chunkstore import StorageError
from chunkstore.similarity import by_similarity
from engine.containers.container import Container
from engine.errors import BadKeyVersion, DataCorruption, EngineError, OutcomeUnknown, UnknownFormat, did_you_mean
from engine.root import Root
from engine.state.operations import Operation, PutEntry
from engine.state.state import NOT_EXISTS
from engine.state.tables import Entry
from pravega_spark.client.groups.state import GroupState
from pravega_spark.errors import ScopeNotFound, StreamError, missing
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.model.system_tables import SCOPES
from pravega_spark.streams.reading.suggestions import has_key, probably_meant, similar_keys
from pravega_spark.streams.scopes import Scope, unless_deleted
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry

GROUPS = "_system/groups"
"""The table: `<scope>/<group>` -> the group's state."""

_MOST_TOLD = 10  # groups of a scope

Step = Callable[[GroupState], GroupState]
"""A function from one state to the next. It may be called again, with a newer state."""


class GroupNotFound(StreamError, ValueError):
    """The reader group does not exist. similar: groups with similar names, as "scope/group"; there: the groups of its
    scope; without_scope: as of StreamNotFound."""

    def __init__(
        self, group: str, similar: Sequence[str] = (), there: Sequence[str] = (), *, without_scope: bool = False
    ) -> None:
        scope = group.partition("/")[0]
        more = f" and {len(there) - _MOST_TOLD} more" if len(there) > _MOST_TOLD else ""
        told = f" Scope {scope} has {', '.join(there[:_MOST_TOLD])}{more}." if there else ""
        missing_group = missing("Reader group", group, without_scope=without_scope)
        super().__init__(
            f"{missing_group}.{did_you_mean(similar)}{told} Programs create groups, with "
            "StreamManager.create_reader_group."
        )
        self.group = group
        self.similar = tuple(similar)
        self.there = tuple(there)
        self.without_scope = without_scope


class GroupConfigMismatch(StreamError):
    """The reader group exists, with another configuration (Pravega: ReaderGroupConfigRejectedException).

    group: scope/group. configuration: the one that it has, in words.
    """

    def __init__(self, group: str, configuration: str) -> None:
        super().__init__(
            f"reader group {group} exists already, with {configuration}. Use the same, give it the new configuration "
            "by reset_reader_group, or delete the group first"
        )
        self.group = group
        self.configuration = configuration


class GroupEntry:
    """The entry that holds a group's state."""

    def __init__(self, root: Root, key: str) -> None:
        self._root = root
        self.key = key
        self._number = container_of(key, root.config.containers)

    @property
    def _container(self) -> Container:
        return self._root.container(self._number)

    def read(self) -> tuple[GroupState | None, int]:
        """The state as it is now, None if there is none, and the entry's version."""
        entry = self._entry()
        if entry is None or entry.value is None:
            return None, entry.version if entry is not None else NOT_EXISTS
        return GroupState.decode(entry.value, self.key), entry.version

    def state(self) -> GroupState:
        """The state as it is now. Raises GroupNotFound."""
        state = self.read()[0]
        if state is None:
            raise self._not_found()
        return state

    def _not_found(self) -> GroupNotFound:
        """The error for a group that does not exist, with the existing groups, the most similar first."""
        scope = self.key.partition("/")[0]
        if not has_key(self._root, SCOPES, scope):
            return GroupNotFound(self.key, similar_keys(self._root, SCOPES, scope), without_scope=True)
        similar = similar_keys(self._root, GROUPS, self.key) or probably_meant(self._root, GROUPS, self.key)
        there: list[str] = []
        with suppress(EngineError, StorageError):  # the error is raised without them
            there = self.names(self._root, scope)
        name = self.key.partition("/")[2]
        return GroupNotFound(self.key, similar, by_similarity(name, there))

    def create(self, state: GroupState) -> GroupState:
        """Store a first state, unless there is one. Returns the stored one. Raises ScopeNotFound."""
        retry, scope = self._retry(), Scope(self._root, self.key.partition("/")[0])
        while True:
            condition = unless_deleted(self._container, self._container.refresh())
            known = self.read()[0]
            if known is not None:
                return known
            if not scope.keep():
                raise ScopeNotFound(
                    scope.name, similar_keys(self._root, SCOPES, scope.name), read_only=self._root.read_only
                )
            self._put(retry, condition, PutEntry(GROUPS, self.key, state.encode(), NOT_EXISTS))

    def change(self, step: Step) -> GroupState:
        """Apply a step to the current state, and retry if another process changed it. Raises GroupNotFound, and what
        `step` raises.

        The step may be applied twice if the outcome of storing it was unknown.
        """
        retry = self._retry()
        while True:
            known, version = self.read()
            if known is None:
                raise self._not_found()
            state = step(known)
            if state == known or self._put(retry, PutEntry(GROUPS, self.key, state.encode(), version)):
                return state

    def _put(self, retry: OutcomeRetry, *operations: Operation) -> bool:
        """Whether the state was stored. False if another process was faster, or the outcome is unknown."""
        try:
            self._container.commit(list(operations))
            return True
        except BadKeyVersion:
            return False
        except OutcomeUnknown as error:
            retry.wait_or_raise(error)
            return False

    def _retry(self) -> OutcomeRetry:
        return OutcomeRetry(
            self._container,
            f"reader group {self.key}: it is unknown whether its state was changed",
            "Repeating the call is safe: every step is applied to the current state",
        )

    def delete(self) -> GroupState | None:
        """Remove the state. Returns the last one, or None if it could not be decoded. Raises GroupNotFound;
        UnknownFormat if a newer version wrote it."""
        while True:
            entry = self._entry()
            if entry is None or entry.value is None:
                raise self._not_found()
            known, version = self._understood(entry.value), entry.version
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(GROUPS, self.key, None, version)])
                return known

    def _understood(self, value: bytes) -> GroupState | None:
        try:
            return GroupState.decode(value, self.key)
        except UnknownFormat:
            raise
        except DataCorruption:
            return None

    def _entry(self) -> Entry | None:
        container = self._container
        return container.entries(GROUPS, [self.key], container.refresh())[self.key]

    @classmethod
    def names(cls, root: Root, scope: str) -> list[str]:
        """The names of the groups of a scope, sorted."""
        return sorted(name for name, _ in cls._entries(root, scope))

    @classmethod
    def states(cls, root: Root, scope: str) -> dict[str, GroupState]:
        """The states of the groups of a scope, by their names in order; damaged ones are left out."""
        found = {}
        for name, entry in sorted(cls._entries(root, scope)):
            with suppress(DataCorruption):
                if entry.value is not None:
                    found[name] = GroupState.decode(entry.value, f"{scope}/{name}")
        return found

    @staticmethod
    def _entries(root: Root, scope: str) -> Iterator[tuple[str, Entry]]:
        prefix = f"{scope}/"
        for number in range(root.config.containers):
            container = root.container(number)
            container.refresh()
            for key, entry in container.scan_entries(GROUPS, prefix):
                yield key.removeprefix(prefix), entry
