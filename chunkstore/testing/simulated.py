"""A store, and an executor, whose misfortunes are drawn from a seed: what failed once fails again the same way.

`SimulatedStore` loses requests, loses responses, and lets lost requests arrive late. `SimulatedExecutor` carries out
what several writers submitted in an order that it draws. Both together are a network. Time stands still unless a test
moves `SimulatedStore.now`.
"""

from __future__ import annotations

import builtins
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from chunkstore import stamps
from chunkstore.errors import InvalidOffset, ObjectNotFound, ObjectReadOnly, PutUnknown, StorageUnavailable
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
    same_content,
    token_of,
)

P = ParamSpec("P")
T = TypeVar("T")


class SimulatedStore(Store):
    """An in-memory store with faults. The share of requests that meet each fault is from 0 to 1 and may be changed.

    `fail_before`: the request is lost, nothing happens. `fail_after`: it takes effect, the response is lost. Both raise
    StorageUnavailable, or PutUnknown for put_if_absent. `conflict`: put_if_absent gets "try later" until its retries
    are used up: PutUnknown, and no effect. `late`: put, put_if_absent and delete raise the same errors, and take effect
    between later requests, or at `arrive()`: a request that was on its way when its sender timed out.

    `arrivals` is the share of requests before which one that is on its way takes effect; 0 keeps all until `arrive()`.
    `now` stamps `modified` and is `clock()`, in seconds. `faults` counts the faults met so far.
    """

    dated = True

    def __init__(
        self,
        seed: int = 0,
        *,
        fail_before: float = 0.0,
        fail_after: float = 0.0,
        conflict: float = 0.0,
        late: float = 0.0,
        can_append: bool = True,
        remote: bool = False,
        now: float = 1_000_000_000.0,
    ) -> None:
        self.root = f"simulated://{seed}"
        self.fail_before = fail_before
        self.fail_after = fail_after
        self.conflict = conflict
        self.late = late
        self.can_append = can_append
        self.remote = remote
        self.now = now
        self.arrivals = 0.5
        self.faults = 0
        self._random = random.Random(seed)
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._read_only: set[str] = set()
        self._on_their_way: list[Callable[[], object]] = []
        self._lock = threading.RLock()

    def copy_of(self, other: SimulatedStore) -> None:
        """Have the objects of another store, at its time."""
        self._objects, self.now = dict(other._objects), other.now

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        check_path(path)
        check_range(path, start, end)
        return self._request(lambda: self._found(path)[0][start:end])

    def put(self, path: str, data: Parts) -> None:
        check_path(path)
        content = bytes(joined(data))

        def attempt() -> None:
            self._store(path, content)
            self._read_only.discard(path)

        self._request(attempt, may_be_late=True)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        check_path(path)
        content = bytes(joined(data))

        def attempt() -> Outcome:
            if path not in self._objects:
                self._store(path, content)
            return Outcome.MINE if same_content(self._objects[path][0], data) else Outcome.ANOTHERS

        with self._lock:
            try:
                if self._meets(self.conflict):
                    raise StorageUnavailable(f"{self.root}: told to come back later, until it gave up: try again")
                return self._request(attempt, may_be_late=True)
            except StorageUnavailable as error:
                raise PutUnknown(f"{error}, with the same bytes at {path!r}") from None

    def append(self, path: str, offset: int, data: Data) -> None:
        if not self.can_append:
            return super().append(path, offset, data)
        check_path(path)
        content = bytes(data)

        def attempt() -> None:
            before = self._to_change(path)
            if len(before) != offset:
                message = f"{self.root}: {path!r} has {len(before)} bytes, cannot append at {offset}"
                raise InvalidOffset(message, expected=len(before), given=offset)
            self._store(path, before + content)

        return self._request(attempt)

    def link(self, path: str, source: Store, name: str) -> None:
        """Of another simulated store, or one in memory: their contents are values."""
        check_path(path)
        content = source.read(name)
        self._request(lambda: self._store(path, content))

    def set_read_only(self, path: str, read_only: bool) -> None:
        check_path(path)

        def attempt() -> None:
            self._found(path)
            (self._read_only.add if read_only else self._read_only.discard)(path)

        self._request(attempt)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)

        def attempt() -> list[ObjectInfo]:
            paths = sorted(path for path in self._objects if path.startswith(prefix) and path > after)
            return [self._info(path) for path in paths[:limit]]

        return self._request(attempt)

    def stat(self, path: str) -> ObjectInfo:
        check_path(path)
        return self._request(lambda: self._info(path))

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)

        def attempt() -> None:
            for path in paths:
                self._objects.pop(path, None)
                self._read_only.discard(path)

        self._request(attempt, may_be_late=True)

    def clock(self) -> float:
        return self._request(lambda: self.now)

    def arrive(self) -> None:
        """Let all requests take effect that are still on their way, in an order that is drawn."""
        with self._lock:
            while self._on_their_way:
                self._arrive_one()

    def _request(self, attempt: Callable[[], T], *, may_be_late: bool = False) -> T:
        with self._lock:
            if self._on_their_way and self._random.random() < self.arrivals:
                self._arrive_one()
            if self._meets(self.fail_before):
                raise StorageUnavailable(f"{self.root}: the request was lost: try again")
            if may_be_late and self._meets(self.late):
                self._on_their_way.append(attempt)
                raise StorageUnavailable(f"{self.root}: no response in time: try again")
            stamps.note(self.now)  # what there is not is an answer too
            result = attempt()
            if self._meets(self.fail_after):
                raise StorageUnavailable(f"{self.root}: the response was lost: try again")
            return result

    def _meets(self, share: float) -> bool:
        met = share > 0 and self._random.random() < share
        self.faults += met
        return met

    def _arrive_one(self) -> None:
        self._on_their_way.pop(self._random.randrange(len(self._on_their_way)))()

    def _store(self, path: str, content: bytes) -> None:
        self._objects[path] = content, self.now

    def _to_change(self, path: str) -> bytes:
        content, _ = self._found(path)
        if path in self._read_only:
            raise ObjectReadOnly(f"{self.root}: {path!r} is read-only: put a new object instead")
        return content

    def _found(self, path: str) -> tuple[bytes, float]:
        try:
            return self._objects[path]
        except KeyError:
            raise ObjectNotFound(f"{self.root}: there is no object {path!r}") from None

    def _info(self, path: str) -> ObjectInfo:
        content, modified = self._found(path)
        return ObjectInfo(path, len(content), modified)


class SimulatedExecutor(Executor):
    """Carries out submitted calls one at a time, in an order drawn from the seed, and only when a result is requested.

    Asking for `result()`, `exception()` or `done()` of a future makes steps: a step carries out one of all the calls
    that wait, of whatever writer. `done()` makes one, the other two as many as it takes. There are no threads: use it
    from one, and do not use `concurrent.futures.wait`, which would wait for a thread to do the work.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: _SteppingFuture[T] = _SteppingFuture(self)

        def carry_out() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._waiting.append(carry_out)
        return future

    def step(self) -> bool:
        """Carry out one of the waiting calls; False if none waits."""
        if not self._waiting:
            return False
        self._waiting.pop(self._random.randrange(len(self._waiting)))()
        return True

    def drain(self) -> None:
        """Carry out all waiting calls, and those that they submit."""
        while self.step():
            continue

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._waiting.clear()
        if wait:
            self.drain()


class _SteppingFuture(Future[T]):
    """A future that lets its executor work when its result is requested."""

    def __init__(self, executor: SimulatedExecutor) -> None:
        super().__init__()
        self._executor = executor

    def done(self) -> bool:
        if not super().done():
            self._executor.step()
        return super().done()

    def result(self, timeout: float | None = None) -> T:
        self._finish()
        return super().result(timeout=0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._finish()
        return super().exception(timeout=0)

    def _finish(self) -> None:
        while not super().done() and self._executor.step():
            continue
