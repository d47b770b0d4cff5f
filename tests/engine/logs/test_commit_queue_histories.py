"""What callers of several processes hear is linearizable while they commit together (W18): simulated, and on a folder.

Each of the processes carries transactions of others at some time, and is carried at another. Linearizability is a
matter of each object by itself: two segments, an attribute that is compared and set, and whether a third segment is
there each have a history of their own, and a transaction on both segments is in both.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from chunkstore import StorageError, open_store
from chunkstore.testing import SimulatedExecutor
from engine.containers.container import Container
from engine.errors import BadAttributeUpdate, OutcomeUnknown, Rejected, SegmentExists, SegmentNotFound
from engine.logs.transaction import Receipt
from engine.settings import Settings
from engine.state import operations as ops
from engine.state.operations import AttributeUpdate, Payload, UpdateAttributes, UpdateKind
from engine.storage.object_reads import Stores
from tests.engine.logs.company import Company, S, carried, processor_of
from tests.engine.logs.test_log_simulated import FAULTS
from tests.support import linearizability as lin
from tests.support.linearizability import Event, Invocation, Ok, Recorder, Refused, Response, Unknown, check
from tests.support.simulation import Simulation, audit

T, GONE = "s/b", "s/c"
COUNTER = bytes(15) + b"n"

KINDS = {"append": 8, "there": 4, "both": 5, "set": 3, "come": 1, "go": 1, "cut": 1, "seal": 1}
"""Transactions, and how often each is begun."""

# --- a value that is compared and set, and a segment that comes and goes ----------------------------------------------


class Change(NamedTuple):
    """A call that takes a value to `after` if it is `before`, else is refused; `done` is None if nobody knows."""

    begin: int
    end: float
    before: int
    after: int
    done: bool | None


def explained(calls: Sequence[Change], first: int) -> bool:
    """Whether some order of the calls explains what was heard of a value that is `first` in the beginning."""
    seen: set[tuple[frozenset[int], int]] = set()
    ways = [(frozenset(range(len(calls))), first)]
    while ways:
        way = left, value = ways.pop()
        if all(calls[number].done is None for number in left):
            return True
        if way in seen:
            continue
        seen.add(way)
        deadline = min(calls[number].end for number in left)
        for number in left:
            call = calls[number]
            right = call.before == value
            if call.begin <= deadline and call.done in (right, None):
                ways.append((left - {number}, call.after if right else value))
    return False


def test_what_nothing_explains_is_found() -> None:
    assert explained([Change(0, 1, 0, 1, True), Change(2, 3, 1, 0, True), Change(4, 5, 1, 0, False)], 0)
    assert not explained([Change(0, 1, 0, 1, True), Change(2, 3, 0, 1, True)], 0)
    assert explained([Change(0, 1, 0, 1, True), Change(0, math.inf, 1, 0, None), Change(2, 3, 0, 1, True)], 0)
    assert not explained([Change(0, 1, 0, 1, False)], 0)


# --- simulated -------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A transaction under way: its part in each history, by the segment; or the change of a value."""

    process: str
    number: int
    begin: int
    parts: dict[str, lin.Operation]
    change: tuple[str, int, int] | None
    future: Future[Receipt]


class World:
    """Processes in company, on a storage that may be faulty, in an order drawn from a seed."""

    def __init__(self, seed: int, faults: dict[str, float], processes: int = 4) -> None:
        self.random = random.Random(seed)
        self.executor = SimulatedExecutor(seed)
        simulation = Simulation(seed, linger=0.0, timeout=2.0)
        self.company = Company(processes - 1, simulation=simulation, executor=self.executor)
        self.company.now(self.company.maker, ops.CreateSegment(T))
        for container in self.company.containers:
            container.refresh()
        self.faults = faults
        self.clock = itertools.count()
        self.numbers = itertools.count()
        self.histories: dict[str, list[Event]] = {S: [], T: []}
        self.changes: dict[str, list[Change]] = {"counter": [], "gone": []}
        self.names = [f"process {number}" for number in range(processes)]
        self.calls: list[Call] = []
        self.heard: Counter[str] = Counter()
        self.sealing = False

    def run(self, steps: int) -> None:
        """Make so many steps, and check what was heard."""
        self.rates(1.0)
        for number in range(steps):
            self.sealing = number > 0.8 * steps
            self.step()
            self.hear()
        self.rates(0.0)
        self.executor.drain()
        self.company.simulation.store.arrive()
        for _ in range(400):
            if not self.calls:
                break
            self.company.turn()
            self.executor.drain()
            self.company.simulation.advance(0.02)
            self.hear()
        assert not self.calls, "somebody was told nothing"
        self.check()

    def rates(self, times: float) -> None:
        for name, rate in self.faults.items():
            setattr(self.company.simulation.store, name, times * rate)

    def step(self) -> None:
        place = self.random.randrange(len(self.names))
        container, chance = self.company.containers[place], self.random.random()
        if chance < 0.15 and len(self.calls) < 8:
            self.begin(place)
        elif chance < 0.17:
            self.look(place)
        elif chance < 0.18:
            processor_of(container).submits = not processor_of(container).submits
        elif chance < 0.182:
            self.kill(place)
        elif chance < 0.3:
            self.company.simulation.advance(self.random.choice((0.001, 0.005, 0.02)))
        else:
            processor_of(container).log.meet()
            processor_of(container).step()

    def kill(self, place: int) -> None:
        """One dies, with what it has under way, and another one takes its place."""
        lost = [call for call in self.calls if call.process == self.names[place]]
        self.calls = [call for call in self.calls if call not in lost]
        for call in lost:
            self.end(call, None)
        self.executor.drain()
        self.rates(0.0)
        self.company.containers[place] = self.company.join(executor=self.executor)
        self.company.containers.pop().refresh()
        self.rates(1.0)
        self.names[place] += "'"
        self.heard["killed"] += 1

    def begin(self, place: int) -> None:
        """Begin some transaction."""
        container, draw = self.company.containers[place], self.random
        state, number = container.state, next(self.numbers)
        data = b"%04d;" % number
        known = state.segments[S].length
        parts: dict[str, lin.Operation] = {}
        change: tuple[str, int, int] | None = None
        match draw.choices(list(KINDS), list(KINDS.values()))[0]:
            case "append":
                parts[S] = lin.Append(data)
                operations: list[ops.Operation] = [ops.Append(S, Payload(data))]
            case "there":
                parts[S] = lin.Append(data, known)
                operations = [ops.Append(S, Payload(data), known)]
            case "both":
                parts[S] = parts[T] = lin.Append(data)
                operations = [ops.Append(S, Payload(data)), ops.Append(T, Payload(data))]
            case "set":
                value = container.known_attributes(T).get(COUNTER, 0)
                change = ("counter", value, value + 1)
                kind = UpdateKind.REPLACE_IF_EQUALS if value else UpdateKind.NONE
                operations = [UpdateAttributes(T, (AttributeUpdate(COUNTER, kind, value + 1, value),))]
            case "come":
                change = ("gone", 0, 1)
                operations = [ops.CreateSegment(GONE)]
            case "go":
                change = ("gone", 1, 0)
                operations = [ops.DeleteSegment(GONE)]
            case "cut":
                self.look(place)
                offset = draw.randint(0, known)
                parts[S] = lin.Truncate(offset)
                operations = [ops.TruncateSegment(S, offset)]
            case _ if self.sealing:
                parts[S] = lin.Seal()
                operations = [ops.SealSegment(S)]
            case _:
                return
        begin = next(self.clock)
        for segment, part in parts.items():
            self.histories[segment].append(Invocation(self.names[place], number, begin, part))
        future = container.submit(operations)
        self.calls.append(Call(self.names[place], number, begin, parts, change, future))

    def look(self, place: int) -> None:
        """Read all of a segment, of a state that is up to date."""
        container, number = self.company.containers[place], next(self.numbers)
        begin = next(self.clock)
        with suppress(StorageError):
            container.refresh()
            segment = container.state.segments[S]
            data = container.read(S, segment.start_offset, segment.length)
            read = lin.Read(segment.start_offset, segment.length)
            self.histories[S].append(Invocation(self.names[place], number, begin, read))
            self.histories[S].append(Response(self.names[place], number, next(self.clock), Ok(data)))

    def hear(self) -> None:
        """Note what callers were told."""
        ended = [call for call in self.calls if call.future.done()]
        self.calls = [call for call in self.calls if call not in ended]
        for call in ended:
            self.end(call, call.future)

    def end(self, call: Call, future: Future[Receipt] | None) -> None:
        """Note the end of a call; None: its process was killed."""
        now, error = next(self.clock), future.exception() if future is not None else OutcomeUnknown()
        results = future.result().results if future is not None and error is None else []
        unknown = isinstance(error, OutcomeUnknown)
        if not unknown and isinstance(error, StorageError):
            self.heard["not done"] += 1  # nothing refused it
            done: bool | None = None
            self.forget(call)
        else:
            done = None if unknown else error is None
            self.heard["unknown" if unknown else type(error).__name__] += 1
        if call.change is not None and not (error and not unknown and done is None):
            expected = (BadAttributeUpdate, SegmentExists, SegmentNotFound, OutcomeUnknown)
            assert error is None or isinstance(error, expected), error
            name, before, after = call.change
            self.changes[name].append(Change(call.begin, math.inf if unknown else now, before, after, done))
        for place, segment in enumerate(call.parts):
            if isinstance(error, StorageError) and not unknown:
                continue
            if isinstance(error, Rejected) and segment == T:
                self.forget(call, T)  # it was refused because of the other segment
                continue
            outcome: lin.Outcome = Unknown() if unknown else Ok(results[place]) if error is None else refusal(error)
            self.histories[segment].append(Response(call.process, call.number, now, outcome))

    def forget(self, call: Call, *segments: str) -> None:
        """It did nothing, and nothing is to explain that."""
        for segment in segments or call.parts:
            history = self.histories[segment]
            history[:] = [event for event in history if event[:2] != (call.process, call.number)]

    def check(self) -> None:
        with self.company.simulation.open() as fresh:
            audit(fresh.state)
            found = {}
            for segment, history in self.histories.items():
                with Recorder(fresh, segment, "last", clock=lambda: next(self.clock)) as recorder:
                    info = recorder.info()
                    found[segment] = recorder.read(info.start, info.length)
                    check([*history, *recorder.events])
            last = next(self.clock)
            value = fresh.attributes(T, [COUNTER]).get(COUNTER, 0)
            there = int(GONE in fresh.state.segments)
            for name, now in (("counter", value), ("gone", there)):
                calls = [*self.changes[name], Change(last, last + 1, now, now, True)]
                assert explained(calls, 0), (name, calls)
            for container in self.company.containers:
                assert container.refresh() == fresh.state
            self.check_both(found[S], info_start(fresh), found[T])

    def check_both(self, one: bytes, start: int, other: bytes) -> None:
        """What is in both segments is in both or in none."""
        both = {
            event.operation.data
            for event in self.histories[T]
            if isinstance(event, Invocation) and isinstance(event.operation, lin.Append)
        }
        in_one = {one[at - start : at - start + 5] for at in range(-(-start // 5) * 5, start + len(one), 5)}
        in_other = {other[at : at + 5] for at in range(0, len(other), 5)}
        assert in_other <= both and both & in_one <= in_other
        if not start:
            assert both & in_one == in_other


def info_start(container: Container) -> int:
    return container.state.segments[S].start_offset


def refusal(error: BaseException | None) -> Refused:
    assert isinstance(error, Rejected), repr(error)
    value = getattr(error, "expected", None)
    return Refused(type(error).__name__, value if isinstance(value, int) else None)


def run(seeds: range, steps: int, faults: dict[str, float]) -> tuple[int, int, Counter[str]]:
    """How many transactions were carried, how many epochs there were, and what was heard."""
    together, epochs, heard = 0, 0, Counter[str]()
    for seed in seeds:
        world = World(seed, faults)
        try:
            world.run(steps)
        except BaseException as error:
            error.args = (f"seed {seed}: {error}",)
            raise
        together += carried(world.company.simulation.store)
        epochs += world.company.maker.log.head.epoch
        heard += world.heard
    print(f"{together} carried, {epochs} epochs, {dict(heard)}")
    return together, epochs, heard


@pytest.mark.parametrize("faults", FAULTS)
def test_histories_of_processes_in_company_are_linearizable(faults: str) -> None:
    together, epochs, heard = run(range(12), 400, FAULTS[faults])
    assert together > 60 and epochs > 24 and heard["killed"]
    assert {"BadOffset", "SegmentSealed", "SegmentExists", "SegmentNotFound", "BadAttributeUpdate"} <= {*heard}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("faults", FAULTS)
def test_histories_of_many_schedules_are_linearizable(faults: str) -> None:
    run(range(1000, 1400), 500, FAULTS[faults])


# --- on a folder -----------------------------------------------------------------------------------------------------


def share(
    url: str, name: str, seed: int, clock: Callable[[], int], calls: int, begin: threading.Barrier
) -> list[Event]:
    """One of several processes, as it were: append, look, truncate, and in the end seal the segment."""
    store, chance = open_store(url), random.Random(seed)
    settings = Settings(maintenance=False)
    with (
        Container(Stores(store, store), 0, settings) as container,
        Recorder(container, S, name, clock=clock) as recorder,
    ):
        begin.wait()
        for number in range(calls):
            with suppress(Rejected):
                payload = f"{name}{number}.".encode()
                match chance.randrange(12):
                    case 0:
                        recorder.read(container.state.segments[S].start_offset, container.state.segments[S].length)
                        recorder.truncate(chance.randint(0, recorder.info().length + 1))
                    case 1 | 2:
                        recorder.append(payload, container.state.segments[S].length)
                    case 3:
                        recorder.info()
                    case _:
                        recorder.append(payload)
        begin.wait()
        recorder.seal()
        with pytest.raises(Rejected):
            recorder.append(b"too late")
        return recorder.events


@pytest.mark.parametrize(("seed", "calls"), [(1, 120), *(pytest.param(n, 400, marks=pytest.mark.long) for n in (2, 3))])
def test_histories_of_threads_on_a_folder_are_linearizable(seed: int, calls: int, tmp_path: Path) -> None:
    """Each with a container of its own, so that they know each other by the folder only."""
    url, writers = str(tmp_path), 4
    store = open_store(url)
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as container:
        container.create_segment(S)
    numbers, begin = itertools.count(), threading.Barrier(writers, timeout=60)
    with ThreadPoolExecutor(writers) as threads:
        futures = [
            threads.submit(share, url, f"{n}-", seed + 10 * n, lambda: next(numbers), calls, begin)
            for n in range(writers)
        ]
        history = [event for future in futures for event in future.result()]
    check(history)
    together = carried(store)
    print(f"{together} carried")
    assert together > calls / 4
    outcomes = [event.outcome for event in history if isinstance(event, Response)]
    assert {outcome.error for outcome in outcomes if isinstance(outcome, Refused)} >= {"BadOffset", "SegmentSealed"}
