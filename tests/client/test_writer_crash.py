"""An event writer whose process dies, or whose storage fails once, at every request of its appends.

Much data goes to chunks that an append attaches, little of it to the log in the caller's thread, and the stream is
scaled by another process while chunks are on their way. Then other processes find what a model says: all that was
acknowledged, once and in each key's order, nothing twice, and of the rest a beginning of what was written. A sweep
leaves no chunk that nothing names.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import pytest

from chunkstore.testing import Crashed, Fault, FaultStore, Request, crash_at, fail_at
from chunkstore.testing.faults import Plan
from engine.admin.orphans import expire_orphans, find_orphans
from pravega_spark import StreamManager, WriteFailed
from pravega_spark.client.writer import EventWriter
from tests.client.large_events.simulated import SimulatedRoot, collect, events, process, scaled, stream_of
from tests.client.small_batches import make_batches_small
from tests.support.simulation import Simulation

some_points = pytest.mark.parametrize(
    "step",
    [
        pytest.param(5, id="every fifth"),
        pytest.param(1, id="all", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # threads that died


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_batches_small(monkeypatch)


Workload = Callable[["Run", EventWriter], None]


class Run:
    """One run of a workload through a store with faults. acknowledged: how many events a flush has confirmed."""

    def __init__(self, workload: Workload, plan: Plan | None = None, scale_at: int = 0) -> None:
        self._workload = workload
        self._plan = plan
        self._scale_at = scale_at
        self.simulation = Simulation(attach_bytes=600)
        with StreamManager.over(SimulatedRoot(self.simulation)) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 2)
        self.through = FaultStore(self.simulation.store)
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.ends: list[tuple[int, int]] = []
        self.chunks = 0
        self.scaled = False
        self.failed = False

    def go(self) -> None:
        """Until it is done, or the process is dead, or it has heard of a failure."""
        others = set(threading.enumerate())  # of tests before it
        manager = process(self.simulation, self.through)
        writer = EventWriter(stream_of(manager))
        self.through.passed = 0
        self.through.plan = self._meanwhile
        try:
            self._workload(self, writer)
            writer.close()
            self.acknowledged = len(self.written)
        except (Crashed, WriteFailed):
            self.failed = True
        finally:
            self.acknowledged = max(self.acknowledged, writer.durable_events)
            threads = [
                each for each in threading.enumerate() if each.name.startswith("event-writer ") and each not in others
            ]
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads)

    def _meanwhile(self, number: int, request: Request) -> Fault | None:
        if request.verb == "put" and not request.paths[0].startswith("_system/"):
            self.chunks += 1
            if self.chunks == self._scale_at:
                self.scaled = True
                scaled(process(self.simulation), (0.0, 0.3), (0.3, 0.6), (0.6, 1.0))
        return self._plan(number, request) if self._plan is not None else None

    def write(self, writer: EventWriter, count: int) -> None:
        """Events `key:number` of 50 bytes, several as a column."""
        numbers = range(len(self.written), len(self.written) + count)
        keys = [f"key-{number % 7}" for number in numbers]
        found = [f"{key}:{number:06}:{'x' * 50}"[:50].encode() for number, key in zip(numbers, keys, strict=True)]
        self.written += found  # before: it may be there, whatever is heard of it
        if count == 1:
            writer.write_event_bytes(found[0], keys[0])
        else:
            writer.write_events(found, keys)

    def write_atomically(self, writer: EventWriter, count: int, key: str) -> None:
        """Events of one key, of which `_check` finds all or none."""
        first = len(self.written)
        found = [f"{key}:{number:06}:{'x' * 50}"[:50].encode() for number in range(first, first + count)]
        self.written += found
        self.ends.append((first, first + count))
        writer.write_events(found, routing_key=key, atomic=True)

    def flush(self, writer: EventWriter) -> None:
        writer.flush()
        self.acknowledged = len(self.written)

    def check(self) -> None:
        """What another process finds, before it writes on, and after; and that all chunks are named, or go."""
        with process(self.simulation) as manager:
            count = self._check(events(manager))
            with manager.create_writer("sc", "one") as writer:
                del self.written[count:]
                self.ends = [each for each in self.ends if each[1] <= count]
                self.write(writer, 3)
                self.write(writer, 20)
            assert self._check(events(manager)) == len(self.written) == count + 23
        sweep(self.simulation)
        with process(self.simulation) as manager:
            assert self._check(events(manager)) == len(self.written)
            kept = sum(segment.length for segment in stream_of(manager).container.refresh().segments.values())
        assert sum(info.size for info in self.simulation.store.list("sc/")) == kept, "nothing else is left"

    def _check(self, found: list[bytes]) -> int:
        """How many events are there, the first that were written, once, and those of a key as they were written."""
        assert len(found) >= self.acknowledged
        assert sorted(found) == sorted(self.written[: len(found)])
        assert not any(first < len(found) < end for first, end in self.ends), "a part of an atomic write"
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        for event in found:
            by_key[event.split(b":")[0]].append(event)
        assert all(each == sorted(each) for each in by_key.values())
        return len(found)


def sweep(simulation: Simulation) -> None:
    """Give up chunks that nothing names, when they are old enough, and collect all garbage."""
    simulation.advance(2000.0)
    root = SimulatedRoot(simulation)
    found = find_orphans(root, lambda segment: 0, age=1000.0)
    expire_orphans(root, found, share=1.0)
    root.close()
    collect(simulation)


def much(run: Run, writer: EventWriter) -> None:
    """Four batches for chunks and two small ones, two of which are waited for."""
    run.write(writer, 24)
    run.write(writer, 18)
    run.write(writer, 3)
    run.flush(writer)
    run.write(writer, 20)
    run.write(writer, 26)
    run.write(writer, 22)
    run.write(writer, 2)
    run.flush(writer)
    run.write(writer, 1)


def little(run: Run, writer: EventWriter) -> None:
    """Small events, each waited for."""
    for count in (1, 1, 3, 1, 2, 1):
        run.write(writer, count)
        run.flush(writer)
        if len(run.written) == 5:
            scaled(process(run.simulation), (0.0, 0.3), (0.3, 0.6), (0.6, 1.0))


def atomic(run: Run, writer: EventWriter) -> None:
    """Atomic writes of one key, small and as large as chunks, among others."""
    run.write(writer, 2)
    run.write_atomically(writer, 5, "key-1")
    run.write_atomically(writer, 25, "key-2")
    run.write(writer, 1)
    run.flush(writer)
    run.write_atomically(writer, 3, "key-1")
    run.flush(writer)
    run.write_atomically(writer, 4, "key-3")
    run.write_atomically(writer, 25, "key-1")


WORKLOADS = {
    "atomic": (atomic, 0),
    "atomic, scaled before the first append": (atomic, 1),
    "much": (much, 0),
    "much, scaled before the first append": (much, 1),
    "much, scaled with chunks on their way": (much, 6),
    "little": (little, 0),
}

workloads = pytest.mark.parametrize("workload", WORKLOADS)


def requests_of(workload: str) -> int:
    """The most requests of a run in which nothing goes wrong."""
    run = Run(*plan_of(workload))
    run.go()
    assert not run.failed and run.acknowledged == len(run.written)
    assert run.chunks >= 6 or not workload.startswith("much")
    assert run.scaled == bool(WORKLOADS[workload][1]) and bool(run.chunks) == (workload != "little")
    run.check()
    return run.through.passed


def plan_of(workload: str, plan: Plan | None = None) -> tuple[Workload, Plan | None, int]:
    work, scale_at = WORKLOADS[workload]
    return work, plan, scale_at


@some_points
@workloads
def test_a_crash_at_every_request(workload: str, step: int) -> None:
    points = [(number, when) for number in range(1, requests_of(workload) + 1) for when in ("before", "after")]
    failed = 0
    for number, when in points[::step]:
        run = Run(*plan_of(workload, crash_at(number, when)))  # type: ignore[arg-type]
        run.go()
        failed += run.failed
        run.check()
    print(f"{len(points[::step])} crash points, {failed} heard of ({workload})")
    assert failed > 0


@some_points
@workloads
def test_one_request_that_fails(workload: str, step: int) -> None:
    """Before it took effect, or after and the response is lost: the process goes on, or hears of it."""
    points = [(number, when) for number in range(1, requests_of(workload) + 1) for when in ("before", "after")]
    whole = 0
    for number, when in points[::step]:
        run = Run(*plan_of(workload, fail_at(number, when)))  # type: ignore[arg-type]
        run.go()
        whole += not run.failed
        run.check()
    print(f"{len(points[::step])} faults, {whole} overcome ({workload})")
    assert whole > 0
