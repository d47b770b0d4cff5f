"""A query whose checkpoint lies in the root, where folders are scopes, is refused; no other query on that root is.

Spark tells neither a source nor a sink where the query's checkpoint is, and makes it before it asks them. So a query is
known by what its checkpoint has: the id of the query, its last offsets, or no offsets yet. Only folders are looked
through: in a bucket it would cost a listing of all that the root has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pravega_spark.source.options import SourceOptions


def refuse_for_new_query(options: SourceOptions) -> None:
    """Raise ValueError if a checkpoint in the root may be that of a query that has had no batch yet."""
    for place in _within(options.root):
        if not _offsets(place):
            raise _refused(
                place,
                options,
                "No new query on this root starts until you move or delete this folder. If it is this "
                "query's, also give it",
            )


def refuse_for_restarted_query(options: SourceOptions, position: Any) -> None:
    """Raise ValueError if the checkpoint lies in the root of which a query's position is the newest offset."""
    for place in _within(options.root):
        if position in _offsets(place):
            raise _refused(place, options, "Move this folder, and give the query the new place as")


def refuse_for_query(options: SourceOptions, query_id: str) -> None:
    """Raise ValueError if the checkpoint of the query of this id lies in the root."""
    for place in _within(options.root):
        if _query_id(place) == query_id:
            raise _refused(place, options, "Move or delete this folder, and give the query")


def _refused(place: str, options: SourceOptions, advice: str) -> ValueError:
    return ValueError(
        f"{place} is the checkpoint of a streaming query, and lies in the root of the streams, {options.root}, whose "
        f"folders are scopes. {advice} a checkpointLocation outside of the root."
    )


def _within(root: str) -> Iterator[str]:
    """The checkpoints in the folder of a root."""
    scheme, marked, place = root.partition("://")
    if marked and scheme != "file":
        return
    with suppress(OSError), os.scandir(place if marked else root) as entries:
        for entry in entries:
            if os.path.isfile(f"{entry.path}/metadata") and os.path.isdir(f"{entry.path}/offsets"):
                yield entry.path


def _query_id(place: str) -> Any:
    with suppress(OSError, ValueError, RecursionError), open(f"{place}/metadata", encoding="utf-8") as metadata:
        found = json.load(metadata)
        return found.get("id") if isinstance(found, dict) else None
    return None


def _offsets(place: str) -> list[Any]:
    """The end offsets of the newest batch of a checkpoint, one for each source; empty if it has no batch."""
    with suppress(OSError):
        batches = [int(name) for name in os.listdir(f"{place}/offsets") if name.isascii() and name.isdigit()]
        if batches:
            with open(f"{place}/offsets/{max(batches)}", encoding="utf-8", errors="replace") as content:
                return [_value(line) for line in content]
    return []


def _value(line: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None
