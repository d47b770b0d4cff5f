"""The metadata tables about streams, scopes and roots: what they tell, what that costs, and what is refused."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from chunkstore import open_store
from chunkstore.testing import CountingStore
from engine.admin import inspection
from engine.admin.inspection import segment_chunks
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark import PravegaDataSource
from pravega_spark.errors import ScopeNotFound, StreamNotFound, TruncatedData
from pravega_spark.roots import open_root
from pravega_spark.source import opening, tables
from pravega_spark.source.options import METADATA_TABLES, SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance import recorded_cuts, retention
from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.large_events import put_small
from tests.support import limits

DOCS = Path(__file__).parents[2] / "docs" / "tables.md"

NOW = 1_700_000_000_000
MINUTE = 60_000


class Place(NamedTuple):
    """A root whose requests are counted, and which the tables read."""

    root: Root
    store: CountingStore

    def rows(self, table: str, **options: object) -> list[dict[str, Any]]:
        given = {"path": "/streams", "metadata": table, **{name: str(value) for name, value in options.items()}}
        reader = tables.TableReader(SourceOptions.parse(given, {}))
        names = tables.table_schema(table).names
        return [dict(zip(names, row, strict=True)) for row in reader.read(reader.partitions()[0])]

    def stream(self, scope: str, name: str, policy: RetentionPolicy | None = None, segments: int = 1) -> Stream:
        catalog = Catalog(self.root)
        catalog.create_scope(scope)
        catalog.create_stream(scope, name, ScalingPolicy.fixed_scaling_policy(segments), policy)
        return catalog.stream(scope, name)

    def flush(self) -> None:
        for number in range(self.root.config.containers):
            self.root.container(number).flush()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Makes roots, of which the tables read the last one."""
    made: list[Root] = []

    def new(containers: int = 2, store: CountingStore | None = None, **settings: Any) -> Place:
        store = store or CountingStore(open_store(f"memory://{uuid.uuid4()}"))
        stores = Stores(store, store)
        alone = Settings(maintenance=False, threaded=False, **settings)
        root = Root(stores, RootConfig("root", containers=containers), alone)
        monkeypatch.setattr(opening, "open_root", lambda *_, **how: root)
        made.append(root)
        return Place(root, store)

    yield new
    for root in made:
        root.close()


@pytest.fixture
def place(make: Callable[..., Place]) -> Place:
    return make()


def part(segment: int, *sizes: int) -> SegmentAppend:
    framed = frame_column(pa.array([b"x" * (size - 8) for size in sizes]), None, 1)
    return SegmentAppend(segment, Payload(framed.segment_data(0)), sparse_records(np.array(sizes), NOW), len(sizes))


# --- StreamCuts ---------------------------------------------------------------------------------------------------


def test_recorded_cuts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_cuts, "_BLOCK", 3)
    stream = place.stream("s", "t", RetentionPolicy.by_size(10**6), segments=2)
    other = place.stream("other", "x", RetentionPolicy.by_time(10**9))
    place.stream("s", "none", RetentionPolicy.by_size(1))
    place.stream("s", "empty")
    expected = []
    for number in range(8):
        stream.write([part(0, 20), part(1, 30, 40)])
        cut = retention.retain(stream, NOW + number * 30 * MINUTE).recorded
        assert cut is not None
        expected.append((number, NOW + number * 30 * MINUTE, cut.as_text(), 90 * (number + 1)))
        if number == 4:
            place.flush()
    retention.retain(other, NOW)
    rows = place.rows("StreamCuts", scope="s", stream="t")
    told = [(row["number"], round(row["recorded"].timestamp() * 1000), row["stream_cut"], row["bytes"]) for row in rows]
    assert told == expected
    assert {(row["scope_name"], row["stream_name"]) for row in rows} == {("s", "t")}
    assert place.rows("StreamCuts", scope="s") == rows
    everywhere = place.rows("StreamCuts")
    assert len(everywhere) == 9 and [row for row in everywhere if row["scope_name"] == "s"] == rows
    stream.update(ScalingPolicy.fixed_scaling_policy(2), RetentionPolicy.by_size(100), ())
    assert retention.retain(stream, NOW + 300 * MINUTE).truncated is not None
    left = place.rows("StreamCuts", scope="s", stream="t")
    assert [row["number"] for row in left] == [6, 7, 8]  # the last that keeps 100 of 720 bytes is the one at 540
    stream.seal()
    stream.delete()
    assert place.rows("StreamCuts", scope="s") == []


def test_cuts_that_are_forgotten_while_they_are_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = place.stream("s", "t", RetentionPolicy.by_size(10**6))
    for number in range(4):
        stream.write([part(0, 50)])
        retention.retain(stream, NOW + number * 30 * MINUTE)
    place.flush()
    real, looks = RecordedCuts.all, []

    def interrupted(cuts: RecordedCuts) -> Any:
        looks.append(cuts)
        if len(looks) == 1:
            stream.update(ScalingPolicy(), RetentionPolicy.by_size(60), ())
            retention.retain(stream, NOW + 300 * MINUTE)
        return real(cuts)

    monkeypatch.setattr(RecordedCuts, "all", interrupted)
    rows = place.rows("StreamCuts", scope="s", stream="t")
    assert len(looks) == 2 and [row["number"] for row in rows] == [
        recorded.number for recorded, _ in real(RecordedCuts(stream.snapshot()))
    ]


# --- Chunks -------------------------------------------------------------------------------------------------------


def test_chunks_say_where_the_bytes_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_BATCH", 3)
    streams = [place.stream(scope, name, segments=2) for scope in ("s", "other") for name in ("a", "ab", "b")]
    for number in range(4):
        for stream in streams:
            stream.write([part(0, 20 + number), part(1, 30, 40)])
        if number % 2:
            place.flush()
    transaction, _ = transactions.begin(streams[0])
    transaction.write([part(1, 100)])
    place.flush()
    transaction.commit()
    streams[1].write([part(0, 60)])
    rows = place.rows("Chunks")
    assert {row["place"] for row in rows} == {"chunk", "log"}
    for row in rows:
        container = place.root.container(row["container"])
        data = place.store.read(row["object"], row["position"], row["position"] + row["length"])
        assert data == container.read(row["segment"], row["offset"], row["offset"] + row["length"])
        assert row["segment"].startswith(f"{row['scope_name']}/{row['stream_name']}/")
    for number in range(2):
        container = place.root.container(number)
        for name in inspection.list_segments(container):
            found = [tuple(row.values())[4:] for row in rows if row["segment"] == name]
            assert found == [tuple(each) for each in segment_chunks(container, name)]
            assert sum(each[1] for each in found) == container.info(name).length
    assert place.rows("Chunks", scope="s", stream="a") == [
        row for row in rows if (row["scope_name"], row["stream_name"]) == ("s", "a")
    ]
    assert place.rows("Chunks", scope="other") == [row for row in rows if row["scope_name"] == "other"]


def test_requests_do_not_grow_with_streams(make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> None:
    limits.resident_bytes(monkeypatch, 0)  # nothing that LTS has stays in memory
    costs: dict[str, list[int]] = {}
    for count in (10, 150):
        place = make(1)
        for number in range(count):
            place.stream("s", f"t{number}", RetentionPolicy.by_size(1)).write([part(0, 20)])
        transactions.begin(place.stream("s", "t0"))
        place.flush()
        place.root.container(0).checkpoint()
        place = make(1, place.store, cache_bytes=0)  # which has nothing in memory
        place.root.container(0)
        for table, rows in (("Chunks", 2 * count), ("StreamCuts", 0), ("Transactions", 1)):
            place.store.reset()
            assert len(place.rows(table)) == rows
            costs.setdefault(table, []).append(sum(place.store.counts.values()))
    assert all(many <= 2 * few + 2 for few, many in costs.values()), costs  # by the depth of the tables' trees


# --- Transactions -------------------------------------------------------------------------------------------------


def test_open_transactions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_TOGETHER", 2)
    stream, other = place.stream("s", "t", segments=2), place.stream("other", "x")
    begun = [transactions.begin(stream, lease) for lease in (60.0, 600.0, 60.0)]
    for (transaction, _), sizes in zip(begun, ([], [20, 30], [40]), strict=True):
        if sizes:
            transaction.write([part(0, *sizes), part(1, 10)])
    committed, aborted, elsewhere = (transactions.begin(each)[0] for each in (stream, stream, other))
    committed.commit()
    aborted.abort()
    place.flush()
    monkeypatch.setattr(time, "time", lambda: (begun[0][1].changed + 61_000) / 1000)
    rows = place.rows("Transactions", scope="s", stream="t")
    assert {row["transaction_id"]: (row["status"], row["lease_ms"], row["bytes"]) for row in rows} == {
        str(begun[0][0].id): ("expired", 60_000, 0),
        str(begun[1][0].id): ("open", 600_000, 60),
        str(begun[2][0].id): ("expired", 60_000, 50),
    }
    for row in rows:
        assert (row["timeout"] - row["began"]).total_seconds() * 1000 == row["lease_ms"]
    everywhere = place.rows("Transactions")
    assert str(elsewhere.id) in {row["transaction_id"] for row in everywhere} and len(everywhere) == 4


# --- Containers ---------------------------------------------------------------------------------------------------


def test_containers(place: Place) -> None:
    place.stream("s", "t").write([part(0, 20)])
    before = {row["number"]: row for row in place.rows("Containers")}
    assert sum(row["logged_bytes"] for row in before.values()) == 20 + RECORD_SIZE
    assert {(row["cycle"], row["cycle_time"], row["recovery_point"]) for row in before.values()} == {(0, None, None)}
    place.flush()
    for row in place.rows("Containers"):
        assert (row["online"], row["reason"], row["logged_bytes"]) == (True, None, 0)
        assert row["cycle_complete"] and row["cycle"] == row["recovery_point"] and row["sequence"] > 0
        assert row["segments"] >= before[row["number"]]["segments"]


def test_a_container_that_cannot_be_opened(tmp_path: Path) -> None:
    url = str(tmp_path / "root")
    with Root.open(url, containers=2) as root:
        root.container(1).create_segment("s")
    frame = min((tmp_path / "root" / "_system" / "containers" / "1" / "wal").glob("*/*"))
    frame.write_bytes(frame.read_bytes()[:-1] + b"?")
    reader = tables.TableReader(SourceOptions.parse({"path": url, "metadata": "Containers"}, {}))
    try:
        good, bad = reader.read(reader.partitions()[0])
    finally:
        open_root(url, {}).close()
    assert good[:3] == (0, True, None)
    assert bad[:2] == (1, False) and frame.name in bad[2] and set(bad[3:]) == {None} and len(bad) == len(good)


# --- counts -------------------------------------------------------------------------------------------------------


def test_counts_are_those_of_a_read_and_no_event_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, events in (("one", 3), ("two", 5)):
        put_small(place.stream("s", name), *[b"12"] * events)
    two = {"scope_name": "s", "stream_name": "two", "segment_id": 0, "start_offset": 0, "end_offset": 50}
    middle = StreamCut("s", "one", {0: 10}).as_text()
    rows = place.rows("Counts", scope="s", stream="one,two", start_stream_cut=f'{{"one": "{middle}"}}')
    one = {"scope_name": "s", "stream_name": "one", "segment_id": 0, "start_offset": 10, "end_offset": 30}
    assert rows == [{**one, "events": 2, "bytes": 20}, {**two, "events": 5, "bytes": 50}]
    pattern = place.rows("Counts", scope="s", stream_pattern="t.*")
    assert pattern == [{**two, "events": 5, "bytes": 50}]
    assert place.rows("Counts", scope="s", stream="two", starting_timestamp="2100-01-01") == [
        {**two, "start_offset": 50, "events": 0, "bytes": 0}
    ]
    place.store.reset()
    place.rows("Counts", scope="s", stream="two")
    assert sum(place.store.counts.values()) <= 2, "the container's news, and nothing of the stream"


def test_counts_of_what_is_gone_and_of_impossible_ranges(place: Place) -> None:
    stream = place.stream("s", "t")
    put_small(stream, *[b"12"] * 4)
    head = stream.snapshot().head_cut().as_text()
    stream.truncate(StreamCut("s", "t", {0: 20}))
    with pytest.raises(TruncatedData):
        place.rows("Counts", scope="s", stream="t", start_stream_cut=head)
    (row,) = place.rows("Counts", scope="s", stream="t", start_stream_cut=head, fail_on_data_loss="false")
    assert (row["start_offset"], row["events"]) == (20, 2)
    with pytest.raises(ValueError, match="'start_stream_cut' cannot be 'latest'"):
        place.rows("Counts", scope="s", stream="t", start_stream_cut="latest")


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["StreamCuts", "Chunks", "Transactions"])
def test_what_is_missing(place: Place, table: str) -> None:
    place.stream("s", "t")
    with pytest.raises(ScopeNotFound, match="none"):
        place.rows(table, scope="none", allow_create_scope=False)
    with pytest.raises(ScopeNotFound, match="none"):
        place.rows(table, scope="none", stream="t", allow_create_scope=False)
    with pytest.raises(StreamNotFound, match="s/none"):
        place.rows(table, scope="s", stream="none", allow_create_stream=False)
    assert list(Catalog(place.root).streams("s")) == ["t"] and Catalog(place.root).scopes() == ["s"]
    with pytest.raises(ScopeNotFound, match="new"):
        place.rows(table, scope="new", stream="made")
    told = {"allow_create_scope": True, "allow_create_stream": True}
    assert place.rows(table, scope="new", stream="made", **told) == []
    assert list(Catalog(place.root).streams("new")) == ["made"]


def test_names_may_be_left_out_where_all_are_meant() -> None:
    for table in METADATA_TABLES:
        for given in ({}, {"scope": "s"}, {"stream": "t"}, {"scope": ""}):
            whole = table in ("StreamCuts", "Chunks", "Transactions", "Containers", "Losses")
            options = {"path": "/streams", "metadata": table, **given}
            if (whole and given in ({}, {"scope": "s"})) or (table == "Streams" and given == {"scope": "s"}):
                parsed = SourceOptions.parse(options, {})
                assert (parsed.scope, parsed.stream) == (given.get("scope", ""), "")
            else:
                with pytest.raises(ValueError, match=r"[Oo]ption '(scope|stream)'"):
                    SourceOptions.parse(options, {})


def test_streams_of_a_scope(place: Place) -> None:
    for scope, name in (("a", "two"), ("a", "one"), ("b", "three")):
        place.stream(scope, name)
    assert [row["stream_name"] for row in place.rows("Streams", scope="a")] == ["one", "two"]
    assert [row["stream_name"] for row in place.rows("Streams", scope="a", stream="two")] == ["one", "two"]
    with pytest.raises(ScopeNotFound):
        place.rows("Streams", scope="none")


def test_nothing_is_written_to_a_table() -> None:
    schema = StructType().add("event", "string")
    for options in ({"metadata": "Chunks"}, {"metadata": "Streams", "scope": "s", "stream": "t"}):
        source = PravegaDataSource({"path": "/streams", **options})
        for writer in (source.writer, source.streamWriter):
            with pytest.raises(ValueError, match="Option 'metadata' is for batch reads"):
                writer(schema, False)


def test_every_table_is_documented_with_its_columns() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    told = {table: re.findall(r"`(\w+)`", columns) for table, columns in rows}
    assert told == {table: tables.table_schema(table).names for table in METADATA_TABLES}


@pytest.mark.parametrize("table", METADATA_TABLES)
def test_columns_have_comments_also_as_a_table_of_the_catalog(table: str) -> None:
    options = {"path": "/streams", "scope": "s", "stream": "t", "metadata": table}
    plain = PravegaDataSource(options).schema()
    kept = PravegaDataSource({**options, **{f"option.{key}": value for key, value in options.items()}}).schema()
    assert isinstance(plain, StructType) and isinstance(kept, StructType) and plain.names == kept.names
    for field, other in zip(plain, kept, strict=True):
        assert field.metadata["comment"] == other.metadata["comment"] != ""
        assert field.dataType == other.dataType and other.metadata["pravega"]["metadata"] == table
