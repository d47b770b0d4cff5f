"""What becomes of the transactions of a frame: each is held against the state that it would be applied to.

Keeps W5: what is accepted was judged by exactly the state before it, and laid out for exactly this frame. Nothing is
sent here, and nobody is told: the processor acts on the judgement. Pravega: `ContainerMetadataUpdateTransaction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from chunkstore.decoding import InvalidData, decoding
from engine.errors import DataCorruption, InvalidOperation, Rejected, Unresolved
from engine.logs.payload import MAX_PAYLOAD, Layout
from engine.logs.pending import Loads, Pending, more_loads, runs
from engine.state.changes.apply import StateChange
from engine.state.operations import Append, LoggedTransaction
from engine.state.state import State

Refusal: TypeAlias = Rejected | DataCorruption | InvalidOperation
"""Why a transaction cannot be applied."""


class Judgement:
    """The state after the transactions that are accepted, and what keeps the others out.

    accepted: with the results of their operations. unresolved: what depends on entries that have to be looked up.
    damaged: what was looked up for them cannot be understood, or they make no sense, which is no other's concern. Of
    what another process submitted it is `rejected`: its owner decides.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.accepted: list[tuple[Pending, list[Any]]] = []
        self.transactions: list[LoggedTransaction] = []
        self.rejected: list[tuple[Pending, Refusal]] = []
        self.unresolved: list[tuple[Pending, Unresolved]] = []
        self.damaged: list[tuple[Pending, Refusal]] = []

    def accept(self, pending: Pending, layout: Layout, change: StateChange, loads: Loads | None = None) -> None:
        """Lay a transaction out and apply it, `loads` first. Raises Rejected or Unresolved."""
        bound, results = list((loads or {}).values()), []
        for operation in bound:
            change.apply(operation)
        number = change.sequence
        for operation in pending.operations:
            operation = layout.bind(operation, change.segment, number)
            bound.append(operation)
            results.append(change.apply(operation))
        self.transactions.append(LoggedTransaction(change.time, tuple(bound)))
        self.accepted.append((pending, results))

    def accept_appends(self, segment: str, run: Sequence[Pending], layout: Layout, change: StateChange) -> None:
        """The same for plain appends to one segment, as one operation: that costs less here and in every reader."""
        payloads = [pending.appended() for pending in run]
        operation = Append(segment, layout.together(payloads))
        offset: int = change.apply(operation)
        self.transactions.append(LoggedTransaction(change.time, (operation,)))
        for pending, payload in zip(run, payloads, strict=True):
            self.accepted.append((pending, [offset]))
            offset += len(payload)


def judge(state: State, batch: Sequence[Pending], layout: Layout, time_ms: int) -> Judgement:
    """What becomes of transactions that are applied one after the other to `state`."""
    return _judged_together(state, batch, layout, time_ms) or _judged_alone(state, batch, layout, time_ms)


def spans(pending: Pending) -> bool:
    """Whether a transaction needs more than one frame (W4)."""
    return pending.size > MAX_PAYLOAD and pending.chunk is None


def _judged_together(state: State, batch: Sequence[Pending], layout: Layout, time_ms: int) -> Judgement | None:
    """What becomes of transactions none of which is refused; None when one is: then each has to be tried alone."""
    if batch[0].size > MAX_PAYLOAD or any(pending.known for pending in batch):
        return None
    judged, mark = Judgement(state), layout.mark()
    change = StateChange(state, time_ms, layout.frame.address, {})
    try:
        with decoding():
            for segment, run in runs(batch):
                if segment is not None and len(run) > 1:
                    judged.accept_appends(segment, run, layout, change)
                else:
                    judged.accept(run[0], layout, change)
    except (Rejected, Unresolved, DataCorruption, InvalidData):
        layout.rewind(mark)
        return None
    judged.state = change.state()
    return judged


def _judged_alone(state: State, batch: Sequence[Pending], layout: Layout, time_ms: int) -> Judgement:
    judged = Judgement(state)
    for pending in batch:
        mark = layout.mark()
        try:
            with decoding():
                _judge_one(pending, judged, layout, time_ms)
        except Unresolved as error:
            layout.rewind(mark)
            judged.unresolved.append((pending, error))
        except Rejected as error:
            layout.rewind(mark)
            judged.rejected.append((pending, error))
        except DataCorruption as error:
            layout.rewind(mark)
            (judged.rejected if pending.carrying else judged.damaged).append((pending, error))
        except InvalidData as problem:
            layout.rewind(mark)
            refusal = InvalidOperation(f"it cannot be applied: {problem}. Nothing was done")
            (judged.rejected if pending.carrying else judged.damaged).append((pending, refusal))
    return judged


def _judge_one(pending: Pending, judged: Judgement, layout: Layout, time_ms: int) -> None:
    """Accept one transaction. Raises Rejected or Unresolved.

    What brings into memory what was looked up for it is made here, from the state at hand; nobody keeps it.
    """
    state, mark = judged.state, layout.mark()
    loads: Loads = _dry_run(pending, state, time_ms) if spans(pending) else {}
    while True:
        change = StateChange(state, time_ms, layout.frame.address, pending.known)
        try:
            judged.accept(pending, layout, change, loads)
        except Unresolved as error:
            layout.rewind(mark)
            loads = more_loads(error, state, pending.known, loads)
            continue
        judged.state = change.state()
        return


def _dry_run(pending: Pending, state: State, time_ms: int) -> Loads:
    """See whether a spanning transaction is acceptable before its pieces are sent. Raises Rejected if not."""
    loads: Loads = {}
    while True:
        layout, change = Layout(0), StateChange(state, time_ms, 0, pending.known)
        try:
            for operation in (*loads.values(), *pending.operations):
                change.apply(layout.bind(operation, change.segment, change.sequence))
            return loads
        except Unresolved as error:
            loads = more_loads(error, state, pending.known, loads)
