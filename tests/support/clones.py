"""A copy of this process with its memory and its threads, as a clone of a virtual machine has them (W15)."""

from __future__ import annotations

import ctypes
import gc
import threading


def is_clone() -> bool:
    """Make a copy of this process, and go on in both of them; whether this is the copy.

    The C library's fork calls no handlers of Python, so the copy believes that it is the process that it was made of.
    It has the calling thread only. The others, which were waiting for work, begin their loops again in it.
    """
    if ctypes.CDLL(None).fork() != 0:
        return False
    for condition in [each for each in gc.get_objects() if isinstance(each, threading.Condition)]:
        condition._waiters.clear()  # type: ignore[attr-defined]  # they were of threads that are not here
    for thread in [each for each in threading.enumerate() if each is not threading.current_thread()]:
        thread._started, thread._tstate_lock = threading.Event(), None  # type: ignore[attr-defined]
        thread.start()
    return True
