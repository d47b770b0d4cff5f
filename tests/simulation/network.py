"""A host's way to the storage: each request takes its time, and may fail, arrive late or arrive twice."""

from __future__ import annotations

import builtins
import contextvars
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkstore import Range, StorageError, stamps
from chunkstore.errors import PutUnknown, StorageUnavailable
from chunkstore.port import Outcome, Parts, joined
from chunkstore.testing import SimulatedStore
from chunkstore.wrapping import Request, Result, WrappingStore
from tests.simulation.world import EPOCH, Ended, Host, World

_REPEATABLE = frozenset({"put", "put_if_absent", "delete"})
"""Verbs whose requests may arrive late or twice: the network's own retries repeat them."""


@dataclass(frozen=True)
class Faults:
    """The share of requests that meet each fault.

    lost: it never arrives. unanswered: it takes effect, and the response is lost. late: the sender gets an error, and
    it takes effect seconds later. doubled: it is answered, and takes effect once more later. refused: put_if_absent
    gets "try later" until its retries are used up.
    """

    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    refused: float = 0.0

    def without(self, name: str) -> Faults:
        """All others."""
        return replace(self, **{name: 0.0})

    @property
    def met(self) -> Mapping[str, float]:
        """Those that there are."""
        return {name: share for name, share in vars(self).items() if share}


class HostStore(WrappingStore):
    """What one host has of the storage.

    median: seconds of a request; spread: of its logarithm. patience: seconds until the sender takes a request for
    failed. delay: seconds by which late requests are late, about. faulty: whether there are faults now. outage: until
    then no request is answered.
    """

    def __init__(
        self, inner: SimulatedStore, host: Host, chance: random.Random, faults: Faults, median: float, delay: float
    ) -> None:
        super().__init__(inner)
        self.remote = True
        self.faulty = True
        self.outage = 0.0
        self._objects = inner
        self._host = host
        self._world: World = host.world
        self._chance = chance
        self._faults = faults
        self._median = median
        self._delay = delay

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        world, sent = self._world, self._world.now
        found: builtins.list[bytes | None] = [None] * len(ranges)
        problem = self._fault("read_ranges")
        ends = []
        for place, where in enumerate(ranges):
            effect, end = self._times(sent)
            ends.append(end)

            def read(place: int = place, where: Range = where) -> None:
                found[place] = self._objects.read_ranges([where])[0]

            world.at(effect, self._isolated(read, []))
        world.note(self._host.name, f"read_ranges {ranges[0].path} and {len(ranges) - 1}: {problem or 'ok'}")
        self._wait(max(ends, default=sent))
        if problem is not None:
            raise StorageUnavailable(f"{self.root}: {problem}: try again")
        stamps.note(EPOCH + max(ends, default=sent))
        return found

    def put(self, path: str, data: Parts) -> None:
        super().put(path, bytes(joined(data)))  # what is on its way does not change with its sender's memory

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        return super().put_if_absent(path, bytes(joined(data)))

    def delete(self, paths: Sequence[str]) -> None:
        if paths:  # none is no request
            super().delete(tuple(paths))

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        world, host = self._world, self._host
        problem = self._fault(request.verb)
        effect, end = self._times(world.now)
        outcomes: list[tuple[Any, StorageError | None]] = []
        attempt = self._isolated(call, outcomes)
        if problem == "late":
            world.at(end + self._delay * self._chance.expovariate(1.0), attempt)
        elif problem not in ("lost", "refused"):
            world.at(effect, attempt)
        if problem == "doubled":
            world.at(end + self._delay * self._chance.expovariate(1.0), self._isolated(call, []))
        world.note(host.name, f"{request.verb} {request.paths[0]}: {problem or 'ok'}")
        self._wait(end)
        if problem not in (None, "doubled"):
            message = f"{self.root}: the request {request.verb} is {problem}: try again"
            raise PutUnknown(message) if request.verb == "put_if_absent" else StorageUnavailable(message)
        result, error = outcomes[0]
        stamps.note(EPOCH + effect)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _isolated(self, call: Callable[[], Any], outcomes: list[tuple[Any, StorageError | None]]) -> Callable[[], None]:
        """What the storage does, at its time."""

        def attempt() -> None:
            self._objects.now = EPOCH + self._world.now
            try:
                outcomes.append((contextvars.Context().run(call), None))
            except StorageError as error:
                outcomes.append((None, error))

        return attempt

    def _fault(self, verb: str) -> str | None:
        """What becomes of a request."""
        if not self.faulty and self._world.now >= self.outage:
            return None
        drawn = self._chance.random()
        if self._world.now < self.outage:
            return "lost" if drawn < 0.7 else "unanswered"
        for name, share in self._faults.met.items():
            if drawn < share:
                if name in ("late", "doubled") and verb not in _REPEATABLE:
                    return "lost" if name == "late" else None
                if name == "refused" and verb != "put_if_absent":
                    return None
                return name
            drawn -= share
        return None

    def _times(self, sent: float) -> tuple[float, float]:
        """When a request takes effect, and when it is answered."""
        took = self._median * math.exp(self._chance.gauss(0.0, 0.7))
        return sent + took * self._chance.random(), sent + took

    def _wait(self, until: float) -> None:
        world = self._world
        if world.current is None:
            raise Ended  # what is left of a history that is over
        world.sleep(until - world.now)
