"""Transient segments: what they take, how they go, and that nothing of them is left (PDP-43)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from chunkstore.chunk_names import new_chunk_name
from chunkstore.paths import is_log
from chunkstore.testing import FaultStore, Request
from engine.admin.inspection import describe_segment
from engine.containers.container import Container
from engine.errors import (
    BadAttributeUpdate,
    BadOffset,
    Rejected,
    SegmentNotFound,
    SegmentSealed,
    SegmentTransient,
)
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    EvictSegments,
    MergeSegment,
    Operation,
    Payload,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT, TRANSIENT_ATTRIBUTES, Extent, parent_in, transient_name
from engine.storage.chunk_writer import write_chunk
from engine.storage.recovery import recover
from tests.support.simulation import MAX_PAYLOAD, Simulation, audit, small_sizes

IDLE = 1000.0
T = transient_name("s/a", uuid.UUID(int=1), uuid.UUID(int=2))
OTHER = transient_name("s/a", uuid.UUID(int=1), uuid.UUID(int=3))
W = bytes(15) + b"w"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(transient_idle=IDLE)


@pytest.fixture
def container(simulation: Simulation) -> Container:
    """With segments "s/a" and "s/b", and the transient segment T of "s/a" with 5 bytes."""
    opened = simulation.open()
    opened.commit([CreateSegment("s/a"), CreateSegment("s/b"), Append("s/a", Payload(b"before,"))])
    opened.create_segment(T, [owner(UpdateKind.NONE, 7)], parent="s/a")
    opened.append(T, b"large")
    return opened


def owner(kind: UpdateKind, value: int, comparison: int = 0) -> AttributeUpdate:
    return AttributeUpdate(W, kind, value, comparison)


def attached(container: Container, *contents: bytes) -> tuple[Extent, ...]:
    """Chunks, one for each of the contents."""
    chunks = container.stores.chunks
    return tuple(extent for data in contents for extent in write_chunk(chunks, new_chunk_name("s/a", 1, 0), [[data]]))


def content(container: Container, segment: str) -> bytes:
    info = container.info(segment)
    return container.read(segment, info.start_offset, info.length)


def users_chunks(simulation: Simulation) -> list[str]:
    return [info.path for info in simulation.store.list("s/")]


# --- what it takes -----------------------------------------------------------------------------------------------


def test_names_tell_the_parent() -> None:
    assert T == "s/a#transient." + "0" * 31 + "1." + "0" * 31 + "2"
    assert parent_in(T) == "s/a"
    for other in ("s/a", "s/a#index", T[:-1], T + "0", "#transient." + T.partition("#transient.")[2], T.upper()):
        assert parent_in(other) is None


REFUSED: list[Operation] = [
    SealSegment(T),
    TruncateSegment(T, 2),
    UpdateAttributes(T, (owner(UpdateKind.REPLACE, 8),)),
    MergeSegment(T, "s/b"),
]


@pytest.mark.parametrize("operation", REFUSED, ids=lambda operation: type(operation).__name__)
@pytest.mark.parametrize("flush", [False, True])
def test_only_appends_change_it(container: Container, operation: Operation, flush: bool) -> None:
    container.seal("s/b")
    if flush:
        container.flush()
        container.commit([EvictSegments((T,))])
    before = container.info(T)
    with pytest.raises(SegmentTransient, match=r"transient and cannot .* be|transient and cannot have attr"):
        container.commit([operation])
    assert container.info(T)[:8] == before[:8]


def test_it_has_few_attributes(container: Container) -> None:
    def numbered(first: int, count: int) -> list[AttributeUpdate]:
        return [AttributeUpdate(bytes(15) + bytes([n]), UpdateKind.NONE, n) for n in range(first, first + count)]

    events = AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, 1)  # a core attribute does not count
    container.append(T, b"", None, [*numbered(0, TRANSIENT_ATTRIBUTES - 1), events])
    with pytest.raises(SegmentTransient, match="5 extended attributes, more than 4"):
        container.append(T, b"refused", None, numbered(9, 1))
    with pytest.raises(SegmentTransient, match="extended attributes"):
        container.create_segment(OTHER, numbered(0, TRANSIENT_ATTRIBUTES + 1), parent="s/a")
    assert content(container, T) == b"large"
    container.append(T, b"!", None, [owner(UpdateKind.REPLACE_IF_EQUALS, 8, 7)])
    with pytest.raises(BadAttributeUpdate):
        container.append(T, b"!", None, [owner(UpdateKind.REPLACE_IF_EQUALS, 8, 7)])
    container.flush()
    container.flush()  # whatever the number of attributes kept in memory is
    assert not container.info(T).spilled


def test_its_parent_must_be_one(container: Container) -> None:
    with pytest.raises(SegmentTransient, match="have transient segments itself"):
        container.create_segment(transient_name(T, uuid.UUID(int=1), uuid.UUID(int=2)), parent=T)
    with pytest.raises(SegmentNotFound):
        container.create_segment(transient_name("s/none", uuid.UUID(int=1), uuid.UUID(int=2)), parent="s/none")
    container.seal("s/b")
    with pytest.raises(SegmentSealed):
        container.create_segment(transient_name("s/b", uuid.UUID(int=1), uuid.UUID(int=2)), parent="s/b")
    for name, parent in ((OTHER, "s/b"), (OTHER, ""), ("s/c", "s/a")):
        with pytest.raises(ValueError, match="transient segments, and only those, have names like"):
            container.create_segment(name, parent=parent)
    audit(container.state)


# --- merging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", ["nothing", "partly", "all"])
@pytest.mark.parametrize("target", ["s/a", "s/b"])
def test_it_is_merged_unsealed_with_a_header(simulation: Simulation, flushed: str, target: str) -> None:
    """In the segment it was made for or another one, whatever LTS has of it; and what is recovered is the same."""
    container = simulation.open()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b"), Append(target, Payload(b"before,"))])
    container.commit([CreateSegment(T, (), "s/a"), Append(T, attached(container, b"large " * 50))])
    if flushed == "partly":
        container.flush()
    container.commit([Append(T, attached(container, b"and " * 60, b"larger"), 300)])
    container.append(T, b" in the log")
    if flushed == "all":
        container.flush()
    one = AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, 1)
    with pytest.raises(BadOffset):  # as somebody has appended meanwhile
        container.commit([Append(T, (), 299, (one,)), MergeSegment(target, T, Payload(b"<header>"))])
    length = container.info(T).length
    results = container.commit([Append(T, (), length, (one,)), MergeSegment(target, T, Payload(b"<header>"))]).results
    assert results == [length, 7]
    expected = b"before,<header>" + b"large " * 50 + b"and " * 60 + b"larger in the log"
    for flush in (False, True, True):
        if flush:
            container.flush()
        for process in (container, simulation.open()):
            assert content(process, target) == expected
            assert process.attributes(target, [EVENT_COUNT]) == {EVENT_COUNT: 1}
            assert not process.state.transients
            with pytest.raises(SegmentNotFound):
                process.info(T)
            audit(process.state)
    container.close()
    lose_log(simulation)
    recover(simulation.stores, 0)
    assert content(simulation.open(), target) == expected


def test_attached_chunks_are_taken_over_as_they_are(container: Container, simulation: Simulation) -> None:
    extents = attached(container, bytes(3 * MAX_PAYLOAD), b"x" * 10)
    container.commit([Append(T, extents, 5)])
    container.merge("s/a", T, b"<header>")
    container.flush()
    chunks = users_chunks(simulation)
    assert {extent.source for extent in extents} < set(chunks)
    assert sum(simulation.store.stat(chunk).size for chunk in chunks) == container.info("s/a").length


def test_a_merge_during_a_flush_cycle() -> None:
    """At every request of the cycle: nothing is lost, though some is in LTS, and the next recovery point has it."""
    number, merged = 0, True
    while merged:
        number += 1
        merged = False
        again = Simulation(transient_idle=IDLE)
        writer = again.open()
        writer.commit([CreateSegment("s/a"), CreateSegment(T, (), "s/a"), Append(T, Payload(b"first"))])
        writer.commit([Append(T, attached(writer, b"chunk " * 50), 5)])

        def merge(at: int, request: Request, number: int = number, writer: Container = writer) -> None:
            nonlocal merged
            if at == number:
                merged = True
                writer.merge("s/a", T, b"<header>")

        through = FaultStore(again.store, merge)
        flusher = again.open(through=through)
        flusher.flush()
        through.plan = None
        if not merged:
            writer.merge("s/a", T, b"<header>")
        for process in (writer, flusher, again.open()):
            assert content(process, "s/a") == b"<header>first" + b"chunk " * 50
            audit(process.state)
        flusher.flush()
        lose_log(again)
        recover(again.stores, 0)
        assert content(again.open(), "s/a") == b"<header>first" + b"chunk " * 50
    assert number > 10


def lose_log(simulation: Simulation) -> None:
    simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])


# --- going -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "merged"])
@pytest.mark.parametrize("idle", [False, True])
def test_it_goes_with_its_parent(container: Container, how: str, idle: bool) -> None:
    container.create_segment(OTHER, parent="s/a")
    container.flush()
    if idle:
        container.commit([EvictSegments((T, "s/a"))])
        assert T not in container.state.segments
    if how == "deleted":
        container.delete("s/a")
    else:
        container.seal("s/a")
        container.merge("s/b", "s/a")
    for name in (T, OTHER):
        with pytest.raises(SegmentNotFound):
            container.append(name, b"late")
    assert not container.state.transients
    audit(container.state)


def expired_after(container: Container, simulation: Simulation, seconds: float) -> tuple[str, ...]:
    simulation.advance(seconds)
    return container.expire_transients()


def test_it_expires_when_nobody_appends(container: Container, simulation: Simulation) -> None:
    container.commit([Append(T, attached(container, b"chunk"), 5)])
    assert expired_after(container, simulation, 0.9 * IDLE) == ()
    container.append(T, b"")
    assert expired_after(container, simulation, 0.9 * IDLE) == ()
    assert set(container.idle_transients()) == set()
    assert expired_after(container, simulation, 0.2 * IDLE) == (T,)
    assert container.expire_transients() == ()
    with pytest.raises(SegmentNotFound):
        container.append(T, b"late")
    container.flush()
    simulation.advance(700)
    container.collect_garbage()
    assert all("transient" not in path for path in users_chunks(simulation)) and len(users_chunks(simulation)) == 1
    assert content(container, "s/a") == b"before,"


@pytest.mark.parametrize("where", ["in memory", "in LTS", "recovered"])
def test_it_expires_after_a_restart(container: Container, simulation: Simulation, where: str) -> None:
    if where != "in memory":
        container.flush()
        container.commit([EvictSegments((T,))])
    container.close()
    if where == "recovered":
        lose_log(simulation)
        recover(simulation.stores, 0)
    again = simulation.open()
    assert content(again, T) == b"large" and again.info(T).parent == "s/a"
    with pytest.raises(SegmentTransient):
        again.seal(T)
    assert expired_after(again, simulation, 0.9 * IDLE) == ()
    assert expired_after(again, simulation, 0.2 * IDLE) == (T,)
    assert T not in simulation.open().state.transients


def test_a_recovery_may_know_names_of_what_was_gone(container: Container, simulation: Simulation) -> None:
    """A cycle passes over what is deleted while it goes on, at its last try."""

    def delete(at: int, request: Request) -> None:
        if request.verb == "put" and "/recovery-points/" in request.paths[0] and T in other.state.transients:
            other.delete(T)

    other = simulation.open()
    flusher = simulation.open(through=FaultStore(simulation.store, delete))
    flusher.flush()
    flusher.close()
    lose_log(simulation)
    recover(simulation.stores, 0)
    again = simulation.open()
    assert list(again.refresh().transients) == [T]
    assert expired_after(again, simulation, 2 * IDLE) == (T,)
    assert not again.state.transients
    audit(again.state)


@pytest.mark.parametrize("append", [True, False])
def test_an_append_between_judging_and_expiry(container: Container, simulation: Simulation, append: bool) -> None:
    """The cleaner found it idle, and its writer comes first: it stays. Or comes later: it hears that it is gone."""
    simulation.advance(1.1 * IDLE)
    overtaken: list[int] = []

    def overtake(at: int, request: Request) -> None:
        if append and not overtaken:
            overtaken.append(container.append(T, b" and alive", 5))

    through = FaultStore(simulation.store, overtake, verbs={"put_if_absent"})
    cleaner = simulation.open(through=through)
    assert cleaner.expire_transients() == (() if append else (T,))
    if append:
        assert content(container, T) == b"large and alive"
    else:
        with pytest.raises(SegmentNotFound):
            container.append(T, b" and alive", 5)


def test_upkeep_expires_it(simulation: Simulation) -> None:
    simulation.settings["maintenance"] = True
    container = simulation.open()
    container.commit([CreateSegment("s/a"), CreateSegment(T, (), "s/a")])
    simulation.advance(0.6 * IDLE)
    container.append(T, b"alive")
    for _ in range(4):
        container.append("s/a", b".")
        assert T in container.state.transients
        simulation.advance(0.3 * IDLE)
    container.append("s/a", b".")
    assert T not in container.state.transients
    container.close()
    container = simulation.open()
    container.create_segment(T, parent="s/a")
    container.close()
    simulation.advance(1.1 * IDLE)
    container = simulation.open()
    container.append("s/a", b"the first append of a new process")
    assert T not in container.state.transients


def test_a_deletion_of_the_parent_overtakes_no_creation(container: Container) -> None:
    """They may be queued together, and are carried out in their order."""
    futures = [
        container.submit([CreateSegment(OTHER, (), "s/a")]),
        container.submit([DeleteSegment("s/a")]),
    ]
    for future in futures:
        future.result()
    assert not container.state.transients


def test_it_is_described(container: Container) -> None:
    assert describe_segment(container, T).transient_of == "s/a"
    assert describe_segment(container, "s/a").transient_of is None
    container.delete(T)
    with pytest.raises(Rejected):
        describe_segment(container, T)
