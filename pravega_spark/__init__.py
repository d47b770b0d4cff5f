"""Pravega event streams that live in a folder or a bucket, with a Spark data source.

Importing this package loads nothing but itself; each name is loaded when it is first used. The imports below are the
one list of public names: type checkers read them, and so does `_public_names`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    import chunkstore  # noqa: F401  # raises the error for this system, before anything else fails

if TYPE_CHECKING:
    from chunkstore.errors import (
        Damaged as Damaged,
        DeclaredError as DeclaredError,
        StorageError as StorageError,
        StorageFull as StorageFull,
        StorageRefused as StorageRefused,
        StorageUnavailable as StorageUnavailable,
    )
    from chunkstore.metrics import Metrics as Metrics, default_metrics as default_metrics
    from chunkstore.pravega.source import ArchiveDamaged as ArchiveDamaged
    from engine.admin.backups import ContainerBackup as ContainerBackup, RootBackup as RootBackup
    from engine.admin.inspection import ContainerStatus as ContainerStatus
    from engine.errors import (
        ChunksExpired as ChunksExpired,
        ClocksDisagree as ClocksDisagree,
        ContainerOffline as ContainerOffline,
        DataCorruption as DataCorruption,
        EngineError as EngineError,
        ObjectLost as ObjectLost,
        OutcomeUnknown as OutcomeUnknown,
        RootNotFound as RootNotFound,
        UnknownFormat as UnknownFormat,
    )
    from engine.ownership import MadeBeforeFork as MadeBeforeFork
    from engine.root import Root as Root
    from engine.settings import Settings as Settings
    from pravega_spark.client.asynchronous import (
        AsyncEventWriter as AsyncEventWriter,
        AsyncTail as AsyncTail,
        Tail as Tail,
    )
    from pravega_spark.client.bytes import ByteStream as ByteStream, ByteStreamError as ByteStreamError
    from pravega_spark.client.event import Event as Event, Offset as Offset, Payload as Payload
    from pravega_spark.client.fetch import (
        fetch_event as fetch_event,
        fetch_event_to_file as fetch_event_to_file,
        fetch_events as fetch_events,
    )
    from pravega_spark.client.groups.config import (
        StreamCuts as StreamCuts,
        StreamReaderGroupConfig as StreamReaderGroupConfig,
    )
    from pravega_spark.client.groups.entry import (
        GroupConfigMismatch as GroupConfigMismatch,
        GroupNotFound as GroupNotFound,
    )
    from pravega_spark.client.groups.event_read import EventRead as EventRead, Position as Position
    from pravega_spark.client.groups.group import (
        SegmentDistribution as SegmentDistribution,
        StreamReaderGroup as StreamReaderGroup,
    )
    from pravega_spark.client.groups.reader import StreamReader as StreamReader
    from pravega_spark.client.groups.slices import SegmentSlice as SegmentSlice
    from pravega_spark.client.groups.state import (
        CheckpointFailed as CheckpointFailed,
        GroupSegment as GroupSegment,
        ReaderOffline as ReaderOffline,
        ReaderOnline as ReaderOnline,
        TooManyCheckpoints as TooManyCheckpoints,
    )
    from pravega_spark.client.key_value_table import KeyValueTable as KeyValueTable
    from pravega_spark.client.large_events.event_file import EventFile as EventFile
    from pravega_spark.client.large_events.large_event import LargeEvent as LargeEvent
    from pravega_spark.client.last_events import LastEvents as LastEvents
    from pravega_spark.client.manager import StreamInfo as StreamInfo, StreamManager as StreamManager
    from pravega_spark.client.reader import EventRange as EventRange
    from pravega_spark.client.revisioned_stream import (
        RevisionedStreamClient as RevisionedStreamClient,
        Serializer as Serializer,
    )
    from pravega_spark.client.segment_ranges import SegmentRange as SegmentRange
    from pravega_spark.client.state_synchronizer import (
        InitialUpdate as InitialUpdate,
        StateSynchronizer as StateSynchronizer,
        Update as Update,
    )
    from pravega_spark.client.transaction import (
        CompletedTransaction as CompletedTransaction,
        StreamTransaction as StreamTransaction,
        StreamTransactionWriter as StreamTransactionWriter,
    )
    from pravega_spark.client.writer import (
        EventWriter as EventWriter,
        WriteFailed as WriteFailed,
    )
    from pravega_spark.errors import (
        BadKeyVersion as BadKeyVersion,
        Closed as Closed,
        ConditionalTableUpdateFailed as ConditionalTableUpdateFailed,
        CorruptedState as CorruptedState,
        CutOfDeletedStream as CutOfDeletedStream,
        EventClosed as EventClosed,
        EventExists as EventExists,
        EventExpired as EventExpired,
        EventSegmentSealed as EventSegmentSealed,
        EventTaken as EventTaken,
        EventTooLarge as EventTooLarge,
        EventTooLong as EventTooLong,
        Interrupted as Interrupted,
        InvalidEventPointer as InvalidEventPointer,
        InvalidScale as InvalidScale,
        InvalidStreamCut as InvalidStreamCut,
        InvalidValueSchema as InvalidValueSchema,
        KeyValueTableNotFound as KeyValueTableNotFound,
        KeyValueTableRecreated as KeyValueTableRecreated,
        LargeEventError as LargeEventError,
        MalformedEvent as MalformedEvent,
        NoSuchEvent as NoSuchEvent,
        NoSuchKey as NoSuchKey,
        NotInitialized as NotInitialized,
        NotOneSegment as NotOneSegment,
        NumbersLost as NumbersLost,
        PositionLost as PositionLost,
        RecordTooLarge as RecordTooLarge,
        ReplayChanged as ReplayChanged,
        ScopeNotEmpty as ScopeNotEmpty,
        ScopeNotFound as ScopeNotFound,
        StreamDeleted as StreamDeleted,
        StreamError as StreamError,
        StreamNotFound as StreamNotFound,
        StreamNotSealed as StreamNotSealed,
        StreamRecreated as StreamRecreated,
        StreamSealed as StreamSealed,
        TooManyNotingWriters as TooManyNotingWriters,
        TooManySegments as TooManySegments,
        TransactionClosed as TransactionClosed,
        TransactionIncomplete as TransactionIncomplete,
        TransactionNotFound as TransactionNotFound,
        TransactionTooLong as TransactionTooLong,
        TruncatedData as TruncatedData,
        ValueFormatFixed as ValueFormatFixed,
        WritesLost as WritesLost,
    )
    from pravega_spark.picture import StreamPicture as StreamPicture, stream_picture as stream_picture
    from pravega_spark.query_metrics import QueryMetrics as QueryMetrics
    from pravega_spark.serve.inline import InlinePage as InlinePage
    from pravega_spark.source.provider import PravegaDataSource as PravegaDataSource
    from pravega_spark.status import (
        ConsumerStatus as ConsumerStatus,
        RootStatus as RootStatus,
        StreamStatus as StreamStatus,
        root_status as root_status,
    )
    from pravega_spark.status_metrics import StatusMetrics as StatusMetrics
    from pravega_spark.streams.key_value_table import KeyValueTableInfo as KeyValueTableInfo
    from pravega_spark.streams.maintenance.retention import Retained as Retained
    from pravega_spark.streams.maintenance.truncation import Truncation as Truncation
    from pravega_spark.streams.model.cuts import UNBOUNDED as UNBOUNDED, StreamCut as StreamCut
    from pravega_spark.streams.model.epochs import (
        EpochRecord as EpochRecord,
        StreamSegmentRecord as StreamSegmentRecord,
    )
    from pravega_spark.streams.model.key_value_table import (
        Insert as Insert,
        KeyValueTableConfiguration as KeyValueTableConfiguration,
        KeyValueTableEntry as KeyValueTableEntry,
        Put as Put,
        Remove as Remove,
        TableKey as TableKey,
        Version as Version,
    )
    from pravega_spark.streams.model.pointers import EventPointer as EventPointer
    from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
    from pravega_spark.streams.model.revisions import Revision as Revision
    from pravega_spark.streams.model.watermarks import TimeWindow as TimeWindow
    from pravega_spark.streams.pravega_lts.imports import (
        ImportedStream as ImportedStream,
        ImportIncomplete as ImportIncomplete,
        ImportReport as ImportReport,
    )
    from pravega_spark.streams.pravega_lts.table_import import ImportedTable as ImportedTable
    from pravega_spark.streams.reading.activity import Growth as Growth
    from pravega_spark.streams.reading.lag import Lag as Lag
    from pravega_spark.streams.reading.timeline import (
        Border as Border,
        CutPoint as CutPoint,
        SegmentSpan as SegmentSpan,
        Timeline as Timeline,
    )
    from pravega_spark.streams.values.value_format import ValueFormat as ValueFormat

    # Under other names than their own. A strict type checker does not take `import A as B` for an export.
    EventData = Event
    Slice = SegmentSlice
    StreamRetentionPolicy = RetentionPolicy
    StreamScalingPolicy = ScalingPolicy
    StreamTxnWriter = StreamTransactionWriter
    StreamWriter = EventWriter
    TableEntry = KeyValueTableEntry
    TxnFailedException = TransactionClosed


@functools.cache
def _public_names() -> dict[str, tuple[str, str]]:
    """The module of each public name, and its name there.

    Computed when the first one is used, so that it costs nothing in Spark's workers, which import modules directly.
    """
    import ast
    import pkgutil

    source = pkgutil.get_data(__name__, "__init__.py")
    if source is None:
        raise ImportError(f"{__name__} cannot find its public names: install it with its sources")
    branches = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    (listed,) = (node for node in branches if ast.unparse(node.test) == "TYPE_CHECKING")
    imported, renamed = {}, {}
    for node in listed.body:
        if isinstance(node, ast.ImportFrom):
            imported.update({alias.name: (str(node.module), alias) for alias in node.names})
        elif isinstance(node, ast.Assign):
            renamed[ast.unparse(node.targets[0])] = ast.unparse(node.value)
    names = {name: name for name, (_, alias) in imported.items() if alias.asname} | renamed
    return {name: (imported[original][0], original) for name, original in names.items()}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_public_names())
    if name.startswith("__") or name not in _public_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _public_names()[name]
    value = getattr(importlib.import_module(module), original)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})
