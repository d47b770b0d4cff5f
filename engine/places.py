"""Where a root, the root of a log, or a backup may be made: not inside another, and never over what is ours (P1).

Whoever made one there would begin anew where data is whose description is missing, because it was deleted or the
storage is not mounted; or would let the sweeps of one take the other's objects for orphans. The requests are bounded,
and paid only when something is made: one for each folder above, and two listings of what is there.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from chunkstore import Range, StorageError, StorageRefused, Store, open_store
from chunkstore.chunk_names import made_for
from chunkstore.paths import BACKUP, MARKERS, RESTORING, ROOT, SELF_TESTS, SYSTEM, nested_folder
from engine.errors import root_meant

LOOKED_AT = 10_000
"""Objects that are looked at in a place where others' objects are."""

MOST_FOLDERS = 64
"""Folders above a place that are looked at."""

MOST_SIMILAR = 3
"""Roots that are named to who may have meant them."""

_SLIP = 0.8
"""How alike two names are, at least, if one may be the other with a slip in it."""

_NUMBER = re.compile("[-_.]?[0-9]+")

Opener = Callable[[str, Mapping[str, Any] | None], Store]


def refuse_inside(
    store: Store, url: str, options: Mapping[str, Any] | None, what: str, opener: Opener = open_store
) -> None:
    """Raise StorageRefused if the place `url` lies in a root, in a log's root, or in a backup. what: is to be made."""
    for above in _folders_above(store, url):
        try:
            outer = opener(above, options)
            found = outer.read_ranges([Range(marker, 0, 1) for marker in MARKERS])
            outer.close()
        except StorageRefused:
            continue  # what this user may not see, he cannot sweep
        for marker, data in zip(MARKERS, found, strict=True):
            if data is not None:
                meant = root_meant(above, _names_in(outer, store)) if marker == ROOT and what == "a root" else ""
                raise StorageRefused(
                    f"{store.root} lies in {outer.root}, where {marker} says that a root, a log or a backup is: {what} "
                    f"inside another would be taken for its garbage; give a place outside.{meant}"
                )


_HINTS = {
    BACKUP: ", so this is a backup: `restore` makes a root of it elsewhere",
    RESTORING: ", as a backup is being restored here: run `restore` again to finish it",
}


class Obstacle(NamedTuple):
    """What is in the way of a new root, in words; ours: it belongs to a root."""

    what: str
    ours: bool


def obstacle(store: Store, *, empty: bool, log: str = "") -> Obstacle | None:
    """What lies in a place so that no root may be made there; None if one may. empty: whatever it is, but for what is
    in `log`, the root of the new root's log, if it lies there. Raises StorageError.

    Only the first LOOKED_AT objects are looked at for what others' folders hold; what is ours lies first in `_system/`.
    """
    for info in store.list(SYSTEM, limit=1):  # a self-test that was killed left names that come after all others
        if not info.path.startswith(SELF_TESTS):
            return Obstacle(f"{info.path!r} is there{_HINTS.get(info.path, '')}", ours=True)
    own = f"{log}/".removeprefix(f"{store.root}/") if log != store.root else ""
    for info in store.list("", limit=LOOKED_AT):
        if own and info.path.startswith(own):
            continue
        folder = nested_folder(info.path)
        if folder is not None:
            return Obstacle(f"{folder!r} holds another root or a backup", ours=True)
        if made_for(info.path) is not None:
            return Obstacle(f"{info.path!r} is there, a chunk of a stream", ours=True)
        if empty and not info.path.startswith(SELF_TESTS):
            return Obstacle(f"{info.path!r} is there", ours=False)
    return None


def similar_roots(store: Store, opener: Opener = open_store, *, beside: bool = False) -> tuple[str, ...]:
    """Roots that may be meant where none is: around the place, unless only those beside it are asked for, or beside it
    with a name like its own.

    Of folders only: elsewhere each look would be a request.
    """
    if not store.root.startswith("file://"):
        return ()
    above = [] if beside else [each for each in _parents(store.root.removeprefix("file://")) if each != "/"]
    found = []
    for place in [*above, *store.neighbours()]:
        try:
            if opener(place, None).read_ranges([Range(ROOT, 0, 1)])[0] is not None:
                found.append(place)
        except StorageError:
            continue  # it is only a suggestion
    return tuple(found[:MOST_SIMILAR])


def is_slip(name: str, other: str) -> bool:
    """Whether a new name may be meant to be another one: they differ by a slip, and not in their numbers alone."""
    turned = sorted(name) == sorted(other)  # letters of a short name in another order
    alike = turned or difflib.SequenceMatcher(None, name, other).ratio() >= _SLIP
    return alike and _NUMBER.sub("", name) != _NUMBER.sub("", other)


def slips_of(place: str, similar: Iterable[str]) -> tuple[str, ...]:
    """Those of some roots whose place a new root may be meant to have."""
    return tuple(each for each in similar if is_slip(os.path.basename(each), os.path.basename(place)))


class Around(NamedTuple):
    """A root in which a place lies. names: of a scope, or of a scope and a stream, if the place is called so in it."""

    place: str
    names: tuple[str, ...]


def root_around(
    store: Store, url: str, options: Mapping[str, Any] | None, opener: Opener = open_store
) -> Around | None:
    """The root in which the place `url` lies; None if there is none. A request for each folder above, so only for who
    found no root in the place."""
    for above in _folders_above(store, url):
        try:
            outer = opener(above, options)
            found = outer.read_ranges([Range(ROOT, 0, 1)])[0]
            outer.close()
        except StorageError:
            continue  # it is only a suggestion
        if found is not None:
            return Around(above, _names_in(outer, store))
    return None


def _names_in(outer: Store, store: Store) -> tuple[str, ...]:
    names = tuple(store.root.removeprefix(f"{outer.root}/").split("/"))
    named = store.root.startswith(f"{outer.root}/") and len(names) <= 2 and not names[0].startswith("_")
    return names if named else ()


def _folders_above(store: Store, url: str) -> Iterator[str]:
    """The URLs of the folders that a place lies in, from the inside out; of a file system, also by its links' ends."""
    if store.root.startswith("file://"):
        folder = store.root.removeprefix("file://")
        seen = {folder, os.path.realpath(folder)}
        above = {parent for path in seen for parent in _parents(path)} - {"/"}  # which no root can be
        yield from sorted(above, key=len, reverse=True)
    else:
        scheme, _, place = url.partition("://")
        authority, slash, path = place.rstrip("/").partition("/")
        if slash:
            yield from (f"{scheme}://{authority}{above}" for above in _parents(f"/{path}"))


def _parents(path: str) -> list[str]:
    """ "/a/b/c": "/a/b", "/a" and "/"."""
    found: list[str] = []
    while path != "/" and len(found) < MOST_FOLDERS:
        path = os.path.dirname(path)
        found.append(path)
    return found
