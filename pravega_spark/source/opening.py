"""From options to an open stream, and from the options' stream cuts to positions."""

from __future__ import annotations

from pravega_spark.errors import StreamNotFound
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream


def open_stream(options: SourceOptions) -> Stream:
    """The stream that the options name, made if need be and allowed, as readers and writers do."""
    root = open_root(options.root, options.storage, options.wal)
    return Catalog(root).ensure_stream(
        options.scope,
        options.stream,
        create_scope=options.allow_create_scope,
        create_stream=options.allow_create_stream,
        scaling=options.scaling,
        retention=options.retention,
    )


def look(options: SourceOptions) -> Snapshot:
    """The stream as it is now, made if need be and allowed."""
    try:
        return open_stream(options).snapshot()
    except StreamNotFound:
        return open_stream(options).snapshot()  # it was deleted since this process last looked, which is known by now


def resolve_cut(snapshot: Snapshot, text: str, unbounded: StreamCut) -> StreamCut:
    """The cut that a keyword or a text means. Raises InvalidStreamCut or ValueError."""
    if text == "earliest":
        return snapshot.head_cut()
    if text == "latest":
        return snapshot.tail_cut()
    if text in ("unbounded", "UNBOUNDED"):
        return unbounded
    cut = StreamCut.from_text(text)
    snapshot.check(cut)
    return cut
