"""Similar names, for suggestions in errors and warnings.

Used only for messages, so errors while searching are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from chunkstore import StorageError
from chunkstore.similarity import by_similarity, suggest
from engine.errors import EngineError
from engine.root import Root
from engine.root_placement import is_misspelling
from pravega_spark.streams.model.names import container_of

MOST_NAMES = 10_000
"""Maximum number of names that are compared."""

MOST_SUGGESTED = 3
"""Maximum number of names that an error suggests."""

MOST_CONTAINERS = 16
"""In a root with more containers, new names are not compared: each container may have to be opened."""


def similar_keys(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table, in all containers, that are most similar to `key`: at most three, the most similar first."""
    return similar_names(_keys(root, table), key)


def similar_names(names: Iterable[str], key: str) -> tuple[str, ...]:
    """The names that are most similar to `key`: at most three, the most similar first; none if they cannot be read.

    Of "scope/stream" one part may be mistyped, the stream's name rather than the scope's.
    """
    try:
        keys = list(islice(names, MOST_NAMES))
    except (EngineError, StorageError):
        return ()
    scope, slash, name = key.rpartition("/")
    beside = [each.rpartition("/")[2] for each in keys if each.rpartition("/")[0] == scope and each != key]
    found = [f"{scope}{slash}{each}" for each in suggest(name, beside)]
    if not found and slash:
        scopes = [each.rpartition("/")[0] for each in keys if each.rpartition("/")[2] == name]
        found = [f"{each}/{name}" for each in suggest(scope, scopes)]
    return tuple(found)


def has_key(root: Root, table: str, key: str) -> bool:
    """Whether a table has the key, in the container of its name. True if that cannot be determined."""
    try:
        container = root.container(container_of(key, root.config.containers))
        return container.entries(table, [key], container.refresh())[key] is not None
    except (EngineError, StorageError):
        return True


def likely_typo_of(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table that a new key may be a misspelling of: similar names of the same scope that do not differ
    by a number only."""
    if root.config.containers > MOST_CONTAINERS:
        return ()
    return tuple(each for each in similar_keys(root, table, key) if _is_typo(each, key))


def probably_meant(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table that a reader of a key that does not exist probably means: those of the same scope that the
    key may be a misspelling of, and else the same name in other scopes. None if they cannot be read."""
    _, slash, name = key.rpartition("/")
    try:
        keys = [each for each in islice(_keys(root, table), MOST_NAMES) if each != key]
    except (EngineError, StorageError):
        return ()
    typos = [each for each in similar_names(keys, key) if _is_typo(each, key)]
    elsewhere = [each for each in keys if slash and each.endswith(f"/{name}")]
    return tuple(typos or by_similarity(key, elsewhere)[:MOST_SUGGESTED])


def _is_typo(other: str, key: str) -> bool:
    """Whether a key may be a misspelling of another one of its scope."""
    scope, _, name = key.rpartition("/")
    other_scope, _, other_name = other.rpartition("/")
    return other_scope == scope and is_misspelling(other_name, name)


def _keys(root: Root, table: str) -> Iterator[str]:
    for number in range(root.config.containers):
        container = root.container(number)
        container.refresh()
        yield from (key for key, _ in container.scan_entries(table))
