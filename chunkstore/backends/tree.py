"""How a filesystem's folders become one sorted listing of objects.

The order of paths is not that of a folder's names ("a.b" < "a/b"), hence folders are sorted with a "/" behind them.
A listing is complete or an error (P2): whatever looking into a folder raises reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TypeVar

Facts = TypeVar("Facts")


def walk(look: Callable[[str], Iterable[tuple[str, Facts]]], prefix: str, after: str) -> Iterator[tuple[str, Facts]]:
    """The objects below the folder `prefix` with path > `after`, sorted.

    `look` lists a folder: the path of each object, and of each folder with a final "/", and what is known of it. It is
    not called for folders that hold nothing behind `after`.
    """
    found = [(path, facts) for path, facts in look(prefix) if path > after or _may_hold(path, after)]
    for path, facts in sorted(found, key=itemgetter(0)):
        if path.endswith("/"):
            yield from walk(look, path, after)
        else:
            yield path, facts


def _may_hold(folder: str, after: str) -> bool:
    return folder.endswith("/") and after.startswith(folder)
