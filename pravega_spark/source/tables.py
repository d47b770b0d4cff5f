"""The metadata tables of option `metadata`: streams and their root as DataFrames of one partition.

Each table is computed when it is read, from the states of the containers. Requests are made only for streams that are
not completely described by these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from engine.admin.inspection import all_chunks, describe_container
from engine.containers.container import Container
from engine.errors import EngineError, SegmentNotFound, SegmentTruncated
from engine.root import Root
from pravega_spark.errors import StreamNotFound
from pravega_spark.segment_ids import segment_epoch, segment_label
from pravega_spark.source.batch import batch_ranges
from pravega_spark.source.failures import for_users
from pravega_spark.source.opening import current_snapshot, ensure_scope, open_root_of
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.key_value_table import key_value_table_entries
from pravega_spark.streams.maintenance.recorded_cuts import Recorded, RecordedCuts, with_recorded_cuts
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.model.system_tables import STREAMS
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.transactions import open_transactions

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _column(name: str, kind: type[DataType], comment: str) -> StructField:
    return StructField(name, kind(), True, {"comment": comment})


_SCOPE = _column("scope_name", StringType, "Scope of the stream")
_STREAM = _column("stream_name", StringType, "Name of the stream")

_COLUMNS: dict[str, list[StructField]] = {
    "Streams": [_SCOPE, _STREAM],
    "StreamInfo": [
        _column("head_stream_cut", StringType, "Stream cut before the first readable event"),
        _column("tail_stream_cut", StringType, "Stream cut after the last event"),
    ],
    "Segments": [
        _column("segment_id", LongType, "Segment id (number and epoch), as in the rows of a read"),
        _column("segment", StringType, "The segment's label: 2.1 is segment 2 of epoch 1"),
        _column("epoch", IntegerType, "Epoch in which the segment was created"),
        _column("key_start", DoubleType, "Lower bound of its key range (0 to 1), exclusive"),
        _column("key_end", DoubleType, "Upper bound of its key range, inclusive"),
        _column("start_offset", LongType, "Offset of its head; earlier bytes were truncated"),
        _column("length", LongType, "Offset of its tail"),
        _column("events", LongType, "Events ever written to it"),
        _column("sealed", BooleanType, "Whether it is sealed"),
    ],
    "Counts": [
        _SCOPE,
        _STREAM,
        _column("segment_id", LongType, "Segment id (number and epoch), as in the rows of a read"),
        _column("start_offset", LongType, "Offset at which the range begins in the segment"),
        _column("end_offset", LongType, "Offset at which it ends"),
        _column("events", LongType, "Events in the range, exactly"),
        _column("bytes", LongType, "Bytes of the range, event headers included"),
    ],
    "KeyValueTable": [
        _column("primary_key", BinaryType, "Primary key; the whole key if the lengths of keys are not known"),
        _column("secondary_key", BinaryType, "Secondary key"),
        _column("value", BinaryType, "Value"),
        _column("partition", IntegerType, "Number of the partition"),
        _column("version", LongType, "Version of the entry in its partition"),
    ],
    "StreamCuts": [
        _SCOPE,
        _STREAM,
        _column("number", LongType, "Number of the cut among all that were ever recorded, from 0"),
        _column("recorded", TimestampType, "When retention recorded the cut, the tail at that time"),
        _column("stream_cut", StringType, "Text of the cut, as options accept it"),
        _column("bytes", LongType, "Bytes ever written to the stream before it, event headers included"),
    ],
    "Chunks": [
        _SCOPE,
        _STREAM,
        _column(
            "segment",
            StringType,
            "Full name; #index segments hold event positions, #transaction… segments open transactions",
        ),
        _column("container", IntegerType, "Container of the segment"),
        _column("offset", LongType, "Offset of these bytes in the segment"),
        _column("length", LongType, "Number of bytes"),
        _column("place", StringType, "chunk: in LTS; attached: a chunk that LTS has not adopted yet; log: a frame"),
        _column("object", StringType, "Path below the root, or below the log's own root"),
        _column("position", LongType, "Offset of these bytes in the object"),
    ],
    "Transactions": [
        _SCOPE,
        _STREAM,
        _column("transaction_id", StringType, "UUID; its first 32 bits are the epoch in which it was begun"),
        _column("status", StringType, "open, or expired: its lease has ended and it will be aborted"),
        _column("began", TimestampType, "When it was begun"),
        _column("lease_ms", LongType, "Lease in milliseconds"),
        _column("timeout", TimestampType, "When it expires unless it is pinged"),
        _column("bytes", LongType, "Bytes written to it, event headers included"),
    ],
    "Losses": [
        _SCOPE,
        _STREAM,
        _column("segment", StringType, "Full name of the segment"),
        _column("start", LongType, "Offset at which the unreadable range begins"),
        _column("end", LongType, "Offset at which it ends, as far as that is known"),
        _column("reason", StringType, "What is damaged"),
    ],
    "Containers": [
        _column("number", IntegerType, "Number of the container"),
        _column("online", BooleanType, "Whether it could be opened; if not, all other columns but reason are null"),
        _column("reason", StringType, "Why it is offline"),
        _column("sequence", LongType, "Operations so far"),
        _column("head", LongType, "Address of the last frame"),
        _column("epoch", LongType, "Epoch of the last frame"),
        _column("newest_checkpoint", LongType, "Address of the newest checkpoint object, -1: none"),
        _column("frames_since_checkpoint", LongType, "Frames after it"),
        _column("segments", LongType, "Number of segments"),
        _column("active", LongType, "Segments in memory"),
        _column("unsaved", LongType, "Segments whose current state is not in LTS"),
        _column("logged_bytes", LongType, "Bytes that are only in the log"),
        _column("cycle", LongType, "Number of the last flush cycle, 0: none yet"),
        _column("cycle_time", TimestampType, "When it began"),
        _column("cycle_complete", BooleanType, "Whether it has ended"),
        _column("recovery_point", LongType, "Flush cycle of the newest recovery point"),
        _column("garbage", LongType, "Objects waiting to be deleted"),
    ],
}

Row = tuple[Any, ...]


def table_schema(table: str) -> StructType:
    """The columns of a metadata table, with comments."""
    return StructType(_COLUMNS[table])


class TableReader(DataSourceReader):
    """Reads a metadata table, computed when it is read."""

    def __init__(self, options: SourceOptions) -> None:
        if options.metadata == "Counts":
            options.batch_cuts()
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    @for_users
    def read(self, partition: InputPartition) -> Iterator[Row]:
        yield from {
            "Streams": self._streams,
            "StreamInfo": self._stream_info,
            "Segments": self._segments,
            "Counts": self._counts,
            "KeyValueTable": self._key_value_table,
            "StreamCuts": self._stream_cuts,
            "Chunks": self._chunks,
            "Transactions": self._transactions,
            "Containers": self._containers,
            "Losses": self._losses,
        }[str(self._options.metadata)]()

    # --- of a scope, or of a stream ----------------------------------------------------------------------------

    def _streams(self) -> Iterator[Row]:
        if self._options.stream:
            current_snapshot(self._options, "read")
        else:
            ensure_scope(self._options, "read")
        for name in sorted(Catalog(self._root()).streams(self._options.scope)):
            yield self._options.scope, name

    def _stream_info(self) -> Iterator[Row]:
        snapshot = current_snapshot(self._options, "read")
        yield snapshot.head_cut().as_text(), snapshot.tail_cut().as_text()

    def _segments(self) -> Iterator[Row]:
        snapshot = current_snapshot(self._options, "read")
        snapshot.segments.load(snapshot.record.segment_ids())
        for number, low, high in snapshot.record.history.segments.values():
            segment = snapshot.segments.segment(number)
            events = snapshot.segments.count_before(number, segment.length)
            names = number, segment_label(number), segment_epoch(number)
            yield *names, low, high, segment.start_offset, segment.length, events, segment.sealed

    def _counts(self) -> Iterator[Row]:
        """What a batch read with the same options would return, computed from the index alone."""
        for options, snapshot, start, end in batch_ranges(self._options):
            ranges, _ = snapshot.available(snapshot.ranges(start, end), options.fail_on_data_loss)
            for number, (low, high) in ranges.items():
                events = snapshot.segments.events_in(number, low, high)
                yield options.scope, options.stream, number, low, high, events, high - low

    def _key_value_table(self) -> Iterator[Row]:
        for entry in key_value_table_entries(self._root(), self._options.scope, self._options.stream):
            yield entry.primary, entry.secondary, entry.value, *entry.version

    # --- of a stream, of a scope, or of the root ---------------------------------------------------------------

    def _stream_cuts(self) -> Iterator[Row]:
        root = self._root()
        for container, prefix in self._chosen(root):
            keys = sorted(key for key, _ in container.scan_entries(STREAMS) if f"{key}/".startswith(prefix))
            for key in with_recorded_cuts(container, keys):
                scope, _, name = key.partition("/")
                for recorded, cut in _recorded(Stream(root, scope, name)):
                    yield scope, name, recorded.number, _moment(recorded.time), cut.as_text(), recorded.size

    def _chunks(self) -> Iterator[Row]:
        for container, prefix in self._chosen(self._root()):
            for name, part in all_chunks(container, prefix):
                scope, stream = name.split("/")[:2] if name.count("/") > 1 else (None, None)
                yield scope, stream, name, container.number, *part

    def _transactions(self) -> Iterator[Row]:
        now = int(time.time() * 1000)
        for container, prefix in self._chosen(self._root()):
            for scope, stream, number, record, size in open_transactions(container, prefix):
                status = "expired" if record.expired(now) else record.status
                began, timeout = _moment(record.created), _moment(record.timeout)
                yield scope, stream, str(number), status, began, record.lease, timeout, size

    def _chosen(self, root: Root) -> Iterator[tuple[Container, str]]:
        """Each container that holds a chosen stream, refreshed, with the prefix of its chosen streams' names.

        A missing scope or stream is created if the options ask for it, as by every batch read. Raises ScopeNotFound,
        StreamNotFound.
        """
        scope, stream = self._options.scope, self._options.stream
        numbers, prefix = range(root.config.containers), f"{scope}/" if scope else ""
        if stream:
            current_snapshot(self._options, "read")
            number, prefix = container_of(f"{scope}/{stream}", len(numbers)), f"{scope}/{stream}/"
            numbers = range(number, number + 1)
        elif scope:
            ensure_scope(self._options, "read")
        for number in numbers:
            container = root.container(number)
            container.refresh()
            yield container, prefix

    def _losses(self) -> Iterator[Row]:
        for container, prefix in self._chosen(self._root()):
            for loss in container.lost(prefix):
                scope, _, stream = loss.stream.partition("/")
                yield scope, stream, loss.segment, loss.start, loss.end, loss.reason

    # --- of the root -------------------------------------------------------------------------------------------

    def _containers(self) -> Iterator[Row]:
        root = self._root()
        for number in range(root.config.containers):
            try:
                found = describe_container(root.container(number))
            except EngineError as error:
                yield number, False, str(error), *[None] * (len(_COLUMNS["Containers"]) - 3)
                continue
            log = found.sequence, found.head, found.epoch, found.newest_checkpoint, found.frames
            segments = found.segments, found.active, found.unsaved, found.logged
            complete = found.cycle.complete if found.cycle.number else None
            cycle = found.cycle.number, _moment(found.cycle.time), complete, found.recovery_point
            yield number, True, None, *log, *segments, *cycle, found.garbage

    def _root(self) -> Root:
        return open_root_of(self._options, "read")


def _recorded(stream: Stream) -> list[tuple[Recorded, StreamCut]]:
    """The recorded cuts of a stream; none if it was deleted meanwhile. Refreshes its container only if necessary."""
    try:
        try:
            return list(RecordedCuts(stream.snapshot(refresh=False)).all())
        except (SegmentTruncated, SegmentNotFound):
            return stream.query(lambda snapshot: list(RecordedCuts(snapshot).all()))
    except StreamNotFound:
        return []


def _moment(milliseconds: int) -> datetime | None:
    """A time in ms since the epoch, None for 0."""
    return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None
