"""Large events written by real processes: they are killed, and their memory is measured from outside (L1)."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from chunkstore.testing.s3_server import S3Server
from engine import orphans
from engine.root import Root
from engine.verify import verify
from pravega_spark import EventExists, EventPointer, StreamManager
from pravega_spark.streams.names import owner_of
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.verification import check_events

MIB = 1 << 20
GIB = 1 << 30
EVENT = 24 * MIB
SPAWN = multiprocessing.get_context("spawn")

Place = tuple[str, Mapping[str, Any]]
"""A root's URL, and the storage options for it."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def block(seed: int, number: int) -> bytes:
    """One MiB of an event."""
    return random.Random(seed << 20 | number).randbytes(MIB)


@contextmanager
def running(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[Any, Connection]]:
    """A process that does `work`, and what it tells. It is killed at the end."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=work, args=(sender, *arguments), daemon=True)
    process.start()
    sender.close()
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        receiver.close()


def told(receiver: Connection) -> Any:
    assert receiver.poll(120)
    return receiver.recv()


# --- killed ------------------------------------------------------------------------------------------------------


def upload(tell: Connection, url: str, seed: int, name: str | None) -> None:
    """Write an event, and tell of each step."""
    manager = StreamManager(url)
    event = manager.begin_event("sc", "st", "key", name=name)
    tell.send(("open", event.tell()))
    for number in range(event.tell() // MIB, EVENT // MIB):
        event.write(block(seed, number))
        tell.send(("written", event.tell()))
        if number % 10 == 9:
            event.flush()
            tell.send(("durable", event.tell()))
    tell.send(("committing", 0))
    tell.send(("committed", event.commit().as_text()))
    time.sleep(1000)


POINTS = [*(("written", after * MIB, 0.0) for after in (1, 7, 8, 9, 10, 11, 15, 16, 17, 19, 20, 22, 24)),
          ("open", 0, 0.0), *(("committing", 0, delay) for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04))]  # fmt: skip
"""When a writer is killed: after which message, and how many seconds later."""


def large_events(stream: Stream) -> list[EventPointer]:
    """Where the large events are, by the index. What lies between must be whole."""
    snapshot = stream.snapshot()
    records = snapshot.index_segment(0).length // 24
    offsets = [0, *snapshot.index(0).records(0, records)[:, 0].tolist()]
    return [
        EventPointer("sc", "st", 0, start, end - start)
        for start, end in pairwise(offsets)
        if end - start > MIB
    ]


def seed_of(stream: Stream, pointer: EventPointer) -> int:
    """Which event lies there; all of it is looked at."""
    first = stream.container.read(pointer.segment, pointer.offset, pointer.offset + 8 + MIB)
    assert first[:8] == bytes(4) + EVENT.to_bytes(4, "big") and pointer.length == EVENT + 8
    (seed,) = (seed for seed in range(len(POINTS)) if block(seed, 0) == first[8:])
    for number in range(EVENT // MIB):
        at = pointer.offset + 8 + number * MIB
        assert stream.container.read(pointer.segment, at, at + MIB) == block(seed, number)
    return seed


def test_a_writer_is_killed_at_any_point(tmp_path: Path) -> None:
    """At 20 points: the event is there whole or not at all; half of them have a name, and are gone on with."""
    url, expected, maybe = str(tmp_path), set(), set()
    with Root.open(url, containers=1, garbage_delay_seconds=1.0) as root, StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        stream = Stream(root, "sc", "st")
        for seed, (message, argument, delay) in enumerate(POINTS):
            name = f"event {seed}" if seed % 2 else None
            durable = 0
            with running(upload, url, seed, name) as (process, receiver):
                while (found := told(receiver))[0] != message or (message == "written" and found[1] < argument):
                    durable = found[1] if found[0] == "durable" else durable
                time.sleep(delay)
                process.kill()
                process.join()
                while receiver.poll():
                    try:
                        if receiver.recv()[0] == "committed":
                            expected.add(seed)
                    except EOFError:
                        break
            with manager.create_writer("sc", "st") as writer:
                writer.write_event("of others")
            if message == "committing":
                maybe.add(seed)
            if name is not None:
                try:
                    with manager.begin_event("sc", "st", "key", name=name) as event:
                        assert durable <= event.tell() <= EVENT and event.tell() % MIB == 0
                        for number in range(event.tell() // MIB, EVENT // MIB):
                            event.write(block(seed, number))
                        event.commit()
                except EventExists:
                    assert message == "committing"
                expected.add(seed)
            there = [seed_of(stream, pointer) for pointer in large_events(stream)[-2:]]
            assert len(set(there)) == len(there)
        seeds = [seed_of(stream, pointer) for pointer in large_events(stream)]
        assert seeds == sorted(set(seeds)) and expected <= set(seeds) <= expected | maybe
        assert manager.stream_info("sc", "st").events == len(POINTS) + len(seeds)
        report = verify(root, deep=True, content_checks=[check_events])
        assert not report.errors, list(report.findings)
        assert stream.container.refresh().transients
        left_over(root)
        assert not stream.container.state.transients
        assert [seed_of(stream, pointer) for pointer in large_events(stream)] == seeds
        assert not verify(root, deep=True, content_checks=[check_events]).errors


def left_over(root: Root) -> None:
    """Collect it, as is done when the idle time and the delay of garbage are over; then nothing else is there."""
    container = root.container(0)
    container.now = lambda: time.time() + 2 * root.config.transient_idle_seconds
    container.expire_transients()
    orphans.give_up(root, orphans.find_orphans(root, partial(owner_of, count=1), age=0), share=1)
    for _ in range(2):
        container.flush()
        container.collect_garbage()
    kept = sum(segment.length for segment in container.state.segments.values())
    assert sum(info.size for info in root.stores.chunks.list("sc/")) == kept


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return str(tmp_path / "root"), {}
    server: S3Server = request.getfixturevalue("s3_server")
    return server.make_bucket(), server.storage_options()


def copy_to_event(tell: Connection, place: Place, source: str) -> None:
    """Idle first, then write a file as an event when the parent has looked."""
    with StreamManager(place[0], **place[1]) as manager, manager.create_writer("sc", "st") as writer:
        writer.write_event("before")
        writer.flush()
        tell.send("idle")
        while not os.path.exists(f"{source}.go"):
            time.sleep(0.01)
        with open(source, "rb") as file, writer.begin_event("key") as event:
            shutil.copyfileobj(file, event)
            tell.send(event.commit().as_text())
        time.sleep(1000)


def resident(pid: int, field: str) -> int:
    """What the kernel tells of a process's memory, bytes."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells the memory of another process")
def test_a_writer_of_1_gib_needs_64_mib(place: Place, tmp_path: Path, record_property: Callable[..., None]) -> None:
    source, expected = tmp_path / "source", hashlib.sha256()
    with open(source, "wb") as file:
        for number in range(GIB // (16 * MIB)):
            piece = (block(number, 0) * 17)[number : number + 16 * MIB]
            file.write(piece)
            expected.update(piece)
    with StreamManager(place[0], **place[1]) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        with running(copy_to_event, place, str(source)) as (process, receiver):
            assert told(receiver) == "idle"
            time.sleep(0.5)
            idle = resident(process.pid, "VmRSS:")
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is counted from now on
            Path(f"{source}.go").touch()
            assert receiver.poll(500)
            pointer = EventPointer.from_text(receiver.recv())
            peak = resident(process.pid, "VmHWM:")
        above = (peak - idle) / MIB
        record_property("MiB above idle", above)
        print(f"{above:.1f} MiB above {idle / MIB:.0f} MiB")
        container = Stream(manager._root, "sc", "st").container
        found = hashlib.sha256()
        for start in range(pointer.offset + 8, pointer.offset + pointer.length, 16 * MIB):
            found.update(container.read(pointer.segment, start, min(start + 16 * MIB, pointer.offset + pointer.length)))
        assert found.digest() == expected.digest()
        assert above <= 64
