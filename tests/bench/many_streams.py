"""What streams cost each other: a root with very many of them: listing, describing, opening, and retention over all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import click
import pyarrow as pa
from click.testing import CliRunner

import engine.root
from chunkstore import open_store
from chunkstore.testing import CountingStore
from engine.root import Root
from engine.state.operations import Payload
from pravega_spark.cli.main import cli
from pravega_spark.jobs import retention
from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.writing.writes import SegmentAppend

FEW, MANY = 10, 10_000
THREADS = 32


def measure(folder: str) -> None:
    """Print the time and the requests of each, among few streams and among many."""
    for count in (FEW, MANY):
        url = f"{folder}/of-{count}"
        store = CountingStore(open_store(url))
        with mock.patch.object(engine.root, "open_store", lambda _url, _options=None, store=store: store):
            begun = time.perf_counter()
            _make(url, count)
            print(f"\na root with {count:,} streams, made in {time.perf_counter() - begun:,.1f} s")
            _measure(url, store)
            open_root(url).close()


def _measure(url: str, store: CountingStore) -> None:
    one = "s/stream-3"
    work: dict[str, Callable[[], object]] = {
        "open one stream": lambda: _open(url),
        "stream list": lambda: _run(cli, ["--root", url, "--json", "stream", "list"]),
        "stream describe": lambda: _run(cli, ["--root", url, "--json", "stream", "describe", one]),
        "retention, all due": lambda: _retain(url),
        "retention, none due": lambda: _retain(url),
        "retention, all due again": lambda: _retain(url, "--period", "0"),
        "open one stream then": lambda: _open(url),
    }
    for name, run in work.items():
        store.reset()
        begun = time.perf_counter()
        run()
        seconds = time.perf_counter() - begun
        writes = sum(store.counts[verb] for verb in ("put", "put_if_absent", "append", "delete"))
        reads = sum(store.counts.values()) - writes
        print(
            f"  {name:26s} {seconds:8.2f} s {reads:8,} reads {writes:8,} writes "
            f"{store.bytes_read / 1e6:8.2f} MB read {store.bytes_written / 1e6:8.2f} MB written"
        )


def _make(url: str, count: int) -> None:
    """Streams of one event each, which keep nothing that is older than the last recorded cut."""
    framed = frame_column(pa.array([b"an event"], pa.binary()), None, 1)
    part = SegmentAppend(
        0, Payload(framed.data.to_pybytes()), sparse_records(framed.lengths, int(time.time() * 1000)), 1
    )
    with Root.open(url) as root:
        catalog = Catalog(root)
        catalog.create_scope("s")

        def make(number: int) -> None:
            catalog.create_stream("s", f"stream-{number}", retention=RetentionPolicy.by_size(0))
            catalog.stream("s", f"stream-{number}").write([part])

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(make, range(count)))


def _open(url: str) -> None:
    with Root.open(url, create=False) as root:
        Catalog(root).stream("s", "stream-3").snapshot().tail_cut()


def _retain(url: str, *more: str) -> None:
    """Upkeep that is set off is waited for: the requests are its own."""
    _run(retention.main, ["--root", url, "--json", "--yes", *more])
    root = open_root(url)
    for number in range(root.config.containers):
        root.container(number).wait_for_upkeep()


def _run(command: click.Command, arguments: Sequence[str]) -> None:
    done = CliRunner().invoke(command, arguments)
    if done.exit_code:
        raise RuntimeError(f"{arguments}: {done.output}")
