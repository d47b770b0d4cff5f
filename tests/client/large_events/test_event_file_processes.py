"""The memory of a process that reads an event of 1 GiB, measured from outside (L1)."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.state.segments import Extent
from engine.storage.chunk_writer import write_chunk
from pravega_spark import StreamManager
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.large_events import MiB, content, put_small
from tests.support.s3_server import S3Server

GIB = 1 << 30
CHUNK = 16 * MiB

Place = tuple[str, Mapping[str, Any]]
"""A root's URL, and the storage options for it."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Sink:
    """A file that forgets what is written to it, but for its hash."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return len(data)


def copy_event(told: Connection, place: Place, pointer: str) -> None:
    """Read a small event, be idle, and read the large one when the parent has looked."""
    with StreamManager(place[0], **place[1]) as manager:
        first = next(iter(manager.read_events("sc", "st")))
        told.send(first.data)
        told.recv()
        sink, begun = Sink(), time.perf_counter()
        with manager.open_event(pointer) as event:
            shutil.copyfileobj(event, sink)
        told.send((sink.hash.hexdigest(), time.perf_counter() - begun))
        told.recv()


def resident(pid: int, field: str) -> int:
    """What the kernel tells of a process's memory, bytes."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return str(tmp_path / "root"), {}
    server: S3Server = request.getfixturevalue("s3_server")
    return server.make_bucket(), server.storage_options()


def put_gib(stream: Stream) -> tuple[str, str]:
    """Append an event of 1 GiB in chunks that differ. Returns its pointer and the hash of its payload."""
    digest, extents = hashlib.sha256(), list[Extent]()
    start = stream.snapshot().segments.length(0)
    extents += write_chunk(stream.root.stores.chunks, f"{stream.key}/{uuid.uuid4()}", [[event_header(GIB)]])
    for number in range(GIB // CHUNK):
        data = content(CHUNK, number)
        digest.update(data)
        extents += write_chunk(stream.root.stores.chunks, f"{stream.key}/{uuid.uuid4()}", [[data]])
    stream.write([SegmentAppend(0, tuple(extents), sparse_records(np.array([GIB + 8]), 1), 1)])
    return f"sc/st/0.#epoch.0:{start}-{GIB + 8}", digest.hexdigest()


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells the memory of another process")
def test_a_reader_of_1_gib_needs_64_mib(place: Place) -> None:
    with StreamManager(place[0], **place[1]) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        stream = Stream(manager.root, "sc", "st")
        put_small(stream, b"small")
        pointer, expected = put_gib(stream)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=copy_event, args=(there, place, pointer), daemon=True)
    process.start()
    try:
        assert here.poll(120) and here.recv() == b"small"
        time.sleep(0.5)
        assert process.pid is not None
        idle = resident(process.pid, "VmRSS:")
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is counted from now on
        here.send("go")
        assert here.poll(600)
        found, seconds = here.recv()
        above = (resident(process.pid, "VmHWM:") - idle) / MiB
        print(f"{above:.1f} MiB above {idle / MiB:.0f} MiB; {GIB / MiB / seconds:.0f} MiB/s")
        assert found == expected
        assert above <= 64
    finally:
        process.kill()
        process.join()
