"""Garbage collection of a root: orphans become garbage, idle uploads expire, and garbage that is due is deleted.

`find_garbage` only looks, and `collect_garbage` acts, so a caller can show first what will be deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.admin import orphans
from engine.admin.orphans import AGE, PLAUSIBLE, ContainerOf, Sweep
from engine.admin.progress import Progress, no_progress
from engine.containers.container import Container
from engine.root import Root
from engine.state.state import GarbageEntry, State


class FoundGarbage(NamedTuple):
    """What can be collected.

    sweep: the orphans. waiting: how many objects are garbage already. idle: uploads of large events without an append
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
    """deleted: objects. expired: uploads. waiting: objects that are garbage now."""

    deleted: int
    expired: int
    waiting: int


def find_garbage(
    root: Root, container_of: ContainerOf, age: float = AGE, progress: Progress = no_progress
) -> FoundGarbage:
    """Find what can be collected, and change nothing. Raises StorageError, EngineError.

    age: orphans must be older than this, in seconds.
    """
    sweep = orphans.find_orphans(root, container_of, age, lambda count: progress("objects", count, 0))
    containers = _containers(root)
    waiting = sum(len(container.state.garbage) for container in containers)
    return FoundGarbage(sweep, waiting, sum(len(container.idle_transients()) for container in containers))


def collect_garbage(root: Root, found: FoundGarbage, share: float = PLAUSIBLE) -> CollectedGarbage:
    """Make the orphans garbage, expire idle uploads, and delete the garbage that is due. May be repeated.

    share: the largest plausible share of orphans among all objects. Raises ImplausibleSweep before anything is changed;
    StorageError, EngineError.
    """
    orphans.check_plausible(root, found.sweep, share)
    containers = _containers(root)
    expired = sum(len(container.expire_transients()) for container in containers)
    orphans.expire_orphans(root, found.sweep, share)
    deleted = sum(_delete_due(container) for container in containers)
    return CollectedGarbage(deleted, expired, sum(len(container.refresh().garbage) for container in containers))


def _containers(root: Root) -> list[Container]:
    return [root.container(number) for number in range(root.config.containers)]


def _delete_due(container: Container) -> int:
    """Delete the garbage that is due, after a flush cycle if some of it waits only for that. Returns how many objects
    were deleted."""
    before = int((container.storage_clock.now() - container.settings.garbage_delay) * 1000)
    if any(_waits_for_cycle(container.state, garbage, before) for garbage in container.state.garbage.values()):
        container.flush()
    return container.collect_garbage()


def _waits_for_cycle(state: State, garbage: GarbageEntry, before: int) -> bool:
    return garbage.since < before and state.is_kept_for_recovery(garbage)
