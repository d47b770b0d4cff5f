"""Pravega event streams that live in a folder or a bucket, with a Spark data source.

Importing this package loads nothing but itself; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamInfo, StreamManager
    from pravega_spark.client.reader import Event
    from pravega_spark.client.writer import EventWriter, WriteFailed
    from pravega_spark.errors import (
        InvalidStreamCut,
        ScopeNotEmpty,
        ScopeNotFound,
        StreamError,
        StreamNotFound,
        StreamNotSealed,
        StreamSealed,
        TruncatedData,
    )
    from pravega_spark.source.provider import PravegaDataSource
    from pravega_spark.streams.cuts import UNBOUNDED, StreamCut
    from pravega_spark.streams.pointers import EventPointer
    from pravega_spark.streams.records import RetentionPolicy as StreamRetentionPolicy
    from pravega_spark.streams.records import ScalingPolicy as StreamScalingPolicy

_PLACES = {
    "StreamInfo": "client.manager",
    "StreamManager": "client.manager",
    "Event": "client.reader",
    "EventWriter": "client.writer",
    "WriteFailed": "client.writer",
    "InvalidStreamCut": "errors",
    "ScopeNotEmpty": "errors",
    "ScopeNotFound": "errors",
    "StreamError": "errors",
    "StreamNotFound": "errors",
    "StreamNotSealed": "errors",
    "StreamSealed": "errors",
    "TruncatedData": "errors",
    "PravegaDataSource": "source.provider",
    "UNBOUNDED": "streams.cuts",
    "StreamCut": "streams.cuts",
    "EventPointer": "streams.pointers",
    "StreamRetentionPolicy": "streams.records",
    "StreamScalingPolicy": "streams.records",
}
_ELSEWHERE = {"StreamRetentionPolicy": "RetentionPolicy", "StreamScalingPolicy": "ScalingPolicy"}

__all__ = [
    "UNBOUNDED",
    "Event",
    "EventPointer",
    "EventWriter",
    "InvalidStreamCut",
    "PravegaDataSource",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "StreamCut",
    "StreamError",
    "StreamInfo",
    "StreamManager",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRetentionPolicy",
    "StreamScalingPolicy",
    "StreamSealed",
    "TruncatedData",
    "WriteFailed",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), _ELSEWHERE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
