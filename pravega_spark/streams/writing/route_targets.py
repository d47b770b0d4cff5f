"""The segments to which a write routes its rows: by their routing keys, as the streams were when it was planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pravega_spark.streams.model.key_columns import KeyHashes
from pravega_spark.streams.model.routing import segment_for

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.streams.model.stream_record import Routing


class RouteTarget(NamedTuple):
    """A segment to which rows are routed, its stream, and the number of the stream's container."""

    stream: str
    segment_id: int
    container: int


class StreamTargets(NamedTuple):
    """A stream to which rows are routed: the index of its first target, and the upper bounds of its segments' keys."""

    first: int
    bounds: Sequence[float]


class RouteTargets:
    """The targets of a write, and the rows' way to those of one stream.

    Attributes: targets: those of all streams so far, with the targets of one stream side by side. planned: the routing
    of each stream.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng()
        self._keys = KeyHashes()
        self._streams: dict[str, StreamTargets] = {}
        self.targets: list[RouteTarget] = []
        self.planned: dict[str, Routing] = {}

    def add(self, stream: str, planned: Routing, container: int) -> StreamTargets:
        """Add the segments of a stream."""
        added = StreamTargets(len(self.targets), [segment.high for segment in planned.segments])
        self.targets += [RouteTarget(stream, segment.id, container) for segment in planned.segments]
        self.planned[stream] = planned
        self._streams[stream] = added
        return added

    def known(self, stream: str) -> StreamTargets | None:
        """The targets of a stream, if it was added."""
        return self._streams.get(stream)

    def spans(self) -> list[tuple[str, int, int]]:
        """Each stream, with the index of its first target and the index after its last."""
        return [(name, each.first, each.first + len(each.bounds)) for name, each in self._streams.items()]

    def fractions(self, keys: pa.Array | None, rows: int) -> np.ndarray:
        """The hash of each row's key; NaN for rows without one."""
        return np.full(rows, np.nan) if keys is None else self._keys.find(keys)

    def place(self, fractions: np.ndarray, target: StreamTargets) -> np.ndarray:
        """The index of each row's segment in its stream; rows without a key get any."""
        return segment_for(fractions, target.bounds, self._random)

    def find_in_one(self, keys: pa.Array | None, rows: int) -> np.ndarray | None:
        """The index of each row's target, if there is one stream; None if it is 0 for all rows."""
        (target,) = self._streams.values()
        return self.place(self.fractions(keys, rows), target) if len(target.bounds) > 1 else None
