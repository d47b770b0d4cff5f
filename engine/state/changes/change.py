"""Applying transactions to a state (W5): each operation is carried out by the module of its subject, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.state import operations as ops
from engine.state.changes import active, attributes, chunks, cycles, segments, tables
from engine.state.changes.draft import StateDraft
from engine.state.operations import LoggedTransaction, Operation
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import LookupResult


class StateChange:
    """A change of the state `base` by a transaction of the frame at `address`, operation by operation.

    `time` is the transaction's, ms. `known`: what was looked up in LTS to judge it; None if it was judged before. After
    a refusal the change is of no use, as a part of what was refused may be in it; `base` stays as it is.
    """

    __slots__ = ("_draft",)

    def __init__(
        self, base: State, time: int, address: int, known: Mapping[tuple[str, str], LookupResult] | None = None
    ) -> None:
        self._draft = StateDraft(base, time, address, known)

    @property
    def time(self) -> int:
        """The time of the transaction, ms since the epoch."""
        return self._draft.time

    @property
    def sequence(self) -> int:
        """The number of operations up to now, which grows with each: it tells the order of appends."""
        return self._draft.sequence

    def segment(self, name: str) -> Segment:
        """The segment as it is now. Raises SegmentNotFound; Unresolved if it may exist and not be active."""
        return self._draft.segment(name)

    def apply(self, operation: Operation) -> Any:
        """Apply one operation. Returns its result, see `apply`. Raises Rejected, Unresolved."""
        draft = self._draft
        draft.sequence += 1
        return _APPLY[type(operation)](draft, operation)

    def state(self) -> State:
        """The state as it is now."""
        return self._draft.finish()


def apply(
    state: State,
    transaction: LoggedTransaction,
    address: int,
    known: Mapping[tuple[str, str], LookupResult] | None = None,
) -> tuple[State, list[Any]]:
    """The state after `transaction` in the frame at `address`, and each operation's result.

    An append's result is the offset of its first byte, a table update's the new version, that of ExpireSegments the
    names of what was deleted, others' None. `known`: what was looked up in LTS; None if the transaction was judged
    before. Raises Rejected, Unresolved.
    """
    change = StateChange(state, transaction.time, address, known)
    results = [change.apply(operation) for operation in transaction.operations]
    return change.state(), results


def replay(state: State, transactions: Sequence[LoggedTransaction], address: int) -> State:
    """The state after all transactions of the frame at `address`, which were judged before."""
    draft = StateDraft(state, 0, address, None)
    for draft.time, operations in transactions:
        for operation in operations:
            draft.sequence += 1
            _APPLY[type(operation)](draft, operation)
    return draft.finish()


_APPLY: dict[type[Any], Callable[[StateDraft, Any], Any]] = {
    ops.CreateSegment: segments.create,
    ops.StartSegment: segments.start,
    ops.Append: segments.append,
    ops.SealSegment: segments.seal,
    ops.MergeSegment: segments.merge,
    ops.TruncateSegment: segments.truncate,
    ops.DeleteSegment: segments.delete,
    ops.ExpireSegments: segments.expire,
    ops.UpdateAttributes: attributes.update_attributes,
    ops.SpillAttributes: attributes.spill,
    ops.LoadAttributes: attributes.load,
    ops.MapSegment: active.map_segment,
    ops.EvictSegments: active.evict,
    ops.SaveSegments: active.save,
    ops.PutEntry: tables.put_entry,
    ops.CheckEntry: tables.check_version,
    ops.Checkpoint: cycles.mark_checkpoint,
    ops.BeginCycle: cycles.begin_cycle,
    ops.EndCycle: cycles.end_cycle,
    ops.GiveUpCycle: cycles.give_up_cycle,
    ops.Flushed: cycles.flushed,
    ops.Stored: cycles.stored,
    ops.Forgotten: cycles.forgotten,
    ops.TablesFlushed: tables.tables_flushed,
    ops.QueueGarbage: chunks.queue_garbage,
    ops.Collected: chunks.collected,
    ops.Discard: chunks.discard,
    ops.Carried: cycles.note_carried,
}
