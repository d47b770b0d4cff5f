"""The storage's time, as responses carry it at no cost: the date of a response, the change time of a file (W13).

While a hypervisor stops a host, all clocks of the host may stand still; the storage's clock does not. So the log
compares the storage's time at both ends of an age. A store notes the time when a response carries it, and the caller
that made the request reads what was noted in its thread. `ObjectInfo.modified` is by the same clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime


class listening:
    """Within it, the times in responses to this thread's requests are noted: the first and the latest, in seconds since
    the epoch; None as long as no response carried one."""

    __slots__ = ("_outer", "first", "latest")

    def __init__(self) -> None:
        self.first: float | None = None
        self.latest: float | None = None

    def __enter__(self) -> listening:
        self._outer = _LISTENER.get()
        _LISTENER.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _LISTENER.set(self._outer)


_LISTENER: ContextVar[listening | None] = ContextVar("listener", default=None)


def note(stamp: float) -> None:
    """Note the time that a response to a request of this thread carried."""
    listener = _LISTENER.get()
    if listener is not None:
        if listener.first is None:
            listener.first = listener.latest = stamp
        elif listener.latest is None or stamp > listener.latest:
            listener.latest = stamp


def date_of(headers: Mapping[str, str]) -> float | None:
    """The time in the header `Date` of a response, to a second; None if there is none that can be understood."""
    for name in ("Date", "date"):
        with suppress(ValueError, KeyError, TypeError):
            return parsedate_to_datetime(headers[name]).timestamp()
    return None
