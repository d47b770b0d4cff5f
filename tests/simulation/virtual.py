"""A world's threads, locks and clocks in the place of Python's, for everything that runs in it.

The product's own code runs unchanged: its thread pools, conditions, futures and queues are made of these. Random
numbers come from the world's seed. A call from a thread that is not of the world is Python's own.
"""

from __future__ import annotations

import concurrent.futures.thread as pools
import contextlib
import gc
import os
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from engine import ownership
from engine.containers.container import Container
from engine.logs import durable_log, polling, processor, transaction
from engine.logs.mailbox import no_mailbox
from pravega_spark.client import asynchronous, loop_futures, writer
from tests.simulation.world import LEAST, Task, World

DEFERRING = (processor, transaction, polling, loop_futures, asynchronous, writer)
"""The modules that defer interrupts."""

_world: World | None = None


def _task() -> Task | None:
    return _world.current if _world is not None else None


class Lock:
    """`threading.Lock`."""

    __slots__ = ("__weakref__", "_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = _world
        if world is not None and world.switches and world.current is not None and not world.current.ending:
            world.maybe_switch()
        if not self._held:
            self._held = True
            return True
        if not blocking or timeout == 0:
            if world is not None and world.current is not None:
                world.sleep(LEAST)  # a thread that tries again and again sees time pass
            return False
        return self._wait(timeout)

    __enter__ = acquire

    def _wait(self, timeout: float) -> bool:
        world, task = _world, _task()
        if world is None or task is None:
            raise RuntimeError("a lock of a history is held that is over")
        until = world.now + timeout / task.host.rate if timeout >= 0 else None
        if self._waiting is None:
            self._waiting = deque()
        while self._held:
            left = None if until is None else until - world.now
            if left is not None and left <= 0:
                return False
            self._waiting.append(task)
            try:
                world.wait(left)
            except KeyboardInterrupt:
                if task not in self._waiting:  # it was given the lock
                    self._wake_next()
                raise
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(task)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting and _world is not None:
            _world.wake(self._waiting.popleft())

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._held

    _is_owned = locked  # what threading.Condition asks for


class RLock:
    """`threading.RLock`."""

    __slots__ = ("__weakref__", "_count", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = _task()
        if self._count and self._owner is task:
            self._count += 1
            return True
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._owner, self._count = task, 1
        return taken

    __enter__ = acquire

    def release(self) -> None:
        if not self._count or self._owner is not _task():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What threading.Condition asks for.

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is _task()

    def _release_save(self) -> tuple[int, Task | None]:
        saved = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return saved

    def _acquire_restore(self, saved: tuple[int, Task | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = saved


class _Present:
    """What `threading.current_thread` returns in a thread of the world."""

    daemon = True

    def __init__(self, task: Task) -> None:
        self.name = task.name
        self.ident = threading.get_ident()


class _Threads:
    """How `threading.Thread` begins and is waited for."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, thread: threading.Thread) -> None:
        world, task = self._world, _task()
        if task is None:
            raise RuntimeError("only threads of the world begin others")

        def run() -> None:
            try:
                thread.run()
            finally:
                for waiting in thread.simulated_waiting:  # type: ignore[attr-defined]
                    world.wake(waiting)

        thread.simulated_waiting = []  # type: ignore[attr-defined]
        thread.simulated = world.spawn(task.host, thread.name.rstrip("0123456789"), run)  # type: ignore[attr-defined]

    def join(self, thread: threading.Thread, timeout: float | None = None) -> None:
        mine, other = _task(), getattr(thread, "simulated", None)
        if mine is None or other is None:
            return
        until = None if timeout is None else self._world.now + timeout / mine.host.rate
        while not other.ended and (until is None or self._world.now < until):
            thread.simulated_waiting.append(mine)  # type: ignore[attr-defined]
            self._world.wait(None if until is None else until - self._world.now)

    @staticmethod
    def is_alive(thread: threading.Thread) -> bool:
        task = getattr(thread, "simulated", None)
        return task is not None and not task.ended


@contextlib.contextmanager
def virtual(world: World, open_mailbox: Callable[[bytes], Any] = no_mailbox) -> Iterator[None]:
    """Within it, this world's threads have its time, its locks and its chance. open_mailbox: opens that of a writer."""
    global _world
    assert _world is None, "one world at a time"
    chance = world.random
    usual_sleep, usual_present = time.sleep, threading.current_thread

    def clock(of: str, usual: Callable[..., float]) -> Callable[..., float]:
        def now(*arguments: Any) -> float:
            task = world.current
            return usual(*arguments) if task is None else getattr(task.host, of)()

        return now

    def sleep(seconds: float) -> None:
        task = world.current
        if task is None:
            usual_sleep(seconds)
        else:
            world.sleep(seconds / task.host.rate)

    def present() -> Any:
        task = world.current
        return usual_present() if task is None else _Present(task)

    monotonic, wall = clock("monotonic", time.monotonic), clock("time", time.time)
    threads = _Threads(world)
    before = random.getstate()
    queues = vars(pools)["_threads_queues"]  # that Python's exit would wait for
    known = dict(queues)
    defaults = {**(Container.__init__.__kwdefaults__ or {}), "clock": monotonic, "now": wall, "sleep": sleep}
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (time, "time", wall),
            (time, "monotonic", monotonic),
            (time, "perf_counter", monotonic),
            (time, "clock_gettime", lambda _: monotonic()),
            (time, "time_ns", lambda: int(wall() * 1e9)),
            (time, "monotonic_ns", lambda: int(monotonic() * 1e9)),
            (time, "sleep", sleep),
            (threading, "_time", monotonic),
            (queue, "time", monotonic),
            (threading, "Lock", Lock),
            (threading, "RLock", RLock),
            (threading, "_allocate_lock", Lock),
            (threading, "current_thread", present),
            (queue, "SimpleQueue", vars(queue)["_PySimpleQueue"]),
            (threading.Thread, "start", lambda thread: threads.start(thread)),
            (threading.Thread, "join", lambda thread, timeout=None: threads.join(thread, timeout)),
            (threading.Thread, "is_alive", threads.is_alive),
            (os, "urandom", chance.randbytes),
            (random, "_urandom", chance.randbytes),
            (pools, "_global_shutdown_lock", contextlib.nullcontext()),  # of all hosts, one of which may die with it
            (durable_log, "open_mailbox", open_mailbox),
            (ownership, "_this", None),  # each host is a process
            (Container.__init__, "__kwdefaults__", defaults),
            *((module, "uninterrupted", world.uninterrupted) for module in DEFERRING),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        world.on_switch = lambda task: vars(ownership).update(_this=task.host)
        random.seed(chance.random())
        collecting = gc.isenabled()
        gc.disable()  # what it finalizes, and when, is no matter of the seed
        _world = world
        try:
            yield
        finally:
            world.end()
            _world = None
            queues.clear()
            queues.update(known)
            random.setstate(before)
            if collecting:
                gc.enable()
