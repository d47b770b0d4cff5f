"""Objects as block blobs of an Azure storage account, through the client of adlfs.

A create is one Put Blob on the condition that there is no blob. It is never staged in blocks: those of two writers of
one name have the same ids, and the blob that is committed might hold some of each.
"""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import Mapping
from typing import Any

from chunkstore.backends.bucket import Failed, Rights, SingleDeletes, answered, not_the_bucket
from chunkstore.errors import StorageRefused
from chunkstore.port import Data, ObjectInfo, Outcome, Parts, Store, check_prefix, joined, token_of

_LARGEST_GET = 256 * 2**20  # that is read in one request
_NO_CONTAINER = ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled")


class AzureStore(SingleDeletes):
    """Objects below abfs://`place`; `options` are those of `adlfs.AzureBlobFileSystem`.

    `place` is container or container/folder, and the container may be followed by @ and the account's host name.
    """

    scheme = "abfs"
    package = "adlfs"
    extra = "azure"
    rights = Rights(
        read="the data action blobs/read (r in a SAS)",
        list="the data action blobs/read (l in a SAS)",
        write="the data action blobs/add/action for a new blob, blobs/write to overwrite one (c and w in a SAS)",
        delete="the data action blobs/delete (d in a SAS)",
    )
    page = 5000
    largest_put = 5000 * 2**20
    """Bytes that the service takes in one request."""

    def __init__(self, place: str, options: Mapping[str, Any]) -> None:
        named = re.match(r"([^@/:]+)@([a-z0-9-]+\.(?:dfs|blob)\.[a-z0-9.-]+)(?=/|$)", place)
        if named is None:
            super().__init__(place, options)
            return
        container, host = named.groups()
        super().__init__(container + place[named.end() :], {**account_options(host), **options})
        self.root = self.root.replace(container, f"{container}@{host}", 1)

    def put(self, path: str, data: Parts) -> None:
        key = self._key(path)
        body = self._body(path, joined(data))
        self._overwrite(path, body, lambda fs: self._upload(fs, key, body, overwrite=True))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        token_of(data)  # raises for data without one
        key = self._key(path)
        body = self._body(path, joined(data))
        try:
            self._send(lambda fs: self._upload(fs, key, body, overwrite=False))
            return Outcome.MINE
        except Failed as error:
            failed = error
        return self._settle(path, data, failed)

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        check_prefix(prefix)
        infos: list[ObjectInfo] = []
        place = {"start_from": self._base + after} if after and after.startswith(prefix) else {}
        token: str | None = None
        while limit is None or len(infos) < limit:
            # The place is listed itself, and does not count.
            size = self.page if limit is None else min(self.page, limit - len(infos) + bool(after))
            blobs, token = self._list_page(prefix, size, token, place)
            for blob in blobs:
                path = blob.name.removeprefix(self._base)
                # Some servers ignore where to start; accounts with folders list them too.
                if path > after and "hdi_isfolder" not in (blob.metadata or {}) and self._can_name(path):
                    infos.append(ObjectInfo(path, blob.size, blob.last_modified.timestamp()))
            if not token:
                break
        return infos[:limit]

    def _body(self, path: str, data: Data) -> bytes:
        body = bytes(data)
        if len(body) > self.largest_put:
            raise StorageRefused(
                f"{self.root}: {path!r} has {len(body)} bytes; at most {self.largest_put} can be made with one request"
            )
        return body

    async def _remove(self, fs: Any, key: str) -> None:
        await self._repeat(lambda: self._blob(fs, key).delete_blob(**self._once(fs)))

    def _list_page(
        self, prefix: str, size: int, token: str | None, place: Mapping[str, str]
    ) -> tuple[builtins.list[Any], str | None]:
        """The blobs of a page, and the token of the next one."""

        async def request(fs: Any) -> tuple[list[Any], str | None]:
            async def attempt() -> tuple[list[Any], str | None]:
                container = fs.service_client.get_container_client(self._bucket)
                wanted = {"name_starts_with": self._base + prefix, "include": ["metadata"], **place}
                pages = container.list_blobs(results_per_page=size, **wanted, **self._once(fs)).by_page(token)
                async for page in pages:
                    return [blob async for blob in page], pages.continuation_token
                return [], None

            return await self._repeat(attempt)

        return self._run_listing(request, prefix)

    async def _upload(self, fs: Any, key: str, body: bytes, *, overwrite: bool) -> None:
        await self._repeat(
            lambda: self._blob(fs, key).upload_blob(body, length=len(body), overwrite=overwrite, **self._once(fs))
        )

    async def _get(self, fs: Any, key: str, start: int, end: int | None) -> bytes:
        length = None if end is None else end - start

        async def attempt() -> bytes:
            download = await self._blob(fs, key).download_blob(offset=start, length=length, **self._once(fs))
            content: bytes = await download.readall()
            return content

        return await self._repeat(attempt)

    async def _head(self, fs: Any, key: str) -> tuple[int, float]:
        found = await self._repeat(lambda: self._blob(fs, key).get_blob_properties(**self._once(fs)))
        return found.size, found.last_modified.timestamp()

    def _blob(self, fs: Any, key: str) -> Any:
        return fs.service_client.get_blob_client(self._bucket, key)

    @staticmethod
    def _once(fs: Any) -> dict[str, Any]:
        """Settings of each request. By default the client repeats it slowly, and hides the earlier failures."""
        return {
            "retry_total": 0,
            "raw_response_hook": lambda response: answered(response.http_response.headers),
            **fs._timeout_kwargs,
        }

    def _make_filesystem(self, options: dict[str, Any]) -> Any:
        from adlfs import AzureBlobFileSystem

        fs = AzureBlobFileSystem(**options)
        # adlfs has no options for these two of the client.
        fs.service_client._config.max_single_put_size = self.largest_put
        fs.service_client._config.max_single_get_size = _LARGEST_GET
        return fs

    def _close_filesystem(self, fs: Any) -> None:
        import fsspec.asyn

        fsspec.asyn.sync(fs.loop, fs.service_client.close)

    def _failure(self, error: Exception) -> Failed:
        from azure.core import exceptions

        code = str(getattr(error, "error_code", None) or type(error).__name__)
        if isinstance(error, exceptions.HttpResponseError) and error.status_code:
            if error.status_code == 404 and not getattr(error, "error_code", None):
                return not_the_bucket(code)
            return Failed(code, error.status_code, no_bucket=code in _NO_CONTAINER)
        if isinstance(error, exceptions.ClientAuthenticationError):
            return Failed(code, 401)
        lost = (exceptions.ServiceRequestError, exceptions.ServiceResponseError, exceptions.IncompleteReadError)
        return Failed(code, transient=isinstance(error, (*lost, OSError, asyncio.TimeoutError)))


def account_options(host: str) -> dict[str, str]:
    """The options of adlfs for the account that a host name, `<account>.dfs.…` or `<account>.blob.…`, is of."""
    account, _, domain = host.split(".", 2)
    return {"account_name": account, "account_host": f"{account}.blob.{domain}"}


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return AzureStore(place, options)
