"""The base of stores that go around another store: every verb passes one method, as a `Request`."""

from __future__ import annotations

import abc
import builtins
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from chunkstore.port import Data, ObjectInfo, Outcome, Parts, Range, Store, length_of
from chunkstore.room import USERS_DATA

WRITES = frozenset({"put", "post", "put_if_absent", "append", "link", "set_read_only", "delete"})
"""The verbs that change what is stored."""

Result = TypeVar("Result")


class Request(NamedTuple):
    """One call of a verb. `paths` are the objects named (for `list` the prefix, for what is about no object
    ""), `sent` the bytes of data given."""

    verb: str
    paths: tuple[str, ...]
    sent: int = 0


def bytes_in(result: object) -> int:
    """How many bytes were read, by what a verb returned."""
    if isinstance(result, int):  # of read_into
        return result
    if isinstance(result, bytes):
        return len(result)
    if isinstance(result, list):
        return sum(len(piece) for piece in result if isinstance(piece, bytes))
    return 0


class WrappingStore(Store):
    """Passes every call of the verbs through `_carry_out`, which decides what becomes of it."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.root = inner.root
        self.remote = inner.remote
        self.can_append = inner.can_append
        self.host_clock = inner.host_clock
        self.dated = inner.dated

    @abc.abstractmethod
    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        """What the caller of `request` gets; `call` sends it to the inner store."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self._carry_out(Request("read", (path,)), lambda: self.inner.read(path, start, end))

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        return self._carry_out(Request("read_into", (path,)), lambda: self.inner.read_into(path, start, room))

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        paths = tuple(path for path, _, _ in ranges)
        return self._carry_out(Request("read_ranges", paths), lambda: self.inner.read_ranges(ranges))

    def put(self, path: str, data: Parts) -> None:
        return self._carry_out(Request("put", (path,), length_of(data)), lambda: self.inner.put(path, data))

    def post(self, path: str, data: Parts) -> None:
        return self._carry_out(Request("post", (path,), length_of(data)), lambda: self.inner.post(path, data))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        request = Request("put_if_absent", (path,), length_of(data))
        return self._carry_out(request, lambda: self.inner.put_if_absent(path, data))

    def append(self, path: str, offset: int, data: Data) -> None:
        request = Request("append", (path,), memoryview(data).nbytes)
        return self._carry_out(request, lambda: self.inner.append(path, offset, data))

    def link(self, path: str, source: Store, name: str) -> None:
        return self._carry_out(Request("link", (path,)), lambda: self.inner.link(path, source, name))

    def set_read_only(self, path: str, read_only: bool) -> None:
        return self._carry_out(Request("set_read_only", (path,)), lambda: self.inner.set_read_only(path, read_only))

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._carry_out(Request("list", (prefix,)), lambda: self.inner.list(prefix, after, limit))

    def stat(self, path: str) -> ObjectInfo:
        return self._carry_out(Request("stat", (path,)), lambda: self.inner.stat(path))

    def delete(self, paths: Sequence[str]) -> None:
        return self._carry_out(Request("delete", tuple(paths)), lambda: self.inner.delete(paths))

    def neighbours(self) -> builtins.list[str]:
        return self.inner.neighbours()

    def sync(self, prefix: str) -> None:
        self.inner.sync(prefix)  # no request where requests cost anything

    def check_room(self, needed: int = 0, part: float = USERS_DATA) -> None:
        self.inner.check_room(needed, part)

    def largest_object(self) -> float:
        return self.inner.largest_object()

    def mark(self, path: str) -> Hashable:
        return self.inner.mark(path)

    def pass_over(self, name: str, what: str) -> None:
        self.inner.pass_over(name, what)

    def passed_over(self) -> Mapping[str, str]:
        return self.inner.passed_over()

    def clock(self) -> float:
        return self._carry_out(Request("clock", ("",)), self.inner.clock)

    def close(self) -> None:
        self.inner.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"
