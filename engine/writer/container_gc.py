"""Garbage collection of a container: chunks that no metadata names, and entries that deleted segments left in the table
of attributes (G1, G2; Pravega: GarbageCollector of PDP-34)."""

from __future__ import annotations

from collections.abc import Sequence

from chunkstore.garbage_collector import GarbageCollector, GarbageConfig
from engine.clocks import is_plausible
from engine.state.operations import DequeueGarbage, PutEntry, QueueGarbage
from engine.state.state import ATTRIBUTES_GARBAGE, State
from engine.state.tables import ATTRIBUTES, STORAGE
from engine.writer.container_garbage import ContainerGarbage
from engine.writer.flush_context import FlushContext

BATCH = 1000
"""The most entries that one append removes, and the most pieces of garbage in one operation."""

UNFLUSHED = 4 << 20
"""A collection stops when the table of chunk records has so many unflushed bytes, as each removal adds to them. The
rest of a deleted segment is collected after the next flush cycle."""


def collect_garbage(context: FlushContext, now: float, delay: float, covered: int) -> int:
    """Delete chunks that have been garbage for `delay` seconds and no metadata names (G1). Returns how many were
    deleted.

    Only garbage from before the last complete flush cycle began is collected (F2). now: the storage's time, seconds
    since the epoch. covered: garbage of operations with lower numbers is that old by other clocks too (see
    `engine.logs.age_evidence`). Several processes may collect at the same time.
    """
    before = int((now - delay) * 1000)
    _redate(context, now)
    _collect_attributes(context, before)
    collector = GarbageCollector(
        context.stores.chunks,
        context.records,
        ContainerGarbage(context.log, before=before, covered=covered),
        GarbageConfig(transaction_batch=BATCH),
        held=lambda names: _named(context.log.refresh(), names),
        should_continue=lambda: _unflushed(context.log.state) < UNFLUSHED,
    )
    return collector.run_once(now).deleted


def _redate(context: FlushContext, now: float) -> None:
    """Garbage that a wrong clock dated in the future is dated now (W13)."""
    tasks = [
        (name, garbage.kind, garbage.segment)
        for name, garbage in context.log.refresh().garbage.items()
        if not is_plausible(garbage.since / 1000, now)
    ]
    for start in range(0, len(tasks), BATCH):
        context.log.commit([QueueGarbage(tuple(tasks[start : start + BATCH]))])


def _named(state: State, chunks: Sequence[str]) -> list[str]:
    """Those of the chunks that the state names: they were attached again."""
    return [chunk for chunk in chunks if chunk in state.chunks]


def _unflushed(state: State) -> int:
    table = state.tables.get(STORAGE)
    return table.size if table is not None else 0


def _collect_attributes(context: FlushContext, before: int) -> None:
    """Remove what deleted segments left in the table of attributes."""
    for prefix, garbage in context.log.state.garbage.items():
        if garbage.kind == ATTRIBUTES_GARBAGE and garbage.since < before:
            keys = [key for key, _ in context.tables.scan(ATTRIBUTES, prefix)]
            for start in range(0, len(keys), BATCH):
                context.log.commit([PutEntry(ATTRIBUTES, key, None, None) for key in keys[start : start + BATCH]])
            context.log.commit([DequeueGarbage((prefix,))])
