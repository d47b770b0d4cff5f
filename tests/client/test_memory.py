"""Memory does not grow with history: as many rounds again of everything leave no more objects behind."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from pravega_spark import StreamManager

PROJECT = Path(__file__).resolve().parents[2]
ROUNDS = 3

BOUNDED = {"engine.storage.cache.BlockKey", "engine.state.tables.Entry", "builtins.map_bitmap_node"}
"""What there is as much of as there is room for: `Settings.cache_bytes`, and tables of up to RESIDENT_BYTES."""


def tracked() -> Counter[str]:
    """How many objects there are of each type, of those that can hold others, once no timer holds any."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    for _ in range(3):
        gc.collect()
    return Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())


def round_of_everything(manager: StreamManager, number: int) -> None:
    """Its keys, names and ids are new ones; what it makes is deleted, truncated or flushed again."""
    manager.create_stream("sc", "own", 1)
    with manager.create_writer("sc", "st") as writer:
        for event in range(100):
            writer.write_event(f"{number} {event}", f"key {number} {event}")
        writer.flush()
        writer.write_events([f"{event}" for event in range(300)], [f"{number} {event}" for event in range(300)])
        with writer.begin_event("key") as large:
            large.write(b"large" * 20_000)
            large.commit()
    transactions = manager.create_transaction_writer("sc", "st")
    for end in ("commit", "abort"):
        transaction = transactions.begin_txn()
        transaction.write_event("event", f"key {number}")
        getattr(transaction, end)()
    low, high = sorted(manager.stream_info("sc", "st").segments, key=lambda segment: segment.low)
    manager.scale_stream("sc", "st", [low.id, high.id], [(0.0, 0.5), (0.5, 1.0)])
    assert len(list(manager.read_events("sc", "st"))) > 400 and len(manager.last_events("sc", "st", 20)) == 20
    group = manager.create_reader_group(f"group-{number}", "sc", "st")
    reader = group.create_reader(f"reader {number}")
    part = asyncio.run(reader.get_segment_slice_async())
    assert len(list(part)) > 0
    reader.release_segment(part)
    reader.reader_offline()
    manager.delete_reader_group(f"group-{number}", "sc")
    manager.truncate_stream("sc", "st", "latest")
    manager.retain("sc", "st")
    with manager.create_writer("sc", "own") as writer:
        writer.write_event(str(number))
    manager.seal_stream("sc", "own")
    manager.delete_stream("sc", "own")


def some_rounds(folder: Path, manager: StreamManager, first: int) -> Counter[str]:
    for number in range(first, first + ROUNDS):
        round_of_everything(manager, number)
    manager.backup(str(folder / "backup"))  # which flushes all
    return tracked()


def main(folder: Path) -> None:
    """Print the types of which each round leaves objects behind, as JSON."""
    with StreamManager(str(folder / "root"), create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        counts = [some_rounds(folder, manager, times * ROUNDS) for times in range(5)]
    growths = [after - before for before, after in pairwise(counts[1:])]  # the first ones load and make things
    grown = {name: count for name, count in growths[0].items() if min(each[name] for each in growths) >= ROUNDS}
    print(json.dumps({name: count for name, count in grown.items() if name not in BOUNDED}))


@pytest.mark.processes
@pytest.mark.long
def test_as_many_rounds_again_leave_no_more_objects_behind(tmp_path: Path) -> None:
    """In a process of its own: what other tests left running in this one makes objects, too."""
    program = [sys.executable, "-m", "tests.client.test_memory", str(tmp_path)]
    done = subprocess.run(program, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    grown = json.loads(done.stdout)
    assert not grown, f"each round left some behind: {grown}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
