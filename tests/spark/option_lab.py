"""Reads and writes in each use of the source's options, small enough to make one for each option.

A use is one of the option table, or `table`: a table of the catalog, which SQL reads and inserts into. A streaming
query has no trigger, as most have: it runs until it has read what there is, and is stopped.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pravega_spark.source.option_table import Use
from tests.spark.folder import Folder

AnyUse = Use | Literal["table"]
READING: tuple[AnyUse, ...] = ("batch read", "stream read", "metadata", "table")
ROWS: tuple[AnyUse, ...] = ("batch read", "stream read", "table")
WRITING: tuple[AnyUse, ...] = ("batch write", "stream write", "table")


class Lab(Folder):
    """Streams of scope `s` in a folder of a test's own, read and written as programs do.

    Options are those of stream `t`, unless one of them says otherwise. None leaves out one that is there by default.
    """

    def given(self, options: dict[str, Any]) -> dict[str, str]:
        """The options as a program gives them."""
        stream = {} if "stream_pattern" in options else {"stream": "t"}
        all_of_them = {"controller": self.url, "scope": "s", **stream, **options}
        return {name: str(value) for name, value in all_of_them.items() if value is not None}

    # --- reading ------------------------------------------------------------------------------------------------

    def rows_of(self, use: AnyUse, column: str = "*", **options: Any) -> list[dict[str, Any]]:
        """The rows of a read."""
        if use == "stream read":
            with self.followed(column, **options) as query:
                query.processAllAvailable()
                return [row.asDict() for row in self.spark.table(query.name).collect()]
        with self.frame_of(use, **options) as frame:
            return [row.asDict() for row in frame.selectExpr(column).collect()]

    def count(self, use: AnyUse, **options: Any) -> int:
        """The number of events of a read; of metadata, as its table Counts says."""
        if use == "metadata":
            return sum(row["events"] for row in self.rows_of(use, **{"metadata": "Counts", **options}))
        return len(self.rows_of(use, **options))

    @contextmanager
    def frame_of(self, use: AnyUse, **options: Any) -> Iterator[DataFrame]:
        """The DataFrame of a batch read, a metadata table or a table of the catalog."""
        if use == "table":
            with self.table(**options) as name:
                yield self.spark.table(name)
            return
        reader = self.spark.read.format("pravega")
        path = options.pop("path", None)
        yield reader.options(**self.given(options)).load(path)

    @contextmanager
    def followed(self, column: str = "*", **options: Any) -> Iterator[StreamingQuery]:
        """A query with the rows of a streaming read in a table of memory, which has its name. It starts at the earliest
        event if no option says otherwise."""
        if not {"start_stream_cut", "starting_timestamp"} & options.keys():
            options["start_stream_cut"] = "earliest"
        path = options.pop("path", None)
        frame = self.spark.readStream.format("pravega").options(**self.given(options)).load(path)
        query = frame.selectExpr(column).writeStream.format("memory").queryName(f"rows_{uuid.uuid4().hex}").start()
        try:
            yield query
        finally:
            query.stop()
            self.spark.catalog.dropTempView(query.name)

    def batches(self, stream: str, **options: Any) -> list[int]:
        """The events of each batch of a query that reads 25 events, and 25 more when it has."""
        self._fill_by_fives(stream)
        with self.followed(stream=stream, **options) as query:
            settle(query)
            self._fill_by_fives(stream)
            settle(query)
            return sizes(query)

    # --- writing ------------------------------------------------------------------------------------------------

    def put_by(self, use: AnyUse, *events: str, checkpoint: str = "", columns: str = "", **options: Any) -> None:
        """Write events by a job, a query or an INSERT. checkpoint: that of a query, if it is to go on. columns: further
        ones of the rows."""
        if use == "table":
            self._insert(events, options)
        elif use == "batch write":
            path = options.pop("path", None)
            frame = self._texts(events, columns)
            frame.write.format("pravega").options(**self.given(options)).mode("append").save(path)
        else:
            extra = [columns] if columns else []
            checkpoint = checkpoint or uuid.uuid4().hex
            frame = self.source(*events, stream=checkpoint).selectExpr("event", *extra)
            self.run(frame.writeStream, checkpoint, **options)

    def source(self, *events: str, stream: str = "source") -> DataFrame:
        """What queries write: a stream of another root, after some events were appended to it."""
        source = Folder(self.spark, self.path / "source")
        source.put(*events, stream=stream)
        source.root.close()
        options = source.options(stream, start_stream_cut="earliest")
        return self.spark.readStream.format("pravega").options(**options).load()

    def run(self, writer: DataStreamWriter, checkpoint: str = "checkpoint", **options: Any) -> None:
        """Run a query that writes into a stream until it has read what there is."""
        path = options.pop("path", None)
        place = self.checkpoint(checkpoint)
        writer = writer.format("pravega").options(**self.given(options)).option("checkpointLocation", place)
        query = writer.start(path)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def forget_commits(self, checkpoint: str = "checkpoint") -> None:
        """Let a query believe that its last batch was not committed, as after a crash."""
        shutil.rmtree(Path(self.checkpoint(checkpoint)) / "commits")

    def fill(self, *events: str | int, stream: str = "t", **options: Any) -> None:
        """Append events without Spark; a number stands for so many."""
        texts = [[str(n) for n in range(each)] if isinstance(each, int) else [each] for each in events]
        self.put(*itertools.chain(*texts), stream=stream, **options)

    def _fill_by_fives(self, stream: str) -> None:
        """25 events of 10 bytes each, in 5 appends: limits by bytes hold at the end of an append."""
        for first in range(10, 35, 5):
            self.put(*map(str, range(first, first + 5)), stream=stream)

    def _texts(self, events: tuple[str, ...], columns: str = "") -> DataFrame:
        chosen = ", ".join(f"'{event}'" for event in events)
        return self.spark.sql(f"SELECT explode(array({chosen})) AS event{', ' + columns if columns else ''}").coalesce(
            1
        )

    def _insert(self, events: tuple[str, ...], options: dict[str, Any]) -> None:
        """All columns are named by their order, as Spark 4.0 fills in none."""
        once = {name: options.pop(name) for name in list(options) if name.startswith("txn_")}
        some = ", ".join(f"`{name}` = '{value}'" for name, value in once.items())
        insertable = str(options.get("insertable")).lower() == "true"
        nulls = "null, " * (5 if insertable else 4)
        rows = ", ".join(f"({repr(e) if insertable else f'cast({e!r} AS binary)'}, {nulls[:-2]})" for e in events)
        with self.table(**options) as name:
            self.spark.sql(f"INSERT INTO {name} {f'WITH ({some}) ' if some else ''}VALUES {rows}")

    # --- tables -------------------------------------------------------------------------------------------------

    @contextmanager
    def table(self, **options: Any) -> Iterator[str]:
        """A table of the catalog with these options."""
        name = f"table_{uuid.uuid4().hex}"
        path = options.pop("path", None)
        location = f" LOCATION '{path}'" if path else ""
        given = ", ".join(f"'{key}' '{value}'" for key, value in self.given(options).items())
        self.spark.sql(f"CREATE TABLE {name} USING pravega OPTIONS ({given}){location}")
        try:
            yield name
        finally:
            self.spark.sql(f"DROP TABLE {name}")


def settle(query: StreamingQuery) -> None:
    """Let a query read what there is. Spark returns at the end of a poll that found nothing, and that may have begun
    before the events were written: the second poll has not."""
    for _ in range(2):
        query.processAllAvailable()


def sizes(query: StreamingQuery) -> list[int]:
    """The rows of each batch of a query that had any."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def refusal(work: Callable[[], Any]) -> str:
    """The error of a read or write that is refused; empty if it is not."""
    try:
        work()
    except PySparkException as error:
        return str(error)
    return ""


def refused(words: str, work: Callable[[], Any]) -> None:
    """Check that a read or write is refused with an error that has these words."""
    told = refusal(work)
    assert words in told, told or "it is not refused"
