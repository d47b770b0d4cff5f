"""To whom chunks belong, by what they are called: the evidence that a clean-up needs before it lets one go (G1).

A name that looks like a chunk's proves nothing: a sync tool makes copies of folders, users have files of their own.
Only below a stream that there is, or was, nobody writes but us.
"""

from __future__ import annotations

import re

from engine.root import Root
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.model.system_tables import NUMBERS, STREAMS

_SEGMENT = re.compile(r"([^/]+/[^/]+)/[0-9]{1,10}(?:[.#$][^/]*)?")


class ChunkOwnership:
    """Tells to which container of a root a segment belongs, by its name or by what it is called in LTS; None for
    what belongs to no stream that is known. Streams that were deleted are known by the numbers that they keep.

    Each stream is looked up once, in the state that the container has here: a stream that is newer has nothing to let
    go.
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
