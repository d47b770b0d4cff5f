"""The Spark data source `pravega`: returns schemas, readers and writers to Spark.

Every Spark session imports it, so heavy modules are imported where they are used. Options are checked wherever Spark
passes them. They reach the executors inside readers and writers, and never appear in a plan or an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    import pyspark

    raise ImportError(
        f"format('pravega') needs Spark 4.0 or later, but this is PySpark {pyspark.__version__}: install "
        "'pyspark>=4.0' and use a cluster of that version. StreamManager and the command line work without Spark."
    ) from error

from pravega_spark.source.columns import chosen_columns, read_columns, read_schema
from pravega_spark.source.failures import for_users

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pravega_spark.source.option_table import Use
    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.values.columns import ValueColumns

_LOGGED: set[int] = set()
"""Hashes of the options whose warnings were logged: of streaming writes, and of reads for which Spark does not call
`schema`."""

_MOST_LOGGED = 10_000

_NAMING = frozenset({"controller", "path", "scope", "stream", "streampattern", "metadata"})
"""Options, in plain spelling. At least one of them is given whenever a user names what to read or write."""


class PravegaDataSource(DataSource):
    """`format("pravega")`: streams in a folder or a bucket. Spark finds it without registration."""

    @classmethod
    def name(cls) -> str:
        return "pravega"

    def _options(
        self,
        kept: Mapping[str, str] | None = None,
        warn: bool = True,
        rows_name_streams: bool = False,
        use: Use | None = None,
    ) -> SourceOptions:
        """The options, checked. warn: log ignored options. For a read, only `schema` does so."""
        from pravega_spark.source.options import SourceOptions

        given = {**(kept or {}), **self.options}
        return SourceOptions.parse(given, warn=warn, rows_name_streams=rows_name_streams, use=use)

    def _is_new(self, use: Use | None = None) -> bool:
        """Whether this process gets these options for the first time, in a use. Spark creates a writer for each
        micro-batch, and several readers."""
        if len(_LOGGED) >= _MOST_LOGGED:  # options with a number that grows with each batch are always new
            _LOGGED.clear()
        before = len(_LOGGED)
        _LOGGED.add(hash((use, frozenset(self.options.items()))))
        return len(_LOGGED) > before

    def _warn_of_no_effect(self, use: Use) -> None:
        """Log options that have no effect in this use; not those kept with a table, as it is both read and written."""
        if self._is_new(use):
            from pravega_spark.source.option_reader import OptionReader

            OptionReader(self.options).warn_of_no_effect(use)

    def _to_read(self, schema: StructType, use: Use) -> SourceOptions:
        """The options of a read whose columns are known.

        Spark does not call `schema` for tables and for schemas given by a user, so ignored options are logged here.
        """
        kept = self._of_table(schema)
        self._check_named(kept)
        options = self._options(kept, warn=False)
        given = {field.name: field.dataType.simpleString() for field in schema}
        own = given if options.value_format == "raw" else {}
        not_logged = bool(kept) or (options.metadata is None and own != read_columns(options))
        self._warn_of_no_effect(use if options.metadata is None else "metadata")
        options = self._options(kept) if not_logged and self._is_new() else options
        return self._with_stored_format(options) if options.value_format == "avro" else options

    @staticmethod
    def _with_stored_format(options: SourceOptions) -> SourceOptions:
        """The options with the schema of values that the stream keeps, if a read of values has no other."""
        if options.value_format == "raw" or options.value_schema is not None:
            return options
        if options.metadata is not None or options.is_multi_stream:
            return options
        from pravega_spark.source.value_columns import with_stored_format

        return with_stored_format(options)

    def _check_named(self, kept: Mapping[str, str]) -> None:
        """Raise ValueError if no option names a stream or a root, as with a table that was created without its options.

        Spark does not tell a write that it creates such a table (saveAsTable, CREATE TABLE … AS SELECT).
        """
        from pravega_spark.source.option_table import plain

        if not kept and not _NAMING & {plain(name) for name in self.options}:
            raise ValueError(
                "Missing required option 'scope', and 'stream' and 'controller' as well. If this is a table of the "
                "catalog, it was created without its options, by saveAsTable, by CREATE TABLE … AS SELECT, or with a "
                "list of columns: drop it, which deletes no events, and create it with CREATE TABLE t USING pravega "
                "OPTIONS (controller '…', scope '…', stream '…', insertable 'true'). If this inserts into a table, "
                "name the columns: INSERT INTO t (event, routing_key) SELECT …; a query writes with format('pravega'), "
                "the options and start(), not with toTable."
            )

    def _to_write(
        self, schema: StructType, use: Use, kept: Mapping[str, str] | None = None, warn: bool = True
    ) -> SourceOptions:
        options = self._options(kept, warn, rows_name_streams="stream" in schema.names, use=use)
        if options.metadata is not None:
            raise ValueError("Option 'metadata' is for batch reads only: remove it from this write.")
        if options.is_multi_stream:
            raise ValueError(
                "Option 'stream' names several streams, and 'stream_pattern' is for reads: give the one that all rows "
                "go to, or leave the option out, and each row goes to the stream that its column 'stream' names."
            )
        self._warn_of_no_effect(use)
        return options

    @for_users
    def schema(self) -> str | StructType:
        options = self._with_stored_format(self._options())
        columns: str | StructType = read_schema(options)
        if options.value_format != "raw" and options.metadata is None:
            from pravega_spark.source.value_columns import schema_with_values

            columns = schema_with_values(options, read_columns(options))
        elif options.metadata is not None:
            from pravega_spark.source.tables import table_schema

            columns = table_schema(options.metadata)
        from pravega_spark.source.option_table import TABLE_PREFIX

        of_table = any(key.lower().startswith(TABLE_PREFIX) for key in self.options)
        if of_table and options.storage:
            logging.getLogger(__name__).warning(
                "Storage options are not kept with a table, as the catalog shows what it keeps: give them when you "
                "read the table, as in spark.read.options(…).table(…), use a temporary view, or your platform's "
                "credentials. Not kept are %s.",
                ", ".join(f"storage.{name}" for name in options.storage),
            )
        return _keeping(self.options, columns) if of_table else columns

    @for_users
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._to_read(schema, "batch read")
        if options.metadata is not None:
            from pravega_spark.source.tables import TableReader

            return TableReader(options)
        from pravega_spark.source.batch import BatchReader

        if options.push_filters:
            from pravega_spark.source.spark_api.filters import FilteredReader, takes_filters

            if takes_filters():
                return FilteredReader(options, chosen_columns(schema, options), _values(schema, options))
        return BatchReader(options, chosen_columns(schema, options), _values(schema, options))

    @for_users
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pravega_spark.source.micro_batch import MicroBatchReader
        from pravega_spark.source.spark_api.stream_reader import PositionKeeper, tells_position

        options = self._to_read(schema, "stream read")
        if options.metadata is not None:
            raise ValueError("Option 'metadata' is for batch reads only: use spark.read instead of spark.readStream.")
        reader = MicroBatchReader(options, chosen_columns(schema, options), _values(schema, options))
        return reader if tells_position() else PositionKeeper(reader, options.limit_first_batch)

    @for_users
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pravega_spark.source.sink import BatchWriter

        if overwrite:
            raise ValueError(
                "Save mode 'overwrite' is not supported: events can only be appended. Use mode('append'). In SQL, "
                "use INSERT INTO instead of INSERT OVERWRITE."
            )
        kept = self._of_table(schema)
        self._check_named(kept)
        return BatchWriter(self._to_write(schema, "batch write", kept), schema, of_table=bool(kept))

    @for_users
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pravega_spark.source.sink import WRITE_COLUMNS, StreamWriter
        from pravega_spark.source.spark_api.stream_writer import RowGatherer, gets_batches

        self._check_named({})
        options = self._to_write(schema, "stream write", warn=self._is_new())
        if overwrite and not options.append_complete_results:
            raise ValueError(
                "Output mode 'complete' would append the whole result again with each micro-batch: use foreachBatch to "
                "write the rows that changed, with their key as routing_key, or output mode 'append' with a watermark; "
                "or set option 'append_complete_results' to true."
            )
        writer = StreamWriter(options, schema)
        if gets_batches():
            return writer
        structured = options.value_format != "raw"
        return RowGatherer(writer, schema, None if structured else WRITE_COLUMNS)

    def _of_table(self, schema: StructType) -> dict[str, str]:
        """The options of the catalog table that is read or written; none if the given options name a stream."""
        kept = [(field.metadata or {}).get(_KEPT, {}) for field in schema]
        return kept[0] if "stream" not in self.options and kept.count(kept[0]) == len(kept) else {}


def _values(schema: StructType, options: SourceOptions) -> ValueColumns | None:
    """The columns of a read that are fields of values."""
    if options.value_format == "raw":
        return None
    from pravega_spark.source.value_columns import chosen_values

    return chosen_values(schema, options)


# --- tables of the catalog ---------------------------------------------------------------------------------------
# Spark passes a table's options to `schema` only, when the table is created. They are kept in the metadata of its
# columns, which Spark passes whenever the table is read, and with an INSERT INTO that had to adapt the rows to the
# table. Rows that fit as they are have the metadata of their own source, maybe of another table: see `of_table` of the
# writer. Credentials are not kept.

_KEPT = "pravega"


def _keeping(options: Mapping[str, str], columns: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    from pravega_spark.source.options import table_options

    kept = {_KEPT: table_options(options)}
    if isinstance(columns, StructType):
        fields = columns.jsonValue()["fields"]
        return StructType.fromJson({"fields": [{**each, "metadata": {**each["metadata"], **kept}} for each in fields]})
    fields = []
    for name, kind in (column.split() for column in columns.split(",")):
        # Spark's SQL parser is not available in this process; two types have other names in its JSON.
        kind = {"bigint": "long", "int": "integer"}.get(kind, kind)
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": kept})
    return StructType.fromJson({"fields": fields})
