"""A frame that is written while its process dies, or its storage fails once, at every request of it.

Much of it goes to chunks while it is read, little of it to the log, and another process scales the stream meanwhile.
Then other processes find all of it or nothing, each key's events in order, and no chunk that nothing names. A frame
with a name and a number, written again by another process, is there once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, Fault, FaultStore, Request, crash_at, fail_at
from chunkstore.testing.faults import Plan, When
from engine.errors import EngineError, OutcomeUnknown
from pravega_spark import StreamManager
from tests.client.large_events.simulated import SimulatedRoot, events, process, scaled, stream_of
from tests.client.test_writer_crash import some_points, sweep
from tests.support import limits
from tests.support.simulation import Simulation

NAMED = {"txn_app_id": "a job", "txn_version": 7}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.chunk_bytes(monkeypatch, 400)
    limits.own_chunk_bytes(monkeypatch, 400)


def frame(rows: int) -> pa.Table:
    """Events `key:number` of 50 bytes."""
    keys = [f"key-{number % 7}" for number in range(rows)]
    found = [f"{key}:{number:06}:{'x' * 50}"[:50].encode() for number, key in enumerate(keys)]
    return pa.table({"event": found, "routing_key": keys})


class Run:
    """One run of a write through a store with faults. scale_at: the number of the chunk before which it is scaled."""

    def __init__(self, rows: int, named: bool, plan: Plan | None = None, scale_at: int = 0) -> None:
        self.frame, self._plan, self._scale_at = frame(rows), plan, scale_at
        self.key = NAMED if named else {}
        self.simulation = Simulation(attach_bytes=600)
        with StreamManager.over(SimulatedRoot(self.simulation)) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 2)
            with manager.create_writer("sc", "one") as writer:
                writer.write_event("before", "key-0")
        self.through = FaultStore(self.simulation.store)
        self.chunks = 0
        self.error: BaseException | None = None

    def go(self) -> None:
        manager = process(self.simulation, self.through)
        stream_of(manager).container.refresh()
        self.through.passed = 0
        self.through.plan = self._meanwhile
        try:
            assert manager.write_events("sc", "one", self._batches(), **self.key)  # type: ignore[arg-type]
        except (Crashed, StorageError, EngineError) as error:
            self.error = error

    def _batches(self) -> pa.RecordBatchReader:
        """As a source does that is read while it is written."""

        def batches() -> Iterator[pa.RecordBatch]:
            yield from self.frame.to_batches(max_chunksize=10)

        return pa.RecordBatchReader.from_batches(self.frame.schema, batches())

    def _meanwhile(self, number: int, request: Request) -> Fault | None:
        if request.verb == "put" and not request.paths[0].startswith("_system/"):
            self.chunks += 1
            if self.chunks == self._scale_at:
                scaled(process(self.simulation), (0.0, 0.3), (0.3, 0.6), (0.6, 1.0))
        return self._plan(number, request) if self._plan is not None else None

    def check(self) -> bool:
        """Whether another process finds the frame. Writes it again, if it has a name, and sweeps."""
        there = self._check()
        if self.error is None:
            assert there, "it was acknowledged"
        elif not isinstance(self.error, Crashed | OutcomeUnknown):
            assert not there, "the call has failed"
        if self.key:
            with process(self.simulation) as manager:
                assert manager.write_events("sc", "one", self.frame, **self.key) is not there  # type: ignore[arg-type]
            assert self._check()
        sweep(self.simulation)
        assert self._check() is (there or bool(self.key))
        with process(self.simulation) as manager:
            kept = sum(segment.length for segment in stream_of(manager).container.refresh().segments.values())
        assert sum(info.size for info in self.simulation.store.list("sc/")) == kept, "nothing else is left"
        return there

    def _check(self) -> bool:
        """Whether the frame is there; it is as a whole or not at all, once, and those of a key as they were written."""
        with process(self.simulation) as manager:
            found = events(manager)
        found.remove(b"before")
        assert sorted(found) in ([], sorted(self.frame["event"].to_pylist()))
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        for event in found:
            by_key[event.split(b":")[0]].append(event)
        assert all(each == sorted(each) for each in by_key.values())
        return bool(found)


WRITES = {
    "much": (120, False, 0),
    "much, with a name": (120, True, 0),
    "much, scaled meanwhile": (120, False, 3),
    "much, with a name, scaled meanwhile": (120, True, 3),
    "little": (8, False, 0),
    "little, with a name": (8, True, 0),
}

writes = pytest.mark.parametrize("write", WRITES)


def run_of(write: str, plan: Plan | None = None) -> Run:
    rows, named, scale_at = WRITES[write]
    return Run(rows, named, plan, scale_at)


def points_of(write: str, step: int) -> list[tuple[int, When]]:
    """The points at which a run can be broken off, from a run in which nothing goes wrong; always those of its end."""
    run = run_of(write)
    run.go()
    assert run.error is None and (run.chunks > 5) == write.startswith("much")
    assert run.check()
    whens: tuple[When, ...] = ("before", "after")
    points = [(number, when) for number in range(1, run.through.passed + 1) for when in whens]
    return [*points[:-2:step], *points[-2:]]


@some_points
@writes
def test_a_crash_at_every_request(write: str, step: int) -> None:
    found = []
    for number, when in points_of(write, step):
        run = run_of(write, crash_at(number, when))
        run.go()
        found.append(run.check())
    print(f"{len(found)} crash points, the frame is there after {sum(found)} ({write})")
    assert True in found and False in found


@some_points
@writes
def test_one_request_that_fails(write: str, step: int) -> None:
    """Before it took effect, or after and the response is lost: the call goes on, or raises and wrote nothing."""
    found = []
    for number, when in points_of(write, step):
        run = run_of(write, fail_at(number, when))
        run.go()
        found.append(run.check())
    print(f"{len(found)} faults, the frame is there after {sum(found)} ({write})")
