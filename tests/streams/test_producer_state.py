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
from engine.containers.container import Container
from engine.errors import BadAttributeUpdate
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.segments import Extent, is_core
from engine.storage.object_reads import Stores
from pravega_spark.errors import ReplayChanged, WritesLost
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.policies import OnChangedReplay, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.producer_state import ProducerUpdate, ProducerWrite, writer_attribute
from pravega_spark.streams.writing.writes import StreamWrite, write_together
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


# --- what is stored of a producer --------------------------------------------------------------------------------


def test_the_attributes_of_a_producer_never_change() -> None:
    """They are stored: else a later version would know no producer. Four are neighbours, and none is a core one."""
    found = [writer_attribute("job", which).hex() for which in range(4)]
    assert found == [f"5e8c9902207afaeb7120430c585a445{last}" for last in "cdef"]
    assert writer_attribute("writer").hex() == "393006774cbdd4b299389a03ac3d88c0"
    for name in map(str, range(100)):
        first, *others = (writer_attribute(name, which) for which in range(4))
        assert first == writer_attribute(name)
        assert [int.from_bytes(each, "big") - int.from_bytes(first, "big") for each in others] == [1, 2, 3]
        assert not is_core(first) and first[0] < 0x80


def test_what_is_committed_is_known_of_each_producer(stream: Stream) -> None:
    missing = Stream(stream.root, "sc", "missing")
    assert not stream.is_committed(None)
    assert not missing.is_committed(None) and not missing.is_committed(ProducerWrite("job", 0))
    write(stream, 3, "a")
    assert stream.is_committed(None)
    assert [stream.is_committed(ProducerWrite("job", number)) for number in (2, 3, 4)] == [True, True, False]
    assert not stream.is_committed(ProducerWrite("other", 0))
    for name in map(str, range(4)):
        single = Stream(stream.root, "sc", name)
        single.create(ScalingPolicy(min_segments=2))
        write(single, 0, "a", name=name)
        assert single.is_committed(None)
    stream.container.refresh()
    with pytest.raises(ReplayChanged):
        stream.report_replay(ProducerWrite("job", 3, on_changed_replay="fail"))
    stream.report_replay(ProducerWrite("job", 4, on_changed_replay="fail"))
    stream.report_replay(ProducerWrite("other", 3, on_changed_replay="fail"))


def test_each_producer_and_stream_has_numbers_of_its_own(stream: Stream) -> None:
    """Two streams, and two producers, in one append: the one that is a replay is left out, wherever it is."""
    other = Stream(stream.root, "sc", "other")
    other.create(ScalingPolicy(min_segments=2))

    def one_of(place: Stream, name: str, event: str) -> StreamWrite:
        routing = place.snapshot().record.routing
        return StreamWrite(place, [(routing, parts(routing, event))], ProducerWrite(name, 1, digest(event)))

    write(stream, 1, "a")
    for new, old in (
        (one_of(other, "job", "b"), one_of(stream, "job", "a")),
        (one_of(stream, "second", "c"), one_of(stream, "job", "a")),
    ):
        write_together([new, old])
        assert (new.new, old.new) == (True, False)
    check(stream, "a", "c")
    check(other, "b")


def test_an_update_of_another_attribute_that_is_rejected_is_no_replay(stream: Stream) -> None:
    """Whether it is another one of the producers' segment, or the same one of another segment."""
    update = ProducerUpdate(stream, ProducerWrite("job", 1))
    own, other = writer_attribute("job"), writer_attribute("other")
    assert update.is_rejected_by(BadAttributeUpdate(stream.writers, own, None, ""))
    assert not update.is_rejected_by(BadAttributeUpdate(stream.writers, other, None, ""))
    assert not update.is_rejected_by(BadAttributeUpdate("sc/other#writers", own, None, ""))


def test_a_gap_of_a_new_generation_is_refused_unless_it_is_accepted(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    def attempt(name: str, number: int, accept: bool = False) -> bool:
        routing = stream.snapshot().record.routing
        return stream.write(parts(routing, "x"), ProducerWrite(name, number, digest("x"), "skip", accept), routing)

    assert attempt("job", 7)
    assert attempt("late", 3)
    monkeypatch.setattr(Container, "generation", "second")
    for name, number, last in (("job", 9, 7), ("new", 1, None), ("late", 5, 3)):
        with pytest.raises(WritesLost) as error:
            attempt(name, number)
        assert (error.value.number, error.value.remembered) == (number, last)
    assert not attempt("job", 7)
    assert attempt("job", 8)
    assert attempt("new", 0)
    assert levels(told) == ["INFO"]
    assert attempt("late", 5, accept=True)
    assert "write 5 of 'late'" in told.text
    assert levels(told) == ["WARNING"]
    for name, number in (("job", 20), ("new", 20), ("late", 20)):  # a gap of a generation is the producer's own
        assert attempt(name, number) and not attempt(name, number)
    monkeypatch.setattr(Container, "generation", "third")
    with pytest.raises(WritesLost):
        attempt("job", 22)
    assert attempt("job", 21) and attempt("job", 30)
    check(stream, *"xxxxxxxxxx")


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
    assert most.kept() == Digest((1 << 39) - 1, 1 << 62, ((1 << 24) - 1) << 40)
    assert Digest(3, 30, 5 << 40).encode() == (30, 3 << 24 | 5)
    assert Digest.total([most, most]).check == (1 << 64) - 2


def test_digests_never_change() -> None:
    """They are stored: a write that is repeated by a later version is still known."""
    events = [b"", b"a", b"12345678", bytes(range(100))]
    found = Digest.of_framed(frame_column(pa.array(events, pa.binary()), None, 1))
    assert found == (4, 141, 0x516BE39379113326)
    assert found.encode() == (141, 4 << 24 | 0x516BE3)
    assert str(found) == str(found.kept()) == "4 events with 141 bytes (check 516be3)"
    many = frame_column(pa.array([f"{number}" for number in range(8193)]), None, 1)
    assert Digest.of_framed(many) == (8193, 97206, 0x649175000F751D5B)
    assert Digest.of_large([Extent("c", 0, 5, b"abcd"), Extent("d", 0, 7, b"efgh")]) == (1, 12, 16037156555306657795)
    assert Digest.of_large([]) == (1, 0, 0)
