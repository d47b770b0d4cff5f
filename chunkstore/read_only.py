"""A store that is only read, such as the long-term storage of a Pravega.

Every verb that writes raises RootReadOnly before any request is sent.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from chunkstore.errors import StorageRefused
from chunkstore.port import Data, ObjectInfo, Parts, Range, Store


class RootReadOnly(StorageRefused):
    """A change of something that can only be read: the long-term storage of a Pravega. root: where it is."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{root} is the long-term storage of a Pravega, which is read in place and never changed. To write, import "
            f"it into a root of its own first: `pravega-spark --root ROOT import {root}`"
        )
        self.root = root


class ReadOnlyStore(Store):
    """Reads pass to another store."""

    can_append = False
    host_clock = True

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.root = inner.root
        self.remote = inner.remote

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self._inner.read(path, start, end)

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        return self._inner.read_into(path, start, room)

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        return self._inner.read_ranges(ranges)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._inner.list(prefix, after, limit)

    def stat(self, path: str) -> ObjectInfo:
        return self._inner.stat(path)

    def neighbours(self) -> builtins.list[str]:
        return self._inner.neighbours()

    def passed_over(self) -> Mapping[str, str]:
        return self._inner.passed_over()

    def put(self, path: str, data: Parts) -> NoReturn:
        raise RootReadOnly(self.root)

    def put_if_absent(self, path: str, data: Parts) -> NoReturn:
        raise RootReadOnly(self.root)

    def append(self, path: str, offset: int, data: Data) -> NoReturn:
        raise RootReadOnly(self.root)

    def set_read_only(self, path: str, read_only: bool) -> NoReturn:
        raise RootReadOnly(self.root)

    def delete(self, paths: Sequence[str]) -> NoReturn:
        raise RootReadOnly(self.root)

    def clock(self) -> float:
        """This host's time: nothing is put here to learn the storage's, and nothing is deleted by it."""
        return time.time()

    def close(self) -> None:
        self._inner.close()
