"""The writers: tasks route and frame their rows, the driver's commit is ONE append for all of them.

Where rows name their streams there is one for each container that holds some of these, one after the other. Each
remembers its streams' share of the batch, so a replay after a crash between two of them does the rest only.

Small data travels in the tasks' commit messages, large data in chunks that the commit attaches (S3). A streaming
query's batch is remembered in the same append under the query's id and the batch's number, so a replay of it is a
no-op, and told (X3); a digest of the rows, which each task makes, tells whether it is one. `txn_app_id` and
`txn_version` do the same for batch jobs and `foreachBatch`. A stream that is scaled while a job runs takes its data all
the same (`Stream.write`): as what the tasks wrote does not tell the keys, it goes into segments like those that they
were planned for, which costs the stream two epochs if a segment was split.

Spark plans a write in one process, runs its tasks in others and commits in a third, each of which may be new: what only
one of them needs is imported there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from pravega_spark.errors import StreamSealed
from pravega_spark.source.columns import METADATA_COLUMNS, READ_COLUMNS
from pravega_spark.source.failures import for_users
from pravega_spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.task_outputs import TaskMessage
    from pravega_spark.streams.stream import Stream
    from pravega_spark.streams.writing.writes import StreamWrite

logger = logging.getLogger(__name__)


class _Writer:
    """What batch and streaming writes share.

    only_events: the other columns of the rows have to be null, as they are in an INSERT INTO of events. Then no row was
    read from a stream, and what Spark says of the table that it inserts into is true.
    """

    def __init__(self, options: SourceOptions, schema: StructType, only_events: bool = False) -> None:
        _check_schema(schema, only_events or options.ignore_extra_columns, options.by_row)
        self._options = options
        self._only_events = only_events
        from pravega_spark.source.opening import current_snapshot, ensure_scope, open_stream_of

        self._sealed = False
        self._planned = None  # then each task looks its streams up; otherwise none needs to look at the log
        if options.by_row:
            ensure_scope(options, "write")
        else:
            record = current_snapshot(options, "write").record
            self._sealed = record.sealed
            if self._sealed:
                self._refuse_sealed(open_stream_of(options, options.stream))
            self._planned = record.routing

    def _remembered(self) -> bool:
        """Whether the stream is to remember what is written, so that a replay of it is known (X3)."""
        return self._options.txn_app_id is not None

    def _refuse_sealed(self, stream: Stream, context: TaskContext | None = None) -> None:
        """Raise StreamSealed for a write to a sealed stream, unless it may have been written before that: that is a
        replay, which is done (X3). context: of the task, if it is one that writes."""
        raise NotImplementedError

    @for_users
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """A task: route, frame, keep or write."""
        from pravega_spark.source.collector import Collector

        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        refuse_sealed = partial(self._refuse_sealed, context=context)
        collector = Collector(self._options, self._planned, self._remembered(), refuse_sealed)
        doubtful = self._sealed  # the plan could not always tell whether it is a replay; a task can
        try:
            for batch in iterator:
                if doubtful and batch.num_rows:
                    from pravega_spark.source.opening import open_stream_of

                    refuse_sealed(open_stream_of(self._options, self._options.stream))
                    doubtful = False
                if self._only_events:
                    _check_only_events(batch)
                collector.add(batch)
            return collector.finish(query_id)
        except BaseException:
            collector.drop()
            raise

    @for_users
    def _commit(self, messages: Sequence[WriterCommitMessage | None], writer: tuple[str, int] | None) -> None:
        from itertools import groupby

        from pravega_spark.source.opening import open_stream_of
        from pravega_spark.source.task_outputs import merged
        from pravega_spark.streams.maintenance.scheduler import after_commit
        from pravega_spark.streams.writing.digests import Digest
        from pravega_spark.streams.writing.writes import write_together

        tasks = _of_tasks(messages)
        by_stream = merged(tasks)
        if not by_stream:
            self._tell_of_nothing(writer)
        writes: list[StreamWrite] = []
        policy = self._options.on_changed_replay
        for name, parts in by_stream.items():
            stream = open_stream_of(self._options, name)
            digest = None
            if writer is not None:
                digest = Digest.total(task.digests[name] for task in tasks if task.digests and name in task.digests)
            lost = self._options.accept_lost_batches
            write = stream.to_write(parts, writer, digest=digest, on_changed_replay=policy, accept_lost=lost)
            writes.append(write)
        writes.sort(key=_container)
        for number, together in groupby(writes, _container):
            some = list(together)
            try:
                write_together(some)
            except Exception:
                _tell_of_rest([write for write in writes if write.stream.number < number], writes)
                raise
        if not all(write.new for write in writes):
            self._abort(messages)  # they are there already; if by another attempt, ours has chunks of no use
        for write in writes:
            after_commit(open_stream_of(self._options, write.stream.name))

    def _tell_of_nothing(self, writer: tuple[str, int] | None) -> None:
        """Of a batch without rows nothing is written, or remembered; but where there were some before, it is told."""
        from pravega_spark.source.opening import open_stream_of
        from pravega_spark.streams.writing.digests import Digest

        if writer is not None and not self._options.by_row:
            stream = open_stream_of(self._options, self._options.stream)
            stream.recall(writer, Digest(), self._options.on_changed_replay)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give up chunks that are of no use, each in the container of the stream that it is named after."""
        chunks = [name for message in _of_tasks(messages) for name in message.chunks()]
        if chunks:
            from pravega_spark.source.opening import open_stream_of

            by_container: dict[int, tuple[Stream, list[str]]] = {}
            for chunk in chunks:
                stream = open_stream_of(self._options, chunk.split("/")[1])
                by_container.setdefault(stream.number, (stream, []))[1].append(chunk)
            for stream, some in by_container.values():
                stream.discard(some)

    def _named(self) -> tuple[str, int] | None:
        """The writer that the options name."""
        if self._options.txn_app_id is None or self._options.txn_version is None:
            return None
        return f"txn:{self._options.txn_app_id}", self._options.txn_version


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: all rows in one append."""

    def _refuse_sealed(self, stream: Stream, context: TaskContext | None = None) -> None:
        writer = self._named()
        if writer is None or not stream.remembers(writer):
            raise StreamSealed(stream.key)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._named())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
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

    def _refuse_sealed(self, stream: Stream, context: TaskContext | None = None) -> None:
        """Only a task knows of which query and batch it is. Where nothing is remembered, it is no replay of any."""
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        known = (f"query:{query}", int(batch)) if query is not None and batch is not None else None
        if not self._options.exactly_once or not stream.remembers(known):
            raise StreamSealed(stream.key)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
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


def _container(write: StreamWrite) -> int:
    return write.stream.number


def _tell_of_rest(done: Sequence[StreamWrite], writes: Sequence[StreamWrite]) -> None:
    """Log how far a write came that failed between two containers."""
    if done:
        names = {write.stream.name for write in done}
        logger.error(
            "A write to several streams failed after it was committed to %s. It may not be in %s. If it has a name and "
            "a number (writeStream, or options 'txn_app_id' and 'txn_version'), writing it again does the rest only.",
            ", ".join(sorted(names)),
            ", ".join(sorted({write.stream.name for write in writes} - names)),
        )


def _of_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """The messages of the tasks that sent one."""
    from pravega_spark.source.task_outputs import TaskMessage

    return [message for message in messages if isinstance(message, TaskMessage)]


def _check_schema(schema: StructType, all_columns: bool = False, by_row: bool = False) -> None:
    """Raise ValueError for columns that cannot be written. all_columns: or, if not set, that would be left out.

    by_row: column stream says where a row goes.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    if "event" not in fields:
        raise ValueError(  # it begins with the original connector's words, as below
            f"Required attribute 'event' not found: the columns are {', '.join(fields) or 'none'}; select one as "
            f"event, with {_selection(fields)}."
        )
    if not isinstance(fields["event"], StringType | BinaryType):
        raise ValueError(
            "event attribute type must be a string or binary; received unsupported type "
            f"{fields['event'].simpleString()}: column 'event' can be written with {_as_text('event', fields)}"
        )
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
    written = (*_WRITTEN, "stream") if by_row else _WRITTEN
    extra = [] if all_columns else [name for name in fields if name not in (*written, *_of_read(fields))]
    if extra == ["stream"]:
        raise ValueError(
            "Column 'stream' would not be used, as option 'stream' says where all rows go: remove the option, and each "
            "row goes to the stream that it names; or drop the column."
        )
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
    return (*READ_COLUMNS, *METADATA_COLUMNS) if set(READ_COLUMNS) <= set(columns) else ()


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


def _as_text(name: str, columns: Mapping[str, DataType]) -> str:
    """How to select a column as a text, besides the other one that is written, if it is there."""
    nested = columns[name].typeName() in ("array", "map", "struct", "variant")
    chosen = f"{'to_json' if nested else 'cast'}({name}{'' if nested else ' as string'}) as {name}"
    return f"selectExpr({', '.join(repr(chosen if each == name else each) for each in _WRITTEN if each in columns)})"


def _check_only_events(batch: pa.RecordBatch) -> None:
    for name in batch.schema.names:
        if name != "event" and batch.column(name).null_count < batch.num_rows:
            raise ValueError(
                f"INSERT INTO: column {name!r} has values, but it is set when an event is written. Insert events only, "
                "as in INSERT INTO a_table (event) SELECT …"
            )
