"""Flush cycles and checkpoints: the one that is under way, and what it has brought to LTS (F1, F2).

Whoever begins a cycle ends the one before: each step names its cycle, and is refused once that is over.
"""

from __future__ import annotations

from engine.errors import FlushOvertaken
from engine.state import operations as ops
from engine.state.changes.chunks import release
from engine.state.changes.draft import StateDraft
from engine.state.segments import logged_bytes
from engine.state.state import Cycle


def check_cycle(draft: StateDraft, number: int) -> None:
    """Refuse what belongs to a cycle that is over; else it is a sign of life of the cycle."""
    if not draft.cycle.runs(number):
        raise FlushOvertaken(f"flush cycle {number} is over")
    draft.cycle = draft.cycle._replace(alive=draft.time)


def mark_checkpoint(draft: StateDraft, op: ops.Checkpoint) -> None:
    draft.checkpoint = draft.address


def note_carried(draft: StateDraft, op: ops.Carried) -> None:
    """It tells those whose transactions these are; they are in the frame themselves."""


def begin_cycle(draft: StateDraft, op: ops.BeginCycle) -> None:
    if op.number != draft.cycle.number + 1:
        raise FlushOvertaken(f"flush cycle {draft.cycle.number} was begun meanwhile")
    draft.cycle = Cycle(op.number, draft.sequence, draft.time, False, draft.cycle.recovery_point, draft.time)
    draft.flushed = draft.address


def end_cycle(draft: StateDraft, op: ops.EndCycle) -> None:
    check_cycle(draft, op.number)
    draft.cycle = draft.cycle._replace(complete=True, recovery_point=draft.cycle.sequence)


def give_up_cycle(draft: StateDraft, op: ops.GiveUpCycle) -> None:
    check_cycle(draft, op.number)
    draft.cycle = draft.cycle._replace(given_up=True, trouble=op.trouble)


def flushed(draft: StateDraft, op: ops.Flushed) -> None:
    check_cycle(draft, op.cycle)
    segment = draft.segment(op.segment)
    if segment.storage_length != op.offset or op.end > segment.length or segment.storage not in ("", op.storage):
        raise FlushOvertaken(f"segment {op.segment!r} is in LTS up to {segment.storage_length}, not {op.offset}")
    extents, dropped = segment.extents.truncated(op.end)
    release(draft, dropped, op.moved)
    draft.store(
        segment._replace(
            extents=extents,
            logged=segment.logged - logged_bytes(dropped),
            storage_length=op.end,
            storage=op.storage,
        )
    )


def stored(draft: StateDraft, op: ops.Stored) -> None:
    check_cycle(draft, op.cycle)
    segment = draft.segment(op.segment)
    if segment.storage != op.storage:
        raise FlushOvertaken(f"segment {op.segment!r} is called {segment.storage!r} in LTS, not {op.storage!r}")
    draft.store(segment._replace(stored_start=op.start_offset, stored_sealed=op.sealed))


def forgotten(draft: StateDraft, op: ops.Forgotten) -> None:
    check_cycle(draft, op.cycle)
    for storage in op.storages:
        draft.dropped.pop(storage, None)
