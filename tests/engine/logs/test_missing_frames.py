"""W21: a frame that was deleted from the middle of the log is an error, and never the log's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chunkstore import Store
from chunkstore.testing.counting import CountingStore
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.containers.container import Container
from engine.errors import FrameMissing
from engine.logs.frames import Frame, Kind, Position
from engine.logs.log import address_of, frame_path, frames_folder
from engine.settings import MAX_FLIGHTS, Settings
from tests.support.simulation import Simulation

FRAMES = frames_folder(0)
ALIVE = Position(9, b"w" * 16, 3, 1)


def frame(address: int, *, writer: bytes = b"w" * 16, behind: Position = ALIVE, kind: Kind = Kind.DATA) -> Frame:
    return Frame(Position(address, writer, 3), kind, behind, b"", 0, 0)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (frame(10 + MAX_FLIGHTS), True),
        (frame(10 + MAX_FLIGHTS - 1), False),
        (frame(10 + MAX_FLIGHTS, kind=Kind.BELL), False),
        (frame(10 + MAX_FLIGHTS, kind=Kind.REPAIR), False),
        (frame(11, writer=b"v" * 16), False),  # it names the frame before the gap
        (frame(11, behind=ALIVE._replace(address=10)), False),  # it was in flight together with that one
        (frame(11, writer=b"v" * 16, behind=ALIVE._replace(address=10)), True),
        (frame(13, writer=b"v" * 16, behind=ALIVE._replace(address=11)), True),
        (frame(13, writer=b"v" * 16, behind=ALIVE._replace(address=11), kind=Kind.BELL), False),
    ],
)
def test_what_a_frame_shows_about_an_address_before_it(found: Frame, shown: bool) -> None:
    assert bool(found.shows(10)) is shown


def logged(count: int, remote: bool = True) -> tuple[Simulation, Container, Container]:
    """A root with a segment, to which two processes have appended in turn, `count` times in all."""
    simulation = Simulation()
    simulation.store.remote = remote
    one = simulation.open()
    one.create_segment("s")
    other = simulation.open()
    for number in range(count):
        (one, other)[number % 2].append("s", b"%03d" % number)
    one.refresh()
    return simulation, one, other


def lose(simulation: Simulation, first: int, count: int = 1) -> None:
    simulation.store.delete([frame_path(0, first + step) for step in range(count)])


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(("first", "count"), [(1, 1), (4, 1), (0, 3), (2, 90), (2, 190)])
def test_whoever_opens_the_log_gets_an_error_until_the_frame_is_back(first: int, count: int, remote: bool) -> None:
    simulation, one, _ = logged(400, remote)
    content = [simulation.store.read(frame_path(0, first + step)) for step in range(count)]
    lose(simulation, first, count)
    before = simulation.store.list("")
    for _ in range(2):
        with pytest.raises(
            FrameMissing, match=rf"{frame_path(0, first)}: the frame is missing.*container repair 0"
        ) as raised:
            simulation.open()
        assert raised.value.address == first
    assert simulation.store.list("") == before
    for step, data in enumerate(content):
        simulation.store.put(frame_path(0, first + step), data)
    assert simulation.open().state == one.state


@pytest.mark.parametrize("lost", range(6))
def test_frames_that_were_in_flight_when_their_writer_died_are_no_proof(lost: int) -> None:
    """Nobody can tell them from those that nobody has seen."""
    simulation, one, _ = logged(4)
    address = one.head.address + 1
    for number in range(MAX_FLIGHTS):
        one.append("s", b"%d" % number)
    lose(simulation, address + lost)
    late = simulation.open()
    assert late.head.address == address + lost - 1
    late.append("s", b"on")
    assert simulation.open().state == late.state


def test_a_frame_too_many_of_one_writer_is_a_proof() -> None:
    simulation, one, _ = logged(4)
    address = one.head.address + 1
    for number in range(MAX_FLIGHTS + 1):
        one.append("s", b"%d" % number)
    lose(simulation, address)
    with pytest.raises(FrameMissing, match="further behind it than a writer has in flight"):
        simulation.open()


@pytest.mark.parametrize("flights", [0, MAX_FLIGHTS + 1])
def test_no_process_has_more_in_flight_than_others_reckon_with(flights: int) -> None:
    with pytest.raises(ValueError, match=f"setting 'flights' is {flights}: give a number from 1 to {MAX_FLIGHTS}"):
        Settings(flights=flights)
    with pytest.raises(ValueError, match="setting 'flights'"):
        replace(Settings(), flights=flights)
    assert Settings(flights=MAX_FLIGHTS).flights == MAX_FLIGHTS


def test_who_slept_looks_behind_the_end_before_it_writes() -> None:
    simulation, one, other = logged(4)
    address = one.head.address + 1
    for number in range(20):
        other.append("s", b"%03d" % number)
    lose(simulation, address)
    simulation.advance(400)
    with pytest.raises(FrameMissing):
        one.append("s", b"mine")
    other.checkpoint()  # it has read all
    assert simulation.open().state == other.state


def test_frames_that_a_checkpoint_covers_meanwhile_are_not_missing() -> None:
    simulation, one, other = logged(4)
    for number in range(40):
        other.append("s", b"%03d" % number)
    first = one.head.address + 1
    other.checkpoint()
    lose(simulation, first, 30)
    simulation.advance(400)
    one.append("s", b"mine")
    assert one.refresh() == other.refresh()


class Stopped(WrappingStore):
    """The storage of a process that is stopped before it first lists the frames. meanwhile: what others do."""

    def __init__(self, inner: Store, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        meanwhile = self._meanwhile
        if request.verb == "list" and request.paths[0] == FRAMES and meanwhile is not None:
            self._meanwhile = None
            meanwhile()
        return call()


def test_frames_that_are_truncated_before_it_looks_behind_the_end_are_not_missing() -> None:
    simulation, one, other = logged(4)

    def meanwhile() -> None:
        for number in range(40):
            (one, other)[number % 2].append("s", b"%03d" % number)
        other.flush()  # or the frames are kept
        other.checkpoint()
        simulation.advance(700)
        for number in range(20):
            (one, other)[number % 2].append("s", b"%03d" % number)
        assert other.truncate_log()
        assert address_of(simulation.store.list(FRAMES)[0].path) > 40

    late = simulation.open(through=Stopped(simulation.store, meanwhile))
    assert late.refresh() == other.refresh()


@pytest.mark.parametrize("remote", [True, False])
def test_a_repair_goes_on_in_its_place(remote: bool) -> None:
    simulation, *_ = logged(40, remote)
    lose(simulation, 11)
    lose(simulation, 21)
    with pytest.raises(ValueError, match="is not a missing frame that stops the log"):
        simulation.open(repair=12)
    dry = simulation.open(unread=True)
    before = simulation.store.list("")
    assert dry.repair(11, dry_run=True).skipped is None and simulation.store.list("") == before
    with pytest.raises(FrameMissing, match=frame_path(0, 21)):
        simulation.open(repair=11)
    late = simulation.open(repair=21)
    assert late.state.segments["s"].length == 3 * 10
    late.append("s", b"on!")
    assert simulation.open().state == late.state


def test_looking_behind_the_end_is_one_listing_at_the_opening() -> None:
    simulation, _, other = logged(10)
    counting = CountingStore(simulation.store)
    late = simulation.open(through=counting)
    assert counting.count("list") == 2 and counting.count("list", FRAMES) == 1
    counting.reset()
    other.append("s", b"more")
    late.append("s", b"and more")
    late.refresh()
    assert counting.count("list", FRAMES) == 0
    simulation.store.remote = False
    counting = CountingStore(simulation.store)
    simulation.open(through=counting)
    assert counting.count("list", FRAMES) == 0
