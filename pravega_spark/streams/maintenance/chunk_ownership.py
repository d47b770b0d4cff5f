"""Ownership of chunks by their names: the evidence that garbage collection needs to delete an orphan (G1).

A name that looks like a chunk's is not enough: a sync tool copies folders, and users have their own files. Only this
project writes below a stream that exists, or existed.
"""

from __future__ import annotations

import re

from engine.root import Root
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.model.system_tables import NUMBERS, STREAMS

_SEGMENT = re.compile(r"([^/]+/[^/]+)/[0-9]{1,10}(?:[.#$][^/]*)?")


class ChunkOwnership:
    """The container that owns a segment, by its name or its name in LTS; None if it belongs to no known stream.
    Deleted streams are known by their next segment numbers.

    Each stream is looked up once, in the container's state known here: a newer stream has no orphans.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, bool] = {}

    def __call__(self, segment: str) -> int | None:
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            return None
        number = container_of(match[1], self._root.config.containers)
        if match[1] not in self._known:
            self._known[match[1]] = self._is_known(match[1], number)
        return number if self._known[match[1]] else None

    def _is_known(self, stream: str, number: int) -> bool:
        container = self._root.container(number)
        state = container.state
        return any(container.entries(table, [stream], state)[stream] is not None for table in (STREAMS, NUMBERS))
