"""Spark writes and reads a signed root (W20): its tasks find the key by the path that the options have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.root import Root
from engine.signatures import VARIABLE
from tests.support.signed import KEY, SECRET, key_file


def test_a_signed_root_is_written_and_read_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    file, url = key_file(tmp_path), str(tmp_path / "root")
    named: dict[str, Any] = {"controller": url, "scope": "s", "stream": "a"}
    options = {**named, "settings": f"signing_key_file={file}"}
    rows = spark.range(0, 500, 1, 2).selectExpr("cast(id as string) as event", "cast(id as string) as routing_key")
    rows.coalesce(2).write.format("pravega").options(**options).mode("append").save()
    with Root.open(url, create=False, settings={"signing_key_file": file}) as root:
        assert root.config.signed == KEY.id
    frame = spark.read.format("pravega").options(**options).load()
    frame.explain(True)
    assert SECRET.hex() not in capsys.readouterr().out
    assert {bytes(row.event) for row in frame.collect()} == {str(number).encode() for number in range(500)}
    query = (
        spark.readStream.format("pravega")
        .options(**options, start_stream_cut="earliest")
        .load()
        .writeStream.format("memory")
        .queryName("signed_events")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table("signed_events").count() == 500
    with pytest.raises(PySparkException, match="'signing_key_file'"):
        spark.read.format("pravega").options(**named).load().count()
