"""Streams that are scaled under Spark: what its tasks have routed already, and what its queries have still to read."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from pravega_spark.errors import InvalidScale, StreamNotFound, StreamSealed, TruncatedData
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.offset import cut_of
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.spark_api.stream_reader import tells_position
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.spark.folder import EVENTS_WITH_KEYS, Folder, read_all
from tests.support import limits

KEYS = [str(number) for number in range(10)]


def scale_to(stream: Stream, count: int) -> None:
    """Exchange all segments for `count` even ones."""
    if stream.snapshot().record.scaling.min_segments > count:
        stream.update(ScalingPolicy.auto_scaling_policy_by_event_rate(10**6, 2, 1))
    bounds = [place / count for place in range(count)] + [1.0]
    sealed = [segment.id for segment in stream.snapshot().record.current.segments]
    stream.scale(sealed, list(itertools.pairwise(bounds)))


def numbered(first: int, end: int) -> pa.RecordBatch:
    """Events `key/number`."""
    keys = [str(number % 10) for number in range(first, end)]
    events = [f"{key}/{number}" for key, number in zip(keys, range(first, end), strict=True)]
    return pa.RecordBatch.from_pydict({"event": events, "routing_key": keys})


def put(folder: Folder, first: int, end: int, stream: str = "t", **more: Any) -> None:
    writer = BatchWriter(folder.parsed(stream, **more), EVENTS_WITH_KEYS)
    writer.commit([writer.write(iter([numbered(first, end)]))])


def by_key(events: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of each key's events in the order in which they come."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        key, number = event.split("/")
        found[key].append(int(number))
    return dict(found)


def expected(first: int, end: int) -> dict[str, list[int]]:
    return by_key(f"{number % 10}/{number}" for number in range(first, end))


def read(reader: BatchReader | MicroBatchReader, partitions: Iterable[Any]) -> list[tuple[int, int, str]]:
    """Segment, offset and payload of the events of some partitions."""
    found = []
    for partition in partitions:
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            rows = zip(*(batch.column(name).to_pylist() for name in ("segment_id", "offset", "event")), strict=True)
            found += [(segment, offset, event.decode()) for segment, offset, event in rows]
    return found


# --- the sink ----------------------------------------------------------------------------------------------------


def attempt(writer: StreamWriter, *batches: pa.RecordBatch) -> TaskMessage:
    message = writer.write(iter(batches))
    sent: TaskMessage = pickle.loads(
        pickle.dumps(TaskMessage(message.outputs, "q", message.planned, message.created_at))
    )
    return sent


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "chunks"])
@pytest.mark.parametrize(("before", "after"), [(1, [4]), (3, [2]), (4, [1]), (2, [3, 1, 5]), (2, [2])], ids=str)
def test_scaled_between_planning_and_commit(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, inline: int, before: int, after: list[int]
) -> None:
    """Every batch once, behind what was written before; a replay, planned before or after the scale, is known (X3)."""
    limits.inline_bytes(monkeypatch, inline)
    limits.chunk_bytes(monkeypatch, 500)
    options = folder.parsed(default_num_segments=before)
    for batch in range(3):
        planned = StreamWriter(options, EVENTS_WITH_KEYS)
        first = 200 * batch
        rows = [numbered(number, number + 25) for number in range(first, first + 100, 25)]
        tasks = [attempt(planned, *rows[:2]), attempt(planned, *rows[2:])]
        for count in after:
            scale_to(folder.stream(), count)
            put(folder, first + 100 + after.index(count), first + 101 + after.index(count))
        committing = StreamWriter(options, EVENTS_WITH_KEYS)  # the driver's commit is in a process that did not plan
        committing.commit(tasks, batch)
        committing.commit(tasks, batch)
        again = StreamWriter(options, EVENTS_WITH_KEYS)
        again.commit([attempt(again, numbered(first, first + 100))], batch)
        put(folder, first + 150, first + 200)
    reader = BatchReader(options)
    found = by_key(text for _, _, text in read(reader, reader.partitions()))
    wanted: dict[str, list[int]] = defaultdict(list)
    for batch in range(3):
        extra = [200 * batch + 100 + place for place in range(len(after))]
        for number in [*extra, *range(200 * batch, 200 * batch + 100), *range(200 * batch + 150, 200 * batch + 200)]:
            wanted[str(number % 10)].append(number)
    assert found == wanted
    assert folder.stream().snapshot().events() == sum(map(len, wanted.values()))


def test_many_stale_batches_of_one_plan_cost_few_epochs(folder: Folder) -> None:
    writer = BatchWriter(folder.parsed(default_num_segments=2), EVENTS_WITH_KEYS)
    stale = [writer.write(iter([numbered(10 * n, 10 * n + 10)])) for n in range(3)]
    scale_to(folder.stream(), 3)
    current = BatchWriter(folder.parsed(), EVENTS_WITH_KEYS)
    others = [current.write(iter([numbered(10 * n, 10 * n + 10)])) for n in range(3, 6)]
    for one, other in zip(stale, others, strict=True):
        writer.commit([one])
        current.commit([other])
    record = folder.stream().snapshot().record
    assert record.current.epoch == 1 + 2 * len(stale), "whose segments were duplicated has segments of the same keys"
    assert len(record.encode()) < 600


def test_a_job_whose_stream_is_sealed_or_made_anew_fails(folder: Folder) -> None:
    writer = BatchWriter(folder.parsed(default_num_segments=2), EVENTS_WITH_KEYS)
    message = writer.write(iter([numbered(0, 10)]))
    folder.stream().seal()
    with pytest.raises(StreamSealed, match="Stream is sealed: s/t"):
        writer.commit([message])
    folder.stream().delete()
    put(folder, 0, 1)
    with pytest.raises(StreamNotFound, match="s/t"):
        writer.commit([message])
    assert folder.events() == ["0/0"]


@pytest.mark.long
def test_a_query_writes_on_while_its_sink_is_scaled(folder: Folder) -> None:
    """1 -> 4 -> 2 -> 6 segments between planning and commit of batches, and all the time; each event arrives once."""
    for first in range(0, 400, 20):
        put(folder, first, first + 20, default_num_segments=3)
    put(folder, 0, 1, "sink", default_num_segments=1)
    stream, done = folder.stream("sink"), threading.Event()

    def scale_on() -> None:
        counts = iter([4, 2, 6] * 100)
        while not done.wait(0.05):
            if len(stream.snapshot().record.epochs) < 100:
                with suppress(InvalidScale):  # a batch that was planned before the last scale made epochs meanwhile
                    scale_to(stream, next(counts))

    scaler = threading.Thread(target=scale_on)
    scaler.start()
    try:
        source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=50)
        rows = source.selectExpr("event", "split_part(cast(event AS string), '/', 1) AS routing_key")
        query = rows.writeStream.format("pravega").options(**folder.options("sink"))
        read_all(query.option("checkpointLocation", folder.checkpoint()))
    finally:
        done.set()
        scaler.join()
    reader = BatchReader(folder.parsed("sink"))
    found = read(reader, reader.partitions())
    numbers = by_key(text for _, _, text in found)
    numbers["0"].remove(0)
    assert {key: sorted(found) for key, found in numbers.items()} == expected(0, 400)
    assert numbers == expected(0, 400), "and in order, as each batch has a key's events in one segment of the source"
    assert len(stream.snapshot().record.epochs) > 4


def test_a_query_plans_each_batch_by_the_present_epoch(folder: Folder) -> None:
    """So a scale between two batches costs nothing."""
    put(folder, 0, 10)
    put(folder, 0, 1, "sink", default_num_segments=1)
    rows = folder.follow(start_stream_cut="earliest").selectExpr("event", "cast(event AS string) AS routing_key")
    writer = rows.writeStream.format("pravega").options(**folder.options("sink"))
    query = writer.option("checkpointLocation", folder.checkpoint()).trigger(processingTime="0 seconds").start()
    try:
        for batch, count in enumerate((3, 2, 5), 1):
            query.processAllAvailable()
            scale_to(folder.stream("sink"), count)
            put(folder, 10 * batch, 10 * batch + 10)
        query.processAllAvailable()
    finally:
        query.stop()
    snapshot = folder.stream("sink").snapshot()
    assert [len(epoch.segments) for epoch in snapshot.record.epochs] == [1, 3, 2, 5]
    assert snapshot.events() == 41


# --- batch reading -----------------------------------------------------------------------------------------------


def three_epochs(folder: Folder) -> list[StreamCut]:
    """1 -> 4 -> 2 segments with 50 events in each epoch. Returns the cuts between."""
    cuts = []
    for epoch, count in enumerate((1, 4, 2)):
        if epoch:
            scale_to(folder.stream(), count)
        for first in range(50 * epoch, 50 * epoch + 50, 10):
            put(folder, first, first + 10)
        cuts.append(folder.stream().snapshot().tail_cut())
    return cuts


@pytest.mark.parametrize(
    "more",
    [{}, {"min_partitions": 7}, pytest.param({"max_bytes_per_partition": 100}, marks=pytest.mark.long)],
    ids=str,
)
def test_batch_read_of_all_epochs(folder: Folder, more: dict[str, Any]) -> None:
    """All segments between the cuts; sorted by segment and offset, the events of each key are in order."""
    cuts = three_epochs(folder)

    def read_between(**between: Any) -> dict[str, list[int]]:
        rows: list[Row] = folder.frame(**between, **more).orderBy("segment_id", "offset").collect()
        return by_key(bytes(row.event).decode() for row in rows)

    assert read_between() == expected(0, 150)
    assert read_between(start_stream_cut=cuts[0].as_text()) == expected(50, 150)
    assert read_between(end_stream_cut=cuts[1].as_text()) == expected(0, 100)
    assert read_between(start_stream_cut=cuts[0].as_text(), end_stream_cut=cuts[1].as_text()) == expected(50, 100)


def test_batch_read_by_time_and_the_table_of_segments(folder: Folder) -> None:
    three_epochs(folder)
    snapshot = folder.stream().snapshot()
    times = [epoch.created for epoch in snapshot.record.epochs]
    assert by_key(folder.events(ending_timestamp=times[1])) == expected(0, 50)
    assert by_key(folder.events(starting_timestamp=times[1], ending_timestamp=times[2])) == expected(50, 100)
    rows = folder.frame(metadata="Segments").collect()
    assert [row.segment_id for row in rows] == snapshot.record.segment_ids()
    assert [row.epoch for row in rows] == [0, 1, 1, 1, 1, 2, 2]
    assert [row.sealed for row in rows] == [True] * 5 + [False] * 2
    assert sum(row.events for row in rows) == 150
    folder.stream().truncate(snapshot.tail_cut())
    assert [row.epoch for row in folder.frame(metadata="Segments").collect()] == [2, 2]


# --- streaming reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit", [{}, {"max_events_per_trigger": 7}, {"max_bytes_per_trigger": 60}, {"max_events_per_trigger": 33}], ids=str
)
def test_no_batch_has_a_key_in_two_segments(folder: Folder, limit: dict[str, Any]) -> None:
    three_epochs(folder)
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest", **limit))
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows = read(reader, reader.partitions(start, end))
        homes: dict[str, set[int]] = defaultdict(set)
        for segment, _, event in rows:
            homes[event.split("/")[0]].add(segment)
        assert rows and all(len(segments) == 1 for segments in homes.values())
        assert len(rows) <= limit.get("max_events_per_trigger", 50)
        found += [event for *_, event in sorted(rows)]
        start = end
    assert by_key(found) == expected(0, 150)
    assert cut_of(start) == folder.stream().snapshot().tail_cut()
    scale_to(folder.stream(), 3)
    start, end = end, reader.latestOffset(end, reader.getDefaultReadLimit())
    assert read(reader, reader.partitions(start, end)) == []
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end, "one empty batch takes the query past a scale"
    assert cut_of(end) == folder.stream().snapshot().tail_cut()


def run(folder: Folder, more: dict[str, Any], between: Callable[[int], None]) -> list[list[str]]:
    """Copy what there is, batch after batch. Returns the events of each."""
    batches: list[list[str]] = []

    def take(frame: DataFrame, number: int) -> None:
        batches.append(folder.texts(frame))
        between(number)

    query = folder.follow(**more).writeStream.foreachBatch(take).option("checkpointLocation", folder.checkpoint())
    read_all(query)
    return batches


def test_a_query_follows_scales_and_comes_back_to_old_offsets(folder: Folder) -> None:
    """A query with a checkpoint, stopped and started over scales and truncations of the stream."""
    options: dict[str, Any] = {"start_stream_cut": "earliest", "max_events_per_trigger": 20}
    put(folder, 0, 50)

    def scale_in_the_middle(batch: int) -> None:
        if batch == 1:
            scale_to(folder.stream(), 4)
            put(folder, 50, 100)

    batches = run(folder, options, scale_in_the_middle)
    reached_first = 50 if tells_position() else 100  # with availableNow, the tail is that of the start
    assert by_key(event for batch in batches for event in batch) == expected(0, reached_first)
    scale_to(folder.stream(), 2)
    put(folder, 100, 150)
    batches = run(folder, options, lambda batch: None)
    assert by_key(event for batch in batches for event in batch) == expected(reached_first, 150)
    assert max(map(len, batches)) <= 20
    offsets = Path(folder.checkpoint()) / "offsets"
    newest = max(int(file.name) for file in offsets.iterdir() if file.name.isdigit())
    reached = cut_of(json.loads((offsets / str(newest)).read_text().splitlines()[-1]))
    assert reached == folder.stream().snapshot().tail_cut()

    folder.stream().truncate(reached)
    scale_to(folder.stream(), 3)
    put(folder, 150, 160)
    assert by_key(event for batch in run(folder, options, lambda batch: None) for event in batch) == expected(150, 160)

    put(folder, 160, 170)
    scale_to(folder.stream(), 1)
    put(folder, 170, 180)
    tail = folder.stream().snapshot().tail_cut()
    (before,) = tail.positions
    folder.stream().truncate(StreamCut("s", "t", {before: 0}))
    with pytest.raises(PySparkException) as caught:
        run(folder, options, lambda batch: None)
    assert "Stream s/t, segment" in str(caught.value) and "has been truncated" in str(caught.value)
    batches = run(folder, {**options, "fail_on_data_loss": False}, lambda batch: None)
    assert by_key(event for batch in batches for event in batch) == expected(170, 180)


def test_a_batch_of_segments_that_are_gone_is_planned_again(folder: Folder) -> None:
    """A restarted query plans its last batch again: over segments that were truncated away in between."""
    cuts = three_epochs(folder)
    head = folder.stream().snapshot().head_cut()
    folder.stream().truncate(cuts[2])
    strict = MicroBatchReader(folder.parsed())
    with pytest.raises(TruncatedData, match=r"s/t, segment 0\.0: the data from offset 0 on"):
        strict.latestOffset(head.as_text(), strict.getDefaultReadLimit())
    with pytest.raises(TruncatedData, match=r"s/t, segment 0\.0: the data between offsets 0 and"):
        strict.partitions(head.as_text(), cuts[0].as_text())
    lenient = MicroBatchReader(folder.parsed(fail_on_data_loss=False))
    assert lenient.partitions(head.as_text(), cuts[1].as_text()) == []
    put(folder, 150, 160)
    end = lenient.latestOffset(head.as_text(), lenient.getDefaultReadLimit())
    rows = read(lenient, lenient.partitions(head.as_text(), end))
    assert by_key(event for *_, event in rows) == expected(150, 160)


def test_start_and_end_at_cuts_of_different_epochs(folder: Folder) -> None:
    cuts = three_epochs(folder)
    more = {"start_stream_cut": cuts[0].as_text(), "end_stream_cut": cuts[1].as_text()}
    reader = MicroBatchReader(folder.parsed(max_events_per_trigger=20, **more))
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found += [event for *_, event in sorted(read(reader, reader.partitions(start, end)))]
        start = end
    assert by_key(found) == expected(50, 100)
