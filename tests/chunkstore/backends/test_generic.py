"""Filesystems of fsspec without an adapter of their own: the race decides, and says why."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from chunkstore import (
    Outcome,
    PutUnknown,
    Range,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.backends.generic import GenericStore
from chunkstore.selftest import self_test
from chunkstore.testing.contracts import StoreContract, WaysToCut, body
from tests.support.cycles import frames_left


class Careful(MemoryFileSystem):
    """Makes a file under a lock, and all of it at once."""

    protocol = "careful"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    one = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.one:
            super().pipe_file(path, value, mode=mode, **kwargs)


class Cut(Careful):
    """Shows the files of `Careful`, and cannot list after so many folders."""

    protocol = "cut"
    error: ClassVar[Exception] = ConnectionResetError("secret")
    left: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("cut://", "careful://")))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        type(self).left -= 1
        if self.left < 0:
            raise self.error
        return super().ls(path, detail=detail, **kwargs)


def not_found(cause: Exception) -> FileNotFoundError:
    """What some filesystems make of any failure."""
    error = FileNotFoundError("secret")
    error.__cause__ = cause
    return error


@contextmanager
def cut(store: Store, after: int, error: Exception) -> Iterator[Store]:
    """The same objects, of which the listing fails after so many folders."""
    Cut.left, Cut.error = after, error
    yield open_store(store.root.replace("careful://", "cut://"))


class Overwrites(Careful):
    """Drops what it does not know."""

    protocol = "overwrites"
    store: ClassVar[dict[str, Any]] = {}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value)


class ChecksThenWrites(MemoryFileSystem):
    """As fsspec does by itself."""

    protocol = "checks"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        time.sleep(0.001)
        super().pipe_file(path, value)


class ShowsParts(LocalFileSystem):
    """Opens exclusively, and writes then."""

    protocol = "parts"

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        file = super().open(path, mode, **kwargs)
        if "x" in mode:
            file.flush()
            time.sleep(0.01)
        return file


class ReadOnly(MemoryFileSystem):
    """Like a web server."""

    protocol = "readonly"
    store: ClassVar[dict[str, Any]] = {}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise NotImplementedError("secret")


class Fails(MemoryFileSystem):
    """Loses its connection; `after` a create, or before."""

    protocol = "fails"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[list[str]] = []
    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        type(self).made += 1

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        fault = self.faults.pop() if self.faults else ""
        if fault != "before":
            super().pipe_file(path, value, mode=mode)
        if fault:
            raise ConnectionResetError("secret")


class CannotOpen(MemoryFileSystem):
    """As one without its native library."""

    protocol = "cannotopen"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OSError("no library, and a secret")


ALL = (CannotOpen, Careful, Cut, Overwrites, ChecksThenWrites, ShowsParts, ReadOnly, Fails)
for one in ALL:
    fsspec.register_implementation(one.protocol, one, clobber=True)


def root_of(each: type[AbstractFileSystem], folder: Path) -> Store:
    return open_store(f"{each.protocol}://{folder}/root" if each is ShowsParts else f"{each.protocol}://{uuid.uuid4()}")


class TestCareful(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"careful://{uuid.uuid4()}/root")

    @pytest.fixture
    def ways_to_cut(self, store: Store) -> WaysToCut:
        lost = [ConnectionResetError("secret"), TimeoutError("secret"), EOFError("secret"), PermissionError("secret")]
        errors = [*lost, not_found(TimeoutError("secret"))]
        ways = [partial(cut, store, after, error) for after in range(3) for error in errors]
        return [*ways, *(partial(cut, store, after, FileNotFoundError("secret")) for after in (1, 2))]


def test_what_is_careful_passes(tmp_path: Path) -> None:
    store = root_of(Careful, tmp_path)
    self_test(store)
    assert store.list("") == []


@pytest.mark.parametrize(
    ("each", "reason"),
    [
        (Overwrites, r"of 8 writers .* not exactly one won: 20 names with 8 winners"),
        (ChecksThenWrites, r"of 8 writers .* not exactly one won"),
        (ShowsParts, r"seen before they were complete, \d+ times"),
        (ReadOnly, r"does not offer what a root needs"),
    ],
)
def test_what_is_not_is_refused_with_the_reason(tmp_path: Path, each: type, reason: str) -> None:
    store = root_of(each, tmp_path)
    with pytest.raises(StorageRefused, match=reason) as raised:
        self_test(store)
    assert str(raised.value).startswith(store.root)
    assert "secret" not in str(raised.value)


def test_what_is_absent_or_fails_leaves_nothing_to_the_collector() -> None:
    """A follower asks for the next frame all the time, and it is not there."""
    store = open_store(f"fails://{uuid.uuid4()}")
    store.put("a", b"")

    def lose(request: Callable[[], object]) -> None:
        Fails.faults[:] = ["before"]
        request()

    requests: list[Callable[[], object]] = [
        lambda: store.read_ranges([Range("none"), Range("folder/none", 1, 2)]),
        lambda: store.stat("none"),
        lambda: lose(lambda: store.put("b", b"")),
        lambda: lose(lambda: store.put_if_absent("b", body())),
    ]
    assert [frames_left(request) for request in requests] == [0, 0, 0, 0]


def test_lost_connections() -> None:
    store, mine = open_store("fails://a"), body()
    Fails.faults[:] = ["after"]
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS
    Fails.faults[:], made = ["before"], Fails.made
    with pytest.raises(PutUnknown, match="'b'") as raised:
        store.put_if_absent("b", mine)
    assert "secret" not in str(raised.value)
    assert store.put_if_absent("b", mine) is Outcome.MINE
    assert Fails.made == made + 1, "what lost its connection is not used again"
    Fails.faults[:] = ["before"]
    with pytest.raises(StorageUnavailable):
        store.put("c", b"")


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("nonsense://a", {}, "^unknown filesystem nonsense://; give a folder .*s3://.*, and install the package"),
        ("careful://user:secret@host/a", {}, "holds a user and a password"),
        ("sftp://user:secret@host/a", {}, "holds a user and a password"),
        ("cannotopen://a", {}, r"cannotopen:// cannot be opened \(OSError\).* fsspec.filesystem\('cannotopen', …\)"),
    ],
)
def test_roots_that_are_none(url: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(StorageError, match=reason) as raised:
        open_store(url, options).read("a")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("start", "end"), [(0, None), (2, None), (0, 10**6), (1, 4)])
def test_an_object_that_is_overwritten_while_it_is_read_is_read_whole(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int | None
) -> None:
    """Between the size and the bytes: it is longer then, so that the size tells nothing of it."""
    store = open_store("careful://overwritten")
    old, new = b"short", b"a much longer one"
    store.put("a", old)
    info = Careful.info

    def overwritten(self: Any, path: str, **kwargs: Any) -> Any:
        found = info(self, path, **kwargs)
        store.put("a", new)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Careful, "info", overwritten)
        assert store.read("a", start, end) == new[start:end]


def test_what_an_earlier_try_made_is_durable_before_it_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier one may have failed between the object's name and the sync of its folder (G3)."""
    mine, synced = body(), []
    store = GenericStore("careful://again", {})
    monkeypatch.setattr(GenericStore, "sync", lambda self, prefix: synced.append(prefix))
    assert store.put_if_absent("a/b/c", mine) is Outcome.MINE
    assert synced == []
    assert store.put_if_absent("a/b/c", mine) is Outcome.MINE
    assert synced == ["a/b/"]
    assert store.put_if_absent("a/b/c", body()) is Outcome.ANOTHERS
    assert synced == ["a/b/"]
