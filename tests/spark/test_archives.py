"""The long-term storage of real servers in Spark: batches, a query over what is there, and the metadata tables."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions as f

from pravega_spark.source.options import SourceOptions
from pravega_spark.source.tables import TableReader
from pravega_spark.streams.model.names import segment_name
from tests.archives import ARCHIVES, CHUNKED, Case, case, contents, laid_out, retained
from tests.spark.folder import read_all

STREAMS = ["big", "empty", "rides", "scaled", "sealed", "truncated", "txns"]


class Place(NamedTuple):
    """An archive in a folder."""

    spark: SparkSession
    one: Case
    root: str

    def options(self, **more: str) -> dict[str, str]:
        return {"controller": self.root, "scope": "demo", "large_events": "inline", **more}

    def frame(self, **more: str) -> DataFrame:
        return self.spark.read.format("pravega").options(**self.options(**more)).load()


SAME_IN_MORE_OBJECTS = pytest.param(CHUNKED, id=CHUNKED.name, marks=pytest.mark.long)


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(path, id=path.name) for path in ARCHIVES if path != CHUNKED), SAME_IN_MORE_OBJECTS],
)
def place(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    one, folder = case(request.param), laid_out(case(request.param).objects, tmp_path_factory.mktemp("lts"))
    yield Place(spark, one, str(folder))
    assert contents(folder) == {name: hashlib.sha256(data).hexdigest() for name, data in one.objects.items()}


def told(frame: DataFrame) -> DataFrame:
    """What is compared of events: not their bytes, which may be many."""
    text = f.when(f.length("event") < 4096, f.col("event").cast("string"))
    digest, numbers = (
        f.sha2("event", 256).alias("sha"),
        [f.get_json_object(text, f"$.{name}") for name in ("key", "seq")],
    )
    return frame.select("stream", "segment_id", "offset", f.length("event").alias("len"), digest, *numbers)


def check(one: Case, streams: list[str], rows: list[Row]) -> None:
    """Each event is there once, as the server's own client read it, and those of a key are in their order."""
    rows = sorted(rows, key=lambda row: (row[0], row[1], row[2]))
    there = [(segment_name("demo", row[0], row[1]), row[2], row[3]) for row in rows]
    due = [(r["segName"], r["offset"], r["len"]) for r in one.rows("readback.jsonl") if r["stream"] in streams]
    assert sorted(there) == sorted(due)
    digests = defaultdict[str, Any](hashlib.sha256)
    order = defaultdict[tuple[str, str], list[int]](list)
    for stream, number, _, _, digest, key, seq in rows:
        digests[segment_name("demo", stream, number)].update(bytes.fromhex(digest))
        if key is not None:
            order[stream, key].append(int(seq))
    expected = {name: digest for name, digest in one.digests().items() if name.split("/")[1] in streams}
    assert {name: digest.hexdigest() for name, digest in digests.items()} == expected
    written = defaultdict(list)
    for row in one.rows("events.jsonl"):
        if row["stream"] in streams and row.get("txnState", "committed").lower() == "committed":
            written[row["stream"], row["key"]].append(row["seq"])
    due_order = {key: [n for n in seqs if key[0] != "truncated" or n >= 1800] for key, seqs in written.items()}
    due_order = {key: seqs for key, seqs in due_order.items() if seqs and key[0] != "big"}  # which has one segment
    assert {key: seqs for key, seqs in order.items() if key[0] != "big"} == due_order


def test_every_live_event_is_in_a_batch(place: Place) -> None:
    frames = [told(place.frame(stream=name)) for name in STREAMS]
    check(place.one, STREAMS, functools.reduce(DataFrame.union, frames).collect())


def test_cuts_split_a_stream_in_a_batch(place: Place) -> None:
    """Cuts of all epochs of the stream that was scaled; how each of all cuts splits is told without Spark."""
    cuts = json.loads(place.one.expected["cuts.json"])
    frames = []
    for label, count in (("700-1seg", 700), ("700-3seg", 700), ("1400-3seg", 1400), ("1400-2seg", 1400)):
        for where, part in (("end_stream_cut", count), ("start_stream_cut", 2000 - count)):
            frame = place.frame(stream="scaled", **{where: cuts[f"scaled/{label}"]["tail"]})
            frames.append(frame.select(f.lit(f"{label} {where} {part}").alias("what")))
    found = functools.reduce(DataFrame.union, frames).groupBy("what").count().collect()
    assert len(found) == 8
    for row in found:
        assert int(row.what.split()[-1]) == row["count"], row.what


def test_a_query_over_what_is_there(place: Place, tmp_path: Path) -> None:
    """In several batches, none of which brings events of a key before older ones."""
    batches: list[list[Row]] = []
    options = place.options(
        stream="scaled", start_stream_cut="earliest", max_events_per_trigger="600", limit_first_batch="true"
    )
    options["limit_first_batch"] = "true"
    frame = told(place.spark.readStream.format("pravega").options(**options).load())
    query = frame.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
    read_all(query.option("checkpointLocation", str(tmp_path / "checkpoint")))
    assert len(batches) >= 4
    check(place.one, ["scaled"], [row for batch in batches for row in batch])
    latest: dict[str, int] = {}
    for batch in batches:
        first = {key: min(int(row[6]) for row in batch if row[5] == key) for key in {row[5] for row in batch}}
        assert all(latest.get(key, -1) < seq for key, seq in first.items())
        for row in batch:
            latest[row[5]] = max(latest.get(row[5], -1), int(row[6]))


def test_metadata_tables(place: Place) -> None:
    def rows(table: str, **more: str) -> list[Row]:
        return place.frame(metadata=table, **more).collect()

    cuts = json.loads(place.one.expected["cuts.json"])
    assert [row[1] for row in rows("Streams", stream="rides")] == STREAMS
    [info] = rows("StreamInfo", stream="rides")
    assert {info[0], info[1]} == {cuts["rides/0"]["tail"], cuts["rides/2000"]["tail"]}
    due = sorted((row["pk"], row["sk"], row["value"]) for row in place.one.rows("kvt.jsonl"))
    if due:
        there = rows("KeyValueTable", stream="kvt")
        assert due == sorted((row[0].decode(), row[1].decode(), row[2].decode()) for row in there)
    [transaction] = rows("Transactions")
    assert transaction.stream_name == "txns" and transaction.bytes == 18124 + 34481
    segments = rows("Segments", stream="scaled")
    assert [row.segment_id & 0xFFFFFFFF for row in segments] == list(range(6))
    chunks = rows("Chunks", stream="rides")
    assert {row.object for row in chunks} <= place.one.objects.keys()
    assert sum(row.length for row in chunks) >= 2_090_613
    assert rows("StreamCuts") == [] and rows("Losses") == []
    [container] = rows("Containers")
    assert container.online


def test_cuts_that_retention_recorded(tmp_path: Path) -> None:
    objects, head, tail = retained()
    given = {"path": str(laid_out(objects, tmp_path)), "metadata": "StreamCuts", "scope": "demo"}
    reader = TableReader(SourceOptions.parse(given, {}))
    rows = list(reader.read(reader.partitions()[0]))
    assert [row[:3] + row[4:] for row in rows] == [
        ("demo", "truncated", number, cut.as_text(), sum(cut.positions.values()))
        for number, cut in enumerate((head, tail))
    ]
