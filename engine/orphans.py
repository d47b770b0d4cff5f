"""Orphans: objects below the root of the chunks that no container names, found by looking at everything (Pravega:
PDP-34, scanning for orphan chunks).

Tasks leave chunks that nobody attached, and crashes leave chunks and tables' objects that no commit came to name. Keeps
G1: an object is an orphan only if its name says that it is ours, it is older than any task may take, all containers
could be opened, and none of them names it in a state that is newer than the listing.

Nothing is deleted here. Orphans become garbage of the container that they belong to, by an append to its log; from then
on nothing that names them can be attached. They are deleted after the delay, and after a flush cycle that began later,
so that no cycle that sleeps with such an object in its hands can commit it any more; and the collector looks again
before. So whoever makes an object named in the very last moment wins, and stopping at any point does no harm.

What is deleted is forgotten, and must not be attached even then. Each way in which a chunk becomes named is closed to
it: appends, whoever makes them, by the container's horizon, which the same append to the log moves (`engine.horizon`);
flush cycles, whatever they write or copy, by their number, as above; merges of small chunks, which are queued as
garbage before they are made, by the collector, which forestalls their commit (`chunkstore.garbage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from chunkstore import ObjectInfo, Store
from chunkstore.chunk_names import made_for
from chunkstore.orphans import ImplausibleSweep
from engine.container import Container
from engine.horizon import swept_at
from engine.operations import Discard
from engine.root import CONFIG, Root
from engine.tables import STORAGE

AGE = 86_400.0
"""Seconds for which an object that nothing names may be about to be attached: who takes longer is refused."""

PLAUSIBLE = 0.2
"""The share of all objects that may be orphans (0 to 1)."""

NAMES = 20
"""Names of unknown objects that are told."""

PAGE = 1000
"""Objects that are looked up together, and that one append lets go."""

T = TypeVar("T")

Owner = Callable[[str], int]
"""Tells to which container a segment belongs, by its name or by what it is called in tier 2."""

_TABLES = re.compile(r"_system/containers/(\d+)/E-\d+-S-\d+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEPT = re.compile(r"containers/\d+/(?:wal|checkpoints)/\d{20}|_system/containers/\d+/backups/\d{20}|\..*", re.DOTALL)


class Orphan(NamedTuple):
    """An object that nothing names, with its size in bytes, and the container that gets it as garbage."""

    path: str
    size: int
    container: int


class Sweep(NamedTuple):
    """What a look at all objects found.

    examined: chunks and tables' objects there are. orphans: those that nothing names. recent: how many more nothing
    names, which are too young to be judged. unknown: objects that nothing here made, which are left alone;
    unknown_names: the first of them. swept: the horizon for the containers that orphans belong to (ms since the epoch).
    """

    examined: int
    orphans: tuple[Orphan, ...]
    recent: int
    unknown: int
    unknown_names: tuple[str, ...]
    swept: int

    @property
    def bytes(self) -> int:
        """How many bytes the orphans have."""
        return sum(orphan.size for orphan in self.orphans)


def find_orphans(
    root: Root, owner: Owner, age: float = AGE, told: Callable[[int], None] = lambda count: None
) -> Sweep:
    """Look at all objects, and change nothing. Other processes may use the root meanwhile.

    age: seconds by the store's clock for which an object is left alone, longer than a task may take from its first
    chunk to its commit. told: hears how many objects were looked at. Raises StorageError and EngineError; also if any
    container cannot be opened, as nobody knows then what it names.
    """
    if not age >= 0:
        raise ValueError(f"age={age!r} is not a number of seconds")
    containers = [root.container(number) for number in range(root.config.containers)]
    search = _Search(containers, owner, root.stores.chunks.clock(), age)
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

    Containers that have none are left as they are. May be repeated. Raises ImplausibleSweep, StorageError, EngineError.
    """
    check_plausible(root, sweep, share)
    saved = 0
    for number in sorted({orphan.container for orphan in sweep.orphans}):
        container = root.container(number)
        if container.refresh().cycle.backup < 0:
            container.flush()  # from now on garbage is kept until yet another cycle is complete
        for page in _pages(orphan.path for orphan in sweep.orphans if orphan.container == number):
            state = container.commit([Discard(tuple(page), sweep.swept)]).state
            saved += sum(path not in state.garbage for path in page)
    return saved


class _Search:
    """One look at all objects, begun at `now` (epoch s). Those that were changed within `age` (s) before that are not
    judged."""

    def __init__(self, containers: Sequence[Container], owner: Owner, now: float, age: float) -> None:
        self._containers = containers
        self._owner = owner
        self._before = now - age
        self._swept = swept_at(self._before, now)
        self._examined = self._recent = self._unknown = 0
        self._orphans: list[Orphan] = []
        self._unknown_names: list[str] = []

    def look_at(self, page: Sequence[ObjectInfo]) -> None:
        """Look at objects that were listed."""
        ours: dict[str, tuple[ObjectInfo, int]] = {}
        for info in page:
            container = self._container_of(info.path)
            if container is not None:
                ours[info.path] = info, container
            elif info.path != CONFIG and not _KEPT.fullmatch(info.path):
                self._unknown += 1
                if self._unknown <= NAMES:
                    self._unknown_names.append(info.path)
        self._examined += len(ours)
        for path in self._unnamed(ours):
            info, container = ours[path]
            if info.modified < self._before:
                self._orphans.append(Orphan(path, info.size, container))
            else:
                self._recent += 1

    def _container_of(self, path: str) -> int | None:
        """The container that an object was made for; None if it is not one of ours."""
        table = _TABLES.fullmatch(path)
        if table is not None:
            number = int(table[1])
        else:
            segment = made_for(path)
            if segment is None:
                return None
            number = self._owner(segment)
        return number if number < len(self._containers) else None

    def _unnamed(self, paths: Collection[str]) -> list[str]:
        """Those of the objects that no container names in its state, which is newer than the listing, or in tier 2."""
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
        """What was found."""
        return Sweep(
            self._examined,
            tuple(self._orphans),
            self._recent,
            self._unknown,
            tuple(self._unknown_names),
            self._swept,
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
