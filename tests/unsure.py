"""A storage that gives no answer: frames of the log that are lost, or land without anybody hearing of it."""

from __future__ import annotations

from chunkstore.testing import FaultStore, SimulatedStore
from chunkstore.testing.faults import Fault, When
from chunkstore.wrapping import Request
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores


class Unsure:
    """What happens to the next frames, one after the other. Those that come after them meet nothing."""

    def __init__(self) -> None:
        self.fates: list[When] = []
        self.store = FaultStore(SimulatedStore(0), self._fate, verbs={"put_if_absent"})
        self.root = Root(
            Stores(self.store, self.store),
            RootConfig("root", containers=1),
            Settings(maintenance=False, threaded=False, timeout=0.0),
        )

    def _fate(self, number: int, request: Request) -> Fault | None:
        if not self.fates or "/wal/" not in request.paths[0]:
            return None
        return Fault(self.fates.pop(0))

    @property
    def met(self) -> bool:
        """Whether all fates were met."""
        return not self.fates
