"""A million small events with 20 of 256 MiB among them, read by a Spark with little memory in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.root import Root
from pravega_spark.streams.catalog import Catalog
from tests.large_events import MiB, put_many

SMALL, LARGE, SIZE = 1_000_000, 20, 256 * MiB
FITTING = 128 * MiB
"""What is delivered unless an option says otherwise."""
EACH = SMALL // (LARGE + 1)

PROGRAM = """
import json, sys, uuid
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
url, checkpoints = sys.argv[1:]
where = {"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
sums = ["count(*)", "count(event)", "sum(length(event))", "sum(event_number)", "count(DISTINCT event_pointer)"]

def batch(**options):
    frame = spark.read.format("pravega").options(**{**where, **options}, include_metadata=True).load()
    return list(frame.selectExpr(*sums).collect()[0])

def query(**options):
    found = []
    def look(frame, number):
        found.append(list(frame.selectExpr("count(*)", "count(event)").collect()[0]))
    frame = spark.readStream.format("pravega").options(**{**where, **options}).load()
    checkpoint = f"{checkpoints}/{uuid.uuid4()}"
    writer = frame.writeStream.foreachBatch(look).option("checkpointLocation", checkpoint)
    read_all(writer)
    return [sum(column) for column in zip(*found)], len(found), max(rows for rows, _ in found)

def failing():
    try:
        batch()
    except Exception as error:
        return str(error)

for run in (
    lambda: batch(large_events="reference"),
    lambda: query(large_events="reference"),
    lambda: query(large_events="reference", max_bytes_per_trigger=64 << 20),
    lambda: query(large_events="reference", max_events_per_trigger=100_000),
    failing,
    lambda: batch(stream="fitting"),
    lambda: batch(stream="fitting", large_events="inline", max_event_bytes=1),
    lambda: query(stream="fitting", large_events="inline"),
):
    print(json.dumps(run()), flush=True)
"""


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_with_two_gib(tmp_path: Path) -> None:
    url = str(tmp_path / "root")
    with Root.open(url) as root:
        catalog = Catalog(root)
        catalog.create_scope("s")
        for name, size in (("t", SIZE), ("fitting", FITTING)):
            catalog.create_stream("s", name, None, None, ())
            put_many(catalog.stream("s", name), url, SMALL, LARGE, size)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(tmp_path / "program.py"), url, str(tmp_path / "checkpoints")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1700)
    results: list[Any] = list(map(json.loads, done.stdout.splitlines()))
    assert done.returncode == 0, (results, done.stderr[-3000:])
    read, followed, by_bytes, by_events, message, fitting, inline, followed_inline = results
    small = EACH * (LARGE + 1)
    rows = small + LARGE
    numbers = rows * (rows - 1) // 2
    assert read == [rows, small, small * 100, numbers, rows]
    assert followed == [[rows, small], 1, rows]
    assert by_bytes[0] == by_events[0] == [rows, small]
    assert by_bytes[1] == 2 * LARGE + 1 and by_bytes[2] == EACH
    assert by_events[1] == -(-rows // 100_000) and by_events[2] == 100_000
    offset = EACH * 108
    for part in ("Stream s/t, segment 0", f"an event of {SIZE} bytes exceeds option 'max_event_bytes' (134217728)"):
        assert part in message
    places = [offset + number * (EACH * 108 + SIZE + 8) for number in range(LARGE)]
    assert any(f"offset {at}: " in message and f"s/t/0.#epoch.0:{at}-{SIZE + 8}" in message for at in places)
    assert fitting == inline == [rows, rows, small * 100 + LARGE * FITTING, numbers, rows]
    assert followed_inline == [[rows, rows], 1, rows]
