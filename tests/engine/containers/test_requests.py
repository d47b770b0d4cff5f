"""What requests the work of a container costs."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from chunkstore.testing import WRITES, CountingStore, LatencyStore
from engine.containers.container import Container
from engine.errors import BadOffset
from engine.settings import Settings
from engine.state.operations import CreateSegment, PutEntry
from engine.storage.object_reads import Stores
from tests.engine.containers.segments import MIB, append, content, counted
from tests.support.gated import GatedStore
from tests.support.simulation import Simulation


def test_an_append_is_one_put() -> None:
    _, counting, container = counted()
    for number in range(1, 11):
        container.append("s/a", b"x")
        assert counting.counts == {"put_if_absent": number}
    container.commit([CreateSegment("s/b"), append("s/b", b"1"), PutEntry("t", "k", b""), append("s/a", b"2")])
    assert counting.counts == {"put_if_absent": 11}


def test_an_idle_refresh_is_one_read() -> None:
    _, counting, container = counted()
    for number in range(1, 6):
        container.refresh()
        container.info("s/a")
        assert counting.counts == {"read_ranges": 2 * number}
    assert counting.bytes_read == counting.bytes_written == 0


def test_reading_what_is_known_is_one_request() -> None:
    _, counting, container = counted()
    for _ in range(5):
        container.append("s/a", b"x" * 100)
    container.flush()
    counting.reset()
    container.read("s/a", 0, 500)
    assert counting.counts == {"read_ranges": 1}


def test_a_refusal_is_one_read() -> None:
    _, counting, container = counted()
    with pytest.raises(BadOffset):
        container.append("s/a", b"x", offset=7)
    assert counting.counts == {"read_ranges": 1}


def test_being_overtaken_costs_a_put_and_a_read() -> None:
    simulation, counting, container = counted()
    simulation.open().append("s/a", b"x")
    assert container.append("s/a", b"y") == 1
    assert counting.counts == {"put_if_absent": 2, "read_ranges": 1}


def test_a_checkpoint_every_few_frames() -> None:
    _, counting, container = counted(maintenance=True, checkpoint_frames=8)
    for _ in range(80):
        container.append("s/a", b"x")
    assert counting.count("put_if_absent", "_system/containers/0/wal/") == 80
    assert 9 <= counting.count("put_if_absent", "_system/containers/0/checkpoints/") <= 10
    assert counting.count() == counting.count("put_if_absent")


def test_opening_an_empty_root_writes_nothing() -> None:
    simulation = Simulation()
    counting = CountingStore(simulation.store)
    simulation.open(through=counting)
    assert not {*WRITES} & {*counting.counts}
    assert counting.count() <= 5


@contextmanager
def gated_container() -> Iterator[tuple[Container, GatedStore, CountingStore]]:
    """One that sends its next frame when the one under way has landed, by however long that takes."""
    gate = GatedStore(Simulation().store)
    gate.remote = True  # so that the caller's thread sends nothing itself
    counting = CountingStore(gate)
    with Container(Stores(counting, counting), 0, Settings(maintenance=False, linger=60)) as container:
        container.commit([CreateSegment("s/a"), CreateSegment("s/b")])
        counting.reset()
        yield container, gate, counting


@contextmanager
def under_way(container: Container, gate: GatedStore) -> Iterator[Future[Any]]:
    """An append to s/a whose frame is held at the gate meanwhile."""
    gate.open.clear()
    try:
        future = container.submit([append("s/a", b"")])
        assert gate.reached.wait(60)
        yield future
    finally:
        gate.open.set()


def test_operations_that_are_submitted_together_leave_together() -> None:
    """While a frame is on its way, what is submitted waits for the next one (group commit)."""
    with gated_container() as (container, gate, counting):
        with under_way(container, gate):
            futures = [container.submit([append("s/a", b"%03d" % number)]) for number in range(300)]
        assert [future.result().results for future in futures] == [[3 * number] for number in range(300)]
        assert counting.count("put_if_absent") == 2
        assert content(container, "s/a") == b"".join(b"%03d" % number for number in range(300))


def test_plain_appends_that_leave_together_are_one_operation() -> None:
    """Each gets its own offset, in the order of submission; the state and the frame get one extent for all of them."""
    with gated_container() as (container, gate, counting):
        sizes = [0, 3, 70_000, 1, 0, MIB, 5]
        futures = []
        with under_way(container, gate) as first:
            for number, size in enumerate(sizes):
                futures.append(container.submit([append("s/a", bytes([number]) * size)]))
                futures.append(container.submit([append("s/b", bytes([number]))]))
            conditional = container.submit([append("s/a", b"behind them", sum(sizes))])
            futures.append(container.submit([append("s/a", b"last")]))
        assert first.result().address + 1 == conditional.result().address
        offsets = [future.result().results for future in futures]
        assert offsets[0:-1:2] == [[sum(sizes[:number])] for number in range(len(sizes))]
        assert offsets[1:-1:2] == [[number] for number in range(len(sizes))]
        assert offsets[-1] == [sum(sizes) + 11]
        whole = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
        assert content(container, "s/a") == whole + b"behind them" + b"last"
        assert len(container.info("s/a").extents) == 3
        assert len(container.info("s/b").extents) == 1
        with Container(Stores(counting, counting), 0, Settings(maintenance=False)) as reopened:
            assert content(reopened, "s/a") == whole + b"behind them" + b"last"


def test_the_next_frame_leaves_before_anybody_is_told_of_the_last_one() -> None:
    """Who is told goes on working, and takes the time that the processor would need to send."""
    with gated_container() as (container, gate, _):
        address = container.head.address
        flying: list[int] = []
        with under_way(container, gate) as first:
            first.add_done_callback(lambda _: flying.append(len(container.log.processor.log.flights)))
            second = container.submit([append("s/a", b"second")])
        assert first.result().address == address + 1
        assert second.result().address == address + 2
        assert flying == [1]


def test_what_was_submitted_stays_as_it_was() -> None:
    """A large payload is written piece by piece, maybe twice at one address (W2): the caller's memory is his own."""
    store = LatencyStore(Simulation().store, 0.05)
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as container:
        container.create_segment("s/a")
        data = bytearray(b"a" * (1 << 20))
        future = container.submit_append("s/a", data)
        data[:] = b"b" * len(data)
        future.result()
        assert container.read("s/a", 0, len(data)) == b"a" * len(data)


def test_what_is_refused_is_not_written() -> None:
    """Though it was queued, validated and laid out together with what is accepted."""
    with gated_container() as (container, gate, counting):
        with under_way(container, gate):
            futures = [
                container.submit([append("s/a", b"%04d" % number * 2000, offset=7 if number % 5 else None)])
                for number in range(100)
            ]
        for number, future in enumerate(futures):
            if number % 5:
                assert isinstance(future.exception(), BadOffset)
            else:
                assert future.result().results == [number // 5 * 8000]
        assert counting.bytes_written < 1.5 * 20 * 8000
        assert content(container, "s/a") == b"".join(b"%04d" % number * 2000 for number in range(0, 100, 5))
