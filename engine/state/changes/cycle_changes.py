"""Flush cycles and checkpoints (F1, F2).

Beginning a cycle ends the previous one. Each step of a cycle carries its number, and is rejected once the cycle is
over.
"""

from __future__ import annotations

from engine.errors import FlushOvertaken
from engine.state import operations as ops
from engine.state.changes.chunk_references import drop_references
from engine.state.changes.draft import StateDraft
from engine.state.segments import logged_bytes
from engine.state.state import Cycle


def check_cycle(draft: StateDraft, number: int) -> None:
    """Reject a step of a cycle that is over. Otherwise note the time of the step."""
    if not draft.cycle.runs(number):
        raise FlushOvertaken(f"flush cycle {number} is over")
    draft.cycle = draft.cycle._replace(alive=draft.time)


def mark_checkpoint(draft: StateDraft, op: ops.Checkpoint) -> None:
    draft.checkpoint = draft.address


def answer_submissions(draft: StateDraft, op: ops.AnswerSubmissions) -> None:
    """The operation does not change the state: the transactions that it answers are in the frame themselves."""


def begin_cycle(draft: StateDraft, op: ops.BeginCycle) -> None:
    if op.number != draft.cycle.number + 1:
        raise FlushOvertaken(f"flush cycle {draft.cycle.number} was begun meanwhile")
    draft.cycle = Cycle(op.number, draft.sequence, draft.time, False, draft.cycle.recovery_point, draft.time)
    draft.flushed = draft.address


def end_cycle(draft: StateDraft, op: ops.EndCycle) -> None:
    check_cycle(draft, op.number)
    draft.cycle = draft.cycle._replace(complete=True, recovery_point=draft.cycle.sequence)


def abort_cycle(draft: StateDraft, op: ops.AbortCycle) -> None:
    check_cycle(draft, op.number)
    draft.cycle = draft.cycle._replace(aborted=True, error=op.error)


def record_flush(draft: StateDraft, op: ops.RecordFlush) -> None:
    check_cycle(draft, op.cycle)
    segment = draft.segment(op.segment)
    if segment.storage_length != op.offset or op.end > segment.length or segment.storage not in ("", op.storage):
        raise FlushOvertaken(f"segment {op.segment!r} is in LTS up to {segment.storage_length}, not {op.offset}")
    extents, dropped = segment.extents.truncated(op.end)
    drop_references(draft, dropped, op.moved)
    draft.store(
        segment._replace(
            extents=extents,
            logged=segment.logged - logged_bytes(dropped),
            storage_length=op.end,
            storage=op.storage,
        )
    )


def record_stored_bounds(draft: StateDraft, op: ops.RecordStoredBounds) -> None:
    check_cycle(draft, op.cycle)
    segment = draft.segment(op.segment)
    if segment.storage != op.storage:
        raise FlushOvertaken(f"the name of segment {op.segment!r} in LTS is {segment.storage!r}, not {op.storage!r}")
    draft.store(segment._replace(stored_start=op.start_offset, stored_sealed=op.sealed))


def record_deletion(draft: StateDraft, op: ops.RecordDeletion) -> None:
    check_cycle(draft, op.cycle)
    for storage in op.storages:
        draft.dropped.pop(storage, None)
