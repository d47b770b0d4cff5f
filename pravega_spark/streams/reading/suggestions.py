"""Names like one that is not there: what its user may have meant.

Only for messages: of an error that is raised anyway, or of a name that is new. So what keeps us from looking is no
error of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice

from chunkstore import StorageError
from engine.errors import EngineError
from engine.places import is_slip
from engine.root import Root
from pravega_spark.streams.model.names import container_of

MOST_NAMES = 10_000
"""Names that are compared."""

MOST_CONTAINERS = 16
"""A new name is not compared in a root that has more of them: each may have to be opened."""


def similar_keys(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table, in all containers, that are most like `key`: three at most, the most similar first."""
    return similar_names(_keys(root, table), key)


def similar_names(names: Iterable[str], key: str) -> tuple[str, ...]:
    """Those of some names that are most like `key`: three at most, the most similar first; none if they cannot be read.

    Of "scope/stream" one part may be wrong, the stream's name rather than the scope's.
    """
    try:
        keys = list(islice(names, MOST_NAMES))
    except (EngineError, StorageError):
        return ()
    scope, slash, name = key.rpartition("/")
    beside = [each.rpartition("/")[2] for each in keys if each.rpartition("/")[0] == scope and each != key]
    found = [f"{scope}{slash}{each}" for each in difflib.get_close_matches(name, beside)]
    if not found and slash:
        scopes = [each.rpartition("/")[0] for each in keys if each.rpartition("/")[2] == name]
        found = [f"{each}/{name}" for each in difflib.get_close_matches(scope, scopes)]
    return tuple(found)


def has_key(root: Root, table: str, key: str) -> bool:
    """Whether a table has the key, which lies in the container of its name; also where it cannot be found out."""
    try:
        container = root.container(container_of(key, root.config.containers))
        return container.entries(table, [key], container.refresh())[key] is not None
    except (EngineError, StorageError):
        return True


def likely_typo_of(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table that a new one may be meant to be: those beside it that differ by a slip, not by a number."""
    if root.config.containers > MOST_CONTAINERS:
        return ()
    name = key.rpartition("/")[2]
    found = [each for each in similar_keys(root, table, key) if each.rpartition("/")[0] == key.rpartition("/")[0]]
    return tuple(each for each in found if is_slip(each.rpartition("/")[2], name))


def _keys(root: Root, table: str) -> Iterator[str]:
    for number in range(root.config.containers):
        container = root.container(number)
        container.refresh()
        yield from (key for key, _ in container.scan_entries(table))
