"""Collecting the garbage of a root: orphans become garbage, idle uploads are given up, and what is due is deleted.

It takes two steps, `find_garbage` and `collect_garbage`, so that a caller can show what was found before it is changed.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.admin import orphans
from engine.admin.orphans import AGE, PLAUSIBLE, Owner, Sweep
from engine.admin.progress import Progress, no_progress
from engine.containers.container import Container
from engine.root import Root
from engine.state.state import GarbageEntry, State


class FoundGarbage(NamedTuple):
    """What there is to collect.

    sweep: the orphans. waiting: objects that are garbage already. idle: uploads of large events that nobody continued
    for the root's idle time.
    """

    sweep: Sweep
    waiting: int
    idle: int

    @property
    def empty(self) -> bool:
        """Whether there is nothing to collect."""
        return not (self.sweep.orphans or self.waiting or self.idle)


class CollectedGarbage(NamedTuple):
    """What was collected: objects deleted, uploads given up; and how many objects are garbage now."""

    deleted: int
    expired: int
    waiting: int


def find_garbage(root: Root, owner: Owner, age: float = AGE, progress: Progress = no_progress) -> FoundGarbage:
    """Look for what can be collected, and change nothing. Raises StorageError, EngineError.

    owner: finds the container of a segment. age: seconds for which unreferenced objects are left alone.
    """
    sweep = orphans.find_orphans(root, owner, age, lambda count: progress("objects", count, 0))
    containers = _containers(root)
    waiting = sum(len(container.state.garbage) for container in containers)
    return FoundGarbage(sweep, waiting, sum(len(container.idle_transients()) for container in containers))


def collect_garbage(root: Root, found: FoundGarbage, share: float = PLAUSIBLE) -> CollectedGarbage:
    """Mark the orphans as garbage, give up idle uploads, and delete the garbage that is due.

    share: the largest plausible share of orphans among all objects. May be repeated. Raises ImplausibleSweep before
    anything is changed; StorageError, EngineError.
    """
    orphans.check_plausible(root, found.sweep, share)
    containers = _containers(root)
    expired = sum(len(container.expire_transients()) for container in containers)
    orphans.give_up(root, found.sweep, share)
    deleted = sum(_delete_due(container) for container in containers)
    return CollectedGarbage(deleted, expired, sum(len(container.refresh().garbage) for container in containers))


def _containers(root: Root) -> list[Container]:
    return [root.container(number) for number in range(root.config.containers)]


def _delete_due(container: Container) -> int:
    """Delete what is due, after a flush cycle if that is all that it waits for; how many objects were deleted."""
    before = int((container.storage_clock.now() - container.settings.garbage_delay) * 1000)
    if any(_waits_for_cycle(container.state, garbage, before) for garbage in container.state.garbage.values()):
        container.flush()
    return container.collect_garbage()


def _waits_for_cycle(state: State, garbage: GarbageEntry, before: int) -> bool:
    return garbage.since < before and state.is_kept_for_recovery(garbage)
