"""The quick configurations hold, and a product that is broken does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from chunkstore import Outcome
from engine.containers.maintenance_tasks import MaintenanceTasks
from engine.logs.frames import Frame
from engine.logs.log import address_of
from engine.logs.outbox import Outbox
from engine.logs.truncation import truncate_log
from tests.exhaustive import actors
from tests.exhaustive.configurations import CONFIGURATIONS
from tests.exhaustive.explorer import Configuration, Explorer, Found, Left
from tests.exhaustive.process import ProcessStore

KNOWN = {each.name: each for each in CONFIGURATIONS}
QUICK = [each for each in CONFIGURATIONS if each.quick]


def explored(configuration: Configuration, most: int = 1 << 62) -> Found:
    return Explorer(configuration).explore(most)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("configuration", QUICK, ids=[each.name for each in QUICK])
def test_all_orders_within_the_bounds_keep_the_promises(configuration: Configuration) -> None:
    found = explored(configuration)
    assert not found.problem, "\n".join([found.problem, *found.trace])
    assert found.complete and found.ends


def test_the_same_states_are_found_again() -> None:
    first, second = explored(KNOWN["sleepers"]), explored(KNOWN["sleepers"])
    assert (first.states, first.transitions, first.paths) == (second.states, second.transitions, second.paths)


def test_the_reduction_leaves_out_orders_and_no_endings() -> None:
    configuration = replace(KNOWN["races"], left=Left(late=1))
    reduced, whole = explored(configuration), explored(replace(configuration, reduced=False))
    assert whole.ends == reduced.ends
    assert whole.states > reduced.states


def test_an_exploration_that_is_cut_says_so() -> None:
    found = explored(KNOWN["races"], 10)
    assert not found.complete and not found.problem


# --- a broken product


def overwrite(store: ProcessStore, path: str, data: Any) -> Outcome:
    store.put(path, data)
    return Outcome.MINE


def one_too_far(*arguments: Any) -> int:
    def later(path: str) -> int:
        return address_of(path) - ("/wal/" in path)

    with mock.patch("engine.logs.truncation.address_of", later):
        return TRUNCATE(*arguments)


def without_grace(store: Any, container: int, refresh: Any, grace: float, now: float, covered: int) -> int:
    return TRUNCATE(store, container, refresh, -1.0, now, covered)


TRUNCATE, READ = truncate_log, Outbox.read


def void_at_once(outbox: Outbox, epoch: int, carried: Any, round_trip: float) -> Any:
    outcomes = READ(outbox, epoch, carried, round_trip)
    if outbox.waiting:
        outcomes.void.extend(outbox.forget())
    return outcomes


def same_address(frame: Frame, head: Any) -> bool:
    return bool(frame.predecessor.address == head.address)


def overtaken_is_done(tasks: MaintenanceTasks) -> int:
    return tasks.run_cycle(lambda state: not state.cycle.runs(state.cycle.number))


BROKEN: dict[str, tuple[str, Callable[[], Any]]] = {
    "a frame overwrites another one": ("races", lambda: mock.patch.object(ProcessStore, "put_if_absent", overwrite)),
    "void frames are live": ("pipelines", lambda: mock.patch.object(Frame, "follows", return_value=True)),
    "the predecessor's writer does not matter": ("pipelines", lambda: mock.patch.object(Frame, "names", same_address)),
    "truncated one frame too far": ("sleepers", lambda: mock.patch.object(actors, "truncate_log", one_too_far)),
    "no grace period": ("stops", lambda: mock.patch.object(actors, "truncate_log", without_grace)),
    "an owner takes a submission for void too early": (
        "queue-served",
        lambda: mock.patch.object(Outbox, "read", void_at_once),
    ),
    "a flush that another one overtook is done": (
        "flushes",
        lambda: mock.patch.object(MaintenanceTasks, "flush", overtaken_is_done),
    ),
}
"""Ways to break the product, and the configuration that finds each."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_promise_is_found(broken: str) -> None:
    name, breaking = BROKEN[broken]
    with breaking():
        found = explored(KNOWN[name])
    assert found.problem and found.trace
