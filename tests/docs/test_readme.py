"""The code of README's quick starts and the first snippets of the Spark guide run, and README's commands are there."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pravega_spark import StreamError, StreamManager

PROJECT = Path(__file__).resolve().parents[2]
README = (PROJECT / "README.md").read_text("utf-8")


def code(language: str, *, containing: str) -> str:
    """README's block of code that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def test_its_commands_of_make_are_there() -> None:
    commands = re.findall(r"^    make ([\w-]+) ", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    targets = re.findall(r"^([\w-]+):.* ## ", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {*commands, "help", "docs", "bench"} <= set(targets)


def test_the_quick_start_of_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path / "streams")

    def seal() -> None:
        """End the stream, which the quick start follows until then."""
        while not (tmp_path / "streams" / "_system" / "pravega.json").exists():
            time.sleep(0.05)
        with StreamManager(root) as manager:
            while not _has_events(manager):
                time.sleep(0.05)
            manager.seal_stream("examples", "readings")

    sealing = threading.Thread(target=seal, daemon=True)
    sealing.start()
    exec(code("python", containing="StreamManager").replace("/data/streams", root), {})
    sealing.join()
    assert "21.5" in capsys.readouterr().out


def _has_events(manager: StreamManager) -> bool:
    try:
        return manager.stream_info("examples", "readings").events > 0
    except StreamError:  # not created yet
        return False


@pytest.mark.timeout(600)
def test_the_quick_start_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "streams")
    exec(code("python", containing="SparkSession").replace("/data/", f"{tmp_path}/"), {})
    with StreamManager(root) as manager:
        assert [manager.stream_info("examples", name).events for name in ("rides", "copy")] == [1000, 1000]
    made, query = code("sql", containing="rides").replace("/data/streams", root).strip().rstrip(";").split(";\n")
    spark.sql(made)
    try:
        assert sum(row[1] for row in spark.sql(query).collect()) == 1000
    finally:
        spark.catalog.dropTempView("rides")


@pytest.mark.timeout(600)
def test_the_spark_guide_begins_with_code_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "spark.md").read_text("utf-8").replace("/data/", f"{tmp_path}/")
    read, write, follow = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:3]
    names: dict[str, Any] = {"spark": spark}
    where, read = read.split("\n", 1)
    for snippet in (where, write, read, follow):
        exec(snippet, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    with StreamManager(str(tmp_path / "streams")) as manager:
        assert [manager.stream_info("taxi", name).events for name in ("rides", "copy")] == [2, 2]
