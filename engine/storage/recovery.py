"""Disaster recovery: a container whose write-ahead log is gone, from what its last flush cycle brought to LTS (F3).

What is recovered is exactly what the container held when that cycle began. A new log begins with a checkpoint of it, in
a generation of its own (P4): positions and versions of the lost log do not fit it.
"""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from chunkstore import StorageRefused
from chunkstore.numbered import list_numbered
from engine.errors import EngineError
from engine.logs import checkpoints
from engine.logs.frames import Position
from engine.logs.log import address_of, checkpoints_folder, frames_folder
from engine.state.horizon import sweep_horizon
from engine.state.state import State
from engine.state.tables import METADATA
from engine.storage import recovery_points
from engine.storage.reads import Stores
from engine.storage.recovery_points import RecoveryPoint, has_first_frame

GAP = 1 << 20
"""Addresses that are left out between a lost log and the new one where both lie in one folder, so that none is used
twice, whoever is still alive."""

VERSION_GAP = 1 << 40
"""Numbers of operations that are left out: versions of entries that the lost log knew are never given again."""


class Recovery(NamedTuple):
    """What was recovered.

    cycle: the number of the flush cycle; time: when it began (ms since the epoch); sequence: the last operation that it
    knew. segments: how many there are. address: that of the new log's checkpoint.
    """

    container: int
    cycle: int
    time: int
    sequence: int
    segments: int
    address: int

    def lines(self) -> list[str]:
        """What to tell the operator, line by line."""
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time / 1000))
        return [
            f"container {self.container}: recovered as flush cycle {self.cycle} found it on {when}, with "
            f"{self.segments} segments and all operations up to number {self.sequence}.",
            "Operations acknowledged after that are lost; how many there were cannot be known without the log.",
            "Chunks that were written since, by flushes and by tasks, belong to nothing now; `verify` lists them. Jobs "
            "that were writing are refused, and have to be run again.",
        ]


class NothingToRecover(EngineError):
    """There is no recovery point of a flush cycle, or the log is there."""


def recoverable(stores: Stores, container: int, *, force: bool = False) -> RecoveryPoint:
    """The recovery point that `recover` would begin with. Changes nothing, and raises what `recover` would.

    Raises NothingToRecover if there is none, or if the log is there and `force` is not set: the log knows more. Raises
    DataCorruption for a damaged recovery point, StorageError.
    """
    found = "" if force else _left_of_log(stores, container)
    if found:
        raise NothingToRecover(
            f"container {container}: its log has {found} and knows more than any recovery point; open it as it "
            "is. If the log is damaged beyond repair, recover with force"
        )
    point = recovery_points.newest(stores.chunks, container)
    if point is None:
        raise NothingToRecover(
            f"container {container}: no flush cycle was ever complete, so LTS holds no recovery point"
        )
    return point


def _left_of_log(stores: Stores, container: int) -> str:
    """What there is for the log to be opened from: a checkpoint or its first frame; "" if it cannot be opened."""
    if list_numbered(stores.log, checkpoints_folder(container), limit=1):
        return "a checkpoint"
    return "its first frame" if has_first_frame(stores.log, container) else ""


def recover(stores: Stores, container: int, successor: int | None = None, *, force: bool = False) -> Recovery:
    """Begin a new log for a container, from the recovery point of its last complete flush cycle.

    successor: the same container in the generation that begins; None for one that belongs to no root. It becomes the
    container's when the root's description says so. Stop all other processes first. Raises as `recoverable`, which says
    beforehand what this begins with.
    """
    point = recoverable(stores, container, force=force)
    if successor is None:
        successor = container
    else:
        recovery_points.copy(stores.chunks, point, successor)  # until its first flush, its log may be lost too
    address = _new_address(stores, successor, point.head.address)
    head = Position(address, uuid.uuid4().bytes, point.head.epoch + 1)
    now = stores.chunks.clock()  # nobody knows of sweeps that came after the recovery point
    state = point.state._replace(
        sequence=point.state.sequence + VERSION_GAP,
        checkpoint=address,
        flushed=address,
        orphan_horizon=sweep_horizon(now, now),
    )
    checkpoints.write(stores.log, successor, head, state)
    found, _ = checkpoints.read_newest(stores.log, successor)
    if found.head != head:
        raise StorageRefused(f"container {container}: another process recovers it at the same time; open it as it is")
    return Recovery(container, point.number, state.cycle.time, state.cycle.sequence, _segments(state), address)


def _new_address(stores: Stores, container: int, known: int) -> int:
    """An address behind all that were ever used, those of frames that are left included."""
    highest, after = known, ""
    while listed := list_numbered(stores.log, frames_folder(container), after, 1000):
        after = listed[-1].path
        highest = max(highest, address_of(after))
    checkpoint = list_numbered(stores.log, checkpoints_folder(container))
    return max([highest, *(address_of(info.path) for info in checkpoint)]) + GAP


def _segments(state: State) -> int:
    return state.tables[METADATA].layout.entries if METADATA in state.tables else 0
