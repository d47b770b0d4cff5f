"""What a folder adds to the contract: durability, killed writers, full disks, what servers of files may answer."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from chunkstore import (
    ObjectNotFound,
    Outcome,
    PutUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.backends import local
from chunkstore.errors import InvalidOffset
from chunkstore.paths import TEMPORARY
from chunkstore.testing.contracts import body
from chunkstore.testing.file_contracts import FileStoreContract, Publishing, Reopened

PIECE = 512 << 10
START, FINISH = 2, 7
"""How much of an object is given to the disk at once, and flags of Linux's sync_file_range: begin to write it, and wait
for what was begun."""

WRITER = """
import os, sys, time
from chunkstore import open_store

def slow(fd, data, offset, pwritev=os.pwritev):
    time.sleep(0.001)
    return pwritev(fd, [data[0][:1000]], offset)

os.pwritev = slow
store = open_store(sys.argv[1])
for number in range(10_000):
    data = os.urandom(20_000)
    (store.put if number % 2 else store.put_if_absent)(f"killed/{number:05d}", data)
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root"))


def temporary_files(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "root" / TEMPORARY))


def fail_with(number: int) -> Callable[..., Any]:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def after(call: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """`call` takes effect, and its answer is that of `then`."""

    def both(*arguments: Any, **named: Any) -> Any:
        call(*arguments, **named)
        return then(*arguments, **named)

    return both


@pytest.mark.processes
@pytest.mark.parametrize("timeout", [0.01, 0.03, 0.05, 0.07])
def test_a_killed_writer_leaves_nothing_partial(tmp_path: Path, timeout: float) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "root")], stdout=subprocess.PIPE, env=environment
    ) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(3)]
        time.sleep(timeout)
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    store = open_store(str(tmp_path / "root"))
    objects = store.list("")
    assert len(objects) >= len(told) >= 3
    assert {info.size for info in objects} == {20_000}
    assert [info.path for info in objects] == [f"killed/{number:05d}" for number in range(len(objects))]
    assert store.put_if_absent(f"killed/{len(objects):05d}", body()) is Outcome.MINE


def test_abandoned_temporary_files_are_removed_in_time(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "root" / TEMPORARY
    folder.mkdir(parents=True)
    old, new = (uuid.uuid4().hex for _ in range(2))
    (folder / old).write_bytes(b"left by a killed writer")
    (folder / new).write_bytes(b"of a writer at work")
    (folder / "other").write_bytes(b"of somebody else")
    two_days_ago = store.clock() - 2 * 24 * 3600
    for name in (old, "other"):
        os.utime(folder / name, (two_days_ago, two_days_ago))
    open_store(str(tmp_path / "root")).put("a", b"")
    assert temporary_files(tmp_path) == sorted([new, "other"])


def test_large_temporary_files_of_dead_writers_are_removed_at_the_next_start(tmp_path: Path, store: Store) -> None:
    """They take much space, and nobody else frees it. Whether a writer lives is told by its lock."""
    folder = tmp_path / "root" / TEMPORARY
    folder.mkdir(parents=True)
    large, small, fresh, locked = (folder / uuid.uuid4().hex for _ in range(4))
    for file in (large, fresh, locked):
        file.write_bytes(bytes(100_000))
    small.write_bytes(bytes(1000))
    an_hour_ago = store.clock() - 3600
    for file in (large, small, locked):
        os.utime(file, (an_hour_ago, an_hour_ago))
    with locked.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        open_store(str(tmp_path / "root")).put("a", b"")
        assert temporary_files(tmp_path) == sorted(file.name for file in (small, fresh, locked))
    open_store(str(tmp_path / "root")).put("b", b"")
    assert temporary_files(tmp_path) == sorted(file.name for file in (small, fresh))


@pytest.mark.parametrize("put", ["put", "put_if_absent", "post"])
def test_a_large_temporary_file_is_locked_until_it_has_its_name(
    store: Store, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    """Its writer may be stopped in between for more than a minute."""
    others = []

    def watched(call: Callable[..., None]) -> Callable[..., None]:
        def watch(source: str, *rest: Any) -> None:
            with open(source, "rb") as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    others.append("unlocked")
                except BlockingIOError:
                    others.append("locked")
            call(source, *rest)

        return watch

    for name in ("link", "replace"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    getattr(store, put)("a/large", body(bytes(100_000)))
    assert others == ["locked"]
    if put == "put":
        store.append("a/large", 100_024, b"more")  # takes a lock of its own: none is left


def test_a_writer_whose_temporary_file_was_removed_has_made_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def swept(source: str, target: str) -> None:
        if os.path.exists(source):
            os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", swept)
    with pytest.raises(StorageUnavailable):
        store.put_if_absent("a", body())
    assert store.list("") == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds out there which file was synced")
@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_nothing_is_visible_before_it_is_durable(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    events: list[tuple[str, str]] = []

    def note(module: Any, name: str, event: str, at: Callable[..., str]) -> None:
        call = getattr(module, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            place = at(*arguments)
            result = call(*arguments, **named)
            events.append((event, os.path.relpath(place, tmp_path / "root")))
            return result

        monkeypatch.setattr(module, name, noted)

    def opened(fd: int) -> str:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return os.path.dirname(path) if os.path.isfile(path) else path

    note(os, "fsync", "sync", opened)
    note(sys.modules["chunkstore.backends.local"], "_sync", "write", opened)
    note(os, "mkdir", "make", lambda folder: folder)
    note(os, "link", "show", lambda source, target: target)
    note(os, "replace", "show", lambda source, target: target)

    getattr(store, verb)("a/b/c", body())
    making = [("make", "."), ("sync", ".."), ("make", "_system"), ("sync", "."), ("make", "_system/tmp")]
    making += [("sync", "_system")]
    written = [("write", "_system/tmp")]
    folders = [("make", "a"), ("sync", "."), ("make", "a/b"), ("sync", "a")]
    assert events == making + written + folders + [("show", "a/b/c"), ("sync", "a/b")]

    events.clear()
    getattr(store, verb)("a/b/d", body())
    assert events == [*written, ("show", "a/b/d"), ("sync", "a/b")]

    # Another process made the folders and may have been killed before it had synced them.
    events.clear()
    getattr(open_store(str(tmp_path / "root")), verb)("a/b/e", body())
    first = [("sync", ".."), ("sync", ".")]
    ours = [*first, ("sync", "_system"), *written]
    assert events == [*ours, ("sync", "."), ("sync", "a"), ("show", "a/b/e"), ("sync", "a/b")]

    if verb == "put_if_absent":  # or after it had made the object
        events.clear()
        mine = store.read("a/b/e")
        assert open_store(str(tmp_path / "root")).put_if_absent("a/b/e", mine) is Outcome.MINE
        assert events == [*first, ("sync", "a"), ("sync", "a/b")]


def test_an_object_is_not_older_than_its_publication(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that sleeps between writing and linking publishes a new object, not an old one (W7)."""
    link, shown = os.link, []

    def slept(source: str, target: str) -> None:
        time.sleep(0.05)
        shown.append(store.clock())
        link(source, target)

    monkeypatch.setattr(os, "link", slept)
    store.put_if_absent("a", body())
    assert store.stat("a").modified >= shown[0]
    assert store.list("")[0].modified >= shown[0]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, StorageRefused),
        (errno.EROFS, StorageRefused),
        (errno.EMFILE, StorageUnavailable),
    ],
)
@pytest.mark.parametrize("verb", ["put", "put_if_absent", "append"])
def test_a_write_that_cannot_be_done(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError], verb: str
) -> None:
    store.put("a", b"before")
    arguments = ("a", 6, body()) if verb == "append" else ("b", body())
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", fail_with(number))
        with pytest.raises(StorageError) as raised:
            getattr(store, verb)(*arguments)
    assert raised.type is kind
    assert store.root in str(raised.value) and repr(arguments[0]) in str(raised.value)
    assert [(info.path, info.size) for info in store.list("")] == [("a", 6)]
    assert temporary_files(tmp_path) == []
    getattr(store, verb)(*arguments)


def test_the_disk_takes_a_large_object_while_it_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever syncs a small file meanwhile waits for all of it. It is never told to finish what was just
    begun, as it would then wait for the next piece."""
    begun: list[tuple[int, int]] = []
    finished = [0]
    data = [os.urandom(700_000) for _ in range(12)]

    def written_back(fd: int, start: int, length: int, flags: int) -> int:
        written = os.fstat(fd).st_size
        if flags == START:
            assert written == start + length
            begun.append((start, length))
        else:
            assert flags == FINISH and start == finished[-1]
            finished.append(start + length)
        assert written - finished[-1] <= 10 * PIECE
        return 0

    monkeypatch.setattr(local, "sync_file_range", lambda: written_back)
    store.put_if_absent("large", data)
    store.put_if_absent("small", bytes(500_000))
    assert begun == [(start, PIECE) for start in range(0, 16 * PIECE, PIECE)]
    assert finished == [number * PIECE for number in range(9)]
    assert store.read("large") == b"".join(data)


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "append"])
def test_an_error_of_writing_back_is_one_of_the_write(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The kernel tells of it once: the sync that follows would succeed."""
    store.put("a", b"before")
    arguments = ("a", 6, bytes(6 << 20)) if verb == "append" else ("b", bytes(6 << 20))

    def fail(number: int, *of: int) -> Callable[..., int]:
        def call(fd: int, start: int, length: int, flags: int) -> int:
            ctypes.set_errno(number)
            return -1 if flags in of else 0

        return call

    with monkeypatch.context() as patched:
        for flags in (START, FINISH):
            patched.setattr(local, "sync_file_range", lambda flags=flags: fail(errno.ENOSPC, flags))
            with pytest.raises(StorageFull):
                getattr(store, verb)(*arguments)
            assert [(info.path, info.size) for info in store.list("")] == [("a", 6)]
            assert temporary_files(tmp_path) == []
        patched.setattr(local, "sync_file_range", lambda: fail(errno.ENOSYS, START, FINISH))
        getattr(store, verb)(*arguments)
    assert store.read("a") == b"before" + (bytes(6 << 20) if verb == "append" else b"")


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_the_system_writes_pieces_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    call, answers = local.sync_file_range(), []
    assert call is not None

    def counted(*arguments: int) -> int:
        answers.append(call(*arguments))
        return answers[-1]

    monkeypatch.setattr(local, "sync_file_range", lambda: counted)
    store.put("large", os.urandom(6 << 20))
    assert answers == [0] * (11 + 3)  # begun and finished


def test_half_an_append_is_taken_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"before")
    pwritev, room = os.pwritev, [3]

    def filling_up(fd: int, data: list[memoryview], offset: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "full")
        return pwritev(fd, [data[0][: room.pop()]], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", filling_up)
        with pytest.raises(StorageError, match="full"):
            store.append("a", 6, b"and after")
    assert store.read("a") == b"before"
    store.append("a", 6, b"and after")
    assert store.read("a") == b"beforeand after"


def test_an_append_at_the_same_time_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"before")
    pwritev = os.pwritev

    def slow(fd: int, data: list[memoryview], offset: int) -> int:
        time.sleep(0.05)
        return pwritev(fd, data, offset)

    monkeypatch.setattr(os, "pwritev", slow)
    with ThreadPoolExecutor(2) as threads:
        appends = [threads.submit(store.append, "a", 6, end) for end in (b"x", b"y")]
        heard = [append.exception() for append in appends]
    assert sorted(type(error).__name__ for error in heard) == ["InvalidOffset", "NoneType"]
    assert store.read("a") == b"before" + (b"y" if heard[0] else b"x")


def test_a_winner_that_is_told_it_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server repeats a request whose answer was lost, and answers that the link exists."""
    monkeypatch.setattr(os, "link", after(os.link, fail_with(errno.EEXIST)))
    mine = body()
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert store.read("a") == mine
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
@pytest.mark.parametrize("made", [True, False])
def test_an_unknown_outcome_is_settled_by_the_same_bytes(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, number: int, made: bool
) -> None:
    fail, mine = fail_with(number), body()
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", after(os.link, fail) if made else fail)
        with pytest.raises(PutUnknown, match="'a'"):
            store.put_if_absent("a", mine)
    assert bool(store.list("")) is made
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("verb", ["append", "set_read_only"])
def test_a_change_is_durable_on_return(store: Store, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    local = sys.modules["chunkstore.backends.local"]
    store.put("a", b"content")
    events: list[str] = []
    for module, name in ((os, "pwritev"), (os, "ftruncate"), (os, "fchmod"), (os, "fsync"), (local, "_sync")):
        call = getattr(module, name)

        def noted(*arguments: Any, name: str = name, call: Callable[..., Any] = call) -> Any:
            events.append(name)
            return call(*arguments)

        monkeypatch.setattr(module, name, noted)
    arguments: dict[str, tuple[Any, ...]] = {"append": (7, b"more"), "set_read_only": (True,)}
    getattr(store, verb)("a", *arguments[verb])
    change = {"append": "pwritev", "set_read_only": "fchmod"}[verb]
    assert events == [change, "fsync" if verb == "set_read_only" else "_sync"]


def test_an_object_whose_folder_was_not_synced_is_in_doubt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a/before", b"")
    mine = body()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail_with(errno.EIO))
        for _ in range(2):  # also when it is there already
            with pytest.raises(PutUnknown):
                store.put_if_absent("a/b", mine)
    assert store.put_if_absent("a/b", mine) is Outcome.MINE


def test_a_folder_that_vanished_is_made_again(tmp_path: Path, store: Store) -> None:
    for verb in (store.put, store.put_if_absent):
        verb("a/b/c", body())
        store.delete(["a/b/c"])
        (tmp_path / "root/a/b").rmdir()
        (tmp_path / "root/a").rmdir()
        (tmp_path / "root/_system/tmp").rmdir()
        verb("a/b/c", body())
        assert [info.path for info in store.list("")] == ["a/b/c"]
        store.delete(["a/b/c"])


def test_a_path_is_an_object_or_a_folder(store: Store) -> None:
    store.put("a/b", b"")
    for verb in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="folder in its place"):
            verb("a", body())
        with pytest.raises(StorageError, match="in its way"):
            verb("a/b/c", body())
    store.delete(["a"])
    assert [info.path for info in store.list("")] == ["a/b"]


def test_temporary_files_are_not_objects(tmp_path: Path, store: Store) -> None:
    store.put("a", b"")
    (tmp_path / "root/_system/tmp/b").write_bytes(b"")
    store.put("c/_system/tmp/d", b"elsewhere the name is free")
    store.put("_system/tmpx", b"")
    assert [info.path for info in store.list("")] == ["_system/tmpx", "a", "c/_system/tmp/d"]
    for verb, *arguments in (
        (store.read, "_system/tmp/b"),
        (store.put, "_system/tmp/b", b""),
        (store.put, "_system/tmp", b""),
        (store.delete, ["_system/tmp/b"]),
        (store.list, "_system/tmp/"),
    ):
        with pytest.raises(ValueError, match=r"_system/tmp/"):
            verb(*arguments)


def test_a_root_that_is_not_there_is_empty(tmp_path: Path, store: Store) -> None:
    assert store.list("") == []
    with pytest.raises(ObjectNotFound):
        store.read("a")
    store.delete(["a"])
    assert not (tmp_path / "root").exists()


def test_two_stores_see_each_other(tmp_path: Path, store: Store) -> None:
    other = open_store(f"file://{tmp_path}/root")
    mine = body()
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert other.put_if_absent("a", body()) is Outcome.ANOTHERS
    assert other.put_if_absent("a", mine) is Outcome.MINE
    other.append("a", len(mine), b"more")
    with pytest.raises(InvalidOffset):
        store.append("a", len(mine), b"more")


class TestFiles(FileStoreContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> Path:
        return tmp_path / "root"

    @pytest.fixture
    def reopened(self, files: Path) -> Reopened:
        return lambda: open_store(str(files))

    @pytest.fixture
    def publishing(self, monkeypatch: pytest.MonkeyPatch) -> Publishing:
        @contextmanager
        def patched(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
            with monkeypatch.context() as patch:
                for name in ("link", "replace"):
                    call = getattr(os, name)

                    def published(*names: str, call: Callable[..., None] = call) -> None:
                        before()
                        call(*names)
                        after()

                    patch.setattr(os, name, published)
                yield

        return patched


# -- what lies beside


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that is not the root's, with a file that would long be deleted if it were one of ours."""
    folder = tmp_path / "outside"
    (folder / "deeper").mkdir(parents=True)
    for name in ("a", f"1-{uuid.uuid4().hex}-1", "deeper/b"):
        (folder / name).write_bytes(b"precious")
        os.utime(folder / name, (0, 0))
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("linked", ["_system", "_system/tmp"])
def test_the_folder_of_temporary_files_is_no_link(tmp_path: Path, store: Store, outside: Path, linked: str) -> None:
    """Through a link the clean-up would delete what somebody else has there."""
    (outside / "tmp").symlink_to(outside)
    place = tmp_path / "root" / linked
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    before = content_of(outside)
    verbs: list[Callable[[], Any]] = [lambda: store.put("a", b""), lambda: store.put_if_absent("b", body())]
    for verb in [*verbs, store.clock]:
        with pytest.raises(StorageRefused, match="symbolic link"):
            verb()
    assert content_of(outside) == before


def test_links_below_a_root_are_not_followed(tmp_path: Path, store: Store, outside: Path) -> None:
    store.put("s/real", b"ours")
    root, before = tmp_path / "root", content_of(outside)
    (root / "s" / "file").symlink_to(outside / "a")
    (root / "s" / "folder").symlink_to(outside)
    (root / "s" / "loop").symlink_to(root)
    (root / "s" / "itself").symlink_to("itself")
    (root / "s" / "nowhere").symlink_to("/nowhere")
    assert [info.path for info in store.list("")] == [info.path for info in store.list("s/")] == ["s/real"]
    links = {f"s/{name}" for name in ("file", "folder", "loop", "itself", "nowhere")}
    assert store.passed_over() == dict.fromkeys(links, "a symbolic link")
    for path in ("s/file", "s/folder/a", "s/folder/deeper/b", "s/loop/s/real", "s/itself"):
        calls: list[Callable[[], object]] = [
            partial(store.read, path),
            partial(store.stat, path),
            partial(store.put_if_absent, path, body()),
            partial(store.append, path, 8, b"x"),
            partial(store.set_read_only, path, True),
        ]
        for call in calls:
            with pytest.raises(StorageRefused, match="symbolic link"):
                call()
    for path in ("s/folder/a", "s/folder/deeper/b"):
        calls = [partial(store.delete, [path]), partial(store.put, path, b"x"), partial(store.list, "s/folder/")]
        for call in calls:
            with pytest.raises(StorageRefused, match="symbolic link"):
                call()
    assert content_of(outside) == before


def test_the_root_may_be_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    store = open_store(str(tmp_path / "link" / "root"))
    store.put("a", b"x")
    assert (outside / "root" / "a").read_bytes() == b"x"
    assert [info.path for info in store.list("")] == ["a"]


def test_the_top_of_all_folders_may_be_looked_at() -> None:
    store = open_store("/")
    with pytest.raises(ObjectNotFound):
        store.read("no such folder/deeper/a")
    assert store.list("no such folder/") == []


def test_what_cannot_be_an_object_is_passed_over(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("s/real", b"ours")
    folder = os.fsencode(tmp_path / "root" / "s")
    os.mkfifo(folder + b"/pipe")
    for name in (b"not \xff utf-8", b"folder \xfe/deeper"):
        os.makedirs(os.path.dirname(folder + b"/" + name), exist_ok=True)
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(b"x")
    long = b"/".join([b"x" * 200] * 5)
    os.makedirs(folder + b"/" + os.path.dirname(long))
    Path(os.fsdecode(folder + b"/" + long)).write_bytes(b"x")
    assert [info.path for info in store.list("")] == ["s/real"]
    told = store.passed_over()
    short = sorted(name for name in told if not name.startswith("s/xxx"))
    assert short == ["s/folder \\udcfe", "s/not \\udcff utf-8", "s/pipe"]
    assert len(told) == 4
    assert all(name.isprintable() for name in told)
    assert len([record for record in caplog.records if "is ignored" in record.message]) == 1
    with pytest.raises(ObjectNotFound):
        store.read("s/pipe")


# --- the place of a root that cannot be one -----------------------------------------------------------------------


def test_a_file_is_no_root(tmp_path: Path) -> None:
    """Whoever looks for a root there hears so, and who would make one."""
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            StorageRefused, match=f"^{tmp_path}/file is a file: give a folder as the root of the streams$"
        ):
            local.LocalStore(str(place)).put("a", b"content")
    with pytest.raises(StorageRefused, match=f"^{tmp_path}/file is a file"):
        local.LocalStore(str(tmp_path / "file")).list("")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_filesystem_that_takes_no_files() -> None:
    with pytest.raises(StorageRefused, match=r"^/proc/streams cannot be made: the filesystem of /proc takes no files"):
        local.LocalStore("/proc/streams").put("a", b"content")


def test_what_may_not_be_written_is_told_with_its_folder_and_who_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs the tests may be allowed everything, so the answers of the system are given here."""
    store = local.LocalStore(str(tmp_path / "root"))
    store.put("there", b"content")
    user = pwd.getpwuid(os.geteuid()).pw_name

    def told(error: OSError, path: str, allowed: Callable[[int], bool]) -> str:
        """What the store says when the system answers a read of `path` so."""

        def refuse(*_: Any) -> NoReturn:
            raise error

        with monkeypatch.context() as patch, pytest.raises(StorageError) as raised:
            patch.setattr(os, "access", lambda path, mode: allowed(mode))
            patch.setattr(os, "open" if path else "scandir", refuse)
            store.read(path) if path else store.list("")
        return str(raised.value)

    denied = PermissionError(errno.EACCES, "no")
    assert told(denied, "_system/selftest/race-00", lambda mode: not mode & os.W_OK) == (
        f"no write permission for {tmp_path}/root/_system (user {user}): give this user permission to write there, or "
        "name another place; to read a root, permission to read it is enough"
    )
    assert told(denied, "_system/pravega.json", lambda mode: False) == (
        f"no read permission for {tmp_path}/root/_system (user {user}): give this user permission to read and enter "
        "it, or name another place"
    )
    assert told(denied, "there", lambda mode: False) == (
        f"no read permission for {tmp_path}/root/there (user {user}): give this user permission to read the root's "
        "files"
    )
    odd = OSError(errno.EIO, "odd")
    assert told(odd, "", lambda mode: False) == f"file://{tmp_path}/root: odd: check the filesystem"


def test_folders_with_names_like_the_root(tmp_path: Path) -> None:
    for name in ("streams", "stream-notes", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "strea").write_text("a file")
    assert local.LocalStore(str(tmp_path / "stream")).neighbours()[0] == str(tmp_path / "streams")
    assert local.LocalStore(str(tmp_path / "none" / "stream")).neighbours() == []


def test_a_link_is_refused_where_another_object_is(tmp_path: Path) -> None:
    store = local.LocalStore(str(tmp_path / "root"))
    store.put("source", b"wanted")
    store.put("taken", b"another")
    with pytest.raises(StorageError, match="taken"):
        store.link("taken", store, "source")
    assert store.read("taken") == b"another"


def test_who_has_only_read_notices_that_the_storage_is_gone(tmp_path: Path) -> None:
    """What is put then would lie in the empty folder under a mount."""
    folder = tmp_path / "root"
    open_store(str(folder)).put("_system/made", b"x")
    store = open_store(str(folder))
    assert store.read("_system/made") == b"x"
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(StorageError, match="mounted"):
        store.put("_system/more", b"x")
    assert list(folder.iterdir()) == []
