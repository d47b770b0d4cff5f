"""Several processes on one stream at once, and a writer that is killed while it writes."""

from __future__ import annotations

import multiprocessing
import random
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.streams.stream import Stream
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.processes

WRITERS = 3
EVENTS = 20_000
SPAWN = multiprocessing.get_context("spawn")

Place = tuple[str, Mapping[str, Any]]
"""A root's URL, and the storage options for it."""


@pytest.fixture(params=["local", pytest.param("s3", marks=[pytest.mark.long, pytest.mark.server])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A new root in a folder or on the S3 server."""
    if request.param == "local":
        return str(tmp_path), {}
    server: S3Server = request.getfixturevalue("s3_server")
    return server.make_bucket(), server.storage_options()


@pytest.fixture
def manager(place: Place) -> Iterator[StreamManager]:
    """A manager of that root, with stream sc/st of three segments."""
    with StreamManager(place[0], **place[1]) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 3)
        yield manager


# --- what the processes do -----------------------------------------------------------------------------------


def write(place: Place, name: int, together: Any) -> int:
    """Write EVENTS events, many of them while one append is on its way, and from time to time wait for all of them."""
    with StreamManager(place[0], **place[1]) as manager, manager.create_writer("sc", "st") as writer:
        together.wait(60)
        for number in range(EVENTS):
            writer.write_event(f"{name}:{number}:" + "x" * (number % 80), f"key-{number % 20}")
            if number % 100 == 0:
                time.sleep(0.002)
            if number % 1000 == 0:
                writer.flush()
        writer.flush()
        return writer.durable_events


def follow(place: Place, together: Any) -> list[tuple[int, str]]:
    """Each event's segment and payload, until the stream is sealed."""
    with StreamManager(place[0], **place[1]) as manager:
        events = manager.tail("sc", "st", poll_interval=0.02)
        together.wait(60)
        return [(event.segment_id, event.data.decode()) for event in events]


def flush(place: Place, together: Any, end: Any) -> list[int]:
    """How much each flush has moved to LTS."""
    with Root.open(place[0], place[1]) as root:
        container = Stream(root, "sc", "st").container
        together.wait(60)
        moved = []
        while not end.is_set():
            moved.append(container.flush())
            time.sleep(0.05)
        return moved


def report(reports: Any, role: str, work: Callable[..., Any], *arguments: Any) -> None:
    try:
        reports.put((role, work(*arguments)))
    except BaseException:
        reports.put(("failure", traceback.format_exc()))


# --- the tests -----------------------------------------------------------------------------------------------


def check_order(events: Iterable[tuple[int, str]]) -> None:
    """Every writer's events are there once, and in its order within each segment; each key has one segment."""
    seen: Counter[tuple[str, int]] = Counter()
    last: dict[tuple[int, str], int] = {}
    homes: dict[int, set[int]] = defaultdict(set)
    for segment, text in events:
        name, number, padding = text.split(":")
        assert padding == "x" * (int(number) % 80)
        seen[name, int(number)] += 1
        assert int(number) > last.get((segment, name), -1), "out of order"
        last[segment, name] = int(number)
        homes[int(number) % 20].add(segment)
    assert all(count == 1 for count in seen.values()), "duplicates"
    assert set(seen) == {(str(name), number) for name in range(WRITERS) for number in range(EVENTS)}
    assert all(len(segments) == 1 for segments in homes.values())


def test_three_write_one_follows_one_flushes(manager: StreamManager, place: Place) -> None:
    reports, together, end = SPAWN.Queue(), SPAWN.Barrier(WRITERS + 2), SPAWN.Event()
    roles = [("writer", write, place, name, together) for name in range(WRITERS)]
    everybody = [*roles, ("follower", follow, place, together), ("flusher", flush, place, together, end)]
    processes = [SPAWN.Process(target=report, args=(reports, *role), daemon=True) for role in everybody]
    found: dict[str, list[Any]] = defaultdict(list)

    def await_reports(count: int) -> None:
        for _ in range(count):
            role, what = reports.get(timeout=100)
            assert role != "failure", what
            found[role].append(what)

    try:
        for process in processes:
            process.start()
        await_reports(WRITERS)
        end.set()
        manager.seal_stream("sc", "st")
        await_reports(2)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert found["writer"] == [EVENTS] * WRITERS
    (followed,), (moved,) = found["follower"], found["flusher"]
    check_order(followed)
    check_order((event.segment_id, event.data.decode()) for event in manager.read_events("sc", "st"))
    assert manager.stream_info("sc", "st").events == WRITERS * EVENTS
    # That they really did all this at the same time:
    names = [text.partition(":")[0] for segment, text in followed if segment == 0]
    assert sum(one != other for one, other in pairwise(names)) > WRITERS  # one after the other: one less than that
    assert sum(size > 0 for size in moved) > 1


def write_until_killed(place: Place, acknowledged: Connection, seed: int) -> None:
    """Write numbers, and tell after each flush how many are durable."""
    chance = random.Random(seed)
    manager = StreamManager(place[0], **place[1])
    writer = manager.create_writer("sc", "st")
    number = 0
    while True:
        for _ in range(chance.randint(1, 300)):
            writer.write_event(str(number), f"key-{number % 20}")
            number += 1
        if chance.random() < 0.5:
            writer.flush()
        acknowledged.send(writer.durable_events)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_writer_leaves_what_was_acknowledged_once(manager: StreamManager, place: Place, seed: int) -> None:
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=write_until_killed, args=(place, sender, seed), daemon=True)
    process.start()
    sender.close()
    acknowledged = 0
    while acknowledged < 1000 * seed:
        assert receiver.poll(60)
        acknowledged = receiver.recv()
    time.sleep(random.Random(seed).random() * 0.02)
    process.kill()
    process.join()
    try:
        while True:
            acknowledged = receiver.recv()
    except (EOFError, OSError):
        pass  # the last message may have been cut off
    with StreamManager(place[0], **place[1]) as reopened:
        found = sorted(int(event.data) for event in reopened.read_events("sc", "st"))
        assert found == list(range(len(found)))
        assert len(found) >= acknowledged
        with reopened.create_writer("sc", "st") as writer:
            writer.write_events([str(number) for number in range(len(found), len(found) + 100)])
        again = sorted(int(event.data) for event in reopened.read_events("sc", "st"))
        assert again == list(range(len(found) + 100))
