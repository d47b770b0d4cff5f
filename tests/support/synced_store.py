"""A simulated storage that notes what is made durable (G3)."""

from __future__ import annotations

from chunkstore.testing import SimulatedStore


class SyncedStore(SimulatedStore):
    """synced: the folders that callers made durable, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync(self, prefix: str) -> None:
        self.synced.append(prefix)
        super().sync(prefix)
