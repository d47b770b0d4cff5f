"""The test that a storage root must pass before anything is trusted to it.

Versions do not show that a create is atomic: libraries drop conditions that they do not know, servers ignore them,
filesystems check and then write. So it is tried: writers race to create the same names while a reader lists them (W1,
W8).
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, NoReturn

from chunkstore.chunk_names import LONGEST_PART, chunk_name
from chunkstore.errors import InvalidOffset, ObjectNotFound, PutUnknown, StorageError, StorageRefused
from chunkstore.paths import SELF_TESTS
from chunkstore.port import Outcome, Range, Store

_NAMES = 20
_WRITERS = 8
_BODY = 16 * 1024  # bytes, so that a writer that is not atomic takes its time
_LONG_NAME = 255
_LOOKS_APART = 0.0002
"""Seconds between two looks of the reader: one that never rests keeps the writers from the interpreter."""

_RESTS = 0.1
"""The share of calls, and of returns, after which a writer rests."""

_REST = 1e-5
"""Seconds of a rest."""

logger = logging.getLogger(__name__)


class NameRules(NamedTuple):
    """What a storage does to names. None of it matters to objects of this project (P5): their names are made for all of
    it.

    folds_case: `a` and `A` are one object. normalises: so are two forms of an accented letter. drops_dots: so are `a`
    and `a.`. short: it takes no names of 255 bytes.
    """

    folds_case: bool
    normalises: bool
    drops_dots: bool
    short: bool

    def notes(self) -> list[str]:
        """What it does, in words."""
        found = {
            "takes names for the same that differ in case only": self.folds_case,
            "takes names for the same that differ in the form of an accented letter only": self.normalises,
            "drops dots at the end of a name": self.drops_dots,
            f"takes no names of {_LONG_NAME} bytes": self.short,
        }
        return [note for note, is_so in found.items() if is_so]


def self_test(store: Store) -> NameRules:
    """Race `put_if_absent`, and try the other verbs and names, below `SELF_TESTS`, which is left empty.

    Returns what the storage does to names, which is logged too. Takes a few hundred requests. Raises StorageRefused
    with the reason and the numbers if the store breaks a promise of the port; errors of the store pass through.
    """
    folder = f"{SELF_TESTS}{uuid.uuid4().hex}/"
    try:
        _race(store, folder)
        _try_verbs(store, folder)
        rules = _try_names(store, folder)
    finally:
        with contextlib.suppress(StorageError):  # what is left does no harm; the reason why matters more
            store.delete([info.path for info in store.list(folder)])
    for note in rules.notes():
        logger.info("%s: this storage %s. Names of streams do not meet on it all the same", store.root, note)
    return rules


@contextlib.contextmanager
def _restless() -> Iterator[None]:
    """This thread now and then rests between two calls, so that others go on in the middle of what it does. Otherwise
    a filesystem within this process, which checks and then writes and never waits, would be finished before."""
    chance = random.Random()

    def rest(*_: object) -> None:
        if chance.random() < _RESTS:
            time.sleep(_REST)

    before = sys.getprofile()
    sys.setprofile(rest)
    try:
        yield
    finally:
        sys.setprofile(before)


def _race(store: Store, folder: str) -> None:
    names = [f"{folder}race-{number:02d}" for number in range(_NAMES)]
    bodies = [[_body() for _ in names] for _ in range(_WRITERS)]
    raced_for = iter(names)
    current = names[0]

    def next_name() -> None:
        nonlocal current
        current = next(raced_for)

    start_together = threading.Barrier(_WRITERS, action=next_name)
    finished = threading.Event()
    unread: list[StorageError] = []

    def write(mine: Sequence[bytes]) -> list[Outcome | None]:
        outcomes: list[Outcome | None] = []
        try:
            for name, body in zip(names, mine, strict=True):
                start_together.wait()
                with _restless():
                    try:
                        outcomes.append(store.put_if_absent(name, body))
                    except PutUnknown as error:  # it may have met an object that changes while it is read
                        unread.append(error)
                        outcomes.append(None)
        except BaseException:
            start_together.abort()  # else the other threads wait for this one for ever
            raise
        return outcomes

    def look_on() -> int:
        partial = 0
        while not finished.wait(_LOOKS_APART):
            try:
                partial += not _is_whole(store.read(current))
            except ObjectNotFound:
                pass
            except StorageError as error:  # also what an object looks like that changes while it is read
                unread.append(error)
        return partial

    with ThreadPoolExecutor(_WRITERS + 1) as threads:
        reader = threads.submit(look_on)
        writers = [threads.submit(write, mine) for mine in bodies]
        failures = [error for writer in writers if (error := writer.exception())]
        finished.set()
        partial = reader.result()
    for error in sorted(failures, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    outcomes = [writer.result() for writer in writers]

    told = [[of_writer[at] for of_writer in outcomes] for at in range(_NAMES)]
    winners = Counter(each.count(Outcome.MINE) for each in told if Outcome.MINE in each or None not in each)
    if winners.keys() - {1}:
        counts = ", ".join(f"{count} names with {won} winners" for won, count in sorted(winners.items()))
        _refuse(
            store, f"of {_WRITERS} writers that made the same object at the same time, not exactly one won: {counts}"
        )
    if partial:
        _refuse(store, f"objects were seen before they were complete, {partial} times")
    if unread:
        raise unread[0]
    for at, name in enumerate(names):
        won = next(writer for writer in range(_WRITERS) if outcomes[writer][at] is Outcome.MINE)
        _expect(store, store.read(name) == bodies[won][at], f"{name!r} does not hold what its winner wrote")
        again = store.put_if_absent(name, bodies[won][at])
        _expect(store, again is Outcome.MINE, f"the winner of {name!r} got {again} when it put the same bytes again")


def _try_verbs(store: Store, folder: str) -> None:
    before, after = _body(), _body()
    name, other = f"{folder}verbs/a", f"{folder}verbs/b"
    store.put(name, before)
    store.put(name, after)
    _expect(store, store.read(name) == after, "an object that was put twice does not hold the second bytes")
    store.put(other, before)
    _expect(store, store.read(other, 10, 30) == before[10:30], "a range of an object is not what was put")
    _expect(store, store.read(other, len(before)) == b"", "reading at the end of an object returns something")
    pieces = store.read_ranges([Range(name, 5, 8), Range(f"{folder}verbs/c"), Range(other, _BODY - 2, _BODY + 9)])
    _expect(store, pieces == [after[5:8], None, before[-2:]], "reading several ranges returns something else")
    _expect(store, store.stat(other).size == len(before), "stat does not tell the size of an object")

    listed = [info.path for info in store.list(f"{folder}verbs/")]
    _expect(store, listed == [name, other], f"a listing of two new objects shows {len(listed)}, or in another order")
    listed = [info.path for info in store.list(f"{folder}verbs/", after=name)]
    _expect(store, listed == [other], f"a listing after the first of two objects shows {len(listed)}")
    if store.can_append:
        _try_append(store, other, before)
    store.delete([name, f"{folder}verbs/c"])
    _expect(store, not _exists(store, name), "an object can be read after it was deleted")
    listed = [info.path for info in store.list(f"{folder}verbs/")]
    _expect(store, listed == [other], "a listing does not show that an object was deleted")


def _try_append(store: Store, name: str, before: bytes) -> None:
    store.append(name, len(before), b"more")
    try:
        store.append(name, len(before), b"again")
    except InvalidOffset:
        pass
    else:
        _refuse(store, "an append at a place that is not the end was carried out")
    _expect(store, store.read(name) == before + b"more", "an appended object does not hold the old and the new bytes")


def _try_names(store: Store, folder: str) -> NameRules:
    """Names as chunks have them are to be kept as they are; how the storage treats other names is only noted."""
    unique = uuid.uuid4()
    parts = ("orders", "Orders", "orders.", "con", "ö b", "L" * LONGEST_PART)
    names = sorted(f"{folder}names/{chunk_name(part, 1, 2, unique)}" for part in parts)
    for name in names:
        store.put(name, name.encode())
    listed = [info.path for info in store.list(f"{folder}names/")]
    _expect(store, listed == names, f"{len(names)} objects with names as chunks have them are listed with other names")
    for name in names:
        _expect(store, store.read(name) == name.encode(), f"{name!r} does not hold what was put there")
    return NameRules(
        _same(store, f"{folder}case/a", f"{folder}case/A"),
        _same(store, f"{folder}form/\u00e9", f"{folder}form/e\u0301"),
        _same(store, f"{folder}dots/a", f"{folder}dots/a."),
        not _takes(store, f"{folder}long/{'x' * _LONG_NAME}"),
    )


def _same(store: Store, name: str, other: str) -> bool:
    """Whether the storage takes two names for the same object."""
    with contextlib.suppress(StorageError):
        return _takes(store, name) and _exists(store, other)
    return False


def _takes(store: Store, name: str) -> bool:
    """Whether the storage takes an object of this name."""
    try:
        store.put(name, b"")
    except StorageError:
        return False
    return True


def _exists(store: Store, name: str) -> bool:
    try:
        store.read(name)
    except ObjectNotFound:
        return False
    return True


def _body() -> bytes:
    content = os.urandom(_BODY - 4)
    return content + zlib.crc32(content).to_bytes(4, "big")


def _is_whole(seen: bytes) -> bool:
    return len(seen) == _BODY and zlib.crc32(seen[:-4]) == int.from_bytes(seen[-4:], "big")


def _expect(store: Store, holds: bool, otherwise: str) -> None:
    if not holds:
        _refuse(store, otherwise)


def _refuse(store: Store, reason: str) -> NoReturn:
    raise StorageRefused(f"{store.root}: this storage failed the self-test: {reason}: give a root on another storage")
