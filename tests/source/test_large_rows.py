"""Large events and `include_metadata` between Spark and the streams, as tasks and drivers do it, without a JVM."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from chunkstore.testing import CountingStore
from engine.state.index_records import RECORD_SIZE
from engine.storage.object_reads import Stores
from pravega_spark import PravegaDataSource, fetch_event
from pravega_spark.roots import open_root
from pravega_spark.source.columns import read_columns, read_schema
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import SlicePartition, StreamRange, plan_streams, read_partition
from pravega_spark.source.sink import BatchWriter
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model import framing
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import MAX_LARGE_EVENT_SIZE
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading.event_columns import schema_of
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import collector as collector_module
from tests.large_events import MiB, content, put_large, put_small
from tests.support import limits

LARGE = content(9 * MiB, 1)
LARGER = content(10 * MiB, 2)
ROWS = StructType().add("event", BinaryType()).add("routing_key", StringType())


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def stream(url: str) -> Iterator[Stream]:
    root = open_root(url, create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=1), None, ())
    yield catalog.stream("s", "t")
    root.close()


def parsed(stream: Stream, **more: object) -> SourceOptions:
    url = stream.root.stores.chunks.root
    options = {"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest", **more}
    return SourceOptions.parse({name: str(value) for name, value in options.items()})


def planned(stream: Stream, options: SourceOptions) -> list[SlicePartition]:
    snapshot = stream.snapshot()
    return plan_streams([StreamRange(options, snapshot, snapshot.head_cut(), snapshot.tail_cut())])


def table(stream: Stream, **more: object) -> pa.Table:
    """What a batch read gives, partition after partition."""
    options = parsed(stream, **more)
    batches = [
        batch
        for partition in planned(stream, options)
        for batch in read_partition(options, pickle.loads(pickle.dumps(partition)))
    ]
    return pa.Table.from_batches(batches, schema_of(dict.fromkeys(read_columns(options), True)))


def mixed(stream: Stream) -> list[str]:
    """Small events around two large ones, whose pointers are returned."""
    put_small(stream, *[b"a" * 50] * 100, time=1000)
    first = put_large(stream, LARGE, time=2000)
    put_small(stream, *[b"b" * 50] * 100, time=3000)
    second = put_large(stream, LARGER, time=4000)
    put_small(stream, b"c", time=5000)
    return [first, second]


# --- reading -----------------------------------------------------------------------------------------------------


def test_what_fits_is_delivered_whatever_is_to_be_done_with_what_does_not(stream: Stream) -> None:
    mixed(stream)
    for mode in ("error", "reference", "inline"):
        events = table(stream, large_events=mode).column("event").to_pylist()
        assert events == [b"a" * 50] * 100 + [LARGE] + [b"b" * 50] * 100 + [LARGER, b"c"]


@pytest.mark.parametrize("limit", [9 * MiB - 1, 5 * MiB, 10])
def test_error_tells_the_place_and_the_ways(stream: Stream, limit: int) -> None:
    put_small(stream, b"a", b"b")
    pointer = put_large(stream, LARGE)
    message = (
        rf"Stream s/t, segment 0.0, offset 18: an event of {len(LARGE)} bytes exceeds option 'max_event_bytes' "
        rf"\({limit}\)\. Raise it, or set option 'large_events' to 'reference' .* or 'inline' .* pointer: {pointer}$"
    )
    with pytest.raises(ValueError, match=message):
        table(stream, max_event_bytes=limit)


@pytest.mark.parametrize("metadata", [False, True])
def test_reference_gives_pointers(stream: Stream, url: str, metadata: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pointers = mixed(stream)
    options = {"large_events": "reference", "max_event_bytes": 9 * MiB, "include_metadata": metadata}
    found = table(stream, **options)
    assert found.column("event").to_pylist() == [b"a" * 50] * 100 + [LARGE] + [b"b" * 50] * 100 + [None, b"c"]
    options["max_event_bytes"] = 5 * MiB
    counting = CountingStore(stream.root.stores.chunks)
    monkeypatch.setattr(stream.root, "stores", Stores(stream.root.stores.log, counting))
    found = table(stream, **options)
    events, places = found.column("event").to_pylist(), found.column("event_pointer").to_pylist()
    assert events == [b"a" * 50] * 100 + [None] + [b"b" * 50] * 100 + [None, b"c"]
    assert [place for place, event in zip(places, events, strict=True) if event is None] == pointers
    assert (places.count(None) == 201) is not metadata
    assert counting.bytes_read <= 3 * MiB
    assert [fetch_event(pointer, url) for pointer in pointers] == [LARGE, LARGER]


def test_reference_of_small_ones(stream: Stream, url: str) -> None:
    """The limit may be any: then only what is larger is replaced, among others in the same batch."""
    put_small(stream, b"small", b"not so small", b"", b"not small either", b"tiny")
    found = table(stream, large_events="reference", max_event_bytes=5)
    assert found.column("event").to_pylist() == [b"small", None, b"", None, b"tiny"]
    places = found.column("event_pointer").to_pylist()
    assert places == [None, "s/t/0.#epoch.0:13-20", None, "s/t/0.#epoch.0:41-24", None]
    assert fetch_event(places[3], url) == b"not small either"
    with pytest.raises(ValueError, match=r"offset 13: an event of 12 bytes exceeds option 'max_event_bytes' \(5\)"):
        table(stream, max_event_bytes=5)
    assert table(stream, large_events="inline", max_event_bytes=5).column("event").to_pylist()[1] == b"not so small"


def test_inline_gives_each_a_batch_of_its_own(stream: Stream) -> None:
    mixed(stream)
    options = parsed(stream, large_events="inline", max_event_bytes=10)
    sizes = [batch.num_rows for part in planned(stream, options) for batch in read_partition(options, part)]
    assert sizes == [100, 1, 100, 1, 1]


def test_partitions_are_cut_by_what_is_read(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.least_sought(monkeypatch, MiB)
    mixed(stream)
    few = planned(stream, parsed(stream, large_events="reference", max_event_bytes=5 * MiB))
    many = planned(stream, parsed(stream, large_events="inline"))
    assert (len(few), len(many)) == (1, 3)
    cut = planned(stream, parsed(stream, large_events="reference", max_event_bytes=5 * MiB, min_partitions=2))
    assert len(cut) == 2


@pytest.mark.parametrize("mode", ["reference", "inline"])
def test_micro_batches_count_large_events(stream: Stream, mode: str) -> None:
    mixed(stream)

    def batches(**limits: int) -> list[list[int | None]]:
        options = parsed(stream, large_events=mode, max_event_bytes=5 * MiB, **limits)
        reader = MicroBatchReader(options)
        start, found = reader.initialOffset(), []
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            rows = [row for part in reader.partitions(start, end) for row in reader.read(part)]
            found.append([None if row is None else len(row) for one in rows for row in one.column("event").to_pylist()])
            start = end
        return found

    first, second = (None, None) if mode == "reference" else (len(LARGE), len(LARGER))
    assert batches() == [[50] * 100 + [first] + [50] * 100 + [second, 1]]
    assert batches(max_bytes_per_trigger=MiB) == [[50] * 100, [first], [50] * 100, [second], [1]]
    assert batches(max_bytes_per_trigger=1) == batches(max_bytes_per_trigger=MiB)
    assert batches(max_events_per_trigger=100) == [[50] * 100, [first, *[50] * 99], [50, second, 1]]
    assert batches(max_events_per_trigger=1)[99:103] == [[50], [first], [50], [50]]


# --- metadata ----------------------------------------------------------------------------------------------------


def test_metadata_columns(stream: Stream) -> None:
    pointers = mixed(stream)
    found = table(stream, include_metadata=True)
    assert found.schema.names == [
        "event",
        "scope",
        "stream",
        "segment_id",
        "offset",
        "timestamp",
        "event_pointer",
        "event_number",
    ]
    assert found.column("event_number").to_pylist() == list(range(203))
    times = [datetime.fromtimestamp(seconds, timezone.utc) for seconds in (1, 2, 3, 4, 5)]
    assert found.column("timestamp").to_pylist() == (
        [times[0]] * 100 + [times[1]] + [times[2]] * 100 + [times[3], times[4]]
    )
    places = found.column("event_pointer").to_pylist()
    assert places[:2] == ["s/t/0.#epoch.0:0-58", "s/t/0.#epoch.0:58-58"]
    assert [places[100], places[201]] == pointers


def test_metadata_of_every_micro_batch(stream: Stream) -> None:
    """Limits cut anywhere between two events; truncation and scaling change no number."""
    for time in range(1, 8):
        put_small(stream, *[b"x" * 70] * 13, time=time * 1000)
    reader = MicroBatchReader(parsed(stream, include_metadata=True, max_events_per_trigger=5))
    start, numbers, times = reader.initialOffset(), [], []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for part in reader.partitions(start, end):
            for batch in reader.read(pickle.loads(pickle.dumps(part))):
                numbers += batch.column("event_number").to_pylist()
                times += [time.timestamp() for time in batch.column("timestamp").to_pylist()]
        start = end
        if len(numbers) == 20:
            stream.truncate(StreamCut.from_text(start))
    assert numbers == list(range(91))
    assert times == [time for time in range(1, 8) for _ in range(13)]
    stream.scale([0], [(0.0, 0.5), (0.5, 1.0)])
    second = (1 << 32) + 2
    put_small(stream, b"new", b"newer", segment=second, time=9000)
    found = table(stream, include_metadata=True, min_partitions=6)
    rows = list(zip(found.column("segment_id").to_pylist(), found.column("event_number").to_pylist(), strict=True))
    assert rows == [*((0, number) for number in range(20, 91)), (second, 0), (second, 1)]


def test_schemas_agree(stream: Stream) -> None:
    for more in ({}, {"large_events": "reference"}, {"include_metadata": "true"}):
        for also in ({}, {"large_events": "inline"}):
            options = parsed(stream, **{**also, **more})
            names = [column.split()[0] for column in read_schema(options).split(",")]
            assert schema_of(dict.fromkeys(read_columns(options), True)).names == names
            given = {"path": "/streams", "scope": "s", "stream": "t", **also, **more}
            assert PravegaDataSource(given).schema() == read_schema(options)


# --- writing -----------------------------------------------------------------------------------------------------


def written(stream: Stream, *batches: pa.RecordBatch, **more: object) -> int:
    """Write batches as one task does. Returns the size of its commit message."""
    writer = BatchWriter(parsed(stream, **more), ROWS)
    message = pickle.dumps(writer.write(iter(batches)))
    writer.commit([pickle.loads(message)])
    return len(message)


def rows(*events: bytes, keys: list[str] | None = None) -> pa.RecordBatch:
    columns = {"event": pa.array(events, pa.binary())}
    return pa.RecordBatch.from_pydict(columns if keys is None else {**columns, "routing_key": keys})


def test_large_rows_keep_their_order(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "LARGE_PART_BYTES", 4 * MiB)
    framed: list[int] = []
    frame = framing.frame_column

    def spy(events: pa.Array, *more: Any) -> framing.Framed:
        framed.append(len(events))
        return frame(events, *more)

    monkeypatch.setattr(collector_module, "frame_column", spy)
    payloads = [b"a", LARGE, b"b", b"c", LARGER, LARGE, b"d", b"e" * 5 * MiB, LARGER]
    size = written(stream, rows(*payloads[:4]), rows(*payloads[4:6]), rows(*payloads[6:]))
    assert size < 5000
    assert framed == [1, 2, 2], "what is large is not framed"
    found = table(stream, include_metadata=True)
    assert found.column("event").to_pylist() == payloads
    assert found.column("event_number").to_pylist() == list(range(9))
    snapshot = stream.snapshot()
    index = (
        snapshot.segments.index(0).records(0, snapshot.segments.index_segment(0).length // RECORD_SIZE)[:, 0].tolist()
    )
    for payload, offset in zip(payloads, found.column("offset").to_pylist(), strict=True):
        if len(payload) > 8 * MiB:
            assert {offset, offset + 8 + len(payload)} <= set(index)


def test_large_rows_go_where_their_keys_go(url: str, stream: Stream) -> None:
    stream.scale([0], [(n / 4, (n + 1) / 4) for n in range(4)])
    keys = [f"key-{number}" for number in range(8)]
    payloads = [f"{key} {turn}".encode() for turn in range(3) for key in keys]
    for place in (3, 9, 14, 22):
        payloads[place] += LARGE
    written(stream, rows(*payloads[:10], keys=keys + keys[:2]), rows(*payloads[10:], keys=keys[2:] + keys))
    found = table(stream)
    segments: dict[str, set[int]] = {key: set() for key in keys}
    seen: dict[str, list[bytes]] = {key: [] for key in keys}
    for event, segment in zip(found.column("event").to_pylist(), found.column("segment_id").to_pylist(), strict=True):
        key = event.split()[0].decode()
        segments[key].add(segment)
        seen[key].append(event)
    assert seen == {key: payloads[number::8] for number, key in enumerate(keys)}
    assert all(len(found) == 1 for found in segments.values()) and len(set.union(*segments.values())) > 1


def test_a_column_of_strings(stream: Stream) -> None:
    schema = StructType().add("event", StringType())
    writer = BatchWriter(parsed(stream), schema)
    texts = ["a", "é" * (5 * MiB), "b"]
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"event": texts}).slice(1)]))])
    assert table(stream).column("event").to_pylist() == [text.encode() for text in texts[1:]]


def test_rows_that_cannot_be_written(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of what the task has written."""
    monkeypatch.setattr(framing, "MAX_LARGE_EVENT_SIZE", 9 * MiB)
    before = {info.path for info in stream.root.stores.chunks.list("s/")}
    message = rf"^The event in row 2 has {10 * MiB} bytes, more than the limit of {9 * MiB}: split it\. "
    with pytest.raises(ValueError, match=message):
        written(stream, rows(LARGE, b"x"), rows(b"a", LARGE, LARGER))
    with pytest.raises(ValueError, match=r"^Column 'event' is null in 1 of the 4 rows"):
        written(stream, pa.RecordBatch.from_pydict({"event": pa.array([b"a", LARGE, b"b", None], pa.binary())}))
    assert {info.path for info in stream.root.stores.chunks.list("s/")} == before
    assert table(stream).num_rows == 0


def test_the_limit_is_one_gib() -> None:
    assert MAX_LARGE_EVENT_SIZE == 1 << 30
    assert framing.large_rows(pa.array([b"a" * MiB] * 8)) == []
    assert framing.large_rows(pa.array([b"a" * 8 * MiB, b"", b"a" * (8 * MiB + 1)])) == [2]
    assert framing.large_rows(pa.array([None, b"a" * 8 * MiB, b"b"])) == []
