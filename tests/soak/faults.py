"""What happens to the processes and to the storage: drawn from a seed, begun and ended at its times.

The plan is the seed's, so it can be repeated; what the processes do meanwhile is not. A target has one fault at a time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.soak.place import ALL, Place
from tests.soak.supervisor import Process

CLOCKS = (30.0, -30.0, 3600.0, -3600.0, 30 * 86_400.0, -30 * 86_400.0)
"""Steps of a process's time of day, seconds."""

LEFT = (8 << 20, 1 << 20, 0)
"""Bytes that are left of a full disk."""


@dataclass
class Fault:
    """A fault: when it begins in the run, what, to which target, for how long, and its size. began, ended: as it was,
    seconds since the epoch."""

    at: float
    kind: str
    target: str
    seconds: float
    value: float = 0.0
    began: float = 0.0
    ended: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:7.1f} s  {self.kind:9} {self.target:12} {self.seconds:5.1f} s  {self.value:g}"

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)


def plan(
    seed: int,
    seconds: float,
    targets: Sequence[str],
    grace: float,
    kinds: Sequence[str],
    line_kinds: Sequence[str],
    every: float,
    lasting: Sequence[str] = (),
) -> list[Fault]:
    """The faults of a run. kinds: of the storage of all; line_kinds: of the network of one process; lasting: targets
    that are not killed."""
    chance = random.Random(seed)
    weighted = ["kill"] * 5 + ["stop"] * 2 + ["pause"] * 2 + ["clock"] * 2 + ["storage"] * 2 * bool(kinds)
    weighted += list(line_kinds) * 2
    faults: list[Fault] = []
    free = dict.fromkeys([*targets, ALL], 0.0)
    at = every
    while (at := at + chance.expovariate(1 / every)) < seconds:
        kind, value = chance.choice(weighted), 0.0
        target = ALL if kind == "storage" else chance.choice(list(targets))
        lasts = {
            "kill": chance.choice([0.5, 2.0, 10.0]),
            "stop": grace * chance.uniform(1.1, 2.0),
            "pause": chance.uniform(0.5, grace / 2),
            "clock": chance.uniform(10, 60),
            "storage": chance.uniform(3, 20),
            "reset": chance.uniform(2, 30),
            "silence": chance.uniform(2, 1.5 * grace),
        }[kind]
        if kind == "clock":
            value = chance.choice(CLOCKS)
        if kind == "storage":
            kind, value = chance.choice(list(kinds)), chance.choice(LEFT)
        if kind == "kill" and target in lasting:
            continue
        if free[target] <= at and at + lasts < seconds:
            free[target] = at + lasts + 2
            faults.append(Fault(round(at, 1), kind, target, round(lasts, 1), value))
    return faults


def begin(fault: Fault, processes: dict[str, Process], place: Place) -> None:
    """Let a fault happen."""
    if fault.kind == "kill":
        processes[fault.target].kill()
    elif fault.kind in ("stop", "pause"):
        processes[fault.target].stop()
    elif fault.kind == "clock":
        processes[fault.target].tell(f"clock {fault.value}")
    else:
        place.begin(fault.kind, fault.target, fault.value)


def end(fault: Fault, processes: dict[str, Process], place: Place) -> None:
    """Let it be over."""
    if fault.kind == "kill":
        processes[fault.target].start()
    elif fault.kind in ("stop", "pause"):
        processes[fault.target].resume()
    elif fault.kind == "clock":
        processes[fault.target].tell("clock 0")
    else:
        place.end(fault.kind, fault.target)
