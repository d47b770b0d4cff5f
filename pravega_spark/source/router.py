"""Routes a task's rows: each to a stream, and by its routing key to one of the stream's segments.

Either all rows go to one stream, by the segments that the plan has for it, or each row names its stream. A task looks
up each named stream once, and creates it if that is allowed. If a stream is scaled meanwhile, its commit maps the rows
to the new segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pravega_spark.streams.model.arrays import numpy_values
from pravega_spark.streams.writing.route_targets import RouteTargets, StreamTargets

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.stream import Stream


class Router(RouteTargets):
    """Finds the target of each row.

    planned: the routing of the one stream to which all rows go; None if rows name their streams. refuse_sealed: called
    for a sealed stream that rows name; raises StreamSealed unless they may be written to it.
    """

    def __init__(
        self, options: SourceOptions, planned: Routing | None, refuse_sealed: Callable[[Stream], None] | None = None
    ) -> None:
        super().__init__()
        self._options = options
        self._refuse_sealed = refuse_sealed
        self._by_row = planned is None
        self._refreshed: set[int] = set()
        if planned is not None:
            self.add(options.stream, planned, 0)

    def find(self, batch: pa.RecordBatch) -> np.ndarray | None:
        """The index of each row's target in `targets`; None if it is 0 for all rows.

        Raises ValueError for rows that name no stream, ScopeNotFound, StreamNotFound, StreamSealed.
        """
        if self._by_row:
            return self._find_by_name(batch)
        return self.find_in_one(_keys_of(batch), batch.num_rows)

    def _find_by_name(self, batch: pa.RecordBatch) -> np.ndarray:
        column = batch.column("stream")
        if column.null_count:
            raise ValueError(
                "Column 'stream' is null in a row, but it names the stream to which the row is written: give it a "
                "name, filter out such rows, or set option 'stream', which writes all rows to one stream."
            )
        encoded = column.dictionary_encode()
        numbers = numpy_values(encoded.indices)
        targets = [self._targets_of(name) for name in encoded.dictionary.to_pylist()]
        found: np.ndarray = np.array([target.first for target in targets], np.int64)[numbers]
        split = [number for number, target in enumerate(targets) if len(target.bounds) > 1]
        if split:
            fractions = self.fractions(_keys_of(batch), batch.num_rows)
            order = np.argsort(numbers, kind="stable")
            ends = np.cumsum(np.bincount(numbers, minlength=len(targets)))
            for number in split:
                rows = order[ends[number - 1] if number else 0 : ends[number]]
                found[rows] += self.place(fractions[rows], targets[number])
        return found

    def _targets_of(self, name: str) -> StreamTargets:
        known = self.known(name)
        if known is not None:
            return known
        from pravega_spark.source.opening import open_stream

        try:
            stream = open_stream(replace(self._options, stream=name), "write")
        except ValueError as error:
            raise ValueError(f"Column 'stream': {error}") from None
        if stream.number not in self._refreshed:  # once for a task: a reused worker may have an old state
            stream.container.refresh()
            self._refreshed.add(stream.number)
        record = stream.query(lambda snapshot: snapshot.record, refresh=False)
        if record.sealed and self._refuse_sealed is not None:
            self._refuse_sealed(stream)
        return self.add(name, record.routing, stream.number)


def _keys_of(batch: pa.RecordBatch) -> pa.Array | None:
    return batch.column("routing_key") if "routing_key" in batch.schema.names else None
