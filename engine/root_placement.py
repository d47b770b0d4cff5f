"""Where a root, the root of a log, or a backup may be created: not inside another one, nor over parts of a root (P1).

Otherwise a process would begin an empty root over data whose description is missing, because it was deleted or the
storage is not mounted; or the sweep of one root would take the objects of another for orphans. The checks cost a
bounded number of requests, only when something is created: one for each parent folder, and two listings.
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
from engine.foreign_data import ForeignData, data_at, recognise, refused

MAX_EXAMINED = 10_000
"""The most objects that are examined in a folder or bucket with foreign objects."""

MOST_FOLDERS = 64
"""The most parent folders that are checked."""

MOST_SIMILAR = 3
"""The most roots that an error suggests."""

_SLIP = 0.8
"""The least similarity of two names if one may be a misspelling of the other."""

_NUMBER = re.compile("[-_.]?[0-9]+")

Opener = Callable[[str, Mapping[str, Any] | None], Store]


def refuse_inside(
    store: Store, url: str, options: Mapping[str, Any] | None, what: str, opener: Opener = open_store
) -> None:
    """Raise StorageRefused if `url` lies in a root, in a log's root, in a backup, or in the data of another program,
    such as a Delta table. what: would be created there."""
    if (foreign := data_at(store)) is not None:
        raise refused(store.root, store.root, foreign, what)
    for above in _folders_above(store, url):
        try:
            outer = opener(above, options)
            found = outer.read_ranges([Range(marker, 0, 1) for marker in MARKERS])
            foreign = _data_above(outer)
            outer.close()
        except StorageRefused:
            continue  # a folder that this user cannot read cannot be swept with these credentials
        if foreign is not None:
            raise refused(store.root, outer.root, foreign, what)
        for marker, data in zip(MARKERS, found, strict=True):
            if data is not None:
                meant = root_meant(above, _names_in(outer, store)) if marker == ROOT and what == "a root" else ""
                raise StorageRefused(
                    f"{store.root} lies in {outer.root}, a root, a log or a backup (it has {marker}): {what} "
                    f"inside another would be swept as its garbage. Use a location outside.{meant}"
                )


def _data_above(outer: Store) -> ForeignData | None:
    """The data of another program whose folder this is; None if the folder cannot be listed, as that of a whole server
    may be."""
    try:
        return data_at(outer)
    except StorageError:
        return None


_HINTS = {
    BACKUP: ", so this is a backup: `restore` creates a root from it elsewhere",
    RESTORING: ", as a backup is being restored here: run `restore` again to finish it",
}


class Obstacle(NamedTuple):
    """Why no root may be created. what: the reason, as text. ours: it is a part of a root. foreign: it is the data of
    another program."""

    what: str
    ours: bool
    foreign: ForeignData | None = None


def obstacle(store: Store, *, empty: bool, log: str = "", create: bool = False) -> Obstacle | None:
    """Why no root may be created in a folder or bucket; None if one may be. Raises StorageError.

    empty: any object is an obstacle. log: the root of the new root's log, whose objects are none. create: the data of
    another program anywhere below is one too. Only the first
    MAX_EXAMINED objects are examined; objects of a root come first, in `_system/`.
    """
    for info in store.list(SYSTEM, limit=1):  # objects left by a killed self-test sort last
        if not info.path.startswith(SELF_TESTS):
            return Obstacle(f"{info.path!r} is there{_HINTS.get(info.path, '')}", ours=True)
    own = f"{log}/".removeprefix(f"{store.root}/") if log != store.root else ""
    for info in store.list("", limit=MAX_EXAMINED):
        if own and info.path.startswith(own):
            continue
        folder = nested_folder(info.path)
        if folder is not None:
            return Obstacle(f"{folder!r} holds another root or a backup", ours=True)
        if made_for(info.path) is not None:
            return Obstacle(f"{info.path!r} is there, a chunk of a stream", ours=True)
        if create and (foreign := recognise(info.path)) is not None:
            return Obstacle(f"{info.path!r} is there", ours=False, foreign=foreign)
        if empty and not info.path.startswith(SELF_TESTS):
            return Obstacle(f"{info.path!r} is there", ours=False)
    return None


def similar_roots(store: Store, opener: Opener = open_store, *, beside: bool = False) -> tuple[str, ...]:
    """Roots that the caller may have meant: one that contains the location, unless `beside`, or neighbours with similar
    names. Only for local folders, as elsewhere each check would be a request.
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


def is_misspelling(name: str, other: str) -> bool:
    """Whether a new name may be a misspelling of another one, and they do not differ only in their numbers."""
    turned = sorted(name) == sorted(other)  # transposed letters of a short name
    alike = turned or difflib.SequenceMatcher(None, name, other).ratio() >= _SLIP
    return alike and _NUMBER.sub("", name) != _NUMBER.sub("", other)


def misspelled(place: str, similar: Iterable[str]) -> tuple[str, ...]:
    """Those of the roots of whose names the name of a new root may be a misspelling."""
    return tuple(each for each in similar if is_misspelling(os.path.basename(each), os.path.basename(place)))


class EnclosingRoot(NamedTuple):
    """A root that contains a location. names: of a scope, or of a scope and a stream, by the location's path in it."""

    url: str
    names: tuple[str, ...]


def enclosing_root(
    store: Store, url: str, options: Mapping[str, Any] | None, opener: Opener = open_store
) -> EnclosingRoot | None:
    """The root that contains `url`; None if there is none. It costs a request for each parent folder, so call it only
    if there is no root at `url`."""
    for above in _folders_above(store, url):
        try:
            outer = opener(above, options)
            found = outer.read_ranges([Range(ROOT, 0, 1)])[0]
            outer.close()
        except StorageError:
            continue  # it is only a suggestion
        if found is not None:
            return EnclosingRoot(above, _names_in(outer, store))
    return None


def _names_in(outer: Store, store: Store) -> tuple[str, ...]:
    names = tuple(store.root.removeprefix(f"{outer.root}/").split("/"))
    named = store.root.startswith(f"{outer.root}/") and len(names) <= 2 and not names[0].startswith("_")
    return names if named else ()


def _folders_above(store: Store, url: str) -> Iterator[str]:
    """The URLs of the parent folders, from the inside out; in a file system, also of the folder that links resolve
    to."""
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
