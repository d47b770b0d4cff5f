"""A copy of a process with its memory: with its threads, as a clone of its machine has them (W15), or without, as a
forked child has it (W10).

Two clones go on with the same writer id, the same position in the log and the same caches. The stack of a thread cannot
be copied. So a process is cloned when its threads wait for work, and those of the clone begin their loops again. It may
fork at any time: then the child has locks that are held by threads which it does not have.
"""

from __future__ import annotations

import copy
import threading
import types
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from unittest import mock

from tests.simulation.virtual import Lock
from tests.simulation.world import Task

T = TypeVar("T")


class Memory:
    """Makes copies of what a process has in its memory.

    instead: objects, and what the copies refer to in their place.
    """

    def __init__(self, instead: Iterable[tuple[object, object]]) -> None:
        self._known: dict[int, Any] = {id(old): new for old, new in instead}
        self._begin: list[threading.Thread] = []

    def of(self, what: T) -> T:
        """A copy of it, and of all that it refers to."""
        ways = {
            memoryview: _same,
            Task: _same,
            threading.Condition: _condition,
            threading.Thread: self._thread,
            types.CellType: _cell,
            types.FunctionType: _function,
            Lock: _lock,
            ThreadPoolExecutor: _pool,
        }
        with mock.patch.dict(vars(copy)["_deepcopy_dispatch"], ways):
            return copy.deepcopy(what, self._known)

    def begin_threads(self) -> None:
        """Begin the threads of the copies, on the present host."""
        for thread in self._begin:
            thread.start()

    def _thread(self, thread: threading.Thread, memo: dict[int, Any]) -> threading.Thread:
        target = copy.deepcopy(vars(thread)["_target"], memo)
        arguments = copy.deepcopy(vars(thread)["_args"], memo)
        copied = threading.Thread(target=target, name=thread.name, args=arguments, daemon=thread.daemon)
        if thread.is_alive():
            self._begin.append(copied)
        return copied


def _same(what: Any, memo: dict[int, Any]) -> Any:
    return what


def _condition(condition: threading.Condition, memo: dict[int, Any]) -> threading.Condition:
    """Without the threads that wait, which are not there."""
    return threading.Condition(copy.deepcopy(vars(condition)["_lock"], memo))


def _lock(lock: Lock, memo: dict[int, Any]) -> Lock:
    copied = Lock()
    if lock.locked():
        copied.acquire(blocking=False)
    return copied


def _pool(pool: ThreadPoolExecutor, memo: dict[int, Any]) -> ThreadPoolExecutor:
    """A new one: the threads of a clone had no work, and a child has none of them."""
    kept = vars(pool)
    return ThreadPoolExecutor(kept["_max_workers"], kept["_thread_name_prefix"])


def _function(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    """One that has copies of the variables around it."""
    if function.__closure__ is None:
        return function
    cells = tuple(copy.deepcopy(cell, memo) for cell in function.__closure__)
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _cell(cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    copied = memo[id(cell)] = types.CellType()
    copied.cell_contents = copy.deepcopy(cell.cell_contents, memo)
    return copied
