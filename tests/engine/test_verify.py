"""Verification tells every kind of damage, names the object, and tells nothing where all is well, whatever goes on."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chunkstore import Store
from chunkstore.records import ChunkRecord, IndexBlockRecord, SegmentRecord, Status, decode, encode
from chunkstore.testing import Request, WrappingStore
from chunkstore.testing.wrapping import WRITES
from engine import backups, checkpoints, table_content
from engine.btree import Root as TreeRoot
from engine.checks.accounts import extent_problems, state_problems
from engine.checks.content import Reader, SegmentView, Unreadable
from engine.checks.findings import Finding, Findings, Problem, Severity
from engine.checks.inventory import Expected, Inventory, Kind
from engine.checks.tables import table_problems
from engine.container import Container, Settings
from engine.horizon import made_at
from engine.log import checkpoint_path, frame_path
from engine.operations import Append, AttributeUpdate, UpdateKind
from engine.reads import Stores
from engine.root import Root, RootConfig
from engine.segment_records import decode_segment, encode_segment
from engine.segments import EVENT_COUNT, Extent, Extents, FrameRef, StoredRef
from engine.state import EMPTY
from engine.table_content import TableContent, TableEntry
from engine.tables import ATTRIBUTES, METADATA, STORAGE, Entry, new_table
from engine.testing.model import Model
from engine.testing.simulation import Simulation, small_sizes
from engine.testing.transactions import chunk_writer
from engine.verify import Progress, Report, verify

DELAY = 600.0
Result = TypeVar("Result")


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


def root_of(store: Store) -> Root:
    return Root(Stores(store, store), RootConfig("0" * 32, containers=1), Settings())


def verified(
    simulation: Simulation, through: Store | None = None, progress: Progress | None = None, **options: Any
) -> Report:
    store = through or simulation.store
    return verify(root_of(store), progress, opener=lambda root, number: simulation.open(through=store), **options)


class Life:
    """A container to which everything happens that can, again and again. `begun`: objects of one that began before."""

    def __init__(self, begun: Mapping[str, bytes] | None = None, rounds: int = 0) -> None:
        self.simulation = Simulation(grace=DELAY, garbage_delay=DELAY, active_segments=6)
        for path, data in (begun or {}).items():
            self.simulation.store.put(path, data)
        self.container = self.simulation.open()
        self.dice = random.Random(rounds)
        self.round = rounds
        self.attach = chunk_writer(Model(), self.simulation.store)
        for number in range(0 if begun else 10):
            self.container.create_segment(f"s/{number}")

    @property
    def store(self) -> Store:
        return self.simulation.store

    def go_on(self, rounds: int) -> Life:
        for _ in range(rounds):
            self.round += 1
            self._change()
            if self.round % 2:
                self.container.flush()
            self._end()
            if self.round % 3 == 0:
                self.container.checkpoint()
            if self.round % 5 == 4:
                self.take_care()
        return self

    def _change(self) -> None:
        container, dice, number = self.container, self.dice, self.round
        for segment in range(10):
            if segment % 4 != number % 4:
                updates = [
                    AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 1),
                    AttributeUpdate(dice.randbytes(1) + bytes(15), UpdateKind.REPLACE, number),
                ]
                container.append(f"s/{segment}", dice.randbytes(dice.randint(1, 400)), None, updates)
        made = made_at(container.now())
        first, second = self.attach([b"attached" * 9, b"to both"])
        container.commit([Append("s/1", (first,), made=made), Append("s/2", (second,), made=made)])
        container.put_entries("t", {f"k{dice.randint(0, 200)}": dice.randbytes(20) for _ in range(30)})
        container.put_entries("t", {f"k{dice.randint(0, 200)}": None for _ in range(5)})
        for name in (f"m/{number}", f"d/{number}"):
            container.create_segment(name)
            container.append(name, dice.randbytes(300))

    def _end(self) -> None:
        container, number = self.container, self.round
        container.seal(f"m/{number}")
        container.merge("s/3", f"m/{number}")
        container.truncate("s/4", self.dice.randint(0, container.info("s/4").length))
        container.truncate("s/5", max(container.info("s/5").length - 1, 0))
        container.delete(f"d/{number}")

    def take_care(self) -> None:
        self.simulation.advance(1.1 * DELAY)
        self.container.truncate_log()
        self.container.collect_garbage()

    def verified(self, *, deep: bool = False) -> Report:
        return verified(self.simulation, deep=deep)

    def records(self, kind: type) -> dict[str, object]:
        found = {key: decode(entry.value or b"") for key, entry in self.container.scan_entries(STORAGE)}
        return {key: record for key, record in sorted(found.items()) if isinstance(record, kind)}

    def whole_segment(self) -> SegmentRecord:
        """The record of a segment that has several chunks in tier 2."""
        found = self.records(SegmentRecord).values()
        return next(r for r in found if isinstance(r, SegmentRecord) and r.chunk_count > 3 and r.start_offset == 0)

    def middle_chunk(self) -> str:
        first = self.records(ChunkRecord)[str(self.whole_segment().first_chunk)]
        assert isinstance(first, ChunkRecord) and first.next_chunk is not None
        return first.next_chunk


@cache
def objects_after(rounds: int) -> dict[str, bytes]:
    store = Life().go_on(rounds).store
    return {info.path: store.read(info.path) for info in store.list("")}


def lived(rounds: int) -> Life:
    """A container to which so much has happened, as a process finds it that comes now."""
    return Life(objects_after(rounds), rounds)


def told(report: Report, severity: Severity | None = None) -> list[Finding]:
    return [finding for finding in report.findings if severity in (None, finding.severity)]


def assert_told(report: Report, name: str, problem: str = "", severity: Severity = Severity.ERROR) -> None:
    """It is told, with its name."""
    found = [f for f in report.findings if name in f.object and problem in f.problem and f.severity is severity]
    assert found, f"{name} ({problem}) is not among {told(report)}"
    assert all(finding.remedy and finding.container == 0 for finding in found)


# --- where all is well --------------------------------------------------------------------------------------------


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
    log_bytes = sum(size for path, size in before if path.startswith("containers/"))
    assert (balance.total, balance.log) == (sum(size for _, size in before) - log_bytes, log_bytes)
    assert balance.total == sum(balance[1:7])
    assert log.live > 0 and survey.segments == 10
    if rounds > 2:
        assert survey.chunks > 20 and survey.entries > 100 and survey.cycle > 0
        assert min(balance.live, balance.truncated, balance.tables, balance.garbage, balance.backups) > 0


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
from engine.container import Settings
from engine.operations import AttributeUpdate
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


# --- objects ------------------------------------------------------------------------------------------------------


def flip(store: Store, path: str, place: int = -1) -> None:
    data = bytearray(store.read(path))
    data[place] ^= 1
    store.put(path, bytes(data))


def test_a_missing_chunk() -> None:
    life = lived(7)
    path = life.middle_chunk()
    life.store.delete([path])
    report = life.verified()
    assert_told(report, path, "missing")
    assert report.errors == 1 and f"'{life.whole_segment().name.rpartition('.')[0]}'" in told(report)[0].problem
    assert_told(life.verified(deep=True), path, "missing")


def test_every_missing_chunk_is_told() -> None:
    life = lived(7)
    paths = {str(key) for key, record in life.records(ChunkRecord).items()}
    segment = life.container.info("s/1")
    chunks = {part.path for part in life.container.plan_of(segment, 0, segment.length) if not part.logged} & paths
    assert len(chunks) > 3
    life.store.delete(sorted(chunks))
    assert {finding.object for finding in life.verified().findings} == chunks


def test_a_short_chunk() -> None:
    life = lived(7)
    path = life.middle_chunk()
    life.store.put(path, life.store.read(path)[:-1])
    assert_told(life.verified(), path, "needs")


def test_a_longer_chunk_is_surplus_and_no_damage() -> None:
    life = lived(7)
    life.store.put(life.middle_chunk(), life.store.read(life.middle_chunk()) + b"late")
    report = life.verified(deep=True)
    assert told(report) == [] and report.balances[0].surplus == 4


def test_flipped_bits_of_data_are_found_by_reading_it() -> None:
    life = lived(7)
    path = life.middle_chunk()
    flip(life.store, path)
    assert told(life.verified()) == []
    assert_told(life.verified(deep=True), path, "not what was written there")


def test_flipped_bits_in_two_chunks_of_a_segment_are_both_found() -> None:
    life = lived(7)
    first = str(life.whole_segment().first_chunk)
    for path in (first, life.middle_chunk()):
        flip(life.store, path)
    report = life.verified(deep=True)
    assert {finding.object for finding in report.findings} == {first, life.middle_chunk()}


def test_a_missing_and_a_damaged_frame_that_a_segment_needs() -> None:
    life = lived(8)
    life.container.checkpoint()
    needed = [
        (piece.path, segment)
        for segment in life.container.state.logged()
        for piece in life.container.plan_of(segment, segment.start_offset, segment.length)
        if piece.logged
    ]
    path = needed[0][0]
    flip(life.store, path)
    assert told(life.verified(), Severity.ERROR) == []
    assert_told(life.verified(deep=True), path)
    life.store.delete([path])
    assert_told(life.verified(), path, "missing")


def test_a_missing_attached_chunk() -> None:
    life = lived(8)
    attached = [path for path in life.container.state.chunks if path.startswith("attached/")]
    life.store.delete(attached[:1])
    assert_told(life.verified(), attached[0], "missing")


def test_an_orphan() -> None:
    life = lived(7)
    life.store.put("s/1.E-1-O-0.orphan", b"twelve bytes")
    life.store.put("zebra/late", b"x")
    report = life.verified()
    assert told(report) == []
    assert report.orphans == (2, 13, 2, ("s/1.E-1-O-0.orphan", "zebra/late"))
    life.simulation.advance(100_000)
    orphans = life.verified().orphans
    assert orphans is not None and orphans.recent == 0 and orphans.number == 2


# --- tables and records -------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_table() -> None:
    life = lived(7)
    for path in [path for path in life.container.state.chunks if path.startswith("_system/")]:
        data = life.store.read(path)
        flip(life.store, path, 0)
        report = life.verified()
        assert any(path in finding.problem for finding in report.findings)
        assert report.errors
        life.store.put(path, data)
    assert told(life.verified()) == []


@pytest.mark.parametrize("deep", [False, True])
def test_a_missing_object_of_tables(deep: bool) -> None:
    """Whatever can be looked at nevertheless is, and nobody takes for orphans what the table may have named."""
    life = lived(7)
    state = life.container.state
    paths = {str(extent.source) for _, extent in state.tables[STORAGE].entries}
    life.store.delete([min(paths)])
    report = life.verified(deep=deep)
    assert_told(report, min(paths), "missing")
    assert_told(report, STORAGE, "missing")
    assert report.orphans is None and report.balances == ()


def put_record(life: Life, *records: object) -> None:
    life.container.put_entries(STORAGE, {record.key: encode(record) for record in records})  # type: ignore[attr-defined, arg-type]


def test_a_broken_link_in_a_list_of_chunks() -> None:
    life = lived(7)
    path, owner = life.middle_chunk(), life.whole_segment().name.rpartition(".")[0]
    life.container.put_entries(STORAGE, {path: None})
    assert_told(life.verified(), owner, f"there is no record of {path!r}")


Change = Callable[[SegmentRecord, ChunkRecord], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "length of a chunk": (lambda s, c: c._replace(length=c.length + 1), "chunks end at"),
    "a link back": (lambda s, c: c._replace(next_chunk=s.first_chunk), "chunks"),
    "a link past one": (lambda s, c: c._replace(next_chunk=s.last_chunk), "chunks"),
    "a link to a segment": (lambda s, c: c._replace(next_chunk=s.key), "not a ChunkRecord"),
    "checksums": (lambda s, c: c._replace(checksums=c.checksums + b"1234"), "checksums of another length"),
    "number of chunks": (lambda s, c: s._replace(chunk_count=s.chunk_count + 1), "that end at"),
    "length of the segment": (lambda s, c: s._replace(length=s.length + 5), "counts bytes"),
    "start of the segment": (lambda s, c: s._replace(start_offset=7), "counts bytes"),
    "last chunk": (lambda s, c: s._replace(last_chunk=c.name), "last chunk should be"),
    "deleted in tier 2": (lambda s, c: s._replace(status=s.status & ~Status.ACTIVE), "is deleted there"),
    "a field that contradicts": (lambda s, c: s._replace(first_chunk_start=3), "first_chunk_start"),
    "a block that is not there": (lambda s, c: s._replace(blocks=((0, "none"),)), "block 'none' is missing"),
    "a block elsewhere": (lambda s, c: s._replace(blocks=((1, s.blocks[0][1]),)), "where it does not"),
    "a block that is a chunk": (lambda s, c: s._replace(blocks=((0, c.name),)), "not a IndexBlockRecord"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_records_that_contradict_each_other(what: str) -> None:
    life = lived(7)
    segment, chunk = life.whole_segment(), life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    change, problem = BROKEN[what]
    put_record(life, change(segment, chunk))
    assert_told(life.verified(), segment.name.rpartition(".")[0], problem)


def test_segments_whose_objects_hold_something_else() -> None:
    life = lived(7)
    chunk = life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    put_record(life, chunk._replace(length=chunk.length - 1))
    assert_told(life.verified(), "containers/0/", "and the objects that they name")


def test_a_block_that_names_a_chunk_behind_the_last_one() -> None:
    life = lived(7)
    segment = life.whole_segment()
    block = life.records(IndexBlockRecord)[segment.blocks[-1][1]]
    assert isinstance(block, IndexBlockRecord)
    put_record(life, block._replace(entries=(*block.entries, (1 << 20, "beyond"))))
    assert_told(life.verified(), segment.name.rpartition(".")[0], "behind its last chunk")


def test_a_chunk_of_two_segments_and_one_of_none() -> None:
    life = lived(7)
    segment, chunk = life.whole_segment(), life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    twin = SegmentRecord("twin", 3, 1, first_chunk="of the twin", last_chunk="of the twin")
    put_record(life, twin, ChunkRecord("of the twin", 3), ChunkRecord("stray", 4))
    life.store.put("of the twin", b"abc")
    report = life.verified()
    assert_told(report, "stray", "no segment leads", Severity.WARNING)
    assert_told(report, "twin", "does not know", Severity.WARNING)
    put_record(life, twin._replace(first_chunk=chunk.name, last_chunk=chunk.name, length=chunk.length))
    report = life.verified()
    assert_told(report, chunk.name, "belongs to")
    assert segment.name.rpartition(".")[0] in next(f.problem for f in report.findings if f.object == chunk.name)


def test_records_that_are_none() -> None:
    life = lived(7)
    chunk = life.records(ChunkRecord)[life.middle_chunk()]
    life.container.put_entries(STORAGE, {"nonsense": b"nonsense", "elsewhere": encode(chunk)})  # type: ignore[arg-type]
    report = life.verified()
    assert_told(report, "nonsense", "cannot be read")
    assert_told(report, "elsewhere", "leads to the record of")


def test_the_record_of_a_segment_in_tier_2_is_missing() -> None:
    life = lived(7)
    segment = life.whole_segment()
    life.container.put_entries(STORAGE, {segment.key: None})
    assert_told(life.verified(), segment.name.rpartition(".")[0], "has no record")


SAVED = {"length": 5, "id": 999, "sealed": True, "storage": "other", "start_offset": 1}


@pytest.mark.parametrize("field", SAVED)
def test_the_table_of_segments_against_those_that_are_active(field: str) -> None:
    life = lived(7)
    life.container.flush()
    state = life.container.state
    name = next(name for name, segment in sorted(state.segments.items()) if name not in state.unsaved)
    entry = life.container.entry(METADATA, name)
    assert entry is not None and entry.value is not None
    changed = decode_segment(entry.value, 0)._replace(**{field: SAVED[field]})
    life.container.put_entries(METADATA, {name: encode_segment(changed)})
    assert_told(life.verified(), name, f"its {field} is")


def test_entries_of_the_table_of_segments_that_are_wrong() -> None:
    life = lived(7)
    life.container.flush()
    state = life.container.state
    active = next(name for name, segment in sorted(state.segments.items()) if name not in state.unsaved)
    idle = next(name for name, _ in sorted(life.container.scan_entries(METADATA)) if name not in state.segments)
    entry = life.container.entry(METADATA, idle)
    assert entry is not None and entry.value is not None
    saved = decode_segment(entry.value, 0)
    changes: dict[str, bytes | None] = {
        active: None,
        idle: encode_segment(saved._replace(length=saved.length + 1)),
        "s/twin": entry.value,
        "s/nonsense": b"nonsense",
    }
    life.container.create_segment("s/new")
    life.container.put_entries(METADATA, {**changes, "s/new": encode_segment(life.container.info("s/new"))})
    report = life.verified()
    assert_told(report, active, "is not there")
    assert_told(report, idle, "are not in tier 2")
    assert_told(report, "s/twin", f"is of {idle!r}")
    assert_told(report, "s/nonsense", "cannot be read")
    assert_told(report, "s/new", "was never saved")


def test_an_attribute_that_is_none() -> None:
    life = lived(7)
    life.container.put_entries(ATTRIBUTES, {"00" * 24: b"1234567"})
    assert_told(life.verified(), ATTRIBUTES, "is not an attribute")


# --- a table by itself --------------------------------------------------------------------------------------------


class Bytes:
    """A table's two byte spaces, and its content as some bytes of them are changed."""

    def __init__(self) -> None:
        self.entries = self.pages = b""
        self.layout = table_content.empty()
        self.older: TreeRoot | None = None
        for version in range(3):
            self.older = self.layout.root
            flush = self.content().flush(
                [TableEntry(b"key %d" % key, b"value", 100 * version + key) for key in range(version, 50, version + 1)]
            )
            self.entries, self.pages, self.layout = self.entries + flush.entries, self.pages + flush.pages, flush.layout

    def content(self) -> TableContent:
        return TableContent(
            self.layout,
            lambda ranges: [self.entries[at : at + length] for at, length in ranges],
            lambda ranges: [self.pages[at : at + length] for at, length in ranges],
        )

    def problems(self, *recent: tuple[str, Entry]) -> str:
        table = new_table("t")._replace(layout=self.layout, flushed=300)
        for key, entry in recent:
            table = table.put(key, entry)
        found = list(table_problems("t", table, self.content(), Inventory()))
        assert all(problem.object == "t" for problem in found)
        return "; ".join(problem.problem for problem in found)


def test_a_table_that_agrees_with_itself() -> None:
    assert Bytes().problems() == ""
    assert Bytes().problems(("key 2", Entry(b"value", 202)), ("key 7", Entry(None, 400))) == ""


def test_an_index_entry_that_leads_to_another_key() -> None:
    content = Bytes()
    content.entries = content.entries.replace(b"key 3", b"key X")
    assert "which is not the one that the index means" in content.problems()


def test_an_index_that_leads_to_what_is_superseded() -> None:
    content = Bytes()
    content.layout = content.layout._replace(root=content.older)
    assert "its index leads to version 102 of key b'key 2', whose newest version is 202" not in content.problems()
    assert "whose newest version is" in content.problems()


def test_an_index_that_leads_to_what_is_removed() -> None:
    content = Bytes()
    flush = content.content().flush([TableEntry(b"key 1", None, 290)])
    content.entries += flush.entries
    content.layout = content.layout._replace(length=flush.layout.length, written=flush.layout.written)
    assert "which is removed" in content.problems()


@pytest.mark.parametrize("field", ["entries", "written"])
def test_numbers_of_entries_that_are_wrong(field: str) -> None:
    content = Bytes()
    content.layout = content.layout._replace(**{field: 7})  # type: ignore[arg-type]
    assert "and 7 are counted" in content.problems()


def test_a_damaged_entry_and_a_damaged_page_are_both_told() -> None:
    content = Bytes()
    start = content.layout.start
    content.entries = content.entries[:start] + b"\x09" + content.entries[start + 1 :]
    content.pages = content.pages[:-20] + bytes(20)
    assert "its format is 9" in content.problems() and "index page" in content.problems()


def test_entries_in_memory_that_tier_2_has_not() -> None:
    problems = Bytes().problems(("key 2", Entry(b"other", 202)), ("none", Entry(b"", 203)))
    assert "'key 2': version 202 was flushed, and tier 2 has version 202" in problems
    assert "'none': version 203 was flushed, and tier 2 has no entry" in problems


def test_an_entry_that_is_newer_than_what_was_flushed() -> None:
    content = Bytes()
    flush = content.content().flush([TableEntry(b"key 1", b"", 301)])
    content.entries, content.pages = content.entries + flush.entries, content.pages + flush.pages
    content.layout = flush.layout
    assert "an entry has version 301, and only those up to 300 were flushed" in content.problems()


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_damaged_frame() -> None:
    life = lived(7)
    address = life.container.head.address
    flip(life.store, frame_path(0, address), 30)
    report = life.verified()
    assert_told(report, frame_path(0, address), "checksum")
    assert report.errors == 1 and report.orphans is None and report.containers == ()


def test_a_damaged_frame_behind_which_there_is_a_checkpoint() -> None:
    life = lived(8)
    flip(life.store, frame_path(0, life.container.state.checkpoint - 1), 30)
    report = life.verified()
    assert report.errors == 0
    assert_told(report, frame_path(0, life.container.state.checkpoint - 1), "checksum", Severity.WARNING)


def test_a_frame_that_was_given_up_is_no_finding() -> None:
    life = lived(7)
    reader = life.simulation.open()
    life.container.create_segment("last")
    flip(life.store, frame_path(0, life.container.head.address), 30)
    reader.repair(life.container.head.address)
    reader.create_segment("s/after")
    assert told(life.verified()) == []


def test_a_missing_frame_that_another_process_has_gone_on_from() -> None:
    """The log ends before it, as for a frame that is not there yet, and nobody would notice."""
    life = lived(7)
    other = life.simulation.open()
    for _ in range(2):
        life.container.append("s/1", b"mine")
        other.append("s/1", b"the other's")
    path = frame_path(0, other.head.address - 2)
    life.store.delete([path])
    assert life.simulation.open().head.address == other.head.address - 3
    assert_told(life.verified(), path, "was in the log")


@pytest.mark.parametrize(("behind", "is_told"), [(3, False), (70, True)])
def test_frames_of_one_process_behind_a_gap(behind: int, is_told: bool) -> None:
    """A few may have been in flight when it died; so many are not."""
    life = lived(3)
    missing = life.container.head.address + 1
    for _ in range(behind + 1):
        life.container.append("s/1", b"mine")
    life.store.delete([frame_path(0, missing)])
    report = life.verified()
    lost = [finding for finding in report.findings if finding.object == frame_path(0, missing)]
    assert len(lost) == is_told


def test_frames_that_are_missing_before_the_newest_checkpoint() -> None:
    life = lived(9)
    life.container.flush()
    listed = life.store.list("containers/0/checkpoints/")
    life.container.checkpoint()
    first = int(listed[0].path.rpartition("/")[2])
    life.store.delete([frame_path(0, first + 1)])
    assert_told(life.verified(), frame_path(0, first + 1), "older checkpoint needs them", Severity.WARNING)


def test_a_damaged_checkpoint() -> None:
    life = lived(8)
    paths = [info.path for info in life.store.list("containers/0/checkpoints/")]
    assert len(paths) > 1
    data = life.store.read(paths[0])
    flip(life.store, paths[0])
    assert_told(life.verified(), paths[0], "checksum", Severity.WARNING)
    life.store.put(paths[0], data)
    flip(life.store, paths[-1])
    assert_told(life.verified(), paths[-1], "checksum")


def test_a_checkpoint_that_is_not_what_the_frames_give() -> None:
    life = lived(8)
    path = [info.path for info in life.store.list("containers/0/checkpoints/")][-1]
    address = int(path.rpartition("/")[2])
    head, state = checkpoints.decode(life.store.read(path), path, 0, address)
    tables = state.tables.set("t", state.tables["t"].put("k", Entry(b"other", 1)))
    life.store.put(path, checkpoints.encode(0, head, state._replace(tables=tables)))
    assert_told(life.verified(), path, "give in: tables")
    life.store.put(checkpoint_path(0, address + 1), checkpoints.encode(0, head._replace(address=address + 1), state))
    assert_told(life.verified(), checkpoint_path(0, address + 1))


def test_a_recovered_log_is_no_finding() -> None:
    from engine.recovery import recover

    life = lived(7)
    life.container.flush()
    stores = Stores(life.store, life.store)
    recover(stores, 0, force=True)
    life.container = life.simulation.open()
    assert told(life.go_on(3).verified()) == []


def test_a_lost_log() -> None:
    life = lived(7)
    life.store.delete([info.path for info in life.store.list("containers/")])
    report = life.verified()
    assert_told(report, "containers/0/", "write-ahead log")
    assert report.orphans is None


# --- backups ------------------------------------------------------------------------------------------------------


def test_a_missing_and_a_damaged_backup() -> None:
    life = lived(7)
    [info] = life.store.list(backups.folder(0))
    data = life.store.read(info.path)
    life.store.delete([info.path])
    assert_told(life.verified(), backups.folder(0), "missing: there is none")
    life.store.put(f"{backups.folder(0)}{1:020d}", data.replace(b"", b""))
    assert told(life.verified()) == []  # its number is its name alone
    flip(life.store, f"{backups.folder(0)}{1:020d}")
    assert_told(life.verified(), backups.folder(0), "checksum")


def test_an_older_backup_than_the_last_complete_cycle() -> None:
    life = lived(7)
    [old] = life.store.list(backups.folder(0))
    data = life.store.read(old.path)
    life.go_on(2)
    [new] = life.store.list(backups.folder(0))
    life.store.delete([new.path])
    life.store.put(old.path, data)
    assert_told(life.verified(), backups.folder(0), "the newest is that of cycle")


def test_what_only_the_backup_names_must_be_there() -> None:
    """It is garbage already, which must not be deleted yet (F2)."""
    life = lived(7)
    life.container.flush()
    chunk = life.middle_chunk()
    life.container.delete(life.whole_segment().name.rpartition(".")[0])
    assert told(life.verified()) == []
    life.store.delete([chunk])
    assert_told(life.verified(), chunk, "the backup of flush cycle")


# --- accounts -----------------------------------------------------------------------------------------------------


W = FrameRef(3, 100)
EXTENTS: dict[str, tuple[list[tuple[int, Extent]], str]] = {
    "gap": ([(0, Extent(W, 0, 5, b"")), (6, Extent(W, 5, 4, b""))], "a gap or an overlap"),
    "late": ([(3, Extent(W, 0, 7, b""))], "begin at 3, not 0"),
    "short": ([(0, Extent(W, 0, 5, b""))], "end at 5, not 10"),
    "none": ([], "end at 0, not 10"),
    "empty": ([(0, Extent(W, 0, 0, b"")), (0, Extent(W, 0, 10, b""))], "none of which can be read"),
    "checksums": ([(0, Extent(W, 0, 10, b"12345678"))], "checksums of another length"),
}


@pytest.mark.parametrize("what", EXTENTS)
def test_extents_that_are_not_the_content(what: str) -> None:
    items, problem = EXTENTS[what]
    extents = Extents([at for at, _ in items], [extent for _, extent in items])
    assert problem in "; ".join(extent_problems(extents, 0, 10))
    assert not list(extent_problems(Extents([0], [Extent(W, 0, 10, b"1234")]), 0, 10))


def test_states_whose_accounts_are_wrong() -> None:
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
        segments[name] = segment._replace(**changes)  # type: ignore[arg-type]
        return good._replace(segments=segments.finish())

    wrong = {
        "calls itself": with_segment(name="other"),
        "contradict each other": with_segment(stored_start=segment.length + 1),
        "where it has no name": with_segment(storage="", storage_length=segment.start_offset + 1),
        f"and {segment.logged + 1} are counted": with_segment(logged=segment.logged + 1),
        "that are to be flushed": good._replace(unsaved=good.unsaved.delete(name)),
        "is marked as deleted": good._replace(dropped=good.dropped.set(stored.storage, True)),
        "bytes lie in frames": good._replace(logged_bytes=1),
        "but is not active": good._replace(unsaved=good.unsaved.set("none", True)),
        "is named by": good._replace(chunks=good.chunks.set(chunk, 77)),
        "is garbage and in use": good._replace(garbage=good.garbage.set(chunk, garbage)),
        "entries in memory have": good._replace(tables=good.tables.set("t", table._replace(size=1))),
    }
    for problem, state in wrong.items():
        assert problem in "; ".join(found.problem for found in state_problems(state)), problem  # type: ignore[arg-type]


# --- what is behind it --------------------------------------------------------------------------------------------


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
    inventory = Inventory()
    inventory.expect(Expected(False, f"{n:05d}", 0, Kind.CHUNK, "s", 10, 5) for n in range(1234))
    inventory.expect([Expected(False, "00007", 0, Kind.GARBAGE, "garbage", 0, 0, required=False)])
    inventory.expect([Expected(True, "00007", 0, Kind.FRAME, "s", 10, 5)])
    assert sum(map(len, inventory.missing(0))) == 1235 and not list(inventory.missing(1))
    assert not list(inventory.clashes(0))
    inventory.expect([Expected(False, "00007", 0, Kind.ATTACHED, "other", 20, 5)])
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
    reader = Reader(life.container, life.container.state, noted.append)
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
    record = life.records(SegmentRecord)[f"{extent.source.storage}$segment"]
    assert isinstance(record, SegmentRecord) and record.first_chunk is not None
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
