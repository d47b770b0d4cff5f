"""Whether the root that this process opened was replaced meanwhile (P4).

While a process runs, its root may be created again or restored at the same location, or a container's log may begin
again after a recovery. Each of these begins a generation with a log in a new folder, so the process cannot disturb the
new root; but what it appends is lost. So a process reads the root's description again: before it acknowledges an
append, when it has read a log to its end, and before it deletes anything. In a folder that is one `stat` each time, on
object stores one request every CHECK_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from chunkstore import ObjectNotFound, StorageRefused, Store
from chunkstore.boot_clock import boot_time
from chunkstore.paths import ROOT
from engine.errors import RootReplaced

CHECK_SECONDS = 10.0
"""Seconds after which a process that uses a root on an object store reads the root's description again."""


class Identity(Protocol):
    """The identity of a root, as its logs use it."""

    def check(self) -> bool:
        """Whether this call read the description. Raises RootReplaced, StorageError."""

    def verify(self) -> None:
        """Read the description. Raises RootReplaced, StorageError."""


class AnyIdentity:
    """The identity of a container without a root. It is never replaced."""

    def check(self) -> bool:
        return False

    def verify(self) -> None:
        pass


ANY_IDENTITY = AnyIdentity()


class RootIdentity:
    """The generation of a root that this process opened. Thread-safe, without a lock: a child that forks while another
    thread reads the description goes on with this object (W10).

    Args:
        store: has the root's description. generation: from the description.
        read: returns the generation in the bytes of a description.
        mark: of the description (`Store.mark`), from before it was read; comparing it costs no request.
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
        self._checked = clock(), mark  # in one place, as two threads may write it at once
        self._replaced: RootReplaced | None = None

    def check(self) -> bool:
        """Read the description unless it was read a moment ago. Returns whether it was read. Raises RootReplaced,
        StorageError."""
        if self._replaced is not None:
            raise self._error(self._replaced)
        (checked, known), mark = self._checked, self._store.mark(ROOT)
        if mark == known and (mark is not None or self._clock() - checked < CHECK_SECONDS):
            return False
        self.verify()
        return True

    def verify(self) -> None:
        """Read the root's description. Raises RootReplaced if it is of another root or generation; StorageRefused if it
        does not exist, as on an unmounted disk; StorageError."""
        sent = self._clock(), self._store.mark(ROOT)
        try:
            found = self._read(self._store.read(ROOT))
        except ObjectNotFound:
            raise self._gone() from None
        if found != self._generation:
            self._replaced = RootReplaced(self._store.root)
            raise self._error(self._replaced)
        self._checked = sent

    def _gone(self) -> StorageRefused:
        return StorageRefused(
            f"{self._store.root}: the root's description {ROOT} has disappeared. Make all of the storage available (is "
            "everything mounted?). If the root was deleted, stop the programs that still use it"
        )

    @staticmethod
    def _error(known: RootReplaced) -> RootReplaced:
        """A new error each time, because a raised error keeps the stack frames of its traceback alive."""
        return RootReplaced(known.root)
