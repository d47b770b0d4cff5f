"""A copy of this process with its memory and its threads, as a clone of a virtual machine has them (W15)."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time

PATIENCE = 1.0
"""For so long (seconds) no thread asks another one for the interpreter while this process forks."""


def unseen_fork() -> int:
    """Fork as the C library does, by which Python calls no handlers: the child's number, or 0 in the child.

    The child has the calling thread only, and the interpreter's lock with it. A thread that was asking for the lock at
    the fork would be waited for in the child, where it is not: the interpreter hands the lock over and waits until it
    was taken. So nobody asks meanwhile: a thread that waits does so for the switch interval before it asks.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    try:
        time.sleep(
            3 * before
        )  # whoever waits already does so by the old interval; taking the lock again unsays its wish
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(before)


def is_clone() -> bool:
    """Make a copy of this process, and go on in both of them; whether this is the copy.

    The copy believes that it is the process that it was made of, and has the calling thread only. The others, which
    were waiting for work, begin their loops again in it.
    """
    if unseen_fork() != 0:
        return False
    for condition in [each for each in gc.get_objects() if isinstance(each, threading.Condition)]:
        condition._waiters.clear()  # type: ignore[attr-defined]  # they were of threads that are not here
    for thread in [each for each in threading.enumerate() if each is not threading.current_thread()]:
        thread._started, thread._tstate_lock = threading.Event(), None  # type: ignore[attr-defined]
        thread.start()
    return True
