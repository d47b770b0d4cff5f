"""The columns of option `time_window`, of batches and micro-batches, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pravega_spark import StreamManager
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.columns import read_schema
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        manager.create_scope("s")
        for name in ("t", "silent"):
            manager.create_stream("s", name, 2)
        yield manager


def write(manager: StreamManager, times: range) -> None:
    with manager.create_writer("s", "t", producer="clock") as writer:
        for time in times:
            writer.note_time(time)
            writer.write_event(str(time), routing_key=str(time))
        writer.flush()


def parsed(manager: StreamManager, stream: str = "t", **more: Any) -> SourceOptions:
    given = {"controller": manager.root.stores.chunks.root, "scope": "s", "stream": stream, "time_window": "true"}
    return SourceOptions.parse({**given, **more}, {})


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read(options: SourceOptions, *columns: str) -> list[dict[str, Any]]:
    reader = BatchReader(options, dict.fromkeys(columns, True) or None)
    return [row for part in reader.partitions() for row in rows(reader.read(part))]


def bounds(found: list[dict[str, Any]]) -> set[tuple[int | None, int | None]]:
    return {(row["lower_time_bound"], row["upper_time_bound"]) for row in found}


def test_the_bounds_of_a_batch_read_are_those_of_its_ends(manager: StreamManager) -> None:
    write(manager, range(10, 20))
    found = read(parsed(manager))
    assert len(found) == 10 and list(found[0])[-2:] == ["lower_time_bound", "upper_time_bound"]
    assert bounds(found) == {(10, None)}
    middle = manager.next_stream_cut("s", "t", "head", 40)
    window = manager.time_window("s", "t", middle)
    assert window.lower_time_bound is not None and window.upper_time_bound is not None
    before = read(parsed(manager, end_stream_cut=middle.as_text()))
    after = read(parsed(manager, start_stream_cut=middle.as_text()))
    assert bounds(before) == {(10, window.upper_time_bound)} and bounds(after) == {(window.lower_time_bound, None)}
    assert all(int(row["event"]) >= window.lower_time_bound for row in after)
    assert len(before) + len(after) == 10


def test_bounds_of_several_streams_and_of_chosen_columns(manager: StreamManager) -> None:
    write(manager, range(3, 5))
    with manager.create_writer("s", "silent") as writer:
        writer.write_event("nobody has noted a time")
    found = read(parsed(manager, "t,silent"))
    by_stream = {row["stream"]: (row["lower_time_bound"], row["upper_time_bound"]) for row in found}
    assert by_stream == {"t": (3, None), "silent": (None, None)}
    assert read(parsed(manager), "lower_time_bound", "event")[0] == {"lower_time_bound": 3, "event": b"3"}
    (first, *_) = read(parsed(manager, insertable="true"))
    assert (first["event"], first["routing_key"], first["lower_time_bound"]) in {("3", None, 3), ("4", None, 3)}
    assert "lower_time_bound" not in read_schema(parsed(manager, time_window="false"))


def test_each_micro_batch_has_its_own(manager: StreamManager) -> None:
    """Once a lower bound is there, all earlier times came in earlier micro-batches."""
    options = parsed(manager, start_stream_cut="earliest")
    reader = MicroBatchReader(options)
    offset, seen = reader.initialOffset(), []
    for start in (0, 10, 20):
        write(manager, range(start, start + 10))
        end = reader.latestOffset(offset, ReadAllAvailable())
        batch = [row for part in reader.partitions(offset, end) for row in rows(reader.read(part))]
        ((lower, _),) = bounds(batch)
        assert lower is None or all(int(row["event"]) >= lower for row in batch)
        seen.append(lower)
        offset = end
    assert seen == sorted(seen, key=lambda bound: -1 if bound is None else bound) and (seen[-1] or 0) >= 19
