"""Names like one that is not there: what its user may have meant.

Only for the message of an error that is raised anyway, so what keeps us from looking is no error of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice

from chunkstore import StorageError
from engine.errors import EngineError
from engine.root import Root

MOST_NAMES = 10_000
"""Names that are compared."""


def similar_keys(root: Root, table: str, key: str) -> tuple[str, ...]:
    """The keys of a table, in all containers, that are most like `key`: three at most, the most similar first.

    Of "scope/stream" one part may be wrong, the stream's name rather than the scope's.
    """
    try:
        keys = list(islice(_keys(root, table), MOST_NAMES))
    except (EngineError, StorageError):
        return ()
    scope, slash, name = key.rpartition("/")
    names = [each.rpartition("/")[2] for each in keys if each.rpartition("/")[0] == scope]
    found = [f"{scope}{slash}{each}" for each in difflib.get_close_matches(name, names)]
    if not found and slash:
        scopes = [each.rpartition("/")[0] for each in keys if each.rpartition("/")[2] == name]
        found = [f"{each}/{name}" for each in difflib.get_close_matches(scope, scopes)]
    return tuple(found)


def _keys(root: Root, table: str) -> Iterator[str]:
    for number in range(root.config.containers):
        container = root.container(number)
        container.refresh()
        yield from (key for key, _ in container.scan_entries(table))
