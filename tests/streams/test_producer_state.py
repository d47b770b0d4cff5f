"""Named writers: what is written again changes nothing, and is told; what comes with other data is told loudly."""

from __future__ import annotations

import logging
import pickle
import random
import re

import numpy as np
import pyarrow as pa
import pytest

from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, crash_at
from chunkstore.testing.faults import When
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.segments import is_core
from engine.storage.object_reads import Stores
from pravega_spark.errors import ReplayChanged
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.policies import OnChangedReplay, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.producer_state import ProducerWrite
from tests.streams.test_transactions import check, parts, stream_on
from tests.support import limits
from tests.unsure import Unsure


@pytest.fixture
def unsure() -> Unsure:
    return Unsure()


@pytest.fixture
def stream(unsure: Unsure) -> Stream:
    made = Stream(unsure.root, "sc", "st")
    made.create(ScalingPolicy(min_segments=2))
    return made


def digest(*events: str) -> Digest:
    return Digest.of_framed(frame_column(pa.array(events, pa.string()), None, 1))


def write(stream: Stream, number: int, *events: str, policy: OnChangedReplay = "skip", name: str = "job") -> bool:
    routing = stream.snapshot().record.routing
    return stream.write(parts(routing, *events), ProducerWrite(name, number, digest(*events), policy), routing)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pravega_spark")
    return caplog


def records(told: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Those of the module under test: threads of earlier tests may log, too (see tests.support.told)."""
    return [record for record in told.records if record.name == "pravega_spark.streams.writing.producer_state"]


def levels(told: pytest.LogCaptureFixture) -> list[str]:
    found = [record.levelname for record in records(told)]
    told.clear()
    return found


def test_a_replay_is_skipped_and_told(stream: Stream, told: pytest.LogCaptureFixture) -> None:
    assert write(stream, 3, "a", "z")
    assert levels(told) == []
    for policy in ("skip", "fail", "write"):
        assert not write(stream, 3, "z", "a", policy=policy)
        assert "stream sc/st: write 3 of 'job' was committed before, with 2 events with 18 bytes" in told.text
        assert levels(told) == ["INFO"]
    stream.scale([stream.snapshot().record.current.segments[0].id], [(0.0, 0.25), (0.25, 0.5)])
    assert not write(stream, 3, "a", "z")
    assert levels(told) == ["INFO"]
    check(stream, "a", "z")


def test_what_was_planned_before_a_scale_is_remembered_too(stream: Stream, told: pytest.LogCaptureFixture) -> None:
    routing = stream.snapshot().record.routing
    stream.scale([routing.segments[0].id], [(0.0, 0.25), (0.25, 0.5)])
    for written in (True, False):
        assert stream.write(parts(routing, "a", "z"), ProducerWrite("job", 1, digest("a", "z")), routing) is written
    assert levels(told) == ["INFO"]
    check(stream, "a", "z")


@pytest.mark.parametrize("other", [("a",), ("a", "z", "b"), ("a", "y"), ("aa", "z")])
def test_other_data_under_the_same_number_are_told_loudly(
    stream: Stream, told: pytest.LogCaptureFixture, other: tuple[str, ...]
) -> None:
    write(stream, 3, "a", "z")
    assert not write(stream, 3, *other)
    size = sum(map(len, other)) + 8 * len(other)
    figures = f"with 2 events with 18 bytes .* is repeated with {len(other)} events with {size} bytes"
    (record,) = records(told)
    assert record.levelname == "WARNING"
    cures = ("not deterministic", "rolled back", "a new checkpoint, and with another 'txn_app_id' if it gives one")
    for part in (figures, *cures, "NOT written", "'on_changed_replay' is 'skip'"):
        assert re.search(part, record.getMessage())
    check(stream, "a", "z")


def test_other_data_can_be_an_error(stream: Stream) -> None:
    write(stream, 3, "a")
    with pytest.raises(ReplayChanged, match=r"write 3 of 'job' .* 1 events with 9 bytes .* 2 events with 18") as error:
        write(stream, 3, "a", "b", policy="fail")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert (error.value.number, error.value.remembered) == (3, 3)
    check(stream, "a")
    assert write(stream, 4, "c", policy="fail")


def test_other_data_can_be_written_and_are_remembered_then(stream: Stream, told: pytest.LogCaptureFixture) -> None:
    write(stream, 3, "a")
    assert write(stream, 3, "b", policy="write")
    assert "written anyway" in told.text
    assert levels(told) == ["WARNING"]
    assert not write(stream, 3, "b", policy="write")
    assert levels(told) == ["INFO"]
    check(stream, "a", "b")


def test_a_checkpoint_that_was_rolled_back(stream: Stream, told: pytest.LogCaptureFixture) -> None:
    """Numbers come again that are smaller than the last one, whose digest is the only one that is remembered."""
    for number, event in enumerate("abcd"):
        write(stream, number, event)
    assert not write(stream, 1, "b")
    assert "write 1 of 'job' was committed before, and its last one, write 3, had 1 events" in told.text
    assert levels(told) == ["WARNING"]
    with pytest.raises(ReplayChanged):
        write(stream, 1, "b", policy="fail")
    for number, event in enumerate("xyz", 1):
        assert write(stream, number, event, policy="write")
    assert levels(told) == ["WARNING"], "the query goes on from there"
    assert not write(stream, 3, "z")
    check(stream, *"abcdxyz")


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_written_all_the_same_is_there_once(stream: Stream, unsure: Unsure, when: When) -> None:
    write(stream, 3, "a")
    unsure.fates = [when]
    write(stream, 3, "b", policy="write")
    assert unsure.met
    check(stream, "a", "b")


def test_who_gives_no_digest_has_his_figures_remembered(stream: Stream, told: pytest.LogCaptureFixture) -> None:
    routing = stream.snapshot().record.routing
    assert stream.write(parts(routing, "a"), ProducerWrite("job", 1))
    assert not stream.write(parts(routing, "b"), ProducerWrite("job", 1))
    assert levels(told) == ["INFO"]
    assert not stream.write(parts(routing, "bb"), ProducerWrite("job", 1))
    assert levels(told) == ["WARNING"]


def test_replays_are_known_from_tier_2(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    """More writers than are kept in memory; what is remembered of one costs three attributes."""
    limits.cached_attributes(monkeypatch, 4)
    for name in ("one", "two", "three"):
        write(stream, 5, "a", name=name)
    kept = stream.container.attributes(stream.writers)
    assert sum(not is_core(attribute) for attribute in kept) == 9
    stream.container.flush()
    assert stream.container.info(stream.writers).spilled
    for name in ("one", "two", "three"):
        assert not write(stream, 5, "a", name=name)
        assert levels(told) == ["INFO"]
        assert not write(stream, 5, "b", name=name)
        assert levels(told) == ["WARNING"]
    assert write(stream, 6, "b", name="one")
    check(stream, "a", "a", "a", "b")


def test_being_remembered_costs_no_request() -> None:
    counting = CountingStore(SimulatedStore(0))
    settings = Settings(maintenance=False, threaded=False)
    stream = Stream(Root(Stores(counting, counting), RootConfig("root", containers=1), settings), "sc", "st")
    stream.create()
    routing, spent = stream.snapshot().record.routing, []
    for name in (None, ("job", 1), ("job", 2), ("another", 1)):
        counting.reset()
        stream.write(parts(routing, "a"), ProducerWrite(*name, digest("a")) if name is not None else None)
        spent.append(counting.count())
    assert spent == spent[:1] * 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_request_of_a_named_write(when: When, told: pytest.LogCaptureFixture) -> None:
    """Number, digest and events are there, or none of them; what comes again is skipped, and known, if they are."""
    number, crashed = 0, True
    while crashed:
        number += 1
        inner = SimulatedStore(0)
        stream_on(inner).create(ScalingPolicy(min_segments=2))
        crashing = FaultStore(inner, crash_at(number, when))
        try:
            write(stream_on(crashing), 1, "a", "z")
            crashed = False
        except Crashed:
            pass
        again = stream_on(inner)
        there = again.snapshot().events()
        assert there in (0, 2)
        assert write(again, 1, "z", "a") is (there == 0)
        assert levels(told) == ([] if there == 0 else ["INFO"])
        check(again, "a", "z")
    assert number > 3


# --- digests -----------------------------------------------------------------------------------------------------


def some_events(chance: random.Random, count: int) -> list[bytes]:
    return [chance.randbytes(chance.choice([0, 1, 7, 8, 9, 60, 64, 300])) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_a_digest_does_not_depend_on_order_tasks_and_segments(seed: int) -> None:
    chance = random.Random(seed)
    events = some_events(chance, chance.choice([0, 1, 2, 50, 9000]))
    expected = Digest.of_framed(frame_column(pa.array(events, pa.binary()), None, 1))
    assert (expected.events, expected.size) == (len(events), sum(map(len, events)) + 8 * len(events))
    chance.shuffle(events)
    cuts = sorted(chance.randint(0, len(events)) for _ in range(3))
    tasks = []
    for first, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        segments = np.array([chance.randrange(3) for _ in range(first, end)], np.int64)
        tasks.append(Digest.of_framed(frame_column(pa.array(events[first:end], pa.binary()), segments, 3)))
    chance.shuffle(tasks)
    assert Digest.total(tasks) == expected
    assert Digest.decode(*expected.encode()) == expected.kept() == expected.kept().kept()


def test_each_bit_of_an_event_of_up_to_64_bytes_counts() -> None:
    for length in (1, 7, 8, 15, 16, 17, 57, 63, 64):
        event = random.Random(length).randbytes(length)
        changed = [(int.from_bytes(event, "big") ^ 1 << bit).to_bytes(length, "big") for bit in range(8 * length)]
        others = [event, *changed]
        found = {Digest.of_framed(frame_column(pa.array([b"beside", each]), None, 1)).kept() for each in others}
        assert len(found) == len(others)


def test_the_same_bytes_in_other_events_are_other_data() -> None:
    def of(*events: str) -> Digest:
        return digest(*events).kept()

    assert len({of("ab", "cd"), of("ac", "bd"), of("ab", "dc"), of("abc", "d"), of("abcd", ""), of("abcd")}) == 6


def test_more_than_can_be_kept() -> None:
    most = Digest(1 << 50, 1 << 62, (1 << 64) - 1)
    assert all(0 <= number < 1 << 63 for number in most.encode())
    assert most.kept().size == most.size
