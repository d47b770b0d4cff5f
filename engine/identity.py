"""Whether the root that this process opened is still the one in its place (P4).

A root may be created anew or restored where another one was, and a container's log may begin anew after a recovery,
while a process of the earlier root still runs. Each of these begins a generation, whose log lies in a folder of its
own, so such a process cannot disturb the new root; but what it appends belongs to no root any more. So a process looks
at the root's description again: before it acknowledges what it appended, when it has read a log to its end, and before
it deletes anything. In a folder that is one look at a file each time; on object stores one request every CHECK_SECONDS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Protocol

from chunkstore import ObjectNotFound, StorageRefused, Store
from chunkstore.boot_clock import boot_time
from chunkstore.paths import ROOT
from engine.errors import RootReplaced

CHECK_SECONDS = 10.0
"""Seconds after which a process that uses a root on an object store reads the root's description again."""


class Identity(Protocol):
    """What a log needs of the identity of its root."""

    def check(self) -> bool:
        """Whether the root was looked at just now. Raises RootReplaced, StorageError."""

    def verify(self) -> None:
        """Look at the root now. Raises RootReplaced, StorageError."""


class AnyIdentity:
    """The identity of a container that belongs to no root: there is nothing to be compared."""

    def check(self) -> bool:
        return False

    def verify(self) -> None:
        pass


ANY_IDENTITY = AnyIdentity()


class RootIdentity:
    """The generation of a root that this process opened. Thread-safe.

    Args:
        store: where the root's description lies. generation: what the description said of it.
        read: reads the generation off a description, whose bytes it is given.
        mark: of the description (`Store.mark`), from before it was read; the look at it that costs nothing.
        clock: seconds of a monotonic clock that runs in suspend.
    """

    def __init__(
        self,
        store: Store,
        generation: object,
        read: Callable[[bytes], object],
        mark: Hashable,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._store = store
        self._generation = generation
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._checked = clock()
        self._mark = mark
        self._replaced: RootReplaced | None = None

    def check(self) -> bool:
        """Look at the root unless that was done a moment ago; whether it was. Raises RootReplaced, StorageError."""
        if self._replaced is not None:
            raise self._error(self._replaced)
        mark = self._store.mark(ROOT)
        if mark == self._mark and (mark is not None or self._clock() - self._checked < CHECK_SECONDS):
            return False
        self.verify()
        return True

    def verify(self) -> None:
        """Read the root's description. Raises RootReplaced if it is of another root or generation; StorageRefused
        if it is not there, as on a disk that is not mounted any more; StorageError."""
        with self._lock:
            sent = self._clock()
            mark = self._store.mark(ROOT)
            try:
                found = self._read(self._store.read(ROOT))
            except ObjectNotFound:
                raise self._gone() from None
            if found != self._generation:
                self._replaced = RootReplaced(self._store.root)
                raise self._error(self._replaced)
            self._checked, self._mark = sent, mark

    def _gone(self) -> StorageRefused:
        return StorageRefused(
            f"{self._store.root}: the root's description {ROOT} was there, and is not any more. Make all of the "
            "storage available (is everything mounted?); if the root was deleted, end what still uses it"
        )

    @staticmethod
    def _error(known: RootReplaced) -> RootReplaced:
        """A new error each time: one that is raised keeps the frames of where it was raised."""
        return RootReplaced(known.root)
