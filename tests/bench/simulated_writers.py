"""Up to 1,000 processes that write to one log, in simulated time: the engine's own code on a storage like S3.

Each has a host with a CPU of its own, and appends events of 1 KB, one at a time. Latencies are drawn from a seed, so a
run is the same each time. What does not change what happens is shared, to save the time of this machine: each frame is
decoded and applied once for all of them.

SIMULATED: how many ("1 4 16 64 256 1000"). SIMULATED_SECONDS: of the window. SEED. SIMULATED_PAUSE: seconds between two
events of a writer.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine.containers.container import Container
from engine.logs import frames, inbox, log, outbox, processor, replay, replica, transaction
from engine.logs.commit_queue import CommitQueue
from engine.logs.processor import Processor
from engine.settings import Settings
from engine.state.operations import Append, Payload
from engine.storage.object_reads import Stores
from tests.bench.figures import Figures
from tests.bench.virtual_time import Bill, FarStore, Objects, VirtualCondition, VirtualExecutor, World, wait_for
from tests.bench.writers import usd
from tests.bench.writing import HEAD, SIZE, InOrder, event

COUNTS = [int(number) for number in os.environ.get("SIMULATED", "1 4 16 64 256 1000").split()]
SECONDS = float(os.environ.get("SIMULATED_SECONDS", "20"))
WARM = 10.0
PAUSE = float(os.environ.get("SIMULATED_PAUSE", "0"))
SEED = int(os.environ.get("SEED", "1"))
SEGMENT = "s/a"
LIMITS = {"PUT and DELETE": 3500, "GET and LIST": 5500}
"""Requests of a second that S3 takes for a prefix."""

SAMPLED = 0.1
"""Seconds between two looks at queues."""

_KEPT = 256


@dataclass
class Outcome:
    """What happened in a run.

    acknowledged: when, by whom, and how long it took, of each event. peaks: the most requests of a second, by kind and
    folder; of_limit: that of all folders, as a share of what S3 takes for a prefix. queued: transactions that one
    process had in its queue at most.
    """

    acknowledged: list[tuple[float, int, float]] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    of_limit: float = 0.0
    epochs: int = 0
    frames: int = 0
    queued: int = 0
    queued_bytes: int = 0
    real_seconds: float = 0.0


def measure(figures: Figures) -> None:
    """Tell the figures of each number of writers."""
    for count in COUNTS:
        company = Company(count, SEED, PAUSE)
        outcome = company.run(WARM, SECONDS)
        figures.tell("writers, simulated S3", f"{count} processes", **told(outcome, count, SECONDS))


def told(outcome: Outcome, count: int, seconds: float) -> dict[str, float]:
    """The figures of a run."""
    events = max(len(outcome.acknowledged), 1)
    times = sorted(took for _, _, took in outcome.acknowledged)
    by_writer = [0] * count
    for _, writer, _ in outcome.acknowledged:
        by_writer[writer] += 1
    requests = {kind: outcome.requests.get(kind, 0) / events for kind in ("PUT", "LIST", "GET", "DELETE")}
    return {
        "events_s": len(outcome.acknowledged) / seconds,
        "p50_ms": times[len(times) // 2] * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
        "longest_ms": times[-1] * 1000,
        "least_share": min(by_writer) / events * count,
        "most_share": max(by_writer) / events * count,
        **requests,
        "usd_per_million": usd(requests) * 1e6,
        "epochs": outcome.epochs,
        "frames_s": outcome.frames / seconds,
        **outcome.peaks,
        "of_limit": outcome.of_limit,
        "queued": outcome.queued,
        "queued_kB": outcome.queued_bytes / 1000,
        "real_s": outcome.real_seconds,
    }


class Company:
    """Writers of one log, each on a host of its own. trace: what was acknowledged, in order.

    pause: seconds between an event and the next one of its writer, times 0.5 to 1.5.
    """

    def __init__(self, count: int, seed: int, pause: float = 0.0) -> None:
        self.world = World(seed)
        self.bill = Bill()
        self.objects = Objects(seed)
        self.trace: list[tuple[float, int, float]] = []
        self.containers: list[Container] = []
        self._count = count
        self._pause = pause
        self._closing = False
        self._numbers = [0] * count
        self._writing = 0

    def run(self, warm: float, seconds: float) -> Outcome:
        """Write for so long; then check that each event is there once, those of each writer in order."""
        begun = time.monotonic()
        with self._simulated():
            with Container(Stores(self.objects, self.objects), 0, _settings(threaded=False)) as made:
                made.create_segment(SEGMENT)
            for writer in range(self._count):
                self.world.spawn(partial(self._write, writer))
            self.world.sleep(warm)
            before, head = dict(self.bill.requests), self._head()
            first = len(self.trace)
            outcome = Outcome()
            end = self.world.now + seconds
            while self.world.now < end:
                self.world.sleep(SAMPLED)
                self._sample(outcome)
            outcome.acknowledged = self.trace[first:]
            outcome.requests = {kind: number - before.get(kind, 0) for kind, number in self.bill.requests.items()}
            outcome.epochs, outcome.frames = (now - then for now, then in zip(self._head(), head, strict=True))
            outcome.peaks = {
                f"peak {what} {where}": self.bill.peak(what, where, warm)
                for what in LIMITS
                for where in ("all", "wal", "inbox")
            }
            outcome.of_limit = max(outcome.peaks[f"peak {what} all"] / most for what, most in LIMITS.items())
            self._end()
            self._check()
        outcome.real_seconds = time.monotonic() - begun
        return outcome

    def _write(self, writer: int) -> None:
        world = self.world
        world.sleep(world.random.random())
        store = FarStore(self.objects, world, self.bill)
        container = Container(
            Stores(store, store),
            0,
            _settings(),
            executor=VirtualExecutor(world),
            clock=world.clock,
            now=world.time_of_day,
            sleep=world.sleep,
        )
        self.containers.append(container)
        self._writing += 1
        while not self._closing:
            data = event(writer, self._numbers[writer])
            begun = world.now
            future = container.log.submit([Append(SEGMENT, Payload(data))])
            wait_for(world, future)
            future.result()
            self._numbers[writer] += 1
            self.trace.append((world.now, writer, world.now - begun))
            if self._pause:
                world.sleep(self._pause * (0.5 + world.random.random()))
        self._writing -= 1

    def _head(self) -> tuple[int, int]:
        heads = [container.log.head for container in self.containers]
        return max((head.epoch, head.address) for head in heads) if heads else (0, 0)

    def _sample(self, outcome: Outcome) -> None:
        for container in self.containers:
            found = container.log.processor
            assert isinstance(found, Virtual)
            queue = found.waiting
            outcome.queued = max(outcome.queued, len(queue.transactions))
            outcome.queued_bytes = max(outcome.queued_bytes, queue.size)

    def _end(self) -> None:
        """Have all writers finish, then their threads."""
        self._closing = True
        while self._writing:
            self.world.sleep(1)
        for container in self.containers:
            found = container.log.processor
            assert isinstance(found, Virtual)
            found.end()
        while self.world.tasks:
            self.world.sleep(1)

    def _check(self) -> None:
        order = InOrder(self._count)
        with Container(Stores(self.objects, self.objects), 0, _settings(threaded=False)) as reader:
            length = reader.info(SEGMENT).length
            assert length == SIZE * len(self.trace), (length, len(self.trace))
            for at in range(0, length, SIZE << 10):
                data = reader.read(SEGMENT, at, min(at + (SIZE << 10), length))
                for head in (data[start : start + HEAD] for start in range(0, len(data), SIZE)):
                    order.note(head)
        assert order.seen == self._numbers

    @contextlib.contextmanager
    def _simulated(self) -> Iterator[None]:
        """The engine has the world's time and chance, and shares what all of them would compute."""
        world = self.world
        now = SimpleNamespace(monotonic=world.clock, time=world.time_of_day)
        chance = SimpleNamespace(urandom=world.random.randbytes)
        ids = SimpleNamespace(uuid4=lambda: uuid.UUID(bytes=world.random.randbytes(16), version=4))
        with contextlib.ExitStack() as stack:
            for module, name, value in (
                (processor, "time", now),
                (transaction, "time", now),
                (inbox, "time", now),
                (outbox, "os", chance),
                (outbox, "uuid", ids),
                (outbox, "random", random.Random(world.random.random())),
                (log, "os", chance),
                (log, "uuid", ids),
                (frames, "decode", _shared(frames.decode, lambda data, path, number, address, whole: (data, address))),
                (replica, "applied", _shared(replay.applied, lambda state, frame, *_: frame.position)),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            virtual = type("VirtualHere", (Virtual,), {"world": world})
            stack.enter_context(mock.patch("engine.logs.durable_log.Processor", virtual))
            yield


def _settings(threaded: bool = True) -> Settings:
    return Settings(maintenance=False, cache_bytes=0, threaded=threaded, linger=0.05)


def _shared(compute: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """What is computed once for all hosts."""
    kept: dict[Any, Any] = {}

    def shared(*arguments: Any) -> Any:
        name = key(*arguments)
        if name not in kept:
            kept[name] = compute(*arguments)
            if len(kept) > _KEPT:
                del kept[next(iter(kept))]
        return kept[name]

    return shared


class Virtual(Processor):
    """Its thread is one of the world's."""

    world: World

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._begun = False
        if self._threaded:
            self._wake = VirtualCondition(self.world, self._queue.lock)  # type: ignore[assignment]

    def _start_thread(self) -> None:
        if self._threaded and not self._begun:
            self._begun = True
            self.world.spawn(self._run)

    def end(self) -> None:
        """Let its thread end; nothing is submitted any more."""
        with self._queue.lock:
            self._queue.closing = True
            self._wake.notify_all()

    @property
    def waiting(self) -> CommitQueue:
        """What is to leave."""
        return self._queue


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        found = Company(number, SEED, PAUSE).run(WARM, SECONDS)
        print(number, {name: round(value, 3) for name, value in told(found, number, SECONDS).items()}, flush=True)
