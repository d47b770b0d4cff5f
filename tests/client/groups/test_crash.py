"""A process of a reader group that dies, or whose storage fails once, at every request of what it changes in the group.

It joins, reads, has a checkpoint passed, generates cuts, gives a position back, resets the group and reconfigures it.
Then another process finds a group that can be used: its readers get every event that the process did not get, its
checkpoints are cuts at which the group may continue, and a repetition of the reset leaves no subscription behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, FaultStore, crash_at, fail_at
from chunkstore.testing.faults import Plan
from engine.errors import EngineError
from pravega_spark import CheckpointFailed, StreamError, StreamManager, StreamReaderGroup, StreamReaderGroupConfig
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.opening import create_group
from tests.client.large_events.simulated import SimulatedRoot, process
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("no_patience")

some_points = pytest.mark.parametrize(
    "step",
    [
        pytest.param(3, id="every third"),
        pytest.param(1, id="all", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)

FIRST = StreamReaderGroupConfig(False, "sc", "one", retention="automatic")
SECOND = StreamReaderGroupConfig(False, "sc", "two", retention="automatic", checkpoint_interval=3600)
EVENTS = [f"event {number}" for number in range(12)]


class Run:
    """One run through a store with faults. delivered: the events that the process got from stream `one`."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.simulation = Simulation()
        with StreamManager.over(SimulatedRoot(self.simulation)) as manager:
            manager.create_scope("sc")
            for name in ("one", "two"):
                manager.create_stream("sc", name, 2)
            with manager.create_writer("sc", "one") as writer:
                writer.write_events(EVENTS, [str(number) for number in range(12)])
        self.through = FaultStore(self.simulation.store, plan)
        self.delivered: set[str] = set()
        self.failed = False

    def go(self) -> None:
        """Until it is done, or the process is dead, or it has heard of a failure."""
        manager = process(self.simulation, self.through)
        groups: list[OpenGroup] = []
        try:
            groups.append(create_group(manager.root, "sc", "rg", FIRST))
            self._work(StreamReaderGroup(groups[0]))
        except (Crashed, StorageError, EngineError, StreamError):
            self.failed = True
        finally:
            for group in groups:
                group.end_threads()

    def _work(self, group: StreamReaderGroup) -> None:
        readers = [group.create_reader(name) for name in "ab"]
        for reader in readers:
            reader.record()
        for reader in (*readers, *readers):
            self.read(reader.read_next_event, 2)
        future = group.initiate_checkpoint("c")
        for reader in (*readers, *readers):
            self.read(reader.read_next_event, 1)
        assert future.done() or group.outstanding_checkpoints() == {}
        group.generate_stream_cuts()
        readers[0].close_at(readers[0].position())
        group.cancel_outstanding_checkpoints()
        group.reset()
        group.reset_reader_group(SECOND)

    def read(self, call: Callable[[float], object], count: int) -> None:
        for _ in range(count):
            event = call(0).event  # type: ignore[attr-defined]
            if event is not None:
                self.delivered.add(event.data.decode())

    def check(self) -> None:
        """What another process finds."""
        with process(self.simulation) as manager:
            if "rg" not in manager.list_reader_group("sc"):
                assert not self.delivered
                return
            group = manager.get_reader_group("rg", "sc")
            for name in group.online_readers():
                group.reader_offline(name)
            assert group.outstanding_checkpoints() == {}
            if list(group.stream_cuts()) == ["sc/one"]:
                before = group.stream_cuts()
                for cuts in group.checkpoints().values():
                    group.reset(cuts)
                group.reset(before)
                assert set(self.rest(group)) | self.delivered == set(EVENTS)
            group.reset_reader_group(SECOND)
            assert manager.stream_info("sc", "one").subscribers == {}
            assert list(manager.stream_info("sc", "two").subscribers) == ["rg"]
            manager.create_reader_group_with_config("rg", "sc", SECOND)

    @staticmethod
    def rest(group: StreamReaderGroup) -> Iterator[str]:
        reader = group.create_reader("rest")
        misses = 0
        while misses < 3:
            event = reader.read_next_event(0).event
            misses = 0 if event is not None else misses + 1
            if event is not None:
                yield event.data.decode()
        reader.reader_offline()


def points(step: int) -> range:
    """The requests of a run in which nothing goes wrong."""
    run = Run()
    run.go()
    assert not run.failed and run.through.passed > 20
    run.check()
    return range(1, run.through.passed + 1, step)


@some_points
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_request(step: int, when: str) -> None:
    for number in points(step):
        run = Run(crash_at(number, when))  # type: ignore[arg-type]
        run.go()
        assert run.failed, number
        run.check()


@some_points
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_at_every_request(step: int, when: str) -> None:
    for number in points(step):
        run = Run(fail_at(number, when))  # type: ignore[arg-type]
        run.go()
        run.check()


def test_a_wait_ends_with_the_failure_of_the_storage() -> None:
    """The checkpoint goes on: another future of its name completes."""
    run = Run()
    manager = process(run.simulation, run.through)
    group = manager.create_reader_group_with_config("rg", "sc", FIRST)
    reader = group.create_reader("r")
    future = group.initiate_checkpoint("c")
    passed = run.through.passed
    run.through.plan = lambda number, request: fail_at(number)(number, request) if number > passed else None
    with pytest.raises(StorageError):
        future.result(60)
    run.through.plan = lambda number, request: None
    again = group.initiate_checkpoint("c")
    while not reader.read_next_event(0).is_checkpoint:
        pass
    reader.read_next_event(0)
    assert sorted(again.result(60)) == ["sc/one"]
    with pytest.raises(CheckpointFailed):
        failing = group.initiate_checkpoint("d")
        group.reset()
        failing.result(60)
    group.close()
