"""The clients of s3://, by the storage option `client`; that of s3fs is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chunkstore.errors import StorageRefused
from chunkstore.port import Store


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store in a bucket, with the client that the option `client` names; the remaining options are the client's."""
    left = dict(options)
    client = left.pop("client", "s3fs")
    if client == "s3fs":
        from chunkstore.backends.s3 import S3Store

        return S3Store(place, left)
    if client == "obstore":
        from chunkstore.backends.s3_obstore import ObstoreStore

        return ObstoreStore(place, left)
    raise StorageRefused(
        'storage option client is neither "s3fs", the default of s3://, nor "obstore": give one of these'
    )
