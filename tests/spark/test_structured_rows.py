"""Rows of Spark as structured events and back, beside Spark's own functions for them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Row

from tests.spark.folder import Folder

KINDS = (
    "bo boolean, ti tinyint, sm smallint, i int, bi bigint, f float, d double, dec decimal(20,4), s string, b binary, "
    "da date, ts timestamp, tn timestamp_ntz, l array<string>, ls array<struct<x:int,y:string>>, m map<string,bigint>, "
    "st struct<a:int,b:struct<c:string,d:date>>"
)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000)
FULL: tuple[Any, ...] = (
    *(True, -128, 32767, -(2**31), 2**63 - 1, 1.5, 0.1, Decimal("-1234567890123456.7890"), 'é"\\\n\x01😀 /', b"\0\xff"),
    *(AT.date(), AT, AT, ["a", None, ""], [(1, "x"), (None, None), None], {"k": 1, "n": None}, (7, ("z", AT.date()))),
)
EMPTY: tuple[Any, ...] = (None,) * len(FULL)


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=str)


def test_what_spark_encodes_is_decoded_and_the_reverse(folder: Folder) -> None:
    rows = folder.spark.createDataFrame([FULL, EMPTY], KINDS).coalesce(1)
    folder.append(rows.selectExpr("to_json(struct(*)) AS event"), "spark")
    folder.append(rows, "source", value_format="json")
    names = rows.columns
    read = folder.spark.read.format("pravega").options(**folder.options("spark", value_format="json"))
    assert rows_of(read.schema(KINDS).load().select(*names)) == rows_of(rows)
    raw = folder.spark.read.format("pravega").options(**folder.options("source")).load()
    decoded = raw.selectExpr(f"from_json(cast(event AS string), '{KINDS}') AS v").select("v.*")
    assert rows_of(decoded) == rows_of(rows)
    both = folder.spark.read.format("pravega").options(
        **folder.options("source", value_format="json", value_schema=KINDS)
    )
    assert both.load().columns == [*names, "scope", "stream", "segment_id", "offset"]
    assert both.load().select("scope", "st.b.c").where("c = 'z'").collect() == [("s", "z")]
    assert both.load().count() == 2


def test_a_query_copies_rows_and_sql_inserts_them(folder: Folder) -> None:
    spark = folder.spark
    folder.append(spark.createDataFrame([(1, "a", [dt.date(2026, 1, 1)])], "id int, name string, l array<date>"), "one",
                  value_format="json")  # fmt: skip
    schema = "id int, name string, l array<date>, ts timestamp"
    stream = (
        spark.readStream.format("pravega")
        .schema(schema)
        .options(**folder.options("one", value_format="json", start_stream_cut="earliest"))
    )
    query = (
        stream.load()
        .selectExpr("id + 1 AS id", "name", "l", "timestamp '2026-01-01 00:00:00' AS at", "name AS routing_key")
        .writeStream.format("pravega").options(**folder.options("two", value_format="json"))
        .option("checkpointLocation", str(folder.path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(90)
    spark.sql(
        f"CREATE TABLE typed USING pravega OPTIONS (controller '{folder.url}', scope 's', stream 'two', insertable "
        "'true', value_format 'json', value_schema 'id bigint, name string, at timestamp')"
    )
    try:
        spark.sql("INSERT INTO typed SELECT 9, 'sql', null, 'k', null, null, null, null")  # Spark 4.0 wants all
        assert spark.sql("SELECT id, name, at IS NULL FROM typed ORDER BY id").collect() == [
            (2, "a", False),
            (9, "sql", True),
        ]
    finally:
        spark.sql("DROP TABLE typed")
