"""Where the state of a reader group is stored: one entry of a table, in the container of the group's name.

It is changed only with its version as condition, so every step is carried out on the newest state, and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from engine.containers.container import Container
from engine.errors import BadKeyVersion, OutcomeUnknown
from engine.root import Root
from engine.state.operations import PutEntry
from engine.state.state import NOT_EXISTS
from pravega_spark.client.groups.state import GroupState
from pravega_spark.errors import StreamError
from pravega_spark.streams.doubt import Doubt
from pravega_spark.streams.names import container_of

GROUPS = "_system/groups"
"""The table: `<scope>/<group>` -> the group's state."""

Step = Callable[[GroupState], GroupState]
"""What makes a state of one; it may be called again, on a newer one."""


class GroupNotFound(StreamError, ValueError):
    """The reader group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(f"Reader group does not exist: {group}. Create it first.")
        self.group = group


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
        container = self._container
        entry = container.entries(GROUPS, [self.key], container.refresh())[self.key]
        if entry is None or entry.value is None:
            return None, entry.version if entry is not None else NOT_EXISTS
        return GroupState.decode(entry.value, self.key), entry.version

    def state(self) -> GroupState:
        """The state as it is now. Raises GroupNotFound."""
        state = self.read()[0]
        if state is None:
            raise GroupNotFound(self.key)
        return state

    def create(self, state: GroupState) -> GroupState:
        """Store a first state, unless there is one. Returns the one that is there then."""
        doubt = self._doubt()
        while True:
            known = self.read()[0]
            if known is not None:
                return known
            self._put(PutEntry(GROUPS, self.key, state.encode(), NOT_EXISTS), doubt)

    def change(self, step: Step) -> GroupState:
        """Carry out a step on the state as it is; again if somebody was faster. Raises GroupNotFound, what `step` does.

        It may be carried out twice, when it is not known whether it was stored.
        """
        doubt = self._doubt()
        while True:
            known, version = self.read()
            if known is None:
                raise GroupNotFound(self.key)
            state = step(known)
            if state == known or self._put(PutEntry(GROUPS, self.key, state.encode(), version), doubt):
                return state

    def _put(self, entry: PutEntry, doubt: Doubt) -> bool:
        """Whether the state was stored; else somebody was faster, or nobody knows, and it is to be read again."""
        try:
            self._container.commit([entry])
            return True
        except BadKeyVersion:
            return False
        except OutcomeUnknown as error:
            doubt.again(error)
            return False

    def _doubt(self) -> Doubt:
        return Doubt(
            self._container,
            f"reader group {self.key}: it is unknown whether its state was changed",
            "Repeating the call is safe: every step is applied to the current state",
        )

    def delete(self) -> GroupState:
        """Remove the state. Returns what it was. Raises GroupNotFound."""
        while True:
            known, version = self.read()
            if known is None:
                raise GroupNotFound(self.key)
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(GROUPS, self.key, None, version)])
                return known

    @staticmethod
    def names(root: Root, scope: str) -> list[str]:
        """The names of the groups of a scope, sorted."""
        prefix, found = f"{scope}/", []
        for number in range(root.config.containers):
            container = root.container(number)
            container.refresh()
            found += [key.removeprefix(prefix) for key, _ in container.scan_entries(GROUPS, prefix)]
        return sorted(found)
