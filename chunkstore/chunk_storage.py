"""Chunks: objects that hold users' bytes and nothing else, of which segments are made (S2).

`ChunkStorage` is what the segment layer sees of a store. It adds to the store's verbs what chunks need: they are made
once under names that are never used again, they are written at their end only, their handles say what may be done with
them, and every operation is logged and measured, in one place (`_measured`).
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.errors import (
    ChunkAlreadyExists,
    ChunkNotFound,
    ChunkStorageFull,
    ObjectNotFound,
    ObjectReadOnly,
    StorageFull,
    Unsupported,
)
from chunkstore.metrics import Measurement, Metrics, default_metrics
from chunkstore.port import ObjectInfo, Parts, Store, joined, length_of

_log = logging.getLogger(__name__)


class ChunkHandle(NamedTuple):
    """A chunk for reading (`read_only`), or for writing too."""

    name: str
    read_only: bool


class ChunkInfo(NamedTuple):
    """A chunk in the storage: its size in bytes, and when it was last changed by the storage's clock (epoch s)."""

    name: str
    length: int
    modified: float


class ChunkStorage:
    """The chunks in `store`. Methods may be called by many threads, and raise StorageError or one of its subclasses.

    With `appends` off chunks do not grow even where the storage could add to them. `metrics` is where operations
    are measured, as the layer "chunks": those of this process if None.

    ChunkNotFound, ChunkStorageFull, and ValueError for a name that is no storage path, may be raised by every method.
    """

    def __init__(self, store: Store, *, appends: bool = True, metrics: Metrics | None = None) -> None:
        self.store = store
        self._appends = appends
        self._layer = (metrics or default_metrics()).layer("chunks")

    @property
    def supports_append(self) -> bool:
        """Whether bytes can be added to a chunk."""
        return self._appends and self.store.can_append

    def create_with_content(self, name: str, data: Parts) -> ChunkHandle:
        """Make a chunk of `data`: whole or not at all. Raises ChunkAlreadyExists.

        Whether the name is free is looked up first, and not decided in one step with the making: two that make one name
        at once may both succeed. Chunks hold no token by which to settle that, so names must be unique (uuid4). After
        an error the name must not be used again: the chunk may appear yet.
        """
        with self._measured("create_with_content", name) as measurement:
            self._check_free(name)
            self.store.put(name, data)
            measurement.bytes = length_of(data)
            return ChunkHandle(name, read_only=False)

    def delete(self, handle: ChunkHandle) -> None:
        """Delete a chunk; nothing happens if it is gone. Raises ObjectReadOnly."""
        with self._measured("delete", handle.name):
            self._check_writable(handle)
            self.store.delete([handle.name])

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete chunks, in as few requests as the storage allows; those that are gone do no harm.

        After an error some of them may be there. Raises ObjectReadOnly.
        """
        with self._measured("delete_all", names[0]):
            self.store.delete(names)

    def info(self, name: str) -> ChunkInfo:
        """Size and time of a chunk. Raises ChunkNotFound."""
        with self._measured("info", name):
            return _chunk_info(self.store.stat(name))

    def read(self, handle: ChunkHandle, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer where the chunk ends before. Raises ChunkNotFound."""
        with self._measured("read", handle.name, offset) as measurement:
            _check_not_negative(handle.name, "length", length)
            data = self.store.read(handle.name, offset, offset + length)
            measurement.bytes = len(data)
            return data

    def read_into(self, handle: ChunkHandle, offset: int, room: memoryview) -> int:
        """Fill `room` from `offset` on; how many bytes there were. Raises ChunkNotFound."""
        with self._measured("read_into", handle.name, offset) as measurement:
            measurement.bytes = self.store.read_into(handle.name, offset, room)
            return measurement.bytes

    def write(self, handle: ChunkHandle, offset: int, data: Parts) -> int:
        """Add `data` at the end of the chunk, which must be at `offset`; how many bytes that were.

        Durable on return. After an error some of it may be there, or all. Raises InvalidOffset, ObjectReadOnly,
        ChunkNotFound, and Unsupported where chunks cannot grow.
        """
        with self._measured("write", handle.name, offset) as measurement:
            self._check_writable(handle)
            _check_not_negative(handle.name, "offset", offset)
            if not self.supports_append:
                raise Unsupported(f"{self.store.root}: {handle.name!r} cannot grow: write a new chunk")
            self.store.append(handle.name, offset, joined(data))
            measurement.bytes = length_of(data)
            return measurement.bytes

    def set_read_only(self, handle: ChunkHandle, read_only: bool) -> None:
        """Let the storage refuse changes to a chunk, or take them again. Raises ChunkNotFound and Unsupported."""
        with self._measured("set_read_only", handle.name):
            self.store.set_read_only(handle.name, read_only)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ChunkInfo]:
        """Chunks in the folder `prefix` ("a/b/", "" = all) with a name > `after`, sorted, at most `limit`."""
        with self._measured("list", prefix):
            return [_chunk_info(found) for found in self.store.list(prefix, after, limit)]

    @contextlib.contextmanager
    def _measured(self, operation: str, name: str, offset: int = 0) -> Iterator[Measurement]:
        """Log and measure an operation, and turn the store's errors into those of chunks."""
        started = time.perf_counter()
        outcome = "done"
        try:
            with self._layer.measure(operation) as measurement, _errors_of_chunks():
                yield measurement
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            seconds = time.perf_counter() - started
            moved = measurement.bytes
            _log.debug("%s %r at %d: %s, %d bytes, %.4f s", operation, name, offset, outcome, moved, seconds)

    def _check_free(self, name: str) -> None:
        try:
            self.store.stat(name)
        except ObjectNotFound:
            return
        raise ChunkAlreadyExists(f"{self.store.root}: there is a chunk {name!r} already: make it under a new name")

    def _check_writable(self, handle: ChunkHandle) -> None:
        if handle.read_only:
            raise ObjectReadOnly(
                f"{self.store.root}: {handle.name!r} was opened for reading only: use a handle for writing"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"


@contextlib.contextmanager
def _errors_of_chunks() -> Iterator[None]:
    try:
        yield
    except ObjectNotFound as error:
        raise ChunkNotFound(str(error)) from error
    except StorageFull as error:
        raise ChunkStorageFull(str(error)) from error


def _chunk_info(found: ObjectInfo) -> ChunkInfo:
    return ChunkInfo(found.path, found.size, found.modified)


def _check_not_negative(name: str, what: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{what} {value} in {name!r} is negative")
