"""Measurements of the client: appends that are waited for, bulk writes, many threads, event loops, many processes.

Beside each figure stands its ceiling, which is measured in turns with it: what the same bytes cost as bare files of
the same disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import truediv

import pyarrow as pa

from engine.logs.log import frames_folder
from engine.root import Root
from pravega_spark import AsyncEventWriter, StreamManager
from tests.bench.figures import Figures

SIZE = 1000
BLOCKS, APPENDS = 8, 50
BULK = {100: 256 << 20, 1_000: 512 << 20, 10_000: 512 << 20}
"""Event size, and how many bytes of events are written in bulk."""

COLUMN = 16 << 20
SINGLE = 200_000
CHUNK, UPLOADS = 4 << 20, 3
"""What a column is to the segments of its stream, and how many of these a writer writes at a time."""

ROUNDS = 5
THREADS, EACH = 64, 100
COROUTINES = (1, 64, 1000)
PROCESSES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 8))
"""How many write, and to how many streams."""

SECONDS = 3.0


def measure(folder: str, figures: Figures, parts: list[str]) -> None:
    """Print all of them, or those that are named."""
    found = {"waited": waited, "bulk": bulk, "threads": threads, "loops": loops, "processes": processes}
    for name, part in found.items():
        if not parts or name in parts:
            part(folder, figures)


# --- one after the other -------------------------------------------------------------------------------------------


def waited(folder: str, figures: Figures) -> None:
    """Events of 1 KB, each waited for, against bare new files: fsync, link and a sync of the folder each."""
    data = os.urandom(SIZE)
    root = Root.open(f"{folder}/waited", create=True)
    with StreamManager.over(root) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "waited", 1)
        writer = manager.create_writer("s", "waited")
        container = root.container(0)
        container.create_segment("s/bare")
        os.makedirs(f"{folder}/bare")

        def write() -> None:
            writer.write_event_bytes(data, "key")
            writer.flush()

        kinds: dict[str, Callable[[], object]] = {
            "bare file": lambda: _bare_file(f"{folder}/bare", data),
            "write_event_bytes, flush": write,
            "container.append": lambda: container.append("s/bare", data),
        }
        times: dict[str, list[float]] = {name: [] for name in kinds}
        spent = dict.fromkeys(kinds, 0.0)
        for _ in range(BLOCKS):
            for name, run in kinds.items():
                cpu = time.process_time()
                for _ in range(APPENDS):
                    begun = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - begun)
                spent[name] += time.process_time() - cpu
    bare = times["bare file"]
    for name, found in times.items():
        figures.tell(
            "client, one at a time",
            name,
            p50_ms=statistics.median(found) * 1000,
            p99_ms=_p99(found) * 1000,
            per_s=len(found) / sum(found),
            cpu_ms=spent[name] / len(found) * 1000,
            rate_share=sum(bare) / sum(found),
            p99_times=_p99(found) / _p99(bare),
        )


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _bare_file(folder: str, data: bytes) -> None:
    name = f"{folder}/{uuid.uuid4()}"
    with open(f"{name}.tmp", "xb", buffering=0) as file:
        file.write(data)
        os.fdatasync(file.fileno())
    os.link(f"{name}.tmp", name)
    os.unlink(f"{name}.tmp")
    made = os.open(folder, os.O_RDONLY)
    os.fsync(made)
    os.close(made)


# --- in bulk -------------------------------------------------------------------------------------------------------


def bulk(folder: str, figures: Figures) -> None:
    """Events one by one and as columns, durable at the end, against the same bytes with fdatasync: as one file, and as
    files of a chunk's size, so many at a time as a writer writes."""
    with StreamManager(f"{folder}/bulk") as manager:
        manager.create_scope("s")
        data = os.urandom(100)

        def single() -> None:
            with manager.create_writer("s", _new_stream(manager)) as writer:
                for number in range(SINGLE):
                    writer.write_event_bytes(data, f"key-{number % 1000}")

        found = min(_timed(single) for _ in range(ROUNDS))
        figures.tell("client, bulk", "write_event_bytes, 100 B", k_events_s=SINGLE / found / 1000)
        for size, total in BULK.items():
            _in_bulk(manager, folder, figures, size, total)


def _new_stream(manager: StreamManager) -> str:
    name = f"bulk-{uuid.uuid4()}"
    manager.create_stream("s", name, 4)
    return name


def _in_bulk(manager: StreamManager, folder: str, figures: Figures, size: int, total: int) -> None:
    count = COLUMN // size
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), count, [None, pa.py_buffer(os.urandom(count * size))]
    )
    column = column.cast(pa.binary())
    keys = pa.array([f"key-{number % 1000}" for number in range(count)])
    raw = os.urandom(COLUMN)

    def columns() -> None:
        with manager.create_writer("s", _new_stream(manager)) as writer:
            for _ in range(total // COLUMN):
                writer.write_events(column, keys)

    def one_file() -> None:
        with open(f"{folder}/one", "wb", buffering=0) as file:
            for _ in range(total // COLUMN):
                file.write(raw)
            os.fdatasync(file.fileno())
        os.unlink(f"{folder}/one")

    def chunk_file(number: int) -> None:
        with open(f"{folder}/chunk-{number}", "wb", buffering=0) as file:
            file.write(memoryview(raw)[:CHUNK])
            os.fdatasync(file.fileno())

    def parallel_files() -> None:
        with ThreadPoolExecutor(UPLOADS) as pool:
            list(pool.map(chunk_file, range(total // CHUNK)))

    files, parallel, ours, spent = [], [], [], []
    for _ in range(ROUNDS):
        files.append(_timed(one_file))
        parallel.append(_timed(parallel_files))
        for number in range(total // CHUNK):
            os.unlink(f"{folder}/chunk-{number}")
        cpu = time.process_time()
        ours.append(_timed(columns))
        spent.append(time.process_time() - cpu)
        os.sync()
    taken, events = min(ours), total // COLUMN * count
    figures.tell(
        "client, bulk",
        f"write_events, {size} B",
        k_events_s=events / taken / 1000,
        MB_s=events * size / taken / 1e6,
        file_MB_s=total / min(files) / 1e6,
        parallel_MB_s=total / min(parallel) / 1e6,
        share=min(files) / taken,
        parallel_share=min(parallel) / taken,
        cpu_share=min(spent) / taken,
    )


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


# --- threads -------------------------------------------------------------------------------------------------------


def threads(folder: str, figures: Figures) -> None:
    """64 threads append 1 KB each and wait for it, against bare creates of the frames that this made."""
    data, shares, rates, costs = bytes(SIZE), [], [], []
    with Root.open(f"{folder}/threads", create=True) as root, ThreadPoolExecutor(THREADS) as pool:
        container = root.container(0)
        store = container.stores.log
        container.create_segment("s/threads")

        def appends(_: int) -> None:
            for _ in range(EACH):
                container.append("s/threads", data)

        for turn in range(ROUNDS):
            first, cpu = container.head.address, time.process_time()
            taken = _timed(lambda: list(pool.map(appends, range(THREADS))))
            costs.append((time.process_time() - cpu) / THREADS / EACH)
            frames = container.head.address - first
            sizes = [info.size for info in store.list(frames_folder(0))][-frames:]
            begun = time.perf_counter()
            for number, size in enumerate(sizes):
                store.put_if_absent(f"_system/bench/{turn}-{number}", bytes(size))
            shares.append((time.perf_counter() - begun) / taken)
            rates.append(THREADS * EACH / taken)
    figures.tell(
        "client, threads",
        "64 threads, 1 KB",
        per_s=max(rates),
        share=statistics.median(shares),
        cpu_ms=min(costs) * 1000,
        frames=frames,
    )


# --- processes -----------------------------------------------------------------------------------------------------

_WRITER = """
import json, os, sys, time
import pyarrow as pa
from pravega_spark import StreamManager
folder, kind, stream, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
data = os.urandom(1000)
column, keys = pa.array([data] * 1000, pa.binary()), pa.array([f"key-{n}" for n in range(1000)])
with StreamManager(folder) as manager:
    writer = manager.create_writer("s", stream)
    def one():
        writer.write_event_bytes(data, "key")
        writer.flush()
        return 1
    def batch():
        for n in range(1000):
            writer.write_event_bytes(data, f"key-{n}")
        writer.flush()
        return 1000
    def columns():
        writer.write_events(column, keys)
        writer.flush()
        return 1000
    run = {"one": one, "batch": batch, "columns": columns}[kind]
    run()
    print("ready", flush=True)
    sys.stdin.readline()
    end, times, events, cpu = time.monotonic() + seconds, [], 0, time.process_time()
    while time.monotonic() < end:
        begun = time.monotonic()
        events += run()
        times.append(time.monotonic() - begun)
    print(json.dumps({"events": events, "times": times, "cpu": time.process_time() - cpu}), flush=True)
"""


def processes(folder: str, figures: Figures) -> None:
    """Processes that write to one stream, or to one each, and wait for each batch."""
    for kind in ("one", "batch", "columns"):
        for count, streams in PROCESSES:
            _processes(f"{folder}/processes-{kind}-{count}-{streams}", figures, kind, count, streams)


def _processes(root: str, figures: Figures, kind: str, count: int, streams: int) -> None:
    with StreamManager(root) as manager:
        manager.create_scope("s")
        for number in range(streams):
            manager.create_stream("s", f"p{number}", 4)
    program = [sys.executable, "-c", _WRITER, root, kind]
    writers = [
        subprocess.Popen(
            [*program, f"p{number % streams}", str(SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(count)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    told = [json.loads(writer.communicate()[0]) for writer in writers]
    times = sorted(each for one in told for each in one["times"])
    events = sum(one["events"] for one in told)
    figures.tell(
        "client, processes",
        f"{count} processes, {streams} streams, {kind}",
        events_s=events / SECONDS,
        MB_s=events * SIZE / SECONDS / 1e6,
        p50_ms=statistics.median(times) * 1000,
        p99_ms=_p99(times) * 1000,
        least_share=min(one["events"] for one in told) / events * count,
        cpu_us=sum(one["cpu"] for one in told) / events * 1e6,
    )


# --- event loops ---------------------------------------------------------------------------------------------------


def loops(folder: str, figures: Figures) -> None:
    """Coroutines that each await their writes of 1 KB, in turns with the same writes without waiting, with 64 threads
    that each flush, with one caller that flushes each, and with bare new files, one for each append."""
    with StreamManager(f"{folder}/loops") as manager:
        manager.create_scope("s")
        manager.create_stream("s", "loops", 1)
        os.makedirs(f"{folder}/bare-loops")
        container, text = manager.root.container(0), "x" * SIZE

        def bare() -> int:
            for _ in range(APPENDS):
                _bare_file(f"{folder}/bare-loops", bytes(SIZE))
            return APPENDS

        def unawaited() -> int:
            with manager.create_writer("s", "loops") as writer:
                for _ in range(SINGLE // 10):
                    writer.write_event(text, "key")
                writer.flush()
            return SINGLE // 10

        def flushing(threads: int) -> int:
            def flush_each(_: int) -> None:
                for _ in range(APPENDS):
                    writer.write_event(text, "key")
                    writer.flush()

            with manager.create_writer("s", "loops") as writer, ThreadPoolExecutor(threads) as pool:
                list(pool.map(flush_each, range(threads)))
            return threads * APPENDS

        def awaiting(coroutines: int) -> int:
            async def await_each(writer: AsyncEventWriter) -> None:
                for _ in range(APPENDS):
                    await writer.write_event(text, "key")

            async def program() -> None:
                async with manager.create_async_writer("s", "loops") as writer:
                    await asyncio.gather(*(await_each(writer) for _ in range(coroutines)))

            asyncio.run(program())
            return coroutines * APPENDS

        kinds: dict[str, Callable[[], int]] = {"bare file": bare, "write_event, one flush": unawaited}
        kinds |= {f"{n} threads that flush": partial(flushing, n) for n in (1, THREADS)}
        kinds |= {f"{n} coroutines": partial(awaiting, n) for n in COROUTINES}
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        spent: dict[str, list[float]] = {name: [] for name in kinds}
        each_append: dict[str, float] = {}
        for _ in range(ROUNDS):
            for name, run in kinds.items():
                first, cpu, begun = container.head.address, time.process_time(), time.perf_counter()
                count = run()
                taken[name].append((time.perf_counter() - begun) / count)
                spent[name].append((time.process_time() - cpu) / count)
                each_append[name] = count / max(container.head.address - first, 1)
    for name in kinds:
        rate = 1 / statistics.median(taken[name])
        figures.tell(
            "client, event loops",
            name,
            per_s=rate,
            bare_rate_times=statistics.median(map(truediv, taken["bare file"], taken[name])),
            unawaited_share=statistics.median(map(truediv, taken["write_event, one flush"], taken[name])),
            cpu_us=min(spent[name]) * 1e6,
            events_per_append=each_append[name] if name != "bare file" else 1,
        )
