"""The same on S3: one batch and one streaming round trip, with credentials as storage options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chunkstore.testing.s3_server import S3Server


@pytest.fixture
def options(s3_server: S3Server) -> dict[str, Any]:
    storage = {f"storage.{name}": _text(value) for name, value in s3_server.storage_options().items()}
    return {"controller": f"{s3_server.make_bucket()}/streams", "scope": "s", "default_num_segments": 3, **storage}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_batch_and_streaming(spark: SparkSession, options: dict[str, Any], tmp_path: Path) -> None:
    assert "storage.key" in options and "storage.secret" in options
    small = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) AS event", "cast(id % 7 AS string) AS routing_key")
    large = spark.range(100, 4_100, 1, 2).selectExpr("concat(cast(id AS string), repeat('.', 200)) AS event")
    for frame in (small, large):
        frame.write.format("pravega").options(stream="in", **options).mode("append").save()

    def numbers(stream: str) -> list[int]:
        frame = spark.read.format("pravega").options(stream=stream, **options).load()
        rows = frame.selectExpr("cast(split_part(cast(event AS string), '.', 1) AS int) AS id").collect()
        return sorted(row.id for row in rows)

    assert numbers("in") == list(range(4_100))

    def copy() -> list[int]:
        source = spark.readStream.format("pravega").options(stream="in", start_stream_cut="earliest", **options)
        sink = source.option("max_events_per_trigger", 2_500).load().selectExpr("event").writeStream.format("pravega")
        sink = sink.options(stream="out", **options).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert copy() == [2_500, 1_600]
    assert copy() == []
    assert numbers("out") == list(range(4_100))
