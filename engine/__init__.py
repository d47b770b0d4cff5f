"""The segment store engine: a write-ahead log on plain objects and the segment containers that live on it.

Owns: frames and their succession (W1-W8, W18), container state, segments and their extents, flushing and truncation.
Imports `chunkstore` only; knows nothing of streams or Spark. Its wings are drawn in docs/decisions/wings.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.errors import (
        BadAttributeUpdate,
        BadKeyVersion,
        BadOffset,
        ChunksGivenUp,
        ClocksDisagree,
        ContainerOffline,
        DataCorruption,
        EngineError,
        FrameDamaged,
        LogLost,
        NotPrimary,
        OutcomeUnknown,
        Rejected,
        RootNotFound,
        SegmentExists,
        SegmentNotFound,
        SegmentNotSealed,
        SegmentSealed,
        SegmentTransient,
        SegmentTruncated,
        Throttled,
        UnknownFormat,
    )
    from engine.ownership import MadeBeforeFork
    from engine.root import Root, RootConfig
    from engine.settings import Settings

__all__ = [
    "BadAttributeUpdate",
    "BadKeyVersion",
    "BadOffset",
    "ChunksGivenUp",
    "ClocksDisagree",
    "Container",
    "ContainerOffline",
    "DataCorruption",
    "EngineError",
    "FrameDamaged",
    "LogLost",
    "MadeBeforeFork",
    "NotPrimary",
    "OutcomeUnknown",
    "Rejected",
    "Root",
    "RootConfig",
    "RootNotFound",
    "SegmentExists",
    "SegmentNotFound",
    "SegmentNotSealed",
    "SegmentSealed",
    "SegmentTransient",
    "SegmentTruncated",
    "Settings",
    "Throttled",
    "UnknownFormat",
]

_PLACES = {
    "Container": "containers.container",
    "MadeBeforeFork": "ownership",
    "Root": "root",
    "RootConfig": "root",
    "Settings": "settings",
}
"""Where what is exported lies, if not in `errors`."""


def __getattr__(name: str) -> Any:
    """What is exported is imported when it is first used: a program that needs little waits for little."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
