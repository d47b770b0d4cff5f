"""Pravega event streams that live in a folder or a bucket, with a Spark data source.

Importing this package loads nothing but itself; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pravega_spark.client.bytes import ByteStream, ByteStreamError
    from pravega_spark.client.event_file import EventFile
    from pravega_spark.client.fetching import fetch_event, fetch_event_to_file, fetch_events
    from pravega_spark.client.group import StreamReaderGroup
    from pravega_spark.client.group_config import StreamCuts, StreamReaderGroupConfig
    from pravega_spark.client.group_entry import GroupNotFound
    from pravega_spark.client.group_reader import StreamReader
    from pravega_spark.client.group_state import ReaderOffline, ReaderOnline
    from pravega_spark.client.large import LargeEvent
    from pravega_spark.client.manager import StreamInfo, StreamManager
    from pravega_spark.client.reader import Event
    from pravega_spark.client.transaction import StreamTransaction, StreamTransactionWriter
    from pravega_spark.client.transaction import StreamTransactionWriter as StreamTxnWriter
    from pravega_spark.client.writer import EventWriter, WriteFailed
    from pravega_spark.client.writer import EventWriter as StreamWriter
    from pravega_spark.errors import (
        EventClosed,
        EventExists,
        EventExpired,
        EventSegmentSealed,
        EventTaken,
        EventTooLarge,
        EventTooLong,
        InvalidEventPointer,
        InvalidScale,
        InvalidStreamCut,
        LargeEventError,
        NoSuchEvent,
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
    from pravega_spark.picture import draw_segments
    from pravega_spark.source.provider import PravegaDataSource
    from pravega_spark.streams.cuts import UNBOUNDED, StreamCut
    from pravega_spark.streams.pointers import EventPointer
    from pravega_spark.streams.records import RetentionPolicy as StreamRetentionPolicy
    from pravega_spark.streams.records import ScalingPolicy as StreamScalingPolicy

_PLACES = {
    "ByteStream": "client.bytes",
    "ByteStreamError": "client.bytes",
    "EventFile": "client.event_file",
    "fetch_event": "client.fetching",
    "fetch_event_to_file": "client.fetching",
    "fetch_events": "client.fetching",
    "GroupNotFound": "client.group_entry",
    "ReaderOffline": "client.group_state",
    "ReaderOnline": "client.group_state",
    "StreamCuts": "client.group_config",
    "StreamReaderGroup": "client.group",
    "StreamReader": "client.group_reader",
    "StreamReaderGroupConfig": "client.group_config",
    "StreamTransaction": "client.transaction",
    "StreamTransactionWriter": "client.transaction",
    "StreamTxnWriter": "client.transaction",
    "EventTooLarge": "errors",
    "InvalidEventPointer": "errors",
    "NoSuchEvent": "errors",
    "EventClosed": "errors",
    "EventExists": "errors",
    "EventExpired": "errors",
    "EventSegmentSealed": "errors",
    "EventTaken": "errors",
    "EventTooLong": "errors",
    "InvalidScale": "errors",
    "LargeEvent": "client.large",
    "LargeEventError": "errors",
    "TransactionClosed": "errors",
    "TransactionNotFound": "errors",
    "TxnFailedException": "errors",
    "StreamInfo": "client.manager",
    "StreamManager": "client.manager",
    "Event": "client.reader",
    "EventWriter": "client.writer",
    "StreamWriter": "client.writer",
    "WriteFailed": "client.writer",
    "InvalidStreamCut": "errors",
    "ScopeNotEmpty": "errors",
    "ScopeNotFound": "errors",
    "StreamError": "errors",
    "StreamNotFound": "errors",
    "StreamNotSealed": "errors",
    "StreamSealed": "errors",
    "TruncatedData": "errors",
    "draw_segments": "picture",
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
    "StreamTxnWriter": "StreamTransactionWriter",
    "StreamWriter": "EventWriter",
}

__all__ = [
    "UNBOUNDED",
    "ByteStream",
    "ByteStreamError",
    "Event",
    "EventClosed",
    "EventExists",
    "EventExpired",
    "EventFile",
    "EventPointer",
    "EventSegmentSealed",
    "EventTaken",
    "EventTooLarge",
    "EventTooLong",
    "EventWriter",
    "GroupNotFound",
    "InvalidEventPointer",
    "InvalidScale",
    "InvalidStreamCut",
    "LargeEvent",
    "LargeEventError",
    "NoSuchEvent",
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
    "StreamReader",
    "StreamReaderGroup",
    "StreamReaderGroupConfig",
    "StreamRetentionPolicy",
    "StreamScalingPolicy",
    "StreamSealed",
    "StreamTransaction",
    "StreamTransactionWriter",
    "StreamTxnWriter",
    "StreamWriter",
    "TransactionClosed",
    "TransactionNotFound",
    "TruncatedData",
    "TxnFailedException",
    "WriteFailed",
    "draw_segments",
    "fetch_event",
    "fetch_event_to_file",
    "fetch_events",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), _ELSEWHERE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
