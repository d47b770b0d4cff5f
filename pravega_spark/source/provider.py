"""The Spark data source `pravega`: tells Spark the schema and makes the readers and writers.

Imported by every Spark session, so nothing heavy is imported before it is used. Options are checked wherever Spark
hands them over; they travel to the executors inside the readers and writers, never in a plan or an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pravega_spark.source.options import SourceOptions

READ_SCHEMA = "event binary, scope string, stream string, segment_id bigint, offset bigint"
METADATA_COLUMNS = ", timestamp timestamp, event_pointer string, event_number bigint"


class PravegaDataSource(DataSource):
    """`format("pravega")`: streams in a folder or a bucket. Found by Spark without registration."""

    @classmethod
    def name(cls) -> str:
        return "pravega"

    def _options(self) -> SourceOptions:
        from pravega_spark.source.options import SourceOptions

        return SourceOptions.parse(dict(self.options))

    def schema(self) -> str:
        from pravega_spark.source.tables import table_schema

        options = self._options()
        if options.metadata is not None:
            return table_schema(options.metadata)
        return READ_SCHEMA + METADATA_COLUMNS if options.include_metadata else READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        if options.metadata is not None:
            from pravega_spark.source.tables import TableReader

            return TableReader(options)
        from pravega_spark.source.batch import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pravega_spark.source.micro_batch import MicroBatchReader

        return MicroBatchReader(self._options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pravega_spark.source.sink import BatchWriter

        if overwrite:
            raise ValueError("Save mode 'overwrite' is not supported: events can only be appended. Use mode('append').")
        return BatchWriter(self._options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pravega_spark.source.sink import StreamWriter

        return StreamWriter(self._options(), schema)  # overwrite: output mode `complete`, appended as by the original
