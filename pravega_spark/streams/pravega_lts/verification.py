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

_RESTORE = "restore the object from a copy"
_SALVAGE = f"{_RESTORE}, or read what is sound with --salvage"
_BYTES = "if it is a byte stream, read it as one, and import it with --byte-stream {0}; otherwise "
_NOT_FLUSHED = "nothing can be done: it was never flushed to long-term storage"
_NOT_USED = "nothing need be done: a server would not use it either"
_LEFT_OUT = "nothing need be done: it is whole"
_IS_READ = "nothing need be done"


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
        findings.add(_damage(root.stores.chunks.root, error, _SALVAGE))
        return Report(findings, (), (), None, deep, ours=False)
    archive, restore = container.archive, _RESTORE if container.salvage else _SALVAGE
    for problem in archive.problems():
        findings.add(_damage(archive.where, problem, restore))
    for text in archive.left_over:
        findings.add(_warning(*_parts(archive.where, text), _NOT_USED))
    for text in (*archive.findings, *container.streams.unknown):
        findings.add(_warning(*_parts(archive.where, text), _NOT_FLUSHED))
    catalog = Catalog(root)
    for scope in catalog.scopes():
        try:
            names = sorted(catalog.streams(scope))
            tables = container.streams.key_value_tables(scope)
        except ArchiveDamaged as error:
            findings.add(_damage(archive.where, error, restore))
            continue
        for place, name in enumerate(names):
            progress(f"stream {scope}/{name}", place, len(names))
            _check_stream(container, catalog, scope, name, deep, findings, restore)
        for name in tables:
            _check_table(container, scope, name, findings, restore)
    for loss in container.losses:
        if loss.there:
            findings.add(_warning(loss.segment, loss.fact, _LEFT_OUT))
        else:
            findings.add(Finding(Severity.ERROR, None, loss.segment, loss.fact, restore))
    for found in container.recovered:
        findings.add(_warning(found.segment, found.fact, _IS_READ))
    segments = archive.segments().values()
    chunks = sum(len(segment.chunks) for segment in segments)
    size = sum(segment.length - segment.start_offset for segment in segments)
    survey = ContainerScan(0, 0, len(segments), size, chunks, len(archive.tables), 0, 0)
    return Report(findings, ((survey, LogCounts(0, 0, 0)),), (), None, deep, ours=False)


def _check_stream(
    container: PravegaContainer,
    catalog: Catalog,
    scope: str,
    name: str,
    deep: bool,
    findings: Findings,
    restore: str,
) -> None:
    try:
        snapshot = catalog.stream(scope, name).snapshot()
        for text in snapshot.record.unknown:
            findings.add(_warning(f"{scope}/{name}", text, _NOT_FLUSHED))
        snapshot.segments.load(snapshot.record.segment_ids())
        for cut in (snapshot.head_cut(), snapshot.tail_cut()):
            snapshot.check(cut)
        for number in snapshot.record.segment_ids() if deep else ():
            _ = snapshot.segments.segment(number).attributes.get(EVENT_COUNT, 0)
    except ArchiveDamaged as error:
        findings.add(_damage(f"{scope}/{name}", error, restore, container.archive.where))
    except InvalidEvent as error:
        remedy = _BYTES.format(f"{scope}/{name}") + restore
        findings.add(Finding(Severity.ERROR, None, f"{scope}/{name}", fact_of(error), remedy))
    except (StorageError, InvalidStreamCut) as error:
        findings.add(Finding(Severity.ERROR, None, f"{scope}/{name}", str(error), restore))


def _check_table(container: PravegaContainer, scope: str, name: str, findings: Findings, restore: str) -> None:
    try:
        table = container.streams.key_value_table(scope, name)
        for text in table.records.unknown if table.records is not None else ("its configuration is not known",):
            findings.add(_warning(f"{scope}/{name}", text, _NOT_FLUSHED))
        for _ in table.entries():
            pass
    except ArchiveDamaged as error:
        findings.add(_damage(f"{scope}/{name}", error, restore, container.archive.where))
    except StorageError as error:
        findings.add(Finding(Severity.ERROR, None, f"{scope}/{name}", str(error), restore))


def _parts(where: str, text: str) -> tuple[str, str]:
    """What a text names first, and what it says of it, without the storage's place."""
    fact = text.removeprefix(f"{where}: ")
    quoted, _, rest = fact.removeprefix("'").partition("': ")
    return (quoted, rest) if fact.startswith("'") and rest and "'" not in quoted else (where, fact)


def _damage(name: str, error: ArchiveDamaged, remedy: str, where: str | None = None) -> Finding:
    """A finding of damage: of what its message names; else of `name`. where: the storage, if `name` is another."""
    place = where or name
    found, problem = _parts(place, fact_of(error))
    return Finding(Severity.ERROR, None, name if found == place else found, problem, remedy)


def _warning(name: str, problem: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, None, name, problem, remedy)
