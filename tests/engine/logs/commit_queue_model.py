"""An explicit-state model of the commit queue: group commit of several processes through the storage (W18).

All live frames of one *epoch* are made by one process, the *maker* of that epoch. Another process, an *owner*, need not
race for the next address: it may put operations into the inbox, as a *submission* to the present epoch. The maker
carries submissions in its frames, by value and with their results. An owner completes its operations by the live frames
that it reads. At any time an owner may also make a frame itself, with its own operations.

`search` tries every order of steps within some bounds, and returns the shortest one that breaks a promise. The
environment does its worst:

- A submission that was ever sent may reach a maker at any later time, repeatedly, or never.
- A request to create a frame takes effect at any time and in any order, also if its process died or gave up waiting.
- Everything in `Faults` happens, at any time and to any process, as often as the bounds allow.
- The last process may open the log late, from its checkpoint.

The state of the log is the number of operations that it has accepted. An operation may need an exact number, and is
refused at any other one. Its result is the number that it found, like the offset of a conditional append. What a maker
refuses, its owner decides (W18.9): it queues the operation again for its own frames only (*direct*), and validates it
against its own state.

These are the promises:

- A live frame records the results that its replay gives.
- No operation counts twice.
- The operations of one owner count in the order of their calls. An exception is an operation that a live frame refused
  or set aside: its process validates it again later, and other operations may have overtaken it.
- The caller of an operation gets at most one outcome, and no process forgets an operation before. Success means that
  the live log holds the operation, with the same result; an error other than OutcomeUnknown means that it does not.
- With `check_progress`: from every state, a process completes its operations by itself if all other processes and late
  requests stop. It needs its frames in flight and at most PROGRESS more.

Left out: time (patience, bells and the farewell of a closing maker are possible at any time, or never), the durability
of what was read (G3), damage and repair (W8), operations that span frames (W4), the priorities of the queue, and the
age of the state by which a process refuses its own operations (W11).

Each rule in RULES can be switched off by its name. That shows what the rule prevents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

RULES: Final = {
    # the maker
    "epoch": "W18.1: A frame carries only submissions to its own epoch.",
    "ahead": "W18.2: The maker counts what its frames in flight carry, not only what its live frames carry.",
    "nil": "W18.2: A submission that was carried and refused counts as carried.",
    "mono": "W18.3: The maker carries the submissions of one owner in increasing order of their numbers.",
    "judged": "W5: The maker validates an operation against the state right before it in the frame, not at its head.",
    # the owner
    "first": "W18: An own frame holds the operations of the outstanding submission before all later ones.",
    "idle": "W18: An owner submits nothing while a frame of its own is in flight.",
    "early": "W18.4: An owner queues a submitted operation again only if a live frame of a higher epoch lacks it.",
    "flown": "W18.5: An operation is not queued again, for that reason, if an own frame in flight holds it.",
    "live": "W18.6: An owner completes its operations by live frames only, not by void ones.",
    "once": "W18.7: An owner that reports OutcomeUnknown for an operation stops waiting for its submission.",
    "failed": "W18.7: If the storage fails, the outcome of submitted operations is unknown: they may be done.",
    "dequeued": "W18.7, W18.8: An operation that was reported as unknown leaves the queue of its process.",
    "moved": "W18.8: An owner that starts over from a checkpoint reports OutcomeUnknown for all that it has submitted.",
    "held": "W18.9: An owner refuses no operation by its own state while a maker may still carry it.",
    "empty": "W18.9: If its state refuses all that it submitted, it makes an empty frame: the submission is void then.",
    "patience": "W18.10: An owner that is not served makes a frame with the submitted operations itself.",
    # clones of a process
    "nonce": "W15: An owner completes its operations only by a submission with its own nonce.",
    "identity": "W15: A process that reads a live frame of its own writer id, which its clone made, takes a new one.",
    "seal": "W15: A frame names its predecessor by writer, address and seal, which differs between clones.",
}
"""The rules of the commit queue, by the names that switch them off."""

PROGRESS: Final = 1
"""The frames that a process needs, besides those in flight, to complete its operations once all other ones stop."""

ANY: Final = -1
"""The condition of an operation that has none."""

DIRECT: Final = -1
"""The number of an operation that the maker of a frame put there for itself, without a submission."""

REFUSED: Final = -1
"""The result that a frame records of an operation that was not done."""

ASIDE: Final = -2
"""In place of a result: the maker looks the operation up, and may carry it in a later frame. No frame stores this."""

REJECTED: Final = 101
"""The outcome of an operation that the state of the log refuses."""

UNKNOWN: Final = 102
"""The outcome of an operation that may have been done or not (OutcomeUnknown)."""

FAILED: Final = 103
"""The outcome of an operation that was not done because the storage failed."""

_NEW, _UP, _DEAD = range(3)  # of a process: it has not opened the log, it uses the log, it crashed
_SENT, _LANDED, _LOST = range(3)  # of a frame in flight: no answer yet, it was created, the address has another frame
_WRITERS = 10  # how many writer ids each life of a process has
_OTHER = {REFUSED: " refused", ASIDE: " set aside"}
_BELL = 1_000  # the writer id of all bells
_STORAGE = -1  # in place of a process: a step of the storage


class Faults(NamedTuple):
    """How often the environment does what.

    crashes: a process dies. unknowns: it gets no answer from the storage, and abandons its frames (OutcomeUnknown).
    failures: the storage rejects its frame, or does not let it read the log. sleeps: it stops for longer than the grace
    period. truncations: a checkpoint is made, and the frames before it are deleted, which only a process that slept
    notices (W7). clones, at most one: a process goes on twice, as a clone of a virtual machine does (W15). bells: a
    process puts a void frame into the maker's way. undecided: a maker has to look an operation up, and sets it aside.

    Failures and clones do not go together: a request that the storage rejects for one clone may be the other one's too.
    """

    crashes: int = 0
    unknowns: int = 0
    failures: int = 0
    sleeps: int = 0
    truncations: int = 0
    clones: int = 0
    bells: int = 0
    undecided: int = 0


class Bounds(NamedTuple):
    """How much may happen.

    operations: of each process, the conditions of its operations in the order of their calls. Process 0 is the maker
    of the first epoch.
    frames: how many frames each process may send. addresses: how many the log has. flights: how many frames a process
    may have in flight.
    submissions: how many each process may send. together: how many operations each may hold.
    split: a maker may carry the operations of a submission in several frames. late: the last process opens late.
    """

    operations: tuple[tuple[int, ...], ...]
    frames: tuple[int, ...]
    addresses: int
    faults: Faults = Faults()
    flights: int = 2
    submissions: int = 2
    together: int = 1
    split: bool = False
    late: bool = False


class Submission(NamedTuple):
    """Operations that an owner hands to the maker of an epoch.

    nonce: a random number, which a clone of the owner does not share. operations: their places in the order of calls.
    The owner's own copy holds only those without an outcome.
    """

    owner: int
    number: int
    nonce: int
    epoch: int
    operations: tuple[int, ...]


class Entry(NamedTuple):
    """An operation in a frame, the submission that it came with, and its result.

    The frame of a maker that refuses an operation of its own does not store that: the process keeps it with the flight.
    """

    owner: int
    number: int
    nonce: int
    operation: int
    result: int


class Identity(NamedTuple):
    """The name of a frame, by which the next one refers to it."""

    writer: int
    address: int
    seal: int


class Frame(NamedTuple):
    """A frame of the log."""

    identity: Identity
    predecessor: Identity
    epoch: int
    entries: tuple[Entry, ...]


class Flight(NamedTuple):
    """A frame that its process has sent and not settled."""

    frame: Frame
    status: int


class Process(NamedTuple):
    """All that a process knows.

    life: the part of its nonces and seals that a clone does not share. head: the place in the live chain of the last
    frame that it applied. next: the address that it reads or writes next. slept: since it last saw the head of the log.
    waiting: operations that are neither submitted nor in flight. outstanding: the submission that it waits for, whose
    operations may be in flight too. number: of its next submission. direct: operations that a maker refused, which it
    does not submit again. carried: entries of its live frames in the present epoch. frames: how many more it may send.
    """

    owner: int
    life: int
    writer: int
    mode: int
    head: int
    next: int
    slept: bool
    flights: tuple[Flight, ...]
    waiting: tuple[int, ...]
    outstanding: Submission | None
    number: int
    direct: tuple[int, ...]
    carried: tuple[Entry, ...]
    frames: int

    @property
    def submitted(self) -> tuple[int, ...]:
        """The operations of its outstanding submission."""
        return self.outstanding.operations if self.outstanding else ()

    @property
    def flying(self) -> tuple[Entry, ...]:
        """The entries of its own operations in its flights."""
        return tuple(entry for flight in self.flights for entry in _direct(flight.frame))


class Report(NamedTuple):
    """The outcome that the caller of an operation got: its result, or REJECTED, UNKNOWN or FAILED."""

    process: int
    operation: int
    outcome: int


class State(NamedTuple):
    """Processes, storage and callers at one moment.

    store: the frames that exist, by address. chain: all frames that ever were live. late: frames whose requests may
    still take effect, though no process waits for them. inbox: all submissions that were ever sent. log_start: the
    address of the checkpoint. left: the faults that may still happen. wrong: a process believed a frame that is void.
    """

    store: tuple[Frame, ...]
    chain: tuple[Frame, ...]
    late: tuple[Frame, ...]
    inbox: tuple[Submission, ...]
    log_start: int
    processes: tuple[Process, ...]
    reports: tuple[Report, ...]
    left: Faults
    wrong: bool


class Step(NamedTuple):
    """Something that happens: which process does what, to which frame or submission, and the state after it."""

    process: int
    does: str
    what: Frame | Submission | None
    state: State

    def __str__(self) -> str:
        actor = "" if self.process == _STORAGE else f"{self.process} "
        return f"{actor}{self.does}{_shown(self.what)}"


class Found(NamedTuple):
    """What a search found: how many states, and the shortest way to a violation ("" if there is none)."""

    states: int
    violation: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.violation or 'no violation'} ({self.states:,} states)", *self.path])


class Unfinished(Exception):
    """A search met more states than it may visit, and no violation in these."""


_Reports: TypeAlias = "list[tuple[int, int]]"  # operations and their outcomes

_FIRST = Frame(Identity(0, 0, 0), Identity(0, 0, 0), 0, ())
"""The frame that the log begins with. Process 0 made it."""


class Model:
    """All steps that are possible within some bounds. off: the rules that are switched off."""

    def __init__(self, bounds: Bounds, off: Iterable[str] = ()) -> None:
        self.bounds = bounds
        self._off = frozenset(off)
        if unknown := sorted(self._off - RULES.keys()):
            raise ValueError(f"no such rule: {', '.join(unknown)}")
        self._stuck: dict[int, bool] = {}  # by the hash of a process's state and the log

    def start(self) -> State:
        """The state in which nothing has happened yet."""
        bounds = self.bounds
        processes = [
            Process(
                owner=owner,
                life=owner,
                writer=_WRITERS * owner,
                mode=_UP,
                head=0,
                next=1,
                slept=False,
                flights=(),
                waiting=tuple(range(len(operations))),
                outstanding=None,
                number=0,
                direct=(),
                carried=(),
                frames=frames,
            )
            for owner, (operations, frames) in enumerate(zip(bounds.operations, bounds.frames, strict=True))
        ]
        if bounds.late:
            processes[-1] = processes[-1]._replace(mode=_NEW)
        return State((_FIRST,), (_FIRST,), (), (), 0, tuple(processes), (), bounds.faults, False)

    def steps(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        for frame in state.late:
            if (created := self._created(state, frame)) is not None:
                late = tuple(each for each in state.late if each != frame)
                yield Step(_STORAGE, "a late request creates", frame, created._replace(late=late))
        for at, process in enumerate(state.processes):
            if process.mode == _NEW:
                yield Step(at, "opens the log", None, _with(state, at, _opened(state, process)))
            elif process.mode == _UP:
                yield from self._faults(state, at, process)
                yield from self._submissions(state, at, process)
                yield from self._new_frames(state, at, process)
                yield from self._answers(state, at, process)
        yield from self._truncations(state)

    # --- promises ----------------------------------------------------------------------------------------------------

    def violation(self, state: State) -> str:
        """The promise that a state breaks, "" for none."""
        if state.wrong:
            return "a process believed a frame that is void"
        counted: list[Entry] = []
        overtaken: set[tuple[int, int]] = set()
        for entry in (entry for frame in state.chain for entry in frame.entries):
            if entry.result < 0:
                overtaken.add((entry.owner, entry.operation))
                continue
            if entry.result != len(counted) or self._refuses(len(counted), entry.owner, entry.operation):
                return "a live frame records a result that its replay does not give"
            for before in counted:
                if before.owner == entry.owner and self._is_one_life(before.nonce, entry.nonce):
                    if before.operation == entry.operation:
                        return "an operation counts twice"
                    if before.operation > entry.operation and (entry.owner, entry.operation) not in overtaken:
                        return "two operations of one owner count in the wrong order"
            counted.append(entry)
        if any(self._has_lost(state, process) for process in state.processes if process.mode != _DEAD):
            return "an operation has no outcome, and its process has forgotten it"
        return self._wrong_report(state, counted)

    def _has_lost(self, state: State, process: Process) -> bool:
        """Whether an operation of a process has no outcome and no place any more. Clones share earlier outcomes."""
        known = {*process.waiting, *process.submitted, *(entry.operation for entry in process.flying)}
        lost = set(range(len(self.bounds.operations[process.owner]))) - known
        return bool(lost) and not lost.issubset(
            report.operation for report in state.reports if state.processes[report.process].owner == process.owner
        )

    def _wrong_report(self, state: State, counted: Sequence[Entry]) -> str:
        """What is wrong with the outcomes that callers got. counted: the operations that the log holds."""
        for one, other in zip(state.reports, state.reports[1:], strict=False):
            if one[:2] == other[:2]:
                return "an operation got two outcomes"
        for report in state.reports:
            process = state.processes[report.process]
            results = [
                entry.result
                for entry in counted
                if (entry.owner, entry.operation) == (process.owner, report.operation)
                and self._is_one_life(entry.nonce, process.life)
            ]
            if report.outcome in (REJECTED, FAILED) and results:
                return "an operation was reported as not done, and is in the log"
            if report.outcome < REJECTED and not results:
                return "an operation was acknowledged, and is not in the log"
            if report.outcome < REJECTED and report.outcome not in results:
                return "an operation was completed with another result than its replay gives"
        return ""

    def _is_one_life(self, one: int, other: int) -> bool:
        """Whether one process did both, of a given owner: before it was cloned, or as the same clone."""
        return one == other or min(one, other) < len(self.bounds.operations)

    def is_stuck(self, state: State, at: int) -> bool:
        """Whether a process cannot complete its operations once other processes and late requests stop.

        Its steps are carried out: it gets the answers of its own requests, reads the log to its end, and sends frames
        with all of its operations, PROGRESS at most. So each operation has an outcome after the frames in flight and
        PROGRESS more. While other processes send frames, they may win every race: then there is no such bound.
        """
        process = state.processes[at]
        if process.mode != _UP or not (process.waiting or process.submitted or process.flying):
            return False
        alone = State(
            store=state.store,
            chain=state.chain,
            late=(),
            inbox=(),
            log_start=state.log_start,
            processes=(process._replace(frames=PROGRESS),),
            reports=(),
            left=Faults(),
            wrong=False,
        )
        if (key := hash(alone)) not in self._stuck:
            self._stuck[key] = self._is_stuck_alone(alone)
        return self._stuck[key]

    def _is_stuck_alone(self, state: State) -> bool:
        """The same of the only process of a state."""
        bounds = self.bounds
        model = Model(bounds._replace(addresses=bounds.addresses + bounds.flights + PROGRESS), self._off)
        while True:
            process = state.processes[0]
            if not (process.waiting or process.submitted or process.flying):
                return False
            step = model.next_alone(state)
            if step is None:
                return True
            state = step.state

    def next_alone(self, state: State) -> Step | None:
        """What the only process of a state does next: it acts on what it can see, or else sends a frame of its own."""
        process = state.processes[0]
        return next(self._answers(state, 0, process), None) or self._own_frame(state, 0, process)

    def _own_frame(self, state: State, at: int, process: Process) -> Step | None:
        """A process sends a frame with all of its operations and no submissions; None if it may send none."""
        sizes = {}
        for step in self._new_frames(state, at, process):
            if isinstance(step.what, Frame) and step.what.entries == _direct(step.what):
                sizes[len(step.what.entries)] = step
        return sizes[max(sizes)] if sizes else None

    # --- faults ------------------------------------------------------------------------------------------------------

    def _faults(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """What may happen to a process, and the void frames that it may put."""
        left = state.left
        if left.crashes:
            dead = Process(process.owner, process.life, 0, _DEAD, 0, 0, False, (), (), None, 0, (), (), 0)
            after = _with(_spent(state, "crashes"), at, dead, late=_late(state, process.flights))
            yield Step(at, "crashes", None, after)
        if left.sleeps and not process.slept:
            after = _with(_spent(state, "sleeps"), at, process._replace(slept=True))
            yield Step(at, "sleeps for longer than the grace period", None, after)
        if left.clones:
            # All that was called, submitted and sent before belongs to both; what follows, to one of them.
            life = len(self.bounds.operations)
            after = _with(_spent(state, "clones"), at, process._replace(life=life))
            after = after._replace(processes=(*after.processes, process._replace(life=life + 1)))
            yield Step(at, f"is cloned as {life}", None, after)
        if left.bells:
            for address in range(process.next, self.bounds.addresses + 1):
                bell = Frame(Identity(_BELL, address, 0), Identity(_BELL, 0, 0), 0, ())
                if (rung := self._created(_spent(state, "bells"), bell)) is not None:
                    yield Step(at, "puts a void frame", bell, rung)
        if process.flights:
            yield from self._no_answers(state, at, process)
        elif left.failures and process.outstanding:
            # It reports what it submitted as unknown first; the other operations have not left this process.
            mine = process.submitted
            reports = [(each, FAILED if "failed" in self._off else UNKNOWN) for each in mine]
            reports += [(each, FAILED) for each in process.waiting]
            after = _with(_spent(state, "failures"), at, self._forgotten(process)._replace(waiting=()), reports)
            yield Step(at, "cannot read the log", None, after)

    def _no_answers(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """The storage does not answer, or rejects a request: the process abandons its flights, as another writer."""
        flights = process.flights
        after = _renewed(process)._replace(flights=())
        if state.left.unknowns and flights[0].status != _LOST:
            unknown, again = self._unanswered(process)
            owner = _queued(after, again)
            if "once" not in self._off:
                owner = _without(owner, unknown)
            reports = [(operation, UNKNOWN) for operation in unknown]
            spent = _spent(state, "unknowns")
            yield Step(at, "gets no answer", None, _with(spent, at, owner, reports, late=_late(state, flights)))
        if state.left.failures and flights[0].status == _SENT:
            mine = process.submitted
            flying = [entry.operation for entry in process.flying]
            unknown = [each for each in mine if "failed" not in self._off or each not in flying]
            reports = [(each, UNKNOWN) for each in unknown]
            reports += [(each, FAILED) for each in flying if each not in unknown]
            spent, late = _spent(state, "failures"), _late(state, flights[1:])
            failing = _with(spent, at, self._forgotten(after), reports, late=late)
            yield Step(at, "may not create", flights[0].frame, failing)

    def _unanswered(self, process: Process) -> tuple[list[int], list[int]]:
        """The operations in flight whose outcome is unknown without an answer, and those that can be queued again."""
        flying = process.flying
        unknown = [entry.operation for entry in flying if entry.result != REFUSED]
        return unknown, [entry.operation for entry in flying if entry.result == REFUSED]

    def _forgotten(self, process: Process) -> Process:
        """A process that reports the operations of its submission as unknown, and waits for them no more."""
        after = process if "once" in self._off else process._replace(outstanding=None)
        return _queued(after, process.submitted) if "dequeued" in self._off else after

    def _truncations(self, state: State) -> Iterator[Step]:
        """A checkpoint is made of the newest state, and all frames before it are deleted.

        The grace period ensures that every process that did not sleep has applied them before.
        """
        newest = state.chain[-1].identity.address
        up = [process for process in state.processes if process.mode == _UP]
        if (
            state.left.truncations
            and newest > state.log_start
            and all(process.slept or process.next > newest for process in up)
        ):
            store = tuple(frame for frame in state.store if frame.identity.address >= newest)
            after = _spent(state, "truncations")._replace(store=store, log_start=newest)
            yield Step(_STORAGE, "the log is truncated", None, after)

    # --- owners ------------------------------------------------------------------------------------------------------

    def _submissions(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """A process submits its next operations to the maker of the present epoch, unless it is that itself."""
        bounds, waiting, head = self.bounds, process.waiting, state.chain[process.head]
        is_owner = head.identity.writer != process.writer and (not process.flights or "idle" in self._off)
        if is_owner and process.outstanding is None and process.number < bounds.submissions:
            for count in range(1, min(bounds.together, len(waiting)) + 1):
                if waiting[count - 1] in process.direct:
                    break
                sent = Submission(process.owner, process.number, process.life, head.epoch, waiting[:count])
                after = process._replace(waiting=waiting[count:], outstanding=sent, number=process.number + 1)
                yield Step(at, "submits", sent, _with(state, at, after, inbox=(*state.inbox, sent)))
        if process.outstanding and "early" in self._off:
            after = _queued(process._replace(outstanding=None), process.submitted)
            yield Step(at, "queues again", process.outstanding, _with(state, at, after))

    def _refusals(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """A process refuses its next operation by the state that it has, without a frame."""
        length = _accepted(state.chain[: process.head + 1])
        queue = process.submitted or process.waiting
        if process.submitted and "held" not in self._off:
            return
        if queue and self._refuses(length, process.owner, queue[0]):
            after = _without(process, queue[:1])
            after = after._replace(waiting=tuple(each for each in after.waiting if each != queue[0]))
            yield Step(at, f"refuses {queue[0]}", None, _with(state, at, after, [(queue[0], REJECTED)]))

    def _refuses(self, length: int, owner: int, operation: int) -> bool:
        """Whether the state after so many operations refuses this one."""
        return self.bounds.operations[owner][operation] not in (ANY, length)

    # --- frames ------------------------------------------------------------------------------------------------------

    def _new_frames(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """A process sends a frame with submissions to its epoch, with operations of its own, or both."""
        flights = process.flights
        if not process.frames or len(flights) >= self.bounds.flights or any(each.status == _LOST for each in flights):
            return
        last = flights[-1].frame if flights else state.chain[process.head]
        address = last.identity.address + 1 if flights else process.next
        if address > self.bounds.addresses:
            return
        epoch = last.epoch + (last.identity.writer != process.writer)
        identity = Identity(process.writer, address, process.life)
        at_head = _accepted(state.chain[: process.head + 1])
        length = at_head + _accepted(flight.frame for flight in flights)
        known = process.carried
        if "ahead" not in self._off:
            known += tuple(entry for flight in flights for entry in _carried(flight.frame))
        inbox = [
            each for each in state.inbox if each.nonce != process.life and (each.epoch == epoch or "epoch" in self._off)
        ]
        for carried, undecided in self._served(inbox, known, length, at_head, state.left.undecided):
            left = state.left._replace(undecided=state.left.undecided - undecided)
            for own in self._own_entries(process, length + _done(carried)):
                if any(entry.result != ASIDE for entry in (*carried, *own)):
                    frame = Frame(identity, last.identity, epoch, (*carried, *own))
                    taken = {entry.operation for entry in own}
                    after = process._replace(
                        flights=(*flights, Flight(frame, _SENT)),
                        waiting=tuple(each for each in process.waiting if each not in taken),
                        frames=process.frames - 1,
                    )
                    yield Step(at, "sends", frame, _with(state, at, after, left=left))

    def _own_entries(self, process: Process, length: int) -> Iterator[tuple[Entry, ...]]:
        """What a frame may hold of its maker's own operations: the first ones in their order, or none."""
        yield ()
        if process.submitted and "patience" in self._off:
            return
        flying = {entry.operation for entry in process.flying}
        mine, waiting = process.submitted, process.waiting
        in_order = (*waiting, *mine) if "first" in self._off else sorted((*mine, *waiting))
        entries: list[Entry] = []
        for operation in [each for each in in_order if each not in flying]:
            result = REFUSED if self._refuses(length, process.owner, operation) else length
            entries.append(Entry(process.owner, DIRECT, process.life, operation, result))
            length += result != REFUSED
            is_empty = all(entry.result == REFUSED for entry in entries)
            if not is_empty or ("empty" not in self._off and any(entry.operation in mine for entry in entries)):
                yield tuple(entries)

    def _served(
        self, inbox: Sequence[Submission], known: tuple[Entry, ...], length: int, at_head: int, undecided: int
    ) -> Iterator[tuple[tuple[Entry, ...], int]]:
        """What a frame may carry, and how many operations of that are undecided.

        Args:
            inbox: the submissions that the maker found.
            known: what it knows to have carried.
            length, at_head: the state of the log before this frame, and before all of its frames in flight.
            undecided: how many operations it cannot decide at most.
        """
        if not inbox:
            yield (), 0
            return
        submission, rest = inbox[0], inbox[1:]
        yield from self._served(rest, known, length, at_head, undecided)
        operations = self._not_carried(submission, known)
        fewest = 1 if self.bounds.split else max(1, len(operations))
        for count in range(fewest, len(operations) + 1):
            for entries, some in self._validated(submission, operations[:count], length, at_head, undecided):
                after = length + _done(entries)
                for others, more in self._served(rest, (*known, *entries), after, at_head, undecided - some):
                    yield (*entries, *others), some + more

    def _not_carried(self, submission: Submission, known: Iterable[Entry]) -> tuple[int, ...]:
        """The operations of a submission that its maker may carry, given what it has carried."""
        owner, number, nonce, _, operations = submission
        least = 0 if "nil" in self._off else REFUSED
        before = [e for e in known if e.owner == owner and e.result >= least]
        is_aside = any(e.result == ASIDE and e[:3] == (owner, number, nonce) for e in known)
        is_late = any(e[:3] != (owner, number, nonce) and e.number >= number for e in before)
        if is_late and not is_aside and "mono" not in self._off:
            return ()
        done = {e.operation for e in before if e[:3] == (owner, number, nonce)}
        return tuple(operation for operation in operations if operation not in done)

    def _validated(
        self, submission: Submission, operations: Sequence[int], length: int, at_head: int, undecided: int
    ) -> Iterator[tuple[tuple[Entry, ...], int]]:
        """Operations of a submission with their results: all decided, or one that would be accepted set aside."""
        for guess in [None, *operations] if undecided else [None]:
            entries: list[Entry] = []
            now, met = length, False
            for operation in operations:
                state = at_head if "judged" in self._off else now
                result = REFUSED if self._refuses(state, submission.owner, operation) else state
                if operation == guess and result != REFUSED:
                    met, result = True, ASIDE
                now += result >= 0
                entries.append(Entry(*submission[:3], operation, result))
            if met or guess is None:
                yield tuple(entries), int(met)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answers(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """A process gets the answers of its requests and acts on them, or reads on: all that it does by itself without
        sending anything."""
        flights = process.flights
        for place, (frame, status) in enumerate(flights):
            if status == _SENT:
                created = self._created(state, frame)
                flight = Flight(frame, _LOST if created is None else _LANDED)
                after = process._replace(flights=(*flights[:place], flight, *flights[place + 1 :]))
                does = "loses the race for" if created is None else "creates"
                yield Step(at, does, frame, _with(created or state, at, after))
        if not flights:
            yield from self._readings(state, at, process)
            yield from self._refusals(state, at, process)
        elif flights[0].status == _LANDED or all(flight.status != _SENT for flight in flights):
            frame = flights[0].frame
            if process.slept and frame.identity.address < state.log_start:
                yield self._start_over(state, at, process)
            elif flights[0].status == _LANDED:
                yield self._settle(state, at, process, frame)
            else:
                after = _queued(process._replace(flights=()), [entry.operation for entry in process.flying])
                yield Step(at, "drops its flights", None, _with(state, at, after))

    def _readings(self, state: State, at: int, process: Process) -> Iterator[Step]:
        """A process reads the next address."""
        if process.slept and process.next < state.log_start:
            yield self._start_over(state, at, process)
            return
        for frame in state.store:
            if frame.identity.address == process.next:
                if self._follows(frame, state.chain[process.head]):
                    yield self._follow(state, at, process, frame)
                else:
                    reports: _Reports = []
                    after = process._replace(next=process.next + 1, slept=False)
                    if "live" in self._off:
                        after, reports = self._completed(after, frame)
                    yield Step(at, "skips", frame, _with(state, at, after, reports))

    def _settle(self, state: State, at: int, process: Process, frame: Frame) -> Step:
        """The first flight of a process is live."""
        if frame not in state.chain:
            return Step(at, "believes", frame, state._replace(wrong=True))
        entries = _direct(frame)
        is_same_epoch = frame.epoch == state.chain[process.head].epoch
        after = _without(process, [entry.operation for entry in entries])._replace(
            head=state.chain.index(frame),
            next=frame.identity.address + 1,
            slept=False,
            flights=process.flights[1:],
            carried=(process.carried if is_same_epoch else ()) + _carried(frame),
        )
        reports = [(entry.operation, REJECTED if entry.result == REFUSED else entry.result) for entry in entries]
        if "dequeued" in self._off:  # a process reports no second outcome
            reported = {report[:2] for report in state.reports}
            reports = [report for report in reports if (at, report[0]) not in reported]
        return Step(at, "settles", frame, _with(state, at, self._voided(after, frame), reports))

    def _follow(self, state: State, at: int, process: Process, frame: Frame) -> Step:
        """A process applies a live frame of another one."""
        if frame not in state.chain:
            return Step(at, "believes", frame, state._replace(wrong=True))
        after, reports = self._completed(process, frame)
        head, address = state.chain.index(frame), frame.identity.address
        after = self._voided(after, frame)._replace(head=head, next=address + 1, slept=False)
        if frame.identity.writer != process.writer:
            after = after._replace(carried=())
        elif "identity" not in self._off:
            after = _renewed(after)
        return Step(at, "follows", frame, _with(state, at, after, reports))

    def _completed(self, process: Process, frame: Frame) -> tuple[Process, _Reports]:
        """An owner completes the operations that a frame carries of its submission. It queues those again that the
        maker refused, to decide them itself."""
        mine = process.outstanding
        reports: _Reports = []
        if mine is None:
            return process, reports
        refused: list[int] = []
        for entry in frame.entries:
            is_mine = entry[:3] == mine[:3] or (entry[:2] == mine[:2] and "nonce" in self._off)
            if is_mine and entry.operation in mine.operations:
                if entry.result >= 0:
                    reports.append((entry.operation, entry.result))
                elif entry.result == REFUSED:
                    refused.append(entry.operation)
        after = _without(process, [*refused, *(operation for operation, _ in reports)])
        return _queued(after._replace(direct=tuple(sorted({*after.direct, *refused}))), refused), reports

    def _voided(self, process: Process, frame: Frame) -> Process:
        """A live frame of a higher epoch makes a submission void: its operations are queued again, unless in flight."""
        mine = process.outstanding
        if mine is None or frame.epoch <= mine.epoch:
            return process
        flying = [] if "flown" in self._off else [entry.operation for entry in process.flying]
        return _queued(process._replace(outstanding=None), [each for each in mine.operations if each not in flying])

    def _start_over(self, state: State, at: int, process: Process) -> Step:
        """A process that slept finds its address covered by a checkpoint, from which it opens the log again (W7)."""
        unknown, again = map(set, self._unanswered(process))
        if "moved" not in self._off:
            unknown |= set(process.submitted)
        if "moved" in self._off or "dequeued" in self._off:
            again |= set(process.submitted)
        else:
            again -= set(process.submitted)
        after = _opened(state, _renewed(process))._replace(flights=(), outstanding=None)
        reports = [(operation, UNKNOWN) for operation in unknown]
        late = _late(state, process.flights)
        return Step(at, "starts over", None, _with(state, at, _queued(after, again), reports, late=late))

    # --- the log -----------------------------------------------------------------------------------------------------

    def _created(self, state: State, frame: Frame) -> State | None:
        """The request to create a frame takes effect; None if its address has another one."""
        for other in state.store:
            if other.identity.address == frame.identity.address:
                return state if other == frame else None
        store = tuple(sorted((*state.store, frame), key=lambda each: each.identity.address))
        by_address = {each.identity.address: each for each in store}
        chain = state.chain
        address = chain[-1].identity.address + 1
        while (each := by_address.get(address)) is not None:
            if self._follows(each, chain[-1]):
                chain = (*chain, each)
            address += 1
        return state._replace(store=store, chain=chain)

    def _follows(self, frame: Frame, head: Frame) -> bool:
        """Whether a frame is live, given the live frame before it (W1)."""
        parts = 2 if "seal" in self._off else 3
        is_named = frame.predecessor[:parts] == head.identity[:parts]
        return is_named and frame.epoch == head.epoch + (frame.identity.writer != head.identity.writer)


def _with(state: State, at: int, process: Process, reports: _Reports | None = None, **changes: Any) -> State:
    """A state with another process in one place, and with outcomes that it reported."""
    if reports:
        made = [Report(at, operation, outcome) for operation, outcome in reports]
        changes["reports"] = tuple(sorted([*state.reports, *made]))
    if "inbox" in changes:
        changes["inbox"] = tuple(sorted(changes["inbox"]))
    return state._replace(processes=(*state.processes[:at], process, *state.processes[at + 1 :]), **changes)


def _spent(state: State, fault: str) -> State:
    """A state in which a fault may happen once less."""
    return state._replace(left=state.left._replace(**{fault: getattr(state.left, fault) - 1}))


def _late(state: State, flights: Iterable[Flight]) -> tuple[Frame, ...]:
    """The requests that go on without their process, with those of some flights."""
    return tuple(sorted({*state.late, *(flight.frame for flight in flights if flight.status == _SENT)}))


def _opened(state: State, process: Process) -> Process:
    """A process that has opened the log from the checkpoint."""
    head = max(place for place, frame in enumerate(state.chain) if frame.identity.address <= state.log_start)
    return process._replace(mode=_UP, head=head, next=state.chain[head].identity.address + 1, slept=False)


def _renewed(process: Process) -> Process:
    """A process that goes on as another writer."""
    first = _WRITERS * process.life
    writer = process.writer + 1 if first <= process.writer < first + _WRITERS else first
    return process._replace(writer=writer, carried=())


def _queued(process: Process, operations: Iterable[int]) -> Process:
    """A process that queues operations again, except those of its outstanding submission."""
    waiting = {*process.waiting, *operations}.difference(process.submitted)
    return process._replace(waiting=tuple(sorted(waiting)))


def _without(process: Process, operations: Iterable[int]) -> Process:
    """A process that does not wait for some operations of its submission any more."""
    mine = process.outstanding
    if mine is None:
        return process
    left = tuple(each for each in mine.operations if each not in operations)
    return process._replace(outstanding=mine._replace(operations=left) if left else None)


def _direct(frame: Frame) -> tuple[Entry, ...]:
    """The entries of a frame that its maker put there for itself."""
    return tuple(entry for entry in frame.entries if entry.number == DIRECT)


def _carried(frame: Frame) -> tuple[Entry, ...]:
    """The entries of a frame that came with submissions."""
    return tuple(entry for entry in frame.entries if entry.number != DIRECT)


def _accepted(frames: Iterable[Frame]) -> int:
    """How many operations of some frames were accepted."""
    return sum(_done(frame.entries) for frame in frames)


def _done(entries: Iterable[Entry]) -> int:
    """How many entries are accepted operations."""
    return sum(entry.result >= 0 for entry in entries)


def _shown(what: Frame | Submission | None) -> str:
    """A frame or a submission in the text of a step."""
    if isinstance(what, Frame):
        entries = (
            f"{entry.owner}.{entry.operation}"
            f"{'' if entry.number == DIRECT else f' of number {entry.number}'}"
            f"{_OTHER.get(entry.result, f' = {entry.result}')}"
            for entry in what.entries
        )
        return f" @{what.identity.address} of epoch {what.epoch} [{', '.join(entries)}]"
    if isinstance(what, Submission):
        operations = ", ".join(f"{what.owner}.{operation}" for operation in what.operations)
        return f" {operations} as number {what.number} to epoch {what.epoch}"
    return ""


# --- searching -------------------------------------------------------------------------------------------------------


def search(bounds: Bounds, off: Iterable[str] = (), most: int = 1_000_000, check_progress: bool = False) -> Found:
    """Visit all states within some bounds, breadth first. Returns the shortest way to a violation if there is one.

    States are remembered by hashes of 64 bits. The probability to miss one among a million states is below 1e-7.

    Args:
        bounds: how much may happen.
        off: the rules that are switched off, by name.
        most: how many states may be visited. Raises Unfinished if there are more.
        check_progress: check in every state that no owner is stuck, too.
    """
    model = Model(bounds, off)
    start = model.start()
    before: dict[int, int | None] = {hash(start): None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for step in model.steps(state):
            key = hash(step.state)
            if key in before:
                continue
            before[key] = hash(state)
            violation = model.violation(step.state)
            if not violation and check_progress:
                places = range(len(step.state.processes))
                if any(model.is_stuck(step.state, at) for at in places):
                    violation = "an owner cannot complete its operations by itself"
            if violation:
                return Found(len(before), violation, _path(model, before, key))
            if len(before) > most:
                raise Unfinished(f"no violation in the first {most:,} states")
            queue.append(step.state)
    return Found(len(before))


def _path(model: Model, before: dict[int, int | None], last: int) -> tuple[str, ...]:
    """The steps that lead to the state with this hash. before: for each state's hash, that of the state before it."""
    keys = [last]
    while (key := before[keys[-1]]) is not None:
        keys.append(key)
    state, path = model.start(), []
    for wanted in reversed(keys[:-1]):
        step = next(step for step in model.steps(state) if hash(step.state) == wanted)
        state = step.state
        path.append(str(step))
    return tuple(path)
