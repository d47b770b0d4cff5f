"""States for tests of StateSynchronizer: a text that updates replace, and a set."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pravega_spark import Revision, Serializer, StateSynchronizer, StreamManager


@dataclass(frozen=True)
class Text:
    """A state with one text."""

    revision: Revision
    value: str


@dataclass(frozen=True)
class SetText:
    """Replaces the text; also an initial update."""

    value: str

    def create(self, scoped_stream_name: str, revision: Revision) -> Text:
        assert scoped_stream_name == f"{revision.scope}/{revision.stream}"
        return Text(revision, self.value)

    def apply_to(self, old_state: Text, new_revision: Revision) -> Text:
        return replace(old_state, revision=new_revision, value=self.value)


TEXTS = Serializer(lambda update: update.value.encode(), lambda data: SetText(data.decode()))


def text_of(manager: StreamManager, stream: str = "one") -> StateSynchronizer[Text]:
    """A synchronizer of a text."""
    return manager.create_state_synchronizer("sc", stream, TEXTS, TEXTS)


@dataclass(frozen=True)
class Members:
    """A state with a set."""

    revision: Revision
    values: frozenset[str]


@dataclass(frozen=True)
class Begin:
    """The initial update: a whole set."""

    values: frozenset[str] = frozenset()

    def create(self, scoped_stream_name: str, revision: Revision) -> Members:
        return Members(revision, self.values)


@dataclass(frozen=True)
class Change:
    """Adds and removes members."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    def apply_to(self, old_state: Members, new_revision: Revision) -> Members:
        return Members(new_revision, (old_state.values | self.added) - self.removed)


CHANGES = Serializer(
    lambda update: json.dumps([sorted(update.added), sorted(update.removed)]).encode(),
    lambda data: Change(*map(frozenset, json.loads(data))),
)
BEGINNINGS = Serializer(
    lambda update: json.dumps(sorted(update.values)).encode(), lambda data: Begin(frozenset(json.loads(data)))
)


def set_of(manager: StreamManager, stream: str = "one") -> StateSynchronizer[Members]:
    """A synchronizer of a set."""
    return manager.create_state_synchronizer("sc", stream, CHANGES, BEGINNINGS)


def add(members: StateSynchronizer[Members], *names: str) -> int:
    """Add members; how often the change was tried."""
    tries: list[int] = []

    def generate(state: Members, updates: list[Change]) -> None:
        tries.append(1)
        updates += [Change(frozenset({name})) for name in names if name not in state.values]

    members.update_state(generate)  # type: ignore[arg-type]
    return len(tries)
