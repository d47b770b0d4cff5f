"""Objects on a filesystem or in a bucket, and segments made of them: everything about storage but logs and streams.

The port (`chunkstore.port`) is all that the rest of the project knows of storage; `open_store` picks its adapter.
`SegmentStore` is the package used by itself (docs/segment-store.md); its names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

# All other packages import this one, so a user of Windows learns it here, and not by a module that is missing there.
if sys.platform == "win32":
    raise ImportError(
        "pravega-spark does not run on Windows: it needs the file locks and the fork of POSIX. Run it in WSL 2, or in "
        "a container (docs/compatibility.md)"
    )

from chunkstore.backends import open_store
from chunkstore.errors import (
    ObjectNotFound,
    PutUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from chunkstore.port import ObjectInfo, Outcome, Range, Store

if TYPE_CHECKING:
    from chunkstore.pravega.layout_mode import LayoutMode
    from chunkstore.segment_store import SegmentStore
    from chunkstore.segments.errors import (
        BadStoredOffset,
        SegmentDamaged,
        SegmentError,
        SegmentUnsupported,
        StorageNotPrimary,
        StoredSegmentExists,
        StoredSegmentNotFound,
        StoredSegmentNotSealed,
        StoredSegmentSealed,
        StoredSegmentTruncated,
    )
    from chunkstore.segments.storage import SegmentInfo, SegmentStorageConfig

__all__ = [
    "BadStoredOffset",
    "LayoutMode",
    "ObjectInfo",
    "ObjectNotFound",
    "Outcome",
    "PutUnknown",
    "Range",
    "SegmentDamaged",
    "SegmentError",
    "SegmentInfo",
    "SegmentStorageConfig",
    "SegmentStore",
    "SegmentUnsupported",
    "StorageError",
    "StorageFull",
    "StorageNotPrimary",
    "StorageRefused",
    "StorageUnavailable",
    "Store",
    "StoredSegmentExists",
    "StoredSegmentNotFound",
    "StoredSegmentNotSealed",
    "StoredSegmentSealed",
    "StoredSegmentTruncated",
    "open_store",
]

_MODULES = {
    "LayoutMode": "pravega.layout_mode",
    "SegmentInfo": "segments.storage",
    "SegmentStorageConfig": "segments.storage",
    "SegmentStore": "segment_store",
}
"""Where the names of the segment store are defined, if not in `segments.errors`."""


def __getattr__(name: str) -> Any:
    """Import a name of the segment store when it is first used: most programs need only the port."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'segments.errors')}"), name)
    globals()[name] = value
    return value
