"""Verifying a root: where all is well, whether accounts add up, and what it is made of."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from chunkstore import Store
from chunkstore.metadata.metadata_records import StoredSegmentRecord
from chunkstore.paths import is_log
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import WRITES
from engine.admin.checks.findings import Finding, Findings, Problem, Severity
from engine.admin.checks.object_index import Expected, ObjectIndex, ObjectKind
from engine.admin.checks.reference_counts import extent_problems, state_problems
from engine.admin.checks.segment_content import ContentReader, SegmentView, Unreadable
from engine.admin.verify import verify
from engine.containers.container import Container
from engine.root import Root
from engine.state.segments import Extent, Extents, FrameRef, StoredRef
from engine.state.state import EMPTY
from tests.engine.admin.lives import Life, assert_told, flip, lived, root_of, told, verified

pytestmark = pytest.mark.usefixtures("small")

Result = TypeVar("Result")

# --- where all is well -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 2, 7, pytest.param(15, marks=pytest.mark.long)])
def test_a_healthy_root_has_no_findings_and_its_bytes_add_up(rounds: int, deep: bool) -> None:
    life = lived(rounds)
    before = [(info.path, info.size) for info in life.store.list("")]
    report = life.verified(deep=deep)
    assert told(report) == [] and report.errors == report.warnings == 0
    assert [(info.path, info.size) for info in life.store.list("")] == before
    [balance], [(survey, log)] = report.balances, report.containers
    assert report.orphans is not None and report.orphans.number == 0
    log_bytes = sum(size for path, size in before if is_log(path))
    assert (balance.total, balance.log) == (sum(size for _, size in before) - log_bytes, log_bytes)
    assert balance.total == sum(balance[1:7])
    assert log.live > 0 and survey.segments == 10
    if rounds > 2:
        assert survey.chunks > 20 and survey.entries > 100 and survey.cycle > 0
        assert min(balance.live, balance.truncated, balance.tables, balance.garbage, balance.recovery_points) > 0


def test_verifying_writes_nothing() -> None:
    life = lived(4)

    class ReadOnly(WrappingStore):
        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            assert request.verb not in WRITES
            return call()

    assert told(verify(root_of(ReadOnly(life.store)), deep=True)) == []
    assert told(verified(life.simulation, ReadOnly(life.store), deep=True)) == []


class Meanwhile(WrappingStore):
    """Lets something happen before every so many requests."""

    def __init__(self, inner: Store, act: Callable[[], object], every: int) -> None:
        super().__init__(inner)
        self.acted = 0
        self._act = act
        self._every = every
        self._count = 0

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        self._count += 1
        if self._count % self._every == 0:
            self.acted += 1
            self._act()
        return call()


@pytest.mark.parametrize("deep", [False, True], ids=["metadata", "deep"])
@pytest.mark.parametrize(
    ("every", "times"),
    [
        *((every, 2) for every in (1, 5, 12, 23)),
        *(pytest.param(every, 20, marks=pytest.mark.long) for every in (2, 7)),
        *(pytest.param(every, 3, marks=pytest.mark.long) for every in (1, 3, 4, 8, 17, 31, 40)),
    ],
)
def test_others_go_on_meanwhile_and_delete_what_they_can(every: int, times: int, deep: bool) -> None:
    """Each time long enough that all is collected that the states which are looked at may name."""
    life = lived(5)

    def act() -> None:
        if store.acted <= times:
            life.go_on(1)
            life.container.flush()
            life.container.checkpoint()
            life.take_care()

    store = Meanwhile(life.store, act, every)
    report = verified(life.simulation, store, deep=deep)
    assert store.acted
    assert told(report, Severity.ERROR) == []
    assert all("during each of" in finding.problem for finding in report.findings)
    assert times > 3 or told(report) == []
    assert report.orphans is None or report.orphans.number == 0
    assert told(life.verified(deep=True)) == []


WRITER = """
import sys, time
from pathlib import Path
from engine.settings import Settings
from engine.state.operations import AttributeUpdate
from engine.root import Root
from engine.errors import Rejected

url, own = sys.argv[1:]
settings = Settings(flush_bytes=30_000, flush_frames=20, checkpoint_frames=4, active_segments=5, linger=0.001)
with Root.open(url, settings=settings) as root:
    number = 0
    while not Path(url, "..", "stop").exists():
        number += 1
        container = root.container(number % 2)
        for name in ("shared", f"{own}/{number % 16}"):
            try:
                container.create_segment(name)
            except Rejected:
                pass
            container.append(name, bytes([number % 256]) * (number % 5000))
        container.put_entries("t", {f"{own} {number % 500}": b"v" * (number % 50)})
        if number % 16 == 0:
            container.truncate("shared", container.info("shared").length // 2)
        if number % 33 == 0:
            container.delete(f"{own}/{number % 16}")
        if number % 20 == 0:
            container.flush()
            container.truncate_log()
            container.collect_garbage()
        if number == 40:
            Path(url, "..", f"begun {own}").touch()
"""


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.parametrize("small", [None], ids=["real sizes"])  # for these as for those processes
def test_several_processes_write_meanwhile(tmp_path: Path, small: None) -> None:
    url = str(tmp_path / "root")
    Root.open(url, containers=2, garbage_delay_seconds=0.5, grace_seconds=60.0).close()
    code = textwrap.dedent(WRITER)
    writers = [subprocess.Popen([sys.executable, "-c", code, url, own], stderr=subprocess.PIPE) for own in "ab"]
    try:
        while not all((tmp_path / f"begun {own}").exists() for own in "ab"):
            assert all(writer.poll() is None for writer in writers), writers[0].communicate()[1]
        with Root.open(url) as root:
            reports = [verify(root, deep=deep) for deep in (False, True)]
    finally:
        (tmp_path / "stop").touch()
        errors = [writer.communicate()[1].decode() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    with Root.open(url) as root:
        reports.append(verify(root, deep=True))
    for report in reports:
        assert told(report, Severity.ERROR) == []
    assert told(reports[-1]) == [] and reports[-1].orphans is not None
    assert len(reports[-1].containers) == 2 and all(log.live for _, log in reports[-1].containers)


# --- accounts --------------------------------------------------------------------------------------------------------

W = FrameRef(3, 100)
EXTENTS: dict[str, tuple[list[tuple[int, Extent]], str]] = {
    "gap": ([(0, Extent(W, 0, 5, b"")), (6, Extent(W, 5, 4, b""))], "a gap or an overlap"),
    "late": ([(3, Extent(W, 0, 7, b""))], "begin at 3, not 0"),
    "short": ([(0, Extent(W, 0, 5, b""))], "end at 5, not 10"),
    "none": ([], "end at 0, not 10"),
    "empty": ([(0, Extent(W, 0, 0, b"")), (0, Extent(W, 0, 10, b""))], "none of which can be read"),
    "checksums": ([(0, Extent(W, 0, 10, b"12345678"))], "checksums of the wrong length"),
}


@pytest.mark.parametrize("what", EXTENTS)
def test_extents_that_are_not_the_content(what: str) -> None:
    items, problem = EXTENTS[what]
    extents = Extents([at for at, _ in items], [extent for _, extent in items])
    assert problem in "; ".join(extent_problems(extents, 0, 10))
    assert not list(extent_problems(Extents([0], [Extent(W, 0, 10, b"1234")]), 0, 10))


def test_wrong_counts_in_a_state_are_reported() -> None:
    life = lived(8)
    good = life.container.state
    assert not list(state_problems(good)) and not list(state_problems(EMPTY))
    name = next(segment.name for segment in good.logged() if segment.logged)
    segment = good.segments[name]
    chunk = next(iter(good.chunks))
    garbage = next(iter(good.garbage.values()))
    table = good.tables["t"]
    stored = next(s for s in good.segments.values() if s.storage)

    def with_segment(**changes: object) -> object:
        segments = good.segments.mutate()
        segments.put(name, segment._replace(**changes))  # type: ignore[arg-type]
        return good._replace(segments=segments.finish())

    wrong = {
        "but its name is": with_segment(name="other"),
        "contradict each other": with_segment(stored_start=segment.length + 1),
        "it has no name there": with_segment(storage="", storage_length=segment.start_offset + 1),
        f"but {segment.logged + 1} are counted": with_segment(logged=segment.logged + 1),
        "is not marked as unsaved": good._replace(unsaved=good.unsaved.delete(name)),
        "is marked as deleted": good._replace(dropped=good.dropped.set(stored.storage, True)),
        "bytes are in frames": good._replace(logged_bytes=1),
        "but is not active": good._replace(unsaved=good.unsaved.set("none", True)),
        "is named by": good._replace(chunks=good.chunks.set(chunk, 77)),
        "is both garbage and in use": good._replace(garbage=good.garbage.set(chunk, garbage)),
        "entries in memory have": good._replace(tables=good.tables.set("t", table._replace(size=1))),
    }
    for problem, state in wrong.items():
        assert problem in "; ".join(found.problem for found in state_problems(state)), problem  # type: ignore[arg-type]


# --- what is behind it -----------------------------------------------------------------------------------------------


def test_findings_keep_their_order_and_are_told_once() -> None:
    findings = Findings()
    one = Finding(Severity.ERROR, None, "a", "p", "r")
    two = Finding(Severity.WARNING, 3, "b\n", "p", "r")
    findings.add(one)
    mark = findings.mark()
    for finding in (two, one, two):
        findings.add(finding)
    assert list(findings) == [one, two] and len(findings) == 2
    assert (findings.count(Severity.ERROR), findings.count(Severity.WARNING)) == (1, 1)
    findings.rewind(mark)
    assert list(findings) == [one]


def test_an_inventory_knows_what_is_missing_in_any_number() -> None:
    with closing(ObjectIndex()) as inventory:
        inventory.expect(Expected(False, f"{n:05d}", 0, ObjectKind.CHUNK, "s", 10, 5) for n in range(1234))
        inventory.expect([Expected(False, "00007", 0, ObjectKind.GARBAGE, "garbage", 0, 0, required=False)])
        inventory.expect([Expected(True, "00007", 0, ObjectKind.FRAME, "s", 10, 5)])
        assert sum(map(len, inventory.missing(0))) == 1235 and not list(inventory.missing(1))
        assert not list(inventory.clashes(0))
        inventory.expect([Expected(False, "00007", 0, ObjectKind.ATTACHED, "other", 20, 5)])
        assert list(inventory.clashes(0)) == [("00007", "s", "other")]
        inventory.forget(0)
        assert not list(inventory.missing(0))


def test_a_content_check_is_given_every_segment_and_goes_on_behind_what_cannot_be_read() -> None:
    life = lived(7)
    path = str(life.whole_segment().first_chunk)
    owner = life.whole_segment().name.rpartition(".")[0]
    flip(life.store, path)
    seen: dict[str, int] = {}

    def check(view: SegmentView, deep: bool) -> Iterator[Problem]:
        assert deep and view.other("none") is None
        other = view.other("s/0")
        assert other is not None and other.name == "s/0"
        seen[view.name] = view.start
        for offset, data in view.windows:
            assert offset == seen[view.name]
            seen[view.name] += len(data)
        if view.name == "s/7":
            yield Problem(view.name, "it is a seven", "count again", Severity.WARNING)

    report = verified(life.simulation, deep=True, content_checks=[check])
    assert_told(report, "s/7", "a seven", Severity.WARNING)
    assert_told(report, path)
    assert len(told(report)) == 2
    for name, end in seen.items():
        assert (end == life.container.info(name).length) == (name != owner)


def test_a_reader_tells_each_piece_that_cannot_be_read() -> None:
    life = lived(7)
    segment = life.container.info(life.whole_segment().name.rpartition(".")[0])
    flip(life.store, str(life.whole_segment().first_chunk))
    life.store.delete([life.middle_chunk()])
    noted: list[Problem] = []
    reader = ContentReader(life.container, life.container.state, noted.append)
    with pytest.raises(Unreadable):
        reader.read(segment, segment.start_offset, segment.length)
    assert {problem.object for problem in noted} == {life.whole_segment().first_chunk, life.middle_chunk()}


def test_progress_is_told() -> None:
    life = lived(3)
    steps: list[str] = []
    verified(life.simulation, progress=lambda what, done, total: steps.append(what), deep=True)
    assert [step for step in steps if step.startswith("container 0")] and steps[-1] == "objects"


def test_a_stored_part_of_a_merged_segment_is_looked_at() -> None:
    life = Life()
    container = life.container
    container.create_segment("source")
    container.append("source", b"stored" * 50)
    container.flush()
    container.seal("source")
    container.merge("s/0", "source")
    [extent] = [extent for _, extent in container.info("s/0").extents]
    assert isinstance(extent.source, StoredRef)
    assert told(life.verified(deep=True)) == []
    record = life.records(StoredSegmentRecord)[f"{extent.source.storage}$segment"]
    assert isinstance(record, StoredSegmentRecord) and record.first_chunk is not None
    life.store.delete([record.first_chunk])
    assert_told(life.verified(), record.first_chunk, "'s/0' needs it")
    container.truncate("s/0", 100)
    assert life.verified().balances[0].truncated == 0


def test_a_container_is_given_back(tmp_path: Path) -> None:
    """One's own container of the same root goes on as it was."""
    with Root.open(str(tmp_path), containers=1) as root:
        own: Container = root.container(0)
        own.create_segment("s")
        assert told(verify(root)) == []
        own.append("s", b"after")
        assert own.read("s", 0, 5) == b"after" and root.container(0) is own
