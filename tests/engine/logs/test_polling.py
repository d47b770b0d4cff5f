"""When followers look at a log, and what they request: by simulated time, and with threads."""

import heapq
import threading
import time
from collections.abc import Iterator

import pytest

from chunkstore.testing import CountingStore, LatencyStore
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.engine.containers.segments import counted
from tests.support.simulation import Simulation

LATENCY = 0.5
"""Seconds within which followers want to see what is new."""

TICKS = 0.01
"""Seconds that the simulated clock may move on while a follower or two read it."""


def wake_ups(simulation: Simulation, container: Container, count: int, seconds: float) -> Iterator[float]:
    """The times at which `count` followers wake, each of which looks, and sleeps until its next look is due."""
    begun = simulation.clock()
    due = [(begun + number * LATENCY / count, number) for number in range(count)]
    while due[0][0] < begun + seconds:
        then, number = heapq.heappop(due)
        simulation.advance(max(then - simulation.clock(), 0.0))
        container.look(LATENCY)
        heapq.heappush(due, (simulation.clock() + container.due_in(LATENCY), number))
        yield simulation.clock() - begun


@pytest.mark.parametrize("followers", [1, 10, 100])
def test_followers_of_an_idle_container_look_once_per_latency_together(followers: int) -> None:
    simulation, counting, container = counted()
    for _ in wake_ups(simulation, container, followers, 60.0):
        pass
    assert 60 / LATENCY * 0.9 <= counting.count() <= 60 / LATENCY + 3
    assert counting.count() == counting.count("read_ranges")


@pytest.mark.parametrize("interval", [0.03, 0.2, 0.7, 5.0])
def test_a_frame_is_seen_within_the_latency_and_costs_at_most_two_looks_more(interval: float) -> None:
    simulation, counting, container = counted()
    writer, begun = simulation.open(), simulation.clock()
    appended: list[float] = []
    known, looks, seen = container.state.sequence, 0, 0
    for now in wake_ups(simulation, container, 3, 30.0):
        news, known = container.state.sequence - known, container.state.sequence
        for then in appended[seen : seen + news]:
            assert now - then <= LATENCY + TICKS
        seen += news
        looks += counting.count() > 0
        counting.reset()
        while (len(appended) + 1) * interval < now:
            writer.append("s/a", b"x")
            appended.append(simulation.clock() - begun)
    assert len(appended) - seen <= LATENCY / interval + 1
    assert looks <= 30 / LATENCY + 2 * min(len(appended), 30 / LATENCY) + 3


def test_what_a_process_learns_otherwise_is_a_look() -> None:
    """A process that commits or reads the log anyway requests nothing for its followers."""
    simulation, counting, container = counted()
    for _ in range(100):
        simulation.advance(LATENCY / 2.5)
        container.append("s/a", b"x")
        assert container.look(LATENCY) is container.state
        simulation.advance(LATENCY / 2.5)
        container.look(LATENCY)
    assert counting.counts == {"put_if_absent": 100}
    simulation.advance(LATENCY)
    counting.reset()
    for _ in range(100):
        container.refresh()
        simulation.advance(LATENCY / 2.5)
        container.look(LATENCY)
    assert counting.counts == {"read_ranges": 100}


def test_threads_whose_looks_are_due_together_share_one() -> None:
    counting = CountingStore(LatencyStore(Simulation().store, 0.05))
    moved = [0.0]  # what the clock of the container is ahead
    with Container(
        Stores(counting, counting), 0, Settings(maintenance=False), clock=lambda: time.monotonic() + moved[0]
    ) as container:
        moved[0] += 200
        counting.reset()
        barrier = threading.Barrier(20)

        def follow() -> None:
            barrier.wait()
            container.look(100.0)

        threads = [threading.Thread(target=follow) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counting.count("read_ranges") == 1
