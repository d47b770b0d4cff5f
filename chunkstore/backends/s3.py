"""Objects in an S3 bucket, or in any store that speaks its protocol, through s3fs.

A create is one PUT with If-None-Match; s3fs and botocore repeat it below us. Each request waits for one answer (P3):
reads carry their range, which saves s3fs's request for the size, and bodies are sent unasked.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import functools
import logging
import random
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from chunkstore.backends.bucket import BucketStore, Failed, Rights, answered, not_the_bucket
from chunkstore.errors import StorageError, StorageRefused, forget_frames
from chunkstore.port import Data, ObjectInfo, Outcome, Parts, check_prefix, joined, length_of, token_of

_BODY_TRIES = 3
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

_UNSIGNED = ("NoCredentialsError", "PartialCredentialsError")
_ELSEWHERE = "AuthorizationHeaderMalformed"  # the region is wrong
_NO_CODE = ("", "404")  # S3 names one in all its answers but those without a body
_HEAD = "HeadObject"


class S3Store(BucketStore):
    """Objects below s3://`place`, which is bucket or bucket/folder; `options` are those of `s3fs.S3FileSystem`."""

    scheme = "s3"
    package = "s3fs"
    extra = "s3"
    rights = Rights(
        read="s3:GetObject, and s3:ListBucket to learn that there is no such object",
        list="s3:ListBucket",
        write="s3:PutObject",
        delete="s3:DeleteObject",
    )
    page = 1000
    """How many objects one request lists or deletes."""
    tries = 6
    """How often a create is sent that another one is in the way of; other requests are repeated below us."""
    largest_create = 90 * 2**20
    """Bytes. Some servers forget the condition when a multipart upload completes, so a create is one request."""

    def put(self, path: str, data: Parts) -> None:
        key = self._key(path)
        body = bytes(joined(data))
        # In parts if it is large, and complete at once then too.
        self._run(lambda fs: fs._pipe_file(f"{self._bucket}/{key}", body), path, self.rights.write)

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        key = self._key(path)
        if length_of(data) > self.largest_create:
            raise StorageRefused(
                f"{self.root}: {path!r} has {length_of(data)} bytes; "
                f"at most {self.largest_create} can be made with one request"
            )
        body = joined(data)
        for attempt in range(self.tries):
            try:
                self._create(key, body)
                return Outcome.MINE
            except Failed as error:
                failed = error
            if failed.status != 409:  # another create of this object is going on, and may yet fail
                break
            time.sleep(random.uniform(0.5, 1.0) * 0.05 * 2**attempt)
        return self._settle(path, data, failed)

    def _create(self, key: str, body: Data) -> None:
        """Make an object on the condition that there is none; raises Failed."""
        content = bytes(body)
        self._send(lambda fs: self.request(fs, "put_object", Key=key, Body=content, IfNoneMatch="*"))

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        infos: list[ObjectInfo] = []
        place = {"StartAfter": self._base + after} if after else {}
        while limit is None or len(infos) < limit:
            wanted = self.page if limit is None else min(self.page, limit - len(infos))
            page = self._list_page(prefix, MaxKeys=wanted, **place)
            for entry in page.get("Contents", ()):
                path = entry["Key"].removeprefix(self._base)
                if path > after and self._can_name(path):  # some servers ignore StartAfter
                    infos.append(ObjectInfo(path, entry["Size"], seconds(entry["LastModified"])))
            if not page.get("IsTruncated"):
                break
            place = {"ContinuationToken": page["NextContinuationToken"]}
        return infos

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        for first in range(0, len(keys), self.page):
            names = [{"Key": key} for key in keys[first : first + self.page]]
            self._delete_page(names, paths[first])

    def _error(self, failed: Failed, path: str, right: str) -> StorageError:
        if failed.code in _UNSIGNED:
            return StorageRefused(
                f"{self.root}: no credentials found: give the storage options key and secret (storage.key and "
                "storage.secret in Spark, --storage key=… on the command line), the variables AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, a profile, or a role of this machine"
            )
        return super()._error(failed, path, right)

    def _check_path(self, path: str) -> None:
        super()._check_path(path)
        if "?versionId=" in path:
            raise ValueError(f"storage path {path!r} contains '?versionId=', which s3fs takes for a version")

    async def _head(self, fs: Any, key: str) -> tuple[int, float]:
        found = await self.request(fs, "head_object", Key=key)
        return found["ContentLength"], seconds(found["LastModified"])

    async def _get(self, fs: Any, key: str, start: int, end: int | None) -> bytes:
        limits = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end else {}
        return await self._read_body(fs, Key=key, **limits)

    async def _read_body(self, fs: Any, **arguments: Any) -> bytes:
        for tries_left in reversed(range(_BODY_TRIES)):
            response = await self.request(fs, "get_object", **arguments)
            try:
                async with response["Body"] as body:
                    content: bytes = await body.read()
                return content
            except Exception:  # what repeats requests below us does so only until the body begins
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _list_page(self, prefix: str, **arguments: Any) -> Any:
        async def request(fs: Any) -> Any:
            page = await self.request(fs, "list_objects_v2", Prefix=self._base + prefix, **arguments)
            if "IsTruncated" not in page or ("NextContinuationToken" not in page and page["IsTruncated"]):
                raise not_the_bucket()
            return page

        return self._run_listing(request, prefix)

    def _delete_page(self, names: builtins.list[dict[str, str]], path: str) -> None:
        request = {"Objects": names, "Quiet": True}
        answer = self._run(lambda fs: self.request(fs, "delete_objects", Delete=request), path, self.rights.delete)
        for error in answer.get("Errors", ()):
            if error["Code"] != "NoSuchKey":
                status = 403 if error["Code"] == "AccessDenied" else 500
                refused = Failed(error["Code"], status)
                raise self._error(refused, error["Key"].removeprefix(self._base), self.rights.delete)

    async def request(self, fs: Any, method: str, **arguments: Any) -> Any:
        """Send a request of the protocol, by the name that the client has for it."""
        try:
            response = await fs._call_s3(method, Bucket=self._bucket, **arguments)
        except Exception as error:
            answered(_headers(getattr(error.__cause__ or error, "response", None)))
            raise
        answered(_headers(response))
        return response

    def _make_filesystem(self, options: dict[str, Any]) -> Any:
        _keep_signed_headers_out_of_logs()
        given = copy.deepcopy(options.get("config_kwargs") or {})  # botocore writes to what is in it
        options["config_kwargs"] = {"max_pool_connections": _CONNECTIONS, **given}
        fs = _filesystem_type()(**options)
        fs.retries = 1  # botocore repeats already; both together keep a caller waiting for minutes
        return fs

    def _close_filesystem(self, fs: Any) -> None:
        if fs._s3 is not None:
            fs.close_session(fs.loop, fs._s3)

    def _failure(self, error: Exception) -> Failed:
        response = getattr(error.__cause__ or error, "response", None)
        if isinstance(response, dict) and "ResponseMetadata" in response:
            code = str(response.get("Error", {}).get("Code", type(error).__name__))
            status = int(response["ResponseMetadata"].get("HTTPStatusCode", 0))
            return refusal(code, status, bodiless=getattr(error.__cause__ or error, "operation_name", "") == _HEAD)
        code = type(error).__name__
        return Failed(code, 401 if code in _UNSIGNED else 0, transient=_is_transient(error))


def _headers(response: Any) -> Mapping[str, str]:
    """Those of an answer as botocore returns it; none of anything else."""
    facts = response.get("ResponseMetadata") if isinstance(response, dict) else None
    headers = facts.get("HTTPHeaders") if isinstance(facts, dict) else None
    return headers if isinstance(headers, dict) else {}


def refusal(code: str, status: int, *, bodiless: bool) -> Failed:
    """What an answer of a server says. bodiless: it is one that has no body, and so no code either."""
    status = {_ELSEWHERE: 301, "RequestTimeout": 408}.get(code, status)
    if status == 404 and code in _NO_CODE and not bodiless:
        return not_the_bucket(code)
    return Failed(code, status, doubtful=code not in _REFUSALS, no_bucket=code == "NoSuchBucket")


@functools.cache
def _filesystem_type() -> Any:
    """The type of s3fs, whose clients send bodies without asking the server first (`Expect: 100-continue`)."""
    import s3fs

    class FileSystem(s3fs.S3FileSystem):  # type: ignore[misc]
        _known: Any = None

        async def set_session(self, *arguments: Any, **named: Any) -> Any:
            client = await super().set_session(*arguments, **named)
            if client is not self._known:
                client.meta.events.register_last("before-call.s3", _send_unasked)
                client.meta.events.register_last("needs-retry.s3", _forget_attempt)
                self._known = client
            return client

    return FileSystem


def _send_unasked(params: dict[str, Any], **_: object) -> None:
    """Without this, botocore waits for the server before each body, however small: a commit takes twice as long."""
    params["headers"].pop("Expect", None)


def _forget_attempt(caught_exception: BaseException | None = None, **_: object) -> None:
    """Keep nothing of an attempt after which botocore tries again (see `forget_frames`)."""
    if caught_exception is not None:
        forget_frames(caught_exception)


def _keep_signed_headers_out_of_logs() -> None:
    """At DEBUG botocore shows what it signs, a session token too: only if its own level says so, not the root's."""
    for name in ("botocore", "aiobotocore"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def seconds(time: datetime) -> float:
    """Whole seconds: that is all that the headers of a response hold, and some servers list them with more."""
    return time.replace(microsecond=0).timestamp()


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
