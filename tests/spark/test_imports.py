"""Imported streams in Spark: read, and gone on with from where a query was in Pravega; and the job on executors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pravega_spark import StreamCut, StreamManager
from pravega_spark.jobs import imports
from pravega_spark.jobs.spread import Target
from pravega_spark.streams.model.names import segment_name
from tests.archives import CHUNKED, ROLLING, case, laid_out


def places(frame: DataFrame, name: str) -> list[tuple[str, int, int, str]]:
    rows = frame.collect()
    return sorted(
        (segment_name("demo", name, r.segment_id), r.offset, len(r.event), hashlib.sha256(r.event).hexdigest())
        for r in rows
    )


@pytest.mark.parametrize(
    ("path", "copied", "names"),
    [
        pytest.param(CHUNKED, True, ["truncated"], id="copied"),
        pytest.param(ROLLING, False, ["rides", "truncated"], id="linked"),
        pytest.param(CHUNKED, True, ["rides", "scaled", "truncated", "txns"], id="copied, all", marks=pytest.mark.long),
        pytest.param(
            ROLLING, False, ["rides", "scaled", "truncated", "txns"], id="linked, all", marks=pytest.mark.long
        ),
    ],
)
def test_a_query_goes_on_from_a_cut_of_the_original(
    spark: SparkSession, tmp_path: Path, path: Path, copied: bool, names: list[str]
) -> None:
    one, root = case(path), str(tmp_path / "root")
    source = str(laid_out(one.objects, tmp_path / "lts"))
    outcomes = imports.run(Target(root), source=source, copied=copied, spark=spark)
    imported = [each for each in outcomes if each.step == "import"]
    assert {each.error for each in imported} == {None} and len(imported) == 7 + (path == CHUNKED)  # and a table
    with StreamManager(root, create=False) as manager:
        for name in names:
            frame = spark.read.format("pravega").options(controller=root, scope="demo", stream=name).load()
            due = [(r["segName"], r["offset"], r["len"]) for r in one.rows("readback.jsonl") if r["stream"] == name]
            there = places(frame, name)
            assert [row[:3] for row in there] == sorted(due)
        cut = StreamCut.from_text(json.loads(one.expected["cuts.json"])["truncated/1800"]["tail"])
        query = read(spark, root, "truncated", cut, tmp_path)
        assert sum(batch for batch in query) == 1200
        with manager.create_writer("demo", "truncated") as writer:
            for number in range(30):
                writer.write_event(f"new {number}", routing_key=str(number))
        assert sum(read(spark, root, "truncated", cut, tmp_path)) == 30


def test_a_checkpoint_that_holds_a_cut_of_the_original_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    one, root = case(CHUNKED), str(tmp_path / "root")
    cuts = json.loads(one.expected["cuts.json"])
    labels = [label for label in cuts if label.startswith("scaled/") and cuts[label]["tail"]]
    middle = min(labels, key=lambda label: sum(StreamCut.from_text(cuts[label]["tail"]).positions.values()))
    with StreamManager(root, create=True) as manager:
        manager.import_streams(laid_out(one.objects, tmp_path / "lts"), ["demo/scaled"])
        cut = StreamCut.from_text(cuts[middle]["tail"])
        due = sum(1 for _ in manager.read_events("demo", "scaled", cut))
    assert sum(read(spark, root, "scaled", None, tmp_path)) == 2000
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*lines[:-1], json.dumps(cuts[middle]["tail"])]))
    for name in offsets.parent.iterdir():
        if name.name.startswith(".0"):
            name.unlink()
    for folder in ("offsets", "commits"):
        for file in (tmp_path / "checkpoint" / folder).iterdir():
            if not file.name.lstrip(".").startswith("0"):
                file.unlink()
    assert sum(read(spark, root, "scaled", None, tmp_path)) == due


def read(spark: SparkSession, root: str, name: str, start: StreamCut | None, folder: Path) -> list[int]:
    """How many rows the batches of a query got."""
    options = {"controller": root, "scope": "demo", "stream": name}
    options["start_stream_cut"] = start.as_text() if start is not None else "earliest"
    found: list[int] = []
    frame = spark.readStream.format("pravega").options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return found
