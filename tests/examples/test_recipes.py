"""Recipes: a stream kept as a table and published from it, exactly once also after a crash, and the payloads of events.

A recipe that needs jars runs as a program of its own, with a Spark session of its own. If the jar that it needs is not
known for the installed version of Spark, its tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from ast import literal_eval
from importlib import import_module
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples import json_events, parquet_table
from tests.examples import table_checks
from tests.spark.cluster import kill
from tests.support.jars import AVRO, DELTA, ICEBERG, PROTOBUF, TREE, jars

pytestmark = pytest.mark.timeout(1800)

EXACTLY_ONCE = {
    "repeated": True,
    "unlike stream": [],
    "repeated published": True,
    "unlike stream, in the end": [],
    "unlike published": [],
    "count": 400,
    "gaps": [],
}


def environment(what: str | None) -> dict[str, str]:
    """That of a program whose Spark session has the jars of an artifact."""
    paths = f"--jars {','.join(map(str, jars(what)))}" if what else ""
    return {
        **os.environ,
        "PYTHONPATH": str(TREE),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {paths} --conf spark.ui.enabled=false "
        # Delta reads its log with 50 tasks otherwise, for every version.
        "--conf spark.databricks.delta.snapshotPartitions=2 --conf spark.ui.showConsoleProgress=false "
        "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2 --conf spark.log.level=ERROR "
        "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell",
    }


def program(what: str | None, *arguments: str) -> list[str]:
    """Run a program in a Spark session with the jars of an artifact; returns its lines."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=TREE, env=environment(what), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout.strip().splitlines()


def printed(what: str, example: str) -> Any:
    """What an example prints that is run as its users run it."""
    return literal_eval(program(what, f"examples/{example}.py")[-1])


def found(what: str | None, recipe: str, folder: Path, *checks: str) -> Any:
    """What checks of a recipe find (tests.examples.table_checks)."""
    return json.loads(program(what, "-m", "tests.examples.table_checks", recipe, str(folder), *checks)[-1])


def wait_for_batches(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Wait until the query that makes the table has committed so many batches, or its process has ended."""
    while process.poll() is None and table_checks.committed_batches(folder) < count:
        time.sleep(0.1)


def test_json(spark: SparkSession, tmp_path: Path) -> None:
    sums, bad, schema = json_events.run(spark, tmp_path)
    assert sums == [(1, 3.5), (2, 3.0)] and bad == ["not JSON"]
    assert schema == "STRUCT<customer: STRING, items: ARRAY<STRUCT<name: STRING, price: DOUBLE>>, order: BIGINT>"


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.long
def test_avro() -> None:
    assert printed(AVRO, "avro_events") == ([(1, "ann", "unknown"), (2, "ben", "unknown")], 1)


@pytest.mark.spark
@pytest.mark.processes
def test_protobuf() -> None:
    assert printed(PROTOBUF, "protobuf_events") == ([(1, "ann"), (2, "ben")], 1)


def test_parquet(spark: SparkSession, tmp_path: Path) -> None:
    recipe = table_checks.Recipe(spark, "parquet_table", tmp_path)
    assert table_checks.exactly_once(recipe) == EXACTLY_ONCE


@pytest.mark.long
def test_parquet_example(spark: SparkSession, tmp_path: Path) -> None:
    assert parquet_table.run(spark, tmp_path) == (400, 400)


@pytest.mark.long
def test_parquet_is_exactly_once_for_readers_that_know_the_list(spark: SparkSession, tmp_path: Path) -> None:
    """And only with the checkpoint: a query with a new one counts batches from 0, which the list has already."""
    checks = ("exactly_once", "files_without_a_list", "another_checkpoint")
    result = table_checks.found_by(table_checks.Recipe(spark, "parquet_table", tmp_path), *checks)
    assert result == {
        "exactly_once": EXACTLY_ONCE,
        "files_without_a_list": {"unlike stream": [], "rows in all files": 500},
        "another_checkpoint": {"before": 450, "count": 450, "positions": 450},
    }


@pytest.mark.spark
@pytest.mark.processes
def test_delta(tmp_path: Path) -> None:
    assert found(DELTA, "delta_table", tmp_path, "exactly_once", "another_checkpoint") == {
        "exactly_once": EXACTLY_ONCE,
        # The transactions of another query: all events once more.
        "another_checkpoint": {"before": 400, "count": 850, "positions": 450},
    }


@pytest.mark.spark
@pytest.mark.processes
def test_changes_of_a_delta_table() -> None:
    changes = printed(DELTA, "delta_changes")
    alice = [change for change in changes if change[0] == "alice"]
    assert alice == [("alice", "insert", 10), ("alice", "update", 15), ("alice", "update", 10)]
    assert [change for change in changes if change[0] == "bob"] == [("bob", "insert", 20), ("bob", "delete", 20)]
    assert len(changes) == 5


@pytest.mark.spark
@pytest.mark.processes
def test_iceberg(tmp_path: Path) -> None:
    checks = ("exactly_once", "expired_snapshots", "another_checkpoint")
    assert found(ICEBERG, "iceberg_table", tmp_path, *checks) == {
        "exactly_once": EXACTLY_ONCE,
        # The last batch was repeated when the table had no trace of it.
        "expired_snapshots": {"count": 500, "positions": 450},
        "another_checkpoint": {"before": 500, "count": 1000, "positions": 500},
    }


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "recipe"), [(None, "parquet_table"), (DELTA, "delta_table"), (ICEBERG, "iceberg_table")]
)
def test_drivers_that_are_killed(what: str | None, recipe: str, tmp_path: Path) -> None:
    import_module(f"examples.{recipe}").write_orders(tmp_path, 0, 400)
    command = [sys.executable, "-m", "tests.examples.table_checks", recipe, str(tmp_path), "small_batches"]
    log = tmp_path / "log"
    for round_ in range(3):
        before = table_checks.committed_batches(tmp_path)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=TREE, env=environment(what), stdout=output, stderr=STDOUT, start_new_session=True
            )
        wait_for_batches(process, tmp_path, before + 3)
        time.sleep(0.2 * round_)  # at another point of a batch
        assert process.poll() is None, log.read_text(errors="replace")[-5000:]
        kill(process)
    result = found(what, recipe, tmp_path, "small_batches")["small_batches"]
    assert result["unlike stream"] == [] and result["batches"] >= 20
