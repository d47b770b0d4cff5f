"""Objects in an S3 bucket, or in any store that speaks its protocol, through s3fs.

A create is one PUT with If-None-Match. s3fs and botocore repeat requests below us, so "exists" may be said of our own
object: in every doubt the token that the stored object begins with is read back and decides. Reads carry their range,
which saves s3fs's request for the size; empty ranges never get to a server, as each takes them for something else.

The filesystem object is made at the first request, and again after a fork. The texts of errors of libraries and servers
are not passed on, and their exceptions are not chained: they may hold credentials.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import fsspec.asyn

from chunkstore.errors import (
    ObjectNotFound,
    OutcomeUnknown,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    Unsupported,
)
from chunkstore.port import (
    Data,
    ObjectInfo,
    Outcome,
    Range,
    Store,
    check_path,
    check_prefix,
    check_range,
    token_of,
)

_LARGEST_CREATE = 90 * 2**20  # some servers forget the condition when a multipart upload completes: one request
_SMALLEST_PART = 5 * 2**20  # of a multipart upload, but for its last
_LARGEST_PART = 5 * 2**30
_MOST_PARTS = 10_000
_PAGE = 1000  # objects that one request lists or deletes
_BODY_TRIES = 3
_CONFLICT_TRIES = 6
_CONNECTIONS = 64

# What is refused for one of these reasons is so every time it is sent: an earlier sending, of which only a layer below
# us knows, has not taken effect either.
_REFUSALS = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "EntityTooLarge",
        "InvalidAccessKeyId",
        "InvalidBucketName",
        "KeyTooLongError",
        "MethodNotAllowed",
        "NoSuchBucket",
        "NotImplemented",
        "PermanentRedirect",
        "SignatureDoesNotMatch",
    }
)

_Result = TypeVar("_Result")


class S3Store(Store):
    """Objects below s3://`place`, which is bucket or bucket/folder; `options` are those of `s3fs.S3FileSystem`."""

    remote = True
    can_append = False
    can_concat = True

    def __init__(self, place: str, options: Mapping[str, Any]) -> None:
        self._bucket, _, folder = place.rstrip("/").partition("/")
        if not self._bucket or any(mark in self._bucket for mark in "@:?#"):
            raise StorageRefused(
                "an s3:// root is s3://bucket or s3://bucket/folder; keys and endpoints go into the storage options"
            )
        if folder:
            check_path(folder)
        self.root = f"s3://{self._bucket}/{folder}".rstrip("/")
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

        async def read_all(fs: Any) -> list[bytes | BaseException | None]:
            requests = (self._get(fs, key, start, end) for key, (_, start, end) in zip(keys, ranges, strict=True))
            return await asyncio.gather(*requests, return_exceptions=True)

        bodies: list[bytes | None] = []
        for wanted, body in zip(ranges, self._run(read_all, f"{len(ranges)} ranges"), strict=True):
            if isinstance(body, _Failed):
                raise self._error(body, wanted.path)
            if isinstance(body, BaseException):
                raise body
            bodies.append(body)
        return bodies

    def put(self, path: str, data: Data) -> None:
        key = self._key(path)
        body = bytes(data)
        # In parts if it is large, and complete at once then too.
        self._run(lambda fs: fs._pipe_file(f"{self._bucket}/{key}", body), path)

    def put_if_absent(self, path: str, data: Data) -> Outcome:
        token = token_of(data)
        key = self._key(path)
        body = bytes(data)
        if len(body) > _LARGEST_CREATE:
            raise StorageRefused(
                f"{self.root}: {path!r} has {len(body)} bytes; at most {_LARGEST_CREATE} can be made with one request"
            )
        for attempt in range(_CONFLICT_TRIES):
            try:
                self._send(lambda fs: self._call(fs, "put_object", Key=key, Body=body, IfNoneMatch="*"))
                return Outcome.MINE
            except _Failed as error:
                failed = error
            if failed.status != 409:  # another create of this object is going on, and may yet fail
                break
            time.sleep(random.uniform(0.5, 1.0) * 0.05 * 2**attempt)
        return self._settle(path, token, failed)

    def concat(self, path: str, sources: Sequence[str]) -> None:
        key = self._key(path)
        sizes = [self.stat(source).size for source in sources]
        parts = [self._key(source) for source, size in zip(sources, sizes, strict=True) if size]
        filled = [size for size in sizes if size]
        if not parts:
            return self.put(path, b"")
        if min(filled[:-1], default=_SMALLEST_PART) < _SMALLEST_PART or max(filled) > _LARGEST_PART:
            raise Unsupported(
                f"{self.root}: cannot join into {path!r}: all objects but the last must have {_SMALLEST_PART} bytes or "
                f"more, and none more than {_LARGEST_PART}: read them and put them as one"
            )
        if len(parts) > _MOST_PARTS:
            raise Unsupported(f"{self.root}: cannot join more than {_MOST_PARTS} objects at once into {path!r}")
        self._run(lambda fs: self._copy_parts(fs, key, parts), path)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        infos: list[ObjectInfo] = []
        place = {"StartAfter": self._base + after} if after else {}
        while limit is None or len(infos) < limit:
            wanted = _PAGE if limit is None else min(_PAGE, limit - len(infos))
            page = self._list_page(prefix, MaxKeys=wanted, **place)
            for entry in page.get("Contents", ()):
                path = entry["Key"].removeprefix(self._base)
                # Some servers ignore StartAfter; consoles make objects that stand for folders.
                if path > after and not path.endswith("/"):
                    infos.append(ObjectInfo(path, entry["Size"], entry["LastModified"].timestamp()))
            if not page.get("IsTruncated"):
                break
            place = {"ContinuationToken": page["NextContinuationToken"]}
        return infos

    def stat(self, path: str) -> ObjectInfo:
        key = self._key(path)
        found = self._run(lambda fs: self._call(fs, "head_object", Key=key), path)
        return ObjectInfo(path, found["ContentLength"], found["LastModified"].timestamp())

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        for first in range(0, len(keys), _PAGE):
            names = [{"Key": key} for key in keys[first : first + _PAGE]]
            self._delete_page(names, paths[first])

    def close(self) -> None:
        fs = self._by_process.pop(os.getpid(), None)
        if fs is not None and fs._s3 is not None:
            fs.close_session(fs.loop, fs._s3)

    def _key(self, path: str) -> str:
        check_path(path)
        if "?versionId=" in path:
            raise ValueError(f"storage path {path!r} contains '?versionId=', which s3fs takes for a version")
        return self._base + path

    async def _get(self, fs: Any, key: str, start: int, end: int | None) -> bytes | None:
        """The bytes, or None if there is no such object; raises _Failed."""
        try:
            if start == end:
                await self._call(fs, "head_object", Key=key)
                return b""
            limits = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end else {}
            return await self._read_body(fs, Key=key, **limits)
        except Exception as error:
            failed = _Failed.of(error)
        if failed.status == 416:  # the object ends at or before the start
            return b""
        if failed.is_absent:
            return None
        raise failed

    async def _read_body(self, fs: Any, **arguments: Any) -> bytes:
        for tries_left in reversed(range(_BODY_TRIES)):
            response = await self._call(fs, "get_object", **arguments)
            try:
                async with response["Body"] as body:
                    content: bytes = await body.read()
                return content
            except Exception:  # what repeats requests below us does so only until the body begins
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _settle(self, path: str, token: bytes, failed: _Failed) -> Outcome:
        """Tell from what is stored how a create ended that did not end well."""
        try:
            stored = self.read(path, 0, len(token))
        except StorageError:
            if failed.is_refusal:
                raise self._error(failed, path) from None
            raise OutcomeUnknown(
                f"{self.root}: it is not known whether {path!r} was made ({failed.code}): put the same bytes again"
            ) from None
        return Outcome.MINE if stored == token else Outcome.ANOTHERS

    async def _copy_parts(self, fs: Any, key: str, sources: Sequence[str]) -> None:
        upload = await self._call(fs, "create_multipart_upload", Key=key)
        place = {"Key": key, "UploadId": upload["UploadId"]}
        try:
            copies = await asyncio.gather(
                *(
                    self._call(
                        fs,
                        "upload_part_copy",
                        PartNumber=number,
                        CopySource={"Bucket": self._bucket, "Key": source},
                        **place,
                    )
                    for number, source in enumerate(sources, 1)
                )
            )
            parts = [
                {"PartNumber": number, "ETag": copy["CopyPartResult"]["ETag"]} for number, copy in enumerate(copies, 1)
            ]
            await self._call(fs, "complete_multipart_upload", MultipartUpload={"Parts": parts}, **place)
        except BaseException:
            await self._call(fs, "abort_multipart_upload", **place)
            raise

    def _list_page(self, prefix: str, **arguments: Any) -> Any:
        return self._run(lambda fs: self._call(fs, "list_objects_v2", Prefix=self._base + prefix, **arguments), prefix)

    def _delete_page(self, names: builtins.list[dict[str, str]], path: str) -> None:
        request = {"Objects": names, "Quiet": True}
        answer = self._run(lambda fs: self._call(fs, "delete_objects", Delete=request), path)
        for error in answer.get("Errors", ()):
            if error["Code"] != "NoSuchKey":
                status = 403 if error["Code"] == "AccessDenied" else 500
                raise self._error(_Failed(error["Code"], status), error["Key"].removeprefix(self._base))

    async def _call(self, fs: Any, method: str, **arguments: Any) -> Any:
        return await fs._call_s3(method, Bucket=self._bucket, **arguments)

    def _run(self, request: Callable[[Any], Awaitable[_Result]], path: str) -> _Result:
        try:
            return self._send(request)
        except _Failed as error:
            failed = error
        raise self._error(failed, path)

    def _send(self, request: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Carry out `request` on the filesystem's event loop; raises _Failed."""
        try:
            fs = self._filesystem()
            result: _Result = fsspec.asyn.sync(fs.loop, request, fs)
            return result
        except StorageError:
            raise
        except Exception as error:
            failed = _Failed.of(error)
        raise failed

    def _filesystem(self) -> Any:
        process = os.getpid()
        # Without a lock, which a fork could leave locked: the worst is a filesystem that is made twice.
        return self._by_process.get(process) or self._by_process.setdefault(process, self._new_filesystem())

    def _new_filesystem(self) -> Any:
        try:
            import s3fs
        except ImportError:
            raise StorageRefused(f"{self.root}: s3:// needs the package s3fs: pip install s3fs") from None
        options = dict(self._options)
        options["config_kwargs"] = {"max_pool_connections": _CONNECTIONS, **(options.get("config_kwargs") or {})}
        options.update(use_listings_cache=False, skip_instance_cache=True, asynchronous=False)
        fs = s3fs.S3FileSystem(**options)
        fs.retries = 1  # botocore repeats already; both together keep a caller waiting for minutes
        return fs

    def _error(self, failed: _Failed, path: str) -> StorageError:
        kind, remedy = failed.verdict()
        return kind(f"{self.root}: {path!r}: {remedy} ({failed.code})")


class _Failed(Exception):
    """What is known of a request that failed.

    `code` is the server's error code, or the name of the exception here, `status` that of the HTTP response, 0 if there
    was none. `transient`: there was no response, and there may be one next time.
    """

    def __init__(self, code: str, status: int = 0, *, transient: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.status = status
        self.transient = transient

    @classmethod
    def of(cls, error: Exception) -> _Failed:
        if isinstance(error, cls):
            return error
        response = getattr(error.__cause__ or error, "response", None)
        if isinstance(response, dict) and "ResponseMetadata" in response:
            code = str(response.get("Error", {}).get("Code", type(error).__name__))
            return cls(code, int(response["ResponseMetadata"].get("HTTPStatusCode", 0)))
        if isinstance(error, TypeError):  # names the option that nobody knows
            return cls(str(error))
        return cls(type(error).__name__, transient=_is_transient(error))

    @property
    def is_absent(self) -> bool:
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def is_refusal(self) -> bool:
        """Whether the request certainly had no effect, and never will have."""
        return self.code in _REFUSALS or (self.status == 0 and not self.transient)

    def verdict(self) -> tuple[type[StorageError], str]:
        if self.is_absent:
            return ObjectNotFound, "there is no such object"
        if self.code == "NoSuchBucket":
            return StorageRefused, "the bucket does not exist: make it, or correct the root"
        if self.status in (401, 403) or self.code in ("NoCredentialsError", "PartialCredentialsError"):
            return StorageRefused, "no permission: check the credentials in the storage options, and what they allow"
        if self.status in (301, 307, 308) or self.code == "AuthorizationHeaderMalformed":
            return StorageRefused, "the bucket is elsewhere: check endpoint_url and region_name in the storage options"
        if self.transient or self.status in (408, 409, 429) or self.status >= 500 or self.code == "RequestTimeout":
            return StorageUnavailable, "the storage did not carry out the request: check the endpoint, or try again"
        if self.status == 0:
            return StorageRefused, "the request could not be made: check the storage options"
        return StorageError, "the storage refused the request: look up the code"


def _is_transient(error: Exception) -> bool:
    import aiohttp
    from botocore import exceptions, parsers

    return isinstance(
        error,
        (
            OSError,
            asyncio.TimeoutError,
            aiohttp.ClientError,
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            exceptions.ResponseStreamingError,
            parsers.ResponseParserError,
        ),
    )
