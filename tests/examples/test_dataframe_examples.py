"""The examples with DuckDB, polars, pandas and Dask run, and do what they say."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from examples import dask_ranges, duckdb_query, pandas_chunks, polars_scan
from pravega_spark import StreamManager


def test_duckdb_query(tmp_path: Path) -> None:
    assert duckdb_query.run(str(tmp_path)) == [("user-0", 150_003), ("user-1", 149_997), ("user-2", 150_000)]


def test_polars_scan(tmp_path: Path) -> None:
    assert polars_scan.run(str(tmp_path)) == [("user-0", 150_003), ("user-1", 149_997), ("user-2", 150_000)]


def test_pandas_chunks(tmp_path: Path) -> None:
    assert pandas_chunks.run(str(tmp_path)) == [(f"user-{number}", 45_000) for number in range(3)]


@pytest.mark.processes
def test_dask_ranges(tmp_path: Path) -> None:
    assert dask_ranges.run(str(tmp_path)) == [(f"user-{number}", 45_000) for number in range(3)]


def test_a_scan_of_polars_reads_what_a_query_needs(url: str, manager: StreamManager) -> None:
    rows = 64 << 10
    manager.write_events("sc", "one", pl.DataFrame({"event": [bytes(1000)] * rows}))
    root = Root.open(url)
    root.stores = Stores(store := CountingStore(root.stores.log), store)
    with StreamManager.over(root) as other:
        events = polars_scan.scan_stream(other, "sc", "one")
        store.reset()
        assert events.head(3).select("offset").collect().rows() == [(0,), (1008,), (2016,)]
        assert store.bytes_read < 32 << 20
        assert events.filter(pl.col("offset") >= 1008 * (rows - 2)).select("segment_id").collect().rows() == [
            (0,),
            (0,),
        ]
        assert events.filter(pl.col("offset") > 0).head(2).select("offset").collect().rows() == [(1008,), (2016,)]
        assert events.select(pl.len()).collect().item() == rows
        assert events.collect().schema == events.collect_schema()
