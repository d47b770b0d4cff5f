"""Processes that write to one log, hardly patient, killed and stopped: all that was acknowledged is there, in order."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.containers.container import Container
from engine.logs import outbox
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import Append, Payload

SEGMENT = "s/a"
WRITERS = 6
SECONDS = float(os.environ.get("STRESS_SECONDS", "10"))
EVENT = 24
HURRY = 50
"""The patience of owners is divided by this."""

_SPAWN = multiprocessing.get_context("spawn")


class Place(NamedTuple):
    """Where the root is."""

    url: str
    options: dict[str, Any]

    def open(self, create: bool = False) -> Root:
        """As one of the processes has it."""
        number: dict[str, Any] = {"containers": 1} if create else {}
        return Root.open(
            self.url, self.options, create=create, settings=Settings(upkeep=False, cache_bytes=0), **number
        )


def write(place: Place, writer: int, acknowledged: str, seconds: float) -> None:
    """Append numbered events one by one, and note each that is acknowledged."""
    for name in ("PATIENCE_TRIPS", "PATIENCE_TIMES", "LEAST_PATIENCE"):  # epochs change all the time
        setattr(outbox, name, getattr(outbox, name) / HURRY)
    with place.open() as root, open(acknowledged, "a") as noted:
        container, number, end = root.container(0), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            container.commit([Append(SEGMENT, Payload(b"%010d %012d;" % (writer, number)))])
            noted.write(f"{number}\n")
            noted.flush()
            number += 1


@pytest.fixture(
    params=[
        "folder",
        pytest.param("s3_server", marks=pytest.mark.server),
        pytest.param("rados_gateway", marks=[pytest.mark.server, pytest.mark.long]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(str(tmp_path / "root"), {})
        return
    server = request.getfixturevalue(request.param)
    yield Place(server.make_bucket(), server.storage_options())


def shake(processes: dict[int, BaseProcess], start: Any, seed: int) -> int:
    """Kill one now and then, and start another; stop one for a while. Returns how many were killed."""
    chance, end, killed = random.Random(seed), time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.05, 0.3))
        writer = chance.choice(list(processes))
        pid = processes[writer].pid
        assert pid is not None
        if chance.random() < 0.7:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(chance.uniform(0.05, 0.3))
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGKILL)
            processes.pop(writer).join()
            killed += 1
            start(max(processes, default=0) + WRITERS + killed)
    return killed


def events(container: Container) -> list[tuple[int, int]]:
    """Writer and number of each event, as they lie in the segment."""
    found = container.read(SEGMENT, 0, container.info(SEGMENT).length)
    assert len(found) % EVENT == 0
    pieces = [found[at : at + EVENT] for at in range(0, len(found), EVENT)]
    assert all(piece.endswith(b";") for piece in pieces)
    return [(int(piece[:10]), int(piece[11:23])) for piece in pieces]


@pytest.mark.processes
@pytest.mark.timeout(120 + 4 * SECONDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 7))])
def test_acknowledged_once_and_in_order_whoever_is_killed_or_stopped(place: Place, tmp_path: Path, seed: int) -> None:
    with place.open(create=True) as root:
        root.container(0).create_segment(SEGMENT)
    processes: dict[int, BaseProcess] = {}
    noted: dict[int, Path] = {}

    def start(writer: int) -> None:
        noted[writer] = tmp_path / f"acknowledged-{writer}"
        seconds = max(end - time.monotonic(), 0.5)
        processes[writer] = _SPAWN.Process(target=write, args=(place, writer, str(noted[writer]), seconds))
        processes[writer].start()

    end = time.monotonic() + SECONDS + 3
    for writer in range(WRITERS):
        start(writer)
    killed = shake(processes, start, seed)
    for process in processes.values():
        process.join(90)
        assert process.exitcode == 0
    with place.open() as root:
        container = root.container(0)
        seen = dict.fromkeys(noted, -1)
        for writer, number in events(container):
            assert number == seen[writer] + 1, f"writer {writer}: event {number} follows {seen[writer]}"
            seen[writer] = number
        epochs = container.log.head.epoch
    for writer, path in noted.items():
        last = max(map(int, path.read_text().split()), default=-1) if path.exists() else -1
        assert last <= seen[writer] <= last + 1, f"writer {writer}: {last} was acknowledged, {seen[writer]} is there"
    print(f"{sum(seen.values())} events, {killed} killed, {epochs} epochs")
    assert killed and epochs > 5
