"""The self-test passes good storage, and refuses storage that breaks a promise, each in the way of some real one."""

from __future__ import annotations

import builtins
import itertools
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from chunkstore import (
    ObjectInfo,
    ObjectNotFound,
    Outcome,
    PutUnknown,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.backends.memory import MemoryStore
from chunkstore.port import Data, Parts, joined
from chunkstore.selftest import NameRules, self_test
from chunkstore.testing import CountingStore, FaultStore, FoldingStore, SimulatedStore, fail_at


@pytest.fixture
def folder() -> str:
    return uuid.uuid4().hex


def check(store: Store) -> None:
    store.put("other", b"")
    self_test(store)
    assert [info.path for info in store.list("")] == ["other"]


def test_a_folder_passes(tmp_path: Path) -> None:
    check(open_store(str(tmp_path)))


def test_memory_passes(folder: str) -> None:
    check(MemoryStore(folder))


class _Unlocked(MemoryFileSystem):
    """fsspec's memory, as a filesystem that somebody has made: it checks and then writes, and never waits."""

    protocol = ("unlocked",)
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


def test_a_filesystem_of_this_process_that_checks_and_then_writes_is_refused(folder: str) -> None:
    """No request of it lets other threads go on."""
    fsspec.register_implementation("unlocked", _Unlocked, clobber=True)
    with pytest.raises(StorageRefused, match="not exactly one won"):
        self_test(open_store(f"unlocked://{folder}"))


class _Folder(DirFileSystem):
    """A folder of the local disk, as a filesystem that somebody has made. It checks and then writes, and a reader meets
    objects that change under it."""

    protocol = "checking"

    def __init__(self, **options: Any) -> None:
        super().__init__(path="/", fs=LocalFileSystem(auto_mkdir=False), **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path) if isinstance(path, str) else [cls._strip_protocol(each) for each in path]


def test_objects_that_change_while_they_are_read_are_no_outage(tmp_path: Path) -> None:
    """Whoever was told to try again would do so for ever."""
    fsspec.register_implementation("checking", _Folder, clobber=True)
    with pytest.raises(StorageRefused, match=r"not exactly one won|before they were complete"):
        self_test(open_store(f"checking://{tmp_path}"))


def test_a_reader_that_fails_is_told_when_the_race_was_fair(folder: str) -> None:
    with pytest.raises(StorageUnavailable):
        self_test(UnreadableMeanwhile(folder))


class UnreadableMeanwhile(MemoryStore):
    """Does not answer one reader."""

    failed = False

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        if not self.failed:
            self.failed = True
            raise StorageUnavailable("the storage did not answer: it is a test")
        return super().read(path, start, end)


@pytest.mark.parametrize("wins", [1, 2])
def test_a_create_of_unknown_outcome_is_told_unless_the_race_was_lost(folder: str, wins: int) -> None:
    """Where objects change while they are read, a writer may not find out what has become of its own."""
    store = Undecided(folder, wins)
    if wins == 1:
        with pytest.raises(PutUnknown):
            self_test(store)
    else:
        with pytest.raises(StorageRefused, match="one won: 18 names with 1 winners, 1 names with 2 winners"):
            self_test(store)


class Undecided(MemoryStore):
    """Does not tell one winner that it has won. wins: how many writers win the second race."""

    def __init__(self, folder: str, wins: int) -> None:
        super().__init__(folder)
        self._wins, self._turns = wins, itertools.count()

    def put_if_absent(self, path: str, data: Data | Parts) -> Outcome:
        outcome = super().put_if_absent(path, data)
        if path.endswith("race-00") and outcome is Outcome.MINE:
            raise PutUnknown("it is not known whether it was made: it is a test")
        if path.endswith("race-01") and self._wins == 2:
            return Outcome.MINE if next(self._turns) < 2 else Outcome.ANOTHERS
        return outcome


@pytest.mark.parametrize("can_append", [True, False])
def test_a_simulated_store_passes(can_append: bool) -> None:
    check(SimulatedStore(can_append=can_append))


def test_it_costs_a_few_hundred_requests(folder: str) -> None:
    store = CountingStore(MemoryStore(folder))
    self_test(store)
    assert store.counts["put_if_absent"] == 8 * 20 + 20
    assert sum(store.counts.values()) - store.counts["read"] < 210


class ChecksThenWrites(MemoryStore):
    """fsspec's own create on a folder or in memory."""

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        try:
            self.stat(path)
        except ObjectNotFound:
            time.sleep(0.001)
            self.put(path, data)
            return Outcome.MINE
        return Outcome.MINE if self.read(path) == joined(data) else Outcome.ANOTHERS


class Overwrites(MemoryStore):
    """A server, or a library, that drops the condition."""

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        self.put(path, data)
        return Outcome.MINE


class TellsTheWinnerThatItLost(MemoryStore):
    """A library that repeats a request whose response was lost, without a look at what is there."""

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        super().put_if_absent(path, data)
        return Outcome.ANOTHERS


class ForgetsItsOwn(MemoryStore):
    """Cannot tell its own object when asked again."""

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        try:
            self.stat(path)
        except ObjectNotFound:
            return super().put_if_absent(path, data)
        return Outcome.ANOTHERS


class ShowsParts(MemoryStore):
    """Exclusive open, then write."""

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        whole = bytes(joined(data))
        half = len(whole) // 2
        outcome = super().put_if_absent(path, whole[:half])
        if outcome is Outcome.MINE and self.stat(path).size == half:
            time.sleep(0.01)
            self.append(path, half, whole[half:])
        return outcome


class KeepsAnOldListing(MemoryStore):
    """A listing cache."""

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        if not hasattr(self, "kept"):
            self.kept = super().list(prefix, after, limit)
        return [info for info in self.kept if info.path > after]


class ListsInAnyOrder(MemoryStore):
    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        return super().list(prefix, after, limit)[::-1]


class IgnoresAfter(MemoryStore):
    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        return super().list(prefix, "", limit)


class DeletesNothing(MemoryStore):
    def delete(self, paths: Sequence[str]) -> None:
        pass


class ReadsAllForAnEmptyRange(MemoryStore):
    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return super().read(path, start, end) or super().read(path)


class AppendsAnywhere(MemoryStore):
    def append(self, path: str, offset: int, data: Data) -> None:
        super().append(path, self.stat(path).size, data)


class CutsAppends(MemoryStore):
    """gcsfs: warns, then truncates."""

    def append(self, path: str, offset: int, data: Data) -> None:
        if self.stat(path).size != offset:
            super().append(path, offset, data)
        self.put(path, data)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (ChecksThenWrites, r"of 8 writers .* not exactly one won: .* names with [2-8] winners"),
        (Overwrites, r"20 names with 8 winners"),
        (TellsTheWinnerThatItLost, r"20 names with 0 winners"),
        (ForgetsItsOwn, r"got Outcome.ANOTHERS when it put the same bytes again"),
        (ShowsParts, r"seen before they were complete, \d+ times"),
        (KeepsAnOldListing, r"listing"),
        (ListsInAnyOrder, r"in another order"),
        (IgnoresAfter, r"a listing after the first of two objects shows 2"),
        (DeletesNothing, r"after it was deleted"),
        (ReadsAllForAnEmptyRange, r"at the end of an object"),
        (AppendsAnywhere, r"not the end was carried out"),
        (CutsAppends, r"appended object"),
    ],
)
def test_broken_storage_is_refused(folder: str, broken: type[MemoryStore], reason: str) -> None:
    store = broken(folder)
    with pytest.raises(StorageRefused, match=reason) as raised:
        self_test(store)
    assert str(raised.value).startswith(store.root)
    MemoryStore.delete(store, [info.path for info in MemoryStore.list(MemoryStore(folder), "")])


@pytest.mark.parametrize("number", [1, 20, 45])
def test_storage_that_fails_is_not_judged(folder: str, number: int) -> None:
    store = FaultStore(MemoryStore(folder), lambda at, request: fail_at(number, forever=True)(at, request))
    store.verbs = {"read", "list", "put"}
    with pytest.raises(StorageUnavailable):
        self_test(store)
    store.plan = None
    store.delete([info.path for info in store.list("")])


def test_a_writer_that_fails_ends_the_race(folder: str) -> None:
    failing = FaultStore(MemoryStore(folder), fail_at(20), verbs={"put_if_absent"})
    with pytest.raises(Exception, match="injected fault"):
        self_test(failing)
    assert failing.list("") == []


def test_a_storage_that_folds_names_passes_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        rules = self_test(FoldingStore(SimulatedStore()))
    assert rules == NameRules(folds_case=True, normalises=True, drops_dots=True, short=False)
    assert caplog.text.count("Names of streams do not meet on it all the same") == 3
    assert self_test(SimulatedStore()).notes() == []


class LowerCase(MemoryStore):
    """Forgets how names were written, as FAT does with short ones."""

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        found = [ObjectInfo(info.path.lower(), info.size, info.modified) for info in super().list(prefix)]
        return [info for info in found if info.path > after][:limit]


class ShortNames(MemoryStore):
    """Cuts names off, as old tools do."""

    def put(self, path: str, data: Parts) -> None:
        super().put("/".join(part[:128] for part in path.split("/")), data)


@pytest.mark.parametrize("kind", [LowerCase, ShortNames])
def test_a_storage_that_changes_names_of_chunks_is_refused(kind: type[MemoryStore], folder: str) -> None:
    with pytest.raises(StorageRefused, match="6 objects with names as chunks have them are listed with other names"):
        self_test(kind(folder))
