"""Lets Spark 4 find `format("pravega")` by itself: it looks for `DefaultSource` in packages named `pyspark_*`."""

from pravega_spark.source.provider import PravegaDataSource as DefaultSource

__all__ = ["DefaultSource"]
