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
from unittest import mock

import pytest

from engine.containers.container import Container
from engine.logs import durable_log, frame_sender, outbox, submitter
from engine.logs.mailbox import no_mailbox
from engine.logs.submission import inbox_folder
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import Append, Payload

SEGMENT = "s/a"
WRITERS = 6
SECONDS = float(os.environ.get("STRESS_SECONDS", "6"))
MANY = 16
"""Writers that are as patient as ever, for a long time."""

LONG_SECONDS = float(os.environ.get("STRESS_LONG_SECONDS", "120"))
GRACE = 60.0
EVENT = 24
RACERS = 2
"""One of so many hardly patient writers submits nothing, and races with the makers."""

HURRY = 50
"""The patience of owners is divided by this."""

_SPAWN = multiprocessing.get_context("spawn")


class Place(NamedTuple):
    """Where the root is. apart: processes exchange messages by the storage only, as on hosts of their own."""

    url: str
    options: dict[str, Any]
    apart: bool = False

    def open(self, create: bool = False, maintenance: bool = False) -> Root:
        """As one of the processes has it."""
        if self.apart:
            mock.patch.object(durable_log, "open_mailbox", no_mailbox).start()
        agreed: dict[str, Any] = {"containers": 1, "grace_seconds": GRACE} if create else {}
        settings = Settings(maintenance=maintenance, cache_bytes=0)
        return Root.open(self.url, self.options, create=create, settings=settings, **agreed)


def write(place: Place, writer: int, acknowledged: str, seconds: float, hurry: int, maintenance: bool = False) -> None:
    """Append numbered events one by one, and note each that is acknowledged. hurry: what patience is divided by."""
    for name in ("PATIENCE_TRIPS", "PATIENCE_TIMES", "LEAST_PATIENCE"):  # epochs change all the time
        setattr(outbox, name, getattr(outbox, name) / hurry)
    if hurry > 1 and writer % RACERS == 0:
        for module in (submitter, frame_sender):
            vars(module)["OWNER_TRIPS"] = 0  # it never knows of others
    with place.open(maintenance=maintenance) as root, open(acknowledged, "a") as noted:
        container, number, end = root.container(0), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            container.commit([Append(SEGMENT, Payload(b"%010d %012d;" % (writer, number)))])
            noted.write(f"{number}\n")
            noted.flush()
            number += 1


@pytest.fixture(
    params=[
        "folder",
        "folder apart",
        pytest.param("s3_server", marks=[pytest.mark.server, pytest.mark.long]),
        pytest.param("s3_server apart", marks=[pytest.mark.server, pytest.mark.long]),
        pytest.param("rados_gateway", marks=[pytest.mark.server, pytest.mark.long]),
        pytest.param("rados_gateway apart", marks=[pytest.mark.server, pytest.mark.long]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name, _, apart = request.param.partition(" ")
    if name == "folder":
        yield Place(str(tmp_path / "root"), {}, bool(apart))
        return
    server = request.getfixturevalue(name)
    yield Place(server.make_bucket(), server.storage_options(), bool(apart))


class Writers:
    """Processes that write, each of which notes in a file what is acknowledged. arguments: of `write`."""

    def __init__(self, place: Place, folder: Path, seconds: float, **arguments: Any) -> None:
        self.noted: dict[int, Path] = {}
        self.killed = 0
        self._place = place
        self._folder = folder
        self._end = time.monotonic() + seconds
        self._arguments = arguments
        self._processes: dict[int, BaseProcess] = {}

    def start(self) -> None:
        """One more."""
        writer = len(self.noted)
        self.noted[writer] = self._folder / f"acknowledged-{writer}"
        seconds = max(self._end - time.monotonic(), 0.5)
        arguments = (self._place, writer, str(self.noted[writer]), seconds)
        self._processes[writer] = _SPAWN.Process(target=write, args=arguments, kwargs=self._arguments)
        self._processes[writer].start()

    def shake(self, seconds: float, seed: int, pause: float, stop: float, killing: float) -> None:
        """Stop one of them for a while now and then, or, with a probability, kill it and start another."""
        chance, end = random.Random(seed), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(pause / 6, pause))
            writer = chance.choice(list(self._processes))
            pid = self._processes[writer].pid
            assert pid is not None
            if chance.random() >= killing:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(chance.uniform(stop / 6, stop))
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL)
                self._processes.pop(writer).join()
                self.killed += 1
                self.start()

    def join(self) -> None:
        """Wait until all have ended by themselves."""
        for process in self._processes.values():
            process.join(120)
            assert process.exitcode == 0

    def check(self, container: Container) -> int:
        """What was acknowledged is there, once, in the order of its writer. Returns how many events there are."""
        seen = dict.fromkeys(self.noted, -1)
        for writer, number in events(container):
            assert number == seen[writer] + 1, f"writer {writer}: event {number} follows {seen[writer]}"
            seen[writer] = number
        for writer, path in self.noted.items():
            lines = path.read_text().splitlines() if path.exists() else []
            last = int(lines[-1]) if lines else -1
            assert last <= seen[writer] <= last + 1, (
                f"writer {writer}: {last} was acknowledged, {seen[writer]} is there"
            )
        return sum(number + 1 for number in seen.values())


def events(container: Container) -> list[tuple[int, int]]:
    """Writer and number of each event, as they lie in the segment."""
    found = container.read(SEGMENT, 0, container.info(SEGMENT).length)
    assert len(found) % EVENT == 0
    pieces = [found[at : at + EVENT] for at in range(0, len(found), EVENT)]
    assert all(piece.endswith(b";") for piece in pieces)
    return [(int(piece[:10]), int(piece[11:23])) for piece in pieces]


def made(place: Place) -> None:
    """Make the root and the segment."""
    with place.open(create=True) as root:
        root.container(0).create_segment(SEGMENT)


@pytest.mark.processes
@pytest.mark.timeout(120 + 4 * SECONDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_acknowledged_once_and_in_order_whoever_is_killed_or_stopped(place: Place, tmp_path: Path, seed: int) -> None:
    made(place)
    writers = Writers(place, tmp_path, SECONDS + 3, hurry=HURRY)
    for _ in range(WRITERS):
        writers.start()
    writers.shake(SECONDS, seed, pause=0.3, stop=0.3, killing=0.3)
    writers.join()
    with place.open() as root:
        container = root.container(0)
        there, epochs = writers.check(container), container.log.head.epoch
    print(f"{there} events, {writers.killed} killed, {epochs} epochs")
    assert writers.killed and epochs > 2  # some raced, however few events a busy machine gets done


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(600 + 2 * LONG_SECONDS)
def test_many_processes_for_a_long_time_leave_every_event_once_and_an_empty_inbox(place: Place, tmp_path: Path) -> None:
    made(place)
    writers = Writers(place, tmp_path, LONG_SECONDS + 3, hurry=1, maintenance=True)
    for _ in range(MANY):
        writers.start()
    writers.shake(LONG_SECONDS, 1, pause=6.0, stop=3.0, killing=0.5)
    writers.join()
    with place.open() as root:
        container = root.container(0)
        there, epochs = writers.check(container), container.log.head.epoch
        for _ in range(2):  # what lies before a checkpoint that is older than the grace period is swept
            container.checkpoint()
            time.sleep(GRACE + 5)
        container.truncate_log()
        assert not container.stores.log.list(inbox_folder(container.number))
    print(f"{there} events, {writers.killed} killed, {epochs} epochs")
    assert writers.killed
