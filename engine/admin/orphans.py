"""Orphans: objects below the root of the chunks that no container names, found by listing all objects (Pravega: PDP-34,
scanning for orphan chunks).

Tasks leave chunks that were never attached, and crashes leave chunks and table objects that no commit names. Keeps G1:
an object is an orphan only if

- its name is one that this project gives, for a segment that the caller knows,
- it is older than any task may take from its first chunk to its commit,
- all containers could be opened, and none of them names it in a state that is newer than the listing,
- it does not lie in a folder that is a root or a backup itself (P1).

No chunk is deleted here. An append to the log of its container makes an orphan garbage, and garbage cannot be attached.
It is deleted after the garbage delay and after a flush cycle that began later, so a cycle that slept while it held such
an object cannot commit it any more. The collector checks again before it deletes. So a writer that names the object at
the last moment wins, and the sweep can be stopped at any point.

A deleted object is no longer garbage, and still must never be attached. A chunk becomes named in three ways, and each
of them refuses such an object:

- an append, by the container's fence, which the append to the log that made the orphan garbage has moved
  (`engine.state.attach_fence`),
- a flush cycle, by its number, as above,
- compaction, by the collector, which prevents the commit of a chunk that was queued as garbage before it was created
  (`chunkstore.garbage_collector`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from chunkstore import ObjectInfo, Store
from chunkstore.chunk_names import made_for
from chunkstore.paths import SystemPlace, is_earlier, nested_folder, place_of
from engine.admin.batching import batches
from engine.containers.container import Container
from engine.errors import EngineError
from engine.root import Root
from engine.settings import MAX_SECONDS
from engine.state.attach_fence import attach_fence
from engine.state.operations import DiscardChunks
from engine.state.tables import STORAGE

AGE = 86_400.0
"""Seconds after which an unnamed object is an orphan. A task that takes longer to attach it is refused."""

PLAUSIBLE = 0.2
"""The largest plausible share of orphans among all objects (0 to 1)."""

NAMES = 20
"""The most names of unknown objects in a report."""

PAGE = 1000
"""Objects that are looked up together, and that one append makes garbage."""

ContainerOf = Callable[[str], int | None]
"""Returns the container of a segment, given its name or its name in LTS; None if the root cannot have had such a
segment. It is called for objects that nothing names."""


class ImplausibleSweep(EngineError):
    """A sweep found an implausibly large share of orphans. Nothing was changed."""


class Orphan(NamedTuple):
    """An object that nothing names, its size in bytes, and the container whose garbage it becomes."""

    path: str
    size: int
    container: int


class Sweep(NamedTuple):
    """The result of a sweep.

    examined: all chunks and table objects. orphans: those that nothing names. recent: how many more nothing names that
    are not old enough. unknown: objects that this root did not create; they are left alone. unknown_names: the first of
    them. nested: folders that are roots or backups themselves; their objects count as unknown. min_attach_time: the
    fence that the sweep sets in the containers that get garbage (ms since the epoch). earlier: objects of logs, and
    recovery points, from before a container was recovered or the root restored (P4); no process reads them.
    """

    examined: int
    orphans: tuple[Orphan, ...]
    recent: int
    unknown: int
    unknown_names: tuple[str, ...]
    nested: tuple[str, ...]
    min_attach_time: int
    earlier: tuple[Orphan, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all orphans, in bytes."""
        return sum(orphan.size for orphan in (*self.orphans, *self.earlier))


def find_orphans(
    root: Root, container_of: ContainerOf, age: float = AGE, progress: Callable[[int], None] = lambda count: None
) -> Sweep:
    """Find all orphans, and change nothing. Other processes may use the root meanwhile.

    age: orphans must be older than this, in seconds by the storage's clock; longer than a task may take from its first
    chunk to its commit. progress: is called with the number of objects examined so far. Raises StorageError,
    EngineError; also if a container cannot be opened, because then it is not known what that container names.
    """
    if not 0 <= age <= MAX_SECONDS:
        raise ValueError(f"age={age!r} is not a number of seconds from 0 to {MAX_SECONDS:g}")
    containers = [root.container(number) for number in range(root.config.containers)]
    search = _OrphanSearch(
        root, containers, container_of, containers[0].storage_clock.agreed("no sweep for orphans"), age
    )
    count = 0
    for page in batches(_listed(root.stores.chunks), PAGE):
        search.examine(page)
        count += len(page)
        progress(count)
    return search.sweep()


def check_plausible(root: Root, sweep: Sweep, share: float = PLAUSIBLE) -> None:
    """Raise ImplausibleSweep if more than `share` (0 to 1) of the objects are orphans (G1)."""
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r} is not between 0 and 1")
    if len(sweep.orphans) > share * sweep.examined:
        raise ImplausibleSweep(
            f"{root.stores.chunks.root}: {len(sweep.orphans)} of {sweep.examined} objects are orphans, such as "
            f"{sweep.orphans[0].path!r}; at most {share:.0%} are plausible. Nothing was changed. Check with `verify` "
            "that this is the right root and nothing is missing, then allow a higher share"
        )


def expire_orphans(root: Root, sweep: Sweep, share: float = PLAUSIBLE) -> int:
    """Make the orphans garbage, which is collected after the delay and a flush cycle. Delete objects of earlier logs.

    Returns how many orphans were named meanwhile, so that they were kept. Containers without orphans are not changed.
    May be repeated. Raises ImplausibleSweep, StorageError, EngineError.
    """
    check_plausible(root, sweep, share)
    saved = 0
    for number in sorted({orphan.container for orphan in sweep.orphans}):
        container = root.container(number)
        if container.refresh().cycle.recovery_point < 0:
            container.flush()  # with a recovery point, garbage is kept until yet another cycle is complete
        for page in batches((orphan.path for orphan in sweep.orphans if orphan.container == number), PAGE):
            state = container.commit([DiscardChunks(tuple(page), sweep.min_attach_time)]).state
            saved += sum(path not in state.garbage for path in page)
    if sweep.earlier:
        root.verify()
        for page in batches((object.path for object in sweep.earlier), PAGE):
            root.stores.chunks.delete(page)
    return saved


class _OrphanSearch:
    """One sweep over all objects, begun at `now` (epoch s). Objects changed within `age` (s) before that are recent."""

    def __init__(
        self, root: Root, containers: Sequence[Container], container_of: ContainerOf, now: float, age: float
    ) -> None:
        self._containers = containers
        self._log = root.stores.log.root.removeprefix(f"{root.stores.chunks.root}/") + "/"
        self._segment_container = container_of
        self._before = now - age
        self._min_attach_time = attach_fence(self._before, now)
        self._examined = self._recent = self._unknown = 0
        self._orphans: list[Orphan] = []
        self._earlier: list[Orphan] = []
        self._unknown_names: list[str] = []
        self._nested: list[str] = []

    def examine(self, page: Sequence[ObjectInfo]) -> None:
        """Classify objects that were listed."""
        chunks: dict[str, ObjectInfo] = {}
        for info in page:
            place, folder = place_of(info.path), nested_folder(info.path)
            if place is not None and self._is_earlier(info.path, place[1]) and info.modified < self._before:
                self._earlier.append(Orphan(info.path, info.size, place[1]))
            if folder is not None and folder != self._log:
                self._nested.append(folder)
            if (place is not None and place[0] is SystemPlace.TABLES) or made_for(info.path) is not None:
                chunks[info.path] = info
            elif place is None:
                self._leave_alone(info.path)
        self._examined += len(chunks)
        for path in self._unnamed(chunks):
            container = self._container_of(path)
            if container is None:
                self._examined -= 1
                self._leave_alone(path)
            elif chunks[path].modified < self._before:
                self._orphans.append(Orphan(path, chunks[path].size, container))
            else:
                self._recent += 1

    def _is_earlier(self, path: str, number: int) -> bool:
        return 0 <= number < len(self._containers) and is_earlier(path, self._containers[number].number)

    def _leave_alone(self, path: str) -> None:
        """Count an object that this root is not known to have created."""
        self._unknown += 1
        if self._unknown <= NAMES:
            self._unknown_names.append(path)

    def _container_of(self, path: str) -> int | None:
        """The container that an unnamed object was created for; None if it was not created for this root."""
        place, segment = place_of(path), made_for(path)
        number = place[1] if place is not None else self._segment_container(segment) if segment is not None else None
        return number if number is not None and number < len(self._containers) else None

    def _unnamed(self, paths: Collection[str]) -> list[str]:
        """Those of the objects that no container names, in LTS or in its state, which is newer than the listing."""
        left = list(paths)
        for container in self._containers:
            if not left:
                break
            state = container.refresh()
            left = [path for path in left if path not in state.chunks and path not in state.garbage]
            entries = container.entries(STORAGE, left, state)
            left = [path for path in left if entries[path] is None]
        return left

    def sweep(self) -> Sweep:
        """The result. The marker of a nested root may have been listed after other objects in its folder."""
        nested = tuple(self._nested)
        orphans = [orphan for orphan in self._orphans if not orphan.path.startswith(nested)]
        for orphan in self._orphans if nested else ():
            if orphan.path.startswith(nested):
                self._examined -= 1
                self._leave_alone(orphan.path)
        return Sweep(
            self._examined,
            tuple(orphans),
            self._recent,
            self._unknown,
            tuple(self._unknown_names),
            nested,
            self._min_attach_time,
            tuple(self._earlier),
        )


def _listed(store: Store) -> Iterator[ObjectInfo]:
    """All objects, while others are created and deleted."""
    last = ""
    while page := store.list("", last, 10 * PAGE):
        yield from page
        last = page[-1].path
