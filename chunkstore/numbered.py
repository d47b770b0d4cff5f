"""Objects named after a number of 20 digits: frames, checkpoints, recovery points, whatever is found by its number.

The only place where such names are parsed when they come from a listing. Whatever else lies in such a folder is foreign
(P1): a user's file, a sync tool's copy, a folder. It is ignored, listed by `verify`, and never deleted.
"""

from __future__ import annotations

import re

from chunkstore.port import ObjectInfo, Store

_NAME = re.compile("[0-9]{20}")
_FAR = 1 << 16
"""How far behind a number others are looked for where nothing is listed."""


def number_of(path: str, folder: str) -> int | None:
    """The number that an object in `folder` ("a/b/") is named after; None for a foreign name."""
    name = path.removeprefix(folder)
    return int(name) if path.startswith(folder) and _NAME.fullmatch(name) else None


def numbers_behind(store: Store, folder: str, number: int, count: int) -> list[int]:
    """Numbers behind one, where objects may be.

    In a bucket those of the first objects, twice `count` at most, by a listing. A folder can only be listed whole, so
    there they are the next `count` numbers, and some ever further behind.
    """
    if store.remote:
        listed = list_numbered(store, folder, f"{folder}{number:020d}", 2 * count)
        return [int(info.path.removeprefix(folder)) for info in listed]
    steps = [*range(1, count + 1)]
    while steps[-1] < _FAR:
        steps.append(2 * steps[-1])
    return [number + step for step in steps]


def list_numbered(store: Store, folder: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
    """As `Store.list`, of the objects in `folder` that are named after a number."""
    found: list[ObjectInfo] = []
    while limit is None or len(found) < limit:
        wanted = None if limit is None else limit - len(found)
        page = store.list(folder, after, wanted)
        for info in page:
            if number_of(info.path, folder) is not None:
                found.append(info)
            else:
                store.pass_over(info.path, "its name is not a number of 20 digits, as all of ours are there")
        if wanted is None or len(page) < wanted:
            break
        after = page[-1].path
    return found
