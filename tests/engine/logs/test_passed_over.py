"""A frame that is whole and holds what nobody understands: its way out costs what is not understood, and no more."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from engine.admin.checks.log_check import LogCheck
from engine.containers.container import Container
from engine.errors import ContainerOffline, DataCorruption, EngineError, FrameDamaged
from engine.logs import frames
from engine.logs.frames import Position
from engine.logs.log import frame_path
from engine.state.tables import Entry
from engine.storage.object_reads import Stores
from tests.engine.state.writer import assert_equal
from tests.support.simulation import Simulation

TRUNCATE, APPEND, PUT = 7, 1, 5
"""The numbers of operations in the format."""


def put_frame(simulation: Simulation, container: Container, transactions: Any, kind: int = 0) -> int:
    """A frame behind the container's head as a faulty program might have made it. Returns its address."""
    position = container.log.processor.log.upcoming()
    meta = transactions if isinstance(transactions, bytes) else msgpack.packb(transactions)
    data = b"".join(frames.encode(0, position, 99, container.head, meta))
    simulation.store.put(frame_path(0, position.address), data)
    return position.address


def entry(container: Container, key: str) -> Entry:
    """An entry of table t, which must be there."""
    found = container.entry("t", key)
    assert found is not None
    return found


def value(container: Container, key: str) -> bytes | None:
    return entry(container, key).value


def lived() -> tuple[Simulation, Container]:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    container.append("s/a", b"0123456789")
    container.put_entries("t", {"k": b"before"})
    return simulation, container


def as_faulty(simulation: Simulation, container: Container, transactions: Any) -> tuple[int, Container]:
    """A program that goes on behind the bad frame, as the one that wrote it does: it knows of nothing."""
    address = put_frame(simulation, container, transactions)
    writer = container.log.processor.log.upcoming().writer
    seal = frames.seal_of([simulation.store.read(frame_path(0, address))])
    head = Position(address, writer, container.log.processor.log.upcoming().epoch, seal)
    behind = frames.encode(0, Position(address + 1, writer, head.epoch), 100, head, good("behind"))
    simulation.store.put(frame_path(0, address + 1), b"".join(behind))
    return address, simulation.open(unread=True)


def good(value: str) -> bytes:
    return bytes(msgpack.packb([[7, [[PUT, "t", value, value.encode(), None]]]]))


FAULTS: dict[str, Any] = {
    "a float": [[7, [[PUT, "t", "lost", b"lost", None], [TRUNCATE, "s/a", 3.0]]]],
    "a bool": [[7, [[TRUNCATE, "s/a", True]]]],
    "a text for bytes": [[7, [[PUT, "t", "k", "text", None]]]],
    "an unknown kind": [[7, [[6, "s/a", [[bytes(16), 77, 1, 0]]]]]],
    "an attribute of 3 bytes": [[7, [[6, "s/a", [[b"abc", 1, 1, 0]]]]]],
    "too few fields": [[7, [[TRUNCATE, "s/a"]]]],
    "what cannot be applied": [[7, [[TRUNCATE, "s/none", 3]]]],
    "no operations": [[7, 5]],
    "no transaction": ["text"],
    "no list": 5,
    "no msgpack": b"\xc1\xc1",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_nobody_understands_of_a_frame_can_be_given_up_and_costs_only_that(fault: str) -> None:
    simulation, container = lived()
    address, operator = as_faulty(simulation, container, FAULTS[fault])
    with pytest.raises(EngineError, match=rf"{frame_path(0, address)}.*container repair 0 {address}"):
        simulation.open()
    told = [
        problem
        for problem in LogCheck(Stores(simulation.store, simulation.store), 0).problems()
        if problem.object == frame_path(0, address)
    ]
    assert told and f"container repair 0 {address}" in told[0].remedy
    dry = operator.repair(address, dry_run=True)
    with pytest.raises(EngineError):
        simulation.open()
    assert simulation.open(unread=True).repair(address).skipped == dry.skipped
    for opened in (simulation.open(), simulation.open()):
        assert opened.read("s/a", 0, 10) == b"0123456789"
        assert value(opened, "k") == b"before" and value(opened, "behind") == b"behind"
        assert opened.entry("t", "lost") is None
        opened.append("s/a", b"goes on")
    assert not list(LogCheck(Stores(simulation.store, simulation.store), 0).problems())
    opened = simulation.open()
    opened.checkpoint()
    assert_equal(simulation.open().state, opened.state)
    assert not list(LogCheck(Stores(simulation.store, simulation.store), 0).problems())


def test_the_other_transactions_of_the_frame_stand_and_operations_keep_their_numbers() -> None:
    simulation, container = lived()
    before = container.state.sequence
    mixed = [
        [7, [[PUT, "t", "first", b"1", None]]],
        [7, [[PUT, "t", "lost", b"", None], [TRUNCATE, "s/a", 3.0], [TRUNCATE, "s/a", 4]]],
        [7, [[PUT, "t", "last", b"2", None]]],
    ]
    address, operator = as_faulty(simulation, container, mixed)
    assert operator.repair(address).skipped == (1,)
    opened = simulation.open()
    versions = {key: entry(opened, key).version for key in ("first", "last", "behind")}
    assert versions == {"first": before + 1, "last": before + 5, "behind": before + 6}
    assert opened.entry("t", "lost") is None and opened.info("s/a").start_offset == 0


def test_two_bad_frames_are_given_up_one_after_the_other() -> None:
    simulation, container = lived()
    first, operator = as_faulty(simulation, container, [[7, [[TRUNCATE, "s/a", 3.0]]]])
    with pytest.raises(DataCorruption):
        operator.repair(first + 1)
    operator = simulation.open(unread=True)
    operator.repair(first)
    opened = simulation.open()
    second = put_frame(simulation, opened, [[7, [[TRUNCATE, "s/a", 4.0]]]])
    simulation.open(unread=True).repair(second)
    assert value(simulation.open(), "behind") == b"behind"


def test_damage_behind_a_bad_frame_is_given_up_first() -> None:
    simulation, container = lived()
    address, operator = as_faulty(simulation, container, [[7, [[TRUNCATE, "s/a", 3.0]]]])
    simulation.store.put(frame_path(0, address + 1), b"damaged")
    with pytest.raises(ValueError, match=f"frame {address} of container 0 is not a damaged frame"):
        operator.repair(address)
    assert simulation.open(unread=True).repair(address + 1).skipped is None
    assert simulation.open(unread=True).repair(address).skipped == (0,)
    assert value(simulation.open(), "k") == b"before"


def test_only_what_stops_the_log_is_given_up() -> None:
    simulation, container = lived()
    for address in (0, container.head.address, container.head.address + 1, 77, -1):
        for dry_run in (True, False):
            with pytest.raises(ValueError, match="is not a damaged frame that stops the log"):
                simulation.open(unread=True).repair(address, dry_run)
    address, operator = as_faulty(simulation, container, [[7, [[TRUNCATE, "s/a", 3.0]]]])
    operator.repair(address)
    with pytest.raises(ValueError, match="is not a damaged frame"):
        simulation.open(unread=True).repair(address)


def test_what_a_newer_version_wrote_is_never_given_up() -> None:
    simulation, container = lived()
    address, operator = as_faulty(simulation, container, [[7, [[TRUNCATE, "s/a", 3.0]]], [7, [[77, "s/a"]]]])
    with pytest.raises(DataCorruption, match="upgrade"):
        operator.repair(address)
    with pytest.raises(EngineError):
        simulation.open()


def test_who_wrote_the_bad_frame_and_lives_on_agrees_with_everybody() -> None:
    """Its state has what the repair passes over: it opens the log anew when it meets the repair."""
    simulation, container = lived()
    log = container.log.processor.log
    meta = msgpack.packb([[7, [[PUT, "t", "k", b"changed", None], [TRUNCATE, "s/a", 3.0]]]])
    log.send(bytes(meta), [], None, inline=True)
    log.settle()  # it does not know what it wrote
    address = container.head.address
    simulation.open(unread=True).repair(address)
    container.refresh()
    other = simulation.open()
    assert value(container, "k") == b"before"
    assert_equal(container.state, other.state)
    assert container.append("s/a", b"more") == 10


def test_a_repair_behind_a_checkpoint_that_covers_the_frame_is_passed_by() -> None:
    """All who open from that checkpoint have the same state, so nobody opens the log again and again."""
    simulation, container = lived()
    address, operator = as_faulty(simulation, container, [[7, [[TRUNCATE, "s/a", 3.0]]]])
    operator.repair(address)
    opened = simulation.open()
    opened.append("s/a", b"more")
    opened.checkpoint()
    assert simulation.open().refresh().segments["s/a"].length == 14


def test_a_frame_that_fails_its_checks_is_given_up_as_before() -> None:
    simulation, container = lived()
    address = container.head.address
    store = simulation.store
    store.put(frame_path(0, address), store.read(frame_path(0, address))[:-1] + b"?")
    with pytest.raises(EngineError) as raised:
        simulation.open()
    assert isinstance(raised.value, FrameDamaged | ContainerOffline)
    assert simulation.open(unread=True).repair(address, dry_run=True).skipped is None
    with pytest.raises(EngineError):
        simulation.open()
    simulation.open(unread=True).repair(address)
    assert simulation.open().entry("t", "k") is None
