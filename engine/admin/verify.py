"""Verification of a root: whether all that was acknowledged is there, and agrees with itself. It never writes.

Each container is looked at in one of its states (`checks.survey`), its log from the oldest checkpoint on
(`checks.log`), and then all objects of the root are compared with what the containers name (`checks.objects`). What
looks wrong is looked at again in the newest state before it is told, so that other processes may go on meanwhile.
Memory is bounded by the states of the containers; everything else is kept in temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from chunkstore import ObjectNotFound, Range
from chunkstore.errors import fact_of
from chunkstore.paths import container_folder
from engine.admin.checks.content import ContentCheck, ContentReader, Gone, SegmentView, Unreadable
from engine.admin.checks.findings import Finding, Findings, Problem, Severity
from engine.admin.checks.inventory import Balance, Inventory, Orphans
from engine.admin.checks.log import LogCheck, LogCounts
from engine.admin.checks.objects import foreign_problems, list_objects, missing_problems, settle_others
from engine.admin.checks.survey import Survey, Surveyor
from engine.admin.inspection import open_for_reading
from engine.admin.progress import Progress, no_progress
from engine.containers.container import Container
from engine.errors import DataCorruption, EngineError
from engine.root import Root
from engine.state.segments import Segment
from engine.state.state import State

TRIES = 5
"""States that are looked at, if each is out of date before the look is over."""

RECENT = 86_400.0
"""Seconds for which an object that nothing names may be about to be attached."""

TOGETHER = 200
"""Segments whose content is looked at as it was at one moment."""

NAMES = 20
"""Names of orphans that are told."""

EntryCheck: TypeAlias = Callable[[Container, str, bytes, int], "Problem | None"]
"""Understands an entry of a container's table: its key, value and version. Returns what is wrong with what it says, if
anything is. Raises DataCorruption if it cannot be understood."""


class Report(NamedTuple):
    """What a verification found. containers: what was looked at in those that could be opened, by their numbers.

    orphans, balances: None and empty if a container could not be looked at whole, so that nobody knows what it names.
    ours: it is a root of ours, and not what a Pravega left.
    """

    findings: Findings
    containers: tuple[tuple[Survey, LogCounts], ...]
    balances: tuple[Balance, ...]
    orphans: Orphans | None
    deep: bool
    ours: bool = True

    @property
    def errors(self) -> int:
        """How many errors there are."""
        return self.findings.count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        """How many warnings there are."""
        return self.findings.count(Severity.WARNING)


def verify(
    root: Root,
    progress: Progress = no_progress,
    deep: bool = False,
    content_checks: Sequence[ContentCheck] = (),
    *,
    entry_checks: Mapping[str, EntryCheck] | None = None,
    opener: Callable[[Root, int], Container] = open_for_reading,
) -> Report:
    """Look at everything in a root. Other processes may use it meanwhile.

    deep: read all data of all segments too, against its checksums. content_checks: see `checks.content`. entry_checks:
    of entries, by their tables. opener: opens containers that nobody else uses. Raises StorageError when the storage
    fails, so that nothing can be told.
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
        self._inventory = Inventory()
        self._containers: list[Container] = []
        self._looked_at: list[tuple[Survey, LogCounts]] = []
        self._complete = True

    def run(self) -> Report:
        """Do all of it."""
        for number in range(self._root.config.containers):
            self._progress(f"container {number}: log", 0, 0)
            known = len(self._findings)
            counts = self._check_log(number)
            container = self._open(number, told=len(self._findings) > known)
            if container is None:
                continue
            self._containers.append(container)
            self._progress(f"container {number}: tables and chunks", 0, 0)
            survey = self._survey(container)
            self._looked_at.append((survey, counts))
            self._check_entries(container)
            self._check_contents(container, survey.segments)
        self._list()
        for container, (survey, _) in zip(self._containers, self._looked_at, strict=True):
            self._tell(container.number, missing_problems(container, self._inventory, survey.cycle))
        orphans: Orphans | None = None
        balances: tuple[Balance, ...] = ()
        if self._complete:
            settle_others(self._containers, self._inventory)
            orphans = self._inventory.orphans(self._containers[0].storage_clock.now() - RECENT, NAMES)
            balances = tuple(self._inventory.balance(container.number) for container in self._containers)
        return Report(self._findings, tuple(self._looked_at), balances, orphans, self._deep)

    def close(self) -> None:
        """Give up what is held."""
        for container in self._containers:
            container.close()
        self._inventory.close()

    def _tell(self, container: int | None, problems: Iterator[Problem]) -> None:
        for problem in problems:
            self._note(container, problem)

    def _note(self, container: int | None, problem: Problem) -> None:
        self._findings.add(Finding(problem.severity, container, problem.object, problem.problem, problem.remedy))

    # --- a container -----------------------------------------------------------------------------------------------

    def _check_log(self, number: int) -> LogCounts:
        check = LogCheck(self._root.stores.log, self._root.container_id(number))
        self._tell(number, check.problems())
        return check.counts

    def _open(self, number: int, told: bool) -> Container | None:
        """A container of our own. told: something was found already that is wrong with its log."""
        try:
            return self._opener(self._root, number)
        except EngineError as error:
            self._complete = False
            if not told:
                remedy = "see the message; until then the container cannot be opened, and was not looked at"
                self._note(number, Problem(f"{container_folder(number)}/", fact_of(error), remedy))
            return None

    def _survey(self, container: Container) -> Survey:
        """Look at a state of the container; at a newer one, while objects are gone that the older one named."""
        number, state, mark, final = container.number, container.state, self._findings.mark(), False
        for _ in range(TRIES):
            surveyor = Surveyor(container, state, self._inventory, final=final)
            try:
                self._tell(number, surveyor.problems())
                self._complete = self._complete and surveyor.complete
                return surveyor.survey
            except DataCorruption as error:  # of the state itself: a segment in it that cannot be understood
                self._complete = False
                self._note(number, Problem(f"{container_folder(number)}/", fact_of(error), "see the message"))
                return surveyor.survey
            except ObjectNotFound:
                state = container.refresh()
                final = self._lacks_objects(container, state)
                self._inventory.forget(number)
                self._findings.rewind(mark)
        self._complete = False
        problem = f"it changed during each of {TRIES} looks, so that it was not looked at whole"
        remedy = "verify again when less is written"
        self._note(number, Problem(f"{container_folder(number)}/", problem, remedy, Severity.WARNING))
        return surveyor.survey

    def _lacks_objects(self, container: Container, state: State) -> bool:
        """Whether an object of a table is missing, and not because the state is out of date."""
        tables = state.tables.values()
        extents = (extent for table in tables for space in (table.entries, table.pages) for _, extent in space)
        paths = sorted({str(extent.source) for extent in extents})
        found = container.stores.chunks.read_ranges([Range(path, 0, 1) for path in paths])
        newest = container.refresh().chunks
        return any(data is None and path in newest for path, data in zip(paths, found, strict=True))

    # --- what tables and segments hold ------------------------------------------------------------------------------

    def _check_entries(self, container: Container) -> None:
        """Whether the entries of tables can be understood, by those who know what they mean."""
        remedy = "see the message; until then what the entry is about cannot be used"
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
        for names in self._inventory.names(container.number, TOGETHER):
            self._progress(f"container {container.number}: segments", done, segments)
            done += len(names)
            state = container.refresh()
            for segment in self._activated(container, names, state):
                self._check_content(container, state, segment)

    def _activated(self, container: Container, names: Sequence[str], state: State) -> list[Segment]:
        """Those of the segments that are there; each of those that cannot be understood is a finding."""
        try:
            return [segment for segment in container.activated(names, state).values() if segment is not None]
        except DataCorruption as error:
            if len(names) > 1:
                return [segment for name in names for segment in self._activated(container, [name], state)]
            self._note(container.number, Problem(names[0], fact_of(error), "restore the object from a copy"))
            return []

    def _check_content(self, container: Container, state: State, segment: Segment) -> None:
        """Look at what a segment holds; again in a newer state, if it was truncated or deleted meanwhile."""
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
        problem = f"it was truncated during each of {TRIES} looks, so that it was not looked at whole"
        remedy = "verify again when less is truncated"
        self._note(container.number, Problem(segment.name, problem, remedy, Severity.WARNING))

    def _read_content(self, number: int, view: SegmentView) -> None:
        for check in self._content_checks:
            try:
                self._tell(number, iter(check(view, self._deep)))
            except Unreadable:
                continue  # which is noted
        if self._deep:
            view.windows.drain()

    # --- objects ---------------------------------------------------------------------------------------------------

    def _counted(self, count: int) -> None:
        self._progress("objects", count, 0)

    def _list(self) -> None:
        chunks, log = self._root.stores.chunks, self._root.stores.log
        stores = [chunks] if chunks.root == log.root else [chunks, log]
        numbers = [self._root.container_id(number) for number in range(self._root.config.containers)]
        listed = list_objects(stores, numbers, self._inventory, self._counted)
        self._tell(None, listed)
        self._tell(None, foreign_problems(stores))


__all__ = ["Balance", "Finding", "Findings", "Orphans", "Report", "Severity", "Survey", "verify"]
