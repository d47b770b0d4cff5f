"""Mixed load for half an hour: memory, open files, objects of the log and the cost of opening stay flat.

Beside it processes append whose clocks are wrong, and one that is stopped again and again: nothing is lost.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from chunkstore import open_store
from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.errors import OutcomeUnknown, Rejected
from engine.state.operations import AttributeUpdate, UpdateKind
from engine.storage.object_reads import Stores
from tests.support.host import LINE, SETTINGS, line, segment as segment_of
from tests.support.simulation import audit

MONTH = 30 * 86_400.0
HOSTS = {"right": 0.0, "a month ahead": MONTH, "a month behind": -MONTH, "a minute ahead": 60.0, "stopped": 0.0}
"""Processes beside the load, by how far their clocks are wrong (s). One is stopped, again and again."""


_LIBC = ctypes.CDLL(None)


class Sample(NamedTuple):
    """What must not grow: bytes resident, open files, objects of the log, requests and bytes of an opening, chunks."""

    resident: int
    files: int
    log: int
    requests: int
    opened_bytes: int
    objects: int


class Load:
    """One container under load of several threads, each with segments of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(str(folder))
        self.container = Container(Stores(self.store, self.store), 0, SETTINGS)
        self._stop = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds = self.unknown = 0

    def run(self, seconds: float, every: float) -> list[Sample]:
        """The samples taken meanwhile."""
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        samples = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.errors:
            self._stop.wait(every)
            samples.append(self.sample())
        self._stop.set()
        for thread in threads:
            thread.join()
        return samples

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        try:
            while not self._stop.is_set():
                try:
                    self._round(number, chance)
                    self.rounds += 1
                except OutcomeUnknown:  # the process was not run for longer than the grace period allows (W7)
                    self.unknown += 1
        except BaseException as error:
            self.errors.append(error)
            raise

    def _round(self, thread: int, chance: random.Random) -> None:
        """Append, read back, truncate, commit a transaction, update attributes and tables."""
        container, name = self.container, f"s/{thread}/{chance.randrange(30)}"
        with suppress(Rejected):
            container.create_segment(name)
        data = chance.randbytes(chance.choice([10, 100, 1000, 20_000]))
        writer = bytes([chance.randrange(50)]) + bytes(15)
        offset = container.append(name, data, None, [AttributeUpdate(writer, UpdateKind.ACCUMULATE, 1)])
        assert container.read(name, offset, offset + len(data)) == data
        if chance.random() < 0.2:
            container.truncate(name, offset)
        if chance.random() < 0.1:
            transaction = f"{name}#transaction.{chance.randrange(1 << 60)}"
            container.create_segment(transaction)
            container.append(transaction, data)
            container.seal(transaction)
            at = container.merge(name, transaction, b"header")
            assert container.read(name, at + 6, at + 6 + len(data)) == data
        if chance.random() < 0.02:
            container.delete(name)
        container.put_entries("table", {f"{thread}/{chance.randrange(2000)}": data[:100]})

    def sample(self) -> Sample:
        """The state of affairs now."""
        gc.collect()
        _LIBC.malloc_trim(0)  # what threads gave back to malloc fragments its arenas, and is no one's any more
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        counting = CountingStore(self.store)
        Container(Stores(counting, counting), 0, SETTINGS).close()
        log = len(self.store.list("_system/containers/0/"))
        objects = len(self.store.list(""))
        requests = sum(counting.counts.values())
        return Sample(resident, len(os.listdir("/proc/self/fd")), log, requests, counting.bytes_read, objects)


def check_flat(samples: list[Sample]) -> None:
    """The last third is like the third before it: not more than a quarter, and a little, above."""
    third = len(samples) // 3
    before, after = samples[third : 2 * third], samples[2 * third :]
    slack = Sample(8 << 20, 5, 300, 30, 1 << 20, 300)
    for field in Sample._fields:
        old = sorted(getattr(sample, field) for sample in before)[len(before) // 2]
        new = sorted(getattr(sample, field) for sample in after)[len(after) // 2]
        assert new <= 1.25 * old + getattr(slack, field), f"{field} grew from {old} to {new}: {samples}"


class Host:
    """A process that appends, by a clock of its own."""

    def __init__(self, folder: Path, name: str, ahead: float) -> None:
        self.name = name
        self.told = folder / f"{name} told"
        self.warned = folder / f"{name} warned"
        command = [sys.executable, "-m", "tests.support.host", str(folder / "root"), name, str(ahead)]
        with self.told.open("w") as told, self.warned.open("w") as warned:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=told, stderr=warned)

    def end(self) -> int:
        """Let it end; how many lines were acknowledged."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(120) == 0, self.warned.read_text()
        return max((int(number) for number in self.told.read_text().split()), default=0)


def stop_now_and_then(host: Host, ended: threading.Event) -> None:
    """Stop a process for longer than the grace period, and let it go on as long."""
    pause = SETTINGS.grace + 1
    while not ended.wait(pause):
        host.process.send_signal(signal.SIGSTOP)
        ended.wait(pause)
        host.process.send_signal(signal.SIGCONT)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("seconds", "every"),
    [
        pytest.param(5, 1, id="5 seconds"),
        pytest.param(1800, 30, id="half an hour", marks=[pytest.mark.long, pytest.mark.timeout(2400)]),
    ],
)
def test_nothing_grows_and_nothing_is_lost(tmp_path: Path, seconds: float, every: float) -> None:
    load = Load(tmp_path / "root")
    names = HOSTS if seconds > 60 else ("a month ahead", "stopped")
    hosts = [Host(tmp_path, name, HOSTS[name]) for name in names]
    ended = threading.Event()
    stopping = threading.Thread(target=stop_now_and_then, args=(hosts[-1], ended))
    stopping.start()
    samples = load.run(seconds, every)
    ended.set()
    stopping.join()
    acknowledged = {host.name: host.end() for host in hosts}
    assert not load.errors
    assert load.rounds > 2 * seconds and load.unknown <= load.rounds // 1000
    print(f"{load.rounds} rounds, {load.unknown} of unknown outcome; {acknowledged}")
    print(f"first {samples[0]}, last {samples[-1]}")
    if seconds > 60:  # a shorter run is warming up all the time
        check_flat(samples)
    for host in hosts:
        warned = "storage's clock" in host.warned.read_text()
        assert not warned or abs(HOSTS[host.name]) == MONTH, host.warned.read_text()
        assert warned or abs(HOSTS[host.name]) < MONTH or seconds < 60, "nothing kept it from deleting"
    load.container.close()
    with Container(Stores(load.store, load.store), 0, SETTINGS) as container:
        audit(container.state)
        for name, segment in container.activated([f"s/{t}/{n}" for t in range(3) for n in range(30)]).items():
            if segment is not None:
                data = container.read(name, segment.start_offset, segment.length)
                assert len(data) == segment.length - segment.start_offset
        for host in hosts:
            found = container.info(segment_of(host.name))
            assert found.length >= LINE * acknowledged[host.name]
            lines = b"".join(map(line, range(found.start_offset // LINE, found.length // LINE)))
            assert container.read(found.name, found.start_offset, found.length) == lines
