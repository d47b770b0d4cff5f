"""Exceptions of signals, at each point of a call at which one can strike.

Between two bytecodes of its main thread the interpreter looks whether a signal has come: behind a call, where a
function begins, and where a loop goes back. There its handler raises: Ctrl-C, a notebook's Stop, a time limit. `struck`
raises at one of these points, the n-th of a call, counted in the code of our packages.
"""

from __future__ import annotations

import dis
import faulthandler
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import chunkstore
import engine
import pravega_spark

LIMIT = 8.0
"""Seconds after which a call is said to hang."""

_LOOKS = ("RESUME", "PRECALL", "CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "YIELD_VALUE", "SEND")
"""How the bytecodes begin after which the interpreter looks for signals."""

_PACKAGES = [f"{Path(str(package.__file__)).parent}/" for package in (chunkstore, engine, pravega_spark)]
_TESTING = [f"{package}testing/" for package in _PACKAGES]


class TimeLimit(Exception):
    """What a handler raises that is no KeyboardInterrupt."""


KINDS: tuple[type[BaseException], ...] = (KeyboardInterrupt, TimeLimit)


class Outcome(NamedTuple):
    """What became of a call. points: how many there were up to its end. where: the one that was struck; "": none."""

    points: int
    where: str
    value: Any
    error: BaseException | None


@cache
def _is_traced(filename: str) -> bool:
    ours = any(filename.startswith(package) for package in _PACKAGES)
    return ours and not any(filename.startswith(package) for package in _TESTING)


@cache
def _looking(code: CodeType) -> dict[int, bool]:
    """For each bytecode, by its offset, whether the interpreter looks for signals behind it."""
    found, names = {}, [(each.offset, each.opname) for each in dis.get_instructions(code)]
    for (offset, name), (_, following) in zip(names, [*names[1:], (0, "")], strict=True):
        found[offset] = name.startswith(_LOOKS) and not (name == "PRECALL" and following == "CALL")
    return found


@cache
def _handler(code: CodeType, offset: int) -> int:
    """Where an exception at a bytecode goes on in its function; -1: nowhere."""
    entries = getattr(dis.Bytecode(code), "exception_entries", ())
    return next((each.target for each in entries if each.start <= offset < each.end), -1)


class _Strike:
    """Traces one thread, counts its points, and raises `kind` at the point `at`."""

    def __init__(self, at: int | None, kind: type[BaseException]) -> None:
        self.points = 0
        self.where = ""
        self._at = at
        self._kind = kind

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.where or not _is_traced(frame.f_code.co_filename) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        looking, before = _looking(frame.f_code), -1

        def each(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            if event == "opcode" and not self.where:
                behind, before = before, frame.f_lasti
                # Raised here, it would miss a handler that ends with the bytecode that it belongs to.
                if looking.get(behind) and _handler(frame.f_code, behind) == _handler(frame.f_code, before):
                    self.points += 1
                    if self.points - 1 == self._at:
                        self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                        raise self._kind(f"struck at point {self._at}: {self.where}")
            return each

        return each


class Hangs(AssertionError):
    """A call did not return."""


def within_limit(call: Callable[[], Any]) -> Outcome:
    """Make a call in a thread of its own; what became of it. Raises Hangs."""
    return struck(call, None, trace=False)


def struck(
    call: Callable[[], Any], at: int | None, kind: type[BaseException] = KeyboardInterrupt, *, trace: bool = True
) -> Outcome:
    """Make a call, and raise `kind` at its point `at`; None: nowhere, and the points are counted. Raises Hangs."""
    strike = _Strike(at, kind)
    told: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        if trace:
            sys.settrace(strike)
        try:
            value = call()
        except BaseException as error:
            sys.settrace(None)
            told.append((None, error))
        else:
            sys.settrace(None)
            told.append((value, None))

    thread = threading.Thread(target=work, name="struck", daemon=True)
    thread.start()
    thread.join(LIMIT)
    if not told:
        with tempfile.TemporaryFile("w+") as told_by:
            faulthandler.dump_traceback(told_by)
            told_by.seek(0)
            stacks = told_by.read()
        raise Hangs(f"a call hangs; struck: {strike.where or 'nothing'}\n{stacks}")
    value, error = told[0]
    return Outcome(strike.points, strike.where, value, error)


def chosen(points: int, most: int) -> range:
    """`most` of the points of a call, or all, evenly. Neighbours get both kinds of exceptions."""
    step = max(points // most, 1)
    return range(0, points, step + (step > 1 and step % 2 == 0))


@contextmanager
def alarms(seed: int, longest: float = 0.003) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """What makes a call in the main thread while a signal is on its way, whose handler raises TimeLimit: within
    `longest` seconds, if the call takes so long."""
    moments, armed = random.Random(seed), False

    def handler(number: int, frame: FrameType | None) -> None:
        if armed:
            raise TimeLimit("the time is over")

    def during(call: Callable[[], Any]) -> Any:
        nonlocal armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, max(moments.random() * longest, 1e-6))
            return call()
        finally:
            armed = False

    usual = signal.signal(signal.SIGALRM, handler)
    try:
        yield during
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
