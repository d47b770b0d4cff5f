"""The suites on a folder."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.testing.contracts import WaysToCut
from tests.backends import suites
from tests.backends.suites import Place
from tests.support.power import Disk

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
TestSelfTest = suites.SelfTest


class TestRace(suites.Race):
    names, writers, readers = 200, 8, 2


TestWal = suites.Wal


TestSpark = suites.Spark


def test_a_posted_message_is_not_synced(tmp_path: Path) -> None:
    """So it costs no wait for the disk; a power failure takes it, and nothing else."""
    disk = Disk(str(tmp_path / "disk"))
    with disk.mounted():
        store = open_store(disk.folder)
        store.put("a/kept", b"kept")
        store.post("a/message", b"message")
        assert store.read("a/message") == b"message"
    left = disk.after_power_failure(tmp_path / "left")
    with left.mounted():
        after = open_store(left.folder)
        assert [info.path for info in after.list("a/")] == ["a/kept"]
        after.post("a/message", b"again")
        assert after.read("a/message") == b"again"
