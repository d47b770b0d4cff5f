"""What a long history costs: a root with very many commits, streams and chunks, at three sizes of it.

HISTORY: commits of the largest size; HISTORY_STREAMS: its streams; HISTORY_CHUNKS: the chunks of one more stream, each
of one event. 2,000 at least of each. It is built in steps, to a hundredth, a tenth and all of it. At each size every
operation runs in a process of its own, which has opened nothing before.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from click.testing import CliRunner

import engine.root
from chunkstore import open_store
from chunkstore.testing import CountingStore
from chunkstore.wrapping import WRITES
from pravega_spark import StreamCut, StreamManager
from pravega_spark.cli.main import cli
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.options import SourceOptions
from tests.bench.figures import Figures
from tests.support import limits

COMMITS = int(os.environ.get("HISTORY", "100000"))
STREAMS = int(os.environ.get("HISTORY_STREAMS", "10000"))
CHUNKS = int(os.environ.get("HISTORY_CHUNKS", "100000"))
CHUNKS_A_FLUSH = 20_000
PARTS = 100, 10, 1
THREADS = 8
EVENT = b"x" * 100
STORED = len(EVENT) + 8
"""Bytes of an event with its header."""

BUILDING = {"containers": 1, "grace_seconds": 15, "garbage_delay_seconds": 1}


def measure(folder: str, figures: Figures) -> None:
    """Tell requests, CPU and memory of each operation at each size."""
    url = f"{folder}/history"
    streams = commits = chunks = 0
    for part in PARTS:
        begun = time.perf_counter()
        _build(url, range(streams, STREAMS // part), COMMITS // part - commits)
        _build_chunks(url, CHUNKS // part - chunks)
        streams, commits, chunks = STREAMS // part, COMMITS // part, CHUNKS // part
        size = f"{commits:,} commits, {streams:,} streams, {chunks:,} chunks"
        print(f"\n{size}; {time.perf_counter() - begun:,.0f} s", flush=True)
        for name in OPERATIONS:
            run = [sys.executable, "-m", "tests.bench.history", url, name]
            found = json.loads(
                subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
            )
            figures.tell("history", f"{size}: {name}", **found)


def _build(url: str, streams: range, commits: int) -> None:
    """Each commit is one event."""
    with StreamManager(url, settings=BUILDING) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "history", 1)

        def make(number: int) -> None:
            manager.create_stream("s", f"stream-{number}", 1)

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(make, streams))
        with manager.create_writer("s", "history") as writer:
            for _ in range(commits):
                writer.write_event_bytes(EVENT, "key")
                writer.flush()
        container = manager.root.container(0)
        container.flush()
        container.checkpoint()
        container.wait_for_upkeep()


def _build_chunks(url: str, chunks: int) -> None:
    """Each event is a chunk. Nothing merges them meanwhile."""
    settings = {**BUILDING, "maintenance": False}
    with pytest.MonkeyPatch.context() as patch, StreamManager(url, settings=settings) as manager:
        limits.flushed_chunk_bytes(patch, STORED)
        manager.create_stream("s", "chunks", 1)
        with manager.create_writer("s", "chunks") as writer:
            for first in range(0, chunks, CHUNKS_A_FLUSH):
                count = min(CHUNKS_A_FLUSH, chunks - first)
                writer.write_events(pa.array([EVENT] * count, pa.binary()), routing_keys=pa.array(["key"] * count))
                writer.flush()
                manager.root.container(0).flush()
        manager.root.container(0).checkpoint()


# --- the operations ---------------------------------------------------------------------------------------------------


def _open(url: str, then: Callable[[StreamManager], object] = lambda manager: None) -> None:
    """Open the container, forget what that took if there is more to do, and do it."""
    with StreamManager(url, create=False, settings={"maintenance": False}) as manager:
        manager.root.container(0).refresh()
        then(manager)


def _after_opening(then: Callable[[StreamManager], object]) -> Callable[[str], None]:
    def measured(manager: StreamManager) -> None:
        MEASURED.reset()
        then(manager)

    return lambda url: _open(url, measured)


def _commit(manager: StreamManager) -> None:
    with manager.create_writer("s", "history") as writer:
        writer.write_event_bytes(EVENT, "key")
        writer.flush()


def _plan(stream: str) -> Callable[[str], None]:
    def plan(url: str) -> None:
        reader = BatchReader(SourceOptions.parse({"controller": url, "scope": "s", "stream": stream}))
        MEASURED.figures["partitions"] = len(reader.partitions())

    return plan


def _read_ten(stream: str, behind: float) -> Callable[[StreamManager], None]:
    """Read 10 events that lie so much of the stream before its end, or the last ones."""

    def read(manager: StreamManager) -> None:
        tail = manager.stream_info("s", stream).tail
        [(segment, length)] = tail.positions.items()
        end = length - int(behind * length / STORED) * STORED
        cuts = [StreamCut("s", stream, {segment: offset}) for offset in (end - 10 * STORED, end)]
        assert len(list(manager.read_events("s", stream, start=cuts[0], end=cuts[1]))) == 10

    return read


def _command(*arguments: str) -> Callable[[str], None]:
    def run(url: str) -> None:
        done = CliRunner().invoke(cli, ["--root", url, *arguments])
        if done.exit_code:
            raise RuntimeError(f"{arguments}: {done.output}")

    return run


OPERATIONS: dict[str, Callable[[str], None]] = {
    "open": _open,
    "poll": _after_opening(lambda manager: manager.root.container(0).refresh()),
    "first look at a stream": _after_opening(lambda manager: manager.stream_info("s", "history")),
    "commit": _after_opening(_commit),
    "read the last 10 events": _after_opening(_read_ten("history", 0)),
    "plan a batch read": _plan("history"),
    "read 10 events of as many chunks": _after_opening(_read_ten("chunks", 0.5)),
    "plan a batch read of the chunks": _plan("chunks"),
    "create a stream": _after_opening(lambda manager: manager.create_stream("s", uuid.uuid4().hex, 1)),
    "retention of a stream": _after_opening(lambda manager: manager.retain("s", "history")),
    "list streams": _after_opening(lambda manager: manager.list_stream("s")),
    "what maintain would do": _command("maintain", "--dry-run"),
    "gc": _command("gc", "--yes"),
    "verify": _command("verify"),
}


class Measured:
    """What the stores of a process were asked for, and what it cost, since the last `reset`."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._stores: list[CountingStore] = []
        self.reset()

    def open_store(self, url: str, options: Mapping[str, Any] | None = None) -> CountingStore:
        """Takes the place of `open_store`."""
        self._stores.append(CountingStore(open_store(url, options)))
        return self._stores[-1]

    def reset(self) -> None:
        """Begin to measure."""
        for store in self._stores:
            store.reset()
        self._before = resource.getrusage(resource.RUSAGE_SELF)
        self._begun = time.perf_counter()

    def told(self) -> dict[str, float]:
        """The figures."""
        after, before = resource.getrusage(resource.RUSAGE_SELF), self._before
        total = sum(sum(store.counts.values()) for store in self._stores)
        writes = sum(store.counts[verb] for store in self._stores for verb in WRITES)
        return {
            "reads": total - writes,
            "writes": writes,
            "MB_read": sum(store.bytes_read for store in self._stores) / 1e6,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "s": time.perf_counter() - self._begun,
            "peak_MB": _peak() / 1024,
            **self.figures,
        }


def _peak() -> int:
    """The most KiB that this process had, without those of its parent at the fork."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


MEASURED = Measured()


def main(url: str, name: str) -> None:
    """Run one operation, and print what it took."""
    MEASURED.reset()
    with mock.patch.object(engine.root, "open_store", MEASURED.open_store):
        OPERATIONS[name](url)
        print(json.dumps(MEASURED.told()))


if __name__ == "__main__":
    main(*sys.argv[1:])
