"""Tables of any library that are written as one atomic append."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from chunkstore import Store
from chunkstore.testing import CountingStore
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import ReplayChanged, StreamManager, StreamSealed, WritesLost
from pravega_spark.source.sink import BatchWriter
from tests.restored import begun, flush, restored
from tests.source.keyed import by_key, options, rows

MIB = 1 << 20
EVENTS = ["a", "bc", "", "def"]
KEYS = ["k1", "k2", "k1", None]
TABLE = pa.table({"event": EVENTS, "routing_key": KEYS})


def read(manager: StreamManager, stream: str = "one") -> list[bytes]:
    found: list[bytes] = manager.to_arrow("sc", stream)["event"].to_pylist()
    return found


class Capsule:
    """What any other library gives."""

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def typed(event: pa.DataType, key: pa.DataType) -> pa.Table:
    return TABLE.cast(pa.schema({"event": event, "routing_key": key}))


FRAMES: dict[str, Callable[[], Any]] = {
    "pyarrow.Table": lambda: TABLE,
    "pyarrow.RecordBatch": lambda: TABLE.to_batches()[0],
    "pyarrow.RecordBatchReader": lambda: TABLE.to_reader(1),
    "in several chunks": lambda: pa.concat_tables([TABLE[:1], TABLE[:0], TABLE[1:]]),
    "polars": lambda: pl.DataFrame({"event": EVENTS, "routing_key": KEYS}),
    "polars, bytes": lambda: pl.DataFrame({"event": [each.encode() for each in EVENTS], "routing_key": KEYS}),
    "polars, categories": lambda: pl.DataFrame({"event": EVENTS, "routing_key": pl.Series(KEYS, dtype=pl.Categorical)}),
    "pandas": lambda: pd.DataFrame({"event": EVENTS, "routing_key": KEYS}),
    "pandas, an index of its own": lambda: pd.DataFrame({"event": EVENTS, "routing_key": KEYS}, index=[3, 1, 4, 2]),
    "pandas, no key at all": lambda: pd.DataFrame({"event": EVENTS, "routing_key": [None] * 4}),
    "DuckDB": lambda: duckdb.sql("SELECT unnest(['a', 'bc', '', 'def']) AS event, 'k' AS routing_key"),
    "any library": lambda: Capsule(TABLE),
    "large": lambda: typed(pa.large_binary(), pa.large_string()),
    "views": lambda: typed(pa.binary_view(), pa.string_view()),
    "no key": lambda: TABLE.select(["event"]),
    "in another order": lambda: TABLE.select(["routing_key", "event"]),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_any_table_is_written(manager: StreamManager, kind: str) -> None:
    assert manager.write_events("sc", "one", FRAMES[kind]())
    assert read(manager) == [event.encode() for event in EVENTS]


def test_rows_of_a_key_go_to_its_segment_in_order(manager: StreamManager) -> None:
    assert manager.write_events("sc", "four", pa.Table.from_batches([rows(0, 2000)]).to_reader(300))
    table = manager.to_arrow("sc", "four")
    texts = [event.decode() for event in table["event"].to_pylist()]
    assert by_key(texts) == {str(key): list(range(key, 2000, 10)) for key in range(10)}
    places = {
        (text.split("/")[0], segment) for text, segment in zip(texts, table["segment_id"].to_pylist(), strict=True)
    }
    assert len(places) == 10 and len({segment for _, segment in places}) == 3
    with manager.create_writer("sc", "four") as writer:
        writer.write_event("3/2000", "3")
    last = manager.to_arrow("sc", "four").filter(pa.compute.field("event") == b"3/2000")
    assert ("3", last["segment_id"][0].as_py()) in places, "where a writer writes the key"


def test_what_was_read_is_copied(manager: StreamManager) -> None:
    manager.write_events("sc", "one", TABLE)
    assert manager.write_events("sc", "four", manager.read_events("sc", "one"))
    metadata = ["event", "scope", "stream", "segment_id", "offset", "timestamp", "event_pointer", "event_number"]
    assert manager.write_events("sc", "four", manager.read_events("sc", "one").to_arrow(metadata))
    assert sorted(read(manager, "four")) == sorted(2 * read(manager))


def test_large_events_among_small_ones(manager: StreamManager) -> None:
    payloads = [b"before", b"large" * (2 * MIB), b"after"]
    assert manager.write_events("sc", "one", pa.table({"event": payloads}))
    assert read(manager) == payloads


# --- one step ----------------------------------------------------------------------------------------------------


@pytest.fixture
def counting(url: str, manager: StreamManager) -> Iterator[tuple[CountingStore, StreamManager]]:
    """Another process, so to speak, whose requests are counted."""
    root = Root.open(url)
    store = CountingStore(root.stores.log)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as other:
        yield store, other


def frames_in(store: CountingStore) -> int:
    return store.count("put_if_absent", "_system/containers/")


@pytest.mark.parametrize("events", [10, 3_000])
def test_a_table_is_one_append(counting: tuple[CountingStore, StreamManager], events: int) -> None:
    store, manager = counting
    manager.write_events("sc", "four", TABLE)
    store.reset()
    manager.write_events("sc", "four", pa.table({"event": [bytes(10_000)] * events, "routing_key": ["k"] * events}))
    assert frames_in(store) == 1
    assert (store.count("put", "sc/") > 0) == (events > 1000), "much goes to chunks, which the append attaches"


def test_nothing_is_seen_or_left_of_a_reader_that_fails(counting: tuple[CountingStore, StreamManager]) -> None:
    store, manager = counting

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            yield pa.record_batch({"event": [bytes(MIB)] * 16})
            assert read(manager) == []
        raise OSError("the source is gone")

    broken = pa.RecordBatchReader.from_batches(pa.schema({"event": pa.binary()}), batches())
    with pytest.raises(OSError, match="the source is gone"):
        manager.write_events("sc", "one", broken)
    assert store.count("put", "sc/") >= 2 and list(store.list("sc/")) == [] == read(manager)


def test_a_reader_of_any_length_takes_bounded_memory(manager: StreamManager) -> None:
    """Of Arrow's memory, which batches and what is framed of them are in."""
    above: list[int] = []
    begun = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            yield pa.record_batch({"event": pa.array([bytes(10_000)] * 800)})
            above.append(pa.total_allocated_bytes() - begun)

    manager.write_events("sc", "four", pa.RecordBatchReader.from_batches(pa.schema({"event": pa.binary()}), batches()))
    assert manager.stream_info("sc", "four").events == 32_000
    assert max(above) < 100 * MIB < 320 * MIB


class MeasuringStore(WrappingStore):
    """Measures Arrow's memory at each request."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.allocated: list[int] = []

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        self.allocated.append(pa.total_allocated_bytes())
        return call()


def test_large_batches_are_framed_in_parts(url: str, manager: StreamManager) -> None:
    table = pa.table({"event": pa.array([bytes(10_000)] * 20_000)})
    root = Root.open(url)
    root.stores = Stores(store := MeasuringStore(root.stores.log), store)
    begun = pa.total_allocated_bytes()
    with StreamManager.over(root) as other:
        other.write_events("sc", "one", table)
    assert max(store.allocated) - begun < 100 * MIB < table.nbytes


# --- exactly once ------------------------------------------------------------------------------------------------


def test_a_version_is_written_once_also_by_spark(url: str, manager: StreamManager) -> None:
    key: dict[str, Any] = {"txn_app_id": "a job"}
    assert manager.write_events("sc", "one", TABLE, txn_version=1, **key)
    assert not manager.write_events("sc", "one", TABLE, txn_version=1, **key)
    assert not manager.write_events("sc", "one", TABLE, txn_version=0, **key)
    manager.seal_stream("sc", "one")
    assert not manager.write_events("sc", "one", TABLE, txn_version=1, **key)
    with pytest.raises(StreamSealed):
        manager.write_events("sc", "one", TABLE, txn_version=2, **key)
    with pytest.raises(StreamSealed):
        manager.write_events("sc", "one", TABLE)
    assert len(read(manager)) == 4
    manager.create_scope("s")
    manager.create_stream("s", "both", 2)
    from pyspark.sql.types import StructType

    writer = BatchWriter(
        options(url, "both", **key, txn_version=5), StructType().add("event", "string").add("routing_key", "string")
    )
    writer.commit([writer.write(iter([rows(0, 100)]))])
    again = rows(0, 100)
    assert not manager.write_events("s", "both", again, txn_version=5, on_changed_replay="fail", **key)
    assert manager.write_events("s", "both", rows(0, 100), txn_version=6, **key)
    assert manager.stream_info("s", "both").events == 200


def test_what_is_done_with_other_events_of_a_version(manager: StreamManager, caplog: pytest.LogCaptureFixture) -> None:
    key: dict[str, Any] = {"txn_app_id": "a job", "txn_version": 1}
    other = TABLE.slice(1)
    assert manager.write_events("sc", "one", TABLE, **key)
    assert not manager.write_events("sc", "one", other, **key)
    assert "was NOT written" in caplog.text
    with pytest.raises(ReplayChanged):
        manager.write_events("sc", "one", other, on_changed_replay="fail", **key)
    with pytest.raises(ReplayChanged):
        manager.write_events("sc", "one", TABLE[:0], on_changed_replay="fail", **key)
    assert manager.write_events("sc", "one", other, on_changed_replay="write", **key)
    assert len(read(manager)) == 7


def test_versions_that_a_restore_lost_are_an_error(tmp_path: Any) -> None:
    place = begun(tmp_path / "root")
    with StreamManager(str(place)) as manager:
        manager.write_events("sc", "one", TABLE, txn_app_id="a job", txn_version=0)
        flush(place)
        manager.write_events("sc", "one", TABLE, txn_app_id="a job", txn_version=1)
    with StreamManager(str(restored(place, tmp_path / "copy"))) as manager:
        with pytest.raises(WritesLost):
            manager.write_events("sc", "one", TABLE, txn_app_id="a job", txn_version=2)
        assert manager.write_events("sc", "one", TABLE, txn_app_id="a job", txn_version=2, accept_lost_batches=True)
        assert len(read(manager)) == 5 + 4 + 4


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"event": ["a"]}, r"write_events: data must be a table .* \(dict\)$"),
        (["a"], r"\(list\)$"),
        (pa.array(["a"]), r"\(StringArray\)$"),
        (pl.Series(["a"]), r"\(Series\)$"),
        (pl.LazyFrame({"event": ["a"]}), r"\(LazyFrame\): give data.collect"),
        (pa.table({"value": ["a"]}), "has no column 'event': its columns are value"),
        (pa.table({"event": [1]}), "'event' of data must hold strings or binary, not int64"),
        (pa.table({"event": ["a"], "routing_key": [1]}), "'routing_key' of data must hold strings, not int64"),
        (pa.table({"event": ["a"], "time": [1]}), "columns time of data would be dropped"),
        (pa.table({"event": ["a"], "stream": ["x"]}), "columns stream of data would be dropped"),
        (pa.table([["a"], ["b"]], names=["event", "event"]), "columns event, event of data would be dropped"),
        (pa.table({"event": ["a"] * 70_000 + [None]}), "'event' of data is null in row 70000"),
        (pa.table({"event": pa.nulls(2)}), "'event' of data is null in row 0"),
    ],
    ids=str,
)
def test_what_cannot_be_written(manager: StreamManager, data: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        manager.write_events("sc", "one", data)
    assert read(manager) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"txn_app_id": "a"}, "form one key: give both or neither"),
        ({"txn_version": 1}, "form one key: give both or neither"),
        ({"txn_app_id": "", "txn_version": 1}, "txn_app_id is empty"),
        ({"txn_app_id": "a", "txn_version": -1}, "txn_version must be from 0 to"),
        ({"txn_app_id": "a", "txn_version": 1, "on_changed_replay": "no"}, "on_changed_replay must be 'skip' or"),
    ],
    ids=str,
)
def test_keys_that_are_none(manager: StreamManager, key: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        manager.write_events("sc", "one", TABLE, **key)


def test_a_table_without_rows_is_no_append(manager: StreamManager) -> None:
    manager.write_events("sc", "one", TABLE)
    cut = manager.stream_info("sc", "one").tail
    assert manager.write_events("sc", "one", TABLE[:0])
    assert manager.write_events("sc", "one", pa.table({"event": pa.nulls(0)}))
    assert manager.stream_info("sc", "one").tail == cut


# --- columns of a writer -------------------------------------------------------------------------------------------


def test_a_writer_takes_columns_of_any_library(manager: StreamManager) -> None:
    frame = pl.DataFrame({"event": EVENTS, "routing_key": KEYS})
    series = pd.Series(EVENTS)
    with manager.create_writer("sc", "one") as writer:
        writer.write_events(frame["event"], frame["routing_key"])
        writer.write_events(series)
    assert read(manager) == [event.encode() for event in EVENTS] * 2
