"""After a restore or a recovery: writers, byte streams, queries and batches that were further (P4).

A root is written and flushed, and copied; then more is written and read, which the copy does not have. The copy becomes
a root, is written to, and the group, query or producer goes on there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from pravega_spark import StreamManager
from pravega_spark.errors import PositionLost, StreamError, WritesLost
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable
from pravega_spark.streams.model.names import container_of
from tests.client.groups.reading import numbered, write
from tests.restored import CONTAINERS, begun, flush, recovered, restored, split


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with 5 events in stream sc/one of one segment."""
    return begun(tmp_path / "root")


# --- writers -----------------------------------------------------------------------------------------------------


def test_a_writer_of_before_is_refused_and_a_new_one_goes_on(place: Path) -> None:
    flush(place)
    with StreamManager(str(place)) as manager:
        writer = manager.create_writer("sc", "one")
        writer.write_event("lost", "key")
        writer.flush()
        recovered(place, container_of("sc/one", CONTAINERS))
        writer.write_event("none", "key")
        with pytest.raises(StreamError, match="created again, restored or recovered"):
            writer.flush()
    with StreamManager(str(place)) as manager:
        write(manager, "one", numbered(5, 100))
        assert [event.data.decode() for event in manager.read_events("sc", "one")] == numbered(5) + numbered(5, 100)


def test_a_byte_stream_keeps_its_segment_and_offsets(place: Path) -> None:
    with StreamManager(str(place)) as manager:
        manager.create_stream("sc", "bytes", 1)
        with manager.create_byte_stream("sc", "bytes") as stream:
            stream.write(b"kept")
        flush(place)
        with manager.create_byte_stream("sc", "bytes") as stream:
            stream.write(b"lost")
    recovered(place, container_of("sc/bytes", CONTAINERS))
    with StreamManager(str(place)) as manager, manager.create_byte_stream("sc", "bytes") as stream:
        stream.write(b" new")
        stream.flush()
        stream.truncate(2)
        stream.write(b"er")
        stream.flush()
        stream.seek(2)
        assert stream.read(8) == b"pt newer"


# --- Spark's source and sink, without a JVM --------------------------------------------------------------------------


def options(place: Path, **more: str) -> SourceOptions:
    return SourceOptions.parse({"controller": str(place), "scope": "sc", "stream": "one", **more}, {})


def batch(reader: MicroBatchReader, start: Any) -> tuple[Any, list[str]]:
    """The offset behind the next batch, and its events."""
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, planned(reader, start, end)


def planned(reader: MicroBatchReader, start: Any, end: Any) -> list[str]:
    found = []
    for partition in reader.partitions(start, end) if start != end else ():
        for rows in reader.read(partition):
            found += [event.decode() for event in rows.column("event").to_pylist()]
    return sorted(found, key=int)


@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
@pytest.mark.parametrize("again", [False, True], ids=["", "its last batch is planned again"])
def test_a_query_goes_on_from_its_checkpoint_only_when_it_is_told_to_leave_out_what_was_lost(
    place: Path, tmp_path: Path, scaled: bool, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    flush(place)
    reader = MicroBatchReader(options(place, start_stream_cut="earliest"))
    first = start = reader.initialOffset()
    with StreamManager(str(place)) as manager:
        if scaled:
            split(manager)
        write(manager, "one", numbered(5, 5))
    while (end := batch(reader, start)[0]) != start:
        start = end
    copy = restored(place, tmp_path / "copy")
    with StreamManager(str(copy)) as manager:
        write(manager, "one", numbered(9, 100))
    with pytest.raises(PositionLost, match=r"option 'start_stream_cut' set to that cut, H4s.*'fail_on_data_loss'") as e:
        reader = MicroBatchReader(options(copy))
        reader.partitions(first, end) if again else reader.latestOffset(end, ReadAllAvailable())
    assert pickle.loads(pickle.dumps(e.value)).restored == e.value.restored

    assert e.value.restored is not None
    anew = MicroBatchReader(options(copy, start_stream_cut=e.value.restored))
    assert events_from(anew, anew.initialOffset()) == numbered(9, 100)

    going_on = MicroBatchReader(options(copy, fail_on_data_loss="false"))
    if again:
        assert planned(going_on, first, end) == numbered(5)
    caplog.clear()
    assert events_from(going_on, end) == numbered(9, 100)
    assert (
        sum("as option 'fail_on_data_loss' is false" in record.getMessage() for record in caplog.records) == 1 - again
    )


def events_from(reader: MicroBatchReader, start: Any) -> list[str]:
    """All events of a query from an offset on."""
    found: list[str] = []
    while True:
        end, events = batch(reader, start)
        if end == start:
            return found
        found, start = found + events, end


ROWS = StructType().add("event", BinaryType())


def write_batch(place: Path, number: int, **more: str) -> None:
    """A micro-batch of a query."""
    writer = StreamWriter(options(place, **more), ROWS)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"event": pa.array([b"%d" % number], pa.binary())})]))
    message.query_id = "q"
    writer.commit([message], number)


def write_version(place: Path, number: int, **more: str) -> None:
    """A batch of a job."""
    writer = BatchWriter(options(place, txn_app_id="job", txn_version=str(number), **more), ROWS)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"event": pa.array([b"%d" % number], pa.binary())})]))
    writer.commit([message])


@pytest.mark.parametrize("written", [write_batch, write_version])
def test_a_batch_is_refused_whose_predecessors_were_lost(
    place: Path, tmp_path: Path, written: Callable[..., None]
) -> None:
    for number in range(3):
        written(place, number)
    flush(place)
    for number in range(3, 6):
        written(place, number)
    copy = restored(place, tmp_path / "copy")
    with pytest.raises(WritesLost, match=r"its writes 3 to 5 if they .* 3\. .* option 'accept_lost_batches' to true"):
        written(copy, 6)
    written(copy, 2)
    written(copy, 3)
    written(copy, 4)
    written(copy, 4)
    other = restored(place, tmp_path / "other")
    written(other, 6, accept_lost_batches="true")
    written(other, 6)
    written(other, 7)
    for root, expected in ((copy, [0, 1, 2, 3, 4]), (other, [0, 1, 2, 6, 7])):
        with StreamManager(str(root)) as manager:
            found = [int(event.data) for event in manager.read_events("sc", "one")]
        assert found == [*range(5), *expected]
