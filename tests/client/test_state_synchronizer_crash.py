"""A revisioned stream and a state whose process dies, or whose storage fails once, at every request.

Then another process finds what a model says: all that was acknowledged, of the call under way all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, FaultStore, crash_at, fail_at
from chunkstore.testing.faults import Plan
from engine.errors import EngineError
from pravega_spark import StateSynchronizer, StreamManager
from pravega_spark.checks import verify_root
from tests.client.large_events.simulated import process
from tests.client.synchronized_sets import Begin, Change, Members, add, set_of
from tests.support.simulation import Simulation, audit, small_sizes

Step = Callable[[StreamManager, StateSynchronizer[Members]], Any]


class Found(NamedTuple):
    """What a process finds: the state, None before there is one; how many values follow the mark, None without a mark;
    and whether the stream was truncated."""

    state: frozenset[str] | None
    after_mark: int | None = None
    truncated: bool = False


def initialize(manager: StreamManager, state: StateSynchronizer[Members]) -> None:
    state.initialize(Begin(frozenset({"first"})))


def adding(name: str) -> Step:
    return lambda manager, state: add(state, name)


def compact(manager: StreamManager, state: StateSynchronizer[Members]) -> None:
    state.compact(lambda found: Begin(found.values))


def flush(manager: StreamManager, state: StateSynchronizer[Members]) -> None:
    manager.root.container(0).flush()


def write(manager: StreamManager, state: StateSynchronizer[Members]) -> None:
    state.update_state_unconditionally(Change(removed=frozenset({"none"})))


def scale(manager: StreamManager, state: StateSynchronizer[Members]) -> None:
    [segment] = manager.stream_info("sc", "one").segments
    manager.scale_stream("sc", "one", [segment.id], [(0.0, 1.0)])


A, B, C, D = (frozenset({"first", *names}) for names in ("", "a", "ab", "abc"))
STEPS: list[tuple[Step, list[Found]]] = [
    (initialize, [Found(A)]),
    (adding("a"), [Found(B)]),
    (flush, [Found(B)]),
    (compact, [Found(B), Found(B, 1)]),
    (adding("b"), [Found(C, 2)]),
    (scale, [Found(C, 2)]),
    (write, [Found(C, 3)]),
    (flush, [Found(C, 3)]),
    (compact, [Found(C, 4), Found(C, 1), Found(C, 1, True)]),
    (flush, [Found(C, 1, True)]),
    (adding("c"), [Found(D, 2, True)]),
]
"""Each step, and what a process may find at its commits, in order: the last after it."""


def found(manager: StreamManager) -> Found:
    state, client = set_of(manager), manager.create_revisioned_stream_client("sc", "one")
    state.fetch_updates()
    known, mark = state.get_state(), client.get_mark()
    after = len(list(client.read_from(mark))) if mark is not None else None
    oldest = client.fetch_oldest_revision()
    return Found(known.values if known is not None else None, after, (oldest.segment_id, oldest.offset) != (0, 0))


def run(plan: Plan | None) -> tuple[Simulation, int, int, bool]:
    """All steps up to the first that fails. Returns how many were acknowledged, the requests, and if one failed."""
    simulation = Simulation()
    first = process(simulation)
    first.create_scope("sc")
    first.create_stream("sc", "one")
    through = FaultStore(simulation.store)
    manager = process(simulation, through)
    through.plan, through.passed = plan or (lambda number, request: None), 0
    done = 0
    try:
        state = set_of(manager)
        for step, _ in STEPS:
            step(manager, state)
            done += 1
    except (Crashed, EngineError, StorageError):
        return simulation, done, through.passed, True
    return simulation, done, through.passed, False


def test_each_step_does_what_the_model_says() -> None:
    simulation = Simulation()
    manager = process(simulation)
    manager.create_scope("sc")
    manager.create_stream("sc", "one")
    state = set_of(manager)
    for step, expected in STEPS:
        step(manager, state)
        assert found(manager) == found(process(simulation)) == expected[-1]


@pytest.mark.parametrize(
    "step", [pytest.param(5, id="every fifth"), pytest.param(1, id="all", marks=[pytest.mark.long])]
)
@pytest.mark.parametrize("kind", ["crash before", "crash after", "failure before", "failure after"])
def test_a_change_that_is_interrupted_is_made_or_not(kind: str, step: int) -> None:
    what, _, when = kind.partition(" ")
    fault = crash_at if what == "crash" else fail_at
    with small_sizes():
        _, done, requests, failed = run(None)
        assert done == len(STEPS) and not failed and requests > 40
        interrupted = 0
        for number in range(1, requests + 1, step):
            simulation, done, _, failed = run(fault(number, when))  # type: ignore[arg-type]
            interrupted += failed
            possible = [STEPS[done - 1][1][-1] if done else Found(None)]
            if failed:
                possible += STEPS[done][1]
            newcomer = process(simulation)
            before = found(newcomer)
            assert before in possible, f"request {number}, step {done}"
            audit(newcomer.root.container(0).state)
            newcomer.root.container(0).flush()
            assert found(newcomer) == before
            goes_on = set_of(newcomer)
            if before.state is None:
                goes_on.initialize(Begin(frozenset({"first"})))
            add(goes_on, "goes on")
            compact(newcomer, goes_on)
            assert found(process(simulation)).state == (before.state or A) | {"goes on"}
            if number % (7 * step) == 1:
                assert verify_root(newcomer.root, deep=True).errors == 0
        assert interrupted >= (3 if what == "failure" else requests // step // 2)
