"""The writers: tasks route and frame their rows, the driver's commit is ONE append for all of them.

Small data travels in the tasks' commit messages, large data in chunks that the commit attaches (S3). A streaming
query's batch is remembered in the same append under the query's id and the batch's number, so a replay of it is a
no-op, and told (X3); a digest of the rows, which each task makes, tells whether it is one. `txn_app_id` and
`txn_version` do the same for batch jobs and `foreachBatch`. A stream that is scaled while a job runs takes its data all
the same (`Stream.write`): as what the tasks wrote does not tell the keys, it goes into segments like those that they
were planned for, which costs the stream two epochs if a segment was split.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from engine.state.horizon import creation_time
from engine.state.operations import Payload
from engine.state.segments import Extent
from pravega_spark.roots import open_root
from pravega_spark.source.event_columns import SCHEMA, WITH_METADATA
from pravega_spark.source.failures import for_users
from pravega_spark.source.opening import current_snapshot, open_root_of, open_stream
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.chunk_uploads import ChunkUploads
from pravega_spark.streams.digests import Digest
from pravega_spark.streams.epochs import StreamSegmentRecord
from pravega_spark.streams.events import Framed, event_header, frame_column, large_rows, payload_of
from pravega_spark.streams.index import sparse_records
from pravega_spark.streams.names import segment_name
from pravega_spark.streams.routing import KeyPlaces, segment_for
from pravega_spark.streams.stream import SegmentAppend
from pravega_spark.streams.stream_record import Routing
from pravega_spark.streams.upkeep import after_commit

if TYPE_CHECKING:
    import pyarrow as pa

INLINE_BYTES = 256 << 10
"""A task with no more than this puts its data into its commit message."""

CHUNK_BYTES = 8 << 20
CHUNK_BYTES_REMOTE = 32 << 20
"""A task writes a chunk whenever it has collected this much: little, so that a disk is soon at work and little is left
to wait for in the end; more where each request takes its time."""

COLLECTED_CHUNKS = 2
"""How many chunks are collected at a time where there are so many segments."""

OWN_CHUNK_BYTES = 2 << 20
"""With this much a segment gets a chunk of its own; what outputs a chunk is copied by the next flush."""

BYTES_AHEAD = 32 << 20
"""How much is being written while the next chunk is collected."""

LARGE_PART_BYTES = 32 << 20
"""A large event is written in chunks of this size: some storages copy what they are given."""


class TaskOutput(NamedTuple):
    """What a task has for one segment: framed events or the extents that hold them, index records, number of events."""

    segment_id: int
    content: bytes | tuple[Extent, ...]
    records: np.ndarray
    events: int


class _Group(NamedTuple):
    """What was collected for one segment."""

    segment_id: int
    buffers: list[memoryview]
    records: np.ndarray
    events: int

    def size(self) -> int:
        """Bytes of the framed events."""
        return sum(map(len, self.buffers))


class TaskMessage(WriterCommitMessage):
    """What a task hands to the driver: its outputs in the order of its rows, the query that it belongs to, and by what
    its rows were routed: the driver commits in a process that did not plan the job.

    created_at: when its first chunk was made by the storage's clock, None if it wrote none: it may be longer ago than
    clean-ups leave chunks alone (see `engine.state.horizon`). digest: of its rows, None where nobody will ask for it.
    """

    def __init__(
        self,
        outputs: Sequence[TaskOutput],
        query_id: str | None,
        planned: Routing,
        created_at: int | None,
        digest: Digest | None = None,
    ) -> None:
        self.outputs = tuple(outputs)
        self.query_id = query_id
        self.planned = planned
        self.created_at = created_at
        self.digest = digest

    def chunks(self) -> list[str]:
        """The chunks that the task has written."""
        extents = (output.content for output in self.outputs if isinstance(output.content, tuple))
        return sorted({str(extent.source) for some in extents for extent in some})


class Collector:
    """Collects a task's rows by segment, and writes chunks when there is much of it.

    digested: whether a digest of the rows is wanted.
    """

    def __init__(self, options: SourceOptions, segments: Sequence[StreamSegmentRecord], digested: bool = False) -> None:
        self._store = open_root(options.root, options.storage, options.wal).stores.chunks
        self._scope, self._stream = options.scope, options.stream
        self._segments = segments
        self._bounds = [segment.high for segment in segments]
        self._random = np.random.default_rng()
        self._places = KeyPlaces()
        self._framed: list[Framed] = []
        self._size = 0
        self._outputs: list[TaskOutput] = []
        self.digest = Digest() if digested else None
        self.created_at: int | None = None
        chunk_bytes = CHUNK_BYTES_REMOTE if self._store.remote else CHUNK_BYTES
        self._collected_bytes = chunk_bytes * min(len(segments), COLLECTED_CHUNKS)
        self._ahead = BYTES_AHEAD // chunk_bytes
        self._uploads = ChunkUploads[list[_Group] | None](self._store, self._ahead, "chunks")

    def add(self, batch: pa.RecordBatch) -> None:
        """Route and frame the rows of a batch."""
        events = batch.column("event")
        segments = None
        if len(self._segments) > 1:
            segments = segment_for(self._fractions(batch), self._bounds, self._random)
        first = 0
        for row in large_rows(events):
            self._add_small(events, segments, first, row)
            self._write_large(0 if segments is None else int(segments[row]), payload_of(events, row))
            first = row + 1
        self._add_small(events, segments, first, len(events))

    def _add_small(self, events: pa.Array, segments: np.ndarray | None, first: int, end: int) -> None:
        """Frame some rows of a column, none of which is large."""
        if first == end:
            return
        own = None if segments is None else segments[first:end]
        framed = frame_column(events.slice(first, end - first), own, len(self._segments))
        if self.digest is not None:
            self.digest = Digest.total([self.digest, Digest.of_framed(framed)])
        self._framed.append(framed)
        self._size += framed.data.size
        if self._size >= self._collected_bytes:
            self._write_chunks()

    def _fractions(self, batch: pa.RecordBatch) -> np.ndarray:
        if "routing_key" in batch.schema.names:
            return self._places.find(batch.column("routing_key"))
        return np.full(batch.num_rows, np.nan)

    def finish(self) -> list[TaskOutput]:
        """The outputs of all rows, durable unless they are inline."""
        if self._uploads.names or self._size > INLINE_BYTES:
            self._write_chunks()
        else:
            for group in self._by_segment():
                self._outputs.append(TaskOutput(group.segment_id, b"".join(group.buffers), group.records, group.events))
        self._take_written(0)
        self._uploads.close()
        if self._uploads.names:
            self.created_at = creation_time(self._store.stat(self._uploads.names[0]).modified)
        return self._outputs

    def _by_segment(self) -> list[_Group]:
        groups = []
        for index, segment in enumerate(self._segments):
            lengths = [framed.segment_lengths(index) for framed in self._framed]
            events = sum(len(some) for some in lengths)
            if events:
                buffers = [memoryview(framed.segment_data(index)) for framed in self._framed]
                records = sparse_records(np.concatenate(lengths), time_ms=0)
                groups.append(_Group(segment.id, buffers, records, events))
        return groups

    def _write_chunks(self) -> None:
        """Start to write all that was collected.

        A segment with much of it gets a chunk of its own, which a flush takes over as it is; the others share one.
        """
        groups = self._by_segment()
        self._framed, self._size = [], 0
        large = [group for group in groups if group.size() >= OWN_CHUNK_BYTES]
        small = [group for group in groups if group.size() < OWN_CHUNK_BYTES]
        for together in [*([group] for group in large), *([small] if small else [])]:
            self._uploads.send(together, self._name_of(together[0].segment_id), [group.buffers for group in together])
            self._take_written(self._ahead)

    def _name_of(self, segment: int) -> str:
        return segment_name(self._scope, self._stream, segment)

    def _write_large(self, index: int, payload: memoryview) -> None:
        """Write a large event from where it lies, into chunks of its own, behind all that was collected before it."""
        if self._framed:
            self._write_chunks()
        header = event_header(len(payload))
        parts = [[payload[at : at + LARGE_PART_BYTES]] for at in range(0, len(payload), LARGE_PART_BYTES)]
        parts[0].insert(0, memoryview(header))
        for part in parts:
            self._uploads.send(None, self._name_of(self._segments[index].id), [part])
        extents = self._take_written(0)
        if self.digest is not None:
            self.digest = Digest.total([self.digest, Digest.of_large(extents)])
        records = sparse_records(np.array([len(header) + len(payload)]), time_ms=0)
        self._outputs.append(TaskOutput(self._segments[index].id, extents, records, 1))

    def _take_written(self, most: int) -> tuple[Extent, ...]:
        """Wait until no more than `most` chunks are under way. Returns the extents of those that hold a large event."""
        large: list[Extent] = []
        for groups, extents in self._uploads.written(most):
            if groups is None:
                large += extents
                continue
            for group, extent in zip(groups, extents, strict=True):
                self._outputs.append(TaskOutput(group.segment_id, (extent,), group.records, group.events))
        return tuple(large)

    def drop(self) -> None:
        """Delete the chunks of a task that failed."""
        self._uploads.close()
        self._store.delete(self._uploads.names)


class _Writer:
    """What batch and streaming writes share.

    only_events: the other columns of the rows have to be null, as they are in an INSERT INTO of events. Then no row was
    read from a stream, and what Spark says of the table that it inserts into is true.
    """

    def __init__(self, options: SourceOptions, schema: StructType, only_events: bool = False) -> None:
        _check_schema(schema, all_columns=only_events or options.ignore_extra_columns)
        self._options = options
        self._only_events = only_events
        self._planned = current_snapshot(options, "write").record.routing  # the tasks need not look at the log

    def _remembered(self) -> bool:
        """Whether the stream is to remember what is written, so that a replay of it is known (X3)."""
        return self._options.txn_app_id is not None

    @for_users
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """A task: route, frame, keep or write."""
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        collector = Collector(self._options, self._planned.segments, self._remembered())
        try:
            for batch in iterator:
                if self._only_events:
                    _check_only_events(batch)
                collector.add(batch)
            outputs = collector.finish()
            return TaskMessage(outputs, query_id, self._planned, collector.created_at, collector.digest)
        except BaseException:
            collector.drop()
            raise

    @for_users
    def _commit(self, messages: Sequence[WriterCommitMessage | None], writer: tuple[str, int] | None) -> None:
        tasks = [message for message in messages if isinstance(message, TaskMessage)]
        parts = merged(tasks)
        if not parts:
            self._tell_of_nothing(writer)
            return
        stream = open_stream(self._options, "follow")  # the root was there when the write was planned
        digest = Digest.total(task.digest for task in tasks if task.digest is not None) if writer is not None else None
        policy = self._options.on_changed_replay
        if not stream.write(parts, writer, tasks[0].planned, digest=digest, on_changed_replay=policy):
            self._abort(messages)  # this batch is there already; if by another attempt, ours has chunks of no use
        after_commit(stream)

    def _tell_of_nothing(self, writer: tuple[str, int] | None) -> None:
        """Of a batch without rows nothing is written, or remembered; but where there were some before, it is told."""
        if writer is not None:
            catalog = Catalog(open_root_of(self._options, "follow"))
            stream = catalog.stream(self._options.scope, self._options.stream)
            stream.recall(writer, Digest(), self._options.on_changed_replay)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        chunks = [name for message in messages if isinstance(message, TaskMessage) for name in message.chunks()]
        if chunks:
            open_stream(self._options, "follow").discard(chunks)

    def _named(self) -> tuple[str, int] | None:
        """The writer that the options name."""
        if self._options.txn_app_id is None or self._options.txn_version is None:
            return None
        return f"txn:{self._options.txn_app_id}", self._options.txn_version


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: all rows in one append."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._named())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch in one append, exactly once.

    Its batches have the query's name and their own numbers. Options that name one batch are refused: all batches but
    the first would be taken for replays of it.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.txn_app_id is not None:
            raise ValueError(
                "Options 'txn_app_id' and 'txn_version' identify one batch, and a streaming write has many: omit them; "
                "the query id and the batch number are used instead. They are for df.write, also in foreachBatch."
            )
        super().__init__(options, schema)

    def _remembered(self) -> bool:
        return self._options.exactly_once

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, self._of_query(messages, batchId))

    def _of_query(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> tuple[str, int] | None:
        queries = {message.query_id for message in messages if isinstance(message, TaskMessage)}
        if not self._options.exactly_once or not queries:
            return None
        (query,) = queries
        if query is None:
            raise RuntimeError(
                "Spark did not provide the id of the streaming query, which identifies a replayed batch. Write from "
                "foreachBatch with df.write and the options 'txn_app_id' (a name of your own) and 'txn_version' (the "
                "batch number); or set option 'exactly_once' to false, and a replayed batch is written twice."
            )
        return f"query:{query}", batch

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def merged(tasks: Sequence[TaskMessage]) -> list[SegmentAppend]:
    """One part for each segment and kind of content, in the order of the tasks."""
    parts: list[SegmentAppend] = []
    created_at = min((task.created_at for task in tasks if task.created_at is not None), default=0)
    by_segment: dict[int, list[TaskOutput]] = {}
    for task in tasks:
        for output in task.outputs:
            by_segment.setdefault(output.segment_id, []).append(output)
    now = int(time.time() * 1000)
    for segment, outputs in sorted(by_segment.items()):
        run: list[TaskOutput] = []
        for output in outputs:
            if run and isinstance(run[-1].content, bytes) is not isinstance(output.content, bytes):
                parts.append(_part(segment, run, now, created_at))
                run = []
            run.append(output)
        parts.append(_part(segment, run, now, created_at))
    return parts


def _part(segment: int, outputs: Sequence[TaskOutput], now: int, created_at: int) -> SegmentAppend:
    """Outputs of one kind as one append; their index records count on from one to the next."""
    records, offset, count = [], 0, 0
    for output in outputs:
        moved = output.records + np.array([offset, count, 0])
        moved[:, 2] = now
        records.append(moved)
        offset, count = int(moved[-1, 0]), int(moved[-1, 1])
    if isinstance(outputs[0].content, bytes):
        content: Payload | tuple[Extent, ...] = Payload(b"".join(output.content for output in outputs))  # type: ignore[misc]
    else:
        content = tuple(extent for output in outputs for extent in output.content)  # type: ignore[misc]
    return SegmentAppend(
        segment, content, np.concatenate(records), sum(output.events for output in outputs), created_at
    )


def _check_schema(schema: StructType, all_columns: bool = False) -> None:
    """Raise ValueError for columns that cannot be written. all_columns: or, if not set, that would be left out."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "event" not in fields:
        raise ValueError(  # it begins with the original connector's words, as below
            f"Required attribute 'event' not found: the columns are {', '.join(fields) or 'none'}; select one as "
            f"event, with {_selection(fields)}."
        )
    if not isinstance(fields["event"], StringType | BinaryType):
        raise ValueError(
            "event attribute type must be a string or binary; received unsupported type "
            f"{fields['event'].simpleString()}"
        )
    key = fields.get("routing_key")
    if key is not None and not isinstance(key, StringType):
        raise ValueError(f"routing_key attribute type must be a string; received unsupported type {key.simpleString()}")
    extra = [] if all_columns else [name for name in fields if name not in (*_WRITTEN, *_of_read(fields))]
    if extra:
        names = ", ".join(map(repr, extra))
        raise ValueError(
            f"{'Columns' if len(extra) > 1 else 'Column'} {names} would not be written, only event and routing_key "
            'are: put them into the event, as with selectExpr("to_json(struct(*)) as event"), select '
            "event and routing_key only, or set option 'ignore_extra_columns' to true."
        )


_WRITTEN = ("event", "routing_key")
_PAYLOADS = ("value", "data", "payload", "body", "message", "json")
"""Names of columns that may be meant by event."""


def _of_read(columns: Collection[str]) -> Collection[str]:
    """The columns that rows have as they were read from a stream: where they lay, which says nothing of the copy."""
    return WITH_METADATA.names if set(SCHEMA.names) <= set(columns) else ()


def _selection(fields: Mapping[str, DataType]) -> str:
    """An example of how to select the event from these columns, and the key if one is named so."""
    there = [name for name in _PAYLOADS if isinstance(fields.get(name), StringType | BinaryType)]
    chosen = [f'"{there[0]} as event"' if there else '"to_json(struct(*)) as event"']
    if "routing_key" in fields:
        chosen.append('"routing_key"')
    elif "key" in fields:
        text = isinstance(fields["key"], StringType)
        chosen.append('"key as routing_key"' if text else '"cast(key as string) as routing_key"')
    return f"selectExpr({', '.join(chosen)})"


def _check_only_events(batch: pa.RecordBatch) -> None:
    for name in batch.schema.names:
        if name != "event" and batch.column(name).null_count < batch.num_rows:
            raise ValueError(
                f"INSERT INTO: column {name!r} has values, but it is set when an event is written. Insert events only, "
                "as in INSERT INTO a_table (event) SELECT …"
            )
