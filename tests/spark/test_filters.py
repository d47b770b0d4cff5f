"""Filters of a query that Spark pushes down: why a read takes none by itself, and what it does with them if asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tests.spark.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # from 4.1 on

pytestmark = pytest.mark.spark

SETTING = "spark.sql.python.filterPushdown.enabled"


class Pruning(DataSource):
    """A source of two partitions with a row each, which leaves out the second one if it is told of a filter."""

    @classmethod
    def name(cls) -> str:
        return "pruning"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: StructType) -> DataSourceReader:
        class Reader(DataSourceReader):
            count = 2

            def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
                self.count = 1
                return filters

            def partitions(self) -> list[InputPartition]:
                return [InputPartition(number) for number in range(self.count)]

            def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
                yield (partition.value,)

        return Reader()


@pytest.mark.long
def test_spark_plans_other_queries_by_the_filters_of_one(spark: SparkSession) -> None:
    """When this fails Spark has mended it: then a read may take filters without being asked (spark-versions.md)."""
    spark.dataSource.register(Pruning)
    spark.conf.set(SETTING, "true")
    try:
        frame = spark.read.format("pruning").load()
        assert frame.count() == 2
        assert frame.where("number = 0").count() == 1
        assert frame.count() == 1, "wrong: a row is missing"
    finally:
        spark.conf.unset(SETTING)


@pytest.mark.parametrize("setting", ["false", "true"])
def test_a_read_is_right_whatever_the_setting_says(folder: Folder, setting: str) -> None:
    for stream in ("a", "b"):
        folder.put(*(f"{stream}{number}" for number in range(20)), stream=stream)
    folder.spark.conf.set(SETTING, setting)
    try:
        frame = folder.frame("a,b")
        assert [frame.where(f"stream = '{name}' AND offset >= 0").count() for name in "ab"] == [20, 20]
        assert frame.count() == 40
    finally:
        folder.spark.conf.unset(SETTING)


def test_a_query_whose_filters_are_pushed_down(folder: Folder) -> None:
    folder.put(*(f"{number}" for number in range(20)), default_num_segments=2)
    folder.put("other", stream="other")
    folder.spark.conf.set(SETTING, "true")
    try:
        whole = folder.frame("t,other").count()
        assert whole == 21
        for condition in (
            "stream = 'other'",
            "segment_id IN (0, 7)",
            "offset >= 20 AND offset < 60",
            "stream LIKE 'o%'",
        ):
            expected = folder.frame("t,other").where(condition).count()
            assert folder.frame("t,other", push_filters=True).where(condition).count() == expected
    finally:
        folder.spark.conf.unset(SETTING)
