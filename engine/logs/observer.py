"""The observer of a log: decides when a checkpoint is due, and acts on what is in the log.

The base class does nothing, so a log without an observer works, and makes no checkpoints by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from chunkstore import ObjectInfo
from engine.logs.frames import Position
from engine.state.state import State


class LogObserver:
    """Observes a log. Its methods run while the log waits, so they start work in the background and do none."""

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        """The log was opened again, which listed these checkpoints."""

    def checkpoint_due(self, frames: int) -> bool:
        """Whether the next frame is to carry a Checkpoint, so many frames after the last one."""
        return False

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """A frame of this process is live. state: the one after it. checkpoint: it carries a Checkpoint."""

    def make_room(self) -> None:
        """Writes are refused, as a storage is nearly full."""

    def relieve(self) -> str:
        """Appends wait for a flush to LTS. Returns the error of the last flush, or ""."""
        return ""
