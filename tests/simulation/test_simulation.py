"""Histories of a few seeds, that a seed decides all of its history, and that broken promises are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from engine.logs.frames import Frame
from engine.logs.log import Log
from tests.simulation import runs
from tests.simulation.runs import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", range(1, 7))
def test_histories_keep_what_was_promised(seed: int, scenario: str) -> None:
    found = runs.run(runs.plan_of(seed, scenario))
    assert found.error is None
    assert found.operations


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_decides_all_of_its_history(scenario: str) -> None:
    for seed in (3, 9, 11):
        plan = runs.plan_of(seed, scenario)
        first, second = runs.run(plan), runs.run(plan)
        assert first.trace == second.trace
        assert len(first.trace) > 50


def test_seeds_differ() -> None:
    assert runs.run(runs.plan_of(1)).trace != runs.run(runs.plan_of(2)).trace
