"""From options to an open stream, and from the options' stream cuts to positions."""

from __future__ import annotations

import logging
from typing import Literal

from engine.errors import RootNotFound
from engine.root import Root
from engine.root_placement import misspelled
from pravega_spark.errors import StreamNotFound
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

log = logging.getLogger(__name__)

Access = Literal["read", "follow", "write"]
"""What a stream is opened for: a batch read, a streaming read, a write."""


def open_root_of(options: SourceOptions, access: Access) -> Root:
    """The root that the options name. Raises RootNotFound.

    A write creates it if it does not exist and its place is empty, unless an option forbids it; a read never does.
    """
    place = options.root, options.storage, options.wal
    try:
        root = open_root(*place, salvage=options.salvage)
    except RootNotFound as missing:
        if access != "write" or not (options.allow_create_scope and options.allow_create_stream):
            raise
        root = open_root(*place, salvage=options.salvage, create=True)
        if not misspelled(missing.root, missing.similar):  # else it is told where the root is made
            log.warning(
                "There was no root of streams in %s, so this write made a new one. Is it the place that you meant?",
                root.stores.chunks.root,
            )
    if access == "write":
        root.check_writable()
    return root


def open_stream(options: SourceOptions, access: Access) -> Stream:
    """The stream that the options name, created if allowed; by a batch read only on request.

    Raises RootNotFound, ScopeNotFound, StreamNotFound.
    """
    explicit = access == "read"
    return Catalog(open_root_of(options, access), suggesting=True).ensure_stream(
        options.scope,
        options.stream,
        create_scope=options.asked_to_create_scope if explicit else options.allow_create_scope,
        create_stream=options.asked_to_create_stream if explicit else options.allow_create_stream,
        scaling=options.scaling,
        retention=options.retention,
        level=_level(access),
    )


def open_stream_of(options: SourceOptions, name: str) -> Stream:
    """A stream of the options' scope, in a root that was there when it was planned what to do. Nothing is looked up."""
    return Catalog(open_root_of(options, "follow")).stream(options.scope, name)


def ensure_scope(options: SourceOptions, access: Access) -> None:
    """Make the scope of a write whose rows name their streams, or of a read by pattern, if that is allowed.

    Raises RootNotFound, ScopeNotFound.
    """
    Catalog(open_root_of(options, access), suggesting=True).ensure_scope(
        options.scope,
        create=options.asked_to_create_scope if access == "read" else options.allow_create_scope,
        level=_level(access),
    )


def _level(access: Access) -> int:
    """How it is told what was made: a read that finds nothing may name it wrongly."""
    return logging.INFO if access == "write" else logging.WARNING


def current_snapshot(options: SourceOptions, access: Access) -> Snapshot:
    """The stream as it is now, created if allowed."""
    try:
        return open_stream(options, access).snapshot()
    except StreamNotFound:
        return open_stream(options, access).snapshot()  # deleted since this process last looked, which is known by now


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
