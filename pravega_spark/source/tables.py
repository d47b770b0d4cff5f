"""The metadata tables of option `metadata`: what is known of a scope's streams, as DataFrames of one partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.opening import look
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.names import segment_epoch

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMAS = {
    "Streams": "scope_name string, stream_name string",
    "StreamInfo": "head_stream_cut string, tail_stream_cut string",
    "Segments": (
        "segment_id bigint, epoch int, key_start double, key_end double, start_offset bigint, length bigint, "
        "events bigint, sealed boolean"
    ),
}


def table_schema(table: str) -> str:
    """The schema of a metadata table. ValueError for a table that this version does not have."""
    if table not in _SCHEMAS:
        raise ValueError(f"Option 'metadata': table {table!r} is not there yet; choose one of {', '.join(_SCHEMAS)}.")
    return _SCHEMAS[table]


class TableReader(DataSourceReader):
    """Reads a metadata table, computed when it is read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        return {"Streams": self._streams, "StreamInfo": self._stream_info, "Segments": self._segments}[
            str(self._options.metadata)
        ]()

    def _streams(self) -> Iterator[tuple[Any, ...]]:
        look(self._options)
        root = open_root(self._options.root, self._options.storage, self._options.wal)
        for name in sorted(Catalog(root).streams(self._options.scope)):
            yield self._options.scope, name

    def _stream_info(self) -> Iterator[tuple[Any, ...]]:
        snapshot = look(self._options)
        yield snapshot.head_cut().as_text(), snapshot.tail_cut().as_text()

    def _segments(self) -> Iterator[tuple[Any, ...]]:
        snapshot = look(self._options)
        snapshot.load(snapshot.record.segment_ids())
        for number, low, high in snapshot.record.history.segments.values():
            segment = snapshot.segment(number)
            events = snapshot.count_before(number, segment.length)
            yield number, segment_epoch(number), low, high, segment.start_offset, segment.length, events, segment.sealed
