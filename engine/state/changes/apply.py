"""Applying transactions to a state (W5). Each operation is applied, or rejected, by the module of its subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.state import operations as ops
from engine.state.changes import (
    active_segments,
    attribute_changes,
    chunk_references,
    cycle_changes,
    segment_changes,
    table_changes,
)
from engine.state.changes.draft import StateDraft
from engine.state.operations import LoggedTransaction, Operation
from engine.state.state import State
from engine.state.tables import LookupResult


def apply_operation(draft: StateDraft, operation: Operation) -> Any:
    """Apply one operation to a draft. Returns its result (see `apply`).

    Raises Rejected, Unresolved: then the draft must not be used, as it may contain a part of the transaction.
    """
    draft.sequence += 1
    return _APPLY[type(operation)](draft, operation)


def apply(
    state: State,
    transaction: LoggedTransaction,
    address: int,
    known: Mapping[tuple[str, str], LookupResult] | None = None,
) -> tuple[State, list[Any]]:
    """The state after `transaction` in the frame at `address`, and each operation's result.

    The result of Append and MergeSegment is the offset of the first byte, of PutEntry the new version, of
    ExpireSegments the names of the deleted segments, and None for all others. known: the results of lookups in LTS;
    None if the transaction was validated before. Raises Rejected, Unresolved.
    """
    draft = StateDraft(state, transaction.time, address, known)
    results = [apply_operation(draft, operation) for operation in transaction.operations]
    return draft.finish(), results


def replay(state: State, transactions: Sequence[LoggedTransaction], address: int) -> State:
    """The state after all transactions of the frame at `address`, which were validated before."""
    draft = StateDraft(state, 0, address, None)
    for draft.time, operations in transactions:
        for operation in operations:
            apply_operation(draft, operation)
    return draft.finish()


_APPLY: dict[type[Any], Callable[[StateDraft, Any], Any]] = {
    ops.CreateSegment: segment_changes.create,
    ops.StartSegment: segment_changes.start,
    ops.Append: segment_changes.append,
    ops.SealSegment: segment_changes.seal,
    ops.MergeSegment: segment_changes.merge,
    ops.TruncateSegment: segment_changes.truncate,
    ops.DeleteSegment: segment_changes.delete,
    ops.ExpireSegments: segment_changes.expire,
    ops.UpdateAttributes: attribute_changes.update_attributes,
    ops.SpillAttributes: attribute_changes.spill,
    ops.LoadAttributes: attribute_changes.load,
    ops.ActivateSegment: active_segments.activate,
    ops.EvictSegments: active_segments.evict,
    ops.SaveSegments: active_segments.save,
    ops.PutEntry: table_changes.put_entry,
    ops.CheckEntry: table_changes.check_version,
    ops.Checkpoint: cycle_changes.mark_checkpoint,
    ops.BeginCycle: cycle_changes.begin_cycle,
    ops.EndCycle: cycle_changes.end_cycle,
    ops.AbortCycle: cycle_changes.abort_cycle,
    ops.RecordFlush: cycle_changes.record_flush,
    ops.RecordStoredBounds: cycle_changes.record_stored_bounds,
    ops.RecordDeletion: cycle_changes.record_deletion,
    ops.RecordTableFlush: table_changes.record_table_flush,
    ops.QueueGarbage: chunk_references.queue_garbage,
    ops.DequeueGarbage: chunk_references.dequeue_garbage,
    ops.DiscardChunks: chunk_references.discard_chunks,
    ops.AnswerSubmissions: cycle_changes.answer_submissions,
    ops.CreateTable: table_changes.create_table,
    ops.DeleteTable: table_changes.delete_table,
}
