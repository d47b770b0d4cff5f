"""Limits at which the product changes its ways, made small for a test. They are no settings: no user should touch them.

This is the one place of the tests that knows where each of them is.
"""

from __future__ import annotations

import pytest

from pravega_spark.streams.pravega_lts.segment_scan import SegmentScan


def inline_bytes(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """So much of a task's data travels in its commit message; more goes to chunks."""
    monkeypatch.setattr("pravega_spark.streams.writing.collector.INLINE_BYTES", limit)


def chunk_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """So much of a task's data is put into chunks at a time."""
    monkeypatch.setattr("pravega_spark.streams.writing.collector.CHUNK_BYTES", size)


def flushed_chunk_bytes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A flush makes chunks of at most so many bytes."""
    monkeypatch.setattr("engine.writer.flush_steps.MAX_CHUNK", most)


def own_chunk_bytes(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """So much of a task's data for one segment has a chunk of its own."""
    monkeypatch.setattr("pravega_spark.streams.writing.collector.OWN_CHUNK_BYTES", least)


def large_part_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A large event among the rows of a task is written in chunks of this size."""
    monkeypatch.setattr("pravega_spark.streams.writing.collector.LARGE_PART_BYTES", size)


def truncated_at_a_time(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A truncation of the log deletes so many frames by one request, and lists so many parts of checkpoints."""
    monkeypatch.setattr("engine.logs.truncation.BATCH", count)
    monkeypatch.setattr("engine.logs.checkpoint_parts._PAGE", count)


def scanned_at_a_time(monkeypatch: pytest.MonkeyPatch, step: int, unindexed: int) -> None:
    """A scan looks for `step` bytes at a time in the index, and needs it for no range of up to `unindexed` bytes."""
    monkeypatch.setattr("pravega_spark.streams.reading.scan.STEP", step)
    monkeypatch.setattr("pravega_spark.streams.reading.slices.MAX_UNINDEXED", unindexed)


def slice_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A slice of a reader group has so much."""
    monkeypatch.setattr("pravega_spark.client.groups.reader.SLICE_BYTES", size)


def slice_patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A reader without events waits so long before it returns an empty slice."""
    monkeypatch.setattr("pravega_spark.client.groups.reader.PATIENCE", seconds)


def queued_bytes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A writer holds back its caller once so much is queued."""
    monkeypatch.setattr("pravega_spark.client.writer.MAX_QUEUED", most)


def no_pause_between_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance looks at a stream after each commit."""
    monkeypatch.setattr("pravega_spark.streams.maintenance.scheduler.PAUSE", 0.0)


def resident_bytes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Tables of up to so many bytes stay in memory."""
    monkeypatch.setattr("engine.state.tables.RESIDENT_BYTES", most)


def cached_attributes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """So many attributes of a segment stay in memory."""
    monkeypatch.setattr("engine.writer.storage_writer.CACHED_ATTRIBUTES", most)


def chunks_per_index_block(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """So many chunks of a segment share a block of its index."""
    monkeypatch.setattr("chunkstore.segments.chunk_list.BLOCK_CHUNKS", most)


def import_step(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A segment in the old layout is imported by so many bytes at a time."""
    monkeypatch.setattr("pravega_spark.streams.pravega_lts.segment_import.STEP", size)


def least_sought(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A gap in the index of at least so many bytes may hold a large event."""
    monkeypatch.setattr("pravega_spark.streams.reading.large_events.LEAST_SOUGHT", size)


def archive_window(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """So much of a segment of a Pravega's storage is read at once when it is scanned."""
    monkeypatch.setattr(SegmentScan, "window", size)
