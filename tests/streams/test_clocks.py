"""Streams on hosts whose clocks are wrong (W13): nobody's own clock truncates, stops retention, or ends a lease."""

from __future__ import annotations

import math
import time
from unittest import mock

import pytest

from chunkstore.testing import SimulatedStore
from engine.containers.container import Container
from engine.errors import BadOffset, ClocksDisagree
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark.streams.maintenance import retention, scaling, scheduler
from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions
from tests.streams.test_retention import write

DAY = 86_400.0
MONTH = 30 * DAY
SETTINGS = Settings(maintenance=False, threaded=False)


class Place:
    """A bucket, its clock, and hosts that use the stream in it."""

    def __init__(self) -> None:
        self.store = SimulatedStore(0)
        self.passed = 0.0

    def advance(self, seconds: float) -> None:
        self.store.now += seconds
        self.passed += seconds

    def host(self, ahead: float = 0.0) -> Stream:
        """The stream as a host uses it whose clock is ahead."""
        return Stream(Host(self, ahead), "sc", "st")


class Host(Root):
    """The root as a host has it open."""

    def __init__(self, place: Place, ahead: float) -> None:
        super().__init__(Stores(place.store, place.store), RootConfig("root", containers=1), SETTINGS)
        self._place, self._ahead = place, ahead

    def _start(self, number: int) -> Container:
        place = self._place
        return Container(
            self.stores,
            number,
            SETTINGS,
            clock=lambda: place.passed + time.monotonic(),
            now=lambda: place.store.now + self._ahead,
        )


@pytest.fixture
def place() -> Place:
    return Place()


def retained(stream: Stream) -> retention.Retained:
    try:
        return retention.retain(stream)
    except ClocksDisagree:
        return retention.Retained()


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_retention_goes_on_as_if_a_wrong_clock_were_not_there(place: Place, ahead: float) -> None:
    right, wrong = place.host(), place.host(ahead)
    right.create(ScalingPolicy(), RetentionPolicy("time", int(2 * DAY * 1000)))
    truncated = []
    for hour in range(0, 120, 6):
        write(wrong, [100])
        assert retained(wrong) == retention.Retained()
        if retained(right).truncated is not None:
            truncated.append(hour)
        place.advance(6 * 3600.0)
    assert truncated == list(range(48, 120, 6)), "what is two days old goes, from the third day on"


def test_retention_survives_cuts_that_were_recorded_in_the_future(place: Place) -> None:
    """By a storage whose clock was wrong, which nobody can tell: so nothing is deleted by them, and nothing stops."""
    stream = place.host()
    stream.create(ScalingPolicy(), RetentionPolicy("time", int(2 * DAY * 1000)))
    for _ in range(3):
        write(stream, [100])
        assert retained(stream).recorded is not None
        place.advance(3600.0)
    write(stream, [100])
    future = int((place.store.now + MONTH) * 1000)
    retention.record(stream, future)
    place.advance(3600.0)
    write(stream, [100])
    kept = stream.snapshot().head_cut()
    assert retained(stream).recorded is not None, "it goes on"
    found = [(recorded.time, cut) for recorded, cut in RecordedCuts(stream.snapshot()).all()]
    assert len(found) == 5 and found[-1][0] == found[-2][0] == int(place.store.now * 1000)
    assert [time for time, _ in found] == sorted(time for time, _ in found)
    assert stream.snapshot().head_cut() == kept
    for _ in range(8):
        place.advance(6 * 3600.0)
        write(stream, [100])
        retained(stream)
    assert stream.snapshot().head_cut() == found[-1][1]


def test_two_that_record_anew_at_a_time_do_it_once(place: Place) -> None:
    stream = place.host()
    stream.create(ScalingPolicy(), RetentionPolicy("time", 1))
    write(stream, [100])
    retention.record(stream, int((place.store.now + MONTH) * 1000))
    now = int(place.store.now * 1000)
    slow = RecordedCuts(stream.snapshot()).record({0: 100}, 100, now)
    assert retention.record(stream, now) is not None
    with pytest.raises(BadOffset):
        stream.container.commit(slow)
    assert len(list(RecordedCuts(stream.snapshot()).all())) == 2


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_a_lease_ends_by_the_storages_clock(place: Place, ahead: float) -> None:
    right, wrong = place.host(), place.host(ahead)
    right.create(ScalingPolicy())
    ours, _ = transactions.begin(right, lease=600.0)
    theirs, _ = transactions.begin(wrong, lease=600.0)
    place.advance(599.0)
    theirs.ping()
    with pytest.raises(ClocksDisagree):
        transactions.expire(wrong)
    assert transactions.expire(right) == []
    place.advance(2.0)
    assert [one.id for one in transactions.expire(right)] == [ours.id]
    place.advance(600.0)
    assert [one.id for one in transactions.expire(right)] == [theirs.id]


def test_upkeep_after_a_commit_tells_of_clocks_that_disagree(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    wrong = place.host(MONTH)
    wrong.create(ScalingPolicy(), RetentionPolicy("time", 1))
    write(wrong, [100])
    scheduler.after_commit(wrong)
    assert "the stream is not truncated: by the storage's clock it is 2001" in caplog.text and "NTP" in caplog.text


def test_an_epoch_of_the_future_does_not_stop_scaling(place: Place) -> None:
    right = place.host()
    right.create(ScalingPolicy("events", 1, 2, 1))
    with mock.patch("time.time", lambda: place.store.now + MONTH):  # noqa: PT008 - its time passes
        right.scale([right.snapshot().record.current.segments[0].id], [(0.0, 0.5), (0.5, 1.0)])
    place.advance(60.0)
    found = scaling.loads(right.snapshot(), int(place.store.now * 1000))
    assert {load.age for load in found} == {math.inf}
    assert scaling.planned(right) is not None, "nothing is written: they are merged"
    with pytest.raises(ClocksDisagree):
        scaling.planned(place.host(MONTH))


def test_uploads_are_given_up_by_the_storages_clock(place: Place) -> None:
    """Their appends are dated by the storage's clock, as who uploads asks for it."""
    right, wrong = place.host().container, place.host(-MONTH).container
    right.create_segment("s")
    name = f"s#transient.{'0' * 31}1.{'0' * 31}2"
    wrong.storage_clock.now()
    wrong.create_segment(name, parent="s")
    wrong.append(name, b"part")
    with pytest.raises(ClocksDisagree):
        wrong.expire_transients()
    place.advance(SETTINGS.transient_idle - 1)
    assert right.expire_transients() == ()
    place.advance(2.0)
    assert right.expire_transients() == (name,)
