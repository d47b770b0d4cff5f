"""Explores all orders of the steps of a few processes, within bounds.

A state is the storage, the chain of live frames, where each process is in its script, what is on its way, the time, and
how many misfortunes are left. Equal states are explored once. All states are kept, so none is taken for another one.
The states are explored by their distance from the first one: the first violation that is found has a shortest schedule.

Steps: a request, or a part of it, takes effect, and its sender continues at once; or it takes effect, and its sender
continues only when time has passed (it was stopped); or its sender is told that it failed, and it takes effect never,
or at any later moment; or it takes effect, and once more at any later moment; a process is killed; time passes, for all
clocks, or for all but those of one host that is stopped.

Reduction. Where a process has one request under way, whose answer is the same at any moment from now on, its steps are
explored and no other process's. That is so for an object of the log that is there and that nothing may delete any more:
it is never changed. All schedules from such a state contain a step of this process (or leave it out at the end, which
adds nothing that could be wrong), and the steps before it neither change its effect nor depend on it, so there is an
equal schedule that begins with it. Misfortunes are counted for a whole schedule, so they may be exchanged too. It holds
only while no time can pass any more, since a process hears the time with each answer. No schedule is endless, as each
step uses up something, so no process's step is put off for ever. That nothing above the truncation point is deleted is
not assumed: a deletion there is a violation.
"""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from engine.logs.log import address_of
from tests.exhaustive import truth
from tests.exhaustive.actors import BARRIER, GRACE, MARK, Script
from tests.exhaustive.checks import Checks, Said, Violation
from tests.exhaustive.process import MAIN, Heard, History, Position, determined, run
from tests.exhaustive.storage import UNIT, WRITES, Answer, Request, Storage, effect, joined, parts_of
from tests.exhaustive.truth import CHECKPOINTS, FRAMES, Chain

Value = TypeVar("Value", bound=Hashable)

UNAVAILABLE = Answer(None, "unavailable")


class Numbers(Generic[Value]):
    """Gives equal values one number, so that states are compared by numbers."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def __getitem__(self, number: int) -> Value:
        return self._values[number]

    def of(self, value: Value) -> int:
        """The number of a value."""
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number


class Left(NamedTuple):
    """Misfortunes that a history may meet.

    lost: requests that fail, and never take effect. late: that fail, and take effect at any later moment, or never.
    doubled: that take effect once more. killed: processes. passing: how often time passes. switches: how often a
    process is interrupted by a step of another one, apart from steps that are explored alone; -1: any number of times.
    """

    lost: int = 0
    late: int = 0
    doubled: int = 0
    killed: int = 0
    passing: int = 0
    switches: int = -1


@dataclass(frozen=True)
class Configuration:
    """What is explored.

    processes: their scripts. before: what happens before the exploration begins, in this order: the process of that
    name runs until it waits, or so many units of time pass. left: bounds. spans: the units of time that may pass at
    once. frozen: the processes whose host may be stopped with all of its clocks. split_reads: reads of several objects
    see each of them at another moment. quick: whether it belongs to the tests. reduced: whether orders are left out
    that change nothing.
    """

    name: str
    about: str
    processes: Mapping[str, Script]
    before: Sequence[str | int] = ()
    left: Left = field(default=Left())
    spans: Sequence[int] = (1, 4)
    frozen: Sequence[str] = ()
    split_reads: bool = False
    quick: bool = True
    reduced: bool = True


class Wait(NamedTuple):
    """A request that a process waits for, and the parts of it, each with its number."""

    slot: int
    request: Request
    parts: tuple[int, ...]


class Node:
    """A process after a history. said: what became of its records so far: acknowledged, unknown, refused. children: by
    slot and answer, and by the time when it is heard."""

    __slots__ = ("children", "history", "position", "process", "said", "waits")

    def __init__(self, process: int, history: History, position: Position, said: Said, waits: Sequence[Wait]) -> None:
        self.process = process
        self.history = history
        self.position = position
        self.said = said
        self.waits = tuple(waits)
        self.children: dict[tuple[int, int, int], int] = {}


class Pending(NamedTuple):
    """A request of a process of which something has happened. answers: the numbers of those to its parts, -1 for those
    that are on their way. since: when its last part took effect, if its sender was stopped then; -1 if not."""

    slot: int
    answers: tuple[int, ...]
    since: int = -1


class State(NamedTuple):
    """A state. storage, chain: their numbers. nodes: where the processes are. lags: units of time for which each one's
    host was stopped. network: requests that are on their way, whose senders were told that they failed. last: the
    process that made the last step, if switches are counted."""

    storage: int
    chain: int
    time: int
    nodes: tuple[int, ...]
    pending: tuple[tuple[Pending, ...], ...]
    lags: tuple[int, ...]
    network: tuple[int, ...]
    left: Left
    last: int = -1


Step = tuple[str, State]


@dataclass
class Found:
    """What an exploration found. paths: how many different schedules there are, after the reduction. ends: states in
    which all processes have ended. local: how often the product's code was carried out. trace: the shortest schedule to
    a violation, problem: which."""

    name: str
    states: int = 0
    transitions: int = 0
    paths: int = 0
    ends: int = 0
    local: int = 0
    complete: bool = False
    seconds: float = 0.0
    problem: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        done = "complete" if self.complete else ("VIOLATION" if self.problem else "not complete")
        return (
            f"{self.name}: {self.states:,} states, {self.transitions:,} transitions, {self.paths:,} histories, "
            f"{self.ends:,} ends, {self.local:,} runs of a process, {self.seconds:.1f} s: {done}"
        )


class Explorer:
    """Explores one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._names = list(configuration.processes)
        self._scripts = list(configuration.processes.values())
        self._frozen = [self._names.index(name) for name in configuration.frozen]
        self._nodes: list[Node] = []
        self._storages: Numbers[Storage] = Numbers()
        self._chains: Numbers[Chain] = Numbers()
        self._requests: Numbers[Request] = Numbers()
        self._answers: Numbers[Answer] = Numbers()
        self._effects: dict[tuple[int, int, int, int], tuple[int, int, int]] = {}
        self._bounds: dict[tuple[int, int], tuple[int, frozenset[str]]] = {}
        self.checks = Checks(self._names)

    # --- exploring -------------------------------------------------------------------------------------------------

    def explore(self, most: int = 1 << 62, note: Callable[[str], None] = lambda line: None) -> Found:
        """Explore at most so many states."""
        with determined():
            return self._explore(most, note)

    def _explore(self, most: int, note: Callable[[str], None]) -> Found:
        found, begun = Found(self._configuration.name), clocks.perf_counter()
        state = None
        came: dict[State, tuple[State, str] | None] = {}
        try:
            first = state = self._first()
            came[first] = None
            layer: dict[State, int] = {first: 1}
            while layer and found.states < most:
                following: dict[State, int] = {}
                for state, paths in layer.items():
                    found.states += 1
                    steps = 0
                    for label, after in self._steps(state):
                        steps += 1
                        if after in following:
                            following[after] += paths
                        elif after not in came:
                            came[after] = (state, label)
                            following[after] = paths
                    found.transitions += steps
                    if all(self._nodes[node].position.ended for node in state.nodes):
                        found.ends += 1
                        self.checks.end(self._storages[state.storage], self._chains[state.chain], state.time)
                    if not steps:
                        found.paths += paths
                layer = following
                note(f"{found.states:,} states, {len(layer):,} in the next layer, {len(self._nodes):,} runs")
            found.complete = not layer
        except Violation as violation:
            found.problem = str(violation)
            found.trace = self._trace(came, state, violation.label)
        found.local = len(self._nodes)
        found.seconds = clocks.perf_counter() - begun
        return found

    @staticmethod
    def _trace(came: Mapping[State, tuple[State, str] | None], state: State | None, last: str) -> tuple[str, ...]:
        trace = [last] if last else []
        while state is not None and (step := came.get(state)) is not None:
            state, label = step
            trace.append(label)
        return tuple(reversed(trace))

    def _first(self) -> State:
        """The state in which the exploration begins."""
        nodes = tuple(self._node(process, (), ()) for process in range(len(self._names)))
        nothing: tuple[tuple[Pending, ...], ...] = ((),) * len(nodes)
        start = self._storages.of(()), self._chains.of(())
        state = State(*start, 0, nodes, nothing, (0,) * len(nodes), (), self._configuration.left)
        for each in self._configuration.before:
            if isinstance(each, int):
                state = state._replace(time=state.time + each)
                continue
            process = self._names.index(each)
            if self._waits_at_barrier(state, process):
                state = self._heard(state, process, MAIN, Answer(), "")
            while not self._nodes[state.nodes[process]].position.ended and not self._waits_at_barrier(state, process):
                state = self._ordinary(state, process, self._nodes[state.nodes[process]].waits[0])
        return state

    def _waits_at_barrier(self, state: State, process: int) -> bool:
        waits = self._nodes[state.nodes[process]].waits
        return bool(waits) and waits[0].request.verb == BARRIER

    def _ordinary(self, state: State, process: int, wait: Wait) -> State:
        """Carry out a request, and continue."""
        if wait.request.verb == MARK:
            return self._heard(state, process, wait.slot, Answer(self._mark(state)), "")
        answers = []
        for part in wait.parts:
            state, answer = self._carried_out(state, part, "")
            answers.append(answer)
        return self._heard(state, process, wait.slot, self._joined(wait, answers), "")

    # --- steps -----------------------------------------------------------------------------------------------------

    def _steps(self, state: State) -> Iterator[Step]:
        alone = self._alone(state) if self._configuration.reduced and not state.left.passing else None
        if alone is not None:
            yield from self._steps_of(state, alone)
            return
        for process in range(len(self._names)):
            switched = self._switched(state, process)
            if switched is not None:
                yield from self._steps_of(switched, process)
        for place, request in enumerate(state.network):
            if place and state.network[place - 1] == request:
                continue
            label = f"{self._requests[request]} arrives late"
            after, _ = self._carried_out(state, request, label)
            yield label, after._replace(network=state.network[:place] + state.network[place + 1 :])
        if state.left.passing and not all(self._nodes[node].position.ended for node in state.nodes):
            yield from self._time_passes(state)

    def _switched(self, state: State, process: int) -> State | None:
        """The state in which a process goes on; None if another one may not be interrupted."""
        if state.left.switches < 0 or state.last == process:
            return state
        if state.last < 0 or self._nodes[state.nodes[state.last]].position.ended:
            return state._replace(last=process)
        if not state.left.switches:
            return None
        return state._replace(last=process, left=state.left._replace(switches=state.left.switches - 1))

    def _time_passes(self, state: State) -> Iterator[Step]:
        left = state.left._replace(passing=state.left.passing - 1)
        for span in self._configuration.spans:
            after = state._replace(time=state.time + span, left=left)
            yield f"{span} units of time pass", after
            for process in self._frozen:
                if not self._nodes[state.nodes[process]].position.ended:
                    lags = tuple(lag + span * (each == process) for each, lag in enumerate(state.lags))
                    label = f"{span} units of time pass, and {self._names[process]} is stopped with its clocks"
                    yield label, after._replace(lags=lags)

    def _steps_of(self, state: State, process: int) -> Iterator[Step]:
        node = self._nodes[state.nodes[process]]
        if node.position.ended:
            return
        pending = {each.slot: each for each in state.pending[process]}
        for wait in node.waits:
            yield from self._steps_with(state, process, wait, pending.get(wait.slot))
        if state.left.killed:
            label = f"{self._names[process]} is killed"
            writes = [wait for wait in node.waits if wait.request.verb in WRITES]
            under_way = [part for wait in writes for part in self._left_of(wait, pending.get(wait.slot))]
            left = state.left._replace(killed=state.left.killed - 1)
            after = self._on_their_way(state, under_way)._replace(left=left)
            yield label, self._heard(after, process, -1, Answer(), label)

    def _steps_with(self, state: State, process: int, wait: Wait, pending: Pending | None) -> Iterator[Step]:
        """What may become of a request."""
        name, left, request, slot = self._names[process], state.left, wait.request, wait.slot
        if request.verb in (BARRIER, MARK):
            label = f"{name}: {'begins' if request.verb == BARRIER else 'looks at what is acknowledged'}"
            answer = Answer(self._mark(state) if request.verb == MARK else None)
            yield label, self._heard(state, process, slot, answer, label)
            return
        if pending is not None and pending.since >= 0:
            if state.time > pending.since:
                label = f"{name}: continues after {request}"
                yield label, self._heard(state, process, slot, self._joined(wait, pending.answers), label)
            return
        answers = pending.answers if pending is not None else (-1,) * len(wait.parts)
        for place, part in enumerate(wait.parts):
            if answers[place] < 0:
                label = f"{name}: {self._requests[part]}"
                after, heard = self._carried_out(state, part, label)
                had = (*answers[:place], heard, *answers[place + 1 :])
                if -1 in had:
                    yield label, self._noted(after, process, Pending(slot, had))
                    continue
                whole = self._joined(wait, had)
                yield label, self._heard(after, process, slot, whole, label)
                if left.passing:
                    yield f"{label}, and is stopped", self._noted(after, process, Pending(slot, had, state.time))
                if left.doubled and request.verb in WRITES:
                    twice = self._on_their_way(after._replace(left=left._replace(doubled=left.doubled - 1)), (part,))
                    label = f"{label}, which will arrive again"
                    yield label, self._heard(twice, process, slot, whole, label)
        if left.lost and (request.verb not in WRITES or not left.late):
            label = f"{name}: {request} is lost"
            fewer = state._replace(left=left._replace(lost=left.lost - 1))
            yield label, self._heard(fewer, process, slot, UNAVAILABLE, label)
        if left.late and request.verb in WRITES:
            label = f"{name}: {request} has no answer"
            fewer = state._replace(left=left._replace(late=left.late - 1))
            late = self._on_their_way(fewer, self._left_of(wait, pending))
            yield label, self._heard(late, process, slot, UNAVAILABLE, label)

    @staticmethod
    def _left_of(wait: Wait, pending: Pending | None) -> tuple[int, ...]:
        """The parts of a request that have not taken effect."""
        if pending is None:
            return wait.parts
        return tuple(part for part, answer in zip(wait.parts, pending.answers, strict=True) if answer < 0)

    def _joined(self, wait: Wait, answers: Sequence[int]) -> Answer:
        return joined(wait.request, tuple(self._answers[each] for each in answers))

    # --- their effects ---------------------------------------------------------------------------------------------

    def _carried_out(self, state: State, request: int, label: str) -> tuple[State, int]:
        """The state after a request, and the number of the answer."""
        key = (state.storage, state.chain, request, state.time)
        known = self._effects.get(key)
        if known is None:
            known = self._effects[key] = self._effect(state, self._requests[request], label)
        storage, chain, answer = known
        if storage == state.storage:
            return state, answer
        state = state._replace(storage=storage, chain=chain)
        if chain != key[1]:
            self.checks.outcomes([self._nodes[each].said for each in state.nodes], self._chains[chain], label)
        return state, answer

    def _effect(self, state: State, request: Request, label: str) -> tuple[int, int, int]:
        if request.verb == "delete":
            self._check_deletion(state, request, label)
        storage, answer = effect(self._storages[state.storage], request, state.time)
        chain = self._chains[state.chain]
        if request.verb == "put_if_absent" and request.paths[0].startswith(FRAMES):
            chain = truth.grown(chain, storage)
        number = self._storages.of(storage)
        if number != state.storage:
            self.checks.stored(storage, chain, state.time, label)
        return number, self._chains.of(chain), self._answers.of(answer)

    def _heard(self, state: State, process: int, slot: int, answer: Answer, label: str) -> State:
        """The state after a process has heard an answer. slot: -1 if it is killed."""
        number, now = state.nodes[process], state.time - state.lags[process]
        key = (slot, self._answers.of(answer), now)
        node = self._nodes[number].children.get(key)
        if node is None:
            before = self._nodes[number]
            node = self._node(process, (*before.history, Heard(slot, answer, now)), before.said)
            before.children[key] = node
        nodes = (*state.nodes[:process], node, *state.nodes[process + 1 :])
        pending = state.pending
        if pending[process]:
            kept = () if slot < 0 else tuple(each for each in pending[process] if each.slot != slot)
            pending = (*pending[:process], kept, *pending[process + 1 :])
        state = state._replace(nodes=nodes, pending=pending)
        position = self._nodes[node].position
        if position.facts or position.error:
            self.checks.said(process, position, self._chains[state.chain], label)
            self.checks.outcomes([self._nodes[each].said for each in nodes], self._chains[state.chain], label)
        return state

    def _node(self, process: int, history: History, said: tuple[tuple[str, bytes, int], ...]) -> int:
        if history and history[-1].slot < 0:
            position = Position((), (), True, "")
        else:
            position = run(self._names[process], self._scripts[process], history)
        waits = [Wait(slot, request, self._parts(request)) for slot, request in position.waits]
        self._nodes.append(Node(process, history, position, self.checks.kept(said, position), waits))
        return len(self._nodes) - 1

    def _parts(self, request: Request) -> tuple[int, ...]:
        return tuple(map(self._requests.of, parts_of(request, self._configuration.split_reads)))

    @staticmethod
    def _noted(state: State, process: int, pending: Pending) -> State:
        others = [each for each in state.pending[process] if each.slot != pending.slot]
        mine = tuple(sorted([*others, pending]))
        return state._replace(pending=(*state.pending[:process], mine, *state.pending[process + 1 :]))

    @staticmethod
    def _on_their_way(state: State, requests: Sequence[int]) -> State:
        return state._replace(network=tuple(sorted([*state.network, *requests])))

    def _mark(self, state: State) -> int:
        """How many frames of the chain are known to be acknowledged."""
        return max((place for node in state.nodes for what, _, place in self._nodes[node].said), default=0)

    # --- what may be deleted, and the reduction --------------------------------------------------------------------

    def _bound(self, state: State) -> tuple[int, frozenset[str]]:
        """The address before which frames may be deleted, and no others as long as no time passes (W7); and the frames
        from there on."""
        key = (state.storage, state.time)
        if key not in self._bounds:
            storage = self._storages[state.storage]
            old = [path for path, _, made in storage if path.startswith(CHECKPOINTS) and _is_old(made, state.time)]
            bound = max(map(address_of, old), default=0)
            stays = [path for path, *_ in storage if path.startswith(FRAMES) and address_of(path) >= bound]
            self._bounds[key] = bound, frozenset(stays)
        return self._bounds[key]

    def _check_deletion(self, state: State, request: Request, label: str) -> None:
        for path in request.paths:
            if path.startswith(FRAMES) and address_of(path) >= self._bound(state)[0]:
                raise Violation(f"a frame is deleted that no old checkpoint covers: {path}", label)

    def _alone(self, state: State) -> int | None:
        """A process whose steps are the only ones to explore; see the reduction."""
        _, stays = self._bound(state)
        for process, node in enumerate(state.nodes):
            waits = self._nodes[node].waits
            if len(waits) != 1 or state.pending[process]:
                continue
            request = waits[0].request
            if request.verb == BARRIER or (request.verb in _FIXED and stays.issuperset(request.paths)):
                return process
        return None


_FIXED = frozenset({"read", "read_ranges", "stat", "put_if_absent"})
"""Verbs whose answer is always the same while the object is there."""


def _is_old(made: int, now: int) -> bool:
    return (now - made) * UNIT > GRACE
