"""Many threads in simulated time: one runs at a time, and what comes next depends on the seed only.

A `World` has the time, and hands the turn from one thread to another: whoever waits, for a time or for another thread,
gives it to the one whose time comes next. `VirtualExecutor`, `VirtualCondition` and `VirtualFuture` are what programs
wait with; `FarStore` takes the time of a bucket for each request, drawn anew, and of its host's CPU.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from chunkstore import ObjectInfo, Range
from chunkstore.port import check_prefix
from chunkstore.testing import SimulatedStore
from chunkstore.wrapping import Request, Result, WrappingStore
from tests.bench.writing import billed

LEAST = 1e-6
"""Seconds that a wait takes at least, so that who waits for nothing does not stop the time."""

CPU = 0.0015
"""Seconds of its host's CPU that a request takes."""

LATENCIES = {"PUT": (0.025, 0.120), "LIST": (0.030, 0.120), "GET": (0.015, 0.060), "DELETE": (0.025, 0.120)}
"""Median and 99th percentile of a request's seconds; log-normal."""

_P99 = 2.326  # standard deviations


def _spread(kind: str) -> tuple[float, float]:
    """Median and sigma of a kind's latencies."""
    median, slow = LATENCIES[kind]
    return median, math.log(slow / median) / _P99


def mean_latency(kind: str) -> float:
    """The mean seconds of a request of this kind."""
    median, sigma = _spread(kind)
    return median * math.exp(sigma * sigma / 2)


_EPOCH = 1_000_000_000.0
_STACK = 512 << 10


class Task:
    """A thread of a world; `ticket` says which of its waits is the present one."""

    def __init__(self) -> None:
        self.turn = threading.Semaphore(0)
        self.ticket = 0


class World:
    """The time, and the threads. Who makes it is its first thread. now: seconds."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self.tasks = 0
        self._main = Task()
        self._here = threading.local()
        self._here.task = self._main
        self._due: list[tuple[float, int, int, Task]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        """The time."""
        return self.now

    def time_of_day(self) -> float:
        """The same, as a date."""
        return _EPOCH + self.now

    def spawn(self, run: Callable[[], object]) -> None:
        """Have another thread do something, from now on."""
        task = Task()

        def begin() -> None:
            task.turn.acquire()
            self._here.task = task
            try:
                run()
            except BaseException as error:
                self.failure = self.failure or error
                self.wake(self._main)
            self.tasks -= 1
            self._pass_turn()

        self.tasks += 1
        self.wake(task)
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=begin, daemon=True).start()
        finally:
            threading.stack_size(before)

    @property
    def task(self) -> Task:
        """The thread whose turn it is."""
        task: Task = self._here.task
        return task

    def sleep(self, seconds: float) -> None:
        """Wait for so long."""
        self._wait_until(self.now + max(seconds, LEAST))

    def wait(self, seconds: float | None = None) -> None:
        """Wait until somebody wakes this thread, at most so long."""
        self._wait_until(math.inf if seconds is None else self.now + max(seconds, LEAST))

    def wake(self, task: Task) -> None:
        """Let a thread that waits go on."""
        self._at(self.now, task)

    def _at(self, when: float, task: Task) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), task.ticket, task))

    def _wait_until(self, when: float) -> None:
        task = self.task
        if when < math.inf:
            self._at(when, task)
        self._pass_turn()
        task.turn.acquire()
        if self.failure is not None and task is self._main:
            raise self.failure

    def _pass_turn(self) -> None:
        """Give the turn to the one whose time comes next."""
        while self._due:
            when, _, ticket, task = heapq.heappop(self._due)
            if ticket == task.ticket:
                task.ticket += 1
                self.now = max(self.now, when)
                task.turn.release()
                return
        self.failure = self.failure or RuntimeError("all threads wait for each other")
        self._main.turn.release()


class VirtualCondition:
    """What `threading.Condition` is to threads."""

    def __init__(self, world: World, lock: Any) -> None:
        self._world = world
        self._lock = lock
        self._waiting: list[Task] = []

    def wait(self, timeout: float | None = None) -> None:
        """Wait until notified; the lock is held once."""
        task = self._world.task
        self._waiting.append(task)
        self._lock.release()
        self._world.wait(timeout)
        self._lock.acquire()
        if task in self._waiting:
            self._waiting.remove(task)

    def notify_all(self) -> None:
        """Wake all that wait."""
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._world.wake(task)


class VirtualFuture(Future[Any]):
    """A future that is waited for in simulated time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def result(self, timeout: float | None = None) -> Any:
        wait_for(self._world, self)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        wait_for(self._world, self)
        return super().exception(0)


def wait_for(world: World, future: Future[Any]) -> None:
    """Wait until a future is done."""
    task = world.task
    future.add_done_callback(lambda _: world.wake(task))
    while not future.done():
        world.wait()


class VirtualExecutor:
    """Has each call done by a thread of its own."""

    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> VirtualFuture:
        """Begin a call."""
        future = VirtualFuture(self._world)

        def run() -> None:
            try:
                result = fn(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._world.spawn(run)
        return future


class Objects(SimulatedStore):
    """The objects of all hosts. What is listed is a folder, which is found at once however many objects there are."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, remote=True)
        self._folders: dict[str, set[str]] = defaultdict(set)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        check_prefix(prefix)
        if not prefix.endswith("/") or prefix not in self._folders:
            return super().list(prefix, after, limit)
        paths = sorted(path for path in self._folders[prefix] if path > after and path in self._objects)
        return self._request(lambda: [self._info(path) for path in paths[:limit]])

    def _store(self, path: str, content: bytes) -> None:
        super()._store(path, content)
        self._folders[f"{path.rpartition('/')[0]}/"].add(path)

    def delete(self, paths: Sequence[str]) -> None:
        super().delete(paths)
        for path in paths:
            self._folders[f"{path.rpartition('/')[0]}/"].discard(path)


class Bill:
    """Requests of all hosts: by kind, and the most of a second in a folder."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._seconds: Counter[tuple[str, str, int]] = Counter()

    def note(self, kind: str, number: int, path: str, now: float) -> None:
        """One more."""
        self.requests[kind] += number
        writes = "PUT and DELETE" if kind in ("PUT", "DELETE") else "GET and LIST"
        folder = next((part for part in ("wal", "inbox") if f"/{part}/" in path), "other")
        self._seconds[writes, folder, int(now)] += number
        self._seconds[writes, "all", int(now)] += number

    def peak(self, writes: str, folder: str, begin: float = 0.0) -> int:
        """The most of a second, from one on."""
        wanted = (writes, folder)
        found = [n for (*where, second), n in self._seconds.items() if tuple(where) == wanted and second >= begin]
        return max(found, default=0)


class FarStore(WrappingStore):
    """A host's way to the objects: each request takes its CPU, and then a time that is drawn; it takes effect at a
    moment of that."""

    def __init__(self, inner: Objects, world: World, bill: Bill) -> None:
        super().__init__(inner)
        self.objects = inner
        self._world = world
        self._bill = bill
        self._busy = 0.0

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(ranges)
        drawn = sorted((*self._drawn("GET", where.path), place) for place, where in enumerate(ranges))
        for moment, _, place in drawn:
            self._until(moment)
            found[place] = self.objects.read_ranges([ranges[place]])[0]
        self._until(max(end for _, end, _ in drawn))
        return found

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        moment, end = self._drawn(billed(request)[0], request.paths[0])
        self._until(moment)
        try:
            return call()
        finally:
            self._until(end)

    def _drawn(self, kind: str, path: str) -> tuple[float, float]:
        """When a request of now takes effect, and when it is answered."""
        world = self._world
        self._bill.note(kind, 1, path, world.now)
        sent = self._busy = max(self._busy, world.now) + CPU
        median, sigma = _spread(kind)
        took = median * math.exp(world.random.gauss(0, sigma))
        return sent + took * world.random.random(), sent + took

    def _until(self, when: float) -> None:
        self._world.sleep(when - self._world.now)
        self.objects.now = self._world.time_of_day()
