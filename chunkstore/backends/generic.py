"""Objects on any other filesystem that fsspec knows, by the verbs that all of them have.

What such a filesystem promises is not known here. A create is its own exclusive create, and whether that is atomic is
for the self-test to find out, which refuses the root if it is not. Most refusals are because readers see objects before
they are complete. What no test can find out is whether an object survives a power failure once it was made.

Not all filesystems can be used by several threads at once: each request has one to itself, which the next one gets.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias, TypeVar

import fsspec

from chunkstore.backends.tree import walk
from chunkstore.errors import (
    ObjectNotFound,
    PutUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    forget_frames,
)
from chunkstore.paths import SYSTEM
from chunkstore.port import (
    ObjectInfo,
    Outcome,
    Parts,
    Store,
    check_path,
    check_prefix,
    check_range,
    joined,
    token_of,
)
from chunkstore.schemes import SUPPORTED

_FOLDER_TRIES = 4
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NEVER = (NotImplementedError, PermissionError, TypeError, ValueError, AttributeError)

_Result = TypeVar("_Result")
_Facts: TypeAlias = tuple[int, float]


class GenericStore(Store):
    """Objects below `url`; `options` are those of the filesystem's class."""

    remote = True
    can_append = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._protocol, _, place = url.partition("://")
        host, _, rest = place.partition("/")
        self.root = f"{self._protocol}://{host}/{rest}".rstrip("/")
        if rest.strip("/"):
            check_path(rest.strip("/"))
        self._class = _filesystem_class(self._protocol)
        self._from_url = self._class._get_kwargs_from_urls(self.root)
        self._base = str(self._class._strip_protocol(self.root)).rstrip("/")
        self._options = dict(options)
        self._idle: dict[int, deque[Any]] = {}  # filesystems of each process; they do not survive a fork
        self._used = False  # whether an object of this project was read here

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        name = self._name(path)
        check_range(path, start, end)

        def read(fs: Any) -> bytes:
            # What lies in an empty range, or behind the end, is something else to each of them. The end of an object
            # is not taken from its size: another process may overwrite it with a longer one in between.
            size = self._facts(fs, name)[0]
            stop = size if end is None else min(end, size)
            if start >= stop:
                return b""
            data = bytes(fs.cat_file(name, start=start, end=None if stop == size else stop))
            if len(data) != stop - start and not (stop == size and len(data) == self._facts(fs, name)[0] - start):
                raise ConnectionError(f"{len(data)} bytes of {stop - start}")  # cut off in the middle
            return data if end is None else data[: end - start]

        found = self._run(read, path)
        self._used = self._used or path.startswith(SYSTEM)
        return found

    def put(self, path: str, data: Parts) -> None:
        name = self._name(path)
        body = bytes(joined(data))
        self._run(lambda fs: self._replace(fs, name, body), path)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        name = self._name(path)
        body = bytes(joined(data))
        try:
            with self._filesystem() as fs:
                self._check_folder(fs, name.rpartition("/")[0])
                self._create(fs, name, body)
            return Outcome.MINE
        except StorageError:
            raise
        except Exception as error:
            failure = error
        return self._settle(path, data, failure)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)

        def find(fs: Any) -> list[ObjectInfo]:
            fs.invalidate_cache()
            found = walk(lambda folder: self._look(fs, folder, seen=folder != prefix), prefix, after)
            return [ObjectInfo(path, *facts) for path, facts in itertools.islice(found, limit)]

        return self._run(find, prefix)

    def stat(self, path: str) -> ObjectInfo:
        name = self._name(path)
        return ObjectInfo(path, *self._run(lambda fs: self._facts(fs, name), path))

    def delete(self, paths: Sequence[str]) -> None:
        names = [self._name(path) for path in paths]

        def remove(fs: Any, name: str) -> None:
            try:
                fs.rm_file(name)
            except Exception as error:
                if self._is_absence(error) or self._has_no_object(fs, name):
                    return
                raise

        for path, name in zip(paths, names, strict=True):
            self._run(lambda fs, name=name: remove(fs, name), path)  # type: ignore[misc]

    def close(self) -> None:
        for fs in self._idle.pop(os.getpid(), ()):
            self._close_filesystem(fs)

    def _close_filesystem(self, fs: Any) -> None:
        """Close a filesystem's connections; not all filesystems have a method for it."""

    def _create(self, fs: Any, name: str, body: bytes) -> None:
        """Make an object, and its folder, unless there is one; raises anything if there is."""

        def create() -> None:
            if fs.async_impl or type(fs).pipe_file is not fsspec.AbstractFileSystem.pipe_file:
                fs.pipe_file(name, body, mode="create")
                return
            with fs.open(name, "xb") as file:  # fsspec's own pipe_file looks first, and then writes
                file.write(body)

        self._in_folder_of(fs, name, create)

    def _replace(self, fs: Any, name: str, body: bytes) -> None:
        """Make or overwrite an object, and make its folder."""
        self._in_folder_of(fs, name, lambda: fs.pipe_file(name, body))

    def _look(self, fs: Any, prefix: str, seen: bool) -> Iterator[tuple[str, _Facts]]:
        """What lies in the folder `prefix`: objects, and folders with a final "/"."""
        place = f"{self._base}/{prefix}"
        for info in self._listed(fs, place.rstrip("/"), seen):
            name = str(info["name"]).rstrip("/").removeprefix(place)
            path = f"{prefix}{name}"
            if "/" in name or not name or self._is_ours(path):  # the folder itself, or the file that is there instead
                continue
            kind = "link" if info.get("islink") else info["type"]
            if kind not in ("file", "directory"):
                self.pass_over(path, "a symbolic link" if kind == "link" else "neither a file nor a folder")
            elif self._can_name(path):
                yield (f"{path}/", (0, 0.0)) if kind == "directory" else (path, (info["size"], _modified(fs, info)))

    def _listed(self, fs: Any, folder: str, seen: bool) -> builtins.list[Mapping[str, Any]]:
        """What a folder holds: nothing if there is none, of which the folder above is the witness.

        That a folder is not found is what some filesystems say of any failure (P2). `seen`: it was there a moment ago.
        """
        for _ in range(_FOLDER_TRIES):
            try:
                return self._ls(fs, folder)
            except Exception as error:
                if not self._is_absence(error):
                    raise
            if self._has_no_folder(fs, folder, seen):
                return []
        raise StorageUnavailable(
            f"{self.root}: the folder {folder!r} is there, and is not found when it is to be listed: try again"
        )

    def _has_no_folder(self, fs: Any, folder: str, seen: bool) -> bool:
        """Whether the folder above lists no such folder. That the root is absent is believed: it may be new."""
        above = folder.rpartition("/")[0]
        if not folder or not above.startswith(self._base):
            return not seen
        return not any(
            info["type"] == "directory" and str(info["name"]).rstrip("/") == folder
            for info in self._listed(fs, above, seen)
        )

    def _ls(self, fs: Any, folder: str) -> builtins.list[Mapping[str, Any]]:
        """What a folder holds, complete: fsspec's `find` and `walk` leave out what they cannot list."""
        return list(fs.ls(folder, detail=True))

    def _facts(self, fs: Any, name: str) -> _Facts:
        """Size and time of an object; FileNotFoundError if there is none."""
        fs.invalidate_cache()
        info = fs.info(name)
        if info.get("islink") or info["type"] == "link":
            raise self._link_at(name)
        if info["type"] != "file":
            raise FileNotFoundError
        return info["size"], _modified(fs, info)

    def _link_at(self, name: str) -> StorageRefused:
        return StorageRefused(
            f"{self.root}: {name!r} is a symbolic link, and links below a root are never followed: remove it"
        )

    def _has_no_object(self, fs: Any, name: str) -> bool:
        """Whether it is known that there is none, be it because there is a folder in its place."""
        try:
            self._facts(fs, name)
        except Exception as error:
            if self._is_absence(error):
                return True
            raise
        return False

    def _is_absence(self, failure: Exception) -> bool:
        return isinstance(self._true_failure(failure), _ABSENT)

    def _true_failure(self, failure: Exception) -> Exception:
        """The failure of the connection, where a filesystem calls that "not found"."""
        cause = failure.__cause__
        hidden = isinstance(failure, _ABSENT) and isinstance(cause, Exception) and self._is_transient(cause)
        return cause if hidden and isinstance(cause, Exception) else failure

    def _check_folder(self, fs: Any, folder: str) -> bool:
        """Whether there is such a folder, if that is known. Raises StorageRefused if a link is on the way to it."""
        return True

    def _is_ours(self, path: str) -> bool:
        """Whether a path is that of no object, but belongs to the store."""
        return False

    def _name(self, path: str) -> str:
        check_path(path)
        return f"{self._base}/{path}"

    def _in_folder_of(self, fs: Any, name: str, action: Callable[[], _Result]) -> _Result:
        """Carry out what puts `name` into its folder, which is made if that is why it failed."""
        for _ in range(_FOLDER_TRIES):
            try:
                return action()
            except FileNotFoundError:
                self._check_mounted(fs)
                with contextlib.suppress(OSError):  # another process may be making the same folders
                    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        return action()

    def _check_mounted(self, fs: Any) -> None:
        """Raise StorageUnavailable if the folder `_system` was there and is gone (an unmounted disk, for example).

        What was put into an empty folder in its place would never be seen again (P1).
        """
        system = f"{self._base}/{SYSTEM.rstrip('/')}"
        if self._used:
            fs.invalidate_cache()
            if not fs.isdir(system):
                raise StorageUnavailable(
                    f"{self.root}: the folder {system!r} is not there any more: is the storage mounted?"
                )

    def _settle(self, path: str, data: Parts, failure: Exception) -> Outcome:
        """Decide from the stored object whether a create of unknown outcome succeeded."""
        forget_frames(failure)
        try:
            if not self.holds(path, data):
                return Outcome.ANOTHERS
            self.sync(path[: path.rfind("/") + 1])  # an earlier try may have failed before its name was durable (G3)
            return Outcome.MINE
        except StorageError:
            if isinstance(failure, _NEVER):
                raise self._error(failure, path) from None
            raise PutUnknown(
                f"{self.root}: it is not known whether {path!r} was made ({type(failure).__name__}): "
                "put the same bytes again"
            ) from None

    def _run(self, request: Callable[[Any], _Result], path: str) -> _Result:
        try:
            with self._filesystem() as fs:
                self._check_folder(fs, f"{self._base}/{path}".rpartition("/")[0])
                return request(fs)
        except StorageError:
            raise
        except Exception as error:
            failure = error
        raise self._error(failure, path)

    @contextlib.contextmanager
    def _filesystem(self) -> Iterator[Any]:
        """A filesystem for this thread alone. It is not used again if the failure says that it is dead."""
        idle = self._idle.setdefault(os.getpid(), deque())
        try:
            fs = idle.pop()
        except IndexError:
            fs = self._new_filesystem()
        try:
            yield fs
        except Exception as error:
            if self._is_transient(self._true_failure(error)):
                self._close_filesystem(fs)
            else:
                idle.append(fs)
            raise
        idle.append(fs)

    def _new_filesystem(self) -> Any:
        try:
            fs = self._class(**{**self._from_url, **self._options, "skip_instance_cache": True})
        except Exception as error:
            failure = self._cannot_open(error)
        else:
            fs.dircache.use_listings_cache = False  # as an option, not all of them take it
            return fs
        raise failure

    def _cannot_open(self, failure: Exception) -> StorageError:
        """What a store says of a filesystem that cannot be made. The texts of errors stay here, as in `_error`."""
        known = self._error(failure, "")
        if type(known) is not StorageError:
            return known
        return StorageError(
            f"{self.root}: {self._protocol}:// cannot be opened ({type(failure).__name__}): check the root's host and "
            f"the storage options. fsspec.filesystem({self._protocol!r}, …) with them, by itself, tells why"
        )

    def _error(self, failure: Exception, path: str) -> StorageError:
        """What a store says of an exception; its text stays here, for it may hold credentials."""
        forget_frames(failure)
        kind: type[StorageError] = StorageError
        remedy = "the filesystem refused the request: check the root and the storage options"
        failure = self._true_failure(failure)
        if isinstance(failure, _ABSENT):
            kind, remedy = ObjectNotFound, "there is no such object"
        elif isinstance(failure, PermissionError):
            kind, remedy = StorageRefused, "no permission: check the credentials in the storage options"
        elif isinstance(failure, (NotImplementedError, AttributeError)):
            kind, remedy = StorageRefused, f"{self._protocol}:// does not offer what a root needs: give another storage"
        elif isinstance(failure, (TypeError, ValueError)):
            kind, remedy = StorageRefused, "the request could not be made: check the root and the storage options"
        elif isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
            kind, remedy = StorageFull, "the filesystem is full: free some space, then try again"
        elif self._is_transient(failure):
            kind, remedy = StorageUnavailable, "the storage did not answer: check the root, or try again"
        return kind(f"{self.root}: {path!r}: {remedy} ({type(failure).__name__})")

    def _is_transient(self, failure: Exception) -> bool:
        return isinstance(failure, (ConnectionError, TimeoutError, asyncio.TimeoutError, EOFError))


def _filesystem_class(protocol: str) -> Any:
    try:
        return fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise StorageRefused(
            f"unknown filesystem {protocol}://; give {SUPPORTED}, and install the package that makes {protocol} known "
            "to it"
        ) from None
    except ImportError as error:
        raise StorageRefused(f"{protocol}:// cannot be used here: {error}") from None


def _modified(fs: Any, info: Mapping[str, Any]) -> float:
    """When a file was changed, in seconds since the epoch."""
    time = next((info[name] for name in _TIMES if info.get(name) is not None), None) or fs.modified(info["name"])
    if isinstance(time, str):
        time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    return float(time)


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return GenericStore(f"{scheme}://{place}", options)
