"""The import of a Pravega's long-term storage against a plain copy of the same folder."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

from chunkstore import open_store
from chunkstore.testing import CountingStore
from engine.state.segments import EVENT_COUNT
from pravega_spark import StreamManager
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.pravega_lts.imports import Import
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from pravega_spark.streams.reading.rebuilt_index import CACHE_VARIABLE
from pravega_spark.streams.reading.slices import plan_slices
from tests.archives import ROLLING, case

ROUNDS = 3
EVENT, EVENTS = 1000, 64_000
"""Bytes of an event, and how many more a segment of the stream `rides` gets."""


def measure(folder: str) -> None:
    """Copied, linked, and the same copied by the system; and what planning asks for."""
    for events in (EVENTS // 64, EVENTS):
        source = _source(Path(folder) / "lts", events)
        _planning(source)
        if events < EVENTS:
            shutil.rmtree(source)
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    ways: dict[str, Callable[[str], object]] = {
        "plain copy": lambda target: shutil.copytree(source, target),
        "import, copied": lambda target: _imported(source, target, True),
        "import, linked": lambda target: _imported(source, target, False),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, way in ways.items():
            target = f"{folder}/{name} {number}"
            begun = time.perf_counter()
            way(target)
            times[name].append(time.perf_counter() - begun)
            shutil.rmtree(target)
    shutil.rmtree(source)
    print(f"\nimport of {size >> 20} MiB from a Pravega's long-term storage")
    plain = min(times["plain copy"])
    for name, found in times.items():
        speed = size / min(found) / 2**20
        print(f"  {name:16s} {speed:8.0f} MiB/s {min(found) / plain:6.2f} times as long as a plain copy")


def _imported(source: Path, target: str, copied: bool) -> None:
    with StreamManager(target, create=True) as manager:
        manager.import_streams(source, copy=copied)


def _planning(source: Path) -> None:
    """Print how many requests it takes to plan a read of the largest stream, to index it, and to plan an import."""
    os.environ[CACHE_VARIABLE] = ""
    store = CountingStore(open_store(str(source)))
    snapshot = Catalog(PravegaRoot(store)).stream("demo", "rides").snapshot()
    ranges = snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())
    plan_slices(snapshot, ranges, 64 << 20)
    amounts = [("planning a read", store.count(), store.bytes_read)]
    chunks = sum(len(snapshot.segments.segment(number).extents) for number in ranges)
    store.reset()
    for number in ranges:
        _ = snapshot.segments.segment(number).attributes.get(EVENT_COUNT, 0)
    amounts.append(("making its indexes", store.count(), store.bytes_read))
    store.reset()
    found = Import(store).report(None)
    amounts.append(("planning an import", store.count(), store.bytes_read))
    size = sum(end - start for start, end in ranges.values())
    print(f"\nstream of {size >> 20} MiB in {chunks} chunks, of {sum(each.chunks for each in found.streams)} in all")
    for what, requests, read in amounts:
        print(f"  {what:20s} {requests:6d} requests {read / 1024:12,.0f} KiB")


def _source(folder: Path, more: int) -> Path:
    """A server's folder, in which a stream has gone on for so many events in each segment."""
    for name, data in case(ROLLING).objects.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    events = b"".join(struct.pack(">ii", 0, EVENT) + os.urandom(EVENT) for _ in range(100)) * (more // 100)
    for number in range(3):
        chunks = [
            file for file in (folder / "demo" / "rides").iterdir() if file.name.startswith(f"{number}.#epoch.0$offset")
        ]
        last = max(chunks, key=lambda file: int(file.name.rpartition(".")[2]))
        with last.open("ab") as stream:
            stream.write(events)
    return folder
