"""Objects in a Google Cloud Storage bucket, through the connections and credentials of gcsfs.

A create is one upload on the condition that the object has no generation. gcsfs's own verbs are not used: they repeat
requests silently, and turn responses into errors that do not show what was refused.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import io
import json
import os
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from chunkstore.backends.bucket import Failed, Rights, SingleDeletes, answered, not_the_bucket
from chunkstore.port import ObjectInfo, Outcome, Parts, Store, check_prefix, joined, token_of

_CONNECT_TIMEOUT = 10.0
_FACTS = MappingProxyType({"fields": "size,timeCreated"})
_FIELDS = "kind,nextPageToken,items(name,size,timeCreated)"


class GcsStore(SingleDeletes):
    """Objects below gs://`place`, which is bucket or bucket/folder; `options` are those of `gcsfs.GCSFileSystem`."""

    scheme = "gs"
    package = "gcsfs"
    extra = "gcs"
    rights = Rights(
        read="storage.objects.get, and storage.objects.list to learn that there is no such object",
        list="storage.objects.list",
        write="storage.objects.create for a new object, and storage.objects.delete to overwrite one",
        delete="storage.objects.delete",
    )
    page = 1000

    def put(self, path: str, data: Parts) -> None:
        key = self._key(path)
        body = bytes(joined(data))
        self._overwrite(path, body, lambda fs: self._upload(fs, key, body))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        key = self._key(path)
        body = bytes(joined(data))
        try:
            self._send(lambda fs: self._upload(fs, key, body, ifGenerationMatch="0"))
            return Outcome.MINE
        except Failed as error:
            failed = error
        return self._settle(path, data, failed)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        infos: list[ObjectInfo] = []
        place = {"startOffset": self._base + after} if after else {}
        token: dict[str, str] = {}
        while limit is None or len(infos) < limit:
            # The offset is listed itself, and does not count.
            wanted = self.page if limit is None else min(self.page, limit - len(infos) + bool(after))
            page = self._list_page(prefix, maxResults=str(wanted), **place, **token)
            for entry in page.get("items", ()):
                path = entry["name"].removeprefix(self._base)
                if path > after and self._can_name(path):
                    infos.append(ObjectInfo(path, int(entry["size"]), _seconds(entry["timeCreated"])))
            if "nextPageToken" not in page:
                break
            token = {"pageToken": page["nextPageToken"]}
        return infos[:limit]

    async def _remove(self, fs: Any, key: str) -> None:
        await self._request(fs, "DELETE", self._place(key))

    def _list_page(self, prefix: str, **query: str) -> Any:
        place = f"/storage/v1/b/{quote(self._bucket, safe='')}/o"
        wanted = {"prefix": self._base + prefix, "fields": _FIELDS, **query}

        async def request(fs: Any) -> Any:
            answer = await self._request(fs, "GET", place, query=wanted)
            with contextlib.suppress(ValueError):
                page = json.loads(answer)
                if isinstance(page, dict) and page.get("kind") == "storage#objects":
                    return page
            raise not_the_bucket()

        return self._run_listing(request, prefix)

    async def _upload(self, fs: Any, key: str, body: bytes, **conditions: str) -> bytes:
        place = f"/upload/storage/v1/b/{quote(self._bucket, safe='')}/o"
        query = {"uploadType": "media", "name": key, **conditions}
        return await self._request(fs, "POST", place, body=body, query=query)

    async def _get(self, fs: Any, key: str, start: int, end: int | None) -> bytes:
        limits = f"bytes={start}-{'' if end is None else end - 1}" if start or end is not None else ""
        return await self._request(fs, "GET", self._place(key), limits=limits, query={"alt": "media"})

    async def _head(self, fs: Any, key: str) -> tuple[int, float]:
        found = json.loads(await self._request(fs, "GET", self._place(key), query=_FACTS))
        return int(found["size"]), _seconds(found["timeCreated"])

    def _place(self, key: str) -> str:
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o/{quote(key, safe='')}"

    async def _request(
        self,
        fs: Any,
        method: str,
        place: str,
        *,
        limits: str = "",
        body: bytes | None = None,
        kind: str = "application/octet-stream",
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """The body of the answer; raises Failed. `limits` is the range, `kind` the type of `body`."""
        import aiohttp
        from yarl import URL

        headers = {**({"Range": limits} if limits else {}), **({"Content-Type": kind} if body is not None else {})}
        timeout = fs.requests_timeout or aiohttp.ClientTimeout(total=300, sock_connect=_CONNECT_TIMEOUT)

        async def attempt() -> bytes:
            await fs._set_session()
            async with fs.session.request(
                method,
                URL(fs._location + place, encoded=True),
                params=fs._get_params(dict(query)),
                headers=fs._get_headers(headers),
                data=None if body is None else io.BytesIO(body),
                timeout=timeout,
            ) as response:
                content: bytes = await response.read()
                answered(response.headers)
                if response.status >= 300:
                    raise _refused(response.status, content)
                return content

        return await self._repeat(attempt)

    def _make_filesystem(self, options: dict[str, Any]) -> Any:
        # Read when gcsfs is imported: support for buckets of a kind that has other rules, over another protocol.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(**options)

    def _close_filesystem(self, fs: Any) -> None:
        if fs._session is not None:
            fs.close_session(fs.loop, fs._session)

    def _failure(self, error: Exception) -> Failed:
        import aiohttp
        from google.auth import exceptions

        code = type(error).__name__
        if isinstance(error, exceptions.TransportError):
            return Failed(code, transient=True)
        if isinstance(error, exceptions.GoogleAuthError) or getattr(error, "code", None) == 401:
            return Failed(code, 401)
        unsent = isinstance(error, aiohttp.InvalidURL)
        lost = isinstance(error, (OSError, asyncio.TimeoutError, aiohttp.ClientError)) and not unsent
        return Failed(code, transient=lost)


def _refused(status: int, content: bytes) -> Failed:
    """What a response says; its text is read, and not kept."""
    no_bucket = status == 404 and b"bucket does not exist" in content
    return Failed("NoSuchBucket" if no_bucket else f"HTTP status {status}", status, no_bucket=no_bucket)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return GcsStore(place, options)
