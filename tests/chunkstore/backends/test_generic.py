"""Filesystems of fsspec without an adapter of their own: the race decides, and says why."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from paramiko import SFTPClient

from chunkstore import (
    ObjectNotFound,
    Outcome,
    PutUnknown,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.selftest import self_test
from chunkstore.testing.contracts import StoreContract, WaysToCut, body
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sftp_server import SftpServer


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


ALL = (Careful, Cut, Overwrites, ChecksThenWrites, ShowsParts, ReadOnly, Fails)
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
    ],
)
def test_roots_that_are_none(url: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(StorageRefused, match=reason) as raised:
        open_store(url, options)
    assert "secret" not in str(raised.value)


# -- SFTP


@pytest.fixture
def sftp(sftp_server: SftpServer) -> Iterator[Store]:
    store = open_store(sftp_server.make_bucket(), sftp_server.storage_options())
    yield store
    store.close()


def test_a_folder_that_is_gone_is_not_made_anew(sftp: Store, sftp_server: SftpServer) -> None:
    """The server's disk is not mounted any more: what is put into the empty folder would never be seen again."""
    described = body()
    sftp.put("_system/pravega.json", described)
    reader = open_store(sftp.root, sftp_server.storage_options())
    assert reader.read("_system/pravega.json") == described
    sftp.delete([info.path for info in sftp.list("")])
    reader.put("s/after a deletion", body())  # its folders are still there
    shutil.rmtree("/" + sftp.root.split("/", 3)[3])
    for verb in (reader.put, reader.put_if_absent):
        with pytest.raises(StorageError, match=r"mounted|not known"):
            verb("s/b", body())
    reader.close()


def test_a_wrong_key_is_refused(sftp_server: SftpServer) -> None:
    options = {**sftp_server.storage_options(), "key_filename": None, "password": "secret"}
    store = open_store(sftp_server.make_bucket(), options)
    with pytest.raises(StorageRefused, match="no permission") as raised:
        store.read("a")
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there() -> None:
    store = open_store("sftp://nobody@127.0.0.1:1/a")
    with pytest.raises(StorageUnavailable):
        store.read("a")
    with pytest.raises(StorageError):
        store.put_if_absent("a", body())


def test_a_connection_that_breaks_is_made_again(sftp_server: SftpServer) -> None:
    with CuttingProxy(sftp_server) as proxy:
        sftp = open_store(*proxy.through(sftp_server.make_bucket(), sftp_server.storage_options()))
        sftp.put("a", b"before")
        with proxy.cut(1, once=True), pytest.raises(StorageUnavailable):
            sftp.read("a")
        assert sftp.read("a") == b"before"
        sftp.close()


def test_temporary_files_are_no_objects_and_do_not_stay(sftp: Store) -> None:
    sftp.put("a", b"x")
    assert sftp.put_if_absent("b", body()) is Outcome.MINE
    assert sftp.put_if_absent("b", body()) is Outcome.ANOTHERS
    assert [info.path for info in sftp.list("")] == ["a", "b"]
    assert os.listdir(folder_of(sftp) / "_system" / "tmp") == []
    own = "_system/tmp/a"
    for verb, *arguments in ((sftp.read, own), (sftp.put, own, b""), (sftp.delete, [own])):
        with pytest.raises(ValueError, match="belongs to the store"):
            verb(*arguments)


def test_an_object_that_is_published_late_looks_new(sftp: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a boundary whose writer slept before the rename would seem to be older than the grace period."""
    rename, seen = SFTPClient.rename, []

    def late(self: Any, old: str, new: str) -> None:
        rename(self, old, new)
        seen.append(self.stat(new).st_mtime)
        time.sleep(2.1)

    monkeypatch.setattr(SFTPClient, "rename", late)
    before = sftp.clock()
    sftp.put_if_absent("a", body())
    assert seen[0] > before + 10**6
    assert before + 2 <= sftp.stat("a").modified <= sftp.clock()


@pytest.mark.processes
def test_sftp_after_a_fork(sftp: Store) -> None:
    sftp.put("a", b"before")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the connection has a thread
        child = os.fork()
    if not child:
        good = sftp.put_if_absent("c", body()) is Outcome.MINE and sftp.read("a") == b"before"
        os._exit(0 if good else 1)
    assert sftp.put_if_absent("p", body()) is Outcome.MINE
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [info.path for info in sftp.list("")] == ["a", "c", "p"]


def test_a_folder_is_no_object(sftp: Store) -> None:
    sftp.put("a/b", b"x")
    with pytest.raises(ObjectNotFound):
        sftp.read("a")
    with pytest.raises(StorageError):
        sftp.put("a", b"y")
    assert sftp.read("a/b") == b"x"


def folder_of(store: Store) -> Path:
    """Where the server keeps a store's files."""
    return Path("/" + store.root.partition("://")[2].partition("/")[2])


def test_what_is_no_object_on_a_server(sftp: Store, tmp_path: Path) -> None:
    """Links are not followed; a name that is not UTF-8 does not stop a listing."""
    sftp.put("s/real", b"ours")
    (outside := tmp_path / "outside").mkdir()
    (outside / "a").write_bytes(b"precious")
    for each in (outside, *outside.parents[:-2]):
        each.chmod(0o777)
    folder = folder_of(sftp) / "s"
    (folder / "file").symlink_to(outside / "a")
    (folder / "folder").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    Path(os.fsdecode(os.fsencode(folder) + b"/not \xff utf-8")).write_bytes(b"x")
    assert [info.path for info in sftp.list("")] == ["s/real"]
    assert sorted(sftp.passed_over()) == ["s/file", "s/folder", "s/loop", "s/not \\udcff utf-8"]
    for path in ("s/file", "s/folder/a", "s/loop/real"):
        for call in (partial(sftp.read, path), partial(sftp.stat, path)):
            with pytest.raises(StorageError, match="symbolic link"):
                call()
        with pytest.raises(StorageError):
            sftp.put_if_absent(path, body())
    with pytest.raises(StorageRefused, match="symbolic link"):
        sftp.delete(["s/folder/a"])
    with pytest.raises(StorageRefused, match="symbolic link"):
        sftp.put("s/folder/a", b"x")
    with pytest.raises(StorageRefused, match="symbolic link"):
        sftp.list("s/folder/")
    assert (outside / "a").read_bytes() == b"precious" and os.listdir(outside) == ["a"]


def test_the_servers_folder_of_temporary_files_is_no_link(sftp: Store, sftp_server: SftpServer, tmp_path: Path) -> None:
    sftp.put("a", b"")
    temporary = folder_of(sftp) / "_system" / "tmp"
    temporary.rmdir()
    temporary.symlink_to(tmp_path)
    again = open_store(sftp.root, sftp_server.storage_options())
    with pytest.raises(StorageRefused, match="symbolic link"):
        again.put("b", b"")
    assert os.listdir(tmp_path) == []
    again.close()
