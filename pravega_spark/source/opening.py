"""Opens the root and streams that options name, and resolves the stream cuts that options give."""

from __future__ import annotations

import logging
from typing import Literal

from engine.errors import RootNotFound
from engine.root import Root
from engine.root_placement import misspelled
from pravega_spark.errors import StreamNotFound
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog, Creation
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import not_applied
from pravega_spark.streams.model.stream_record import StreamRecord
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

log = logging.getLogger(__name__)

Access = Literal["read", "follow", "write"]
"""The use of an opened stream: a batch read, a streaming read, a write."""


def open_root_of(options: SourceOptions, access: Access) -> Root:
    """The root that the options name. Raises RootNotFound.

    A write creates it if it does not exist and its folder or bucket is empty, unless an option forbids it. A read never
    creates a root.
    """
    try:
        root = open_root(**options.opening)
    except RootNotFound as missing:
        if access != "write" or not (options.allow_create_scope and options.allow_create_stream):
            raise
        root = open_root(**options.opening, create=True)
        if not misspelled(missing.root, missing.similar):  # else creating the root has logged it
            log.warning(
                "There was no root of streams in %s, so this write created one. Check that this is the URL "
                "that you meant.",
                root.stores.chunks.root,
            )
    if access == "write":
        root.check_writable()
    return root


def open_stream(options: SourceOptions, access: Access) -> Stream:
    """The stream that the options name, created if allowed; by a batch read only if an option asks for it, and by a
    streaming read only if an option asks for it or no other name is probably meant: its query would wait for events
    forever.

    Raises RootNotFound, ScopeNotFound, StreamNotFound.
    """
    return Catalog(open_root_of(options, access), suggesting=True).ensure_stream(
        options.scope,
        options.stream,
        create_scope=_creation(access, options.allow_create_scope, options.asked_to_create_scope),
        create_stream=_creation(access, options.allow_create_stream, options.asked_to_create_stream),
        scaling=options.scaling,
        retention=options.retention,
        level=_level(access),
    )


def open_stream_of(options: SourceOptions, name: str) -> Stream:
    """A stream of the options' scope, in a root that the plan has opened. Requests nothing."""
    return Catalog(open_root_of(options, "follow")).stream(options.scope, name)


def ensure_scope(options: SourceOptions, access: Access) -> None:
    """Create the scope of a write whose rows name their streams, or of a read by pattern, if that is allowed.

    Raises RootNotFound, ScopeNotFound.
    """
    Catalog(open_root_of(options, access), suggesting=True).ensure_scope(
        options.scope,
        create=_creation(access, options.allow_create_scope, options.asked_to_create_scope),
        level=_level(access),
    )


def _creation(access: Access, allowed: bool, asked: bool) -> Creation:
    """Whether an access creates what does not exist. allowed: by the option or its default. asked: by the option."""
    if asked or (allowed and access == "write"):
        return Creation.ALWAYS
    return Creation.UNLESS_TYPO if allowed and access == "follow" else Creation.NEVER


def _level(access: Access) -> int:
    """The log level for a created stream: if a read has to create it, the name may be wrong."""
    return logging.INFO if access == "write" else logging.WARNING


def current_snapshot(options: SourceOptions, access: Access) -> Snapshot:
    """The stream as it is now, created if allowed."""
    try:
        return open_stream(options, access).snapshot()
    except StreamNotFound:
        return open_stream(options, access).snapshot()  # it was deleted, which this process has learned by now


_NOT_APPLIED: set[tuple[object, ...]] = set()
"""Writes with policies that their stream does not have, which this process has logged: each micro-batch is one."""


def log_not_applied(options: SourceOptions, record: StreamRecord) -> None:
    """Log as a warning which policies of the options an existing stream does not have, once in a process."""
    facts = list(not_applied(options.scaling, options.retention, (record.scaling, record.retention)))
    key = (options.root, options.scope, options.stream, *facts)
    if facts and key not in _NOT_APPLIED:
        _NOT_APPLIED.add(key)
        name = f"{options.scope}/{options.stream}"
        log.warning(
            "Stream %s exists already, so the options that start with 'default_' do not change it: %s. `pravega-spark "
            "stream update %s` changes policies, and `stream scale` the number of segments.",
            name,
            ", and ".join(facts),
            name,
        )


def resolve_cut(snapshot: Snapshot, text: str, unbounded: StreamCut) -> StreamCut:
    """The cut of a keyword or a text. Raises InvalidStreamCut or ValueError."""
    if text == "earliest":
        return snapshot.head_cut()
    if text == "latest":
        return snapshot.tail_cut()
    if text in ("unbounded", "UNBOUNDED"):
        return unbounded
    cut = snapshot.resolved(StreamCut.from_text(text))
    snapshot.check(cut)
    return cut
