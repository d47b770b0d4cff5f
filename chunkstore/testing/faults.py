"""A store that fails, or whose process crashes, at chosen requests.

A crash matrix runs an operation once to learn how many requests it makes (`FaultStore.passed`), and then once for every
request with `crash_at(number, when)`; each time it opens the inner store again and checks what is left:

    store = FaultStore(inner); operation(store)
    for number in range(1, store.passed + 1):
        with pytest.raises(Crashed):
            operation(FaultStore(fresh_inner, crash_at(number, "after")))
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from chunkstore.errors import PutUnknown, StorageError, StorageUnavailable
from chunkstore.port import Data, Store
from chunkstore.wrapping import Request, Result, WrappingStore

When = Literal["before", "partway", "after"]
"""Before the request took effect, after it did, or partway: half of an append's bytes, half of the deleted objects.

Requests that are atomic have no halves: for them partway means before.
"""


class Crashed(BaseException):
    """The process died here. Not an Exception, as nothing in a process that has died handles errors."""


class Fault(NamedTuple):
    """What happens to one request; with `crash`, the process dies with it."""

    when: When
    crash: bool = False


Plan = Callable[[int, Request], "Fault | None"]
"""From a request and its number (the first is 1) to its fault, or None."""


def fail_at(number: int, when: When = "before", *, forever: bool = False) -> Plan:
    """Fails request `number`, or with `forever` all from `number` on."""
    return lambda at, request: Fault(when) if at == number or (forever and at > number) else None


def crash_at(number: int, when: When = "before") -> Plan:
    """Crashes at request `number`."""
    return lambda at, request: Fault(when, crash=True) if at == number else None


class FaultStore(WrappingStore):
    """Carries out requests unless `plan` names a fault for them. `plan` may be replaced at any time.

    Only requests with one of `verbs` (None: all) have numbers and can have faults; `passed` is how many there were.
    A failed `put_if_absent` raises PutUnknown, whether it took effect or not, any other verb StorageUnavailable.
    After a crash every request of any verb raises Crashed.
    """

    def __init__(self, inner: Store, plan: Plan | None = None, verbs: Collection[str] | None = None) -> None:
        super().__init__(inner)
        self.plan = plan
        self.verbs = verbs
        self.passed = 0
        self.crashed = False
        self._lock = threading.Lock()

    def append(self, path: str, offset: int, data: Data) -> None:
        half = memoryview(data).cast("B")
        half = half[: len(half) // 2]
        request = Request("append", (path,), memoryview(data).nbytes)
        self._request(
            request, lambda: self.inner.append(path, offset, data), lambda: self.inner.append(path, offset, half)
        )

    def delete(self, paths: Sequence[str]) -> None:
        half = paths[: len(paths) // 2]
        self._request(
            Request("delete", tuple(paths)), lambda: self.inner.delete(paths), lambda: self.inner.delete(half)
        )

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return self._request(request, call, lambda: None)

    def _request(self, request: Request, call: Callable[[], Result], call_partway: Callable[[], None]) -> Result:
        fault = self._fault(request)
        if fault is None:
            result = call()
            self._refuse_if_crashed()  # another thread's crash ended this one too, before it could receive the response
            return result
        with contextlib.suppress(StorageError):  # the caller hears of the fault, not of what the store answered
            if fault.when == "after":
                call()
            elif fault.when == "partway":
                call_partway()
        if fault.crash:
            raise Crashed(request)
        kind = PutUnknown if request.verb == "put_if_absent" else StorageUnavailable
        raise kind(f"{self.root}: injected fault, {fault.when} {request.verb} of {', '.join(request.paths)}: try again")

    def _fault(self, request: Request) -> Fault | None:
        self._refuse_if_crashed()
        if self.verbs is not None and request.verb not in self.verbs:
            return None
        with self._lock:
            self.passed += 1
            fault = self.plan(self.passed, request) if self.plan else None
            if fault and fault.crash:
                self.crashed = True
            return fault

    def _refuse_if_crashed(self) -> None:
        if self.crashed:
            raise Crashed("this process crashed at an earlier request")
