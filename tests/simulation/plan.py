"""What a history consists of: hosts, actors, faults and settings, drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.network import Faults

GRACE = 20.0
"""The grace period, seconds: so short that stops and pauses are long."""


CLONED = frozenset({"containers", "streams", "tables"})
"""The scenarios with clones and forks."""


@dataclass(frozen=True)
class Incident:
    """What happens to a host at a time. kind: "stop" for so many seconds, "step" of its time of day by so many,
    "outage" of its network, "kill": another process takes its place, "clone": its process goes on twice, once so many
    seconds later, "fork": its process gets a child."""

    kind: str
    when: float
    host: int
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} host {self.host} at {self.when:.1f} for {self.seconds:.1f}"


@dataclass(frozen=True)
class Plan:
    """A history. actors: kind, host, and a number of its own. operations: of each actor.

    pause: seconds between two operations of an actor, about. faulty: seconds with faults of the storage. small: frames,
    blocks and chunks are so small that a few bytes span several. appends: objects can be appended to, as files; a
    storage that repeats requests of itself has no such objects. mailboxes: all processes are on one machine, and hand
    each other messages without the storage.
    """

    seed: int
    scenario: str
    hosts: int
    actors: tuple[tuple[str, int, int], ...]
    operations: int
    pause: float
    median: float
    delay: float
    faults: Faults
    faulty: float
    incidents: tuple[Incident, ...]
    ahead: tuple[float, ...]
    switches: float
    small: bool
    appends: bool
    segments: int
    settings: dict[str, Any] = field(default_factory=dict)
    mailboxes: bool = False

    @classmethod
    def of(cls, seed: int, scenario: str, kinds: Mapping[str, int]) -> Plan:
        """The history of a seed. kinds: of the scenario's actors, and how likely each is."""
        draw = random.Random(f"{seed}/plan")
        hosts = draw.choice((1, 2, 2, 3, 3, 4))
        chosen = draw.choices(list(kinds), list(kinds.values()), k=draw.randint(2, 8))
        actors = tuple((name, draw.randrange(hosts), place) for place, name in enumerate(chosen))
        operations, pause = draw.randint(2, 10), draw.choice((0.01, 0.1, 0.5, 2.0, 5.0))
        span = operations * pause * 2 + 1
        shares = {name: draw.choice((0, 0, 0, 0.02, 0.1, 0.3)) for name in Faults().__dict__}
        faults = Faults(**shares) if draw.random() < 0.7 else Faults()
        incidents = []
        for _ in range(draw.choice((0, 0, 1, 1, 2, 3, 4))):
            kind = draw.choice(("stop", "stop", "step", "kill", "kill", "outage", "outage", "outage"))
            seconds = draw.choice((GRACE / 10, GRACE / 2, GRACE * 1.5, GRACE * 10))
            if kind == "outage":
                seconds = draw.choice((0.1, 1.0, 2.5, 5.0))
            if kind == "step":
                seconds *= draw.choice((1, -1))
            incidents.append(Incident(kind, draw.uniform(0, span), draw.randrange(hosts), seconds))
        settings = {
            "maintenance": draw.random() < 0.6,
            "checkpoint_frames": draw.choice((1, 3, 8)),
            "flush_frames": draw.choice((3, 20, 1000)),
            "flush_seconds": draw.choice((5.0, 300.0)),
            "cache_bytes": draw.choice((0, 1 << 16)),
            "flights": draw.choice((1, 2, 4)),
            "linger": draw.choice((0.0, 0.005, 0.05)),
        }
        plan = cls(
            seed=seed,
            scenario=scenario,
            hosts=hosts,
            actors=actors,
            operations=operations,
            pause=pause,
            median=draw.choice((0.001, 0.01, 0.05)),
            delay=draw.choice((0.1, 1.0, GRACE)),
            faults=faults,
            faulty=draw.uniform(0.2, 1.0) * span,
            incidents=tuple(incidents),
            ahead=tuple(draw.choice((0.0, 0.0, 1.0, -1.0, 3.0, 100.0)) for _ in range(hosts)),
            switches=draw.choice((0.0, 0.0, 0.02)),
            small=draw.random() < 0.5,
            appends=draw.random() < 0.5 and not faults.doubled,
            segments=draw.choice((1, 1, 2, 3)),
            settings=settings,
            mailboxes=draw.random() < 0.4,
        )
        return plan.with_copies(draw, span) if scenario in CLONED and draw.random() < 0.3 else plan

    def with_copies(self, draw: random.Random, span: float) -> Plan:
        """The same plan with clones and forks, and without mailboxes: those of clones would be on one machine."""
        copies = []
        for _ in range(draw.choice((1, 1, 2))):
            seconds = draw.choice((0.0, 0.0, GRACE / 10, GRACE * 1.5, GRACE * 10))
            kind = draw.choice(("clone", "fork"))
            copies.append(Incident(kind, draw.uniform(0, span / 2), draw.choice(self.actors)[1], seconds))
        return replace(self, incidents=(*self.incidents, *copies), mailboxes=False)

    def smaller(self) -> list[tuple[str, Plan]]:
        """Histories with less in them, and what was left out: the largest steps first."""
        found = [
            (f"without actor {place}", replace(self, actors=(*self.actors[:place], *self.actors[place + 1 :])))
            for place in range(len(self.actors))
        ]
        found += [(f"without {name}", replace(self, faults=self.faults.without(name))) for name in self.faults.met]
        found += [
            (f"without: {each}", replace(self, incidents=tuple(other for other in self.incidents if other != each)))
            for each in self.incidents
        ]
        if self.operations > 1:
            found += [
                (f"{number} operations", replace(self, operations=number))
                for number in sorted({self.operations // 2, self.operations - 1})
            ]
        if any(self.ahead):
            found.append(("right clocks", replace(self, ahead=(0.0,) * self.hosts)))
        if self.switches:
            found.append(("without switches at locks", replace(self, switches=0.0)))
        if self.mailboxes:
            found.append(("without mailboxes", replace(self, mailboxes=False)))
        if self.small:
            found.append(("usual sizes", replace(self, small=False)))
        if self.settings["maintenance"]:
            found.append(("without maintenance", replace(self, settings={**self.settings, "maintenance": False})))
        return found
