"""Verification of a root: whether all acknowledged data exists and is consistent. It never writes.

The log of each container is followed from its oldest checkpoint (`checks.log_check`), each container is scanned in one
of its states (`checks.container_scan`), and all objects of the root are compared with those that the containers name
(`checks.object_check`). Other processes may use the root meanwhile: a problem is checked again in the newest state
before it is reported. Memory is bounded by the states of the containers; everything else is in temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from chunkstore import ObjectNotFound, Range
from chunkstore.errors import fact_of
from chunkstore.paths import container_folder
from engine.admin.checks.container_scan import ContainerScan, ContainerScanner
from engine.admin.checks.findings import Finding, Findings, Problem, Severity
from engine.admin.checks.log_check import LogCheck, LogCounts
from engine.admin.checks.object_check import foreign_problems, list_objects, missing_problems, settle_others
from engine.admin.checks.object_index import Balance, ObjectIndex, Orphans
from engine.admin.checks.segment_content import ContentCheck, ContentReader, Gone, SegmentView, Unreadable
from engine.admin.checks.signature_check import signature_problems
from engine.admin.progress import Progress, no_progress
from engine.containers.container import Container
from engine.errors import DataCorruption, EngineError
from engine.root import Root
from engine.state.segments import Segment
from engine.state.state import State

TRIES = 5
"""The most states that are scanned, if each is outdated before the scan is over."""

RECENT = 86_400.0
"""Seconds for which a task may be about to attach an object that nothing names."""

TOGETHER = 200
"""Segments whose content is checked as of one state."""

NAMES = 20
"""The most names of orphans in a report."""

EntryCheck: TypeAlias = Callable[[Container, str, bytes, int], "Problem | None"]
"""Checks an entry of a container's table, given its key, value and version. Returns its problem or None. Raises
DataCorruption if it cannot be decoded."""


class Report(NamedTuple):
    """The result of a verification. containers: what was scanned of those that could be opened.

    orphans, balances: None and empty if a container could not be scanned completely, as then its objects are not known.
    ours: False for the long-term storage of a Pravega cluster.
    """

    findings: Findings
    containers: tuple[tuple[ContainerScan, LogCounts], ...]
    balances: tuple[Balance, ...]
    orphans: Orphans | None
    deep: bool
    ours: bool = True

    @property
    def errors(self) -> int:
        """The number of errors."""
        return self.findings.count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        """The number of warnings."""
        return self.findings.count(Severity.WARNING)


def verify(
    root: Root,
    progress: Progress = no_progress,
    deep: bool = False,
    content_checks: Sequence[ContentCheck] = (),
    *,
    entry_checks: Mapping[str, EntryCheck] | None = None,
    opener: Callable[[Root, int], Container] = Root.open_private,
) -> Report:
    """Verify a root. Other processes may use it meanwhile.

    deep: also read all data of all segments, and compare it with its checksums. content_checks: see
    `checks.segment_content`. entry_checks: checks of entries, by table. opener: opens containers for this call alone.
    Raises StorageError if the storage fails.
    """
    verification = _Verification(root, progress, deep, content_checks, entry_checks or {}, opener)
    try:
        return verification.run()
    finally:
        verification.close()


class _Verification:
    """One run of `verify`."""

    def __init__(
        self,
        root: Root,
        progress: Progress,
        deep: bool,
        content_checks: Sequence[ContentCheck],
        entry_checks: Mapping[str, EntryCheck],
        opener: Callable[[Root, int], Container],
    ) -> None:
        self._root = root
        self._opener = opener
        self._progress = progress
        self._deep = deep
        self._content_checks = content_checks
        self._entry_checks = entry_checks
        self._findings = Findings()
        self._index = ObjectIndex()
        self._containers: list[Container] = []
        self._scanned: list[tuple[ContainerScan, LogCounts]] = []
        self._complete = True

    def run(self) -> Report:
        """Run all checks."""
        for number in range(self._root.config.containers):
            self._progress(f"container {number}: log", 0, 0)
            known = len(self._findings)
            counts = self._check_log(number)
            self._check_signatures(number)
            container = self._open(number, reported=len(self._findings) > known)
            if container is None:
                continue
            self._containers.append(container)
            self._progress(f"container {number}: tables and chunks", 0, 0)
            scan = self._scan(container)
            self._scanned.append((scan, counts))
            self._check_entries(container)
            self._check_contents(container, scan.segments)
        self._list()
        for container, (scan, _) in zip(self._containers, self._scanned, strict=True):
            self._report(container.number, missing_problems(container, self._index, scan.cycle))
        orphans: Orphans | None = None
        balances: tuple[Balance, ...] = ()
        if self._complete:
            settle_others(self._containers, self._index)
            orphans = self._index.orphans(self._containers[0].storage_clock.reported() - RECENT, NAMES)
            balances = tuple(self._index.balance(container.number) for container in self._containers)
        return Report(self._findings, tuple(self._scanned), balances, orphans, self._deep)

    def close(self) -> None:
        """Close the containers and the object index."""
        for container in self._containers:
            container.close()
        self._index.close()

    def _report(self, container: int | None, problems: Iterator[Problem]) -> None:
        for problem in problems:
            self._note(container, problem)

    def _note(self, container: int | None, problem: Problem) -> None:
        self._findings.add(Finding(problem.severity, container, problem.object, problem.problem, problem.remedy))

    # --- a container -----------------------------------------------------------------------------------------------

    def _check_log(self, number: int) -> LogCounts:
        check = LogCheck(self._root.stores, self._root.container_id(number))
        self._report(number, check.problems())
        return check.counts

    def _check_signatures(self, number: int) -> None:
        """Report what is signed wrongly and was not reported by the check of the log, such as submissions."""
        if self._root.key is None:
            return
        container, stores = self._root.container_id(number), self._root.stores
        for store in dict.fromkeys([stores.log, stores.chunks]):
            for problem in signature_problems(store, container):
                if not self._findings.names(problem.object):
                    self._note(number, problem)

    def _open(self, number: int, reported: bool) -> Container | None:
        """A container, None if it cannot be opened. reported: a problem of its log was reported already."""
        try:
            return self._opener(self._root, number)
        except EngineError as error:
            self._complete = False
            if not reported:
                remedy = "see the message; until then the container cannot be opened, and was not verified"
                self._note(number, Problem(f"{container_folder(number)}/", fact_of(error), remedy))
            return None

    def _scan(self, container: Container) -> ContainerScan:
        """Scan a state of the container; a newer one if objects of the older one were deleted meanwhile."""
        number, state, mark, final = container.number, container.state, self._findings.mark(), False
        for _ in range(TRIES):
            scanner = ContainerScanner(container, state, self._index, final=final)
            try:
                self._report(number, scanner.problems())
                self._complete = self._complete and scanner.complete
                return scanner.scan
            except DataCorruption as error:  # a segment of the state cannot be decoded
                self._complete = False
                self._note(number, Problem(f"{container_folder(number)}/", fact_of(error), "see the message"))
                return scanner.scan
            except ObjectNotFound:
                state = container.refresh()
                final = self._lacks_objects(container, state)
                self._index.forget(number)
                self._findings.rewind(mark)
        self._complete = False
        problem = f"it changed during each of {TRIES} scans, so none of them was complete"
        remedy = "verify again when less is written"
        self._note(number, Problem(f"{container_folder(number)}/", problem, remedy, Severity.WARNING))
        return scanner.scan

    def _lacks_objects(self, container: Container, state: State) -> bool:
        """Whether an object of a table is missing although the newest state names it."""
        tables = state.tables.values()
        extents = (extent for table in tables for space in (table.entries, table.pages) for _, extent in space)
        paths = sorted({str(extent.source) for extent in extents})
        found = container.stores.chunks.read_ranges([Range(path, 0, 1) for path in paths])
        newest = container.refresh().chunks
        return any(data is None and path in newest for path, data in zip(paths, found, strict=True))

    # --- content of tables and segments -----------------------------------------------------------------------------

    def _check_entries(self, container: Container) -> None:
        """Run the checks of entries."""
        remedy = "see the message; until then the object that the entry describes cannot be used"
        for table, check in self._entry_checks.items():
            try:
                for key, entry in container.scan_entries(table):
                    try:
                        problem = check(container, key, entry.value or b"", entry.version)
                        if problem is not None:
                            self._note(container.number, problem)
                    except DataCorruption as error:
                        self._note(container.number, Problem(f"{table}, key {key!r}", fact_of(error), remedy))
            except DataCorruption as error:
                self._note(container.number, Problem(table, fact_of(error), "restore the object from a copy"))

    def _check_contents(self, container: Container, segments: int) -> None:
        if not self._deep and not self._content_checks:
            return
        done = 0
        for names in self._index.names(container.number, TOGETHER):
            self._progress(f"container {container.number}: segments", done, segments)
            done += len(names)
            state = container.refresh()
            for segment in self._activated(container, names, state):
                self._check_content(container, state, segment)

    def _activated(self, container: Container, names: Sequence[str], state: State) -> list[Segment]:
        """Those of the segments that exist. Segments that cannot be decoded are reported."""
        try:
            return [segment for segment in container.activated(names, state).values() if segment is not None]
        except DataCorruption as error:
            if len(names) > 1:
                return [segment for name in names for segment in self._activated(container, [name], state)]
            self._note(container.number, Problem(names[0], fact_of(error), "restore the object from a copy"))
            return []

    def _check_content(self, container: Container, state: State, segment: Segment) -> None:
        """Check the content of a segment; again in a newer state if it was truncated meanwhile."""
        mark = self._findings.mark()
        for _ in range(TRIES):
            reader = ContentReader(container, state, lambda problem: self._note(container.number, problem))
            try:
                self._read_content(container.number, SegmentView(reader, segment))
                return
            except Gone:
                self._findings.rewind(mark)
                state = container.refresh()
                found = container.activated([segment.name], state)[segment.name]
                if found is None or found.id != segment.id:
                    return
                segment = found
        problem = f"it was truncated during each of {TRIES} scans, so none of them was complete"
        remedy = "verify again when less is truncated"
        self._note(container.number, Problem(segment.name, problem, remedy, Severity.WARNING))

    def _read_content(self, number: int, view: SegmentView) -> None:
        for check in self._content_checks:
            try:
                self._report(number, iter(check(view, self._deep)))
            except Unreadable:
                continue  # already reported
        if self._deep:
            view.windows.drain()

    # --- objects ---------------------------------------------------------------------------------------------------

    def _counted(self, count: int) -> None:
        self._progress("objects", count, 0)

    def _list(self) -> None:
        chunks, log = self._root.stores.chunks, self._root.stores.log
        stores = [chunks] if chunks.root == log.root else [chunks, log]
        numbers = [self._root.container_id(number) for number in range(self._root.config.containers)]
        listed = list_objects(stores, numbers, self._index, self._counted)
        self._report(None, listed)
        self._report(None, foreign_problems(stores))


__all__ = ["Balance", "ContainerScan", "Finding", "Findings", "Orphans", "Report", "Severity", "verify"]
