"""The entry point of the client: scopes and streams of a root, writers and readers.

The methods that the PyPI package `pravega` has are called and behave as there, so that a program moves by changing its
import and its URI. Nothing is kept here about streams: every call looks at the root.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from chunkstore.decoding import encoded
from engine.admin import backups
from engine.admin.backups import RootBackup
from engine.admin.progress import Progress, no_progress
from engine.errors import DataCorruption, RootNotFound
from engine.ownership import ProcessLock
from engine.root import Root
from engine.settings import Settings
from engine.signatures import key_in
from pravega_spark.client.asynchronous import AsyncEventWriter, AsyncTail, Tail
from pravega_spark.client.bytes import ByteStream
from pravega_spark.client.frames import producer_of, write_frame
from pravega_spark.client.groups.config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.groups.group import StreamReaderGroup
from pravega_spark.client.groups.opening import create_group, delete_group, open_group
from pravega_spark.client.groups.positions import group_cuts, group_names, group_positions
from pravega_spark.client.key_value_table import KeyValueTable
from pravega_spark.client.large_events.event_file import EventFile, open_event_file
from pravega_spark.client.large_events.large_event import LargeEvent
from pravega_spark.client.last_events import LastEvents, last_events
from pravega_spark.client.reader import EventRange, Follower, begin_following, read_events
from pravega_spark.client.revisioned_stream import BYTES, RevisionedStreamClient, Serializer
from pravega_spark.client.scope_contents import delete_scope, delete_scope_with_contents
from pravega_spark.client.segment_ranges import SegmentRange, read_segment, segment_ranges
from pravega_spark.client.state_synchronizer import StateSynchronizer
from pravega_spark.client.transaction import CompletedTransaction, StreamTransactionWriter, completed_transactions
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import Closed, InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, SizeLike, TimeLike, parse_seconds, parse_size, parse_time
from pravega_spark.roots import opened_root
from pravega_spark.segment_ids import parse_segment_id, segment_label
from pravega_spark.settings import key_for, parse_settings
from pravega_spark.storage_options import open_checked
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.key_value_table import KeyValueTableInfo, key_value_table_entries, key_value_tables
from pravega_spark.streams.maintenance import retention
from pravega_spark.streams.maintenance.retention import Retained
from pravega_spark.streams.maintenance.subscribers import positions, unsubscribe
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut, positions_text
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord
from pravega_spark.streams.model.html_table import html_table
from pravega_spark.streams.model.key_value_table import KeyValueTableConfiguration, KeyValueTableEntry
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.model.policies import OnChangedReplay, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import UNCHANGED, Unchanged
from pravega_spark.streams.model.watermarks import TimeWindow
from pravega_spark.streams.reading.lag import Lag, lag
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import (
    CutLike,
    PositionLike,
    StreamPosition,
    cut_at,
    cut_to_truncate,
    parse_cut,
    parse_position,
)
from pravega_spark.streams.reading.timeline import Timeline, timeline
from pravega_spark.streams.revisions import RevisionedStream
from pravega_spark.streams.stream_time import time_window
from pravega_spark.streams.values.codec import OnMalformed
from pravega_spark.streams.values.columns import ValueColumns
from pravega_spark.streams.values.value_format import ValueFormat, value_format_of
from pravega_spark.streams.writing import uploads

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.serve.inline import InlinePage
    from pravega_spark.streams.pravega_lts.imports import ImportReport

logger = logging.getLogger(__name__)

_CELL = 8  # positions of a cut in one cell of a table


class StreamInfo(NamedTuple):
    """A stream at one moment.

    head, tail: the cuts before the first and after the last event. size: readable bytes, event headers included.
    events: number of readable events. segments: the open segments. epochs: the generations of segments since the head.
    subscribers: the reader groups that hold back its retention, by name, and how far what they released is behind.
    unplaced: the reasons why the positions of some of them do not fit the stream, for example because it was deleted
    and created again: they hold back all events, until they continue at a position in the stream or are removed.
    scaling, retention, tags: as the stream was created or updated with.
    """

    scope: str
    stream: str
    head: StreamCut
    tail: StreamCut
    size: int
    events: int
    segments: tuple[StreamSegmentRecord, ...]
    epochs: tuple[EpochRecord, ...]
    sealed: bool
    subscribers: Mapping[str, Lag]
    unplaced: Mapping[str, str]
    scaling: ScalingPolicy
    retention: RetentionPolicy | None
    tags: tuple[str, ...]

    def _repr_html_(self) -> str:
        name, (first, last) = f"{self.scope}/{self.stream}", (self.epochs[0].epoch, self.epochs[-1].epoch)
        facts = {
            "events": f"{self.events:,}",
            "bytes": f"{self.size:,}",
            **({"epochs": f"{first} to {last}"} if first != last else {"epoch": first}),
            "sealed": "yes" if self.sealed else "no",
            "head": positions_text(self.head, _CELL),
            "tail": positions_text(self.tail, _CELL),
            **{f"subscriber {name}": behind for name, behind in self.subscribers.items()},
            **{f"position of {name} does not fit": problem for name, problem in self.unplaced.items()},
        }
        segments = [(segment_label(s.id), *s) for s in self.segments]
        taking = "newest segments, all sealed" if self.sealed else "open segments"
        return html_table(f"stream {name}", ("", "now"), facts.items()) + html_table(
            f"{taking}: {len(segments)}", ("segment", "segment id", "keys above", "keys up to"), segments
        )


@checks_parameters(
    hints={
        "root": "give a folder, or a URL such as s3://bucket/streams",
        "rg_config": "give StreamReaderGroupConfig(read_from_tail, scope_name, stream_name)",
    },
)
class StreamManager:
    """Scopes and streams below a root. Close it, or use it in a with statement: it flushes writers and takes readers
    offline.

    Args:
        root: a folder or any fsspec URL. `controller_uri` is the name of this argument in `pravega_client`.
        create: True creates the root now if it does not exist, even beside other objects. False never creates it. By
            default `create_scope` creates it if its location is empty; everything else raises RootNotFound until then.
        wal: root of the write-ahead log, if it is not inside the root. salvage: read the sound part of a damaged
            Pravega storage; `losses` lists the rest. unrecorded: also read the whole events that a killed Pravega
            server left in its storage without recording them; `recovered` lists them.
        settings: by name, as {"cache_bytes": "256MiB"}; those of a root count if it is created now.
        storage_options: for the fsspec filesystem.
        auth_enabled, tls_enabled, disable_cert_verification: accepted as in `pravega_client`, and without effect, as
            there is no broker: access and encryption are up to the storage.

    Every method with a stream name raises StreamNotFound if the stream does not exist, and ValueError for invalid
    names; TypeError, which names the parameter, for a value of another type; Closed after `close`. All methods raise
    StorageError if the storage fails.

    Where a method takes a position in a stream, give a cut or its text, "earliest", "latest", a time, or a time ago.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "",
        auth_enabled: bool = False,
        tls_enabled: bool = False,
        disable_cert_verification: bool = False,
        *,
        controller_uri: str = "",
        wal: str | None = None,
        create: bool | None = None,
        salvage: bool = False,
        unrecorded: bool = False,
        settings: Settings | Mapping[str, Any] | str | None = None,
        **storage_options: Any,
    ) -> None:
        place = os.fspath(root) or controller_uri
        self._closed = True  # until it is made
        if not place or (root and controller_uri):
            raise TypeError(
                "StreamManager needs one root of the streams: a folder, or a URL such as s3://bucket/streams"
            )
        if auth_enabled or tls_enabled or disable_cert_verification:
            logger.warning("auth_enabled, tls_enabled and disable_cert_verification have no effect: see StreamManager")
        chosen: dict[str, Any] = {"wal": wal, "salvage": salvage, "unrecorded": unrecorded}
        chosen["settings"] = parse_settings(settings or {})
        # A lambda, because its repr shows no option.
        self._begin(None, lambda **how: opened_root(place, storage_options, **chosen, **how))
        try:
            self._opened(create=bool(create))
        except RootNotFound as missing:
            if create is not None:
                raise
            self._missing = missing.root

    @classmethod
    def over(cls, opened: Root) -> StreamManager:
        """A manager of an open root. Closing it closes the root."""
        manager = cls.__new__(cls)
        manager._begin(opened, lambda **how: opened)
        return manager

    def _begin(self, root: Root | None, opener: Callable[..., Root]) -> None:
        self._opening = ProcessLock()
        self._open_root, self._opener, self._closed = root, opener, False
        self._missing = ""
        self._writers: weakref.WeakSet[EventWriter | LargeEvent | ByteStream | StreamReaderGroup | EventFile]
        self._writers = weakref.WeakSet()

    def _opened(self, **how: bool) -> Root:
        """The root, opened if it was not there before. how: create, empty and dry_run, as `Root.open` takes them.
        Raises RootNotFound, StorageRefused, Closed."""
        self._check_open()
        if self._open_root is None:
            with self._opening.mine:
                if self._open_root is None:
                    self._open_root = self._opener(**how)
        return self._open_root

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this manager of {self.to_str()}")

    @property
    def root(self) -> Root:
        """The open root. Raises RootNotFound if it does not exist."""
        return self._opened(create=False)

    @property
    def _catalog(self) -> Catalog:
        return Catalog(self.root, suggesting=True)

    def close(self) -> None:
        """Close the writers and readers that this manager created, then the root. Raises the first of their errors."""
        self._closed = True
        failures = []
        for writer in list(self._writers):
            try:
                writer.close()
            except Exception as error:
                failures.append(error)
        if self._open_root is not None:
            self._open_root.close()
        if failures:
            raise failures[0]

    @property
    def losses(self) -> tuple[str, ...]:
        """What is not read of a Pravega's storage, as far as it was met: streams, segments and offsets, in words."""
        return self.root.losses

    @property
    def recovered(self) -> tuple[str, ...]:
        """What is read of a Pravega's storage although its metadata does not record it, in words as `losses`."""
        return self.root.recovered

    def __enter__(self) -> StreamManager:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> StreamManager:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"StreamManager({self.to_str()})"

    def to_str(self) -> str:
        """The root as text, without credentials."""
        return repr(self._open_root) if self._open_root is not None else f"Root({self._missing!r})"

    # --- backups -----------------------------------------------------------------------------------------------

    def backup(
        self,
        target: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        progress: Progress = no_progress,
    ) -> RootBackup:
        """Copy the root to `target`: an empty folder or bucket, or an earlier backup of this root, which is updated.

        Streams can be written meanwhile; each container is copied as of one of its flush cycles. storage_options: for
        the target's fsspec filesystem. Raises StorageRefused if the target holds anything else, DataCorruption for
        what fails its checksums.
        """
        open_checked(os.fspath(target), storage_options)
        return backups.back_up(self.root, os.fspath(target), storage_options, progress=progress)

    @staticmethod
    def restore(
        backup: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        backup_options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: Progress = no_progress,
        settings: Settings | Mapping[str, Any] | str | None = None,
        backup_key_file: str | os.PathLike[str] | None = None,
    ) -> RootBackup:
        """Create the root `root`, which must not exist, from a backup. Repeat the call if it was interrupted.

        backup_options, storage_options: for the fsspec filesystems of the backup and of the root. settings: as
        StreamManager takes them; the root is signed if they or the environment have a key. backup_key_file: the path
        of the backup's key if that is another one, "" if the backup is not signed. Raises StorageRefused if `root`
        holds anything, `backup` is no backup, or the key is not the backup's; DataCorruption for what fails its
        checksums or its signature.
        """
        source, target = os.fspath(backup), os.fspath(root)
        open_checked(source, backup_options)
        open_checked(target, storage_options)
        key = key_for(parse_settings(settings or {}))
        return backups.restore(
            source,
            target,
            source_options=backup_options,
            target_options=storage_options,
            progress=progress,
            source_key=key if backup_key_file is None else key_in(os.fspath(backup_key_file)),
            target_key=key,
        )

    def import_streams(
        self,
        source: str | os.PathLike[str],
        names: Collection[str] = (),
        *,
        copy: bool = False,
        byte_streams: Collection[str] = (),
        salvage: bool = False,
        unrecorded: bool = False,
        dry_run: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        progress: Progress = no_progress,
    ) -> ImportReport:
        """Import streams from `source`, the long-term storage of a Pravega cluster that is stopped; it is only read.

        Policies, tags, epochs, segment ids, offsets and stream cuts stay the same. The root is created if its place is
        empty. Repeat the call if it was interrupted: it continues, and streams that exist already are left unchanged.

        Args:
            names: scopes, and streams as "scope/stream"; all by default.
            copy: copy the data. By default it is hard-linked: no byte moves, and both must be folders on one
                filesystem. Either way neither depends on the other afterwards.
            byte_streams: streams, as "scope/stream", whose bytes are not events.
            salvage: import what is sound of damaged streams; the report names the rest, by segments and offsets.
            unrecorded: import also the whole events that a killed server did not record; the report names them.
            dry_run: only report what would be imported, and what not. storage_options: for the source's filesystem.

        Raises ImportIncomplete, with the report, if not all could be imported; ScopeNotFound, StreamNotFound;
        StorageRefused if `source` is no such storage; ArchiveDamaged.
        """
        from pravega_spark.streams.pravega_lts.imports import Import, ImportIncomplete

        store = open_checked(os.fspath(source), storage_options)
        found = Import(store, names, byte_streams, copy, salvage=salvage, unrecorded=unrecorded)
        if dry_run:
            try:
                return found.report(self._opened(create=True, empty=True, dry_run=True))
            except RootNotFound as missing:
                return found.report(None, missing.root)
        report = found.run(self._opened(create=True, empty=True), progress=progress)
        if report.failed:
            raise ImportIncomplete(report)
        return report

    # --- scopes ------------------------------------------------------------------------------------------------

    def create_scope(self, scope_name: str) -> bool:
        """Create a scope. False if it exists. Creates the root too, if it does not exist and its location is empty."""
        validate_scope_name(scope_name)
        return Catalog(self._opened(create=True, empty=True)).create_scope(scope_name)

    def delete_scope(self, scope_name: str, force: bool = False) -> bool:
        """Delete an empty scope. False if it does not exist. Raises ScopeNotEmpty, also if it has reader groups, as
        Pravega does (PravegaTablesScope.deleteScope).

        force: delete all that it has too: streams, sealed or not, reader groups and key-value tables. If the call was
        interrupted, repeat it. Raises ScopeNotEmpty if other processes create something in the scope all the time.
        """
        self.root.check_writable()
        delete = delete_scope_with_contents if force else delete_scope
        return delete(self._catalog, validate_scope_name(scope_name))

    def check_scope_exists(self, scope_name: str) -> bool:
        """Whether a scope exists now."""
        return self._catalog.scope_exists(scope_name)

    def list_scope(self) -> list[str]:
        """The names of all scopes, sorted."""
        return self._catalog.scopes()

    # --- streams -----------------------------------------------------------------------------------------------

    def create_stream(self, scope_name: str, stream_name: str, initial_segments: int = 1) -> bool:
        """Create a stream with a fixed number of segments. False if it exists. Raises ScopeNotFound."""
        return self.create_stream_with_policy(
            scope_name, stream_name, ScalingPolicy.fixed_scaling_policy(initial_segments)
        )

    def create_stream_with_policy(
        self,
        scope_name: str,
        stream_name: str,
        scaling_policy: ScalingPolicy | None = None,
        retention_policy: RetentionPolicy | None = None,
        tags: Sequence[str] | None = None,
    ) -> bool:
        """Create a stream; by default with one segment and without retention. Raises ScopeNotFound.

        Returns False if it exists, even with other policies.
        """
        return self._catalog.create_stream(scope_name, stream_name, scaling_policy, retention_policy, tuple(tags or ()))

    def update_stream_with_policy(
        self,
        scope_name: str,
        stream_name: str,
        scaling_policy: ScalingPolicy | Unchanged | None = UNCHANGED,
        retention_policy: RetentionPolicy | Unchanged | None = UNCHANGED,
        tags: Sequence[str] | Unchanged | None = UNCHANGED,
        *,
        replace: bool = False,
    ) -> bool:
        """Change a stream's policies and tags. An argument that is left out changes nothing; None sets what a new
        stream has: one fixed segment, no retention, no tags. Returns True.

        Unlike `pravega_client`, which resets omitted settings: replace=True does that. A scaling policy also scales the
        stream, as `set_scaling`. Raises StreamSealed, TooManySegments.
        """
        if replace:
            scaling_policy = None if isinstance(scaling_policy, Unchanged) else scaling_policy
            retention_policy = None if isinstance(retention_policy, Unchanged) else retention_policy
            tags = None if isinstance(tags, Unchanged) else tags
        self._catalog.stream(scope_name, stream_name).update(scaling_policy, retention_policy, tags)
        return True

    def set_scaling(self, scope_name: str, stream_name: str, policy: ScalingPolicy | None) -> None:
        """Give a stream another scaling policy; None is that of a new stream, one fixed segment. The rest is kept.

        The same step scales the stream if it has not the fixed number of segments, or has fewer than the minimum: all
        open segments are replaced by that many, with equal ranges of keys, as in Pravega. Writers and readers follow.
        Raises StreamSealed, TooManySegments.
        """
        self._catalog.stream(scope_name, stream_name).update(scaling=policy)

    def set_retention(self, scope_name: str, stream_name: str, policy: RetentionPolicy | None) -> None:
        """Give a stream another retention policy; None keeps everything. The rest is kept.

        It is applied from the next time on that retention is due. Raises StreamSealed.
        """
        self._catalog.stream(scope_name, stream_name).update(retention=policy)

    def set_tags(self, scope_name: str, stream_name: str, tags: Sequence[str]) -> None:
        """Give a stream these tags instead of those that it has. The rest is kept. Raises StreamSealed."""
        self._catalog.stream(scope_name, stream_name).update(tags=tags)

    def set_value_format(self, scope_name: str, stream_name: str, value_format: ValueFormat | None) -> None:
        """Keep with a stream how its events hold structured values, and their schema; None: no longer.

        Events stay as they are, and `read_events` and Spark return bytes as before, unless they are asked for values.
        Spark then needs no schema, and refuses a write of values whose columns do not fit it. Raises StreamSealed,
        ValueFormatFixed for another Avro schema than the stream keeps, InvalidValueSchema for a field with the name of
        a column of a read.
        """
        self._catalog.stream(scope_name, stream_name).set_value_format(value_format)

    def value_format(self, scope_name: str, stream_name: str) -> ValueFormat | None:
        """How the events of a stream hold structured values, if the stream keeps it (`set_value_format`)."""
        return value_format_of(self._catalog.stream(scope_name, stream_name).snapshot().record)

    def scale_stream(
        self,
        scope_name: str,
        stream_name: str,
        segments_to_seal: Sequence[int | str],
        new_key_ranges: Sequence[tuple[float, float]],
    ) -> bool:
        """Replace open segments by new ones with these key ranges (low, high]. Returns True.

        segments_to_seal: their ids, or what people call them: "2.1" is segment 2 of epoch 1.

        Together the new ranges must cover exactly those of the sealed segments. Readers and writers continue, and the
        events of each key keep their order. Raises InvalidScale, StreamSealed.
        """
        self._catalog.stream(scope_name, stream_name).scale(
            [parse_segment_id(segment) for segment in segments_to_seal], new_key_ranges
        )
        return True

    def get_stream_tags(self, scope_name: str, stream_name: str) -> list[str]:
        """The tags of the stream."""
        return list(self._catalog.stream(scope_name, stream_name).snapshot().record.tags)

    def list_stream(self, scope_name: str, tag: str | None = None) -> list[str]:
        """The names of a scope's streams, sorted: all, or those with a tag. Raises ScopeNotFound.

        With a tag, streams whose record is damaged are left out; a warning names them.
        """
        self._catalog.check_scope(scope_name)
        if tag is None:
            return sorted(self._catalog.streams(scope_name))
        found = self._catalog.query(scope_name, lambda snapshot: snapshot.stream.name, _warn_of, tag)
        return list(found)

    def check_stream_exists(self, scope_name: str, stream_name: str) -> bool:
        """Whether a stream exists now."""
        stream = self._catalog.stream(scope_name, stream_name)
        stream.container.refresh()
        return stream.exists()

    def create_key_value_table(
        self, scope_name: str, table_name: str, configuration: KeyValueTableConfiguration
    ) -> bool:
        """Create a key-value table. False if it exists, even with another configuration. Raises ScopeNotFound."""
        self.root.check_writable()
        return self._catalog.create_key_value_table(scope_name, table_name, configuration)

    def key_value_table(self, scope_name: str, table_name: str) -> KeyValueTable:
        """Open a key-value table, to read and update its entries. Raises KeyValueTableNotFound.

        That of a Pravega's long-term storage: `read_key_value_table`.
        """
        self.root.check_writable()
        return KeyValueTable(self._catalog.key_value_table(scope_name, table_name), self._check_open)

    def key_value_table_info(self, scope_name: str, table_name: str) -> KeyValueTableInfo:
        """Describe a key-value table: its configuration, and what it has now. Raises KeyValueTableNotFound."""
        self.root.check_writable()
        return self._catalog.key_value_table(scope_name, table_name).describe()

    def key_value_table_exists(self, scope_name: str, table_name: str) -> bool:
        """Whether a key-value table exists now."""
        return table_name in key_value_tables(self.root, validate_scope_name(scope_name))

    def delete_key_value_table(self, scope_name: str, table_name: str) -> bool:
        """Delete a key-value table with all of its entries. False if it does not exist."""
        self.root.check_writable()
        return self._catalog.key_value_table(scope_name, table_name).delete()

    def list_key_value_table(self, scope_name: str) -> list[str]:
        """The names of a scope's key-value tables, sorted. Raises ScopeNotFound."""
        self._catalog.check_scope(scope_name)
        return key_value_tables(self.root, scope_name)

    def read_key_value_table(self, scope_name: str, table_name: str) -> Iterator[KeyValueTableEntry]:
        """The live entries of a key-value table: keys, value and version. Also of one in a Pravega's long-term storage.

        Raises KeyValueTableNotFound.
        """
        return key_value_table_entries(self.root, scope_name, table_name)

    def seal_stream(self, scope_name: str, stream_name: str) -> bool:
        """Seal the stream: it can be read and deleted, but not written. True, also if it was sealed before."""
        self._catalog.stream(scope_name, stream_name).seal()
        return True

    def delete_stream(self, scope_name: str, stream_name: str) -> bool:
        """Delete a sealed stream and its data. Raises StreamNotSealed."""
        self._catalog.stream(scope_name, stream_name).delete()
        return True

    def stream_info(self, scope_name: str, stream_name: str) -> StreamInfo:
        """Describe a stream as it is now."""
        return self._catalog.stream(scope_name, stream_name).query(_described)

    def stream_infos(
        self,
        scope_name: str,
        unreadable: Callable[[str, DataCorruption], None] | None = None,
        tag: str | None = None,
    ) -> Iterator[StreamInfo]:
        """Describe each stream of a scope, or each with a tag, in the order of their names. Raises ScopeNotFound.

        unreadable: called for each stream of which something cannot be understood, with its name and the error, which
        says how to remove it. Without it, the first such error is raised once all other streams were described.
        """
        self._catalog.check_scope(scope_name)
        return self._catalog.query(scope_name, _described, unreadable, tag)

    def page(self, scope_name: str | None = None, stream_name: str | None = None) -> InlinePage:
        """The pages of `pravega-spark serve` in a notebook: all streams and the root, or one stream. Needs no server.

        Raises ImportError without jinja2 (extra `serve`), ValueError for a stream without its scope.
        """
        from pravega_spark.serve.inline import inline_page  # needs more than most programs do

        return inline_page(self, scope_name, stream_name)

    def stream_timeline(
        self, scope_name: str, stream_name: str, cuts: Mapping[str, PositionLike] | None = None
    ) -> Timeline:
        """When the segments of a stream were created and sealed, when their events came, and where head, tail, `cuts`
        (positions, by any names), subscribers and reader groups of its scope are; `stream_picture` draws it.

        Raises InvalidStreamCut.
        """
        places = {name: parse_position(place) for name, place in (cuts or {}).items()}
        groups = group_positions(self.root, scope_name, stream_name)

        def found(snapshot: Snapshot) -> Timeline:
            held = positions(snapshot, refresh=False)
            consumers = {f"reader group {name}": cut for name, cut in groups.items()}
            consumers |= {f"subscriber {name}": it.cut for name, it in held.items() if groups.get(name) != it.cut}
            return timeline(snapshot, places, consumers=consumers)

        return self._catalog.stream(scope_name, stream_name).query(found)

    def truncate_stream(self, scope_name: str, stream_name: str, cut: PositionLike) -> None:
        """Delete the events before `cut`, which becomes the head. Raises InvalidStreamCut, also for a time in
        the future, and StreamSealed."""
        stream, place = self._catalog.stream(scope_name, stream_name), parse_position(cut)
        stream.truncate(stream.query(lambda snapshot: cut_to_truncate(place, snapshot)))

    def retain(
        self, scope_name: str, stream_name: str, period: DurationLike | None = None, dry_run: bool = False
    ) -> Retained:
        """Apply the stream's retention policy, if its last recorded cut is `period` old.

        period: seconds, or a text such as "30m", the default. dry_run: only return what would be done; `why` is the
        reason where nothing is truncated.
        """
        wanted = retention.PERIOD if period is None else parse_seconds(period)
        if wanted < 0:
            raise ValueError(f"period must be 0 seconds or more, not {period!r}")
        return retention.retain(self._catalog.stream(scope_name, stream_name), period=wanted, dry_run=dry_run)

    def remove_subscriber(self, scope_name: str, stream_name: str, subscriber: str) -> bool:
        """Let retention wait no more for a subscriber, as `stream_info(…).subscribers` names it: a query that runs no
        more, for example. False if there is none of this name. Raises StreamNotFound.
        """
        stream = self._catalog.stream(scope_name, stream_name)
        stream.snapshot()
        return unsubscribe(stream, subscriber)

    # --- stream cuts -------------------------------------------------------------------------------------------

    def next_stream_cut(
        self, scope_name: str, stream_name: str, cut: PositionLike, approx_bytes: SizeLike
    ) -> StreamCut:
        """A cut about `approx_bytes` after `cut`, or the tail. It may be some 16 KiB further in each segment.

        It is not beyond the end of a segment that was replaced in a scale, as in Pravega: the next call goes on in the
        successors, once all segments that they succeed were read to their ends. So the segments of the range between
        the two cuts can be read in any order, and in parallel.

        approx_bytes: bytes, or a text such as "10MiB". Raises InvalidStreamCut, and TruncatedData if the head is after
        `cut`.
        """
        size, place = parse_size(approx_bytes), parse_position(cut)
        if size <= 0:
            raise ValueError(f"approx_bytes must be at least 1, not {approx_bytes}")
        return self._catalog.stream(scope_name, stream_name).query(lambda snapshot: _next_cut(snapshot, place, size))

    def stream_cut_at(self, scope_name: str, stream_name: str, timestamp: TimeLike) -> StreamCut:
        """The cut before the first event written at `timestamp` or later.

        timestamp: ms since the epoch, a datetime with a zone, or a text: ISO 8601, or a time ago such as "5m". Some
        events written shortly before may follow the cut too. Raises ValueError for what is no time.
        """
        moment = parse_time(timestamp)
        return self._catalog.stream(scope_name, stream_name).query(lambda snapshot: snapshot.cut_at(moment))

    def time_window(self, scope_name: str, stream_name: str, cut: PositionLike) -> TimeWindow:
        """The bounds of the times of the events at a position, as writers noted them by `note_time` and `commit`.

        Events after the position were written when all writers that are waited for had noted the lower bound or a later
        time. Raises InvalidStreamCut.
        """
        self.root.check_writable()
        place = parse_position(cut)
        return self._catalog.stream(scope_name, stream_name).query(
            lambda snapshot: time_window(snapshot, cut_at(place, snapshot))
        )

    def lag(self, cut: CutLike) -> Lag:
        """How far a cut, or its text, lies behind the tail of its stream: in bytes, in events and in time, across
        scales.

        The cut may be that of a reader, a reader group, or one of `head`, `stream_cut_at` and so on. Raises
        InvalidStreamCut.
        """
        found = parse_cut(cut)
        if found == UNBOUNDED:
            raise InvalidStreamCut("cut: UNBOUNDED does not say of which stream: give a stream cut, or its text")
        return self._catalog.stream(found.scope, found.stream).query(lambda snapshot: lag(snapshot, found))

    def distance(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        end: PositionLike | None = None,
    ) -> int:
        """The bytes of the events between two positions, headers included, by default from head to tail.

        Raises InvalidStreamCut, also if `end` is before `start`, and TruncatedData if the head is after `start`.
        """
        begin, finish = _range(start, end)
        return self._catalog.stream(scope_name, stream_name).query(lambda snapshot: _distance(snapshot, begin, finish))

    def list_reader_group(self, scope_name: str) -> list[str]:
        """The names of a scope's reader groups, sorted. Raises ScopeNotFound."""
        self._catalog.check_scope(scope_name)
        return group_names(self.root, scope_name)

    def reader_group_cuts(self, reader_group_name: str, scope_name: str) -> list[StreamCut]:
        """Where a reader group stands: a cut of each of its streams, as its readers recorded it.

        In a Pravega's long-term storage, where it was last known to be. Raises GroupNotFound.
        """
        return group_cuts(self.root, scope_name, reader_group_name)

    def group_lag(self, reader_group_name: str, scope_name: str) -> dict[str, Lag]:
        """How far a reader group lies behind the tails of its streams, by "scope/stream", as its readers recorded it.

        Raises GroupNotFound.
        """
        cuts = group_cuts(self.root, scope_name, reader_group_name)
        return {f"{cut.scope}/{cut.stream}": self.lag(cut) for cut in cuts}

    # --- events ------------------------------------------------------------------------------------------------

    def create_writer(
        self, scope_name: str, stream_name: str, max_inflight_events: int = 0, *, producer: str | None = None
    ) -> EventWriter:
        """A writer of events. `max_inflight_events` is accepted and ignored. Raises StreamSealed.

        producer: the id of a producer that numbers its events, for exactly-once writes across restarts. The writer's
        `last_number` is the number of its last durable event, also of an earlier process.
        """
        self.root.check_writable()
        if producer is not None:
            encoded(producer, "producer")
        writer = EventWriter(self._catalog.stream(scope_name, stream_name), producer)
        self._writers.add(writer)
        return writer

    def write_events(
        self,
        scope_name: str,
        stream_name: str,
        data: object,
        *,
        value_format: ValueFormat | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        on_changed_replay: OnChangedReplay = "skip",
        accept_lost_batches: bool = False,
    ) -> bool:
        """Write all events of a table in one atomic step, durable on return. If the call fails, no event is written; if
        OutcomeUnknown is raised, all are or none is.

        data: a pyarrow.Table or RecordBatchReader, a DataFrame of polars or pandas, a result of DuckDB, an EventRange,
        or anything else with Arrow's C stream interface. Column `event` has strings or bytes, and `routing_key`, which
        may be missing, strings or nulls. A reader of any length takes bounded memory. Events of a key keep their order.

        value_format: makes an event of all other columns of a row, instead of column `event`: the format that the
        stream keeps, `manager.value_format(scope, stream)`, if it keeps one.

        txn_app_id, txn_version: a name for the caller, and a number that grows with each of its writes. A version that
        was written before is not written again; the call returns False. on_changed_replay: what to do if it had other
        events: "skip" them and log a warning, "fail" with ReplayChanged, or "write" them. accept_lost_batches: write
        although the root was restored and has lost earlier versions, instead of raising WritesLost. All as the options
        of a write by Spark.

        Raises TypeError, ValueError for other data; StreamSealed, ReplayChanged, WritesLost, ChunksExpired.
        """
        self.root.check_writable()
        producer = producer_of(txn_app_id, txn_version, on_changed_replay, accept_lost_batches)
        return write_frame(self._catalog.stream(scope_name, stream_name), data, producer, value_format)

    def begin_event(
        self, scope_name: str, stream_name: str, routing_key: str | None = None, *, name: str | None = None
    ) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file and appears in the stream when it is committed.

        name: lets any process continue an interrupted upload, from `tell` on, until it has been idle for the root's
        `transient_idle_seconds`; the process that wrote it before gets EventTaken. A committed name is never accepted
        again. Raises EventExists, StreamSealed; ValueError for another routing key than the upload was begun with.
        """
        stream = self._catalog.stream(scope_name, stream_name)
        event = LargeEvent(stream, uploads.begin(stream, routing_key, name))
        self._writers.add(event)
        return event

    def create_transaction_writer(
        self, scope_name: str, stream_name: str, writer_id: int = 0
    ) -> StreamTransactionWriter:
        """A writer that begins transactions on a stream. `writer_id` is accepted and ignored."""
        return StreamTransactionWriter(self._catalog.stream(scope_name, stream_name), self._check_open)

    def list_completed_transactions(self, scope_name: str, stream_name: str) -> list[CompletedTransaction]:
        """The transactions of a stream that were committed or aborted, the last one first.

        They are remembered for a day, by `maintain`, and by processes that write to the stream.
        """
        stream = self._catalog.stream(scope_name, stream_name)
        stream.snapshot()
        return completed_transactions(stream)

    def create_byte_stream(self, scope_name: str, stream_name: str) -> ByteStream:
        """A stream with one segment and no events, as bytes. Raises ByteStreamError for other streams."""
        opened = ByteStream(self._catalog.stream(scope_name, stream_name))
        self._writers.add(opened)
        return opened

    def create_revisioned_stream_client(
        self, scope_name: str, stream_name: str, serializer: Serializer[Any] | None = None
    ) -> RevisionedStreamClient[Any]:
        """A client of a stream with one segment, whose writes can depend on all that was written before.

        serializer: of the values, by default bytes. Raises StreamSealed, NotOneSegment.
        """
        self.root.check_writable()
        stream = RevisionedStream(self._catalog.stream(scope_name, stream_name))
        return RevisionedStreamClient(stream, serializer or BYTES, self._check_open)

    def create_state_synchronizer(
        self,
        scope_name: str,
        stream_name: str,
        update_serializer: Serializer[Any],
        init_serializer: Serializer[Any],
    ) -> StateSynchronizer[Any]:
        """State that processes share by the updates in a stream with one segment, to which nothing else is written.

        update_serializer, init_serializer: of updates and of initial updates. Raises StreamSealed, NotOneSegment.
        """
        client = self.create_revisioned_stream_client(scope_name, stream_name)
        return StateSynchronizer(client, f"{scope_name}/{stream_name}", update_serializer, init_serializer)

    # --- reader groups -----------------------------------------------------------------------------------------

    def create_reader_group(
        self,
        reader_group_name: str,
        scope_name: str,
        stream_name: str,
        read_from_tail: bool = False,
        stream_cut: PositionLike | StreamCuts | None = None,
    ) -> StreamReaderGroup:
        """A reader group for a stream, from its head, its tail or any position. An existing group keeps its positions.

        Raises ScopeNotFound, InvalidStreamCut; StreamError if the group exists with another configuration.
        """
        cut = stream_cut.stream_cut if isinstance(stream_cut, StreamCuts) else stream_cut
        config = StreamReaderGroupConfig(read_from_tail, scope_name, stream_name, start=() if cut is None else cut)
        return self.create_reader_group_with_config(reader_group_name, scope_name, config)

    def create_reader_group_with_config(
        self, reader_group_name: str, scope_name: str, rg_config: StreamReaderGroupConfig
    ) -> StreamReaderGroup:
        """A reader group for the streams of a configuration, which may be in another scope than the group."""
        self._catalog.check_scope(scope_name)
        group = StreamReaderGroup(create_group(self.root, scope_name, reader_group_name, rg_config))
        self._writers.add(group)
        return group

    def get_reader_group(self, reader_group_name: str, scope_name: str) -> StreamReaderGroup:
        """An existing reader group, whatever its configuration. Raises GroupNotFound."""
        group = StreamReaderGroup(open_group(self.root, scope_name, reader_group_name))
        self._writers.add(group)
        return group

    def delete_reader_group(self, reader_group_name: str, scope_name: str) -> None:
        """Delete a reader group and take its readers offline. Raises GroupNotFound."""
        delete_group(self.root, scope_name, reader_group_name)

    # --- reading -----------------------------------------------------------------------------------------------

    def read_events(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        end: PositionLike | None = None,
        value_format: ValueFormat | None = None,
        on_malformed: OnMalformed = "fail",
    ) -> EventRange:
        """The events between two positions, by default all that exist now: segment by segment, in order within each.

        A segment follows all of its predecessors, so the events of each key keep their order. The range is resolved by
        the call, not by the iteration. What is returned also gives columns: `to_batches`, `to_arrow`, `to_pandas` (see
        EventRange). Raises InvalidStreamCut, TruncatedData (also while iterating).

        value_format: decode the fields of structured events into columns, in the place of column "event". That of the
        stream, if it keeps one: `manager.value_format(scope, stream)`. on_malformed: "fail" raises MalformedEvent for
        an event that is no value of it, "null" makes its fields null.
        """
        stream, (begin, finish) = self._catalog.stream(scope_name, stream_name), _range(start, end)
        return read_events(stream, begin, finish, self._check_open, _value_columns(value_format, on_malformed))

    def to_arrow(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        end: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        value_format: ValueFormat | None = None,
        on_malformed: OnMalformed = "fail",
    ) -> pa.Table:
        """The events between two positions as a table, by default all that exist now. See `read_events` and EventRange.

        For more than fits in memory: `read_events(…).to_batches()`.
        """
        events = self.read_events(scope_name, stream_name, start, end, value_format, on_malformed)
        return events.to_arrow(columns)

    def segment_ranges(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        end: PositionLike | None = None,
        max_bytes: SizeLike = "64MiB",
    ) -> tuple[SegmentRange, ...]:
        """The ranges of segments between two positions, by default all that exist now, which any processes can read by
        themselves: with `read_segment` of managers of their own. A range is a small value that can be pickled.

        Events of each key are in order if of two ranges with common keys (see SegmentRange) the earlier one in the
        result is read first; all others can be read in any order, and in parallel. A range ends at an event boundary of
        the index, so some are a quarter larger than `max_bytes` (bytes, or a text such as "64MiB"). Raises
        InvalidStreamCut, TruncatedData.
        """
        size = parse_size(max_bytes)
        if size <= 0:
            raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
        return segment_ranges(self._catalog.stream(scope_name, stream_name), *_range(start, end), size)

    def read_segment(
        self,
        segment_range: SegmentRange,
        value_format: ValueFormat | None = None,
        on_malformed: OnMalformed = "fail",
    ) -> EventRange:
        """The events of a range that `segment_ranges` returned in any process. See `read_events` and EventRange.

        Raises StreamRecreated if another stream has the name now, PositionLost if the root was restored from a copy
        without this range, TruncatedData (also while iterating).
        """
        stream = self._catalog.stream(segment_range.scope, segment_range.stream)
        return read_segment(stream, segment_range, self._check_open, _value_columns(value_format, on_malformed))

    def last_events(self, scope_name: str, stream_name: str, n: int = 10) -> LastEvents:
        """The last `n` events of a stream in the order in which they were appended, oldest first; notebooks show them.

        What one writer wrote comes in its order, whatever the segments. Of each segment at most `n` events are read.
        Raises ValueError for an `n` below 1.
        """
        return last_events(self._catalog.stream(scope_name, stream_name), n)

    def tail(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        poll_interval: DurationLike = 0.2,
        stop: threading.Event | Callable[[], bool] | None = None,
    ) -> Tail:
        """Follow a stream from the position `start`, by default from its current tail: an iterator of events, and an
        asynchronous one. In an event loop, prefer `tail_async`: this call blocks while it looks up the position.

        poll_interval: seconds, or a text such as "1m", between polls of a stream without new events, at most; a poll
        reads one object, and all followers of this manager share it.
        stop: ends the iteration at the next poll once it is set or returns true. Without it, the iteration ends when
        the stream is sealed and everything was read. Raises the errors of `read_events`.
        """
        begin, interval = _tail_of(start, poll_interval)
        stream = self._catalog.stream(scope_name, stream_name)
        return Tail(begin_following(stream, begin, interval, self._check_open), stream.key, stop, self._check_open)

    # --- event loops -------------------------------------------------------------------------------------------

    def create_async_writer(
        self, scope_name: str, stream_name: str, *, producer: str | None = None
    ) -> AsyncEventWriter:
        """A writer for coroutines of an event loop: `async with manager.create_async_writer(…) as writer`.

        The call makes no request; `async with` opens the stream, and raises as `create_writer`.
        """
        self._check_open()
        if producer is not None:
            encoded(producer, "producer")
        create = partial(self.create_writer, scope_name, stream_name, producer=producer)
        return AsyncEventWriter(create, _checked_name(scope_name, stream_name))

    def tail_async(
        self,
        scope_name: str,
        stream_name: str,
        start: PositionLike | None = None,
        poll_interval: DurationLike = 0.2,
        stop: threading.Event | Callable[[], bool] | None = None,
    ) -> AsyncTail:
        """Follow a stream in an event loop: `async for event in manager.tail_async(…)`. Parameters as of `tail`.

        The call makes no request; the iteration begins at the first event, or with `async with`, and raises as `tail`.
        """
        self._check_open()
        begin, interval = _tail_of(start, poll_interval)

        def begun() -> Follower:
            return begin_following(self._catalog.stream(scope_name, stream_name), begin, interval, self._check_open)

        return AsyncTail(begun, _checked_name(scope_name, stream_name), stop, self._check_open)

    def open_event(self, pointer: EventPointer | str) -> EventFile:
        """Open the payload of an event of any size as a binary file; see EventFile.

        pointer: as readers, writers and the Spark source return it, or its text. Raises NoSuchEvent if the event was
        truncated, InvalidEventPointer if it is not the position of an event, ValueError for malformed text.
        """
        opened = open_event_file(self.root, pointer)
        self._writers.add(opened)
        return opened


def _described(snapshot: Snapshot) -> StreamInfo:
    subscribers = positions(snapshot, refresh=False)
    return StreamInfo(
        snapshot.stream.scope,
        snapshot.stream.name,
        snapshot.head_cut(),
        snapshot.tail_cut(),
        snapshot.size(),
        snapshot.events(),
        snapshot.record.current.segments,
        snapshot.record.epochs,
        snapshot.record.sealed,
        {name: lag(snapshot, found.cut) for name, found in subscribers.items()},
        {name: found.problem for name, found in subscribers.items() if found.problem},
        snapshot.record.scaling,
        snapshot.record.retention,
        snapshot.record.tags,
    )


def _range(start: PositionLike | None, end: PositionLike | None) -> tuple[StreamPosition, StreamPosition]:
    return "head" if start is None else parse_position(start), "tail" if end is None else parse_position(end)


def _checked_name(scope_name: str, stream_name: str) -> str:
    """The full name of a stream. Raises ValueError for a name that no stream can have."""
    return f"{validate_scope_name(scope_name)}/{validate_stream_name(stream_name)}"


def _value_columns(value_format: ValueFormat | None, on_malformed: OnMalformed) -> ValueColumns | None:
    return None if value_format is None else ValueColumns.of(value_format, on_malformed)


def _distance(snapshot: Snapshot, start: StreamPosition, end: StreamPosition) -> int:
    wanted = snapshot.ranges(cut_at(start, snapshot, "head"), cut_at(end, snapshot, "tail"))
    ranges, _ = snapshot.available(wanted)
    return sum(high - low for low, high in ranges.values())


def _warn_of(name: str, error: DataCorruption) -> None:
    logger.warning("%s", str(error))


def _tail_of(start: PositionLike | None, poll_interval: DurationLike) -> tuple[StreamPosition, float]:
    """Where a tail begins, and the seconds between its polls. Raises ValueError."""
    interval = parse_seconds(poll_interval)
    if interval < 0:
        raise ValueError(f"poll_interval must be 0 seconds or more, not {poll_interval!r}")
    return "tail" if start is None else parse_position(start), interval


def _next_cut(snapshot: Snapshot, place: StreamPosition, approx_bytes: int) -> StreamCut:
    cut, tail = cut_at(place, snapshot), snapshot.tail_cut()
    snapshot.available(snapshot.ranges(cut, tail))
    return snapshot.next_cut_of_stage(cut, tail, approx_bytes)
