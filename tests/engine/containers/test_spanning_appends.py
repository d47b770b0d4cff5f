"""Appends that span frames (W4)."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from chunkstore.testing import Crashed, Fault, FaultStore, Request, SimulatedExecutor, crash_at
from engine.containers.container import Container
from engine.errors import BadOffset, OutcomeUnknown, SegmentSealed
from engine.state.index_records import IndexRecords
from engine.state.operations import Append, CreateSegment, Operation, PutEntry
from tests.engine.containers.segments import append, chunks_in, content, counted, pattern
from tests.support.simulation import MAX_PAYLOAD, Simulation, audit


def spanning(simulation: Simulation, plan: Callable[[int, Request], Any]) -> Container:
    """A process with several frames in flight, whose puts of frames are subject to `plan`."""
    through = FaultStore(simulation.store, plan, verbs={"put_if_absent"})
    return simulation.open(through=through, executor=SimulatedExecutor(3))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("piece", range(1, 6))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_between_pieces_leaves_nothing(piece: int, when: Any) -> None:
    simulation = Simulation()
    simulation.open().commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"before")])
    crashing = spanning(simulation, crash_at(piece, when))
    operations: list[Operation] = [
        append("s/a", pattern(4 * MAX_PAYLOAD)),
        append("s/b", b"short"),
        PutEntry("t", "k", b"v"),
    ]
    with pytest.raises(Crashed):
        crashing.commit(operations)
    reopened = simulation.open()
    done = content(reopened, "s/b") == b"short"
    assert content(reopened, "s/a") == b"before" + (pattern(4 * MAX_PAYLOAD) if done else b"")
    assert (reopened.state.entry("t", "k") is not None) == done
    if not done:
        assert reopened.append("s/a", b"after") == 6
        reopened.commit(operations)
        assert content(simulation.open(), "s/a") == b"beforeafter" + pattern(4 * MAX_PAYLOAD)


@pytest.mark.usefixtures("small")
def test_what_spans_frames_behind_something_small_is_cut_at_whole_blocks() -> None:
    """The first frame has no whole blocks left for it, and its checksums are those of whole blocks."""
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/index"), CreateSegment("s/a")])
    data = pattern(3 * MAX_PAYLOAD)
    container.commit([append("s/index", b"a record"), append("s/a", data)])
    for process in (container, simulation.open()):
        assert content(process, "s/index") == b"a record"
        assert content(process, "s/a") == data


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("piece", range(1, 6))
def test_another_writer_between_pieces_voids_them_and_the_payload_goes_to_a_chunk(piece: int) -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == piece:
            other.append("s/a", b"first")

    container = spanning(simulation, overtake)
    data = pattern(4 * MAX_PAYLOAD)
    receipt = container.commit([append("s/a", data), append("s/b", b""), append("s/b", data[::-1])])
    assert receipt.results == [5, 0, 0]
    for process in (container, other, simulation.open()):
        assert content(process, "s/a") == b"first" + data
        assert content(process, "s/b") == data[::-1]
        audit(process.state)
    chunks = chunks_in(simulation.store)
    assert len(chunks) == 1
    assert simulation.store.read(chunks[0]) == data + data[::-1]
    assert dict(other.state.chunks) == {chunks[0]: 2}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("storage_fails", [False, True])
def test_a_large_append_that_is_refused_in_the_end_leaves_no_chunk(storage_fails: bool) -> None:
    """Nor does it keep anybody waiting when the storage is not there to delete the chunk."""
    simulation = Simulation()
    other = simulation.open()
    other.create_segment("s/a")

    def overtake(number: int, request: Request) -> Fault | None:
        if request.verb == "put":  # the chunk, after a race was lost
            other.seal("s/a")
        if request.verb == "delete" and storage_fails:
            return Fault("before")
        if number == 2:
            other.append("s/a", b"first")
        return None

    through = FaultStore(simulation.store, overtake, verbs={"put", "put_if_absent", "delete"})
    container = simulation.open(through=through, executor=SimulatedExecutor(3))
    with pytest.raises(SegmentSealed):
        container.append("s/a", pattern(3 * MAX_PAYLOAD))
    assert len(chunks_in(simulation.store)) == storage_fails
    assert content(simulation.open(), "s/a") == b"first"


@pytest.mark.usefixtures("small")
def test_large_derived_content_is_made_anew_after_a_lost_race() -> None:
    """It depends on the state, so it cannot go to a chunk beforehand."""
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == 2:
            other.append("s/a", b"first")

    container = spanning(simulation, overtake)
    records = IndexRecords("s/a", bytes(3 * MAX_PAYLOAD))
    container.commit([Append("s/b", records)])
    assert content(other, "s/b") == struct.pack(">4q", 5, 0, 0, 0) * (3 * MAX_PAYLOAD // 32)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lost", range(1, 5))
def test_pieces_behind_a_lost_one_never_come_to_life(lost: int) -> None:
    """They name it as their predecessor, by writer and address. The next frame there must be another writer's."""
    simulation = Simulation(timeout=1.0)
    simulation.open().create_segment("s/a")
    path: list[str] = []

    def lose(number: int, request: Request) -> Fault | None:
        if number == lost:
            path.append(request.paths[0])
        return Fault("before") if request.paths[0] in path else None

    container = spanning(simulation, lose)
    with pytest.raises(OutcomeUnknown):
        container.append("s/a", pattern(4 * MAX_PAYLOAD))
    path.clear()
    for number in range(8):
        assert container.append("s/a", b"%d" % number) == number
    assert content(container, "s/a") == content(simulation.open(), "s/a") == b"01234567"


@pytest.mark.usefixtures("small")
def test_a_large_append_is_refused_before_its_pieces_are_sent() -> None:
    _, counting, container = counted()
    with pytest.raises(BadOffset):
        container.append("s/a", pattern(5 * MAX_PAYLOAD), offset=1)
    assert counting.counts == {"read_ranges": 1}
