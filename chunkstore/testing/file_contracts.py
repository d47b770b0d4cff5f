"""What a store must do beyond `StoreContract` if its objects are files: links, temporary files, late publication, a
disk that is not mounted. Subclass `FileStoreContract` and give it its fixtures.

class TestMyFiles(FileStoreContract):
    @pytest.fixture
    def store(self): return MyStore(…)
    @pytest.fixture
    def files(self, store): return Path(…)  # where the store's files are
    @pytest.fixture
    def reopened(self, store): return lambda: MyStore(…)
    @pytest.fixture
    def publishing(self, monkeypatch): …  # see `Publishing`
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from chunkstore.errors import ObjectNotFound, StorageError, StorageRefused
from chunkstore.paths import TEMPORARY
from chunkstore.port import Outcome, Store
from chunkstore.testing.contracts import body

Reopened: TypeAlias = Callable[[], Store]
"""Opens the store once more, as another process would."""

Publishing: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], AbstractContextManager[None]]
"""A context in which the first is called before the name of an object appears, and the second right after it did."""


def nothing() -> None:
    """Does nothing before or after a publication."""


class FileStoreContract:
    """The contract. `store` is an empty one, `files` the folder of its files as this process sees it."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        """A folder that is not the store's, which anybody may change, and its file."""
        folder = tmp_path / "outside"
        folder.mkdir()
        (folder / "a").write_bytes(b"precious")
        for each in (folder, *folder.parents[:-2]):
            each.chmod(0o777)
        return folder

    def test_links_are_never_followed(self, store: Store, files: Path, outside: Path) -> None:
        store.put("s/real", b"ours")
        (files / "s" / "file").symlink_to(outside / "a")
        (files / "s" / "folder").symlink_to(outside)
        (files / "s" / "loop").symlink_to(files / "s")
        assert [info.path for info in store.list("")] == ["s/real"]
        assert store.passed_over() == {f"s/{name}": "a symbolic link" for name in ("file", "folder", "loop")}
        for path in ("s/file", "s/folder/a", "s/loop/real"):
            for call in (partial(store.read, path), partial(store.stat, path)):
                with pytest.raises(StorageError, match="symbolic link"):
                    call()
            with pytest.raises(StorageError):
                store.put_if_absent(path, body())
        refused: list[Callable[[], object]] = [
            partial(store.delete, ["s/folder/a"]),
            partial(store.put, "s/folder/a", b"x"),
            partial(store.list, "s/folder/"),
        ]
        for each in refused:
            with pytest.raises(StorageRefused, match="symbolic link"):
                each()
        assert (outside / "a").read_bytes() == b"precious" and os.listdir(outside) == ["a"]

    def test_a_name_that_is_no_text_does_not_stop_a_listing(self, store: Store, files: Path) -> None:
        store.put("s/real", b"ours")
        Path(os.fsdecode(os.fsencode(files / "s") + b"/not \xff utf-8")).write_bytes(b"x")
        assert [info.path for info in store.list("")] == ["s/real"]
        assert list(store.passed_over()) == ["s/not \\udcff utf-8"]

    def test_a_folder_is_no_object(self, store: Store) -> None:
        store.put("a/b", b"x")
        with pytest.raises(ObjectNotFound):
            store.read("a")
        for verb in (store.put, store.put_if_absent):
            with pytest.raises(StorageError):
                verb("a", body())
        assert store.read("a/b") == b"x"

    def test_temporary_files_are_no_objects_and_do_not_stay(self, store: Store, files: Path) -> None:
        store.put("a", b"x")
        assert store.put_if_absent("b", body()) is Outcome.MINE
        assert store.put_if_absent("b", body()) is Outcome.ANOTHERS
        assert [info.path for info in store.list("")] == ["a", "b"]
        assert os.listdir(files / TEMPORARY) == []
        (files / TEMPORARY / "of a killed writer").write_bytes(b"")
        assert [info.path for info in store.list("")] == ["a", "b"]
        own = f"{TEMPORARY}/a"
        for verb, *arguments in ((store.read, own), (store.put, own, b""), (store.delete, [own])):
            with pytest.raises(ValueError, match=TEMPORARY):
                verb(*arguments)

    def test_the_folder_of_temporary_files_is_no_link(
        self, store: Store, files: Path, reopened: Reopened, outside: Path
    ) -> None:
        store.put("a", b"")
        (files / TEMPORARY).rmdir()
        (files / TEMPORARY).symlink_to(outside)
        again = reopened()
        with pytest.raises(StorageRefused, match="symbolic link"):
            again.put("b", b"")
        assert os.listdir(outside) == ["a"]

    def test_an_object_is_not_older_than_its_publication(self, store: Store, publishing: Publishing) -> None:
        """Else a checkpoint whose writer slept before it appeared would seem to be older than the grace period (W7)."""
        before = store.clock()
        with publishing(lambda: time.sleep(3.1), nothing):
            store.put_if_absent("a", body())
        assert before + 2 <= store.stat("a").modified <= store.clock()

    def test_an_object_that_just_appeared_looks_new(self, store: Store, publishing: Publishing) -> None:
        """Also to who sees it before its writer could correct its time, which may sleep there."""
        before = store.clock()
        seen: list[float] = []
        with publishing(lambda: time.sleep(2.1), lambda: seen.append(store.stat("a").modified)):
            store.put_if_absent("a", body())
        assert min(seen) >= before + 1

    @pytest.mark.parametrize("verb", ["put", "put_if_absent"])
    def test_what_is_deleted_right_after_it_appeared_is_not_made_again(
        self, store: Store, reopened: Reopened, publishing: Publishing, verb: str
    ) -> None:
        store.put("b", b"")
        other = reopened()
        deletions: list[None] = []

        def delete() -> None:
            deletions.append(other.delete(["a"]))

        with publishing(nothing, delete):
            getattr(store, verb)("a", body())
        assert len(deletions) == 1
        assert [info.path for info in store.list("")] == ["b"]

    def test_a_folder_that_is_gone_is_not_made_anew(self, store: Store, files: Path, reopened: Reopened) -> None:
        """The disk is not mounted any more: what is put into the empty folder would never be seen again (P1)."""
        described = body()
        store.put("_system/pravega.json", described)
        reader = reopened()
        assert reader.read("_system/pravega.json") == described
        store.delete([info.path for info in store.list("")])
        reader.put("s/after a deletion", body())  # its folders are still there
        shutil.rmtree(files)
        for verb in (reader.put, reader.put_if_absent):
            with pytest.raises(StorageError, match=r"mounted|not known"):
                verb("s/b", body())
        assert not files.exists() or not os.listdir(files)
