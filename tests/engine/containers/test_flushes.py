"""Flush cycles, truncation of the log and garbage of a container."""

from collections.abc import Callable
from functools import partial

import pytest

from chunkstore.metadata.garbage_queue import GarbageKind
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.paths import is_log
from chunkstore.testing import Crashed, FaultStore, Request, crash_at
from engine.containers.container import Container
from engine.errors import SegmentNotFound
from engine.state.operations import Append, AttributeUpdate, CreateSegment, PutEntry, QueueGarbage, UpdateKind
from engine.state.segments import EVENT_COUNT
from engine.storage.chunk_writer import write_chunk
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from tests.engine.containers.segments import append, chunks_in, chunks_of, content, counted, pattern
from tests.support.container_model import contents_of
from tests.support.simulation import Simulation


@pytest.mark.parametrize("first", ["the delay", "a later cycle"])
def test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then(first: str) -> None:
    """The first flush marks what was deleted; its recovery point is good until the second one is complete (F2)."""
    simulation = Simulation(garbage_delay=1000.0)
    container, other = simulation.open(), simulation.open()
    for name in ("s/a", "s/b"):
        container.create_segment(name)
        container.append(name, name.encode())
    container.flush()
    container.delete("s/a")
    doomed, kept = chunks_in(simulation.store)
    assert doomed.startswith("s/a.")

    def is_kept() -> bool:
        other.collect_garbage()
        return chunks_in(simulation.store) == [doomed, kept]

    simulation.advance(2000)
    assert is_kept(), "LTS knows it still"
    container.flush()
    assert is_kept()
    if first == "the delay":
        simulation.advance(2000)
        assert is_kept(), "the last recovery point names it"
        container.flush()
    else:
        container.flush()
        simulation.advance(999)
        assert is_kept(), "a reader may be at it"
        simulation.advance(2)
    assert other.collect_garbage() > 0
    assert chunks_in(simulation.store) == [kept]
    assert chunks_of(other) == [kept]
    assert container.collect_garbage() == 0
    assert content(container, "s/b") == b"s/b"


def test_an_attached_chunk_that_was_let_go_is_deleted_after_the_delay() -> None:
    simulation = Simulation(garbage_delay=1000.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.flush()
    container.commit([Append("s/a", tuple(write_chunk(simulation.store, "s/chunk", [[b"1"], [b"2"]])))])
    container.truncate("s/a", 1)
    simulation.advance(1001)
    container.flush()
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store), "it was copied just now"
    container.flush()
    simulation.advance(999)
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store)
    simulation.advance(2)
    container.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(container) != []
    assert content(simulation.open(), "s/a") == b"2"


def test_the_log_keeps_what_is_not_flushed_even_below_a_truncation_point() -> None:
    """Also where a merge has put older frames behind younger ones."""
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/old"), CreateSegment("s/young")])
    container.append("s/old", b"old")
    container.append("s/young", b"young")
    container.seal("s/old")
    container.merge("s/young", "s/old")
    for _ in range(2):
        container.checkpoint()
        simulation.advance(700)
        container.truncate_log()
    assert content(simulation.open(), "s/young") == b"youngold"
    container.flush()
    container.checkpoint()
    simulation.advance(700)
    assert container.truncate_log() > 0
    assert len(simulation.store.list("_system/containers/0/wal/")) == 1
    assert content(simulation.open(), "s/young") == b"youngold"


def goes_on_while_asleep(
    simulation: Simulation, container: Container, asleep_at: int, number: int, request: Request
) -> None:
    """Before that request of somebody else a truncation point is made behind what is not flushed, and comes of age."""
    if number == asleep_at:
        container.append("s/a", b"not flushed")
        container.checkpoint()
        for _ in range(2):
            container.truncate_log()
            simulation.advance(700)


def test_a_truncation_that_sleeps_knows_of_all_that_the_truncation_point_covers() -> None:
    """Its state is newer than the truncation point that it uses, so it knows what was appended before that."""
    asleep_at = 0
    while True:
        asleep_at += 1
        simulation = Simulation()
        container = simulation.open()
        container.create_segment("s/a")
        container.checkpoint()
        simulation.advance(700)

        sleeper = simulation.open(through=(store := FaultStore(simulation.store)))
        store.passed, store.plan = 0, partial(goes_on_while_asleep, simulation, container, asleep_at)
        sleeper.truncate_log()
        if store.passed < asleep_at:
            break
        assert content(simulation.open(), "s/a") == b"not flushed", f"asleep before request {asleep_at}"
    assert asleep_at > 3


def test_the_log_is_not_truncated_before_its_truncation_point_is_old_by_the_stores_clock() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    container.checkpoint()
    simulation.store.now += 599
    assert container.truncate_log() == 0
    simulation.store.now += 2
    assert container.truncate_log() == 1


def test_of_two_who_flush_the_same_one_has_nothing_to_do() -> None:
    simulation = Simulation()
    one = simulation.open()
    one.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"a"), append("s/b", b"b")])

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            one.append("s/b", b"more")
            assert one.flush() == 6

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() == 0
    assert set(chunks_of(one)) < set(chunks_in(simulation.store))
    for process in (one, two, simulation.open()):
        assert content(process, "s/a") + content(process, "s/b") == b"abmore"
        assert process.state.cycle.complete


@pytest.mark.parametrize("meanwhile", ["flush", "truncate"])
def test_the_loser_of_a_race_deletes_its_chunks(meanwhile: str) -> None:
    simulation = Simulation(garbage_delay=100.0)
    one = simulation.open()
    one.commit([CreateSegment("s/a"), append("s/a", b"12345")])

    def overtake(number: int, request: Request) -> None:
        if number == 1:
            one.flush() if meanwhile == "flush" else one.truncate("s/a", 3)

    two = simulation.open(through=FaultStore(simulation.store, overtake, verbs={"put"}))
    two.flush()
    for _ in range(3):
        simulation.advance(101)
        one.flush()
        one.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(one)
    assert content(one, "s/a") == (b"12345" if meanwhile == "flush" else b"45")


@pytest.mark.parametrize("what", ["merge", "delete", "truncate"])
def test_a_recovery_point_is_what_the_container_was_when_its_cycle_began(what: str) -> None:
    """Or what it was at the beginning of a later one, which then is the one that is complete."""
    simulation = Simulation()
    other = simulation.open()
    for name in ("s/a", "s/b"):
        other.commit([CreateSegment(name), append(name, b"flushed")])
    other.seal("s/b")
    other.flush()
    other.commit([append("s/a", b",more"), PutEntry("t", "k", b"v")])
    before = contents_of(other)

    def append_and_truncate() -> None:
        other.append("s/a", b",and more")
        other.truncate("s/a", 15)

    acts: dict[str, Callable[[], object]] = {
        "merge": lambda: other.merge("s/a", "s/b"),
        "delete": lambda: other.delete("s/b"),
        "truncate": append_and_truncate,
    }

    def meanwhile(number: int, request: Request) -> None:
        if number == 2:  # the segments are in LTS; now the tables
            assert request.paths[0].startswith("_system/")
            acts[what]()

    simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"})).flush()
    after = contents_of(other)
    assert after != before
    simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])
    recover(Stores(simulation.store, simulation.store), 0)
    assert contents_of(simulation.open()) in (before, after)


def test_what_is_truncated_or_deleted_while_it_is_flushed() -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"b")])
    for _ in range(3):
        other.append("s/a", b"12345")

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            other.truncate("s/a", 7)
            other.delete("s/b")

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() >= 8
    assert two.refresh().cycle.complete and not two.state.unsaved
    assert content(other, "s/a") == content(simulation.open(), "s/a") == b"34512345"
    assert b"".join(simulation.store.read(path) for path in chunks_of(two)) == b"34512345"


@pytest.mark.parametrize("source", ["attached", "merged"])
def test_what_is_truncated_within_is_not_taken_over_as_a_whole(source: str) -> None:
    """A chunk that a task made, or a merged segment: its first bytes are gone before a flush comes to it."""
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    if source == "attached":
        container.commit([Append("s/a", tuple(write_chunk(simulation.store, "s/chunk", [[b"0123456789"]])))])
    else:
        container.commit([CreateSegment("s/b"), append("s/b", b"0123456789")])
        container.seal("s/b")
        container.flush()
        container.merge("s/a", "s/b")
    container.truncate("s/a", 4)
    container.flush()
    container.append("s/a", b"more")
    assert content(container, "s/a") == content(simulation.open(), "s/a") == b"456789more"


@pytest.mark.parametrize("what", ["truncated", "sealed"])
def test_a_recovery_point_says_only_what_lts_was_told(what: str) -> None:
    """A segment is deleted before LTS is told of its truncation or sealing; recovered, it is told by a later cycle."""
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), append("s/a", b"12345")])
    other.flush()
    other.append("s/a", b"67890")
    if what == "truncated":
        other.truncate("s/a", 3)
    else:
        other.seal("s/a")
    flushed: list[int] = []

    def meanwhile(number: int, request: Request) -> None:
        if "/wal/" in request.paths[0]:
            state = other.refresh()
            if not flushed and state.segments["s/a"].storage_length == 10:
                flushed.append(number)
                other.delete("s/a")

    assert simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put_if_absent"})).flush() == 5
    assert flushed
    simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])
    recover(Stores(simulation.store, simulation.store), 0)
    recovered = simulation.open()
    recovered.update_attributes("s/a", [AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, 1)])
    recovered.flush()
    (record,) = [record for _, record in recovered.records.records() if isinstance(record, StoredSegmentRecord)]
    assert record.start_offset == (3 if what == "truncated" else 0)
    assert bool(record.status & RecordStatus.SEALED) is (what == "sealed")


def test_data_is_flushed_before_its_index() -> None:
    """Whichever of them was made or written first (F1)."""
    simulation, counting, container = counted()
    container.commit([CreateSegment("s/b#index"), append("s/b#index", b"index"), append("s/a", b"data")])
    container.commit([CreateSegment("s/b"), append("s/b", b"data")])
    counting.reset()
    container.flush()
    made = [path for request in counting.requests if request.verb == "put" for path in request.paths]
    chunks = [path.partition(".")[0] for path in made if path in chunks_in(simulation.store)]
    assert sorted(chunks[:2]) == ["s/a", "s/b"] and chunks[2:] == ["s/b#index"]


def test_what_a_cycle_passed_over_is_missing_in_its_recovery_point() -> None:
    """It was in LTS before, and is deleted before this cycle comes to it."""
    simulation = Simulation()
    container = simulation.open()
    for name in ("s/a", "s/b"):
        container.commit([CreateSegment(name), append(name, b"flushed")])
    container.flush()
    container.commit([append("s/a", b" more"), append("s/b", b" more")])
    cycle = container.writer.begin(container.refresh(), strict=False)
    simulation.open().delete("s/a")
    assert cycle.run()
    simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])
    recover(Stores(simulation.store, simulation.store), 0)
    recovered = simulation.open()
    assert content(recovered, "s/b") == b"flushed more"
    with pytest.raises(SegmentNotFound):
        recovered.info("s/a")


def test_a_crash_between_truncating_and_sealing_in_lts_leaves_neither_undone() -> None:
    number, crashed = 0, True
    while crashed:
        number += 1
        simulation = Simulation()
        container = simulation.open()
        container.commit([CreateSegment("s/a"), append("s/a", b"1234567890")])
        container.flush()
        container.truncate("s/a", 3)
        container.seal("s/a")
        through = FaultStore(simulation.store, verbs={"put_if_absent"})
        crashing = simulation.open(through=through)
        through.plan = crash_at(through.passed + number, "after")
        try:
            crashing.flush()
            crashed = False
        except Crashed:
            simulation.open().flush()
        records = [record for _, record in simulation.open().records.records()]
        (record,) = [record for record in records if isinstance(record, StoredSegmentRecord)]
        assert record.start_offset == 3 and record.status & RecordStatus.SEALED
    assert number > 3


def attached_once_more(number: int) -> bool:
    """A collection in which another process names a chunk again at that read, if it is there. Whether it was."""
    simulation = Simulation(garbage_delay=100.0)
    other = simulation.open()
    extents = tuple(write_chunk(simulation.store, "s/chunk", [[b"content"]]))
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), Append("s/a", extents)])
    other.flush()
    other.delete("s/a")
    for _ in range(2):
        other.flush()
        simulation.advance(101)
    through = FaultStore(simulation.store, verbs={"read", "read_ranges"})
    collector = simulation.open(through=through)
    named, passed = [], through.passed

    def meanwhile(at: int, request: Request) -> None:
        if at == passed + number and "s/chunk" in chunks_in(simulation.store):
            named.append(request)
            other.commit([Append("s/b", extents)])

    through.plan = meanwhile
    collector.collect_garbage()
    assert content(simulation.open(), "s/b") == (b"content" if named else b"")
    assert chunks_in(simulation.store) == (["s/chunk"] if named else [])
    return bool(named)


@pytest.mark.usefixtures("small")
def test_a_collection_keeps_what_was_attached_once_more_since_it_began() -> None:
    """A chunk of a segment that was deleted, which another process names again before the collector comes to it."""
    number = 1
    while attached_once_more(number):
        number += 1
    assert number > 3


def test_a_chunk_that_only_the_log_names_is_not_collected_though_it_is_queued() -> None:
    """The queue may name what is alive: LTS has no record of it yet."""
    simulation = Simulation(garbage_delay=100.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.commit([Append("s/a", tuple(write_chunk(simulation.store, "s/chunk", [[b"content"]])))])
    container.commit([QueueGarbage((("s/chunk", int(GarbageKind.CHUNK), ""),))])
    simulation.advance(101)
    assert container.collect_garbage() == 0
    assert "s/chunk" not in container.state.garbage
    assert content(simulation.open(), "s/a") == b"content"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_merged_while_it_is_flushed_stays_in_lts(strict: bool) -> None:
    """Some of it is in LTS under a name that the segment that it was merged into goes by then."""
    simulation = Simulation(garbage_delay=100.0)
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b")])
    data = pattern(1600)
    for start in range(0, 1600, 200):
        other.append("s/b", data[start : start + 200])
    other.seal("s/b")
    merged: list[int] = []

    def meanwhile(number: int, request: Request) -> None:
        if not merged and other.refresh().segments["s/b"].storage_length:
            merged.append(number)
            other.merge("s/a", "s/b")

    container = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put_if_absent"}))
    container.writer.begin(container.refresh(), strict=strict).run()
    assert merged
    for _ in range(3):
        assert content(simulation.open(), "s/a") == data
        simulation.advance(101)
        other.flush()
        other.collect_garbage()


@pytest.mark.usefixtures("small")
def test_an_entry_that_is_put_while_its_table_is_flushed_stays() -> None:
    """The cycle brings to LTS what was there when it began."""
    simulation = Simulation()
    container = simulation.open()
    container.commit([PutEntry("t", "early", b"1" * 50)])
    cycle = container.writer.begin(container.refresh(), strict=True)
    container.commit([PutEntry("t", "late", b"2" * 50)])
    assert cycle.run()
    for process in (container, simulation.open()):
        found = process.entries("t", ["early", "late"])
        values = {key: entry.value if entry is not None else None for key, entry in found.items()}
        assert values == {"early": b"1" * 50, "late": b"2" * 50}
