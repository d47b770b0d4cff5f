"""Histories of a few seeds, that a seed decides all of its history, and that broken promises are found. Run by
test_simulation.py, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest

from engine.logs.frames import Frame
from engine.logs.log import Log
from pravega_spark.client.groups.state import GroupState
from pravega_spark.streams.key_value_table import checked_update
from pravega_spark.streams.writing.producer_state import ProducerUpdate
from tests.simulation import runs
from tests.simulation.runs import SCENARIOS
from tests.simulation.world import World


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_histories_keep_what_was_promised(seed: int, scenario: str) -> None:
    found = runs.run(runs.plan_of(seed, scenario))
    assert found.error is None
    assert found.operations


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_decides_all_of_its_history(scenario: str) -> None:
    for seed in (3, 9):
        plan = runs.plan_of(seed, scenario)
        first, second = runs.run(plan), runs.run(plan)
        assert first.trace == second.trace
        assert len(first.trace) > 50


def test_seeds_differ() -> None:
    assert runs.run(runs.plan_of(1)).trace != runs.run(runs.plan_of(2)).trace


_left = GroupState.left

A_FEW = range(1, 25)

BROKEN: dict[str, tuple[str, Iterable[int], Callable[[], Any]]] = {
    "frames of writers that lost a race count": (
        "containers",
        A_FEW,
        lambda: mock.patch.object(Frame, "follows", return_value=True),
    ),
    "a clone goes on as the writer that it was": (
        "containers",
        [652, 648, 1007],
        lambda: mock.patch.object(Log, "_change_writer", return_value=None),
    ),
    "producers do not store their numbers": (
        "streams",
        A_FEW,
        lambda: mock.patch("pravega_spark.client.writer.NumberedWrite", return_value=None),
    ),
    "conditions of table entries are not checked": (
        "tables",
        A_FEW,
        lambda: mock.patch(
            "pravega_spark.streams.key_value_table.checked_update",
            lambda *given: [(key, value, None) for key, value, _ in checked_update(*given)],
        ),
    ),
    "readers that leave do not record their positions": (
        "groups",
        A_FEW,
        lambda: mock.patch.object(GroupState, "left", lambda state, name, *_: _left(state, name)),
    ),
    "retention does not wait for subscribers": (
        "groups",
        A_FEW,
        lambda: mock.patch("pravega_spark.streams.maintenance.retention.positions", return_value={}),
    ),
    "batches are not numbered": (
        "jobs",
        A_FEW,
        lambda: mock.patch.object(ProducerUpdate, "advance", return_value=[]),
    ),
    "interrupts are not deferred": (
        "jobs",
        A_FEW,
        lambda: mock.patch.object(World, "uninterrupted", lambda _, work: work()),
    ),
}
"""Ways to break the product, the scenario and the seeds that find each."""


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_promise_is_found(broken: str) -> None:
    scenario, seeds, breaking = BROKEN[broken]
    plans = [runs.plan_of(seed, scenario) for seed in seeds]
    with breaking():
        failed = next((found for plan in plans if (found := runs.run(plan)).error is not None), None)
        assert failed is not None
        smallest, steps = runs.shrink(failed, tries=12)
    assert steps
    assert len(smallest.trace) < len(failed.trace)
    assert type(smallest.error) is type(failed.error)
    assert runs.run(failed.plan).error is None
