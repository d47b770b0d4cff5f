"""The scopes and streams of a root.

A scope is a table entry in the container of its name; a stream's record lies in the stream's container.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from engine.errors import DataCorruption, did_you_mean
from engine.root import Root
from pravega_spark.errors import ScopeNotEmpty, ScopeNotFound, StreamNotFound
from pravega_spark.streams.key_value_table import StoredTable, key_value_tables
from pravega_spark.streams.model.key_value_table import KeyValueTableConfiguration
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.system_tables import SCOPES, STREAMS
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.suggestions import likely_typo_of, probably_meant, similar_keys
from pravega_spark.streams.scopes import Scope
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from pravega_spark.streams.reading.readable import ReadableContainer

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Creation(enum.Enum):
    """Whether a scope or stream that does not exist is created. UNLESS_TYPO: not if its name is probably misspelled, as
    a similar one exists, or the same name of a stream in another scope."""

    NEVER = enum.auto()
    UNLESS_TYPO = enum.auto()
    ALWAYS = enum.auto()


class Catalog:
    """Scopes and streams of an open root.

    suggesting: whether errors about missing names suggest similar ones. leaving_out: containers that are not listed,
    as they cannot be opened.
    """

    def __init__(self, root: Root, *, suggesting: bool = False, leaving_out: Collection[int] = ()) -> None:
        self.root = root
        self._leaving_out = leaving_out
        self._suggesting = suggesting

    def scope_exists(self, scope: str) -> bool:
        """Whether the scope exists now."""
        return Scope(self.root, scope).exists()

    def check_scope(self, scope: str) -> None:
        """Raise ScopeNotFound unless the scope exists now."""
        if not self.scope_exists(scope):
            raise self.scope_not_found(scope)

    def keep_scope(self, scope: str) -> None:
        """Raise ScopeNotFound unless the scope exists, and abort its deletion, so that something can be created in
        it."""
        if not Scope(self.root, scope).keep():
            raise self.scope_not_found(scope)

    def create_scope(self, scope: str) -> bool:
        """Create a scope. False if it exists already."""
        return Scope(self.root, scope).create()

    def delete_scope(self, scope: str, groups: Callable[[], Sequence[str]] = tuple) -> bool:
        """Delete an empty scope. False if it does not exist. Raises ScopeNotEmpty.

        groups: returns the names of the reader groups in it now.
        """

        def check_empty() -> None:
            found, tables = groups(), key_value_tables(self.root, scope, ready=False)
            if found or tables or next(self.streams(scope), None) is not None:
                raise ScopeNotEmpty(scope, found, tables)

        return Scope(self.root, scope).delete(check_empty)

    def scopes(self) -> list[str]:
        """The names of all scopes, sorted."""
        return sorted(key for container in self._containers() for key in _keys(container, SCOPES))

    def streams(self, scope: str, *, refresh: bool = True) -> Iterator[str]:
        """The names of a scope's streams, in order within each container.

        `refresh=False`: by the state known to this process.
        """
        prefix = f"{scope}/"
        for container in self._containers():
            for key in sorted(_keys(container, STREAMS, prefix, refresh=refresh)):
                yield key.removeprefix(prefix)

    def query(
        self,
        scope: str,
        question: Callable[[Snapshot], T],
        unreadable: Callable[[str, DataCorruption], None] | None = None,
        tag: str | None = None,
    ) -> Iterator[T]:
        """The result of `question` for each stream of a scope, in the order of their names. Raises StorageError.

        Each container is refreshed once, at the beginning. unreadable: called with the name of each stream whose
        record is damaged; without it, the first such error is raised after all other streams. tag: only streams that
        have it.
        """
        problems: list[DataCorruption] = []
        for name in sorted(self.streams(scope)):
            stream = self.stream(scope, name)
            try:
                if tag is not None and tag not in stream.snapshot(refresh=False).record.tags:
                    continue
                found = stream.query(question, refresh=False)
            except StreamNotFound:
                continue  # deleted meanwhile
            except DataCorruption as error:
                problems.append(error)
                if unreadable is not None:
                    unreadable(name, error)
                continue
            yield found
        if problems and unreadable is None:
            raise problems[0]

    def _containers(self) -> Iterator[ReadableContainer]:
        numbers = (number for number in range(self.root.config.containers) if number not in self._leaving_out)
        return map(self.root.container, numbers)

    def stream(self, scope: str, name: str) -> Stream:
        """A stream by name, whether it exists or not. Raises ValueError for names that no stream can have."""
        return Stream(self.root, validate_scope_name(scope), validate_stream_name(name), self._suggesting)

    def key_value_table(self, scope: str, name: str) -> StoredTable:
        """A key-value table by name, whether it exists or not. Raises ValueError for names that no table can have."""
        return StoredTable(self.root, scope, name)

    def create_key_value_table(self, scope: str, name: str, configuration: KeyValueTableConfiguration) -> bool:
        """Create a key-value table. False if it exists already. Raises ScopeNotFound."""
        return self.key_value_table(scope, name).create(configuration, lambda: self.keep_scope(scope))

    def scope_not_found(self, scope: str) -> ScopeNotFound:
        """The error for a scope that does not exist."""
        similar = similar_keys(self.root, SCOPES, scope) if self._suggesting else ()
        return ScopeNotFound(scope, similar, read_only=self.root.read_only)

    def create_stream(
        self,
        scope: str,
        name: str,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: tuple[str, ...] = (),
    ) -> bool:
        """Create a stream. False if it exists already. Raises ScopeNotFound."""
        return self.stream(scope, name).create(scaling, retention, tags, lambda: self.keep_scope(scope))

    def ensure_stream(
        self,
        scope: str,
        name: str,
        *,
        create_scope: Creation,
        create_stream: Creation,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        level: int = logging.INFO,
    ) -> Stream:
        """The stream, created if it does not exist and that is allowed; a creation is logged as by `ensure_scope`.

        Raises ScopeNotFound, StreamNotFound.
        """
        stream = self.stream(scope, name)
        if stream.exists():
            return stream
        if create_stream is Creation.UNLESS_TYPO and (meant := probably_meant(self.root, STREAMS, stream.key)):
            raise StreamNotFound(stream.key, meant, read_only=self.root.read_only)
        if create_stream is not Creation.NEVER or create_scope is Creation.NEVER:
            self.ensure_scope(scope, create=create_scope, level=level)
        if create_stream is Creation.NEVER:
            stream.snapshot()  # raises StreamNotFound, unless another process has just created it
        elif stream.create(scaling, retention, (), lambda: self.keep_scope(scope)):
            self._log_created("stream", stream.key, STREAMS, level)
        return stream

    def ensure_scope(self, scope: str, *, create: Creation, level: int = logging.INFO) -> None:
        """Create a scope if it does not exist and that is allowed. Raises ScopeNotFound.

        The creation is logged at `level`: a warning lists similar names. It is always a warning if the name resembles
        another one closely.
        """
        if self.scope_exists(scope):
            return
        if create is Creation.NEVER or (create is Creation.UNLESS_TYPO and probably_meant(self.root, SCOPES, scope)):
            raise self.scope_not_found(scope)
        if self.create_scope(scope):
            self._log_created("scope", scope, SCOPES, level)

    def _log_created(self, what: str, key: str, table: str, level: int) -> None:
        find = similar_keys if level >= logging.WARNING else likely_typo_of
        near = find(self.root, table, key) if self._suggesting else ()
        advice = did_you_mean([each for each in near if each != key])
        level = max(level, logging.WARNING) if advice else level
        logger.log(level, "%s %s did not exist: it was created%s", what, key, f".{advice}" if advice else "")


def _keys(container: ReadableContainer, table: str, prefix: str = "", *, refresh: bool = True) -> Iterator[str]:
    """The keys of a table. refresh: bring the state up to date first."""
    if refresh:
        container.refresh()
    return (key for key, _ in container.scan_entries(table, prefix))
