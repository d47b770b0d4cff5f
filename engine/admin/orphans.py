"""Orphans: objects below the root of the chunks that no container names, found by looking at everything (Pravega:
PDP-34, scanning for orphan chunks).

Tasks leave chunks that nobody attached, and crashes leave chunks and tables' objects that no commit came to name. Keeps
G1: an object is an orphan only if its name says that it is ours, and whoever asks knows the segment that it was made
for; if it is older than any task may take, all containers could be opened, and none of them names it in a state that is
newer than the listing. What lies in a folder that is a root or a backup by itself is not ours (P1).

No chunk is deleted here. Orphans become garbage of the container that they belong to, by an append to its log; from
then on nothing that names them can be attached. They are deleted after the delay, and after a flush cycle that began
later, so that no cycle that sleeps with such an object in its hands can commit it any more; and the collector looks
again before. So whoever makes an object named in the very last moment wins, and stopping at any point does no harm.

What is deleted is forgotten, and must not be attached even then. Each way in which a chunk becomes named is closed to
it: appends, whoever makes them, by the container's horizon, which the same append to the log moves
(`engine.state.horizon`); flush cycles, whatever they write or copy, by their number, as above; merges of small chunks,
which are queued as garbage before they are made, by the collector, which forestalls their commit
(`chunkstore.garbage_collector`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from chunkstore import ObjectInfo, Store
from chunkstore.chunk_names import made_for
from chunkstore.paths import SystemPlace, is_earlier, nested_folder, place_of
from engine.containers.container import Container
from engine.errors import EngineError
from engine.root import MAX_SECONDS, Root
from engine.state.horizon import sweep_horizon
from engine.state.operations import Discard
from engine.state.tables import STORAGE

AGE = 86_400.0
"""Seconds for which an object that nothing names may be about to be attached: who takes longer is refused."""

PLAUSIBLE = 0.2
"""The share of all objects that may be orphans (0 to 1)."""

NAMES = 20
"""Names of unknown objects that are told."""

PAGE = 1000
"""Objects that are looked up together, and that one append lets go."""

T = TypeVar("T")

Owner = Callable[[str], int | None]
"""Tells to which container a segment belongs, by its name or by what it is called in LTS; None if no such segment
can have been here. Asked about objects that nothing names."""


class ImplausibleSweep(EngineError):
    """A sweep found a share of orphans that can hardly be right. Nothing was changed."""


class Orphan(NamedTuple):
    """An object that nothing names, with its size in bytes, and the container that gets it as garbage."""

    path: str
    size: int
    container: int


class Sweep(NamedTuple):
    """What a look at all objects found.

    examined: chunks and tables' objects there are. orphans: those that nothing names. recent: how many more nothing
    names, which are too young to be judged. unknown: objects that nothing here made, which are left alone;
    unknown_names: the first of them. nested: folders that are roots or backups by themselves, which are left alone;
    what lies in them counts as unknown. orphan_horizon: that of the containers that orphans belong to from now on (ms
    since the epoch). earlier: objects of logs, and recovery points, from before a container was recovered or the root
    restored (P4); nothing reads them.
    """

    examined: int
    orphans: tuple[Orphan, ...]
    recent: int
    unknown: int
    unknown_names: tuple[str, ...]
    nested: tuple[str, ...]
    orphan_horizon: int
    earlier: tuple[Orphan, ...] = ()

    @property
    def bytes(self) -> int:
        """How many bytes the orphans have."""
        return sum(orphan.size for orphan in (*self.orphans, *self.earlier))


def find_orphans(root: Root, owner: Owner, age: float = AGE, told: Callable[[int], None] = lambda count: None) -> Sweep:
    """Look at all objects, and change nothing. Other processes may use the root meanwhile.

    age: seconds by the store's clock for which an object is left alone, longer than a task may take from its first
    chunk to its commit. told: hears how many objects were looked at. Raises StorageError and EngineError; also if any
    container cannot be opened, as nobody knows then what it names.
    """
    if not 0 <= age <= MAX_SECONDS:
        raise ValueError(f"age={age!r} is not a number of seconds from 0 to {MAX_SECONDS:g}")
    containers = [root.container(number) for number in range(root.config.containers)]
    search = _OrphanSearch(root, containers, owner, containers[0].storage_clock.agreed("orphans are not judged"), age)
    count = 0
    for page in _pages(_listed(root.stores.chunks)):
        search.look_at(page)
        count += len(page)
        told(count)
    return search.sweep()


def check_plausible(root: Root, sweep: Sweep, share: float = PLAUSIBLE) -> None:
    """Raise ImplausibleSweep if more than `share` (0 to 1) of the objects would go (G1)."""
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r} is not between 0 and 1")
    if len(sweep.orphans) > share * sweep.examined:
        raise ImplausibleSweep(
            f"{root.stores.chunks.root}: {len(sweep.orphans)} of {sweep.examined} objects belong to nothing, such as "
            f"{sweep.orphans[0].path!r}; at most {share:.0%} are plausible. Nothing was changed; see with `verify` "
            "whether this is the right root and nothing is missing, then allow a higher share"
        )


def give_up(root: Root, sweep: Sweep, share: float = PLAUSIBLE) -> int:
    """Make the orphans garbage, which is collected after the delay and a flush cycle; how many were none by now.
    Objects of earlier logs are deleted at once.

    Containers that have none are left as they are. May be repeated. Raises ImplausibleSweep, StorageError, EngineError.
    """
    check_plausible(root, sweep, share)
    saved = 0
    for number in sorted({orphan.container for orphan in sweep.orphans}):
        container = root.container(number)
        if container.refresh().cycle.recovery_point < 0:
            container.flush()  # from now on garbage is kept until yet another cycle is complete
        for page in _pages(orphan.path for orphan in sweep.orphans if orphan.container == number):
            state = container.commit([Discard(tuple(page), sweep.orphan_horizon)]).state
            saved += sum(path not in state.garbage for path in page)
    if sweep.earlier:
        root.verify()
        for page in _pages(object.path for object in sweep.earlier):
            root.stores.chunks.delete(page)
    return saved


class _OrphanSearch:
    """One look at all objects, begun at `now` (epoch s). Those that were changed within `age` (s) before that are not
    judged."""

    def __init__(self, root: Root, containers: Sequence[Container], owner: Owner, now: float, age: float) -> None:
        self._containers = containers
        self._log = root.stores.log.root.removeprefix(f"{root.stores.chunks.root}/") + "/"
        self._owner = owner
        self._before = now - age
        self._orphan_horizon = sweep_horizon(self._before, now)
        self._examined = self._recent = self._unknown = 0
        self._orphans: list[Orphan] = []
        self._earlier: list[Orphan] = []
        self._unknown_names: list[str] = []
        self._nested: list[str] = []

    def look_at(self, page: Sequence[ObjectInfo]) -> None:
        """Look at objects that were listed."""
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
                self._leave(info.path)
        self._examined += len(chunks)
        for path in self._unnamed(chunks):
            container = self._container_of(path)
            if container is None:
                self._examined -= 1
                self._leave(path)
            elif chunks[path].modified < self._before:
                self._orphans.append(Orphan(path, chunks[path].size, container))
            else:
                self._recent += 1

    def _is_earlier(self, path: str, number: int) -> bool:
        return 0 <= number < len(self._containers) and is_earlier(path, self._containers[number].number)

    def _leave(self, path: str) -> None:
        """Leave alone what is not known to be ours."""
        self._unknown += 1
        if self._unknown <= NAMES:
            self._unknown_names.append(path)

    def _container_of(self, path: str) -> int | None:
        """The container that a chunk, which nothing names, was made for; None if it was made for none of ours."""
        place, segment = place_of(path), made_for(path)
        number = place[1] if place is not None else self._owner(segment) if segment is not None else None
        return number if number is not None and number < len(self._containers) else None

    def _unnamed(self, paths: Collection[str]) -> list[str]:
        """Those of the objects that no container names in its state, which is newer than the listing, or in LTS."""
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
        """What was found. A folder may say what it is by an object that is listed after what it holds."""
        nested = tuple(self._nested)
        orphans = [orphan for orphan in self._orphans if not orphan.path.startswith(nested)]
        for orphan in self._orphans if nested else ():
            if orphan.path.startswith(nested):
                self._examined -= 1
                self._leave(orphan.path)
        return Sweep(
            self._examined,
            tuple(orphans),
            self._recent,
            self._unknown,
            tuple(self._unknown_names),
            nested,
            self._orphan_horizon,
            tuple(self._earlier),
        )


def _listed(store: Store) -> Iterator[ObjectInfo]:
    """All objects, while others come and go."""
    last = ""
    while page := store.list("", last, 10 * PAGE):
        yield from page
        last = page[-1].path


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, PAGE)):
        yield page
