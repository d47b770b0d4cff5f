"""The import of a Pravega's long-term storage into a root: a report of what would be imported, and the import
itself.

Streams are imported with their policies, tags, epochs, segment ids, offsets and cuts (`stream_import`). Not
imported, and listed in the report: Pravega's own streams (`_…`), deleted streams, open transactions, and features
without a counterpart. The source is only read. No Pravega may write to it meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple

from chunkstore import Range, StorageError, StorageRefused, Store
from chunkstore.errors import fact_of
from chunkstore.paths import MARKERS
from chunkstore.pravega.source import ArchiveDamaged
from engine.admin.progress import Progress, no_progress
from engine.errors import EngineError
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark.errors import StreamError, StreamNotFound
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.names import validate_scope_name
from pravega_spark.streams.pravega_lts.container import PravegaContainer
from pravega_spark.streams.pravega_lts.read_only import ReadOnlyStore
from pravega_spark.streams.pravega_lts.segment_import import SIZES, SegmentContent, SegmentImport, SegmentSource, Sizes
from pravega_spark.streams.pravega_lts.stream_import import ImportRefused, StreamImport, StreamPlan, plan_stream
from pravega_spark.streams.pravega_lts.table_import import ImportedTable, TableImport
from pravega_spark.streams.pravega_lts.unfinished_imports import Begun
from pravega_spark.streams.reading.suggestions import similar_names

AT_ONCE = 4
"""Segments that are imported in parallel."""

_DECLARED = (StreamError, EngineError, StorageError)  # other errors are bugs, and stop the import
_SALVAGE = "import what is sound with --salvage"
_INTERNAL = "_"
_GROUP = "_RG"


class ImportedStream(NamedTuple):
    """The outcome of an import for a stream. Numbers are those of its live data.

    outcome: `new`: would be imported; `present`: was imported before; `imported`; `refused`, `failed`: with a
    problem. events: None if they were not counted. transactions: open ones, which are not imported. unknown: missing
    information, in words. not_imported: what is lost of its segments, or left out, by offsets. recovered: what is
    imported although no metadata records it, by offsets.
    """

    scope: str
    stream: str
    outcome: Literal["new", "present", "imported", "refused", "failed"]
    segments: int = 0
    chunks: int = 0
    bytes: int = 0
    events: int | None = None
    transactions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    problem: str | None = None
    not_imported: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()


class ImportReport(NamedTuple):
    """An import, or what it would do. left_out: what else is not imported, in words. unknown: missing information
    about the whole storage, in words. scopes: those that are imported as a whole, with or without streams. tables: the
    key-value tables."""

    source: str
    streams: tuple[ImportedStream, ...]
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    tables: tuple[ImportedTable, ...] = ()

    @property
    def empty_scopes(self) -> list[str]:
        """The imported scopes without any importable stream."""
        return sorted(set(self.scopes) - {each.scope for each in self.streams})

    @property
    def failed(self) -> list[ImportedStream | ImportedTable]:
        """The streams and tables that cannot be, or were not, imported."""
        found: list[ImportedStream | ImportedTable] = [*self.streams, *self.tables]
        return [each for each in found if each.problem is not None]


class ImportIncomplete(StreamError):
    """Some streams were not imported. report: the outcome for each, with the reasons."""

    def __init__(self, report: ImportReport) -> None:
        failed = report.failed
        count = f"{len(report.streams)} streams"
        if report.tables:
            count += f" and {len(report.tables)} key-value tables"
        super().__init__(f"{len(failed)} of {count} were not imported: {failed[0].problem}")
        self.report = report


class SegmentTask(NamedTuple):
    """A segment to import. Plain values, so it can be pickled."""

    begun: Begun
    segment: SegmentSource
    copied: bool
    sizes: Sizes


Brought = SegmentContent | Exception
Bring = Callable[[Sequence[SegmentTask]], Iterable[Brought]]
"""Imports segments, in the order of the tasks. Returns the failures."""


class Import:
    """An import from the store `source`. names: scopes, and streams as "scope/stream"; empty: all. byte_streams:
    streams, as "scope/stream", whose bytes are not events. salvage: import what is sound of damaged streams, and report
    the rest. unrecorded: import also the whole events that a killed server did not record in its metadata.

    Raises StorageRefused if there is no long-term storage, ScopeNotFound, StreamNotFound, ArchiveDamaged,
    StorageError.
    """

    def __init__(
        self,
        source: Store,
        names: Collection[str] = (),
        byte_streams: Collection[str] = (),
        copied: bool = False,
        sizes: Sizes = SIZES,
        *,
        salvage: bool = False,
        unrecorded: bool = False,
    ) -> None:
        self.source = source
        self.copied = copied
        self._sizes = sizes
        self._container = _opened(source, salvage, unrecorded, byte_streams)
        self._streams = self._container.streams
        self._byte_streams = byte_streams
        self._left_out: list[str] = []
        self._scopes: set[str] = set()
        self._refused: dict[str, ImportedStream] = {}
        self._plans: dict[str, StreamPlan] = {}
        self._tables: dict[str, TableImport] = {}
        for key in self._selected(names):
            self._plan(key)
        for key in set(byte_streams) - self._plans.keys() - self._refused.keys():
            raise StreamNotFound(key, similar_names(self._plans, key), read_only=True)

    def _selected(self, names: Collection[str]) -> list[str]:
        """The selected streams, as "scope/stream"; other items of their scopes are listed as left out."""
        chosen: set[str] = set()
        scopes = [scope for scope in self._streams.scopes() if not scope.startswith(_INTERNAL)]
        for name in names or scopes:
            scope, separator, stream = name.partition("/")
            if separator and self._is_table(scope, stream):
                self._choose_table(scope, stream)
            elif separator:
                self._streams.stream(scope, stream)  # raises ScopeNotFound, StreamNotFound
                chosen.add(name)
            else:
                try:
                    self._scopes.add(validate_scope_name(scope))
                except ValueError as error:
                    self._left_out.append(f"scope {scope}: it has no valid counterpart: {error}")
                chosen.update(f"{scope}/{each}" for each in self._public(scope))
        return sorted(chosen)

    def _public(self, scope: str) -> Iterator[str]:
        for name in self._streams.streams(scope):
            if name.startswith(_GROUP):
                self._left_out.append(self._group(scope, name.removeprefix(_GROUP)))
            elif not name.startswith(_INTERNAL):
                yield name
        for name in self._streams.key_value_tables(scope):
            self._choose_table(scope, name)

    def _is_table(self, scope: str, name: str) -> bool:
        """Whether a name is that of a key-value table, and of no stream."""
        known = scope in self._streams.scopes()
        return known and name in self._streams.key_value_tables(scope) and name not in self._streams.streams(scope)

    def _choose_table(self, scope: str, name: str) -> None:
        self._tables[f"{scope}/{name}"] = TableImport(self._streams.key_value_table(scope, name))

    def _group(self, scope: str, group: str) -> str:
        """The notice about a reader group: it is not imported, but a new one can begin at its position."""
        try:
            cuts = self._streams.reader_group_cuts(scope, group)
        except StreamNotFound:
            cuts = []
        except ArchiveDamaged as error:
            return f"reader group {scope}/{group}: where it stood cannot be read: {fact_of(error)}"
        if not cuts:
            return f"reader group {scope}/{group}: where it stood was not flushed; begin a new one at a stream cut"
        places = ", ".join(f"{cut.scope}/{cut.stream} at {cut.as_text()}" for cut in cuts)
        return f"reader group {scope}/{group}: begin a new one where it stood: {places}"

    def _plan(self, key: str) -> None:
        scope, _, name = key.partition("/")
        try:
            self._plans[key] = plan_stream(self._container, key, events=key not in self._byte_streams)
        except (ImportRefused, ArchiveDamaged) as error:
            self._refused[key] = ImportedStream(scope, name, "refused", problem=fact_of(error))

    def report(self, root: Root | None, place: str = "") -> ImportReport:
        """The report for a root, or for a new one in `place`. Raises StorageRefused as `run` does, StorageError."""
        if root is not None:
            check_apart(root, self.source)
        elif place:
            check_place(place, self.source)
        found = dict(self._refused)
        for key, plan in self._plans.items():
            found[key] = self._found(root, plan)
        return self._reported(found, [self._tables[key].found(root) for key in sorted(self._tables)])

    def _found(self, root: Root | None, plan: StreamPlan) -> ImportedStream:
        try:
            done = root is not None and StreamImport(root, plan, self.copied).is_done()
        except StreamError as error:
            return _outcome(plan, "refused", problem=fact_of(error))
        return _outcome(plan, "present" if done else "new")

    def _reported(self, found: Mapping[str, ImportedStream], tables: Sequence[ImportedTable]) -> ImportReport:
        archive = self._streams.archive
        unknown = (*archive.left_over, *archive.findings, *self._streams.unknown)
        streams, scopes = tuple(found[key] for key in sorted(found)), tuple(sorted(self._scopes))
        return ImportReport(self.source.root, streams, tuple(self._left_out), unknown, scopes, tuple(tables))

    def run(self, root: Root, bring: Bring | None = None, progress: Progress = no_progress) -> ImportReport:
        """Import all streams. A failure of one stream does not stop the others. Can be repeated after a crash, and
        continues. bring: imports the segments, by default this process. Raises StorageRefused, StorageError."""
        check_apart(root, self.source)
        for scope in sorted(self._scopes):
            Catalog(root).create_scope(scope)
        found = dict(self._refused)
        begun: list[tuple[StreamImport, Begun]] = []
        for key, plan in self._plans.items():
            one = StreamImport(root, plan, self.copied)
            found[key] = self._found(root, plan)
            if found[key].outcome == "new":
                Catalog(root).create_scope(plan.scope)
                begun.append((one, one.begin()))
            elif found[key].outcome == "present":
                one.finish()
        tasks = [
            SegmentTask(each, segment, self.copied, self._sizes) for one, each in begun for segment in one.plan.segments
        ]
        total = sum(task.segment.end - task.segment.start for task in tasks)
        told = _Told(progress, total)
        one_here = partial(bring_segment, self.source, root.stores.chunks, told=told)
        # The pool is shut down here, never by the garbage collector, which may run while a pool is locked.
        with ThreadPoolExecutor(AT_ONCE if root.settings.threaded else 1, "segments") as pool:
            try:
                brought = iter(bring(tasks) if bring is not None else pool.map(one_here, tasks))
                for one, each in begun:
                    found[one.plan.key] = _committed(one, each, [next(brought) for _ in one.plan.segments])
            finally:
                told.stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
        return self._reported(found, [self._tables[key].run(root) for key in sorted(self._tables)])


def _outcome(plan: StreamPlan, outcome: Any, events: int | None = None, problem: str | None = None) -> ImportedStream:
    transactions = tuple(str(each.id) for each in plan.transactions)
    numbers = len(plan.segments), plan.chunks, plan.bytes
    more = plan.not_imported, plan.recovered
    return ImportedStream(
        plan.scope, plan.stream, outcome, *numbers, events, transactions, plan.unknown, problem, *more
    )


def _committed(one: StreamImport, begun: Begun, brought: Sequence[Brought]) -> ImportedStream:
    contents = [content for content in brought if isinstance(content, SegmentContent)]
    try:
        for content in brought:
            if isinstance(content, Exception):
                raise content
        one.commit(begun, contents)
        one.finish()
    except _DECLARED as error:
        return _outcome(one.plan, "failed", problem=fact_of(error))
    return _outcome(one.plan, "imported", sum(content.events for content in contents))


class _Told:
    """The progress over all segments, in bytes. stopped: raise an error at the next report."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.stopped = False
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, more: int) -> None:
        if self.stopped:
            raise CancelledError
        with self._lock:
            self._done += more
            self._progress("import", self._done, self._total)


def bring_segment(
    source: Store, target: Store, task: SegmentTask, told: Callable[[int], None] = lambda more: None
) -> Brought:
    """Import one segment; returns the failure."""
    try:
        return SegmentImport(source, target, *task, told).run()
    except _DECLARED as error:
        return error


def check_apart(root: Root, source: Store) -> None:
    """Raise StorageRefused if the root or its log is inside the source, or the other way around: gc and listings of
    one must not see the other."""
    for store in {root.stores.chunks, root.stores.log}:
        check_place(store.root, source)


def check_place(place: str, source: Store) -> None:
    """Raise StorageRefused if a root's location is inside the source, or the other way around. place: as
    `Store.root`."""
    one, other = f"{_end_of_links(place)}/", f"{_end_of_links(source.root)}/"
    if one.startswith(other) or other.startswith(one):
        raise StorageRefused(
            f"{source.root} cannot be imported into {place}: one lies in the other. Give a root beside it"
        )


def _end_of_links(place: str) -> str:
    """The location of a store; of a folder, with links resolved."""
    folder = place.removeprefix("file://")
    return os.path.realpath(folder) if folder != place else place


def _opened(store: Store, salvage: bool, unrecorded: bool, byte_streams: Collection[str]) -> PravegaContainer:
    for marker, data in zip(MARKERS, store.read_ranges([Range(marker, 0, 1) for marker in MARKERS]), strict=True):
        if data is not None:
            raise StorageRefused(
                f"{store.root} is not the long-term storage of a Pravega: {marker} says that it is a root or a backup "
                "of this program. Use `backup` and `restore` to copy a root"
            )
    read_only = ReadOnlyStore(store)
    container = PravegaContainer(Stores(read_only, read_only), salvage, unrecorded, byte_streams, _SALVAGE)
    if not container.archive.segments():
        raise StorageRefused(
            f"{store.root} is not the long-term storage of a Pravega: there is no segment in it, and no metadata of "
            "containers in _system/containers/. Give the folder or bucket that the segment stores were configured with"
        )
    return container
