"""Pravega event streams that live in a folder or a bucket, with a Spark data source.

Importing this package loads nothing but itself; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pravega_spark.client.bytes import ByteStream, ByteStreamError
    from pravega_spark.client.group import GroupNotFound, StreamCuts, StreamReaderGroup, StreamReaderGroupConfig
    from pravega_spark.client.group_state import ReaderOffline, ReaderOnline
    from pravega_spark.client.manager import StreamInfo, StreamManager
    from pravega_spark.client.reader import Event
    from pravega_spark.client.transaction import StreamTransaction, StreamTransactionWriter
    from pravega_spark.client.writer import EventWriter, WriteFailed
    from pravega_spark.errors import (
        InvalidScale,
        InvalidStreamCut,
        ScopeNotEmpty,
        ScopeNotFound,
        StreamError,
        StreamNotFound,
        StreamNotSealed,
        StreamSealed,
        TransactionClosed,
        TransactionNotFound,
        TruncatedData,
    )
    from pravega_spark.errors import TransactionClosed as TxnFailedException
    from pravega_spark.source.provider import PravegaDataSource
    from pravega_spark.streams.cuts import UNBOUNDED, StreamCut
    from pravega_spark.streams.pointers import EventPointer
    from pravega_spark.streams.records import RetentionPolicy as StreamRetentionPolicy
    from pravega_spark.streams.records import ScalingPolicy as StreamScalingPolicy

_PLACES = {
    "ByteStream": "client.bytes",
    "ByteStreamError": "client.bytes",
    "GroupNotFound": "client.group",
    "ReaderOffline": "client.group_state",
    "ReaderOnline": "client.group_state",
    "StreamCuts": "client.group",
    "StreamReaderGroup": "client.group",
    "StreamReaderGroupConfig": "client.group",
    "StreamTransaction": "client.transaction",
    "StreamTransactionWriter": "client.transaction",
    "InvalidScale": "errors",
    "TransactionClosed": "errors",
    "TransactionNotFound": "errors",
    "TxnFailedException": "errors",
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
_ELSEWHERE = {
    "TxnFailedException": "TransactionClosed",
    "StreamRetentionPolicy": "RetentionPolicy",
    "StreamScalingPolicy": "ScalingPolicy",
}

__all__ = [
    "UNBOUNDED",
    "ByteStream",
    "ByteStreamError",
    "Event",
    "EventPointer",
    "EventWriter",
    "GroupNotFound",
    "InvalidScale",
    "InvalidStreamCut",
    "PravegaDataSource",
    "ReaderOffline",
    "ReaderOnline",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "StreamCut",
    "StreamCuts",
    "StreamError",
    "StreamInfo",
    "StreamManager",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamReaderGroup",
    "StreamReaderGroupConfig",
    "StreamRetentionPolicy",
    "StreamScalingPolicy",
    "StreamSealed",
    "StreamTransaction",
    "StreamTransactionWriter",
    "TransactionClosed",
    "TransactionNotFound",
    "TruncatedData",
    "TxnFailedException",
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
