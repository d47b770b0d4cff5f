"""Data that is gone, or somewhere else, when it is read: an error that names it, or the right bytes, never others."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pravega_spark.errors import TruncatedData
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.streams.model.cuts import StreamCut
from tests.spark.folder import Folder

GRACE = 0.2
"""Seconds: how long this root keeps frames and chunks that are not needed any more."""


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(spark, tmp_path, grace_seconds=GRACE, garbage_delay_seconds=GRACE)
    yield folder
    folder.root.close()


def numbers(first: int, end: int) -> list[str]:
    return [f"{number:04d}" for number in range(first, end)]


def lost(work: Callable[[], Any], *ranges: tuple[int, int]) -> None:
    """The user is told the stream, the segment, the range that is lost, and what to do."""
    with pytest.raises(PySparkException) as caught:
        work()
    told = [
        f"Stream s/t, segment 0.0: the data between offsets {start} and {end} has been truncated"
        for start, end in ranges
    ]
    assert any(text in str(caught.value) for text in told), str(caught.value)
    assert "Set option 'fail_on_data_loss' to false" in str(caught.value)


def truncate(folder: Folder, offset: int) -> None:
    """Truncate stream `t`, which has one segment."""
    folder.stream().truncate(StreamCut("s", "t", {0: offset}))


def move(folder: Folder) -> None:
    """Flush everything, and delete whatever nothing needs any more: frames, checkpoints, chunks."""
    container = folder.stream().container
    container.flush()
    container.flush()  # what the first one marks may go when another is complete
    container.checkpoint()
    for _ in range(2):  # what the first round sees is old in the second one
        time.sleep(1.5 * GRACE)
        container.truncate_log()
        container.collect_garbage()


def events(reader: BatchReader | MicroBatchReader, partitions: list[Any]) -> list[str]:
    """The events of partitions, read by this process."""
    found = (batch.column("event") for partition in partitions for batch in reader.read(partition))
    return [event.decode() for column in found for event in column.to_pylist()]


def gone(folder: Folder, before: set[str]) -> set[str]:
    """What is not there any more."""
    return before - files(folder)


def files(folder: Folder) -> set[str]:
    return {str(path.relative_to(folder.url)) for path in Path(folder.url).rglob("*") if path.is_file()}


# --- truncated ---------------------------------------------------------------------------------------------------


def test_batch_between_old_cuts(folder: Folder) -> None:
    folder.put(*numbers(0, 10))  # 12 bytes each
    folder.put(*numbers(10, 20))
    begin, end = StreamCut("s", "t", {0: 0}), StreamCut("s", "t", {0: 180})
    old = {"start_stream_cut": begin.as_text(), "end_stream_cut": end.as_text()}
    assert folder.events(**old) == numbers(0, 15)
    truncate(folder, 120)
    lost(folder.frame(**old).collect, (0, 120))
    assert folder.events(fail_on_data_loss=False, **old) == numbers(10, 15)
    assert folder.events() == folder.events(start_stream_cut="earliest") == numbers(10, 20)
    truncate(folder, 240)
    lost(folder.frame(**old).collect, (0, 180))
    assert folder.events(fail_on_data_loss=False, **old) == []


def test_a_query_that_comes_back_behind_the_head(folder: Folder) -> None:
    folder.put(*numbers(0, 10))
    source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=10)
    assert folder.drain(source) == [10]
    folder.put(*numbers(10, 40))
    truncate(folder, 20 * 12)
    lost(lambda: folder.drain(source), (120, 240))
    assert folder.events("sink") == numbers(0, 10), "nothing is passed over silently"
    going_on = folder.follow(start_stream_cut="earliest", max_events_per_trigger=15, fail_on_data_loss=False)
    assert folder.drain(going_on) == [15, 5]
    assert folder.events("sink") == numbers(0, 10) + numbers(20, 40)
    assert folder.drain(source) == [], "once past the loss, the query is as any other"


def test_a_loss_that_is_allowed_is_logged(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.put(*numbers(0, 10))
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest", fail_on_data_loss=False))
    start = reader.initialOffset()
    truncate(folder, 60)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with caplog.at_level(logging.WARNING, "pravega_spark"):
        partitions = reader.partitions(start, end)
    assert "skipped, as option 'fail_on_data_loss' is false" in caplog.text
    assert "Stream s/t, segment 0.0: the data between offsets 0 and 60 has been truncated" in caplog.text
    assert events(reader, partitions) == numbers(5, 10)


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in chunks"])
def test_truncated_between_planning_and_reading(folder: Folder, flushed: bool) -> None:
    """Spark has made its partitions, and before the tasks read them the data is truncated and deleted."""
    for first in range(0, 20, 10):
        folder.put(*numbers(first, first + 10))
        if flushed:
            move(folder)
    strict, lenient = folder.frame().rdd, folder.frame(fail_on_data_loss=False).rdd
    assert strict.getNumPartitions() == lenient.getNumPartitions() == 1
    before = files(folder)
    truncate(folder, 15 * 12)
    move(folder)
    assert gone(folder, before)
    lost(strict.collect, (0, 180))
    assert [bytes(row.event).decode() for row in lenient.collect()] == numbers(15, 20)


def test_what_was_truncated_is_read_while_it_is_there(folder: Folder) -> None:
    """A reader that is under way is not stopped by a truncation, only by the loss of what it has to read."""
    folder.put(*numbers(0, 10))
    folder.put(*numbers(10, 20))
    reader = BatchReader(folder.parsed())
    (whole,) = pickle.loads(pickle.dumps(reader.partitions()))
    truncate(folder, 12)
    assert events(reader, [whole]) == numbers(0, 20), "what is still there is read"
    truncate(folder, 240)
    move(folder)
    with pytest.raises(TruncatedData) as caught:
        events(reader, [whole])
    assert (caught.value.stream, caught.value.segment_id, caught.value.start, caught.value.end) == ("s/t", 0, 0, 240)


def test_the_stream_is_deleted_under_a_reader(folder: Folder) -> None:
    folder.put(*numbers(0, 10))
    rows = folder.frame().rdd
    assert rows.getNumPartitions() == 1
    folder.stream().seal()
    folder.stream().delete()
    move(folder)
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    assert "s/t" in str(caught.value)


# --- moved -------------------------------------------------------------------------------------------------------


def test_moved_between_planning_and_reading(folder: Folder) -> None:
    """From frames to chunks: the tasks look the bytes up again and go on."""
    for first in range(0, 50, 10):
        folder.put(*numbers(first, first + 10), default_num_segments=3)
    frame = folder.frame()
    rows = frame.rdd
    assert rows.getNumPartitions() == 1
    before = files(folder)
    move(folder)
    frames = {path for path in gone(folder, before) if "/wal/" in path}
    assert len(frames) >= 5, "the frames that the partition names are deleted"
    assert sorted(bytes(row.event).decode() for row in rows.collect()) == numbers(0, 50)
    assert sorted(folder.texts(frame)) == numbers(0, 50)


def test_moved_under_a_query(folder: Folder) -> None:
    """Planned, moved, then read; and a restarted query plans old offsets over what has moved."""
    for first in range(0, 30, 10):
        folder.put(*numbers(first, first + 10))
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest", max_events_per_trigger=15))
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = pickle.loads(pickle.dumps(reader.partitions(start, middle)))
    move(folder)
    folder.put(*numbers(30, 40))
    move(folder)
    assert events(reader, planned) == numbers(0, 15)
    restarted = MicroBatchReader(folder.parsed(start_stream_cut="earliest"))
    assert events(restarted, restarted.partitions(start, middle)) == numbers(0, 15)
    end = restarted.latestOffset(middle, restarted.getDefaultReadLimit())
    assert events(restarted, restarted.partitions(middle, end)) == numbers(15, 40)


def test_an_address_that_was_deleted_and_made_again(folder: Folder) -> None:
    """A frame's object that holds other bytes now is noticed by its checksum, and the right bytes are read."""
    folder.put(*numbers(0, 10))
    rows = folder.frame().rdd
    assert rows.getNumPartitions() == 1
    frames = (Path(folder.url) / "_system/containers").rglob("wal/*/*")
    (frame,) = [path for path in frames if b"0009" in path.read_bytes()]
    content = frame.read_bytes()
    folder.stream().container.flush()
    frame.write_bytes(content.replace(b"0009", b"9999"))
    assert [bytes(row.event).decode() for row in rows.collect()] == numbers(0, 10)


def test_damage_is_an_error_that_names_the_object(folder: Folder) -> None:
    folder.put(*numbers(0, 10))
    folder.stream().container.flush()
    (chunk,) = [path for path in (Path(folder.url) / "s" / "t").glob("*") if b"0009" in path.read_bytes()]
    chunk.write_bytes(chunk.read_bytes().replace(b"0009", b"9999"))
    with pytest.raises(PySparkException) as caught:
        folder.frame(fail_on_data_loss=False).collect()
    assert chunk.name in str(caught.value) and "do not match their checksums" in str(caught.value)
