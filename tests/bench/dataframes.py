"""Tools of one process, and Dask, that read the events of a stream and the same events from Parquet.

Each tool does the same with both, in turns: it counts the events and sums up their sizes. The ceiling is Parquet
without compression. Everything is in the system's cache. CPU time is that of all processes of the tool.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from examples.polars_scan import scan_stream
from pravega_spark import SegmentRange, StreamManager
from tests.bench.figures import Figures

SIZES = (100, 1_000, 10_000)
TOTAL = int(os.environ.get("DATAFRAMES_MB", "128")) << 20
TOOLS = os.environ.get("DATAFRAMES", "DuckDB polars pandas Dask").split()
ROUNDS = 5
PART = 16 << 20
"""Bytes of a row group, of a file that Dask reads, and of a range of a segment."""

KEYS = 1000
CEILING = "Parquet, uncompressed"

Answer = tuple[int, int]
"""The number of events, and the sum of their sizes."""


def measure(folder: str, figures: Figures) -> None:
    """Print the times of all tools for events of each size."""
    for size in SIZES:
        data = f"{folder}/dataframes-{size}"
        as_bytes = dask.config.set({"dataframe.convert-string": False})  # Dask takes objects for texts otherwise
        with as_bytes, StreamManager(f"{data}/root", create=True) as manager:
            manager.create_scope("s")
            manager.create_stream("s", "t", 4)
            _write(manager, data, size)
            for tool, ways in _tools(manager, data).items():
                times: dict[str, list[float]] = {name: [] for name in ways}
                spent: dict[str, list[float]] = {name: [] for name in ways}
                for _ in range(ROUNDS):
                    for name, way in ways.items():
                        cpu, begun = _cpu_seconds(), time.perf_counter()
                        found = way()
                        times[name].append(time.perf_counter() - begun)
                        spent[name].append(_cpu_seconds() - cpu)
                        assert found == (TOTAL // size, TOTAL // size * size), (tool, name, found)
                figures.compare("dataframes", f"{tool}, {size} B", times, CEILING)
                figures.compare("dataframes, CPU time", f"{tool}, {size} B", spent, CEILING)


def _cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _write(manager: StreamManager, data: str, size: int) -> None:
    """The same events with keys into the stream and into files of Parquet."""
    for kind in ("none", "snappy"):
        Path(data, kind).mkdir()
    count, batches = PART // size, []
    for first in range(0, TOTAL // size, count):
        rows = min(count, TOTAL // size - first)
        events = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(size), rows, [None, pa.py_buffer(os.urandom(rows * size))]
        )
        keys = pa.array([f"key-{number % KEYS}" for number in range(rows)])
        batches.append(pa.record_batch({"event": events.cast(pa.binary()), "routing_key": keys}))
        for kind in ("none", "snappy"):
            table = pa.Table.from_batches(batches[-1:])
            pq.write_table(table, f"{data}/{kind}/{len(batches):03}.parquet", compression=kind)
    manager.write_events("s", "t", pa.Table.from_batches(batches))
    for number in range(manager.root.config.containers):
        manager.root.container(number).flush()


def _tools(manager: StreamManager, data: str) -> dict[str, dict[str, Callable[[], Answer]]]:
    """For each tool the ways in which it reads."""
    files = {CEILING: f"{data}/none", "Parquet, snappy": f"{data}/snappy"}
    of_files = {
        "DuckDB": lambda place: _duckdb(f"read_parquet('{place}/*.parquet')"),
        "polars": lambda place: _polars(pl.scan_parquet(f"{place}/*.parquet")),
        "pandas": lambda place: _pandas(pd.read_parquet(place, columns=["event"])),
        "Dask": lambda place: _dask(dd.read_parquet(place, columns=["event"])),
    }
    of_stream: dict[str, Callable[[], Answer]] = {
        "DuckDB": lambda: _duckdb("events", manager.read_events("s", "t").to_batches(["event"])),
        "polars": lambda: _polars(scan_stream(manager, "s", "t")),
        "pandas": lambda: _pandas(manager.read_events("s", "t").to_pandas(["event"])),
        "Dask": lambda: _dask(
            dd.from_map(
                partial(_range, f"{data}/root"),
                manager.segment_ranges("s", "t", max_bytes=PART),
                meta=pd.DataFrame({"event": pd.Series(dtype=object)}),
            )
        ),
    }
    return {
        tool: {**{name: partial(way, place) for name, place in files.items()}, "stream": of_stream[tool]}
        for tool, way in of_files.items()
        if tool in TOOLS
    }


def _duckdb(source: str, events: pa.RecordBatchReader | None = None) -> Answer:
    with duckdb.connect() as database:
        if events is not None:
            database.register("events", events)
        [found] = database.sql(f"SELECT count(*), sum(octet_length(event))::BIGINT FROM {source}").fetchall()
        return found


def _polars(events: pl.LazyFrame) -> Answer:
    column = pl.col("event")
    [found] = (
        events.select(column.len(), size=column.bin.size().cast(pl.Int64).sum()).collect(engine="streaming").rows()
    )
    return found


def _pandas(events: pd.DataFrame) -> Answer:
    return len(events), int(events["event"].map(len).sum())


def _range(root: str, part: SegmentRange) -> pd.DataFrame:
    with StreamManager(root) as manager:
        return manager.read_segment(part).to_pandas(["event"])


def _answer(events: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"events": [len(events)], "size": [events["event"].map(len).sum()]})


def _dask(events: dd.DataFrame) -> Answer:
    meta = pd.DataFrame({"events": np.zeros(0, np.int64), "size": np.zeros(0, np.int64)})
    found = events.map_partitions(_answer, meta=meta).compute(scheduler="processes", num_workers=2)
    return int(found["events"].sum()), int(found["size"].sum())
