"""A store that signs the objects of a root's log, and checks their signatures whenever they are read (W20).

Behind the bytes of each object whose path `signs` names stands its signature, which nobody above this store sees. An
object is read whole, whatever part of it is asked for, as its signature is that of all of it. All other objects pass
through: chunks, and the tables in LTS.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import replace

from chunkstore import ObjectInfo, Outcome, Range, Store
from chunkstore.errors import Unsupported
from chunkstore.paths import is_signed
from chunkstore.port import Data, Parts, check_range, pieces_of
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.errors import BadSignature
from engine.signatures import SIGNATURE, SigningKey

WHOLE_AT_ONCE = 16
"""Signed objects that one call reads at most, as they are in memory together: frames have up to 8 MiB."""


class SignedStore(WrappingStore):
    """Signs what goes to `inner`, and checks what comes from there. signs: whether an object with a path is signed.

    Reads raise BadSignature. An object's size is that without the signature.
    """

    def __init__(self, inner: Store, key: SigningKey, signs: Callable[[str], bool] = is_signed) -> None:
        super().__init__(inner)
        self._key = key
        self._signs = signs

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return call()

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, path: str, data: Parts) -> None:
        self.inner.put(path, self._signed(path, data))

    def post(self, path: str, data: Parts) -> None:
        self.inner.post(path, self._signed(path, data))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        return self.inner.put_if_absent(path, self._signed(path, data))

    def append(self, path: str, offset: int, data: Data) -> None:
        if self._signs(path):
            raise Unsupported(f"{self.root}: {path!r} is signed, so nothing can be appended to it; put a new object")
        self.inner.append(path, offset, data)

    def link(self, path: str, source: Store, name: str) -> None:
        if self._signs(path):
            raise Unsupported(f"{self.root}: {path!r} is signed, so no object can be linked there: copy it")
        self.inner.link(path, source, name)

    def _signed(self, path: str, data: Parts) -> Parts:
        if not self._signs(path):
            return data
        return [*pieces_of(data), self._key.sign(path, data)]

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        if not self._signs(path):
            return self.inner.read(path, start, end)
        check_range(path, start, end)
        return bytes(self._checked(path, self.inner.read(path))[start:end])

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        if not self._signs(path):
            return self.inner.read_into(path, start, room)
        check_range(path, start, start + room.nbytes)
        data = self._checked(path, self.inner.read(path))[start : start + room.nbytes]
        room[: len(data)] = data
        return len(data)

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        signed = [self._signs(path) for path, _, _ in ranges]
        if not any(signed):
            return self.inner.read_ranges(ranges)
        for each in ranges:
            check_range(*each)
        results: list[bytes | None] = []
        for first in range(0, len(ranges), WHOLE_AT_ONCE):
            part = slice(first, first + WHOLE_AT_ONCE)
            results += self._read_some(ranges[part], signed[part])
        return results

    def _read_some(self, ranges: Sequence[Range], signed: Sequence[bool]) -> builtins.list[bytes | None]:
        wanted = [Range(each.path) if whole else each for each, whole in zip(ranges, signed, strict=True)]
        once = list(dict.fromkeys(wanted))  # several parts of an object need it once
        found = dict(zip(once, self.inner.read_ranges(once), strict=True))
        checked = {each.path for each, whole in zip(ranges, signed, strict=True) if whole}
        contents = {
            each.path: self._checked(each.path, data)
            for each, data in found.items()
            if each.path in checked and data is not None
        }
        return [
            bytes(contents[each.path][each.start : each.end]) if each.path in contents else found[asked]
            for each, asked in zip(ranges, wanted, strict=True)
        ]

    def _checked(self, path: str, stored: bytes) -> memoryview:
        """The bytes of an object, without its signature, which has to fit."""
        data, signature = memoryview(stored)[:-SIGNATURE], stored[-SIGNATURE:]
        if not self._key.fits(path, data, signature):
            raise self._forged(path)
        return data

    def _forged(self, path: str) -> BadSignature:
        problem = (
            "its signature does not fit: it was tampered with, or copied from elsewhere, or written by a process "
            f"without key {self._key.id!r}"
        )
        error = BadSignature(f"{self.root}: {path}: {problem}")
        error.problem = problem
        return error

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return [self._shown(info) for info in self.inner.list(prefix, after, limit)]

    def stat(self, path: str) -> ObjectInfo:
        return self._shown(self.inner.stat(path))

    def _shown(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, size=max(info.size - SIGNATURE, 0)) if self._signs(info.path) else info
