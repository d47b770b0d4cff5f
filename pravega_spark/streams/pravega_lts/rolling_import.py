"""A stream from a segment that old code wrote in its own layout (`engine.admin.rolling_segments`).

The chunks are attached to the stream's segment in place, once all their events were checked (S3): an import from the
root into itself (`segment_import`), in one step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from chunkstore import Store
from chunkstore.pravega.archived_segments import ArchivedChunk
from chunkstore.pravega.source import ArchiveDamaged
from engine.admin.progress import Progress, no_progress
from engine.admin.rolling_segments import RollingSegment, check_unused, creation_time_of, find_rolling_segment
from engine.root import Root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.index import decode_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.pravega_lts.event_scanner import BrokenEvent
from pravega_spark.streams.pravega_lts.segment_import import SegmentContent, SegmentImport, SegmentSource, Sizes
from pravega_spark.streams.pravega_lts.stream_import import ImportRefused
from pravega_spark.streams.pravega_lts.unfinished_imports import unkept
from pravega_spark.streams.writing.writes import SegmentAppend

_AT_ONCE = Sizes(kept=sys.maxsize, logged=sys.maxsize)


class Imported(NamedTuple):
    """The imported numbers of events, bytes and chunks. header: the deleted object, if there was one."""

    events: int
    bytes: int
    chunks: int
    header: str | None


def import_segment(
    root: Root, segment: str, scope: str, name: str, progress: Progress = no_progress, *, dry_run: bool = False
) -> Imported:
    """Create a stream of one segment from the events of a segment in the old layout, without moving data.

    The chunks belong to the stream then, and the header is deleted: old code must not use them any more. dry_run:
    check everything, and change nothing. Raises SegmentNotFound, InvalidHeader, HeaderRefused, ImportRefused,
    ScopeNotFound, StorageError.
    """
    store = root.stores.chunks
    found = find_rolling_segment(store, segment)
    chunks = [chunk for chunk, _ in found.chunks]
    check_unused(root, chunks)
    catalog = Catalog(root, suggesting=True)
    catalog.check_scope(scope)
    stream = catalog.stream(scope, name)
    if stream.exists():
        raise _exists(stream.key)
    content = _content(store, found, stream.key, progress)
    done = Imported(content.events, found.length, len(found.chunks), found.header)
    if dry_run:
        return done
    if not catalog.create_stream(scope, name, ScalingPolicy("fixed", 1)):
        raise _exists(stream.key)
    if found.length:
        created, number = creation_time_of(store, chunks), stream.snapshot().record.current.segments[0].id
        assert isinstance(content.records, bytes)
        records = decode_records(content.records)
        stream.write([SegmentAppend(number, content.extents, records, content.events, created)])
    if found.header is not None:
        store.delete([found.header])
    return done


def _exists(stream: str) -> ImportRefused:
    return ImportRefused(f"stream {stream} exists already; give the name of a new stream")


def _content(store: Store, found: RollingSegment, stream: str, progress: Progress) -> SegmentContent:
    """The chunks of a segment, once all events were checked. Raises ImportRefused if they are not events."""
    chunks, place = [], 0
    for name, length in found.chunks:
        chunks += [ArchivedChunk(name, place, length)] if length else []
        place += length
    source = SegmentSource(0, found.name, 0, found.length, tuple(chunks), events=True, open=True)
    told = _summed(lambda done: progress(found.name, done, found.length))
    try:
        return SegmentImport(store, store, unkept(store, stream), source, False, _AT_ONCE, told).run()
    except ArchiveDamaged as error:
        why = error.__cause__ if isinstance(error.__cause__, BrokenEvent) else error
        raise ImportRefused(f"segment {found.name!r}, {why}; nothing was imported") from error


def _summed(tell: Callable[[int], None]) -> Callable[[int], None]:
    done = 0

    def told(more: int) -> None:
        nonlocal done
        done += more
        tell(done)

    return told
