"""Simulated time, hosts and threads: one thread runs at a time, and the seed decides which one is next.

A `World` keeps the time and the threads (`Task`). Each task belongs to a `Host`, which has clocks of its own. A host
may be stopped, with its clocks, or killed: then its tasks never run again. `tests.simulation.virtual` puts the world's
locks, threads and clocks in the place of Python's.
"""

from __future__ import annotations

import _thread
import contextvars
import heapq
import math
import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from engine.interrupts import PATIENCE

T = TypeVar("T")

LEAST = 1e-6
"""Seconds that a wait takes at least, so that a thread that waits for nothing does not stop the time."""

EPOCH = 1_000_000_000.0
"""The storage's time of day at the beginning."""

WAITING = {
    *("_run", "_run_thread", "_wait", "_wait_for_work", "_wait_until", "_worker"),
    *("acquire", "carry_out", "get", "run", "wait"),
}
"""The functions that a thread is in which waits for work."""

ENDINGS = 50
"""How often a thread that is to end may catch the exception that ends it."""

allocate_lock, get_ident = _thread.allocate_lock, _thread.get_ident


class Ended(BaseException):
    """Raised in the threads that are left at the end of a history."""


class Stuck(AssertionError):
    """All threads wait, and nothing will ever wake one."""


class Host:
    """A machine, or a process: what is stopped and killed as one.

    ahead: seconds by which its time of day is ahead of the storage's. rate: of its clocks, to the storage's. lost:
    seconds for which it was stopped so far. calls: of the product, that actors have under way on it.
    """

    def __init__(self, world: World, name: str, ahead: float = 0.0, rate: float = 1.0, booted: float = 1000.0) -> None:
        self.world = world
        self.name = name
        self.ahead = ahead
        self.rate = rate
        self.lost = 0.0
        self.resumes = -math.inf
        self.dead = False
        self.calls = 0
        self._booted = booted

    def monotonic(self) -> float:
        """Its monotonic clock, which stands still while it is stopped."""
        return self._booted + (self.world.now - self.lost) * self.rate

    def time(self) -> float:
        """Its time of day."""
        return EPOCH + self.ahead + (self.world.now - self.lost) * self.rate

    def stop(self, seconds: float) -> None:
        """Stop it, with all of its clocks and threads, for so long."""
        self.lost += seconds
        self.resumes = self.world.now + seconds

    def kill(self) -> None:
        """None of its threads runs again."""
        self.dead = True

    def copy(self, name: str) -> Host:
        """Another one, whose clocks tell the same."""
        copied = Host(self.world, name, self.ahead, self.rate, self._booted)
        copied.lost, copied.resumes = self.lost, self.resumes
        return copied


class Task:
    """A thread. ticket: which of its waits is the present one. struck: an interrupt has come for it. deferring: how
    many calls it is in that defer interrupts; forced: for too long."""

    __slots__ = (
        "baton",
        "begun",
        "context",
        "deferring",
        "ended",
        "ending",
        "forced",
        "host",
        "ident",
        "name",
        "run",
        "struck",
        "ticket",
    )

    def __init__(self, host: Host, name: str, run: Callable[[], object]) -> None:
        self.host = host
        self.name = name
        self.run = run
        self.ticket = 0
        self.begun = False
        self.ended = False
        self.ending = 0
        self.deferring = 0
        self.struck = self.forced = False
        self.context = contextvars.Context()
        self.baton: Any = None
        self.ident = 0


class World:
    """The time, and the threads. now: seconds. current: the thread that runs. failure: the first error of a thread.
    on_switch: is called before a thread goes on. torn: how many interrupts were deferred too long.

    switches: how often, from 0 to 1, a thread that takes a lock lets others run first.
    """

    def __init__(self, seed: object, switches: float = 0.0) -> None:
        self.now = 0.0
        self.random = random.Random(f"{seed}/world")
        self.switches = switches
        self.failure: BaseException | None = None
        self.current: Task | None = None
        self.torn = 0
        self.on_switch: Callable[[Task], object] = lambda task: None
        self.trace: list[tuple[float, str, str]] = []
        self.tasks: list[Task] = []
        self._due: list[tuple[float, int, int, float, Task | None, Callable[[], object] | None]] = []
        self._number = 0
        self._main = allocate_lock()
        self._main.acquire()
        self._over: Callable[[], bool] = lambda: False

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now, who, what))

    # --- what happens when -----------------------------------------------------------------------------------------

    def spawn(self, host: Host, name: str, run: Callable[[], object], delay: float = 0.0) -> Task:
        """Begin a thread of a host."""
        task = Task(host, name, run)
        self.tasks.append(task)
        self._schedule(self.now + delay, task)
        return task

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Do something at a time, whatever becomes of the hosts. It does not wait."""
        self._number += 1
        heapq.heappush(self._due, (max(when, self.now), self._number, 0, 0.0, None, call))

    def wake(self, task: Task) -> None:
        """Let a waiting thread continue."""
        self._schedule(self.now, task)

    def sleep(self, seconds: float) -> None:
        """Wait for so long, also if an interrupt comes meanwhile that is deferred."""
        end = self.now + max(seconds, LEAST)
        while self.now < end:
            self._wait_until(end)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until woken, at most so long."""
        self._wait_until(math.inf if seconds is None else self.now + max(seconds, LEAST))

    def maybe_switch(self) -> None:
        """Perhaps let another thread run."""
        if self.random.random() < self.switches:
            self.sleep(LEAST * self.random.randint(1, 5))

    def is_idle(self, task: Task) -> bool:
        """Whether a thread has ended, or waits for work: it is in the wait of a loop, and nobody has woken it."""
        if task.ended:
            return True
        due = (each for each in self._due if each[4] is task and each[2] == task.ticket)
        if not task.begun or any(each[0] <= self.now for each in due):
            return False
        frame = sys._current_frames().get(task.ident)
        while frame is not None and frame.f_code.co_name in WAITING:
            frame = frame.f_back
        return frame is None

    def interrupt(self, task: Task) -> None:
        """Raise KeyboardInterrupt in a thread where it waits, once it does not defer that, or has for too long."""
        task.struck, task.forced = True, False
        self.wake(task)
        self.at(self.now + PATIENCE, lambda: self._force(task))

    def _force(self, task: Task) -> None:
        if task.struck:
            task.forced = True
            self.wake(task)

    def _raise_interrupt(self, task: Task) -> None:
        if task.struck and (task.forced or not task.deferring):
            self.torn += task.deferring > 0
            task.struck = task.forced = False
            raise KeyboardInterrupt

    def uninterrupted(self, work: Callable[[], T]) -> T:
        """As `engine.interrupts.uninterrupted`, for the present thread."""
        task = self.current
        if task is None:
            return work()
        task.deferring += 1
        try:
            return work()
        finally:
            task.deferring -= 1
            if not task.ending:
                self._raise_interrupt(task)

    def _schedule(self, when: float, task: Task) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self._number, task.ticket, task.host.lost, task, None))

    def _next(self) -> Task | None:
        """The thread that runs next, for which time passes. None: it is over."""
        due = self._due
        while due:
            if self.failure is not None or self._over():
                return None
            when, _, ticket, lost, task, call = heapq.heappop(due)
            if task is None:
                self.now = max(self.now, when)
                if call is not None:
                    self._do(call)
                continue
            host = task.host
            if ticket != task.ticket or host.dead or task.ended:
                continue
            if lost != host.lost:  # the host was stopped meanwhile, and its timers with it
                self._schedule(max(when + host.lost - lost, host.resumes), task)
                continue
            if when < host.resumes and self.now < host.resumes:
                self._schedule(host.resumes, task)
                continue
            self.now = max(self.now, when)
            task.ticket += 1
            return task
        if not self._over():
            waiting = [f"{task.host.name}: {task.name}" for task in self.tasks if not task.ended and not task.host.dead]
            self.failure = self.failure or Stuck(f"nothing happens any more; these wait: {waiting}")
        return None

    def _do(self, call: Callable[[], object]) -> None:
        """What happens in no thread."""
        task, self.current = self.current, None
        try:
            call()
        except BaseException as error:
            self.failure = self.failure or error
        finally:
            self.current = task

    def _wait_until(self, when: float) -> None:
        task = self.current
        assert task is not None, "only threads of the world wait"
        if task.ending:
            self._raise_ended(task)
        if when < math.inf:
            self._schedule(when, task)
        following = self._next()
        if following is not task:
            self._hand_over(following)
            task.baton.acquire()
            if task.ending:
                self._raise_ended(task)
        if task.struck:
            self._raise_interrupt(task)

    def _hand_over(self, task: Task | None) -> None:
        """Let a thread run; None: the one that called `run`."""
        self.current = task
        if task is None:
            self._main.release()
            return
        self.on_switch(task)
        if task.begun:
            task.baton.release()
        else:
            task.begun = True
            _WORKERS.run(self, task)

    def _raise_ended(self, task: Task) -> None:
        task.ending += 1
        if task.ending > ENDINGS:  # it catches everything: leave it where it is
            self._hand_over(None)
            allocate_lock_forever()
        raise Ended

    def carry_out(self, task: Task) -> None:
        """Run a thread from its beginning to its end, and the next one after it. For the workers."""
        try:
            task.context.run(task.run)
        except Ended:
            pass
        except BaseException as error:
            if not task.ending:
                self.failure = self.failure or error
        task.ended = True

    def follow(self) -> None:
        """The present thread has ended: run the next one."""
        ending = self.current is not None and self.current.ending
        self._hand_over(None if ending else self._next())

    # --- for the thread that made it -----------------------------------------------------------------------------

    def run(self, over: Callable[[], bool]) -> None:
        """Run until it is over. Raises the first error of a thread, Stuck."""
        self._over = over
        following = self._next()
        if following is not None:
            self._hand_over(following)
            self._main.acquire()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """End all threads."""
        for task in self.tasks:
            if task.begun and not task.ended:
                task.ending = 1
                self.current = task
                task.baton.release()
                self._main.acquire()
        self.current = None


def allocate_lock_forever() -> None:
    """Wait for ever."""
    lock = allocate_lock()
    lock.acquire()
    lock.acquire()


class _Worker:
    """A thread of Python's that runs tasks."""

    def __init__(self) -> None:
        self.baton = allocate_lock()
        self.baton.acquire()
        self.world: World
        self.task: Task
        self.ident = _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self.baton.acquire()
            world, task = self.world, self.task
            world.carry_out(task)
            del self.task, self.world, task
            _WORKERS.idle.append(self)
            world.follow()
            del world


class _Workers:
    """Threads of Python's, which are used again and again."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []

    def run(self, world: World, task: Task) -> None:
        """Let one of them run a task."""
        worker = self.idle.pop() if self.idle else _Worker()
        worker.world, worker.task = world, task
        task.baton, task.ident = worker.baton, worker.ident
        worker.baton.release()


_WORKERS = _Workers()
