"""Fetching events by their pointers without a StreamManager: in functions that Spark runs on its executors.

A root is opened once in each process, and stays open. Errors name pointers, never storage options.
"""

from __future__ import annotations

import os
import reprlib
import shutil
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.root import Root
from pravega_spark.client.large_events.event_file import EventPayload, open_event_file
from pravega_spark.parameters import checks
from pravega_spark.roots import open_root
from pravega_spark.streams.model.pointers import EventPointer

if TYPE_CHECKING:
    import pandas as pd

THREADS = 8
"""Events that are fetched in parallel from remote storage."""

_COPIED = 1 << 20


@checks
def fetch_event(
    pointer: EventPointer | str,
    root: str | os.PathLike[str],
    start: int = 0,
    end: int | None = None,
    *,
    wal: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> bytes:
    """The bytes `[start, end)` of an event's payload, by default all of it; fewer if the payload ends before.

    root, wal, storage_options: as for StreamManager. Raises NoSuchEvent if the event was truncated, InvalidEventPointer
    if the pointer is not the position of an event, ValueError for an invalid range, StorageError.
    """
    _check(start, end)
    return _read(_open(root, wal, storage_options), pointer, start, end)


@checks
def fetch_event_to_file(
    pointer: EventPointer | str,
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    wal: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Copy an event's payload to a local file, with little memory. Returns its size in bytes.

    The file appears when it is complete, and replaces an existing one. Raises the errors of `fetch_event`, and OSError
    if the file cannot be written.
    """
    target = os.fspath(path)
    part = f"{target}.{uuid.uuid4().hex}.part"
    with open_event_file(_open(root, wal, storage_options), pointer) as source:
        try:
            with open(part, "wb") as copy:
                shutil.copyfileobj(source, copy, _COPIED)
            os.replace(part, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.remove(part)
            raise
        return source.size


@checks
def fetch_events(
    pointers: pa.Array | pa.ChunkedArray | pd.Series,
    root: str | os.PathLike[str],
    start: int = 0,
    end: int | None = None,
    *,
    wal: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Array | pd.Series:
    """`fetch_event` for a column of pointers, as an Arrow or pandas UDF gets it; null for a null.

    Returns a binary column of the same kind: an Arrow array for an Arrow array, else a Series with the same index. All
    values are in memory: use it for few rows at a time, or for a range.
    """
    _check(start, end)
    arrow = isinstance(pointers, pa.Array | pa.ChunkedArray)
    if not arrow and type(pointers).__name__ != "Series":
        raise TypeError(
            f"fetch_events: pointers must be an Arrow array or a pandas Series, not {reprlib.repr(pointers)} "
            f"({type(pointers).__name__}): pyarrow.array(pointers) makes one of a list"
        )
    opened = _open(root, wal, storage_options)
    texts = pointers if arrow else pa.array(pointers, pa.string(), from_pandas=True)
    values = list(_each(opened, texts.to_pylist(), start, end))
    if arrow:
        large = sum(len(value) for value in values if value is not None) >= 1 << 31
        return pa.array(values, pa.large_binary() if large else pa.binary())
    return type(pointers)(values, index=pointers.index, name=pointers.name, dtype=object)


def _each(root: Root, texts: list[str | None], start: int, end: int | None) -> Iterable[bytes | None]:
    def read(text: str | None) -> bytes | None:
        return None if text is None else _read(root, text, start, end)

    if not root.stores.chunks.remote:
        return map(read, texts)
    with ThreadPoolExecutor(THREADS, "events") as pool:
        return pool.map(read, texts)


def _read(root: Root, pointer: EventPointer | str, start: int, end: int | None) -> bytes:
    payload = EventPayload.at(root, pointer)
    stop = payload.size if end is None else min(end, payload.size)
    return bytes(payload.read(start, stop)) if start < stop else b""


def _check(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < start):
        raise ValueError(
            f"the range of an event must start at 0 or more and end at its start or later, not from {start} to {end}"
        )


def _open(root: str | os.PathLike[str], wal: str | None, storage_options: Mapping[str, Any] | None) -> Root:
    return open_root(os.fspath(root), storage_options, wal)
