"""Collection of a container's garbage: chunks that nothing names any more, and what deleted segments left in the table
of attributes (G1, G2; Pravega: GarbageCollector of PDP-34)."""

from __future__ import annotations

from collections.abc import Sequence

from chunkstore.chunk_storage import ChunkStorage
from chunkstore.garbage_collector import GarbageCollector, GarbageConfig
from engine.clocks import is_plausible
from engine.state.operations import Collected, PutEntry, QueueGarbage
from engine.state.state import ATTRIBUTES_GARBAGE, State
from engine.state.tables import ATTRIBUTES, STORAGE
from engine.writer.data_source import WriterDataSource
from engine.writer.records import LogGarbage

BATCH = 1000
"""Entries removed, or pieces of garbage dealt with, by one operation, at most."""

UNFLUSHED = 4 << 20
"""Bytes of the table of chunks that may wait to be flushed, for a collection to go on: taking chunks out adds to them.
What is left of a deleted segment by then is collected after the next flush cycle."""


def collect_garbage(source: WriterDataSource, now: float, delay: float, covered: int) -> int:
    """Deal with what has been garbage for `delay` seconds, and became so before the last complete flush cycle began
    (F2): chunks are deleted if no metadata names them (G1). Returns how many were.

    now: the storage's time, seconds since the epoch. covered: what operations with lower numbers made garbage is so old
    by other clocks too (see `witness`). Doing it twice, or in several processes, does no harm.
    """
    before = int((now - delay) * 1000)
    _date_again(source, now)
    _collect_attributes(source, before)
    collector = GarbageCollector(
        ChunkStorage(source.stores.chunks),
        source.records,
        LogGarbage(source, before=before, covered=covered),
        GarbageConfig(transaction_batch=BATCH),
        held=lambda names: _named(source.refresh(), names),
        should_continue=lambda: _unflushed(source.state) < UNFLUSHED,
    )
    return collector.run_once(now).deleted


def _date_again(source: WriterDataSource, now: float) -> None:
    """What became garbage in the future, by a clock that was wrong, became garbage now (W13)."""
    tasks = [
        (name, garbage.kind, garbage.segment)
        for name, garbage in source.refresh().garbage.items()
        if not is_plausible(garbage.since / 1000, now)
    ]
    for start in range(0, len(tasks), BATCH):
        source.commit([QueueGarbage(tuple(tasks[start : start + BATCH]))])


def _named(state: State, chunks: Sequence[str]) -> list[str]:
    """Those of the chunks that the state names: they were attached once more."""
    return [chunk for chunk in chunks if chunk in state.chunks]


def _unflushed(state: State) -> int:
    table = state.tables.get(STORAGE)
    return table.size if table is not None else 0


def _collect_attributes(source: WriterDataSource, before: int) -> None:
    """Remove what deleted segments left in the table of attributes."""
    for prefix, garbage in source.state.garbage.items():
        if garbage.kind == ATTRIBUTES_GARBAGE and garbage.since < before:
            keys = [key for key, _ in source.scan_entries(ATTRIBUTES, prefix)]
            for start in range(0, len(keys), BATCH):
                source.commit([PutEntry(ATTRIBUTES, key, None, None) for key in keys[start : start + BATCH]])
            source.commit([Collected((prefix,))])
