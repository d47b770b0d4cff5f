"""Work carried out in a forked process, and what it reports."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tests.support.clones import unseen_fork

SECONDS = 60
"""A child that takes longer waits for a thread or a lock that did not survive the fork."""


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns, or the error that it raises, in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = work()
        except BaseException as error:
            result = error
        os.write(writing, pickle.dumps(result))
        os._exit(0)
    os.close(writing)
    try:
        told = b""
        while select.select([reading], [], [], SECONDS)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return pickle.loads(told)
            told += part
        os.kill(child, 9)
        raise AssertionError(f"the child hung for {SECONDS} seconds")
    finally:
        os.close(reading)
        os.waitpid(child, 0)


def refusals(*calls: Callable[[], Any]) -> list[bool]:
    """Whether each of these calls is refused in a fork of this process, because of that."""

    def work() -> list[bool]:
        told = []
        for call in calls:
            try:
                call()
                told.append(False)
            except RuntimeError as error:
                told.append("before the process forked" in str(error))
        return told

    found: list[bool] = in_child(work)
    return found


def in_unseen_child(work: Callable[[], None]) -> int:
    """Do this in a fork that Python does not see; the child's number."""
    number = unseen_fork()
    if number == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)  # it does not outlive a parent that failed
        try:
            work()
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    return number
