"""Objects on a filesystem or in a bucket, and everything about storage that knows nothing of streams.

The port (`chunkstore.port`) is all that the rest of the project knows of storage; `open_store` picks its adapter.
"""

from chunkstore.backends import open_store
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
from chunkstore.port import TOKEN, ObjectInfo, Outcome, Range, Store

__all__ = [
    "TOKEN",
    "InvalidOffset",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectReadOnly",
    "Outcome",
    "PutUnknown",
    "Range",
    "StorageError",
    "StorageFull",
    "StorageRefused",
    "StorageUnavailable",
    "Store",
    "Unsupported",
    "open_store",
]
