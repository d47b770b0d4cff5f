"""A store that is only read, such as the long-term storage of a Pravega.

Every verb that writes raises RootReadOnly before any request is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from chunkstore.errors import StorageRefused
from chunkstore.port import Store
from chunkstore.wrapping import WRITES, Request, Result, WrappingStore


class RootReadOnly(StorageRefused):
    """A change of something that can only be read: the long-term storage of a Pravega. root: where it is."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{root} is the long-term storage of a Pravega, which is read in place and never changed. To write, import "
            f"it into a root of its own first: `pravega-spark --root ROOT import {root}`"
        )
        self.root = root


class ReadOnlyStore(WrappingStore):
    """Reads pass to another store."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.can_append = False
        self.host_clock = True

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb in WRITES:
            raise RootReadOnly(self.root)
        return call()

    def sync(self, prefix: str) -> None:
        """Nothing is made durable here, as nothing was written."""

    def clock(self) -> float:
        """This host's time: nothing is put here to learn the storage's, and nothing is deleted by it."""
        return time.time()
