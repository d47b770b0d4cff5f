"""Verification of the long-term storage of a Pravega: damage, and what is not known of it."""

from __future__ import annotations

from collections.abc import Callable

from chunkstore import StorageError
from chunkstore.errors import fact_of
from chunkstore.pravega.source import ArchiveDamaged
from engine.admin.checks.container_scan import ContainerScan
from engine.admin.checks.findings import Finding, Findings, Severity
from engine.admin.checks.log_check import LogCounts
from engine.admin.progress import Progress
from engine.admin.verify import Report
from engine.state.segments import EVENT_COUNT
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.events import InvalidEvent
from pravega_spark.streams.pravega_lts.container import PravegaContainer
from pravega_spark.streams.reading.foreign_root import ForeignRoot

_RESTORE = "restore the object from a copy, or read what is sound with --salvage"
_NOT_FLUSHED = "nothing can be done: it was never flushed to long-term storage"


def verify_pravega_root(
    root: ForeignRoot, opened: Callable[[], PravegaContainer], progress: Progress, deep: bool
) -> Report:
    """Verify all of a storage: every segment's objects, every stream's records and cuts; with `deep` every event.

    Damage is an error, missing information a warning. Raises StorageError if the storage fails.
    """
    findings = Findings()
    try:
        container = opened()
    except ArchiveDamaged as error:
        findings.add(_error(root.stores.chunks.root, error))
        return Report(findings, (), (), None, deep, ours=False)
    archive = container.archive
    for problem in archive.problems():
        findings.add(_error(_object(problem), problem))
    for text in (*archive.findings, *container.streams.unknown):
        findings.add(_unknown(container.archive.where, text))
    catalog = Catalog(root)
    for scope in catalog.scopes():
        try:
            names = sorted(catalog.streams(scope))
            tables = container.streams.key_value_tables(scope)
        except ArchiveDamaged as error:
            findings.add(_error(_object(error), error))
            continue
        for place, name in enumerate(names):
            progress(f"stream {scope}/{name}", place, len(names))
            _check_stream(container, catalog, scope, name, deep, findings)
        for name in tables:
            _check_table(container, scope, name, findings)
    for text in map(str, container.losses):
        findings.add(_error(container.archive.where, text))
    segments = archive.segments().values()
    chunks = sum(len(segment.chunks) for segment in segments)
    size = sum(segment.length - segment.start_offset for segment in segments)
    survey = ContainerScan(0, 0, len(segments), size, chunks, len(archive.tables), 0, 0)
    return Report(findings, ((survey, LogCounts(0, 0, 0)),), (), None, deep, ours=False)


def _check_stream(
    container: PravegaContainer, catalog: Catalog, scope: str, name: str, deep: bool, findings: Findings
) -> None:
    try:
        snapshot = catalog.stream(scope, name).snapshot()
        for text in snapshot.record.unknown:
            findings.add(_unknown(f"{scope}/{name}", text))
        snapshot.segments.load(snapshot.record.segment_ids())
        for cut in (snapshot.head_cut(), snapshot.tail_cut()):
            snapshot.check(cut)
        for number in snapshot.record.segment_ids() if deep else ():
            _ = snapshot.segments.segment(number).attributes.get(EVENT_COUNT, 0)
    except (StorageError, InvalidEvent, InvalidStreamCut) as error:
        findings.add(_error(f"{scope}/{name}", error))


def _check_table(container: PravegaContainer, scope: str, name: str, findings: Findings) -> None:
    try:
        table = container.streams.key_value_table(scope, name)
        for text in table.records.unknown if table.records is not None else ("its configuration is not known",):
            findings.add(_unknown(f"{scope}/{name}", text))
        for _ in table.entries():
            pass
    except StorageError as error:
        findings.add(_error(f"{scope}/{name}", error))


def _object(error: Exception) -> str:
    """The object that the message of an error names first."""
    parts = fact_of(error).split("'")
    return parts[1] if len(parts) > 2 else fact_of(error).partition(":")[0]


def _error(name: str, problem: object) -> Finding:
    return Finding(Severity.ERROR, None, name, str(problem), _RESTORE)


def _unknown(name: str, text: str) -> Finding:
    return Finding(Severity.WARNING, None, name, text, _NOT_FLUSHED)
