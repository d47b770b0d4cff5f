"""No host's own clock decides what goes (W13): clocks that are wrong, and clocks that are stepped."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from chunkstore import StorageRefused, Store
from chunkstore.testing import CountingStore
from engine import clocks
from engine.clocks import STEP_ACCEPTED_AFTER, TOLERANCE, StorageClock, age, is_plausible
from engine.containers.container import Container
from engine.errors import ClocksDisagree
from engine.logs import age_evidence
from engine.logs.age_evidence import EVERYTHING, NOTHING, AgeEvidence, Observed, decode, encode, observed_before
from engine.logs.log import age_evidence_path
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.support.simulation import Simulation

GRACE = 600.0
MONTH = 30 * 86_400.0


class Host(Simulation):
    """A simulated folder: its storage's clock is the host's, and `step` sets it."""

    def __init__(self, seed: int = 0, **settings: object) -> None:
        super().__init__(seed, **settings)
        self.store.host_clock = True

    def step(self, seconds: float) -> None:
        """Set the clock, while no time passes."""
        self.store.now += seconds


def read_all(container: Container) -> bytes:
    return container.read("s", 0, container.info("s").length)


# --- a folder's clock that is stepped -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [MONTH, GRACE + 1, -MONTH])
@pytest.mark.parametrize("back", [False, True], ids=["for good", "there and back"])
@pytest.mark.parametrize("fresh", [False, True], ids=["one truncator", "always another"])
def test_a_step_of_a_folders_clock_loses_no_acknowledged_append(step: float, back: bool, fresh: bool) -> None:
    """Somebody trusts an address that he saw a moment ago, by the clock that was not stepped, or set right again."""
    host = Host(grace=GRACE)
    sleeper, other = host.open(), host.open()
    sleeper.create_segment("s")
    other.append("s", b"behind the boundary ")
    other.flush()
    other.checkpoint()
    other.append("s", b"after it ")
    host.advance(1)
    for each in (step, 0.0, -step if back else 0.0):
        truncator = host.open() if fresh else other
        with mock.patch.object(clocks, "TOLERANCE", math.inf):
            truncate(truncator)
        host.step(each)
    sleeper.append("s", b"acknowledged")
    assert read_all(host.open()) == b"behind the boundary after it acknowledged"


def truncate(container: Container) -> int:
    try:
        return container.truncate_log()
    except ClocksDisagree:
        return 0


def test_a_folders_log_is_truncated_when_the_time_has_passed() -> None:
    host = Host(grace=GRACE)
    container = host.open()
    container.create_segment("s")
    container.flush()
    container.checkpoint()
    host.advance(GRACE + 1)
    assert container.truncate_log() == 0, "nobody has seen the truncation point before"
    host.advance(GRACE - 1)
    assert host.open().truncate_log() == 0
    host.advance(2)
    assert host.open().truncate_log() > 0


def test_garbage_of_a_folder_stays_when_its_clock_is_stepped() -> None:
    host = Host(garbage_delay=GRACE)
    container = host.open()
    container.create_segment("s")
    container.append("s", b"content")
    container.flush()
    container.delete("s")
    container.flush()
    container.flush()
    objects = len(host.store.list(""))
    assert host.open().collect_garbage() == 0
    host.step(MONTH)
    assert host.open().collect_garbage() == 0
    assert len(host.store.list("")) == objects + 1, "besides the witness nothing has changed"
    assert collected(host, host.open()) > 0


def collected(simulation: Simulation, container: Container) -> int:
    """How many objects go when time passes: first what names them becomes garbage, then they."""
    deleted = 0
    for _ in range(4):
        simulation.advance(GRACE + 1)
        deleted += container.collect_garbage()
        container.flush()
    return deleted


# --- witnesses ----------------------------------------------------------------------------------------------------


class Watch:
    """A clock that cannot be stepped, and what is to be seen."""

    def __init__(self) -> None:
        self.host = Host()
        self.time = 1000.0
        self.seen = Observed(7, 70)

    def before(self, delay: float, boot: str = "this") -> Observed:
        return observed_before(self.host.store, 0, delay, 600.0, lambda: self.seen, lambda: self.time, boot)


def test_what_was_seen_is_old_when_the_delay_has_passed() -> None:
    watch = Watch()
    assert watch.before(300.0) == NOTHING
    watch.seen = Observed(8, 80)
    watch.time += 299.0
    assert watch.before(300.0) == NOTHING
    watch.time += 1.0
    assert watch.before(300.0) == Observed(7, 70)
    assert watch.before(600.0) == NOTHING
    watch.time += 301.0
    assert watch.before(600.0) == Observed(7, 70), "and is seen anew"
    assert watch.before(300.0) == Observed(7, 70)
    watch.time += 300.0
    assert watch.before(300.0) == Observed(8, 80)
    assert watch.before(600.0) == Observed(7, 70)


def test_who_looks_after_another_finds_what_is_old_too() -> None:
    """As upkeep does, which truncates the log and then collects garbage: neither may starve, however seldom."""
    watch = Watch()
    watch.before(300.0)
    for number in range(8, 12):
        watch.time += 10_000.0
        before, watch.seen = watch.seen, Observed(number, 10 * number)
        assert watch.before(600.0) == watch.before(600.0) == before


def test_who_looks_often_does_not_wait_for_ever() -> None:
    watch = Watch()
    for _ in range(20):
        watch.before(300.0)
        watch.time += 50.0
    assert watch.before(300.0) == watch.before(600.0) == Observed(7, 70)


def test_the_time_of_a_witness_is_that_after_the_look() -> None:
    """Who looks may sleep; what he sees then was not there before."""
    watch = Watch()

    def look() -> Observed:
        watch.time += 1000.0
        return watch.seen

    assert observed_before(watch.host.store, 0, 300.0, 600.0, look, lambda: watch.time, "this") == NOTHING
    assert watch.before(300.0) == NOTHING


def test_what_was_seen_in_another_boot_is_old() -> None:
    watch = Watch()
    watch.before(300.0)
    watch.seen = Observed(8, 80)
    assert watch.before(300.0, "another") == Observed(7, 70)
    assert watch.before(300.0, "another") == Observed(7, 70), "the next one is of this boot"
    watch.time += 300.0
    assert watch.before(300.0, "another") == Observed(8, 80)


def test_a_clock_that_began_anew_tells_of_another_boot() -> None:
    watch = Watch()
    watch.before(300.0)
    watch.time = 5.0
    assert watch.before(300.0) == Observed(7, 70)


@pytest.mark.parametrize("damaged", [b"", b"nonsense", encode([AgeEvidence("this", 0.0, Observed(7, 70))])[:-1]])
def test_a_damaged_witness_is_made_anew(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    watch.host.store.put(age_evidence_path(0), damaged)
    with caplog.at_level(logging.WARNING):
        assert watch.before(300.0) == NOTHING
    assert age_evidence_path(0) in caplog.text
    assert decode(watch.host.store.read(age_evidence_path(0))) == (AgeEvidence("this", 1000.0, Observed(7, 70)),)


def test_no_witness_is_needed_where_no_host_can_step_the_clock() -> None:
    watch = Watch()
    watch.host.store.host_clock = False
    assert watch.before(300.0) == EVERYTHING
    assert watch.host.store.list("") == []


def test_this_boot_has_a_name() -> None:
    assert age_evidence.boot_id() == age_evidence.boot_id() != ""


# --- the storage's clock and the host's ---------------------------------------------------------------------------


class Times:
    """A storage and a host, each with a clock of its own, and the one that cannot be stepped."""

    def __init__(self, *, ahead: float = 0.0, host_clock: bool = False, remote: bool = True) -> None:
        self.simulation = Simulation()
        self.store = self.simulation.store
        self.store.host_clock, self.store.remote = host_clock, remote
        self.counting = CountingStore(self.store)
        self.ahead = ahead
        self.steady = 50.0
        self.clock = StorageClock(self.counting, lambda: self.store.now + self.ahead, lambda: self.steady)

    def advance(self, seconds: float) -> None:
        self.store.now += seconds
        self.steady += seconds


@pytest.mark.parametrize("ahead", [MONTH, -MONTH, TOLERANCE + 1, -TOLERANCE - 1])
def test_where_clocks_disagree_nothing_is_decided(ahead: float) -> None:
    times = Times(ahead=ahead)
    told = r"the log stays: by the storage's clock it is 2001-.* by this host's .*NTP"
    with pytest.raises(ClocksDisagree, match=told):
        times.clock.agreed("the log stays")
    times.ahead = 0.0
    assert times.clock.agreed("the log stays") == times.store.now


@pytest.mark.parametrize("ahead", [60.0, -60.0])
def test_a_minute_is_no_disagreement(ahead: float) -> None:
    times = Times(ahead=ahead)
    assert times.clock.agreed("") == times.store.now


def test_the_storage_is_asked_rarely_and_its_time_carried_on() -> None:
    times = Times(ahead=100.0)
    assert times.clock.known() == times.store.now + 100.0, "nobody has asked yet"
    for _ in range(5):
        assert times.clock.now() == times.clock.known() == pytest.approx(times.store.now)
        times.advance(100.0)
    assert times.counting.counts["clock"] == 1
    times.advance(200.0)
    times.clock.now()
    assert times.counting.counts["clock"] == 2


def test_the_storages_time_is_never_ahead_of_it() -> None:
    """However long its answer took."""
    times = Times()
    asked = times.store.now

    class Slow(CountingStore):
        def clock(self) -> float:
            now = super().clock()
            times.advance(400.0)
            return now

    clock = StorageClock(Slow(times.store), lambda: times.store.now, lambda: times.steady)
    assert clock.now() == asked
    times.advance(10.0)
    assert clock.now() == asked + 10.0


def test_a_time_that_the_storage_has_stamped_has_passed() -> None:
    times = Times(ahead=-MONTH)
    times.clock.at_least(times.store.now - 10.0)
    times.advance(5.0)
    assert times.clock.known() == pytest.approx(times.store.now - 10.0)
    times.clock.at_least(2.0**32)  # as SFTP stamps what is being published
    assert times.clock.known() == pytest.approx(times.store.now - 10.0)


def test_a_report_takes_the_hosts_time_where_nothing_can_be_written_but_no_decision_does() -> None:
    times = Times(ahead=60.0)

    class ReadOnly(CountingStore):
        def clock(self) -> float:
            raise StorageRefused("the filesystem is read-only")

    clock = StorageClock(ReadOnly(times.store), lambda: times.store.now + times.ahead, lambda: times.steady)
    assert clock.reported() == times.store.now + 60.0
    for decision in (clock.now, lambda: clock.agreed("nothing is deleted")):
        with pytest.raises(StorageRefused):
            decision()
    assert times.clock.reported() == times.store.now


@pytest.mark.parametrize("step", [MONTH, -MONTH])
def test_a_step_of_a_hosts_clock_is_noticed_and_believed_in_time(step: float) -> None:
    times = Times(host_clock=True, remote=False)
    times.clock.agreed("")
    times.advance(1000.0)
    times.store.now += step
    for _ in range(2):
        with pytest.raises(ClocksDisagree, match=r"was stepped.*NTP"):
            times.clock.agreed("")
        times.advance(STEP_ACCEPTED_AFTER / 2 - 1)
    times.advance(2)
    assert times.clock.agreed("") == times.store.now


def test_a_step_that_was_taken_back_is_forgotten() -> None:
    times = Times(host_clock=True, remote=False)
    times.clock.agreed("")
    times.store.now += MONTH
    with pytest.raises(ClocksDisagree):
        times.clock.agreed("")
    times.store.now -= MONTH
    assert times.clock.agreed("") == times.store.now


# --- recorded times -----------------------------------------------------------------------------------------------


def test_a_recorded_time_in_the_future_says_nothing() -> None:
    assert is_plausible(1000.0 + TOLERANCE, 1000.0) and not is_plausible(1001.0 + TOLERANCE, 1000.0)
    assert age(900.0, 1000.0, math.inf) == 100.0
    assert age(1010.0, 1000.0, math.inf) == 0.0
    assert age(1000.0 + MONTH, 1000.0, math.inf) == math.inf
    assert age(1000.0 + MONTH, 1000.0, 0.0) == 0.0


class Bucket(Simulation):
    """A simulated bucket, with hosts whose clocks are wrong."""

    def host(self, ahead: float, through: Store | None = None) -> Container:
        """Container 0 as a host opens it whose clock is ahead."""
        store = through or self.store
        settings = Settings(threaded=False, **self.settings)
        return Container(
            Stores(store, store),
            0,
            settings,
            clock=self.clock,
            now=lambda: self.store.now + ahead,
            sleep=self.advance,
        )


@contextmanager
def disagreeing() -> Iterator[None]:
    with pytest.raises(ClocksDisagree):
        yield


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_a_host_whose_clock_is_wrong_deletes_nothing_and_stops_nobody(ahead: float) -> None:
    bucket = Bucket()
    wrong, right = bucket.host(ahead), bucket.host(0.0)
    wrong.create_segment("s")
    wrong.append("s", b"content")
    wrong.flush()
    wrong.delete("s")
    wrong.flush()
    wrong.flush()
    wrong.checkpoint()
    for delete in (wrong.truncate_log, wrong.collect_garbage):
        with disagreeing():
            delete()
    assert right.collect_garbage() == 0 and right.truncate_log() == 0, "nothing is old yet"
    bucket.advance(GRACE + 1)
    for delete in (wrong.truncate_log, wrong.collect_garbage):
        with disagreeing():
            delete()
    assert right.truncate_log() > 0
    assert collected(bucket, right) > 0


def test_garbage_of_a_host_that_is_behind_is_kept_for_the_delay() -> None:
    bucket = Bucket()
    right, wrong = bucket.host(0.0), bucket.host(-MONTH)
    right.create_segment("s")
    right.append("s", b"content")
    right.flush()
    chunks = {info.path for info in bucket.store.list("") if info.path.startswith("s")}
    wrong.delete("s")
    for _ in range(4):
        wrong.flush()
        right.collect_garbage()
    assert chunks and chunks == {info.path for info in bucket.store.list("") if info.path.startswith("s")}
    assert collected(bucket, right) > 0
    assert not [info for info in bucket.store.list("") if info.path.startswith("s")]


def test_garbage_of_the_future_became_garbage_when_it_was_met() -> None:
    """Made by a host that never asked the storage for its time."""
    bucket = Bucket()
    right = bucket.host(0.0)
    right.create_segment("s")
    right.append("s", b"content")
    right.flush()
    with mock.patch.object(StorageClock, "now", lambda self: self.known()):
        wrong = bucket.host(MONTH)
        wrong.delete("s")
        wrong.flush()
        wrong.flush()
    state = right.refresh()
    tomorrow = (bucket.store.now + 86_400) * 1000
    assert state.garbage and all(garbage.since > tomorrow for garbage in state.garbage.values())
    assert right.collect_garbage() == 0
    assert collected(bucket, right) > 0


def test_a_commit_does_not_ask_for_the_time() -> None:
    bucket = Bucket()
    counting = CountingStore(bucket.store)
    container = bucket.host(0.0, counting)
    container.create_segment("s")
    container.append("s", b"content")
    assert counting.counts["clock"] == 0


def test_the_witness_is_known_to_be_ours(tmp_path: Path) -> None:
    from chunkstore.paths import is_log

    assert is_log(age_evidence_path(3))
