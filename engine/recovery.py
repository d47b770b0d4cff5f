"""Disaster recovery: a container whose write-ahead log is gone, from what its last flush cycle brought to tier 2 (F3).

What is recovered is exactly what the container held when that cycle began. A new log begins with a checkpoint of it.
"""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from chunkstore import StorageRefused
from engine import backups, checkpoints
from engine.errors import EngineError
from engine.frames import Position
from engine.horizon import swept_at
from engine.log import address_of, checkpoint_path, folder
from engine.reads import Stores
from engine.state import State
from engine.tables import METADATA

GAP = 1 << 20
"""Addresses that are left out between a lost log and the new one, so that none is used twice, whoever is still
alive."""


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
    """There is no backup of a flush cycle, or the log is there."""


def recover(stores: Stores, container: int, *, force: bool = False) -> Recovery:
    """Begin a new log for a container, from the backup of its last complete flush cycle.

    Stop all other processes first. Raises NothingToRecover if there is no backup, or if the log has a checkpoint and
    `force` is not set: then the log knows more. Raises DataCorruption for a damaged backup, StorageError.
    """
    if not force and stores.log.list(f"{folder(container)}/checkpoints/", limit=1):
        raise NothingToRecover(
            f"container {container}: its log has a checkpoint and knows more than any backup; open it as it is. "
            "If the log is damaged beyond repair, recover with force"
        )
    backup = backups.newest(stores.chunks, container)
    if backup is None:
        raise NothingToRecover(f"container {container}: no flush cycle was ever complete, so tier 2 holds no backup")
    address = _new_address(stores, container, backup.head.address)
    head = Position(address, uuid.uuid4().bytes, backup.head.epoch + 1)
    now = stores.chunks.clock()  # nobody knows of sweeps that came after the backup
    state = backup.state._replace(checkpoint=address, flushed=address, swept=swept_at(now, now))
    stores.log.put_if_absent(checkpoint_path(container, address), checkpoints.encode(container, head, state))
    found = checkpoints.read_newest(stores.log, container)
    if found.head != head:
        raise StorageRefused(f"container {container}: another process recovers it at the same time; open it as it is")
    return Recovery(container, backup.number, state.cycle.time, state.cycle.sequence, _segments(state), address)


def _new_address(stores: Stores, container: int, known: int) -> int:
    """An address behind all that were ever used, those of frames that are left included."""
    highest, after = known, ""
    while listed := stores.log.list(f"{folder(container)}/wal/", after, 1000):
        after = listed[-1].path
        highest = max(highest, address_of(after))
    checkpoint = stores.log.list(f"{folder(container)}/checkpoints/")
    return max([highest, *(address_of(info.path) for info in checkpoint)]) + GAP


def _segments(state: State) -> int:
    return state.tables[METADATA].layout.entries if METADATA in state.tables else 0
