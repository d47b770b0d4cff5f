"""A process as a function of what it hears: the product's own code, run again from the beginning for each history.

A process shares nothing with others but the storage and the time. So what it does next follows from the answers to its
requests so far, and when it heard them. `run` carries out its script with such a history; where that ends, the code is
left with an exception in the place of the next answer, and what it waits for is known. There are no threads. Frames and
listings that the product makes in the background are jobs, which may have requests of their own under way at the same
time.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import hashlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, NoReturn, TypeAlias
from unittest import mock

from chunkstore import ObjectInfo, ObjectNotFound, Outcome, PutUnknown, Range, StorageUnavailable, Store, stamps
from chunkstore.errors import Unsupported
from chunkstore.port import Parts, joined
from engine.logs import outbox
from tests.exhaustive.storage import EPOCH, UNIT, Answer, Request, Storage, effect

MAIN = 0
"""The slot of what a process itself waits for; jobs have the others."""

LOOK = 1e-4
"""Seconds that it takes to look at a clock."""

COLLECT = 100
"""Runs after which the garbage of these is collected; all that was found so far would be looked at each time else."""

BOOTED = 5000.0
"""What the monotonic clocks show at the time 0."""


class Heard(NamedTuple):
    """An answer, to which slot's request, and what time it was by the host's clock."""

    slot: int
    answer: Answer
    time: int


History: TypeAlias = tuple[Heard, ...]

Fact: TypeAlias = tuple[Any, ...]
"""Something that a process says of itself, such as which record was acknowledged."""


class Position(NamedTuple):
    """Where a process is after a history. waits: for the answers to these requests, by slot. facts: what it has said
    since the last answer. ended: it has nothing to do any more. error: by which its script ended."""

    waits: tuple[tuple[int, Request], ...]
    facts: tuple[Fact, ...]
    ended: bool
    error: str


class _Over(BaseException):
    """The history has no more answers."""


class _Job:
    """A call in the background, run again with each further answer to its requests."""

    def __init__(self, process: Process, slot: int, call: Callable[[], Any]) -> None:
        self.future = _JobFuture(process, self)
        self.wants: Request | None = None
        self._process = process
        self._slot = slot
        self._call = call
        self._answers: list[Answer] = []
        self._asked = 0
        self._advance()

    def hear(self, answer: Answer) -> None:
        """The answer to its request."""
        self._answers.append(answer)
        self._advance()

    def ask(self, request: Request) -> Answer:
        """A request of the call."""
        if self._asked < len(self._answers):
            self._asked += 1
            return self._answers[self._asked - 1]
        self.wants = request
        raise _Over

    def _advance(self) -> None:
        self._asked, self.wants = 0, None
        outer, self._process.job = self._process.job, self
        try:
            with stamps.listening():
                result = self._call()
        except _Over:
            return
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
        finally:
            self._process.job = outer


class _JobFuture(Future[Any]):
    """What becomes of a job. Who asks for its result waits for it."""

    def __init__(self, process: Process, job: _Job) -> None:
        super().__init__()
        self._process = process
        self._job = job

    def result(self, timeout: float | None = None) -> Any:
        self._process.wait_for(self)
        return super().result(timeout=0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._process.wait_for(self)
        return super().exception(timeout=0)


class Process:
    """What a script has of its process: the storage, an executor, clocks. name: decides its random numbers."""

    def __init__(self, name: str, history: History) -> None:
        self.store = ProcessStore(self)
        self.job: _Job | None = None
        self.facts: list[Fact] = []
        self.name = name
        self._history = iter(history)
        self._left = len(history)
        self._now = 0
        self._slept = 0.0
        self._drawn = 0
        self._jobs: dict[int, _Job] = {}
        self._waits: tuple[tuple[int, Request], ...] | None = None

    # --- for scripts -----------------------------------------------------------------------------------------------

    def say(self, *fact: Any) -> None:
        """Note a fact, unless the history ended before."""
        if self._waits is None:
            self.facts.append(fact)

    def ask(self, request: Request) -> Answer:
        """Send a request, and wait for its answer."""
        if self.job is not None:
            return self.job.ask(request)
        while True:
            heard = self._next(((MAIN, request),))
            if heard.slot == MAIN:
                return heard.answer
            self._jobs[heard.slot].hear(heard.answer)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Carry out a call in the background."""
        self._check()
        slot = len(self._jobs) + 1
        job = self._jobs[slot] = _Job(self, slot, lambda: fn(*args))
        return job.future

    def clock(self) -> float:
        """A monotonic clock, seconds. Who looks at it again and again sees it advance."""
        self._check()
        self._slept += LOOK
        return BOOTED + self._now * UNIT + self._slept

    def wall(self) -> float:
        """The time of day."""
        self._check()
        return EPOCH + self._now * UNIT + self._slept

    def sleep(self, seconds: float) -> None:
        """Wait. It takes no time for others: a pause is short, and any number of requests of others fit into it."""
        self._check()
        self._slept += max(seconds, 0.0)

    def random_bytes(self, count: int) -> bytes:
        """Numbers that no other process draws."""
        self._check()
        self._drawn += 1
        return hashlib.shake_128(f"{self.name} {self._drawn}".encode()).digest(count)

    # --- the history -----------------------------------------------------------------------------------------------

    def wait_for(self, future: _JobFuture) -> None:
        """Wait until a job is done."""
        while not future.done():
            heard = self._next(())
            self._jobs[heard.slot].hear(heard.answer)

    def _next(self, waits: tuple[tuple[int, Request], ...]) -> Heard:
        self._check()
        heard = next(self._history, None)
        if heard is None:
            self._waits = (*waits, *self._under_way())
            raise _Over
        self._left -= 1
        if not self._left:
            self.facts.clear()
        self._now = heard.time
        return heard

    def _under_way(self) -> Iterator[tuple[int, Request]]:
        for slot, job in self._jobs.items():
            if job.wants is not None:
                yield slot, job.wants

    def _check(self) -> None:
        if self._waits is not None:
            raise _Over

    def position(self, script: Callable[[Process], None]) -> Position:
        """Carry out the script as far as the history goes."""
        error = ""
        try:
            script(self)
        except _Over:
            pass
        except Exception as problem:
            error = repr(problem)
        if self._waits is None:  # what is left in the background is waited for by nobody
            self._waits = tuple(self._under_way())
            return Position(self._waits, tuple(self.facts), True, error)
        return Position(self._waits, tuple(self.facts), False, "")


def run(name: str, script: Callable[[Process], None], history: History) -> Position:
    """Where a process is after a history; within `determined`."""
    _Current.runs += 1
    if _Current.runs % COLLECT == 0:
        gc.collect(0)
    process = _Current.process = Process(name, history)
    try:
        return process.position(script)
    finally:
        _Current.process = None


class Alone(Process):
    """A process whose requests are answered at once, from a storage of its own. storage: as it is now."""

    def __init__(self, name: str, storage: Storage, time: int) -> None:
        super().__init__(name, ())
        self.storage = storage
        self._now = time

    def ask(self, request: Request) -> Answer:
        self.storage, answer = effect(self.storage, request, self._now)
        return answer


def run_alone(name: str, script: Callable[[Process], None], storage: Storage, time: int) -> Position:
    """What a process does alone; within `determined`."""
    process = _Current.process = Alone(name, storage, time)
    try:
        return process.position(script)
    finally:
        _Current.process = None


class _Current:
    """The process that runs now."""

    process: Process | None = None
    runs = 0


@contextlib.contextmanager
def determined() -> Iterator[None]:
    """Within it, chance and the clocks that the product asks directly are those of the process that runs."""

    def ours(usual: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            process = _Current.process
            return usual(*arguments) if process is None else own(process, *arguments)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (os, "urandom", ours(os.urandom, Process.random_bytes)),
            (random, "random", ours(random.random, lambda process: 0.5)),
            (random, "uniform", ours(random.uniform, lambda process, low, high: (low + high) / 2)),
            (time, "monotonic", ours(time.monotonic, Process.clock)),
            # An owner looks for its outcome a few times only, before it makes a frame itself: each look is a step.
            (outbox, "LOOK_TRIPS", 1000.0),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        disabled, collecting = logging.root.manager.disable, gc.isenabled()
        logging.disable(logging.CRITICAL)
        gc.disable()
        try:
            yield
        finally:
            logging.disable(disabled)
            if collecting:
                gc.enable()


class ProcessStore(Store):
    """What one process has of the storage."""

    root = "exhaustive://"
    remote = True
    can_append = False
    dated = True

    def __init__(self, process: Process) -> None:
        self._process = process

    def _ask(self, verb: str, paths: Sequence[str], content: Parts = b"", rest: tuple[Any, ...] = ()) -> Any:
        answer = self._process.ask(Request(verb, tuple(paths), bytes(joined(content)), rest))
        if answer.time is not None:
            stamps.note(EPOCH + answer.time * UNIT)
        if answer.error == "absent":
            raise ObjectNotFound(f"{self.root}: there is no object {paths[0]!r}")
        if answer.error:
            raise (PutUnknown if verb == "put_if_absent" else StorageUnavailable)(f"{self.root}: no answer: try again")
        return answer.value

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return bytes(self._ask("read", (path,), rest=(start, end)))

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        if not ranges:
            return []
        rest = tuple((start, end) for _, start, end in ranges)
        return list(self._ask("read_ranges", [path for path, *_ in ranges], rest=rest))

    def put(self, path: str, data: Parts) -> None:
        self._ask("put", (path,), data)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        return Outcome.MINE if self._ask("put_if_absent", (path,), data) else Outcome.ANOTHERS

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return list(self._ask("list", (prefix,), rest=(after, limit)))

    def stat(self, path: str) -> ObjectInfo:
        found: ObjectInfo = self._ask("stat", (path,))
        return found

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            self._ask("delete", tuple(paths))

    def clock(self) -> float:
        return float(self._ask("clock", ("",)))

    def append(self, path: str, offset: int, data: Any) -> NoReturn:
        raise Unsupported(f"{self.root}: nothing is appended to {path!r}: put a new object")
