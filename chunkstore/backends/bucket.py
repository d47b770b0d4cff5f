"""What all buckets have in common, whatever protocol they speak: keys, failures, and how a create of unknown outcome is
settled.

Libraries repeat requests, and so does this class, so "exists" may be the response about our own object. Whenever the
outcome of a create is unknown, the stored object is read back and decides: first the token that it begins with, and the
rest only if that is the caller's (`Store.holds`).

The filesystem object is made at the first request, and again after a fork. The texts of errors of libraries and servers
are not passed on, and their exceptions are not chained: they may hold credentials.
"""

from __future__ import annotations

import abc
import asyncio
import builtins
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, TypeVar

import fsspec.asyn

from chunkstore import stamps
from chunkstore.errors import (
    ObjectNotFound,
    PutUnknown,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    forget_frames,
)
from chunkstore.port import ObjectInfo, Outcome, Parts, Range, Store, check_path, check_range, same_content

_Result = TypeVar("_Result")

_DATES: ContextVar[list[float] | None] = ContextVar("dates", default=None)
"""The dates of the answers to a request that is under way on an event loop."""

_DELETES = 64  # requests at once
_READS = 128
"""Requests at once: more wait for a connection, and each that waits there has dozens of objects."""


class Failed(Exception):
    """What is known of a request that failed.

    `code` is the server's error code, or the name of the exception here, `status` that of the HTTP response, 0 if there
    was none. `transient`: there was no response, and there may be one next time. `doubtful`: the request may have had
    an effect, or have one yet. `no_bucket`: it is not the object that is absent, but the bucket.
    """

    def __init__(
        self, code: str, status: int = 0, *, transient: bool = False, doubtful: bool = False, no_bucket: bool = False
    ) -> None:
        super().__init__(code)
        self.code = code
        self.status = status
        self.transient = transient or status in (408, 429) or status >= 500
        self.doubtful = doubtful or self.transient
        self.no_bucket = no_bucket

    @property
    def is_absent(self) -> bool:
        return self.status == 404 and not self.no_bucket

    def verdict(self, right: str) -> tuple[type[StorageError], str]:
        """The error to raise, and what to do. right: that the request needs, as the provider calls it."""
        if self.is_absent:
            return ObjectNotFound, "there is no such object"
        if self.no_bucket:
            return StorageRefused, "the bucket does not exist: make it, or correct the root"
        if self.status in (401, 403):
            return StorageRefused, (
                f"no permission: the request needs {right}; check the credentials in the storage options, and what "
                "they allow"
            )
        if self.status in (301, 307, 308):
            return StorageRefused, "the bucket is elsewhere: check endpoint_url and region_name in the storage options"
        if self.transient or self.status == 409:
            return StorageUnavailable, "the storage did not carry out the request: check the endpoint, or try again"
        if self.status == 0:
            return StorageRefused, "the request could not be made: check the storage options"
        return StorageError, "the storage refused the request: look up the code"


def answered(headers: Mapping[str, str]) -> None:
    """A response came, with these headers: its date is noted for the thread that waits for the request."""
    dates, date = _DATES.get(), stamps.date_of(headers)
    if dates is not None and date is not None:
        dates.append(date)


def not_the_bucket(code: str = "NotAListing") -> Failed:
    """An answer that no bucket gives, so that something in between has given it: a proxy, a balancer, a login page."""
    return Failed(code or "NoCode", transient=True)


def nothing_there(failed: Failed) -> bytes | None:
    """What a read has found that failed: no bytes where the object ends before them, None where there is no object.

    Raises what it was given if it is neither.
    """
    forget_frames(failed)
    if failed.status == 416:
        return b""
    if failed.is_absent:
        return None
    raise failed


class Rights(NamedTuple):
    """The rights that requests need, by the names that the provider's policies have for them."""

    read: str
    list: str
    write: str
    delete: str


class BucketStore(Store):
    """Objects below <scheme>://`place`, which is bucket or bucket/folder; `options` are those of the filesystem."""

    remote = True
    can_append = False
    dated = True
    scheme: ClassVar[str]
    package: ClassVar[str]
    """What has to be installed."""

    extra: ClassVar[str]
    """The extra of this project that installs it."""

    rights: ClassVar[Rights]
    """What requests need, as the provider calls it."""

    page: int
    """How many objects one request lists."""
    tries = 5
    """How often a request is sent that fails in a way that may pass."""
    first_pause = 0.2
    """Seconds between the first two; twice as long each time."""

    def __init__(self, place: str, options: Mapping[str, Any]) -> None:
        self._bucket, _, folder = place.rstrip("/").partition("/")
        if not self._bucket or any(mark in self._bucket for mark in "@:?#"):
            raise StorageRefused(
                f"a root of this kind is {self.scheme}://bucket or {self.scheme}://bucket/folder; "
                "keys and endpoints go into the storage options"
            )
        if folder:
            check_path(folder)
        self.root = f"{self.scheme}://{self._bucket}/{folder}".rstrip("/")
        self._base = f"{folder}/" if folder else ""
        self._options = dict(options)
        self._by_process: dict[int, Any] = {}

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        body = self.read_ranges([Range(path, start, end)])[0]
        if body is None:
            raise ObjectNotFound(f"{self.root}: there is no object {path!r}")
        return body

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        keys = [self._key(path) for path, _, _ in ranges]
        for path, start, end in ranges:
            check_range(path, start, end)
        bodies: list[bytes | None] = []
        found = self._read_all(keys, ranges)
        for body in found:
            if isinstance(body, BaseException):
                forget_frames(body)
        for wanted, body in zip(ranges, found, strict=True):
            if isinstance(body, Failed):
                raise self._error(body, wanted.path, self.rights.read)
            if isinstance(body, BaseException):
                raise body
            bodies.append(body)
        return bodies

    def stat(self, path: str) -> ObjectInfo:
        key = self._key(path)
        size, modified = self._run(lambda fs: self._head(fs, key), path, self.rights.read)
        return ObjectInfo(path, size, modified)

    def close(self) -> None:
        fs = self._by_process.pop(os.getpid(), None)
        if fs is not None:
            self._close_filesystem(fs)

    # -- what differs from protocol to protocol

    @abc.abstractmethod
    async def _get(self, fs: Any, key: str, start: int, end: int | None) -> bytes:
        """The bytes of a range that is not empty; an HTTP status 416 says that the object ends before it."""

    @abc.abstractmethod
    async def _head(self, fs: Any, key: str) -> tuple[int, float]:
        """Size and time of an object."""

    @abc.abstractmethod
    def _make_filesystem(self, options: dict[str, Any]) -> Any:
        """A filesystem with these options."""

    @abc.abstractmethod
    def _close_filesystem(self, fs: Any) -> None:
        """Close its connections."""

    @abc.abstractmethod
    def _failure(self, error: Exception) -> Failed:
        """What an exception of the libraries below says."""

    # -- what they share

    def _key(self, path: str) -> str:
        self._check_path(path)
        return self._base + path

    def _read_all(self, keys: Sequence[str], ranges: Sequence[Range]) -> Sequence[bytes | BaseException | None]:
        """For each range its bytes, None if there is no such object, or what went wrong; all at once."""

        async def read_all(fs: Any) -> Sequence[bytes | BaseException | None]:
            slots = asyncio.Semaphore(_READS)
            requests = (
                self._read_one(fs, key, start, end, slots) for key, (_, start, end) in zip(keys, ranges, strict=True)
            )
            return await asyncio.gather(*requests, return_exceptions=True)

        return self._run(read_all, f"{len(ranges)} ranges", self.rights.read)

    async def _read_one(self, fs: Any, key: str, start: int, end: int | None, slots: asyncio.Semaphore) -> bytes | None:
        """The bytes, or None if there is no such object; raises Failed."""
        try:
            async with slots:
                if start == end:  # each server takes an empty range for something else
                    await self._head(fs, key)
                    return b""
                return await self._get(fs, key, start, end)
        except Exception as error:
            failed = self._failed(error)
        return nothing_there(failed)

    def _settle(self, path: str, data: Parts, failed: Failed) -> Outcome:
        """Decide from the stored object whether a create of unknown outcome succeeded."""
        forget_frames(failed)
        try:
            return Outcome.MINE if self.holds(path, data) else Outcome.ANOTHERS
        except StorageError:
            if not failed.doubtful and failed.status not in (409, 412):
                raise self._error(failed, path, self.rights.write) from None
            raise PutUnknown(
                f"{self.root}: it is not known whether {path!r} was made ({failed.code}): put the same bytes again"
            ) from None

    def _overwrite(self, path: str, body: bytes, upload: Callable[[Any], Awaitable[object]]) -> None:
        """Send an upload that replaces what is there; raises StorageError.

        Some providers ask for a further right to replace an object. Then a client without it is refused when it, or
        a layer below it, repeats an upload whose answer was lost: its own object is there. So the object decides.
        """
        try:
            self._send(upload)
            return
        except Failed as error:
            failed = error
        if not (failed.status == 403 and self._has(path, body)):
            raise self._error(failed, path, self.rights.write)

    def _has(self, path: str, body: bytes) -> bool:
        try:
            return same_content(self.read(path), body)
        except StorageError:
            return False

    async def _repeat(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        """Carry out a request, again if the failure may pass; raises Failed, doubtful if any of the attempts was."""
        doubtful = False
        for number in range(self.tries):
            try:
                return await attempt()
            except Exception as error:
                failed = self._failed(error)
            doubtful = failed.doubtful = failed.doubtful or doubtful
            if not failed.transient:
                break
            if number < self.tries - 1:
                await asyncio.sleep(random.uniform(0.5, 1.0) * self.first_pause * 2**number)
        raise failed

    def _run(self, request: Callable[[Any], Awaitable[_Result]], path: str, right: str) -> _Result:
        try:
            return self._send(request)
        except Failed as error:
            failed = error
        raise self._error(failed, path, right)

    def _run_listing(self, request: Callable[[Any], Awaitable[_Result]], prefix: str) -> _Result:
        """Ask for a page of a listing. "Not found" is no answer of a bucket to that (P2)."""
        try:
            return self._send(request)
        except Failed as error:
            failed = not_the_bucket(error.code) if error.is_absent else error
        raise self._error(failed, prefix, self.rights.list)

    def _send(self, request: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Carry out `request` on the filesystem's event loop, and note the dates of the answers; raises Failed."""
        dates: list[float] = []

        async def dated(fs: Any) -> _Result:
            _DATES.set(dates)
            return await request(fs)

        try:
            fs = self._filesystem()
            result: _Result = fsspec.asyn.sync(fs.loop, dated, fs)
            return result
        except StorageError:
            raise
        except Exception as error:
            failed = self._failed(error)
        finally:
            for date in dates:
                stamps.note(date)
        raise failed

    def _filesystem(self) -> Any:
        process = os.getpid()
        # Without a lock, which a fork could leave locked: the worst is a filesystem that is made twice.
        return self._by_process.get(process) or self._by_process.setdefault(process, self._new_filesystem())

    def _new_filesystem(self) -> Any:
        options = {**self._options, "use_listings_cache": False, "skip_instance_cache": True, "asynchronous": False}
        try:
            return self._make_filesystem(options)
        except ImportError:
            raise StorageRefused(
                f"{self.root}: {self.scheme}:// needs the package {self.package}: "
                f"pip install 'pravega-spark[{self.extra}]'"
            ) from None

    def _failed(self, error: Exception) -> Failed:
        """What is known of a failure. It is all that is kept of the exception."""
        forget_frames(error)
        if isinstance(error, Failed):
            return error
        if isinstance(error, TypeError):  # names the unknown option
            return Failed(str(error))
        return self._failure(error)

    def _error(self, failed: Failed, path: str, right: str) -> StorageError:
        forget_frames(failed)
        kind, remedy = failed.verdict(right)
        return kind(f"{self.root}: {path!r}: {remedy} ({failed.code})")


class SingleDeletes(BucketStore):
    """A bucket whose protocol deletes one object a request."""

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]

        async def delete_all(fs: Any) -> builtins.list[Failed | None]:
            slots = asyncio.Semaphore(_DELETES)
            return await asyncio.gather(*(self._delete_one(fs, key, slots) for key in keys))

        if keys:
            outcomes = self._run(delete_all, f"{len(paths)} objects", self.rights.delete)
            for path, failed in zip(paths, outcomes, strict=True):
                if failed is not None:
                    raise self._error(failed, path, self.rights.delete)

    async def _delete_one(self, fs: Any, key: str, slots: asyncio.Semaphore) -> Failed | None:
        try:
            async with slots:
                await self._remove(fs, key)
        except Failed as failed:
            forget_frames(failed)
            return None if failed.is_absent else failed
        return None

    @abc.abstractmethod
    async def _remove(self, fs: Any, key: str) -> None:
        """Delete an object, and repeat what may pass; raises Failed."""
