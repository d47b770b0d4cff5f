"""Objects in this process's memory, in the store of fsspec's memory filesystem, for trials and tests.

They are what `fsspec.filesystem("memory")` shows at the same paths. The filesystem's own create checks and then writes;
here a create is one `dict.setdefault`, which is atomic.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from chunkstore import stamps
from chunkstore.errors import InvalidOffset, ObjectNotFound, ObjectReadOnly
from chunkstore.port import (
    Data,
    ObjectInfo,
    Outcome,
    Parts,
    Store,
    check_path,
    check_prefix,
    check_range,
    joined,
    token_of,
)

_files: dict[str, MemoryFile] = MemoryFileSystem.store
_contents = threading.RLock()  # a file has one position and may be growing: every access holds this


class MemoryStore(Store):
    """Objects below memory://`folder`, shared by all stores of this process and gone with it."""

    remote = False
    can_append = True
    host_clock = True

    def __init__(self, folder: str) -> None:
        folder = folder.strip("/")
        if folder:
            check_path(folder)
        self.root = f"memory://{folder}"
        self._base = f"/{folder}/" if folder else "/"

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        check_range(path, start, end)
        file = self._file(path)
        with _contents:
            file.seek(start)
            return bytes(file.read(-1 if end is None else end - start))

    def put(self, path: str, data: Parts) -> None:
        key = self._key(path)
        _files[key] = self._new_file(key, joined(data))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        key = self._key(path)
        new = self._new_file(key, joined(data))
        stamps.note(new.modified.timestamp())
        if _files.setdefault(key, new) is new or self.holds(path, data):
            return Outcome.MINE
        return Outcome.ANOTHERS

    def append(self, path: str, offset: int, data: Data) -> None:
        file = self._file(path)
        with _contents:
            size = self._size_to_change(path, file)
            if size != offset:
                raise InvalidOffset(
                    f"{self.root}: {path!r} has {size} bytes, cannot append at {offset}", expected=size, given=offset
                )
            file.write(data)
            file.modified = _now()

    def link(self, path: str, source: Store, name: str) -> None:
        if isinstance(source, MemoryStore):
            self.put(path, source.read(name))  # which is the same here
        else:
            super().link(path, source, name)

    def set_read_only(self, path: str, read_only: bool) -> None:
        self._file(path).read_only = read_only

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        skip = len(self._base)
        below = self._base + prefix
        # list(dict) is one step under the GIL; iterating over the dict itself would trip over concurrent puts.
        paths = sorted(key[skip:] for key in list(_files) if key.startswith(below) and key[skip:] > after)
        return list(itertools.islice(self._existing(paths), limit))

    def stat(self, path: str) -> ObjectInfo:
        file = self._file(path)
        with _contents:
            return ObjectInfo(path, file.seek(0, 2), file.modified.timestamp())

    def mark(self, path: str) -> Hashable:
        file = _files.get(self._key(path))
        return (id(file), file.modified) if file is not None else ()

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            _files.pop(self._key(path), None)

    def clock(self) -> float:
        return _now().timestamp()

    def _existing(self, paths: Iterable[str]) -> Iterator[ObjectInfo]:
        for path in filter(self._can_name, paths):
            with contextlib.suppress(ObjectNotFound):
                yield self.stat(path)

    def _key(self, path: str) -> str:
        check_path(path)
        return self._base + path

    def _file(self, path: str) -> MemoryFile:
        try:
            return _files[self._key(path)]
        except KeyError:
            raise ObjectNotFound(f"{self.root}: there is no object {path!r}") from None

    def _size_to_change(self, path: str, file: MemoryFile) -> int:
        if getattr(file, "read_only", False):
            raise ObjectReadOnly(f"{self.root}: {path!r} is read-only: put a new object instead")
        size: int = file.seek(0, 2)
        return size

    @staticmethod
    def _new_file(key: str, data: Data) -> MemoryFile:
        return MemoryFile(fsspec.filesystem("memory"), key, bytes(data))


def _now() -> datetime:
    return datetime.now(timezone.utc)


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return MemoryStore(place)
