"""Writing and reading large events: their throughput, and what their upload costs others (L1, PDP-43)."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from pravega_spark import StreamManager
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.stream import Stream

MIB = 1 << 20
SIZE = 1 << 30
ROUNDS = 3
COPY, MANY, ONE = "copy of a file, fsync", "128 events of 8 MiB", "one event of 1 GiB"
SPAWN = multiprocessing.get_context("spawn")


def measure(folder: str) -> None:
    """Print what one event of 1 GiB takes, and how long events of 100 B take meanwhile."""
    source = f"{folder}/source"
    with open(source, "wb") as file:
        for _ in range(SIZE // (16 * MIB)):
            file.write(os.urandom(16 * MIB))
        os.fsync(file.fileno())
    url = f"{folder}/large"
    with StreamManager(url) as manager:
        manager.create_scope("bench")
        for name in ("large", "small", "many", "one"):
            manager.create_stream("bench", name)
        _throughput(
            "writing",
            {
                COPY: lambda: _copy(source, f"{folder}/copy"),
                MANY: lambda: _many(manager, source, "large"),
                ONE: lambda: _one(manager, source, "large"),
            },
            prepare=lambda: _settle(manager, "large"),
        )
        _many(manager, source, "many")
        pointer = _one(manager, source, "one")
        for name in ("many", "one"):
            _settle(manager, name)
        _throughput(
            "reading",
            {
                COPY: lambda: _copy(source, f"{folder}/copy"),
                MANY: lambda: _read_many(manager, "many"),
                ONE: lambda: _read_one(manager, pointer),
            },
            prepare=os.sync,
        )
        _latency(url, manager, source)
    shutil.rmtree(url)


def _throughput(what: str, ways: dict[str, Callable[[], object]], prepare: Callable[[], None]) -> None:
    """Print the speed of each way, the best of some rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            prepare()
            begun = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begun)
    best = {name: min(found) for name, found in times.items()}
    print(f"\n{what} 1 GiB, best of {ROUNDS}, and its share of the copy's speed and of that of 128 events")
    for name, seconds in best.items():
        shares = (best[other] / seconds for other in (COPY, MANY))
        print(f"  {name:24s} {1024 / seconds:10,.0f} MiB/s  {'  '.join(f'{share:5.2f}' for share in shares)}")


def _settle(manager: StreamManager, stream: str) -> None:
    """What was written before is not to be paid for by what comes now."""
    manager.root.container(Stream(manager.root, "bench", stream).number).flush()
    os.sync()


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as file, open(target, "wb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())
    os.unlink(target)


def _one(manager: StreamManager, source: str, stream: str) -> EventPointer:
    with open(source, "rb") as file, manager.begin_event("bench", stream, "key") as event:
        shutil.copyfileobj(file, event)
        return event.commit()


def _many(manager: StreamManager, source: str, stream: str) -> None:
    with open(source, "rb") as file, manager.create_writer("bench", stream) as writer:
        while data := file.read(8 * MIB):
            writer.write_event_bytes(data, "key")


def _read_one(manager: StreamManager, pointer: EventPointer) -> None:
    room = memoryview(bytearray(MIB))
    with manager.open_event(pointer) as event:
        while event.readinto(room):
            pass


def _read_many(manager: StreamManager, stream: str) -> None:
    read = sum(len(event.data) for event in manager.read_events("bench", stream))
    assert read == SIZE, read


def _latency(url: str, manager: StreamManager, source: str) -> None:
    """Of events of another process, of the same stream and of another one: alone, then while 2 GiB are written."""
    print("\nan event of 100 B of another process is durable, median")
    for stream in ("small", "large"):
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=_write_small, args=(there, url, stream), daemon=True)
        process.start()
        here.recv()
        time.sleep(5)
        here.send("now")
        alone = here.recv()
        for _ in range(2):
            _one(manager, source, "large")
        here.send("end")
        meanwhile = here.recv()
        process.join()
        print(
            f"  stream {stream:17s} {alone * 1000:8.2f} ms alone {meanwhile * 1000:8.2f} ms during an upload "
            f"{meanwhile / alone:6.2f} times"
        )


def _write_small(pipe: Connection, url: str, stream: str) -> None:
    with StreamManager(url) as manager, manager.create_writer("bench", stream) as writer:
        writer.write_event("x" * 100)
        writer.flush()
        pipe.send("ready")
        for _ in range(2):
            taken: list[float] = []
            while not pipe.poll():
                begun = time.perf_counter()
                writer.write_event("x" * 100, "another key")
                writer.flush()
                taken.append(time.perf_counter() - begun)
                time.sleep(0.005)
            pipe.recv()
            pipe.send(statistics.median(taken))
