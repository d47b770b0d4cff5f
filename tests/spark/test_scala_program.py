"""A program written for the Scala connector runs unchanged when its controller's URI is a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark_home import VARIABLE

PROGRAM = Path(__file__).with_name("connector_program.py")


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_program_for_the_scala_connector(tmp_path: Path) -> None:
    assert "pravega_spark" not in PROGRAM.read_text() and "register" not in PROGRAM.read_text()
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
        "--conf spark.sql.shuffle.partitions=2 "
        "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell",
        "PRAVEGA_CONTROLLER_URI": f"file://{tmp_path}/streams",
        "PRAVEGA_SCOPE": "examples",
        "CHECKPOINT_DIR": str(tmp_path / "checkpoint"),
    }
    for name in ("PYTHONPATH", VARIABLE):  # Spark as pip has installed it, unlike in the other tests
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-5000:]
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["streams"] == ["alarms", "readings"]
    assert report["nothing"] == 0
    check(report["readings"], "readings", 4)
    check(report["alarms"], "alarms", 2)
    alarms = [json.loads(row["event"]) for row in report["alarms"]]
    assert sum(alarm["high"] for alarm in alarms) == 99
    places = {json.loads(row["event"])["reading"]: row["segment_id"] for row in report["readings"]}
    assert {alarm["reading"]: alarm["segment_id"] for alarm in alarms} == places


def check(rows: list[dict[str, Any]], stream: str, segments: int) -> None:
    """All 300 events are there, those of a sensor in one segment and in order."""
    assert {(row["scope"], row["stream"]) for row in rows} == {("examples", stream)}
    assert {row["segment_id"] for row in rows} <= set(range(segments)) and len({row["segment_id"] for row in rows}) > 1
    of_sensor: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        event = json.loads(row["event"])
        of_sensor.setdefault(event["sensor"], []).append((row["segment_id"], event["reading"]))
    assert sorted(reading for found in of_sensor.values() for _, reading in found) == list(range(300))
    for number in range(10):
        found = of_sensor[f"sensor-{number}"]
        assert len({segment for segment, _ in found}) == 1
        assert [reading for _, reading in found] == list(range(number, 300, 10))
