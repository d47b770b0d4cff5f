"""Rows that name the stream that they go to, with Spark: batch jobs, queries, and `foreachBatch`."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from pravega_spark.streams.catalog import Catalog
from tests.spark.folder import Folder, read_all

pytestmark = pytest.mark.spark


def put(folder: Folder, frame: DataFrame, **more: str | int) -> None:
    frame.write.format("pravega").options(controller=folder.url, scope="s", **more).mode("append").save()


def found(folder: Folder) -> dict[str, list[str]]:
    """The events of each stream but the source, sorted."""
    rows = folder.spark.read.format("pravega").options(controller=folder.url, scope="s", stream_pattern="out-.*").load()
    events: dict[str, list[str]] = {}
    for row in rows.collect():
        events.setdefault(row.stream, []).append(bytes(row.event).decode())
    return {name: sorted(some) for name, some in sorted(events.items())}


def test_a_batch_job_a_query_and_foreach_batch(folder: Folder) -> None:
    """Each event goes to the stream of its last digit; a batch that comes again writes nothing."""
    folder.put(*map(str, range(40)), default_num_segments=2)
    routed = ["concat('out-', right(cast(event AS string), 1)) AS stream", "event", "cast(event AS string) routing_key"]
    put(folder, folder.frame().selectExpr(*routed), txn_app_id="job", txn_version=1, default_num_segments=2)
    put(folder, folder.frame().selectExpr(*routed), txn_app_id="job", txn_version=1)
    expected = {f"out-{digit}": sorted(str(number) for number in range(digit, 40, 10)) for digit in range(10)}
    assert found(folder) == expected
    assert len(folder.stream("out-3").snapshot().record.current.segments) == 2

    def copied(name: str) -> None:
        source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=25).selectExpr(*routed)
        if name == "foreachBatch":
            query: Any = source.writeStream.foreachBatch(twice)
        else:
            query = source.writeStream.format("pravega").options(controller=folder.url, scope="s")
        read_all(query.option("checkpointLocation", folder.checkpoint(name)))

    def twice(frame: DataFrame, batch: int) -> None:
        """A batch that is done again, as after a failure behind its commit."""
        for _ in range(2):
            put(folder, frame, txn_app_id="each", txn_version=batch)

    for times, name in enumerate(("writeStream", "foreachBatch"), 2):
        copied(name)
        assert found(folder) == {stream: sorted(some * times) for stream, some in expected.items()}


def test_streams_are_copied_to_another_scope(folder: Folder) -> None:
    for stream in ("out-a", "out-b"):
        folder.put(*(f"{stream}{number}" for number in range(5)), stream=stream)
    read = folder.spark.read.format("pravega").options(controller=folder.url, scope="s", stream_pattern="out-.*").load()
    read.write.format("pravega").options(controller=folder.url, scope="copy").mode("append").save()
    catalog = Catalog(folder.root)
    assert sorted(catalog.streams("copy")) == ["out-a", "out-b"]
    assert [catalog.stream("copy", name).snapshot().events() for name in ("out-a", "out-b")] == [5, 5]
