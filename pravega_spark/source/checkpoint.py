"""Reads the position of a streaming query from its checkpoint, the files that Spark writes to `checkpointLocation`.

Spark writes the end offsets of a batch to `offsets/<batch>` before the batch runs, and `commits/<batch>` when it is
done. An end offset is a stream cut's text, or one for each stream (see `offset`). This module writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from chunkstore import Store
from pravega_spark.errors import InvalidStreamCut, StreamError
from pravega_spark.source.offset import cuts_of
from pravega_spark.storage_options import open_checked
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut


class NoCheckpoint(StreamError):
    """There is no checkpoint, or it has no finished batch of a query that reads the stream."""

    def __init__(self, place: str, stream: str, is_checkpoint: bool, is_empty: bool = False) -> None:
        what = "is not the checkpoint"
        if is_checkpoint:
            what = "has no finished batch"
        elif is_empty:
            what = "does not exist or has no files, so it is not the checkpoint"
        super().__init__(
            f"{place} {what} of a query that reads {f'stream {stream}' if stream else 'a stream'}: give the "
            "checkpointLocation of such a query, after its first batch"
        )
        self.place = place
        self.stream = stream


def query_position(place: str, scope: str, stream: str, options: Mapping[str, Any] | None = None) -> StreamCut:
    """The stream cut up to which a query has read a stream: the end of its last finished batch.

    place: the query's checkpointLocation, a folder or a URL. options: for its fsspec filesystem. Raises NoCheckpoint,
    StorageError.
    """
    content, begun, is_empty, root = _last_batch(place, options)
    for cut in _cuts(content):
        if (cut.scope, cut.stream) == (scope, stream):
            return cut
    raise NoCheckpoint(root, f"{scope}/{stream}", begun, is_empty)


def query_positions(place: str, options: Mapping[str, Any] | None = None) -> list[StreamCut]:
    """The stream cuts up to which a query has read, one of each stream that it reads. See `query_position`."""
    content, begun, is_empty, root = _last_batch(place, options)
    found = list(_cuts(content))
    if not found:
        raise NoCheckpoint(root, "", begun, is_empty)
    return found


def _last_batch(place: str, options: Mapping[str, Any] | None) -> tuple[bytes, bool, bool, str]:
    """The end offsets of the last finished batch; whether any batch was begun, whether there is nothing at all, and
    the place."""
    store = open_checked(place, options)
    try:
        begun = _batches(store, "offsets")
        done = sorted(_batches(store, "commits") & begun)
        content = store.read(f"offsets/{done[-1]}") if done else b""
        is_empty = not begun and next(iter(store.list("")), None) is None
    finally:
        store.close()
    return content, bool(begun), is_empty, store.root


def _batches(store: Store, folder: str) -> set[int]:
    names = (entry.path.rpartition("/")[2] for entry in store.list(f"{folder}/"))
    return {int(name) for name in names if name.isascii() and name.isdigit()}


def _cuts(content: bytes) -> Iterator[StreamCut]:
    """The stream cuts among the end offsets of a batch, which may have other sources too."""
    for line in content.decode(errors="replace").splitlines():
        try:
            cuts = cuts_of(json.loads(line))
        except (ValueError, RecursionError, InvalidStreamCut):
            continue
        yield from (cut for cut in cuts.values() if cut != UNBOUNDED)
