"""Merged segments of a container, with and without a header (PDP-43)."""

import pytest

from chunkstore.testing import FaultStore, Request
from engine.errors import SegmentNotFound
from engine.state.operations import AttributeUpdate, CreateSegment, SealSegment, UpdateKind
from engine.state.segments import EVENT_COUNT
from tests.engine.containers.segments import Opener, append, content, pattern
from tests.support.simulation import MAX_PAYLOAD, Simulation, audit

# --- on every storage ------------------------------------------------------------------------------------------------


def test_merged_segments_read_the_same_before_and_after_flushing(opened: Opener) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment(name) for name in ("s/a", "s/b", "s/c", "s/d", "s/e")])
    for name in ("s/c", "s/b", "s/a", "s/d"):
        container.append(name, name.encode() * 3)
    expected = container.read("s/a", 0, 9)
    for name, flush in (("s/b", False), ("s/c", True), ("s/d", False), ("s/e", True)):
        expected += content(container, name)
        container.seal(name)
        container.merge("s/a", name)
        for process in (container, other, opened()):
            assert content(process, "s/a") == expected
        if flush:
            container.flush()
            for process in (container, other, opened()):
                assert content(process, "s/a") == expected
        assert container.append("s/a", b"+") == len(expected)
        expected += b"+"
    assert content(opened(), "s/a") == expected == b"s/as/as/as/bs/bs/b+s/cs/cs/c+s/ds/ds/d++"
    audit(container.refresh())


# --- merges with a header (PDP-43) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", ["", "source", "target", "both"])
def test_a_merge_puts_the_header_before_the_content(opened: Opener, flushed: str, tables_of_size: str) -> None:
    container, other = opened(), opened()
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 1)
    container.commit([CreateSegment("s/a", (count,)), CreateSegment("s/b", (count,)), CreateSegment("s/empty")])
    container.commit([append("s/a", b"before,") if flushed in ("target", "both") else append("s/b", b"large ")])
    container.commit([append("s/b", b"large ") if flushed in ("source", "both") else append("s/a", b"before,")])
    if flushed:
        container.flush()
    container.append("s/b", pattern(700))
    container.seal("s/b")
    with pytest.raises(SegmentNotFound):
        container.merge("s/a", "s/none", b"<header>")
    length, expected = container.info("s/a").length, content(container, "s/a") + b"<header>" + content(container, "s/b")
    assert other.merge("s/a", "s/b", b"<header>") == length
    assert other.append("s/a", b",after") == len(expected)
    expected += b",after"
    for flush in (False, True, True):
        if flush:
            container.flush()
        for process in (container, other, opened()):
            assert content(process, "s/a") == expected
            assert process.read("s/a", length + 3, length + 20) == expected[length + 3 : length + 20]
            assert process.attributes("s/a", [EVENT_COUNT]) == {EVENT_COUNT: 2}
            with pytest.raises(SegmentNotFound):
                process.info("s/b")
    container.seal("s/empty")
    assert container.merge("s/a", "s/empty", memoryview(b"alone")) == len(expected)
    assert content(opened(), "s/a") == expected + b"alone"
    audit(container.refresh())


@pytest.mark.usefixtures("small")
def test_a_header_larger_than_a_frame() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"content"), SealSegment("s/b")])
    container.merge("s/a", "s/b", pattern(3 * MAX_PAYLOAD))
    for _ in range(2):
        assert content(simulation.open(), "s/a") == pattern(3 * MAX_PAYLOAD) + b"content"
        container.flush()


@pytest.mark.usefixtures("small")
def test_a_header_is_there_once_after_a_lost_race() -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"content"), SealSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == 1:
            other.append("s/a", b"first,")

    container = simulation.open(through=FaultStore(simulation.store, overtake, verbs={"put_if_absent"}))
    assert container.merge("s/a", "s/b", b"<header>") == 6
    assert content(other, "s/a") == content(simulation.open(), "s/a") == b"first,<header>content"
