"""FoldingStore: a storage that takes different names for the same one, as filesystems of macOS, Windows and SMB do."""

from __future__ import annotations

import builtins
import unicodedata
from collections.abc import Callable, Sequence

from chunkstore.errors import StorageError
from chunkstore.port import Data, ObjectInfo, Outcome, Parts, Range, Store, check_path
from chunkstore.wrapping import Request, Result, WrappingStore

RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
"""What Windows has no files of, with or without anything behind a dot."""

LONGEST_NAME = 255
"""Bytes of a name between two slashes."""


def folded(path: str) -> str:
    """What all names have in common that such a storage takes for one."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
    return "/".join(part.rstrip(". ") for part in text.split("/"))


class FoldingStore(WrappingStore):
    """A store whose names fold: case, Unicode normalisation, dots and spaces at the end.

    It shows the name of an object or folder as it was given first, and refuses names that are reserved or too long.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._names: dict[str, str] = {}  # of objects and folders, by their folded paths

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return call()

    def _name(self, path: str, *, new: bool = False) -> str:
        check_path(path)
        for part in path.split("/"):
            if part.partition(".")[0].rstrip(" ").lower() in RESERVED or len(part.encode()) > LONGEST_NAME:
                raise StorageError(f"{self.root}: {path!r}: the filesystem does not take such a name")
        shown, parts = [], path.split("/")
        for depth, part in enumerate(parts, 1):
            key = folded("/".join(parts[:depth]))
            shown.append(self._names.setdefault(key, part) if new else self._names.get(key, part))
        return "/".join(shown)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return super().read(self._name(path), start, end)

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        return super().read_into(self._name(path), start, room)

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        return super().read_ranges([each._replace(path=self._name(each.path)) for each in ranges])

    def put(self, path: str, data: Parts) -> None:
        super().put(self._name(path, new=True), data)

    def post(self, path: str, data: Parts) -> None:
        super().post(self._name(path, new=True), data)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        return super().put_if_absent(self._name(path, new=True), data)

    def append(self, path: str, offset: int, data: Data) -> None:
        super().append(self._name(path), offset, data)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        found = [info for info in super().list("", after) if folded(info.path).startswith(folded(prefix))]
        return found[:limit]

    def stat(self, path: str) -> ObjectInfo:
        return super().stat(self._name(path))

    def delete(self, paths: Sequence[str]) -> None:
        super().delete([self._name(path) for path in paths])
        for path in paths:
            self._names.pop(folded(path), None)
