"""The suites on a folder."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.testing.contracts import WaysToCut
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "folder"
SERVER = "none"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return str(tmp_path / "made" / "by the store"), {}


@pytest.fixture
def store(place: Place) -> Store:
    return open_store(*place)


@contextmanager
def no_permission(store: Store, place: Place) -> Iterator[Store]:
    """One folder in the middle cannot be read; to the superuser it could."""
    nobody = 65534
    with ExitStack() as undo:
        folder = Path(place[0], "cut", "b")
        for each, bits in [(folder, 0), *((parent, 0o755) for parent in folder.parents)]:
            before = each.stat()
            if before.st_uid == os.getuid() and len(each.parts) > 2:
                each.chmod(bits)
                undo.callback(each.chmod, before.st_mode & 0o7777)
        if not os.getuid():
            os.seteuid(nobody)
            undo.callback(os.seteuid, 0)
        yield store


@contextmanager
def no_file_numbers(store: Store) -> Iterator[Store]:
    """As many files are open as may be."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, before[1]))
    try:
        yield store
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def ways_to_cut(store: Store, place: Place) -> WaysToCut:
    return [partial(no_permission, store, place), partial(no_file_numbers, store)]


TestPort = suites.Port
TestChunks = suites.Chunks
TestSelfTest = suites.SelfTest


class TestRace(suites.Race):
    names, writers, readers = 200, 8, 2


TestWal = suites.Wal


TestSpark = suites.Spark


def test_turns_are_taken_by_one_at_a_time(tmp_path: Path) -> None:
    """And whoever has to wait for too long goes without."""
    one, other = open_store(str(tmp_path)), open_store(str(tmp_path))
    assert one.take_turn("a/b/", 1.0) is None, "there is no such folder"
    one.put("a/b/c", b"")
    back = one.take_turn("a/b/", 1.0)
    assert back is not None and other.take_turn("a/b/", 0.01) is None
    back()
    again = other.take_turn("a/b/", 1.0)
    assert again is not None
    again()


def test_a_turn_ends_as_soon_as_others_see_the_object(tmp_path: Path) -> None:
    """The next one writes while the folder is synced; giving it back once more changes nothing."""
    one, other = open_store(str(tmp_path)), open_store(str(tmp_path))
    one.put("a/b/c", b"")
    back = one.take_turn("a/b/", 1.0)
    assert back is not None
    one.put_if_absent("a/other/d", b"d" * 24)
    assert other.take_turn("a/b/", 0.01) is None, "it was another folder's object"
    one.put_if_absent("a/b/d", b"d" * 24)
    again = other.take_turn("a/b/", 1.0)
    assert again is not None
    back()
    assert one.take_turn("a/b/", 0.01) is None
    again()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who waits for a lock")
def test_who_waits_longest_has_the_next_turn(tmp_path: Path) -> None:
    stores = [open_store(str(tmp_path)) for _ in range(5)]
    stores[0].put("a/b/c", b"")
    back = stores[0].take_turn("a/b/", 1.0)
    order: list[int] = []

    def wait(number: int) -> None:
        mine = stores[number].take_turn("a/b/", 20.0)
        assert mine is not None
        order.append(number)
        mine()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(1, 5)]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        await_waiters(tmp_path / "a/b", waiting)
    assert back is not None
    back()
    for thread in threads:
        thread.join()
    assert order == [1, 2, 3, 4]


def test_a_turn_that_comes_too_late_is_given_on(tmp_path: Path) -> None:
    """Who waited for it in vain may wait for it again meanwhile, and its thread ends when it does not."""
    await_no_turn_threads()
    one, other = open_store(str(tmp_path)), open_store(str(tmp_path))
    one.put("a/b/c", b"")
    back = one.take_turn("a/b/", 1.0)
    assert back is not None
    assert other.take_turn("a/b/", 0.01) is None and other.take_turn("a/b/", 0.01) is None
    assert len(turn_threads()) == 1, "there is one for each folder"
    back()
    await_no_turn_threads()  # it came, and is nobody's
    for store in (one, other, one):
        back = store.take_turn("a/b/", 1.0)
        assert back is not None
        back()


def await_no_turn_threads() -> None:
    """They end by themselves."""
    deadline = time.monotonic() + 30
    while turn_threads():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def turn_threads() -> list[threading.Thread]:
    """The threads that wait for turns."""
    return [thread for thread in threading.enumerate() if thread.name == "turn"]


def await_waiters(folder: Path, count: int) -> None:
    """Until so many wait for the lock on a folder, as the system tells it."""
    inode = f":{folder.stat().st_ino} "
    deadline = time.monotonic() + 30
    while sum("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_keeps_no_turn(tmp_path: Path) -> None:
    """It has what its parent had open, for as long as it lives."""
    store = open_store(str(tmp_path))
    store.put("a/b/c", b"")
    back = store.take_turn("a/b/", 1.0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert back is not None
        back()
        again = store.take_turn("a/b/", 0.1)
        assert again is not None
        again()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
