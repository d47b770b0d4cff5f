"""Objects on any other filesystem that fsspec knows, by the verbs that all of them have.

What such a filesystem promises is not known here. A create is its own exclusive create, and whether that is atomic is
for the self-test to find out, which refuses the root if it is not. Most refusals are because readers see objects before
they are complete. What no test can find out is whether an object survives a power failure once it was made.

Not all filesystems can be used by several threads at once: each request has one to itself, which the next one gets.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import fsspec

from chunkstore.errors import (
    ObjectNotFound,
    OutcomeUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
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

_FOLDER_TRIES = 4
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NEVER = (NotImplementedError, PermissionError, TypeError, ValueError, AttributeError)

_Result = TypeVar("_Result")


class GenericStore(Store):
    """Objects below `url`; `options` are those of the filesystem's class."""

    remote = True
    can_append = False
    can_concat = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._protocol, _, place = url.partition("://")
        authority, _, rest = place.partition("/")
        user, marked, host = authority.rpartition("@")
        if ":" in user:
            raise StorageRefused("the root's URL holds a password: give credentials as storage options")
        self.root = f"{self._protocol}://{user}{marked}{host}/{rest}".rstrip("/")
        if rest.strip("/"):
            check_path(rest.strip("/"))
        self._class = _filesystem_class(self._protocol)
        self._from_url = self._class._get_kwargs_from_urls(self.root)
        self._base = str(self._class._strip_protocol(self.root)).rstrip("/")
        self._options = dict(options)
        self._idle: dict[int, deque[Any]] = {}  # filesystems of each process; they do not survive a fork

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        name = self._name(path)
        check_range(path, start, end)

        def read(fs: Any) -> bytes:
            # What lies in an empty range, or behind the end, is something else to each of them.
            size = _facts(fs, name)[0]
            stop = size if end is None else min(end, size)
            return bytes(fs.cat_file(name, start=start, end=stop)) if start < stop else b""

        return self._run(read, path)

    def put(self, path: str, data: Parts) -> None:
        name = self._name(path)
        body = bytes(joined(data))
        self._run(lambda fs: self._in_folder_of(fs, name, lambda: self._replace(fs, name, body)), path)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token = token_of(data)
        name = self._name(path)
        body = bytes(joined(data))
        try:
            with self._filesystem() as fs:
                self._in_folder_of(fs, name, lambda: self._create(fs, name, body))
            return Outcome.MINE
        except StorageError:
            raise
        except Exception as error:
            failure = error
        return self._settle(path, token, failure)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        folder = f"{self._base}/{prefix}".rstrip("/")

        def find(fs: Any) -> list[ObjectInfo]:
            fs.invalidate_cache()
            try:
                found = fs.find(folder, detail=True)
            except _ABSENT:
                return []
            infos = []
            for name, info in found.items():
                path = self._path(str(name))
                if path is not None and path > after and path.startswith(prefix) and info["type"] == "file":
                    infos.append(ObjectInfo(path, info["size"], _modified(fs, info)))
            return sorted(infos, key=lambda info: info.path)[:limit]

        return self._run(find, prefix)

    def stat(self, path: str) -> ObjectInfo:
        name = self._name(path)
        return ObjectInfo(path, *self._run(lambda fs: _facts(fs, name), path))

    def delete(self, paths: Sequence[str]) -> None:
        names = [self._name(path) for path in paths]

        def remove(fs: Any, name: str) -> None:
            try:
                fs.rm_file(name)
            except _ABSENT:
                return
            except OSError:
                with contextlib.suppress(*_ABSENT):  # a folder is no object, and cannot be deleted
                    _facts(fs, name)
                    raise

        for path, name in zip(paths, names, strict=True):
            self._run(lambda fs, name=name: remove(fs, name), path)  # type: ignore[misc]

    def close(self) -> None:
        for fs in self._idle.pop(os.getpid(), ()):
            self._close_filesystem(fs)

    def _close_filesystem(self, fs: Any) -> None:
        """Give up a filesystem's connections; not all have a verb for it."""

    def _create(self, fs: Any, name: str, body: bytes) -> None:
        """Make an object unless there is one; raises anything if there is."""
        if fs.async_impl or type(fs).pipe_file is not fsspec.AbstractFileSystem.pipe_file:
            fs.pipe_file(name, body, mode="create")
            return
        with fs.open(name, "xb") as file:  # fsspec's own pipe_file looks first, and then writes
            file.write(body)

    def _replace(self, fs: Any, name: str, body: bytes) -> None:
        """Make or overwrite an object."""
        fs.pipe_file(name, body)

    def _path(self, name: str) -> str | None:
        """The path of the object that is found under a name, None if it is none of ours."""
        place = f"{self._base}/"
        return name.removeprefix(place) if name.startswith(place) else None

    def _name(self, path: str) -> str:
        check_path(path)
        return f"{self._base}/{path}"

    def _in_folder_of(self, fs: Any, name: str, action: Callable[[], _Result]) -> _Result:
        """Carry out what puts `name` into its folder, which is made if that is why it failed."""
        for _ in range(_FOLDER_TRIES):
            try:
                return action()
            except FileNotFoundError:
                with contextlib.suppress(OSError):  # somebody else may be making the same folders
                    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        return action()

    def _settle(self, path: str, token: bytes, failure: Exception) -> Outcome:
        """Tell from what is stored how a create ended that did not end well."""
        try:
            stored = self.read(path, 0, len(token))
        except StorageError:
            if isinstance(failure, _NEVER):
                raise self._error(failure, path) from None
            raise OutcomeUnknown(
                f"{self.root}: it is not known whether {path!r} was made ({type(failure).__name__}): "
                "put the same bytes again"
            ) from None
        return Outcome.MINE if stored == token else Outcome.ANOTHERS

    def _run(self, request: Callable[[Any], _Result], path: str) -> _Result:
        try:
            with self._filesystem() as fs:
                return request(fs)
        except StorageError:
            raise
        except Exception as error:
            failure = error
        raise self._error(failure, path)

    @contextlib.contextmanager
    def _filesystem(self) -> Iterator[Any]:
        """A filesystem that nobody else uses meanwhile. It is not used again if the failure says that it is dead."""
        idle = self._idle.setdefault(os.getpid(), deque())
        try:
            fs = idle.pop()
        except IndexError:
            fs = self._new_filesystem()
        try:
            yield fs
        except Exception as error:
            if self._is_transient(error):
                self._close_filesystem(fs)
            else:
                idle.append(fs)
            raise
        idle.append(fs)

    def _new_filesystem(self) -> Any:
        try:
            fs = self._class(**{**self._from_url, **self._options, "skip_instance_cache": True})
        except Exception as error:
            failure = error
        else:
            fs.dircache.use_listings_cache = False  # as an option, not all of them take it
            return fs
        raise self._error(failure, "")

    def _error(self, failure: Exception, path: str) -> StorageError:
        """What a store says of an exception; its text stays here, for it may hold credentials."""
        kind: type[StorageError] = StorageError
        remedy = "the filesystem refused the request: check the root and the storage options"
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
        return isinstance(failure, (ConnectionError, TimeoutError, EOFError))


def _filesystem_class(protocol: str) -> Any:
    try:
        return fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise StorageRefused(f"{protocol}:// is not known to fsspec") from None
    except ImportError as error:
        raise StorageRefused(f"{protocol}:// cannot be used here: {error}") from None


def _facts(fs: Any, name: str) -> tuple[int, float]:
    """Size and time of an object; FileNotFoundError if there is none."""
    fs.invalidate_cache()
    info = fs.info(name)
    if info["type"] != "file":
        raise FileNotFoundError
    return info["size"], _modified(fs, info)


def _modified(fs: Any, info: Mapping[str, Any]) -> float:
    """When a file was changed, in seconds since the epoch."""
    time = next((info[name] for name in _TIMES if info.get(name) is not None), None) or fs.modified(info["name"])
    if isinstance(time, str):
        time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    return float(time)
