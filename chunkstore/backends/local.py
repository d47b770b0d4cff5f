"""Objects as files of a folder: any POSIX filesystem with hard links, local or shared.

An object is written to a temporary file in `<root>/_system/tmp/`, synced, and then linked (`put_if_absent`) or renamed
(`put`) to its name, so other processes see it whole or not at all, also after a writer was killed. Then its folder is
synced. Folders made on the way are synced into their parents before anything is put there. Between link and sync other
processes see a name that a power failure takes back; a process that acts on it calls `sync` first (G3).

An object's time is its inode's change time: linking and renaming set it. The modification time is that of the writing,
and a process that slept between writing and linking would publish an object that looks old, which W7 must not see.

Symbolic links below the root are never followed (P1), neither to a file nor on the way to one: they lead out of the
root. The root itself may be one. Each process checks a folder once.

The disk takes a large object piece by piece while it is being written, and is never far behind: a process that syncs a
small object meanwhile, as every append does, waits for some pieces and not for all of it.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import fcntl
import functools
import itertools
import math
import operator
import os
import pwd
import re
import stat
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from chunkstore import stamps
from chunkstore.backends.tree import walk
from chunkstore.bounded_set import BoundedSet
from chunkstore.errors import (
    InvalidOffset,
    ObjectNotFound,
    ObjectReadOnly,
    PutUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    Unsupported,
)
from chunkstore.paths import SYSTEM, TEMPORARY
from chunkstore.port import (
    LONGEST_PATH,
    Data,
    ObjectInfo,
    Outcome,
    Parts,
    Range,
    Store,
    check_path,
    check_prefix,
    check_range,
    length_of,
    pieces_of,
    same_content,
    token_of,
)
from chunkstore.room import SMALL_OBJECT, USERS_DATA
from chunkstore.similarity import suggest

_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK  # nor wait for the other end of a pipe that lies there
_TEMPORARY_NAME = re.compile(r"[0-9a-f]{32}")
_ABANDONED = 24 * 3600.0  # seconds after which a temporary file's writer cannot be alive, or has to notice
_UNLOCKED = 60.0  # the same for a large file that nobody has locked

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # to a reader, a folder is no object
_DOUBTFUL = (errno.EIO, errno.ETIMEDOUT, errno.ESTALE)  # a file server may have made the link all the same
_NO_LINKS = (
    errno.EXDEV,
    errno.EPERM,
    errno.ENOTSUP,
    errno.EMLINK,
)  # another filesystem, another user's, none, too many
_REMEDIES: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOSPC: (StorageFull, "the filesystem is full: free some space, then try again"),
    errno.EDQUOT: (StorageFull, "the disk quota is used up: free some space, then try again"),
    errno.ENOENT: (StorageUnavailable, "its folder or its temporary file vanished during the write: try again"),
    errno.EISDIR: (StorageError, "there is a folder in its place: on a filesystem a path is an object or a folder"),
    errno.ELOOP: (StorageRefused, "a symbolic link is in its way; links below a root are never followed: remove it"),
    errno.ENOTDIR: (StorageError, "an object is in its way: on a filesystem a path is an object or a folder"),
    errno.ENAMETOOLONG: (StorageError, "the filesystem does not take names this long: use a shorter name"),
    errno.EACCES: (StorageRefused, "no permission: give this user access to the folder"),
    errno.EPERM: (StorageRefused, "not permitted: the folder must allow this user to write and to make hard links"),
    errno.EROFS: (StorageRefused, "the filesystem is read-only: give a root that can be written"),
    errno.ENOTSUP: (StorageRefused, "the filesystem lacks hard links or locks: give a root on another one"),
    errno.EXDEV: (StorageRefused, "a folder below the root is on another filesystem: a root must be on one"),
    errno.EMFILE: (StorageUnavailable, "too many open files: raise the limit (ulimit -n), or try again"),
    errno.ENFILE: (StorageUnavailable, "the system has too many open files: try again"),
    errno.ESTALE: (StorageUnavailable, "the file server replaced the file: try again"),
    errno.ETIMEDOUT: (StorageUnavailable, "the file server did not answer: try again"),
    errno.EAGAIN: (StorageUnavailable, "the filesystem is busy: try again"),
}

_MIN_FREE, _MIN_FREE_PART = 64 << 20, 64
_ROOM_KNOWN = 0.1
"""Seconds for which a filesystem that had much room is not asked again."""
_MUCH_ROOM = 256 << 20
"""So many bytes beyond what is kept free are much room: only at 2.5 GB/s they are used up in that time."""
_PART_OF_KEPT = 4
"""A larger object takes a part of this size at most."""


class _Room(NamedTuple):
    """What of a filesystem is free, and how much of it is kept for what frees space, bytes."""

    free: int
    kept: int

    def left_by(self, part: float) -> float:
        """How many bytes a kind of write has to leave. However much users are to leave, the default is enough for what
        frees space, and all that is needed stays."""
        return self.kept if part == USERS_DATA else part * min(self.kept, _MIN_FREE)

    @property
    def largest(self) -> int:
        """The most bytes of an object. Below what is kept it gets smaller with what is left, so that it never ends."""
        return max(self.free - self.kept, self.free // _PART_OF_KEPT)


_FREE_SPACE = (
    "Truncate or delete streams and run `pravega-spark maintain --yes`, or make the filesystem larger; storage option "
    "'min_free' sets how much is kept"
)

_MOST_NEIGHBOURS = 1000
_MAY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_MOST_PIECES = min(os.sysconf("SC_IOV_MAX"), 1024)  # that the kernel takes at once
_MOST_BYTES = 512 << 10  # at once; for more, Linux seeks huge pages: up to 4 times the time in a virtual machine
_sync = getattr(os, "fdatasync", os.fsync)  # spares a write when only times changed; macOS has none
_MOST_UNWRITTEN = 4 << 20  # of a file, in the page cache: enough that the disk never waits for the next piece
_START, _FINISH = 2, 7  # SYNC_FILE_RANGE_WRITE; _WAIT_BEFORE | _WRITE | _WAIT_AFTER
_NOT_OFFERED = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EPERM)  # by this kernel, filesystem, or sandbox
_NOT_TO_BE_SYNCED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_Result = TypeVar("_Result")


class LocalStore(Store):
    """Objects below `folder` (an absolute path), which is made with the first object."""

    remote = False
    can_append = True
    host_clock = True  # of a shared folder it is the file server's, which cannot be known here

    def __init__(
        self,
        folder: str,
        folders: int = 10_000,
        min_free: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folders: of so many it is bounded that they are there. min_free: the bytes of the filesystem that are kept
        for what frees space (P6); by default 64 MiB, of a small filesystem a 64th."""
        self._folder = os.path.normpath(folder)
        self.root = f"file://{self._folder}"
        self._above = self._folder.rstrip("/")  # the folder may be the top one
        self._temporary = f"{self._folder}/{TEMPORARY}"
        self._stamped: int | None = None  # the file that shows the filesystem's time
        # Folders that exist and are synced into their parents; `_system` is always kept, or a lost mount is not
        # noticed.
        self._known = BoundedSet[str](folders, os.path.dirname(self._temporary))
        self._min_free, self._clock = min_free, clock
        self._room_known = -_ROOM_KNOWN, _Room(0, 0)  # when much room was found, and how much
        self._used = False  # whether an object of this project was read here
        self._real = BoundedSet[str](folders, self._folder)  # folders that are no links, nor those on the way to them
        self._real.add(self._folder)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self._read_many(path, [Range(path, start, end)])[0]

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        check_range(path, start, None)
        return self._opened(path, lambda fd: _read_into(fd, start, room))

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        results: list[bytes | None] = []
        for path, group in itertools.groupby(ranges, key=_path_of):
            wanted = list(group)
            found = self._found(path, wanted)
            results += [None] * len(wanted) if found is None else found
        return results

    def put(self, path: str, data: Parts) -> None:
        target = self._file(path)
        try:
            self._replace(path, target, data, durable=True)
            _sync_folder(os.path.dirname(target))
        except OSError as error:
            raise self._error(error, path) from error

    def post(self, path: str, data: Parts) -> None:
        try:
            self._replace(path, self._file(path), data, durable=False)
        except OSError as error:
            raise self._error(error, path) from error

    def _replace(self, path: str, target: str, data: Parts, durable: bool) -> None:
        fd, temporary = self._write_temporary(path, data, durable)
        try:
            self._in_folder_of(target, lambda: os.replace(temporary, target))
        except BaseException:
            _remove(temporary)
            raise
        finally:
            os.close(fd)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token = token_of(data)
        target = self._file(path)
        # Looking first spares the loser of a race the writing, and costs the winner a microsecond.
        made = not os.path.lexists(target) and self._link_new(path, target, data)
        try:
            if not made:
                if self._begins(target, len(token)) != token or not same_content(self._begins(target, None), data):
                    return Outcome.ANOTHERS
                # The attempt that made it may have been killed before it had synced anything.
                self._make_folder(os.path.dirname(target))
            _sync_folder(os.path.dirname(target))
        except OSError as error:
            known = error.errno in (errno.EISDIR, errno.ELOOP)
            raise (self._error if known else self._doubt)(error, path) from error
        return Outcome.MINE

    def append(self, path: str, offset: int, data: Data) -> None:
        with self._open_to_change(path) as (fd, size):
            if size != offset:
                message = f"{self.root}: {path!r} has {size} bytes, cannot append at {offset}"
                raise InvalidOffset(message, expected=size, given=offset)
            self._check_fits(len(data), path)
            try:
                _write(fd, data, offset)
                _sync(fd)
            except BaseException:
                os.ftruncate(fd, offset)  # half an append would make its repetition fail
                raise

    def link(self, path: str, source: Store, name: str) -> None:
        if not isinstance(source, LocalStore):
            return super().link(path, source, name)
        target, file = self._file(path), source._file(name)
        source.stat(name)  # raises for what is absent, or a symbolic link
        source._opened(name, os.fsync)  # the process that made it may not have
        try:
            with contextlib.suppress(FileExistsError):
                self._in_folder_of(target, lambda: os.link(file, target, follow_symlinks=False))
            if not os.path.samefile(file, target):
                raise self._error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
            _sync_folder(os.path.dirname(target))
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise Unsupported(
                    f"{self.root}: {file} cannot be linked here ({os.strerror(error.errno or 0)}): copy it instead"
                ) from error
            raise self._error(error, path) from error

    def set_read_only(self, path: str, read_only: bool) -> None:
        def change(fd: int) -> None:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            os.fchmod(fd, mode & ~_MAY_WRITE if read_only else mode | stat.S_IWUSR)
            os.fsync(fd)

        self._opened(path, change)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        self._file(f"{prefix}-")  # raises for the folder of temporary files
        try:
            return list(itertools.islice(self._walk(prefix, after), limit))
        except OSError as error:
            raise self._error(error, prefix) from error

    def stat(self, path: str) -> ObjectInfo:
        try:
            found = os.lstat(self._file(path))
        except _ABSENT:
            raise self._absent(path) from None
        except OSError as error:
            raise self._error(error, path) from error
        if stat.S_ISLNK(found.st_mode):
            raise self._error(_link_at(path), path)
        if not stat.S_ISREG(found.st_mode):
            raise self._absent(path)
        return ObjectInfo(path, found.st_size, found.st_ctime)

    def delete(self, paths: Sequence[str]) -> None:
        files = [self._file(path) for path in paths]
        changed = set()
        for path, file in zip(paths, files, strict=True):
            try:
                os.unlink(file)
            except _ABSENT:
                continue
            except OSError as error:
                raise self._error(error, path) from error
            changed.add(os.path.dirname(file))
        for folder in changed:
            try:
                _sync_folder(folder)
            except OSError as error:
                raise self._error(error, folder) from error

    def sync(self, prefix: str) -> None:
        check_prefix(prefix)
        folder = os.path.dirname(self._file(f"{prefix}-"))
        try:
            _sync_folder(folder)  # those on the way were synced before anything was put there
        except _ABSENT:
            return  # nothing is to be seen there
        except OSError as error:
            raise self._error(error, prefix) from error

    def check_room(self, needed: int = 0, part: float = USERS_DATA) -> None:
        room = self._room()
        if room is not None and room.free - needed < room.left_by(part):
            wanted = f", {needed} of which are needed for what is under way" if needed else ""
            raise StorageFull(
                f"{self.root}: the filesystem has {room.free} bytes free{wanted}, and {room.kept} are kept for "
                f"deletions and maintenance: nothing is written until some space is freed. {_FREE_SPACE}"
            )

    def largest_object(self) -> float:
        room = self._room()
        return math.inf if room is None else room.largest

    def _room(self) -> _Room | None:
        """None where nothing is kept, or it is not known."""
        when, known = self._room_known
        now = self._clock()
        if now - when < _ROOM_KNOWN:
            return known
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None  # there is no folder yet, or what is wrong with it shows in the next request
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        kept = min(_MIN_FREE, size // _MIN_FREE_PART) if self._min_free is None else self._min_free
        if not kept:  # or a filesystem that does not tell its size
            return None
        room = _Room(free, kept)
        if free > kept + _MUCH_ROOM:
            self._room_known = now, room
        return room

    def _check_fits(self, size: int, path: str) -> None:
        """Raise StorageFull for a large object that would take too much of what is kept free, or all of it."""
        room = self._room() if size > SMALL_OBJECT else None
        if room is not None and size > room.largest:
            raise StorageFull(
                f"{self.root}: {path!r} has {size} bytes, and is not written: the filesystem has {room.free} bytes "
                f"free, {room.kept} are kept for deletions and maintenance, and of those one object takes a quarter of "
                f"what is left, at most. {_FREE_SPACE}"
            )

    def mark(self, path: str) -> Hashable:
        try:
            found = os.lstat(self._file(path))
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_ctime_ns

    def clock(self) -> float:
        """The filesystem stamps one file again and again, which has no name: a new one each time costs as much as an
        object."""
        try:
            probe = self._probe()
            os.utime(probe)
            return os.fstat(probe).st_ctime
        except OSError as error:
            raise self._error(error, TEMPORARY) from error

    def _probe(self) -> int:
        if self._stamped is None:  # two threads may make two of them: all are closed with the store
            self._stamped, name = self._open_temporary()
            weakref.finalize(self, os.close, self._stamped)
            _remove(name)
        return self._stamped

    def _file(self, path: str) -> str:
        check_path(path)
        if path.startswith(TEMPORARY) and path[len(TEMPORARY) :][:1] in ("", "/"):
            raise ValueError(f"storage path {path!r} lies in {TEMPORARY}/, which belongs to the store")
        file = f"{self._above}/{path}"
        folder = file[: file.rindex("/")] or "/"
        if folder not in self._real:
            try:
                self._check_folder(folder)
            except OSError as error:
                raise self._error(error, path) from error
        return file

    def _check_folder(self, folder: str) -> bool:
        """Whether there is a folder. Raises OSError if a link is in its place, or on the way to it from the root."""
        if folder in self._real:
            return True
        if not self._check_folder(os.path.dirname(folder)):
            return False
        try:
            found = os.lstat(folder)
        except _ABSENT:
            return False
        if stat.S_ISLNK(found.st_mode):
            raise _link_at(folder)
        self._real.add(folder)
        return True

    def _begins(self, file: str, length: int | None) -> bytes:
        fd = os.open(file, os.O_RDONLY | _NO_LINK)
        try:
            return _read_open(fd, 0, length)
        finally:
            os.close(fd)

    def _read_many(self, path: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """Ranges of one object, which is opened once. Raises ObjectNotFound."""
        found = self._found(path, ranges)
        if found is None:
            raise self._absent(path)
        return found

    def _found(self, path: str, ranges: Sequence[Range]) -> builtins.list[bytes] | None:
        """Ranges of one object, or None if it is absent: a follower of a log reads addresses that do not exist yet."""
        for _, start, end in ranges:
            check_range(path, start, end)
        found = self._if_there(path, lambda fd: [_read_open(fd, start, end) for _, start, end in ranges])
        self._used = self._used or (found is not None and path.startswith(SYSTEM))
        return found

    def _opened(self, path: str, action: Callable[[int], _Result]) -> _Result:
        """Do something with an object's file. Raises ObjectNotFound."""
        done = self._if_there(path, lambda fd: (action(fd),))
        if done is None:
            raise self._absent(path)
        return done[0]

    def _if_there(self, path: str, action: Callable[[int], _Result]) -> _Result | None:
        """Do something with an object's file; None where it is absent."""
        try:
            fd = os.open(self._file(path), os.O_RDONLY | _NO_LINK)
            try:
                return action(fd)
            finally:
                os.close(fd)
        except _ABSENT:
            return None
        except OSError as error:
            raise self._error(error, path) from error

    @contextlib.contextmanager
    def _open_to_change(self, path: str) -> Iterator[tuple[int, int]]:
        """An object's file, locked against other changes, and its size. Raises ObjectNotFound, ObjectReadOnly."""
        try:
            fd = os.open(self._file(path), os.O_WRONLY | _NO_LINK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # until closed
                found = os.fstat(fd)
                if not found.st_mode & _MAY_WRITE:
                    raise PermissionError(errno.EACCES, "read-only")  # the superuser is not stopped by open
                yield fd, found.st_size
            finally:
                os.close(fd)
        except _ABSENT:
            raise self._absent(path) from None
        except OSError as error:
            if error.errno == errno.EACCES and self._is_read_only(path):
                raise ObjectReadOnly(f"{self.root}: {path!r} is read-only: put a new object instead") from error
            raise self._error(error, path) from error

    def _is_read_only(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return not os.lstat(self._file(path)).st_mode & _MAY_WRITE
        return False

    def _link_new(self, path: str, target: str, data: Parts) -> bool:
        """Write and link; False if the target exists by now. After an error but PutUnknown it is not made."""
        try:
            fd, temporary = self._write_temporary(path, data)
        except OSError as error:
            raise self._error(error, path) from error
        try:
            self._in_folder_of(target, lambda: os.link(temporary, target))
            with contextlib.suppress(OSError):  # it is made, even if another process has deleted it by now
                stamps.note(os.lstat(target).st_ctime)  # the filesystem stamped it when it was linked, not when written
            return True
        except FileExistsError:
            return False
        except OSError as error:
            raise (self._doubt if error.errno in _DOUBTFUL else self._error)(error, path) from error
        finally:
            os.close(fd)
            _remove(temporary)

    def _write_temporary(self, path: str, data: Parts, durable: bool = True) -> tuple[int, str]:
        """A temporary file with these bytes, open: a large one is locked until it is closed, so that no other process
        takes it for abandoned."""
        size = length_of(data)
        self._check_fits(size, path)
        fd, name = self._open_temporary()
        try:
            if size > SMALL_OBJECT:
                with contextlib.suppress(OSError):  # a filesystem without locks
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(fd, data, 0)
            if durable:
                _sync(fd)
        except BaseException:
            os.close(fd)
            _remove(name)
            raise
        return fd, name

    def _open_temporary(self) -> tuple[int, str]:
        name = f"{self._temporary}/{uuid.uuid4().hex}"  # that no copy of this process's memory makes again (W15)
        first = self._temporary not in self._known
        fd = self._in_folder_of(name, lambda: os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        if first:
            self._sweep(now=os.fstat(fd).st_ctime)
        return fd, name

    def _sweep(self, now: float) -> None:
        """Remove what killed writers left: large files that nobody has locked after a minute, others after a day. A
        writer that was stopped for longer finds its file gone, and starts again.

        Only files whose names are those of temporary files, and only in this folder itself: a link leads elsewhere.
        """
        folder = os.open(self._temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if _TEMPORARY_NAME.fullmatch(entry.name)]
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and _is_abandoned(name, folder, found, now):
                        os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def _in_folder_of(self, file: str, action: Callable[[], _Result]) -> _Result:
        """Carry out what puts `file` into its folder; the folder is made if it is missing, or has vanished since."""
        folder = os.path.dirname(file)
        self._make_folder(folder)
        try:
            return action()
        except FileNotFoundError:
            self._check_mounted()
            self._known.clear()
            self._make_folder(folder)
            return action()

    def _check_mounted(self) -> None:
        """Raise StorageUnavailable if the folder `_system` was there and is gone (an unmounted disk, for example).

        What was put into an empty folder in its place would never be seen again (P1).
        """
        system = os.path.dirname(self._temporary)
        if (self._used or system in self._known) and not os.path.isdir(system):
            gone = f"{self.root}: the folder {system!r} is not there any more: is the storage mounted?"
            raise StorageUnavailable(gone)

    def _make_folder(self, folder: str) -> None:
        if folder in self._known:
            return
        self._check_mounted()
        parent = os.path.dirname(folder)
        below_root = folder.startswith(f"{self._folder}/")
        if below_root or not os.path.isdir(parent):
            self._make_folder(parent)
        try:
            os.mkdir(folder)
            made = True
        except FileExistsError:
            made = False
            if below_root:
                self._check_folder(folder)
        # Also if it existed: its maker may have been killed before the sync.
        sync = _sync_folder if made or below_root else _sync_above_root
        sync(parent)
        self._known.add(folder)

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        for path, _ in walk(self._look, prefix, after):
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(f"{self._folder}/{path}")
                if stat.S_ISREG(found.st_mode):
                    yield ObjectInfo(path, found.st_size, found.st_ctime)

    def _look(self, prefix: str) -> Iterator[tuple[str, None]]:
        """Files and, marked by a final "/", folders in a folder."""
        if not prefix and os.path.isfile(self._folder):
            raise StorageRefused(_a_file(self._folder))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(f"{self._folder}/{prefix}") as all:
            for entry in all:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if path != TEMPORARY and self._can_name(path):
                        yield f"{path}/", None
                elif not entry.is_file(follow_symlinks=False):
                    self.pass_over(path, "a symbolic link" if entry.is_symlink() else "neither a file nor a folder")
                elif (path.isascii() and len(path) <= LONGEST_PATH) or self._can_name(path):  # nearly all are
                    yield path, None

    def neighbours(self) -> builtins.list[str]:
        """Folders beside this one with names like its name, the most similar first."""
        parent, name = os.path.split(self._folder)
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_NEIGHBOURS) if entry.is_dir()]
            return [f"{parent.rstrip('/')}/{each}" for each in suggest(name, names) if each != name]
        return []

    def _absent(self, path: str) -> ObjectNotFound:
        return ObjectNotFound(f"{self.root}: there is no object {path!r}")

    def _doubt(self, error: OSError, path: str) -> PutUnknown:
        return PutUnknown(
            f"{self.root}: it is not known whether {path!r} was made ({error.strerror}): put the same bytes there again"
        )

    def _error(self, error: OSError, path: str) -> StorageError:
        found = self._wrong_place(error, path)
        if found is not None:
            return StorageRefused(found)
        kind, remedy = _REMEDIES.get(error.errno or 0, (StorageError, f"{error.strerror}: check the filesystem"))
        return kind(f"{self.root}: {path!r}: {remedy}" if path else f"{self.root}: {remedy}")

    def _wrong_place(self, error: OSError, path: str) -> str | None:
        """What is wrong with where the root is, and what to do; None if it is something else. Requests nothing."""
        there = os.path.normpath(f"{self._folder}/{path}")
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        above = not there.startswith(f"{self._folder}/")  # the root, or what it lies in
        if error.errno in (errno.ENOTDIR, errno.EEXIST) and above and not os.path.isdir(there):
            return _a_file(there)
        if error.errno == errno.ENOENT and above and there != self._folder:
            return (
                f"{self._folder} cannot be made: the filesystem of {there} takes no files; give a root on another one"
            )
        if error.errno not in (errno.EACCES, errno.EPERM):
            return None
        user = f"user {_user()}"
        if os.path.isfile(there) and not os.access(there, os.R_OK):
            return f"no read permission for {there} ({user}): give this user permission to read the root's files"
        folder = there if os.path.isdir(there) else os.path.dirname(there)
        if not os.access(folder, os.R_OK | os.X_OK):
            return (
                f"no read permission for {folder} ({user}): give this user permission to read and enter it, or name "
                "another place"
            )
        if os.access(folder, os.W_OK | os.X_OK):
            return None
        return (
            f"no write permission for {folder} ({user}): give this user permission to write there, or name another "
            "place; to read a root, permission to read it is enough"
        )


_path_of = operator.attrgetter("path")


def _user() -> str:
    """The user that this process runs as: a name if there is one, else a number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _a_file(place: str) -> str:
    return f"{place} is a file: give a folder as the root of the streams"


def _link_at(place: str) -> OSError:
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)


def _read_into(fd: int, start: int, room: memoryview) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    filled = 0
    while filled < room.nbytes:
        count = os.preadv(fd, [room[filled:]], start + filled)
        if not count:
            break
        filled += count
    return filled


def _read_open(fd: int, start: int, end: int | None) -> bytes:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    stamps.note(found.st_ctime)
    stop = found.st_size if end is None else min(end, found.st_size)
    pieces = []
    while start < stop:
        piece = os.pread(fd, stop - start, start)  # the kernel reads at most 2 GiB at a time
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write(fd: int, data: Parts, offset: int) -> None:
    rest = deque(memoryview(piece).cast("B") for piece in pieces_of(data))
    begun = clean = offset  # the disk has begun to take what is before `begun`, and has taken what is before `clean`
    while rest:
        if offset - begun >= _MOST_BYTES:
            _write_back(fd, begun, offset - begun, _START)
            begun = offset
            if (behind := begun - clean - _MOST_UNWRITTEN) > 0:
                _write_back(fd, clean, behind, _FINISH)
                clean += behind
        written = os.pwritev(fd, list(_next_pieces(rest)), offset)
        offset += written
        while rest and written >= len(rest[0]):
            written -= len(rest.popleft())
        if written:
            rest[0] = rest[0][written:]


def _write_back(fd: int, start: int, length: int, how: int) -> None:
    """Start, or wait for, the writing of these bytes to the disk. They are durable only once the file is synced.

    An error has to be raised here: the kernel reports it once, and the sync would find none.
    """
    call = sync_file_range()
    if call is not None and call(fd, start, length, how) and ctypes.get_errno() not in _NOT_OFFERED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The call of the system, if it has it (Linux). Other than fdatasync it waits for neither journal nor disk."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


def _next_pieces(rest: Iterable[memoryview]) -> Iterator[memoryview]:
    """What of the pieces is written at once."""
    room = _MOST_BYTES
    for piece in itertools.islice(rest, _MOST_PIECES):
        yield piece[:room]
        room -= len(piece)
        if room <= 0:
            return


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_above_root(folder: str) -> None:
    """Sync the folder that the root lies in, if it can be: it may be another user's, or on another filesystem."""
    try:
        _sync_folder(folder)
    except OSError as error:
        if error.errno not in _NOT_TO_BE_SYNCED:
            raise


def _is_abandoned(name: str, folder: int, found: os.stat_result, now: float) -> bool:
    """Whether the writer of a temporary file is dead. Locks end with their process, on this host and most others."""
    age = now - found.st_mtime
    if age <= _UNLOCKED or found.st_size <= SMALL_OBJECT:
        return age > _ABANDONED
    try:
        fd = os.open(name, os.O_WRONLY | _NO_LINK, dir_fd=folder)
    except OSError:
        return age > _ABANDONED
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return age > _ABANDONED
    finally:
        os.close(fd)


def _remove(temporary: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return LocalStore(place, min_free=_size(options.get("min_free")))


def _size(value: object) -> int | None:
    """The number of bytes of option 'min_free'."""
    if value is None or (type(value) is int and value >= 0):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise StorageRefused("storage option 'min_free' must be a number of bytes, as 1073741824; 0 keeps nothing free")
