"""Writes whose rows name their streams: one atomic append for each container, each batch once whatever happens."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from chunkstore.testing import Crashed, FaultStore, crash_at
from chunkstore.testing.faults import When
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import PravegaDataSource, ScopeNotFound, StreamNotFound
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.events import MAX_EVENT_SIZE
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.writing.collector import INLINE_BYTES, OWN_CHUNK_BYTES
from tests.source.keyed import events

ROWS = StructType().add("stream", StringType()).add("event", BinaryType()).add("routing_key", StringType())

Row = tuple[str | None, str, str | None]
"""Stream, event, routing key."""


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}"


def options(url: str, **more: object) -> SourceOptions:
    given = {"controller": url, "scope": "s", **{name: str(value) for name, value in more.items()}}
    return SourceOptions.parse(given, rows_name_streams=True)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    streams, found, keys = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"stream": streams, "event": found, "routing_key": pa.array(keys, pa.string())})


def tasks(writer: BatchWriter | StreamWriter, *rows: Sequence[Row]) -> list[TaskMessage]:
    """What the tasks of a query that write these rows hand to the driver."""
    messages = []
    for some in rows:
        message = writer.write(iter([batch(some)] if some else []))
        message.query_id = "a query"  # which a task learns from Spark
        messages.append(pickle.loads(pickle.dumps(message)))
    return messages


def committed(url: str, number: int, *rows: Sequence[Row], **more: object) -> None:
    """A micro-batch, as a driver commits it that has just been started."""
    writer = StreamWriter(options(url, **more), ROWS)
    messages = tasks(writer, *rows)
    try:
        writer.commit(messages, number)
    except Exception:
        writer.abort(messages, number)
        raise


def found(url: str) -> dict[str, list[str]]:
    """The events of each stream, sorted."""
    root = open_root(url)
    return {name: sorted(events(url, name)) for name in sorted(Catalog(root).streams("s"))}


def as_written(rows: Sequence[Row]) -> dict[str, list[str]]:
    streams = sorted({str(row[0]) for row in rows})
    return {name: sorted(event for stream, event, _ in rows if stream == name) for name in streams}


STREAMS = ("a", "b", "c", "d", "e")
MANY: list[Row] = [
    (STREAMS[number % 5], f"{number % 7}/{number}", str(number % 7) if number % 3 else None) for number in range(200)
]


def padded(rows: Sequence[Row], size: int = INLINE_BYTES // 10) -> list[Row]:
    """The same with so many more bytes in each event: a task of ten rows or more writes chunks."""
    return [(stream, event + "." * size, key) for stream, event, key in rows]


@pytest.mark.parametrize("inline", [True, False])
def test_each_row_goes_where_it_says(url: str, inline: bool) -> None:
    large: list[Row] = []
    if not inline:
        large += [("a", "x" * (MAX_EVENT_SIZE + 1), "3"), ("f", "y" * (MAX_EVENT_SIZE + 2), None)]
        large += padded([("a", f"{number}", "a key") for number in range(20)], OWN_CHUNK_BYTES // 20)
        large += padded(MANY, 1000)
    committed(url, 0, MANY[:70], [], MANY[70:] + large, default_num_segments=3)
    assert found(url) == as_written(MANY + large)
    root = open_root(url)
    containers = {container_of(f"s/{name}", root.config.containers) for name in STREAMS}
    assert len(containers) > 1, "else nothing is shown"
    for name in STREAMS:
        snapshot = Catalog(root).stream("s", name).snapshot()
        assert len(snapshot.record.current.segments) == 3
        homes: dict[str, set[int]] = {}
        for key, event in ((key, event) for stream, event, key in MANY if stream == name and key is not None):
            homes.setdefault(key, set()).update(segments_of(url, name, event))
        assert all(len(home) == 1 for home in homes.values()), "a key stays in one segment"
    committed(url, 0, MANY[100:], MANY[:100] + large)
    assert found(url) == as_written(MANY + large), "a replay"
    for number in range(root.config.containers):
        root.container(number).flush()
    assert found(url) == as_written(MANY + large)


def segments_of(url: str, stream: str, event: str) -> list[int]:
    """The segments that have an event."""
    from pravega_spark.source.batch import BatchReader

    reader = BatchReader(SourceOptions.parse({"controller": url, "scope": "s", "stream": stream}))
    return [
        row["segment_id"]
        for partition in reader.partitions()
        for some in reader.read(partition)
        for row in some.to_pylist()
        if row["event"] == event.encode()
    ]


def test_a_task_routes_by_the_stream_as_it_is_though_its_worker_knew_it_before(url: str) -> None:
    catalog = Catalog(open_root(url, create=True))
    catalog.create_scope("s")
    catalog.create_stream("s", "a")
    writer = BatchWriter(options(url), ROWS)
    tasks(writer, [("a", "1", "k")])
    with Root.open(url) as other:
        elsewhere = Catalog(other).stream("s", "a")
        elsewhere.scale(
            [segment.id for segment in elsewhere.snapshot().record.current.segments], [(0.0, 0.5), (0.5, 1.0)]
        )
        routing = elsewhere.snapshot().record.routing
    (message,) = tasks(writer, [("a", "2", "k")])
    assert message.planned == {"a": routing}


def test_no_chunk_is_in_two_containers(url: str) -> None:
    """Each container knows of its own chunks only whether they are garbage."""
    count = open_root(url, create=True).config.containers
    (message,) = tasks(BatchWriter(options(url), ROWS), padded(MANY))
    homes: dict[str, set[int]] = {}
    for output in message.outputs:
        assert isinstance(output.content, tuple)
        for extent in output.content:
            homes.setdefault(str(extent.source), set()).add(container_of(f"s/{output.stream}", count))
    assert 1 < len(homes) < len(STREAMS) and all(len(some) == 1 for some in homes.values())
    for chunk, (home,) in homes.items():
        assert container_of("/".join(chunk.split("/")[:2]), count) == home


def test_a_write_that_is_aborted_leaves_garbage_of_each_container(url: str) -> None:
    writer = BatchWriter(options(url), ROWS)
    messages = tasks(writer, padded(MANY[:50]), padded(MANY[50:]))
    writer.abort([*messages, None])
    root = open_root(url)
    garbage = {name for number in range(root.config.containers) for name in root.container(number).refresh().garbage}
    assert garbage == {chunk for message in messages for chunk in message.chunks()}


def test_a_replay_with_other_rows_is_told_of_each_stream(url: str, caplog: pytest.LogCaptureFixture) -> None:
    count = open_root(url, create=True).config.containers
    a, b, c = [name for name in "abcdefghijklmnopqrstuvwxyz" if container_of(f"s/{name}", count) == 0][:3]
    committed(url, 0, [(a, "1", None), (b, "2", None)])
    caplog.set_level(logging.INFO, "pravega_spark.streams.writing.producer_state")
    committed(url, 0, [(a, "1", None), (b, "3", None), (c, "4", None)])
    told = {record.levelname: record.getMessage() for record in caplog.records}
    assert set(told) == {"INFO", "WARNING"} and f"s/{a}" in told["INFO"] and f"s/{b}" in told["WARNING"]
    assert found(url) == {a: ["1"], b: ["2"], c: ["4"]}


def test_names_of_batch_jobs(url: str) -> None:
    for version, rows in ((1, MANY[:50]), (1, MANY[:50]), (2, MANY[50:])):
        writer = BatchWriter(options(url, txn_app_id="job", txn_version=version), ROWS)
        writer.commit(tasks(writer, rows))
    assert found(url) == as_written(MANY)
    writer = BatchWriter(options(url), ROWS)
    writer.commit(tasks(writer, [], []))
    writer.commit(tasks(writer, MANY, []))
    assert found(url) == as_written(MANY * 2)


@pytest.mark.parametrize(
    ("when", "inline", "step"),
    [
        pytest.param("before", True, 2, id="before-inline"),
        pytest.param("after", False, 3, id="after-chunks"),
        *(
            pytest.param(when, inline, 1, id=f"every-{when}-{name}", marks=pytest.mark.long)
            for when in ("before", "after")
            for name, inline in (("inline", True), ("chunks", False))
        ),
    ],
)
def test_a_crash_at_every_request(when: When, inline: bool, step: int) -> None:
    """Of each container all is there or nothing; the batch that comes again brings the rest, and nothing twice. At some
    of the requests in `make test`, at every one in `make test-long`."""
    rows = MANY[:24] if inline else padded(MANY[:24])
    number, partly, crashed = 1 - step, 0, True
    while crashed:
        number += step
        url = f"memory://{uuid.uuid4()}"
        committed(url, 0, [(name, "before", None) for name in STREAMS[:4]])
        root = open_root(url)
        through = FaultStore(root.stores.log, crash_at(number, when))
        dying(root, Stores(through, through))
        try:
            committed(url, 1, rows[:12], rows[12:])
            crashed = False
        except Crashed:
            pass
        dying(root, Stores(through.inner, through.inner))
        there = {name: some for name, some in found(url).items() if len(some) > 1}
        by_container: Mapping[int, set[str]] = {}
        for name in STREAMS:
            home = container_of(f"s/{name}", root.config.containers)
            by_container = {**by_container, home: by_container.get(home, set()) | {name}}
        assert all(names <= there.keys() or not names & there.keys() for names in by_container.values())
        partly += 0 < len(there) < len(STREAMS)
        committed(url, 1, rows[:7], rows[7:])
        committed(url, 2, [("a", "after", None)])
        committed(url, 2, [("a", "after", None)])
        rest: list[Row] = [(name, "before", None) for name in STREAMS[:4]]
        assert found(url) == as_written([*rest, *rows, ("a", "after", None)])
    assert number > 8 and partly > 0, "a crash between two containers is among them"


def dying(root: Root, stores: Stores) -> None:
    """Let the process go on as another one, which has these stores and knows nothing."""
    root.settings = replace(root.settings, maintenance=False, threaded=False)
    for number in range(root.config.containers):
        with suppress(Crashed):
            root.containers.stop(number)
    root.stores = stores


def test_a_stream_is_scaled_between_tasks(url: str) -> None:
    """Tasks of one batch route by different epochs; all take part in one append."""
    committed(url, 0, MANY, default_num_segments=2)
    stream = Catalog(open_root(url)).stream("s", "a")
    writer = StreamWriter(options(url), ROWS)
    messages: list[TaskMessage] = []
    batches = [[(name, f"{turn}:{event}", key) for name, event, key in MANY] for turn in range(5)]
    for turn, rows in enumerate(batches):
        messages += tasks(writer, rows)
        current = stream.snapshot().record.current.segments
        if turn % 2:
            stream.scale([segment.id for segment in current], [(0.0, 0.1 * turn), (0.1 * turn, 1.0)])
        else:
            ranges = [(0.0, 0.05 + 0.1 * turn), (0.05 + 0.1 * turn, 0.9), (0.9, 1.0)]
            stream.scale([segment.id for segment in current], ranges)
    assert len({message.planned["a"] for message in messages}) == 5
    before = stream.snapshot().record
    writer.commit(messages, 1)
    written = [row for rows in batches for row in rows]
    assert found(url) == as_written(MANY + written)
    after = stream.snapshot().record
    assert [(each.low, each.high) for each in after.current.segments] == [
        (each.low, each.high) for each in before.current.segments
    ]
    for key in {str(number) for number in range(7)}:
        mine = [event for name, event, its in written if name == "a" and its == key]
        assert [event for event in in_order(url, "a") if event in set(mine)] == mine, "a key's events in order"
    writer.commit(tasks(writer, *batches), 1)
    assert found(url) == as_written(MANY + written)


def test_tasks_that_route_by_an_older_epoch_may_come_first_or_between(url: str) -> None:
    """The order of a key is that of the tasks, whichever of them knew of the scale."""
    rows: list[list[Row]] = [[("a", f"{turn}:{n}", str(n % 7)) for n in range(30)] for turn in range(4)]
    committed(url, 0, rows[0], default_num_segments=1)
    stream, writer = Catalog(open_root(url)).stream("s", "a"), StreamWriter(options(url), ROWS)
    old = tasks(writer, rows[1], rows[3])
    stream.scale([stream.snapshot().record.current.segments[0].id], [(0.0, 0.5), (0.5, 1.0)])
    (new,) = tasks(writer, rows[2])
    writer.commit([old[0], new, old[1]], 1)
    everything = in_order(url, "a")
    for key in range(7):
        mine = [event for some in rows for _, event, its in some if its == str(key)]
        assert [event for event in everything if event in mine] == mine
    assert found(url) == as_written([row for some in rows for row in some])


def in_order(url: str, stream: str) -> list[str]:
    """The events of a stream, epoch by epoch."""
    from pravega_spark.segment_ids import segment_epoch
    from pravega_spark.source.batch import BatchReader

    reader = BatchReader(SourceOptions.parse({"controller": url, "scope": "s", "stream": stream}))
    rows = [row for part in reader.partitions() for some in reader.read(part) for row in some.to_pylist()]
    rows.sort(key=lambda row: (segment_epoch(row["segment_id"]), row["segment_id"], row["offset"]))
    return [row["event"].decode() for row in rows]


def test_what_may_not_be_made(url: str) -> None:
    BatchWriter(options(url), ROWS)
    with pytest.raises(ScopeNotFound, match="'allow_create_scope'"):
        PravegaDataSource({"controller": url, "scope": "other", "allow_create_scope": "false"}).writer(ROWS, False)
    writer = BatchWriter(options(url, allow_create_stream=False), ROWS)
    with pytest.raises(StreamNotFound, match=r"s/new.*'allow_create_stream'"):
        tasks(writer, [("new", "1", None)])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, r"^Column 'stream' is null in a row.*filter"),
        ("a/b", r"^Column 'stream': "),
        ("_x", "^Column 'stream': "),
    ],
)
def test_rows_that_name_no_stream(url: str, name: str | None, message: str) -> None:
    writer = BatchWriter(options(url), ROWS)
    with pytest.raises(ValueError, match=message):
        writer.write(iter([batch([("a", "1", None)]), batch([(name, "2", None), ("a", "3", None)])]))


def test_an_option_counts_for_all_rows(url: str) -> None:
    """As Kafka's option topic does."""
    given = {"controller": url, "scope": "s", "stream": "t"}
    with pytest.raises(ValueError, match=r"^Column 'stream' would be ignored.*remove the option"):
        PravegaDataSource(given).writer(ROWS, False)
    PravegaDataSource({**given, "ignore_extra_columns": "true"}).writer(ROWS, False)
    read = StructType().add("event", BinaryType()).add("scope", StringType()).add("stream", StringType())
    read = read.add("segment_id", LongType()).add("offset", LongType())
    PravegaDataSource(given).writer(read, False)
    del given["stream"]
    PravegaDataSource(given).writer(read, False)
    PravegaDataSource(given).streamWriter(ROWS, False)
    with pytest.raises(ValueError, match=r"^Missing required option 'stream'"):
        PravegaDataSource(given).writer(StructType().add("event", BinaryType()), False)
    with pytest.raises(ValueError, match=r"must be a string, not bigint: cast it"):
        PravegaDataSource(given).writer(StructType().add("event", BinaryType()).add("stream", LongType()), False)
    for several in ({"stream": "a,b"}, {"stream_pattern": "a.*"}):
        with pytest.raises(ValueError, match="each row goes to the stream that its column 'stream' names"):
            PravegaDataSource({**given, **several}).writer(ROWS, False)
