"""Histories of seeds, and the smallest one that still fails."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.simulation import actors, groups, jobs, streams, tables
from tests.simulation.history import History
from tests.simulation.network import Faults
from tests.simulation.plan import Plan


class Scenario(NamedTuple):
    """What is used: prepare makes what there is before the actors, and the actors. kinds: how likely each is. patch:
    what is other than usual."""

    prepare: Callable[[History], None]
    kinds: Mapping[str, int]
    patch: Callable[[History, contextlib.ExitStack], None] | None


def _scenario(module: Any) -> Scenario:
    kinds = {name: weight for name, (_, weight) in module.KINDS.items()}
    return Scenario(module.prepare, kinds, getattr(module, "patches", None))


SCENARIOS = {
    "containers": _scenario(actors),
    "streams": _scenario(streams),
    "tables": _scenario(tables),
    "groups": _scenario(groups),
    "jobs": _scenario(jobs),
}


@dataclass(frozen=True)
class Run:
    """A history that ran. error: None if all was well."""

    plan: Plan
    error: BaseException | None
    operations: int
    trace: tuple[tuple[float, str, str], ...]

    @property
    def problem(self) -> str:
        """Its error in words."""
        return f"{type(self.error).__name__}: {self.error}"


def plan_of(seed: int, scenario: str | None = None) -> Plan:
    """The history of a seed. scenario: None for the one of the seed."""
    names = list(SCENARIOS)
    chosen = scenario or names[seed % len(names)]
    return Plan.of(seed, chosen, SCENARIOS[chosen].kinds)


@functools.cache
def _warm_up() -> None:
    """What is imported or made at its first use is there already, so that it is no part of a history: each actor works
    once."""
    for name, scenario in SCENARIOS.items():
        with contextlib.suppress(Exception):
            everybody = tuple((kind, 0, number) for number, kind in enumerate(scenario.kinds))
            plan = replace(Plan.of(0, name, scenario.kinds), actors=everybody, faults=Faults(), incidents=())
            History(plan).run(scenario.prepare, scenario.patch)


def run(plan: Plan) -> Run:
    """Run a history, and check it."""
    _warm_up()
    history = History(plan)
    error: BaseException | None = None
    try:
        scenario = SCENARIOS[plan.scenario]
        history.run(scenario.prepare, scenario.patch)
    except Exception as failed:
        error = failed
    return Run(plan, error, history.operations, tuple(history.trace))


def shrink(failed: Run, tries: int = 200) -> tuple[Run, list[str]]:
    """The smallest history found that fails in the same way, and what was left out."""
    steps: list[str] = []
    while True:
        for what, smaller in failed.plan.smaller():
            tries -= 1
            if tries < 0:
                return failed, steps
            found = run(smaller)
            if found.error is not None and type(found.error) is type(failed.error):
                failed = found
                steps.append(what)
                break
        else:
            return failed, steps
