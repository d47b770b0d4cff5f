"""Upkeep is decided by facts that all processes share, never by how long one lives (W12)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chunkstore import open_store
from chunkstore.metrics import default_metrics
from chunkstore.paths import container_folder
from chunkstore.testing import (
    CountingStore,
    FaultStore,
    LatencyStore,
    Request,
    SimulatedStore,
    WrappingStore,
)
from chunkstore.wrapping import Result
from engine.admin.inspection import describe_container
from engine.containers.container import Container
from engine.errors import FlushIncomplete, FlushOvertaken
from engine.logs.log import checkpoint_path
from engine.settings import Settings
from engine.state.operations import AbortCycle, BeginCycle, Checkpoint, EndCycle, SaveSegments
from engine.storage import recovery_points
from engine.storage.object_reads import Stores
from engine.writer import flush_steps
from tests.support.gated import GatedStore
from tests.support.short_lived import EVENT, SEGMENT, End, Mortal, ShortLived, Traces
from tests.support.simulation import BEHIND, Simulation

CHECKPOINTS = f"{container_folder(0)}/checkpoints/"
DAYS = 86_400.0
SMALL = {"grace": 200.0, "garbage_delay": 100.0, "checkpoint_frames": 4, "flush_seconds": 150.0, "flush_frames": 40}


# --- a root that nobody stays at ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", End)
@pytest.mark.parametrize(
    ("processes", "apart", "soon", "settings"),
    [
        (120, 30.0, 15, SMALL | {"flush_frames": 200}),
        (150, 5.0, 80, SMALL | {"grace": 60.0, "flush_frames": 20, "flush_seconds": 1e9}),
    ],
    ids=["flushed by time", "flushed by frames"],
)
def test_processes_that_commit_once_keep_a_root_tidy(
    end: End, processes: int, apart: float, soon: int, settings: dict[str, Any]
) -> None:
    """However they end. And as soon as there is a recovery point, there always is one, which is not old."""
    root = ShortLived(**settings)
    traces, behind = [], []
    for _ in range(processes):
        root.process(end)
        root.advance(apart)
        traces.append(root.traces())
        if len(traces) % 10 == 0 and traces[-1].recovery_points:
            behind.append(root.count - root.recovered())
    first = next(number for number, found in enumerate(traces) if found.recovery_points)
    assert all(found.recovery_points for found in traces[first:])
    assert first < soon and len(behind) >= 7 and max(behind) <= 80, "events that LTS alone does not have"
    late = most(traces[processes // 2 :])
    assert late.frames <= 90, "nobody flushed, or nobody truncated: each process leaves a frame or more"
    assert late.checkpoints <= 20
    assert late.tables <= 16, "few extents each, and what waits to be deleted"
    assert late.requests <= 40 + BEHIND, "opening goes by what happened since a checkpoint"
    with root.open() as container:
        events = container.read(SEGMENT, 0, container.info(SEGMENT).length)
        assert events == b"".join(EVENT % number for number in range(processes))


def most(traces: list[Traces]) -> Traces:
    """The largest of each number."""
    return Traces(*(max(column) for column in zip(*traces, strict=True)))


def test_a_commit_that_finds_nothing_due_makes_no_request_more() -> None:
    root = ShortLived()
    root.process(End.CLOSE)
    costs = []
    for maintenance in (False, True):
        counting = CountingStore(root.store)
        container = root.open(counting, maintenance=maintenance)
        container.append(SEGMENT, b"x")
        container.close()
        costs.append((counting.counts["list"], counting.counts["put_if_absent"], len(counting.requests)))
    assert costs[0][:2] == costs[1][:2] == (1, 1)
    assert costs[1][2] <= costs[0][2] + 1, "the log is one frame longer"


# --- what others left undone ----------------------------------------------------------------------------------


def left_alone(root: ShortLived, commits: int = 12, **settings: Any) -> None:
    """Commits of processes that do no upkeep."""
    with root.open(maintenance=False, **settings) as container:
        if not root.count:
            container.create_segment(SEGMENT)
        for _ in range(commits):
            container.append(SEGMENT, EVENT % root.count)
            root.count += 1


def test_the_first_commit_waits_for_what_is_overdue() -> None:
    """So it is done when the commit returns, whatever becomes of the process then."""
    root = ShortLived(flush_frames=5, checkpoint_frames=4, maintenance_wait=60.0)
    left_alone(root)
    mortal = Mortal(root.store)
    container = root.open(mortal)
    container.append(SEGMENT, b"x")
    mortal.kill()
    container.close()
    with root.open(maintenance=False) as later:
        assert later.state.cycle.complete and later.state.cycle.number == 1
        assert later.state.logged_bytes <= 1
    assert root.store.list(CHECKPOINTS)


def test_a_checkpoint_that_was_never_made_is_made_by_the_next_process() -> None:
    """The operation is in the log, and says that one is not due yet; the listing says that there is none."""
    root = ShortLived(checkpoint_frames=8, maintenance_wait=60.0)
    left_alone(root, 15)
    mortal = Mortal(root.store)

    def dies(number: int, request: Request) -> None:
        if "/checkpoints/" in request.paths[0] and request.verb == "put_if_absent":
            mortal.kill()

    container = root.open(FaultStore(mortal, dies), maintenance=False)
    container.commit([Checkpoint()])
    container.close()
    assert not root.store.list(CHECKPOINTS)
    mortal = Mortal(root.store)
    container = root.open(mortal)
    container.append(SEGMENT, b"x")
    mortal.kill()
    container.close()
    (found,) = root.store.list(CHECKPOINTS)
    assert found.path == checkpoint_path(0, container.head.address)


def closed_gate(store: SimulatedStore) -> GatedStore:
    """What holds up the chunks that a flush writes."""
    gate = GatedStore(store, lambda request: request.verb == "put" and request.paths[0].startswith("s/"))
    gate.open.clear()
    return gate


def test_a_commit_waits_for_upkeep_no_longer_than_its_bound() -> None:
    """It returns while the flush is still held up, and the next ones do not wait at all."""
    root = ShortLived(flush_frames=5, maintenance_wait=0.0)
    left_alone(root)
    gate = closed_gate(root.store)
    container = root.open(gate)
    for _ in range(3):
        container.append(SEGMENT, b"x")
    assert gate.reached.wait(60)
    assert not container.state.cycle.complete
    gate.open.set()
    container.wait_for_upkeep()
    assert container.state.cycle.complete
    container.close()


def test_upkeep_never_waits_for_itself() -> None:
    """What is overdue is no reason for the operations of upkeep to wait, though they may be the first ones."""
    root = ShortLived(checkpoint_frames=4, maintenance_wait=1e6)
    left_alone(root, 20)
    with root.open(LatencyStore(root.store, 0.01)) as container:
        container.background.start("flush", container.flush)
        container.wait_for_upkeep()
        assert container.state.cycle.complete
    assert root.store.list(CHECKPOINTS)


def test_two_processes_that_find_it_overdue_do_it_once() -> None:
    root = ShortLived(flush_frames=20, maintenance_wait=60.0)
    left_alone(root, 40)
    containers = [root.open() for _ in range(4)]
    threads = [threading.Thread(target=container.append, args=(SEGMENT, b"x")) for container in containers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for container in containers:
        container.close()
    with root.open(maintenance=False) as later:
        assert later.state.cycle.complete and later.state.cycle.number == 1


# --- how a process ends ---------------------------------------------------------------------------------------


def test_close_finishes_the_flush_under_way() -> None:
    root = ShortLived(flush_frames=5, maintenance_wait=60.0)
    for _ in range(4):
        container = root.open(LatencyStore(root.store, 0.002))
        if not root.count:
            container.create_segment(SEGMENT)
        for _ in range(6):
            submitted = container.submit_append(SEGMENT, EVENT % root.count)
            root.count += 1
            if root.count % 6:
                submitted.result()
        container.close()
        with root.open(maintenance=False) as later:
            assert later.state.cycle.complete
            assert later.state.cycle.number >= 1
        assert root.recovered() > root.count - 6


def test_close_hands_over_what_takes_too_long() -> None:
    """The step under way is done and stays; the next process goes on at once, though no time has passed."""
    root = ShortLived(flush_frames=3, maintenance_wait=0.0)
    gate = closed_gate(root.store)
    container = root.open(gate)
    container.create_segment(SEGMENT)
    for number in range(4):
        container.append(SEGMENT, EVENT % number)
    assert gate.reached.wait(60)
    threading.Timer(0.2, gate.open.set).start()
    container.close()
    with root.open(maintenance=False) as between:
        cycle = between.state.cycle
        assert between.state.segments[SEGMENT].storage_length > 0, "the step under way is lost"
        assert cycle.complete or (cycle.aborted and not cycle.error)
    with root.open(maintenance_wait=60.0) as container:
        container.append(SEGMENT, EVENT % 4)
        assert container.state.cycle.complete


class SlowReads(WrappingStore):
    """Each object takes a while to read."""

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb == "read_ranges":
            time.sleep(0.002 * len(request.paths))
        return call()


def test_each_process_brings_a_slow_storage_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though none of them stays as long as a flush cycle takes."""
    monkeypatch.setattr(flush_steps, "MAX_EXTENTS", 20)
    root = ShortLived(flush_frames=50, maintenance_wait=0.01)
    left_alone(root, 120)
    flushed = []
    for _ in range(20):
        with root.open(SlowReads(root.store)) as container:
            container.append(SEGMENT, EVENT % root.count)
            root.count += 1
        with root.open(maintenance=False) as later:
            flushed.append(later.state.segments[SEGMENT].storage_length)
            if later.state.cycle.complete and later.state.cycle.number:
                break
    assert later.state.cycle.complete, flushed
    assert len(flushed) > 1, "close waited for more than the step under way"
    assert flushed == sorted(set(flushed)), "each one brings it on"
    assert root.recovered() >= 120


def test_a_cycle_that_was_given_up_takes_nothing_more() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment(SEGMENT)
    container.append(SEGMENT, b"x" * 1000)
    cycle = container.writer.begin(container.refresh(), strict=True)
    cycle.abort()
    assert cycle.run() and not cycle.moved
    assert container.state.segments[SEGMENT].storage_length == 0


def test_a_cycle_that_was_given_up_is_over_for_the_log() -> None:
    """Whatever of it was on its way, and in other processes too."""
    container = Simulation().open()
    container.create_segment(SEGMENT)
    container.append(SEGMENT, b"x" * 1000)
    container.commit([BeginCycle(1), AbortCycle(1)])
    for operation in (EndCycle(1), AbortCycle(1), SaveSegments(1, 0, ())):
        with pytest.raises(FlushOvertaken, match="is over"):
            container.commit([operation])
    assert container.state.cycle.aborted and container.state.cycle.recovery_point == -1
    container.flush()
    assert container.state.cycle.complete and container.state.logged_bytes == 0


class Restless(WrappingStore):
    """Calls `meanwhile` before a chunk of a user's segment is written, once for each request, while it is `on`."""

    def __init__(self, inner: SimulatedStore, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile
        self.on = True

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self.on and request.verb == "put" and request.paths[0].startswith("s/"):
            self._meanwhile()
        return call()


def test_whoever_truncates_all_the_time_stops_no_flush_for_long() -> None:
    """A cycle that others are faster than is given up without trouble, so the next one may begin at once."""
    simulation = Simulation()
    other = simulation.open()
    other.create_segment(SEGMENT)
    other.append(SEGMENT, b"x" * 1000)

    def truncate() -> None:
        other.truncate(SEGMENT, other.append(SEGMENT, b"y" * 100))

    restless = Restless(simulation.store, truncate)
    container = simulation.open(through=restless)
    with pytest.raises(FlushIncomplete, match="flush, truncate or delete"):  # it does not say that it is done
        container.flush()
    cycle = container.refresh().cycle
    assert not cycle.complete and cycle.aborted and not cycle.error

    restless.on = False
    due = simulation.open(maintenance=True)  # by another process, and with no time gone by
    due.append(SEGMENT, b"z")
    assert due.state.cycle.complete and due.state.cycle.number > cycle.number
    assert due.read(SEGMENT, due.info(SEGMENT).start_offset, due.info(SEGMENT).length) == b"y" * 100 + b"z"


# --- other hosts' clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-30 * DAYS, -60.0, 30 * DAYS], ids=["month behind", "minute behind", "month ahead"])
@pytest.mark.parametrize("complete", [False, True], ids=["killed in a cycle", "after a cycle"])
def test_no_host_s_clock_keeps_the_others_from_flushing(ahead: float, complete: bool) -> None:
    root = ShortLived(flush_seconds=300.0, maintenance_wait=60.0)
    with root.open(ahead=ahead, maintenance=False) as wrong:
        wrong.create_segment(SEGMENT)
        wrong.append(SEGMENT, EVENT % 0)
        if complete:
            wrong.flush()
        else:
            wrong.commit([BeginCycle(1)])
    root.count = 1
    root.advance(301.0)
    root.process(End.CLOSE)
    with root.open(maintenance=False) as container:
        assert container.state.cycle.complete and container.state.cycle.number == 2
        assert container.state.logged_bytes == 0


@pytest.mark.parametrize("ahead", [-30 * DAYS, 30 * DAYS])
def test_who_sees_a_cycle_begin_times_it_by_its_own_clock(ahead: float) -> None:
    """So it leaves it alone while it lives, and takes it over when it falls silent."""
    root = ShortLived(flush_frames=6, maintenance_wait=60.0)
    left_alone(root, 4)
    with root.open() as container:
        container.append(SEGMENT, EVENT % 4)
        with root.open(ahead=ahead, maintenance=False) as wrong:
            wrong.commit([BeginCycle(1)])
            for _ in range(10):
                container.append(SEGMENT, b"x")
            container.wait_for_upkeep()
            assert container.state.cycle.number == 1, "it is at work, for all that is known here"
        root.advance(root.settings.timeout + 1)
        container.append(SEGMENT, b"x")
        container.wait_for_upkeep()
        assert container.state.cycle.complete and container.state.cycle.number == 2


def test_a_long_cycle_that_shows_life_is_left_alone() -> None:
    """Each of its steps takes almost as long as others wait for a sign of life, all together much longer."""
    simulation = Simulation(timeout=60.0, flush_frames=3)
    others: list[Container] = []

    def slow(number: int, request: Request) -> None:
        if request.verb == "put" and request.paths[0].startswith("s/"):
            simulation.advance(50.0)
            other = simulation.open(maintenance=True)
            others.append(other)
            for container in others[::4]:
                container.append(SEGMENT, b"x")

    container = simulation.open(through=FaultStore(simulation.store, slow))
    for name in (SEGMENT, *(f"s/{number}" for number in range(12))):
        container.create_segment(name)
        container.append(name, b"x" * 100)
    container.flush()
    assert len(others) >= 12
    assert container.state.cycle.number == 1 and container.state.cycle.complete


# --- what goes wrong ------------------------------------------------------------------------------------------


class Bug(Exception):
    """What nobody expects."""


@pytest.fixture
def failing() -> Iterator[tuple[ShortLived, Container]]:
    root = ShortLived(flush_frames=3)

    def fails(number: int, request: Request) -> None:
        if "/recovery-points/" in request.paths[0] and request.verb == "put":
            raise Bug("a bug in the flush")

    container = root.open(FaultStore(root.store, fails))
    yield root, container
    container.close()


def test_what_upkeep_does_not_expect_is_logged_counted_and_shown(
    failing: tuple[ShortLived, Container], caplog: pytest.LogCaptureFixture
) -> None:
    root, container = failing
    counted = failures("flush", "Bug")
    with caplog.at_level(logging.ERROR, "engine.task_runner"):
        container.create_segment(SEGMENT)
        for number in range(6):
            container.append(SEGMENT, EVENT % number)
        container.wait_for_upkeep()
    (record, *_) = caplog.records
    assert "flush failed unexpectedly" in record.message and "a bug in the flush" in record.message
    assert record.exc_info is not None
    assert failures("flush", "Bug") == counted + 1
    assert container.failures == {"flush": "a bug in the flush"}
    assert describe_container(container).failures == {"flush": "a bug in the flush"}
    with root.open(maintenance=False) as elsewhere:
        found = describe_container(elsewhere)
        assert found.cycle.aborted and found.cycle.error == "Bug: a bug in the flush"
        assert found.failures == {}


def failures(operation: str, error: str) -> float:
    """How often that went wrong in this process, as Prometheus is told."""
    labels = {"operation": operation, "error": error}
    found = default_metrics().registry.get_sample_value("pravega_maintenance_failures_total", labels)
    return found or 0.0


def test_a_failed_cycle_is_tried_again_after_a_pause(failing: tuple[ShortLived, Container]) -> None:
    root, container = failing
    container.create_segment(SEGMENT)
    for number in range(6):
        container.append(SEGMENT, EVENT % number)
    container.wait_for_upkeep()
    tried = container.state.cycle.number
    for number in range(6):
        container.append(SEGMENT, EVENT % number)
    container.wait_for_upkeep()
    assert container.state.cycle.number == tried == 1
    root.advance(root.settings.timeout + 1)
    with root.open() as other:
        other.append(SEGMENT, b"x")
        other.wait_for_upkeep()
        assert other.state.cycle.complete and other.state.cycle.number == 2


def test_an_error_while_the_facts_are_weighed_is_not_told_as_a_failed_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operation is live by then: its caller would do it twice."""
    root = ShortLived()
    left_alone(root, 1)
    container = root.open()
    monkeypatch.setattr("engine.containers.maintenance_policy.truncation", lambda *_: dict[str, int]()["bug"])
    assert container.append(SEGMENT, EVENT % 1) == len(EVENT % 0)
    assert "look failed unexpectedly" in caplog.text
    container.close()


# --- the recovery point (F3) ------------------------------------------------------------------------------------------


def test_the_recovery_point_of_a_complete_cycle_is_there() -> None:
    """At each request, as others may look then: what the log calls complete can be recovered."""
    simulation = Simulation()
    seen = set()

    def look(number: int, request: Request) -> None:
        with simulation.open() as other:
            if other.state.cycle.complete and other.state.cycle.number:
                recovery_point = recovery_points.newest(simulation.store, 0)
                assert recovery_point is not None and recovery_point.number >= other.state.cycle.number
                seen.add(recovery_point.number)

    container = simulation.open(through=FaultStore(simulation.store, look))
    container.create_segment(SEGMENT)
    for number in range(4):
        container.append(SEGMENT, EVENT % number)
        container.flush()
    container.append(SEGMENT, b"x")
    assert seen == {1, 2, 3, 4}


def test_threads_that_cannot_be_started_do_not_fail_a_commit(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A process at its limit of threads, or at its end: the commit is live, and upkeep is due for the next one."""
    store = open_store(str(tmp_path))
    settings = Settings(flush_frames=1, checkpoint_frames=100, timeout=0.5)
    with Container(Stores(store, store), 0, settings) as container:
        container.create_segment(SEGMENT)
        container.append(SEGMENT, b"w")
        container.wait_for_upkeep()
        pool = container.background._pool
        assert pool is not None
        pool.shutdown()  # what Python does to it at the end of a process
        container.append(SEGMENT, b"x")
        container.append(SEGMENT, b"y")
        assert "could not be started" in caplog.text
        assert "flush" in container.failures
