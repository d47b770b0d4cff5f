"""Objects in S3 through obstore, which is object_store in Rust: bodies are its affair, all else stays with s3fs.

object_store takes any response of status 200 for a listing, a proxy's login page for an empty one, and markers of
folders for objects; so it is not used for listings (P2), nor for deletes. Both clients go to the same place as the same
user: endpoint, region, credentials and timeouts are those of s3fs's client, and what has no counterpart is refused by
name.

A create is one PUT with If-None-Match, which object_store repeats below us. obstore's threads do not survive a fork: a
request in a child would wait for ever, and is refused instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import fsspec.asyn

from chunkstore.backends.bucket import Failed, nothing_there
from chunkstore.backends.s3 import S3Store, refusal, seconds
from chunkstore.errors import StorageRefused
from chunkstore.port import Data, ObjectInfo, Parts, Range, check_range, joined

_Result = TypeVar("_Result")

_AT_ONCE = 64
"""Ranges that are read at the same time."""
_PART, _PARTS = 8 << 20, 8
"""Bytes of one part of a large upload, and how many parts are on their way at once."""
_PIECE = 1 << 20
"""Bytes that are read before they are moved to where they belong."""
_LONGEST = timedelta(minutes=15)
_TRUST = timedelta(minutes=5)
"""How long credentials that may change are used before they are fetched again; botocore renews them 10 before."""

_ANY: Mapping[str, Any] = MappingProxyType({})
_TAKEN: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("anon", "endpoint_url", "key", "profile", "secret", "token", "use_ssl"), _ANY),
        "client_kwargs": dict.fromkeys(("endpoint_url", "region_name", "use_ssl", "verify"), _ANY),
        "config_kwargs": {
            **dict.fromkeys(("connect_timeout", "max_pool_connections", "read_timeout"), _ANY),
            "retries": dict.fromkeys(("max_attempts", "total_max_attempts"), _ANY),
            "s3": {"addressing_style": _ANY},
        },
    }
)
"""The options that mean the same to both clients, and what may be in them."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.]{1,64})</Code>")
_KIND = re.compile(r"\bkind: (Connect|Request|Timeout|Interrupted|Decode)\b")
_REDIRECT = "redirect without LOCATION"
_HEAD = "Error performing HEAD "


class _Runtime:
    """Whether the threads that obstore has in each process are there: they start with its first client."""

    started = lost = False


def _after_fork() -> None:
    _Runtime.lost = _Runtime.started


os.register_at_fork(after_in_child=_after_fork)


class ObstoreStore(S3Store):
    """Objects below s3://`place`, which is bucket or bucket/folder; `options` are some of `s3fs.S3FileSystem`."""

    def __init__(self, place: str, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        unknown = list(_not_taken(options, _TAKEN))
        if unknown:
            raise StorageRefused(
                f'{self.root}: with the storage option client = "obstore" there is no {", ".join(map(repr, unknown))}: '
                f"remove it, or the option client. Known are {', '.join(sorted(_TAKEN))}"
            )
        self._made: Any = None
        self._threads: ThreadPoolExecutor | None = None

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        key = self._key(path)
        check_range(path, start, start + room.nbytes)
        try:
            return self._request(lambda client: _fill(client, key, start, room.cast("B")))
        except Failed as error:
            failed = error
        if failed.status == 416:
            return 0
        raise self._error(failed, path, self.rights.read)

    def put(self, path: str, data: Parts) -> None:
        key = self._key(path)
        body = memoryview(joined(data)).cast("B")
        self._ask(
            lambda client: _put(client, key, body, chunk_size=_PART, max_concurrency=_PARTS), path, self.rights.write
        )

    def stat(self, path: str) -> ObjectInfo:
        key = self._key(path)
        found = self._ask(lambda client: client.head(key), path, self.rights.read)
        return ObjectInfo(path, found["size"], seconds(found["last_modified"]))

    def close(self) -> None:
        super().close()
        threads, self._threads, self._made = self._threads, None, None
        if threads is not None and not _Runtime.lost:
            threads.shutdown()

    def _check_path(self, path: str) -> None:
        super()._check_path(path)
        if _CONTROL.search(path):
            raise ValueError(f"storage path {path!r} contains a control character, which obstore does not take")

    def _create(self, key: str, body: Data) -> None:
        self._request(lambda client: _put(client, key, memoryview(body).cast("B"), mode="create"))

    def _read_all(self, keys: Sequence[str], ranges: Sequence[Range]) -> Sequence[bytes | BaseException | None]:
        if len(keys) < 2:
            return [self._outcome(*each) for each in zip(keys, ranges, strict=True)]
        self._ask(lambda client: None, ranges[0].path, self.rights.read)  # one client for all
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="obstore")
        return list(self._threads.map(self._outcome, keys, ranges))

    def _outcome(self, key: str, wanted: Range) -> bytes | BaseException | None:
        """The bytes of a range, None if there is no such object, or what went wrong."""
        try:
            return self._found(key, wanted.start, wanted.end)
        except Exception as error:
            return error

    def _found(self, key: str, start: int, end: int | None) -> bytes | None:
        try:
            return self._request(lambda client: _get(client, key, start, end))
        except Failed as error:
            failed = error
        return nothing_there(failed)

    def _ask(self, request: Callable[[Any], _Result], path: str, right: str) -> _Result:
        try:
            return self._request(request)
        except Failed as error:
            failed = error
        raise self._error(failed, path, right)

    def _request(self, request: Callable[[Any], _Result]) -> _Result:
        """Carry out `request` with obstore's client; raises Failed."""
        client = self._client()
        try:
            return request(client)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            failed = _told(error)
        raise failed

    def _filesystem(self) -> Any:
        self._check_process()
        return super()._filesystem()

    def _client(self) -> Any:
        self._check_process()
        made = self._made
        if made is None:
            made = self._made = self._send(self._make_client)
        return made

    def _check_process(self) -> None:
        if _Runtime.lost:
            raise StorageRefused(
                f"{self.root}: this process was forked from one that had used obstore, which no fork survives: start "
                'processes by "spawn", or remove the storage option client, for s3fs can be used on both sides'
            )

    async def _make_client(self, fs: Any) -> Any:
        """A client that does what the one of `fs` would do."""
        try:
            import obstore.store
        except ImportError:
            raise StorageRefused(
                f'{self.root}: the storage option client = "obstore" needs the package obstore: '
                "pip install 'pravega-spark[obstore]'"
            ) from None
        make: Any = obstore.store.S3Store
        other = (await fs.set_session()).meta
        style = (other.config.s3 or {}).get("addressing_style")
        signed = {"skip_signature": True} if fs.anon else {"credential_provider": await self._credentials(fs)}
        _Runtime.started = True
        return make(
            self._bucket,
            # All that object_store would also take from variables of the environment, for which s3fs does not look.
            **_place(other.endpoint_url, self._bucket, virtual=style == "virtual"),
            region=_region(other.region_name),
            conditional_put="etag",
            s3_express=False,
            client_options=await self._client_options(fs, other.config),
            retry_config=_retries((other.config.retries or {}).get("total_max_attempts", 5) - 1),
            **{"skip_signature": False, **signed},
        )

    async def _credentials(self, fs: Any) -> Callable[[], dict[str, Any]]:
        """What gives obstore the credentials of `fs`; raises Failed if there are none."""
        key, secret = self._options.get("key"), self._options.get("secret")
        if key and secret:
            return lambda: _credential(key, secret, self._options.get("token"), None)
        found = await fs.session.get_credentials()
        if found is None:
            raise Failed("NoCredentialsError", 401)

        def renewed() -> dict[str, Any]:
            now = fsspec.asyn.sync(fs.loop, found.get_frozen_credentials)
            return _credential(now.access_key, now.secret_key, now.token, datetime.now(timezone.utc) + _TRUST)

        return renewed

    async def _client_options(self, fs: Any, config: Any) -> dict[str, Any]:
        verify = (self._options.get("client_kwargs") or {}).get("verify")
        authorities = fs.session.get_config_variable("ca_bundle") if verify is None else verify
        return {
            "allow_http": True,  # if the endpoint says so
            "allow_invalid_certificates": verify is False,
            "connect_timeout": timedelta(seconds=config.connect_timeout),
            "read_timeout": timedelta(seconds=config.read_timeout),
            "timeout": _LONGEST,
            **({"root_certificate": Path(authorities).read_bytes()} if isinstance(authorities, str) else {}),
        }


def _not_taken(given: Mapping[str, Any], known: Mapping[str, Any], place: str = "") -> Iterable[str]:
    """The names of options that have no counterpart; of those in an option with its name before them."""
    for name, value in given.items():
        if name not in known:
            yield place + name
        elif known[name] and isinstance(value, Mapping):
            yield from _not_taken(value, known[name], f"{place}{name}.")


def _place(endpoint: str, bucket: str, *, virtual: bool) -> dict[str, Any]:
    """Where the bucket is. virtual: its name is part of the host's."""
    scheme, _, host = endpoint.rstrip("/").partition("://")
    endpoint = f"{scheme}://{bucket}.{host}" if virtual else f"{scheme}://{host}"
    return {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint, "virtual_hosted_style_request": virtual}


def _region(name: str | None) -> str:
    """The region that requests are signed for; what botocore calls the global one is this."""
    return "us-east-1" if name in (None, "aws-global") else str(name)


def _retries(number: int) -> dict[str, Any]:
    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}
    return {"max_retries": number, "backoff": backoff, "retry_timeout": timedelta(minutes=4)}


def _credential(key: str, secret: str, token: str | None, expires: datetime | None) -> dict[str, Any]:
    return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": expires}


def _get(client: Any, key: str, start: int, end: int | None) -> bytes:
    if start == end:
        client.head(key)
        return b""
    if end is not None:
        return bytes(client.get_range(key, start=start, end=end))
    options = {"range": {"offset": start}} if start else None
    return bytes(client.get(key, options=options).bytes())


def _fill(client: Any, key: str, start: int, room: memoryview) -> int:
    """Move what a range holds to `room`, piece by piece."""
    if not room:
        client.head(key)
        return 0
    at = 0
    for piece in client.get(key, options={"range": (start, start + len(room))}).stream(_PIECE):
        room[at : at + len(piece)] = piece
        at += len(piece)
    return at


def _put(client: Any, key: str, body: memoryview, **how: Any) -> None:
    client.put(key, body, **how)


def _told(error: BaseException) -> Failed:
    """What an error of obstore says. Its text is read, and not kept: URLs and answers are in it."""
    text = str(error)
    answered = _STATUS.search(text)
    if answered is not None:
        code = _CODE.search(text, answered.end())
        return refusal(code[1] if code else answered[1], int(answered[1]), bodiless=_HEAD in text)
    if _REDIRECT in text:
        return Failed("PermanentRedirect", 301)
    kind = _KIND.search(text)
    if kind is not None:
        return Failed(kind[1], transient=True)
    return Failed(type(error).__name__, doubtful=True)
