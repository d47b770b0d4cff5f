"""A host that a hypervisor stops, all of its clocks with it, while the storage's goes on (W7, W13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chunkstore import Store, stamps
from chunkstore.testing import CountingStore, Request, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.errors import OutcomeUnknown
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.support.folder_stamps import FolderStamps
from tests.support.simulation import Simulation

GRACE = 600.0


class Mute(WrappingStore):
    """A storage whose answers carry no time."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.dated = False

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        with stamps.listening():
            return call()


class Late(WrappingStore):
    """A host whose next frame is sent late: `before` is done first."""

    before: Callable[[], None] | None = None

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb == "put_if_absent" and self.before is not None:
            before, self.before = self.before, None
            before()
        return call()


class Host:
    """A host beside others, with clocks of its own: `steady` stands still while it is stopped, and so may `wall`."""

    def __init__(self, simulation: Simulation, through: Store | None = None) -> None:
        store = through or simulation.store
        self.steady, self.wall = 1000.0, simulation.store.now
        self.container = Container(
            Stores(store, store),
            0,
            Settings(threaded=False, maintenance=False, grace=GRACE, garbage_delay=GRACE),
            clock=lambda: self.steady,
            now=lambda: self.wall,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


def others_go_on(simulation: Simulation, appends: int = 3) -> None:
    """Others append, make a truncation point, and delete the frames behind it."""
    with simulation.open() as other:
        for _ in range(appends):
            other.append("s", b"other ")
        other.flush()
        other.checkpoint()
        other.append("s", b"after ")
        simulation.advance(GRACE + 1)
        assert other.truncate_log() > 0


def made() -> Simulation:
    simulation = Simulation(grace=GRACE, garbage_delay=GRACE)
    simulation.open().create_segment("s")
    return simulation


def content(simulation: Simulation) -> bytes:
    container = simulation.open()
    return container.read("s", 0, container.info("s").length)


def test_a_frame_of_a_stopped_host_behind_a_truncation_point_is_not_acknowledged() -> None:
    """It creates its frame where others had theirs, which are deleted: the create succeeds."""
    simulation = made()
    host = Host(simulation)
    host.container.append("s", b"before ")
    others_go_on(simulation)
    with pytest.raises(OutcomeUnknown, match="the log now starts at"):
        host.container.append("s", b"lost ")
    host.container.append("s", b"found ")
    assert content(simulation) == b"before other other other after found "


@pytest.mark.parametrize("mute", [False, True])
def test_who_loses_the_first_race_after_opening_tries_again(mute: bool) -> None:
    """Too little time has passed for the others' truncation point to prove anything against the frame: its outcome is
    known, on a storage whose answers carry no time too."""
    simulation = made()
    late = Late(simulation.store)
    host = Host(simulation, Mute(late) if mute else late)
    host.container.info("s")
    for moved in (host.sleep, simulation.advance):
        moved(GRACE / 10 + 1)  # from now on the storage's time is asked for

    def others() -> None:
        with simulation.open() as other:
            other.append("s", b"other ")
            other.checkpoint()

    late.before = others
    host.container.append("s", b"mine ")
    assert content(simulation).endswith(b"other mine ")


def test_what_a_stopped_host_reads_is_not_an_old_end() -> None:
    simulation = made()
    host = Host(simulation)
    host.container.append("s", b"before ")
    others_go_on(simulation)
    assert host.container.info("s").length == len(content(simulation))
    assert host.container.append("s", b"awake") == len(b"before other other other after ")


def test_a_container_that_is_opened_before_the_stop_knows_the_storages_time() -> None:
    simulation = made()
    host = Host(simulation)
    others_go_on(simulation)
    with pytest.raises(OutcomeUnknown):
        host.container.append("s", b"lost ")
    assert content(simulation) == b"other other other after "


def test_commits_without_a_pause_need_no_look_at_the_truncation_point() -> None:
    """One round trip a commit (P3): the storage's time comes with the answer."""
    simulation = made()
    counting = CountingStore(simulation.store)
    host = Host(simulation, counting)
    counting.counts.clear()
    for _ in range(100):
        host.container.append("s", b"x")
        for moved in (host.sleep, simulation.advance):
            moved(GRACE / 10)
    assert dict(counting.counts) == {"put_if_absent": 100}


def test_the_time_of_day_tells_where_answers_do_not() -> None:
    """It is set when the host goes on, by the hypervisor or by NTP."""
    simulation = made()
    host = Host(simulation, Mute(simulation.store))
    host.container.append("s", b"before ")
    others_go_on(simulation)
    host.wall = simulation.store.now
    host.container.append("s", b"found ")
    assert content(simulation) == b"before other other other after found "


def test_the_frame_at_the_truncation_point_stays_when_the_log_is_truncated() -> None:
    """The frames before a truncation point may be gone. Who was stopped before the one at it meets that one."""
    simulation = made()
    with simulation.open() as other:
        other.flush()
        host = Host(simulation)
        host.container.refresh()
        other.checkpoint()
        other.append("s", b"after ")
        simulation.advance(GRACE + 1)
        assert other.truncate_log() > 0
    host.wall = simulation.store.now
    host.container.append("s", b"mine ")
    assert content(simulation).endswith(b"after mine ")


def test_who_reads_to_the_end_where_absence_carries_no_time_knows_that_it_was_not_stopped() -> None:
    """In a folder the last stamp is older than the last proof; the time between the two is known from the host."""
    simulation = made()
    counting = CountingStore(FolderStamps(simulation.store))
    host = Host(simulation, counting)
    for _ in range(10):
        for moved in (host.sleep, simulation.advance):
            moved(GRACE / 20)
        host.container.refresh()
    with simulation.open() as other:
        other.append("s", b"other ")
        other.checkpoint()
        other.append("s", b"after ")
    counting.counts.clear()
    assert host.container.info("s").length == len(b"other after ")
    assert counting.counts["list"] == 0, "the log start was looked for, and lies ahead of what was read"


@pytest.mark.parametrize("days", [0.1, 14])
def test_who_was_stopped_after_long_reading_where_absence_carries_no_time_starts_over(days: float) -> None:
    """Its clock may gain on the storage's, in 14 days here by as much as the stop took: so what passed by its own clock
    counts for a little less."""
    simulation = made()
    host = Host(simulation, FolderStamps(simulation.store))
    for _ in range(1000):
        host.sleep(days * 86.4 * 1.0005)
        simulation.advance(days * 86.4)
        host.container.refresh()
    others_go_on(simulation)
    with pytest.raises(OutcomeUnknown, match="the log now starts at"):
        host.container.append("s", b"lost ")


def test_where_answers_carry_no_time_a_frame_is_looked_up_now_and_then() -> None:
    simulation = made()
    counting = CountingStore(Mute(simulation.store))
    host = Host(simulation, counting)
    counting.counts.clear()
    for _ in range(100):
        host.container.append("s", b"x")
        for moved in (host.sleep, simulation.advance):
            moved(GRACE / 100)
    assert counting.counts["put_if_absent"] == 100
    assert 5 <= counting.counts["stat"] <= 10 and counting.counts["list"] <= 1
    others_go_on(simulation)
    host.sleep(GRACE / 10 + 1)
    with pytest.raises(OutcomeUnknown, match="the log now starts at"):
        host.container.append("s", b"lost ")
