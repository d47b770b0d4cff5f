"""Disaster recovery: restoring a container whose write-ahead log is lost from its last complete flush cycle (F3).

The result is exactly the container's state when that cycle began. A new log begins with a checkpoint of it, in a new
generation (P4), so positions and versions of the lost log do not match it.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from chunkstore import StorageRefused
from chunkstore.numbered import list_numbered
from engine.errors import EngineError, utc
from engine.logs import checkpoints
from engine.logs.frames import Position
from engine.logs.log import address_of, checkpoints_folder, frames_folder
from engine.state.attach_fence import attach_fence
from engine.state.state import State
from engine.state.tables import METADATA
from engine.storage import recovery_points
from engine.storage.object_reads import Stores
from engine.storage.recovery_points import RecoveryPoint, has_first_frame

GAP = 1 << 20
"""Addresses that are skipped between a lost log and the new one if both are in one folder, so that no process that
still runs uses an address of the new log."""

VERSION_GAP = 1 << 40
"""Numbers of operations that are skipped, so that no version of the lost log is used again."""


class Recovery(NamedTuple):
    """The result of a recovery.

    cycle: number of the flush cycle. time: when it began (ms since the epoch). sequence: the last operation before it.
    segments: how many there are. address: of the new log's checkpoint.
    """

    container: int
    cycle: int
    time: int
    sequence: int
    segments: int
    address: int

    def lines(self) -> list[str]:
        """The report for the operator, line by line."""
        return [
            f"container {self.container}: recovered as of flush cycle {self.cycle}, which began at "
            f"{utc(self.time / 1000)}, with {self.segments} segments and all operations up to number {self.sequence}.",
            "Operations acknowledged after that are lost; how many there were cannot be known without the log.",
            "Chunks that flush cycles and tasks wrote since then are orphans now; `verify` lists them. The commits of "
            "jobs that were writing are refused; run those jobs again.",
        ]


class NothingToRecover(EngineError):
    """There is no recovery point, or the log still exists."""


def recoverable(stores: Stores, container: int, *, force: bool = False) -> RecoveryPoint:
    """The recovery point from which `recover` would start. Changes nothing, and raises the errors of `recover`.

    Raises NothingToRecover if there is none, or if the log exists, which has more, and `force` is not set;
    DataCorruption for a damaged recovery point; StorageError.
    """
    found = "" if force else _left_of_log(stores, container)
    if found:
        raise NothingToRecover(
            f"container {container}: its log still has {found}, and more data than any recovery point. Open it as it "
            "is. If the log is damaged beyond repair, recover with force"
        )
    point = recovery_points.newest(stores.chunks, container)
    if point is None:
        raise NothingToRecover(
            f"container {container}: no flush cycle was ever complete, so there is no recovery point in LTS"
        )
    return point


def _left_of_log(stores: Stores, container: int) -> str:
    """The object from which the log can be opened: a checkpoint or its first frame; "" if there is neither."""
    if list_numbered(stores.log, checkpoints_folder(container), limit=1):
        return "a checkpoint"
    return "its first frame" if has_first_frame(stores.log, container) else ""


def recover(stores: Stores, container: int, successor: int | None = None, *, force: bool = False) -> Recovery:
    """Begin a new log for a container, from the recovery point of its last complete flush cycle.

    successor: the container's id in the new generation; None for a container without a root. The caller makes it valid
    by changing the root's description. Stop all other processes first. Raises as `recoverable`.
    """
    point = recoverable(stores, container, force=force)
    if successor is None:
        successor = container
    else:
        recovery_points.copy(stores.chunks, point, successor)  # until its first flush, its log may be lost too
    address = _new_address(stores, successor, point.head.address)
    head = Position(address, uuid.uuid4().bytes, point.head.epoch + 1)
    now = stores.chunks.clock()  # sweeps after the recovery point are not known, so all earlier chunks are fenced
    state = point.state._replace(
        sequence=point.state.sequence + VERSION_GAP,
        checkpoint=address,
        flushed=address,
        min_attach_time=attach_fence(now, now),
    )
    checkpoints.write(stores.log, successor, head, state)
    found, _ = checkpoints.read_newest(stores.log, successor)
    if found.head != head:
        raise StorageRefused(f"container {container}: another process recovered it at the same time; open it as it is")
    return Recovery(container, point.number, state.cycle.time, state.cycle.sequence, _segments(state), address)


def _new_address(stores: Stores, container: int, known: int) -> int:
    """An address behind all that were ever used, including those of frames that still exist."""
    highest, after = known, ""
    while listed := list_numbered(stores.log, frames_folder(container), after, 1000):
        after = listed[-1].path
        highest = max(highest, address_of(after))
    checkpoint = list_numbered(stores.log, checkpoints_folder(container))
    return max([highest, *(address_of(info.path) for info in checkpoint)]) + GAP


def _segments(state: State) -> int:
    return state.tables[METADATA].layout.entries if METADATA in state.tables else 0
