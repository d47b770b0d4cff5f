"""The writers: tasks route and frame their rows, and the driver commits all of them in ONE append.

If rows name their streams, there is one append for each container that holds some of the streams, one after the other.
Each append stores which batch its streams have, so a replay after a crash between two appends writes the rest only.

Small data travels in the tasks' commit messages, large data in chunks that the commit attaches (S3). The append of a
streaming query's batch also stores the query's id as the producer id, the batch's number, and a digest of the rows that
the tasks compute. So a replay of the batch writes nothing, and is logged (X3). `txn_app_id` and `txn_version` do the
same for batch jobs and `foreachBatch`. If a stream is scaled while a job runs, the commit succeeds all the same
(`Stream.write`): the data does not have the routing keys any more, so it goes into segments like those that the job was
planned with, which costs two epochs if a segment was split.

Spark plans a write in one process, runs its tasks in other processes, and commits in yet another, and each may be new.
So what only one of them needs is imported in functions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from chunkstore import StorageError
from pravega_spark.errors import StreamSealed
from pravega_spark.source.columns import ALL_COLUMNS, READ_COLUMNS
from pravega_spark.source.failures import for_users
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.stream_writer import StreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.task_outputs import TaskMessage
    from pravega_spark.source.value_columns import WrittenValues
    from pravega_spark.streams.stream import Stream
    from pravega_spark.streams.writing.digests import Digest
    from pravega_spark.streams.writing.producer_state import ProducerWrite
    from pravega_spark.streams.writing.writes import StreamWrite

logger = logging.getLogger(__name__)


class _Writer:
    """The common part of batch and streaming writes.

    of_table: the options are those in the metadata of the rows. All columns that are not written have to be null, as in
    an INSERT INTO that does not name them. Then the rows were not read from a stream, so these are the options of the
    table that is written.
    """

    def __init__(self, options: SourceOptions, schema: StructType, of_table: bool = False) -> None:
        self._values: WrittenValues | None = None
        if options.value_format == "raw":
            _check_schema(schema, of_table or options.ignore_extra_columns, options.by_row)
        else:
            from pravega_spark.source.value_columns import fields_to_write, stored_format, written_values

            check_keys(schema, options.by_row)
            fields = fields_to_write(schema, options, of_table)
        self._options = options
        self._of_table = of_table
        from pravega_spark.source.opening import current_snapshot, ensure_scope, log_not_applied

        self._sealed = False
        self._planned = None  # if so, each task looks up its streams; otherwise tasks do not read the log
        record = None
        if options.by_row:
            ensure_scope(options, "write")
        else:
            record = current_snapshot(options, "write").record
            log_not_applied(options, record)
            self._sealed = record.sealed
            if self._sealed:
                self._refuse_sealed(self._stream(options.stream))
            self._planned = record.routing
        if options.value_format != "raw":
            self._values = written_values(fields, options, None if record is None else stored_format(record))

    def _is_idempotent(self) -> bool:
        """Whether the write has a producer id and a number, so that a replay is recognised (X3)."""
        return self._options.txn_app_id is not None

    def _writer_of(self, context: TaskContext | None = None) -> tuple[str, int] | None:
        """The producer id and number of the write, as far as they are known. context: that of the task that asks."""
        if self._options.txn_app_id is None or self._options.txn_version is None:
            return None
        return f"txn:{self._options.txn_app_id}", self._options.txn_version

    def _refuse_sealed(self, stream: Stream, context: TaskContext | None = None) -> None:
        """Raise StreamSealed for a write to a sealed stream, unless it may be a replay, which succeeds (X3).

        If the number of the write is not known yet, it may be one if the stream stores a write of any producer.
        """
        writer = self._writer_of(context)
        replayed = self._producer_write(writer) if writer is not None else None
        if not self._is_idempotent() or not stream.is_committed(replayed):
            raise StreamSealed(stream.key)

    def _stream(self, name: str) -> Stream:
        """A stream of the scope, in the root that the plan has opened."""
        from pravega_spark.source.opening import open_stream_of

        return open_stream_of(self._options, name)

    @for_users
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Runs in a task: route and frame its rows, and write chunks if there are many."""
        from pravega_spark.roots import open_root
        from pravega_spark.source.router import Router
        from pravega_spark.source.task_outputs import TaskMessage
        from pravega_spark.streams.writing.collector import Collector

        context, options = TaskContext.get(), self._options
        query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        refuse_sealed = partial(self._refuse_sealed, context=context)
        router = Router(options, self._planned, refuse_sealed)
        chunks = open_root(**options.opening).stores.chunks
        collector = Collector(chunks, options.scope, router, self._is_idempotent())
        check_sealed = self._sealed  # only a task always knows whether it is a replay
        try:
            for batch in iterator:
                if check_sealed and batch.num_rows:
                    refuse_sealed(self._stream(options.stream))
                    check_sealed = False
                if self._of_table:
                    _check_not_read(batch, _WRITTEN if self._values is None else (*self._values.names, "routing_key"))
                rows = batch if self._values is None else self._values.encoded(batch)
                collector.add(_events_of(rows), router.find(rows))
            outputs = collector.finish()
            digests = dict(collector.digests) if collector.digests is not None else None
            return TaskMessage(outputs, query_id, router.planned, collector.created_at(), digests)
        except BaseException:
            with suppress(StorageError):  # garbage collection will find them
                collector.drop()
            raise

    @for_users
    def _commit(self, messages: Sequence[WriterCommitMessage | None], writer: tuple[str, int] | None) -> None:
        from itertools import groupby

        from pravega_spark.source.task_outputs import merged
        from pravega_spark.streams.maintenance.scheduler import after_commit
        from pravega_spark.streams.writing.digests import Digest
        from pravega_spark.streams.writing.writes import StreamWrite, write_together

        tasks = _of_tasks(messages)
        by_stream = merged(tasks)
        if not by_stream:
            self._log_empty_replay(writer)
        writes: list[StreamWrite] = []
        for name, parts in by_stream.items():
            producer = None
            if writer is not None:
                digest = Digest.total(task.digests[name] for task in tasks if task.digests and name in task.digests)
                producer = self._producer_write(writer, digest)
            writes.append(StreamWrite(self._stream(name), parts, producer))
        writes.sort(key=_container)
        for number, together in groupby(writes, _container):
            some = list(together)
            try:
                write_together(some)
            except Exception:
                _log_partial_write([write for write in writes if write.stream.number < number], writes)
                raise
        if not all(write.new for write in writes):
            self._abort(messages)  # another attempt has written the batch, so this one's chunks are not needed
        for write in writes:
            after_commit(self._stream(write.stream.name))

    def _log_empty_replay(self, writer: tuple[str, int] | None) -> None:
        """Log, or raise, if an empty batch replays one that had rows. An empty batch itself writes and stores
        nothing."""
        if writer is not None and not self._options.by_row:
            self._stream(self._options.stream).report_replay(self._producer_write(writer))

    def _producer_write(self, writer: tuple[str, int], digest: Digest | None = None) -> ProducerWrite:
        from pravega_spark.streams.writing.producer_state import ProducerWrite

        return ProducerWrite(*writer, digest, self._options.on_changed_replay, self._options.accept_lost_batches)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the tasks' chunks, each in the container of the stream after which it is named."""
        by_container: dict[int, tuple[Stream, list[str]]] = {}
        for chunk in (name for message in _of_tasks(messages) for name in message.chunks()):
            stream = self._stream(chunk.split("/")[1])
            by_container.setdefault(stream.number, (stream, []))[1].append(chunk)
        for stream, some in by_container.values():
            stream.discard(some)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: all rows in one append."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._writer_of())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, StreamArrowWriter):
    """`df.writeStream`: each micro-batch in one append, exactly once.

    The producer id is the query's id, and the number that of the batch. Options that identify one batch are rejected:
    all later batches would be skipped as its replays.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.txn_app_id is not None:
            raise ValueError(
                "Options 'txn_app_id' and 'txn_version' identify one batch, and a streaming write has many: omit them; "
                "the query id and the batch number are used instead. They are for df.write, also in foreachBatch."
            )
        super().__init__(options, schema)

    def _is_idempotent(self) -> bool:
        return self._options.exactly_once

    def _writer_of(self, context: TaskContext | None = None) -> tuple[str, int] | None:
        """Only a task knows its query and batch."""
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        return (f"query:{query}", int(batch)) if query is not None and batch is not None else None

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from pravega_spark.source.misplaced_checkpoints import refuse_for_query

        for query in {message.query_id for message in _of_tasks(messages)}:
            if query is not None:
                refuse_for_query(self._options, query)
        self._commit(messages, self._of_query(messages, batchId))

    def _of_query(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> tuple[str, int] | None:
        queries = {message.query_id for message in _of_tasks(messages)}
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

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def _events_of(batch: pa.RecordBatch) -> pa.Array:
    """The events of some rows. Raises ValueError if any is null."""
    events = batch.column("event")
    if events.null_count:  # the row's number would not help, as Spark cuts rows into tasks and batches freely
        raise ValueError(
            f"Column 'event' is null in {events.null_count} of the {len(events)} rows that a task got at once: "
            'filter out such rows with where("event is not null"), or give them an empty event.'
        )
    return events


def _container(write: StreamWrite) -> int:
    return write.stream.number


def _log_partial_write(done: Sequence[StreamWrite], writes: Sequence[StreamWrite]) -> None:
    """Log which streams have their share of a write that failed between two containers."""
    if done:
        names = {write.stream.name for write in done}
        logger.error(
            "A write to several streams failed after it was committed to %s. It may be missing in %s. If it is "
            "idempotent (writeStream, or options 'txn_app_id' and 'txn_version'), another try writes the rest only.",
            ", ".join(sorted(names)),
            ", ".join(sorted({write.stream.name for write in writes} - names)),
        )


def _of_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """The messages of the tasks that have sent one."""
    from pravega_spark.source.task_outputs import TaskMessage

    return [message for message in messages if isinstance(message, TaskMessage)]


def _check_schema(schema: StructType, all_columns: bool = False, by_row: bool = False) -> None:
    """Raise ValueError for columns that cannot be written, or would be dropped, unless `all_columns` allows that.

    by_row: column `stream` names the stream of each row.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    if "event" not in fields:
        raise ValueError(  # begins with the original connector's words, as below
            f"Required attribute 'event' not found: the columns are {', '.join(fields) or 'none'}; select one as "
            f"event, with {_selection(fields)}."
        )
    if not isinstance(fields["event"], StringType | BinaryType):
        raise ValueError(
            "event attribute type must be a string or binary; received unsupported type "
            f"{fields['event'].simpleString()}: column 'event' can be written with {_as_text('event', fields)}"
        )
    check_keys(schema, by_row)
    written = WRITE_COLUMNS if by_row else _WRITTEN
    extra = [] if all_columns else [name for name in fields if name not in (*written, *_of_read(fields))]
    if extra == ["stream"]:
        raise ValueError(
            "Column 'stream' would be ignored, as option 'stream' writes all rows to one stream: remove the option to "
            "write each row to the stream that it names, or drop the column."
        )
    for name in extra:
        if name.lower() in written:
            raise ValueError(
                f"Column {name!r} would be dropped: names of columns are in lower case here. Rename it to "
                f"{name.lower()!r}."
            )
    if extra:
        names = ", ".join(map(repr, extra))
        raise ValueError(
            f"{'Columns' if len(extra) > 1 else 'Column'} {names} would be dropped, as only event and routing_key are "
            'written: put them into the event, for example with selectExpr("to_json(struct(*)) as event") or option '
            "'value_format', select event and routing_key only, or set option 'ignore_extra_columns' to true."
        )


def check_keys(schema: StructType, by_row: bool) -> None:
    """Raise ValueError if the columns that route rows are no strings."""
    fields = {field.name: field.dataType for field in schema.fields}
    key = fields.get("routing_key")
    if key is not None and not isinstance(key, StringType):
        raise ValueError(
            f"routing_key attribute type must be a string; received unsupported type {key.simpleString()}: column "
            f"'routing_key' can be written with {_as_text('routing_key', fields)}"
        )
    if by_row and not isinstance(fields["stream"], StringType):
        raise ValueError(
            f"Column 'stream' names the stream of each row, so it must be a string, not "
            f"{fields['stream'].simpleString()}: cast it, or set option 'stream'."
        )


_WRITTEN = ("event", "routing_key")
WRITE_COLUMNS = (*_WRITTEN, "stream")
"""The columns of which a write makes something."""

_PAYLOADS = ("value", "data", "payload", "body", "message", "json")
"""Names of columns that are likely to hold the event."""


def _of_read(columns: Collection[str]) -> Collection[str]:
    """The columns that a read of a stream returns, if the rows have them: they do not apply to the copy."""
    return tuple(ALL_COLUMNS) if set(READ_COLUMNS) <= set(columns) else ()


def _selection(fields: Mapping[str, DataType]) -> str:
    """An example of how to select the event from these columns, and the routing key if there is a column for it."""
    given = {name.lower(): name for name in fields}  # to Spark the case of a name makes no difference
    there = [given[name] for name in ("event", *_PAYLOADS) if name in given]
    there = [name for name in there if isinstance(fields[name], StringType | BinaryType)]
    chosen = [f'"{there[0]} as event"' if there else '"to_json(struct(*)) as event"']
    key = given.get("routing_key") or given.get("key")
    if key == "routing_key":
        chosen.append('"routing_key"')
    elif key is not None:
        text = isinstance(fields[key], StringType)
        chosen.append(f'"{key} as routing_key"' if text else f'"cast({key} as string) as routing_key"')
    return f"selectExpr({', '.join(chosen)})"


def _as_text(name: str, columns: Mapping[str, DataType]) -> str:
    """How to select a column as a string, together with the other written column, if there is one."""
    nested = columns[name].typeName() in ("array", "map", "struct", "variant")
    chosen = f"{'to_json' if nested else 'cast'}({name}{'' if nested else ' as string'}) as {name}"
    return f"selectExpr({', '.join(repr(chosen if each == name else each) for each in _WRITTEN if each in columns)})"


def _check_not_read(batch: pa.RecordBatch, columns: Collection[str]) -> None:
    """Raise ValueError for rows of an INSERT INTO that may have been read from a stream."""
    for name in batch.schema.names:
        if name not in columns and batch.column(name).null_count < batch.num_rows:
            written = ", ".join(each for each in columns if each in batch.schema.names)
            raise ValueError(
                f"INSERT INTO: column {name!r} has values, but the write sets it itself. Name the columns that you "
                f"insert, as in INSERT INTO a_table ({written}) SELECT …"
            )
