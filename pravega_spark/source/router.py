"""Where a task's rows go: to which stream, and by their routing keys to which of its segments.

All rows go to one stream, by what was planned for it, or each to the stream that it names. Of those a task looks up
each once, and makes it if that is allowed; a stream that is scaled meanwhile takes what was routed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pravega_spark.streams.model.arrays import numpy_values
from pravega_spark.streams.model.key_columns import KeyHashes
from pravega_spark.streams.model.routing import segment_for

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.stream import Stream


class Place(NamedTuple):
    """A segment that rows go to, its stream, and the number of the container that holds that."""

    stream: str
    segment_id: int
    container: int


class _Target(NamedTuple):
    """A stream that rows go to: its first place, and the upper bounds of its segments' keys."""

    first: int
    bounds: Sequence[float]


class Router:
    """Finds the places of rows. planned: of the one stream that all of them go to; None: rows name theirs.
    refuse_sealed: is asked of a sealed one that they name, and raises StreamSealed if nothing may be written to it.

    places: those of all streams so far; those of one are neighbours. planned: by what each stream's rows were routed.
    """

    def __init__(
        self, options: SourceOptions, planned: Routing | None, refuse_sealed: Callable[[Stream], None] | None = None
    ) -> None:
        self._options = options
        self._refuse_sealed = refuse_sealed
        self._random = np.random.default_rng()
        self._keys = KeyHashes()
        self._targets: dict[str, _Target] = {}
        self._by_row = planned is None
        self._looked: set[int] = set()
        self.places: list[Place] = []
        self.planned: dict[str, Routing] = {}
        if planned is not None:
            self._take(options.stream, planned, 0)

    def _take(self, stream: str, planned: Routing, container: int) -> _Target:
        target = _Target(len(self.places), [segment.high for segment in planned.segments])
        self.places += [Place(stream, segment.id, container) for segment in planned.segments]
        self.planned[stream] = planned
        self._targets[stream] = target
        return target

    def find(self, batch: pa.RecordBatch) -> np.ndarray | None:
        """The number of each row's place among `places`; None: that of all is the first.

        Raises ValueError for rows that name no stream, ScopeNotFound, StreamNotFound, StreamSealed.
        """
        if self._by_row:
            return self._of_named(batch)
        (target,) = self._targets.values()
        if len(target.bounds) == 1:
            return None
        return segment_for(self._fractions(batch), target.bounds, self._random)

    def spans(self) -> list[tuple[str, int, int]]:
        """The streams, and the number of the first place of each and of that behind its last."""
        return [(name, each.first, each.first + len(each.bounds)) for name, each in self._targets.items()]

    def _fractions(self, batch: pa.RecordBatch) -> np.ndarray:
        if "routing_key" in batch.schema.names:
            return self._keys.find(batch.column("routing_key"))
        return np.full(batch.num_rows, np.nan)

    def _of_named(self, batch: pa.RecordBatch) -> np.ndarray:
        column = batch.column("stream")
        if column.null_count:
            raise ValueError(
                "Column 'stream' is null in a row, but it names the stream that the row goes to: give it a name, filter"
                " such rows out, or set option 'stream', and all rows go there."
            )
        encoded = column.dictionary_encode()
        numbers = numpy_values(encoded.indices)
        targets = [self._target(name) for name in encoded.dictionary.to_pylist()]
        places: np.ndarray = np.array([target.first for target in targets], np.int64)[numbers]
        split = [number for number, target in enumerate(targets) if len(target.bounds) > 1]
        if split:
            fractions = self._fractions(batch)
            order = np.argsort(numbers, kind="stable")
            ends = np.cumsum(np.bincount(numbers, minlength=len(targets)))
            for number in split:
                rows = order[ends[number - 1] if number else 0 : ends[number]]
                places[rows] += segment_for(fractions[rows], targets[number].bounds, self._random)
        return places

    def _target(self, name: str) -> _Target:
        found = self._targets.get(name)
        if found is not None:
            return found
        from pravega_spark.source.opening import open_stream

        try:
            stream = open_stream(replace(self._options, stream=name), "write")
        except ValueError as error:
            raise ValueError(f"Column 'stream': {error}") from None
        if stream.number not in self._looked:  # once for a task: what a worker that is used again knows may be old
            stream.container.refresh()
            self._looked.add(stream.number)
        record = stream.query(lambda snapshot: snapshot.record, refresh=False)
        if record.sealed and self._refuse_sealed is not None:
            self._refuse_sealed(stream)
        return self._take(name, record.routing, stream.number)
