"""Objects that move or vanish under a reader, and processes that slept."""

import pytest

from chunkstore import ObjectNotFound
from engine.containers.container import Container
from engine.errors import NotPrimary, SegmentNotFound, SegmentTruncated
from engine.state.operations import PutEntry
from engine.storage.object_reads import fetch
from tests.engine.containers.segments import content
from tests.support.simulation import Simulation


def moved(simulation: Simulation) -> Container:
    """A process that read the log some time ago; since then all was flushed, and the frames were deleted."""
    writer = simulation.open()
    writer.create_segment("s/a")
    for number in range(5):
        writer.append("s/a", b"%d" % number * 10)
    reader = simulation.open()
    writer.flush()
    writer.checkpoint()
    simulation.advance(700)
    assert writer.truncate_log() > 5
    assert len(simulation.store.list("_system/containers/0/wal/")) == 1
    return reader


def test_a_reader_whose_objects_have_moved_looks_the_range_up_again() -> None:
    simulation = Simulation()
    reader = moved(simulation)
    pieces = reader.plan("s/a", 5, 45)
    with pytest.raises(ObjectNotFound):
        fetch(reader.stores, pieces)
    assert reader.read("s/a", 5, 45) == b"0000011111111112222222222333333333344444"
    assert all(not piece.logged for piece in reader.plan("s/a", 5, 45))


def test_a_reader_whose_data_was_truncated_or_deleted_is_told() -> None:
    simulation = Simulation()
    reader = moved(simulation)
    simulation.open().truncate("s/a", 7)
    with pytest.raises(SegmentTruncated) as error:
        reader.read("s/a", 5, 45)
    assert error.value.start_offset == 7
    reader = moved(other := Simulation())
    other.open().delete("s/a")
    with pytest.raises(SegmentNotFound):
        reader.read("s/a", 5, 45)


@pytest.mark.usefixtures("small")
def test_a_scan_whose_objects_have_gone_meets_nothing_twice() -> None:
    """It goes on with a newer state, which has all of the table."""
    simulation = Simulation(garbage_delay=100.0)
    writer = simulation.open()
    keys = [f"key {number:03}" for number in range(200)]
    writer.commit([PutEntry("t", key, bytes(30)) for key in keys])
    writer.flush()
    reader = simulation.open()
    known, scan = reader.head, reader.scan_entries("t")
    met = [next(scan)[0] for _ in range(20)]
    for _ in range(4):
        writer.commit([PutEntry("t", key, bytes(30)) for key in keys])
        writer.flush()
        simulation.advance(101)
        writer.collect_garbage()
    met += [key for key, _ in scan]
    assert reader.head != known
    assert sorted(met) == keys


def test_a_writer_that_slept_starts_over() -> None:
    """Its frame would land at an address whose frames were deleted: nobody would ever see it (W7)."""
    simulation = Simulation()
    sleeper = moved(simulation)
    assert sleeper.append("s/a", b"awake") == 50
    assert content(simulation.open(), "s/a")[50:] == b"awake"
    assert content(sleeper, "s/a")[50:] == b"awake"


def test_a_sleeper_does_not_think_the_log_ended_where_it_was_deleted() -> None:
    simulation = Simulation()
    sleeper = moved(simulation)
    simulation.open().append("s/a", b"new")
    assert sleeper.info("s/a").length == 53


def test_a_primary_that_slept_is_not_the_primary_any_more() -> None:
    simulation = Simulation()
    primary = simulation.open(exclusive=True)
    moved(simulation)
    with pytest.raises(NotPrimary):
        primary.refresh()
    assert primary.offline
