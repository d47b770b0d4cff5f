"""The folder that a Pravega left, as something that is only read.

Nothing here writes. All names are listed once, when it is opened; so only
the bytes that are needed are requested afterwards, and sizes are known without a request. The folder must be at rest.
"""

from __future__ import annotations

import bisect
import shlex
from collections.abc import Iterable, Iterator

from chunkstore.errors import Damaged, ObjectNotFound, StorageError
from chunkstore.paths import CONTAINERS, EPOCHS, SYSTEM
from chunkstore.port import ObjectInfo, Range, Store

_PAGE = 1000


_MARKS = (f"{CONTAINERS}metadata_", f"{CONTAINERS}storage_metadata_", f"{CONTAINERS}_sysjournal", f"{SYSTEM}_tables/")
"""What names below a root begin with if a Pravega wrote them, or a segment store that stands by itself, which has an
epoch."""

_BEHIND_NUMBERS = f"{CONTAINERS}:"
"""The names of containers of a root of streams are numbers, which sort before this."""


def is_archive(store: Store) -> bool:
    """Whether the store is the long-term storage of a Pravega. Lists a name or two."""
    listed = store.list(CONTAINERS, _BEHIND_NUMBERS, 1) or store.list(f"{SYSTEM}_tables/", limit=1)
    return any(info.path.startswith(_MARKS) for info in listed) and not store.list(EPOCHS, limit=1)


SALVAGE = "read what is sound with --salvage, or option 'salvage'"
"""What can be done about damage by a reader."""


class ArchiveDamaged(Damaged, StorageError):
    """Something in a Pravega's long-term storage is missing, or cannot be right. The message names the object.

    Make it with `Source.damaged`, `Archive.damaged`: then its remedy suits the storage and how it was opened.
    """

    remedy = f"Restore it from a copy, or {SALVAGE} (docs/from-pravega.md)."


def remedy_in(where: str, instead: str | None) -> str:
    """What to do about damage in the storage `where`. instead: of restoring it; None if that is all."""
    restore = f"Restore it from a copy{f', or {instead}' if instead else ''} (docs/from-pravega.md)."
    return f"`pravega-spark --root {shlex.quote(where)} verify --deep` lists all that is damaged or missing. {restore}"


class Source:
    """The objects below `prefix` ("a/b/", "" for all) of a store, by their names from there on.

    instead: what can be done about damage instead of restoring it; None if nothing can.
    """

    def __init__(self, store: Store, prefix: str = "", instead: str | None = SALVAGE) -> None:
        self._store = store
        self._instead = instead
        self._prefix = prefix
        self._listing = dict(self._listed())
        self._names = sorted(self._listing)

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return f"{self._store.root}/{self._prefix}".rstrip("/")

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names that begin with `prefix`, in their order."""
        for place in range(bisect.bisect_left(self._names, prefix), len(self._names)):
            if not self._names[place].startswith(prefix):
                return
            yield self._names[place]

    def size(self, name: str) -> int | None:
        """How many bytes an object has; None if there is none."""
        found = self._listing.get(name)
        return found.size if found is not None else None

    def modified(self, name: str) -> float | None:
        """When an object was last changed (seconds since the epoch); None if there is none."""
        found = self._listing.get(name)
        return found.modified if found is not None else None

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of an object, all of them. Raises ArchiveDamaged, and what the store raises."""
        size = self.size(name)
        if size is None:
            raise self.damaged(name, "it is missing")
        end = size if end is None else end
        if end > size:
            raise self.damaged(name, f"it has {size} bytes, but {end} are due")
        try:
            data = self._store.read(self._prefix + name, start, end) if end > start else b""
        except ObjectNotFound:
            raise self.damaged(name, "it is listed, but absent: the folder is being changed") from None
        if len(data) != end - start:
            raise self.damaged(name, f"{len(data)} of {end - start} bytes were read at {start}")
        return data

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """The bytes of small objects, by their names: of a thousand in one request. Raises as `read` does."""
        left, found = list(names), {}
        while left:
            page, left = left[:_PAGE], left[_PAGE:]
            ranges = [Range(self._prefix + name, 0, self._listing[name].size) for name in page]
            for name, wanted, data in zip(page, ranges, self._store.read_ranges(ranges), strict=True):
                if data is None or len(data) != wanted.end:
                    raise self.damaged(name, "it is not as it was listed: the folder is being changed")
                found[name] = data
        return found

    def damaged(self, name: str, problem: object) -> ArchiveDamaged:
        """The error of an object that is not as it must be."""
        return self.damage(f"{name!r}: {problem}")

    def damage(self, fact: str) -> ArchiveDamaged:
        """The error of something in the folder that is not as it must be."""
        error = ArchiveDamaged(f"{self.where}: {fact}")
        error.remedy = remedy_in(self.where, self._instead)
        return error

    def _listed(self) -> Iterator[tuple[str, ObjectInfo]]:
        last = ""
        while page := self._store.list(self._prefix, last, _PAGE):
            for found in page:
                yield found.path.removeprefix(self._prefix), found
            last = page[-1].path
