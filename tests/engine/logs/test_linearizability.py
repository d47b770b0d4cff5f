"""The checker of histories: against an exhaustive search, on good histories, on planted violations; the recorder."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.testing import FaultStore, fail_at
from chunkstore.testing.faults import When
from engine.errors import ContainerOffline, EngineError, NotPrimary, OutcomeUnknown
from tests.support.linearizability import (
    Append,
    Create,
    Event,
    Info,
    Invocation,
    NotLinearizable,
    Ok,
    Operation,
    Outcome,
    Properties,
    Read,
    Recorder,
    Refused,
    Response,
    Seal,
    Truncate,
    Undecided,
    Unknown,
    check,
    load,
    save,
)
from tests.support.simulation import Simulation


class Call(NamedTuple):
    """A call, its moments of invocation and response, and what was heard."""

    begin: int
    end: int
    operation: Operation
    outcome: Outcome


def events(calls: Sequence[Call]) -> list[Event]:
    begun: list[Event] = [Invocation("p", n, call.begin, call.operation) for n, call in enumerate(calls)]
    return begun + [Response("p", n, call.end, call.outcome) for n, call in enumerate(calls)]


def accepts(calls: Sequence[Call], exists: bool = True) -> bool:
    try:
        check(events(calls), exists)
        return True
    except NotLinearizable:
        return False


# --- a segment, and an exhaustive search -------------------------------------------------------------------------


class Segment(NamedTuple):
    """A segment in a few lines, written independently of the checker."""

    data: bytes = b""
    start: int = 0
    sealed: bool = False
    exists: bool = True

    def do(self, operation: Operation) -> tuple[Segment, Outcome]:
        """The segment after an operation, and what is heard of it."""
        if not self.exists:
            if operation == Create():
                return Segment(), Ok()
            return self, Refused("SegmentNotFound")
        match operation:
            case Create():
                return self, Refused("SegmentExists")
            case Append(data, at):
                if self.sealed:
                    return self, Refused("SegmentSealed")
                if at is not None and at != len(self.data):
                    return self, Refused("BadOffset", len(self.data))
                return self._replace(data=self.data + data), Ok(len(self.data))
            case Read(start, end):
                if start < self.start:
                    return self, Refused("SegmentTruncated", self.start)
                if end < start or end > len(self.data):
                    return self, Refused("BadOffset")
                return self, Ok(self.data[start:end])
            case Truncate(offset):
                if offset < 0 or offset > len(self.data):
                    return self, Refused("BadOffset")
                return self._replace(start=max(offset, self.start)), Ok()
            case Seal():
                return self._replace(sealed=True), Ok()
            case Info():
                return self, Ok(Properties(len(self.data), self.start, self.sealed))


def without_value(outcome: Outcome) -> Outcome:
    return Refused(outcome.error) if isinstance(outcome, Refused) else outcome


def explainable(calls: frozenset[tuple[int, Call]], segment: Segment = Segment()) -> bool:  # noqa: B008
    """Whether some order of the calls explains them: all orders are tried."""
    if all(isinstance(call.outcome, Unknown) for _, call in calls):
        return True
    deadline = min(call.end for _, call in calls if not isinstance(call.outcome, Unknown))
    for item in calls:
        _, call = item
        if call.begin > deadline:
            continue
        after, outcome = segment.do(call.operation)
        if isinstance(call.outcome, Unknown) or call.outcome in (outcome, without_value(outcome)):
            if explainable(calls - {item}, after):
                return True
        elif call.outcome == Refused("NotPrimary") and explainable(calls - {item}, segment):
            return True
    return False


# --- histories ---------------------------------------------------------------------------------------------------


SHORT = (0, 1, 2)
LONG = (0, *range(8, 21))
"""Sizes of what is appended: so short that one looks like another, or so long that all differ."""


def an_operation(chance: random.Random, segment: Segment, length: int, ends: float) -> Operation:
    """Something to do, more often than not something that can be done."""
    size = len(segment.data)
    payload = bytes(chance.choices(b"ab", k=length)) if length < 3 else chance.randbytes(length)
    somewhere = chance.randint(0, size)
    kinds: list[tuple[float, Operation]] = [
        (8, Append(payload)),
        (3, Append(payload, chance.choice((size, size, somewhere)))),
        (3, Info()),
        (4, Read(somewhere, chance.randint(somewhere, size + 1))),
        (ends, Truncate(chance.randint(-1, size + 1))),
        (ends / 3, Seal()),
    ]
    (kind,) = chance.choices(kinds, [weight for weight, _ in kinds])
    return kind[1]


def simulate(
    chance: random.Random, count: int, lengths: Sequence[int], ends: float = 1.0, exists: bool = True
) -> list[Call]:
    """A good history: every call has its moment on one segment; that of a call of unknown outcome may be never.

    ends: how likely truncations and seals are. exists: it does at the beginning; else somebody may create it.
    """
    segment, calls = Segment(exists=exists), []
    for moment in range(0, 10 * count, 10):
        operation = an_operation(chance, segment, chance.choice(lengths), ends)
        if not exists and chance.random() < 0.2:
            operation = Create()
        begin, end = moment - chance.randint(1, 40), moment + chance.randint(1, 40)
        kind = chance.choices(("known", "happened", "never", "not primary"), (8, 1, 1, 0.3))[0]
        outcome: Outcome = Refused("NotPrimary") if kind == "not primary" else Unknown()
        if kind in ("known", "happened"):
            segment, heard = segment.do(operation)
            if kind == "known":
                outcome = heard
            else:
                end = chance.randint(begin, end)  # it may happen when all hope was given up
        calls.append(Call(begin, end, operation, outcome))
    last = 10 * count + 100
    if not ends:  # so long that it is hard to explain without
        calls.append(Call(last, last + 1, Read(0, len(segment.data)), Ok(segment.data)))
    chance.shuffle(calls)
    return calls


def spoil(chance: random.Random, calls: list[Call]) -> None:
    """Change something about a call: what was heard, or when."""
    number = chance.randrange(len(calls))
    call = calls[number]
    outcome = call.outcome
    if chance.random() < 0.3:
        begin = chance.randint(-20, 10 * len(calls))
        call = call._replace(begin=begin, end=begin + chance.randint(0, 30))
    elif isinstance(outcome, Unknown):
        outcome = Segment(b"ab").do(call.operation)[1]
    elif isinstance(outcome, Refused):
        errors = ("BadOffset", "SegmentSealed", "SegmentTruncated", "NotPrimary", "SegmentNotFound", "SegmentExists")
        error = chance.choice(errors)
        outcome = Refused(error, None if error == "NotPrimary" else chance.choice((None, 0, 1)))
    else:
        outcome = other_result(chance, outcome.result)
    calls[number] = call._replace(outcome=outcome)


def other_result(chance: random.Random, result: Any) -> Outcome:
    if isinstance(result, int):
        return Ok(max(0, result + chance.choice((-2, -1, 1, 2))))
    if isinstance(result, Properties):
        changes: list[dict[str, Any]] = [
            {"length": result.length + 1},
            {"start": max(result.start - 1, 0)},
            {"sealed": not result.sealed},
        ]
        return Ok(result._replace(**chance.choice(changes)))
    if isinstance(result, bytes) and result:
        return Ok(result[:-1] + b"b")
    return chance.choice((Unknown(), Refused("BadOffset")))


@settings(deadline=None, max_examples=60)
@given(chance=st.randoms(use_true_random=False), count=st.integers(1, 40), lengths=st.sampled_from((SHORT, LONG)))
def test_what_happened_on_one_segment_is_accepted(chance: random.Random, count: int, lengths: Sequence[int]) -> None:
    check(events(simulate(chance, count, lengths)))


def test_long_histories_are_accepted() -> None:
    calls = simulate(random.Random(1), 10_000, LONG, ends=0)
    assert sum(isinstance(call.outcome, Unknown) for call in calls) > 1000
    assert sum(isinstance(call.operation, Append) and isinstance(call.outcome, Ok) for call in calls) > 3000
    check(events(calls))


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_verdict_is_that_of_an_exhaustive_search(seed: int, exists: bool) -> None:
    verdicts: Counter[tuple[int, bool]] = Counter()
    for number in range(600):
        chance = random.Random(1000 * seed + number)
        calls = simulate(chance, chance.randint(2, 7), SHORT, exists=exists)
        spoiled = chance.randint(0, 3)
        for _ in range(spoiled):
            spoil(chance, calls)
        expected = explainable(frozenset(enumerate(calls)), Segment(exists=exists))
        assert accepts(calls, exists) is expected, calls
        verdicts[spoiled, expected] += 1
    assert verdicts[0, False] == 0
    assert all(verdicts[spoiled, expected] > 10 for spoiled in (1, 2, 3) for expected in (True, False)), verdicts


# --- planted violations ------------------------------------------------------------------------------------------

AA, BB = Append(b"aa"), Append(b"bb")
UNSEALED = Refused("SegmentSealed")


def at(moment: int, operation: Operation, result: Any = None, lasting: int = 5) -> Call:
    """A call that begins at `moment`; the next one with the next moment begins later than it ends."""
    outcome = result if isinstance(result, Refused | Unknown) else Ok(result)
    return Call(10 * moment, 10 * moment + lasting, operation, outcome)


def info(moment: int, length: int, start: int = 0, sealed: bool = False) -> Call:
    return at(moment, Info(), Properties(length, start, sealed))


VIOLATIONS: dict[str, tuple[list[Call], str]] = {
    "lost, and another in its place": ([at(0, AA, 0), at(1, BB, 0)], "acknowledged at one offset"),
    "lost, as the length tells": ([at(0, AA, 0), at(1, BB, 2), info(2, 2)], "does not explain"),
    "lost, as the bytes tell": ([at(0, AA, 0), at(1, BB, 2), at(2, Read(0, 2), b"bb")], "offset 0 was another"),
    "lost, then acknowledged anew": ([at(0, AA, 0), at(1, Read(0, 1), Refused("BadOffset")), at(2, BB, 2)], "explain"),
    "duplicated": ([at(0, AA, 0), at(1, Read(0, 4), b"aaaa")], "no more than 2 bytes"),
    "duplicated before another": ([at(0, AA, 0), at(1, BB, 4), at(2, Append(b"cc"), Unknown())], "does not explain"),
    "two swapped against real time": ([at(0, AA, 2), at(1, BB, 0)], "does not explain"),
    "a stale length": ([at(0, AA, 0), info(1, 2), at(2, BB, 2), info(3, 2)], "does not explain"),
    "a stale end": ([at(0, AA, 0), at(1, Read(0, 2), Refused("BadOffset"))], "does not explain"),
    "bytes never written": ([at(0, AA, 0), at(1, Read(0, 2), b"ab")], "offset 1 was another"),
    "bytes read before they were written": ([at(0, Read(0, 2), b"aa"), at(1, AA, 0)], "does not explain"),
    "two reads that differ": (
        [at(0, AA, Unknown()), at(0, BB, Unknown()), at(1, Read(0, 2), b"aa"), at(2, Read(0, 2), b"bb")],
        "offset 0 was another",
    ),
    "a short read": ([at(0, AA, 0), at(1, Read(0, 2), b"a")], "gave 1 bytes instead of 2"),
    "acknowledged after a seal": ([at(0, Seal()), at(1, AA, 0)], "does not explain"),
    "grown after a seal was seen": ([info(0, 0, sealed=True), at(0, Seal(), Unknown()), at(1, AA, 0)], "explain"),
    "a seal that is not there": ([at(0, Seal()), info(1, 0)], "does not explain"),
    "a seal that nobody made": ([info(0, 0, sealed=True)], "does not explain"),
    "read below a truncation": ([at(0, AA, 0), at(1, Truncate(1)), at(2, Read(0, 2), b"aa")], "does not explain"),
    "a truncation that was undone": ([at(0, AA, 0), at(1, Truncate(1)), info(2, 2)], "does not explain"),
    "a truncation that nobody made": ([at(0, AA, 0), at(0, Truncate(2), Unknown()), info(2, 2, 1)], "does not explain"),
    "truncated beyond the end": ([at(0, AA, 0), at(1, Truncate(3))], "does not explain"),
    "overlapping offsets": ([at(0, AA, 0), at(1, BB, 1)], "overlap"),
    "a gap": ([at(0, AA, 0), at(1, BB, 4), at(0, Append(b"ccc"), Unknown())], "does not explain"),
    "an offset beyond all data": ([at(0, AA, 7)], "no more than 2 bytes"),
    "an offset below 0": ([at(0, AA, -2)], "no more than 2 bytes"),
    "unknown, and there twice": ([at(0, AA, Unknown()), at(1, BB, Unknown()), at(2, Read(0, 4), b"aaaa")], "explain"),
    "unknown, and there before it began": ([at(0, Read(0, 2), b"aa"), at(1, AA, Unknown())], "does not explain"),
    "unknown, at another offset": ([at(0, AA, 0), at(1, Append(b"bb", 1), Unknown()), info(2, 4)], "does not explain"),
    "refused, and there": ([at(0, AA, Refused("NotPrimary")), at(1, BB, 2), at(2, Read(2, 4), b"bb")], "more than 2"),
    "refused as sealed": ([at(0, AA, UNSEALED), at(1, Seal())], "does not explain"),
    "refused at the right offset": ([at(0, Append(b"aa", 0), Refused("BadOffset"))], "does not explain"),
    "refused for another offset": ([at(0, AA, 0), at(1, Append(b"b", 1), Refused("BadOffset", 3))], "does not explain"),
    "refused as a bad offset, but sealed": ([at(0, Seal()), at(1, Append(b"a", 3), Refused("BadOffset"))], "explain"),
    "refused as truncated": ([at(0, AA, 0), at(1, Read(0, 1), Refused("SegmentTruncated", 1))], "does not explain"),
    "refused as not there": ([at(0, Seal(), Refused("SegmentNotFound"))], "does not explain"),
    "acknowledged at another offset than asked for": ([at(0, AA, 0), at(1, Append(b"b", 1), 2)], "does not explain"),
    "nothing, appended at a wrong offset": ([at(0, AA, 0), at(1, Append(b""), 1)], "does not explain"),
    "nothing, appended after a seal": ([at(0, Seal()), at(1, Append(b""), 0)], "does not explain"),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_violations_are_refused(violation: str) -> None:
    calls, reason = VIOLATIONS[violation]
    assert not explainable(frozenset(enumerate(calls)))
    with pytest.raises(NotLinearizable, match=reason):
        check(events(calls))


@pytest.mark.parametrize(
    "violation",
    [
        "two swapped against real time",
        "a stale length",
        "a stale end",
        "bytes read before they were written",
        "acknowledged after a seal",
        "a seal that is not there",
        "read below a truncation",
        "unknown, and there before it began",
        "refused as sealed",
        "nothing, appended after a seal",
    ],
)
def test_no_violation_if_all_was_at_once(violation: str) -> None:
    calls, _ = VIOLATIONS[violation]
    check(events([call._replace(begin=0, end=100) for call in calls]))


def test_violations_are_found_in_a_long_history() -> None:
    """One changed offset, or one start of which nobody truncated, anywhere."""
    calls = simulate(random.Random(5), 2000, LONG, ends=0)
    tried = 0
    for number in range(0, len(calls), 17):
        call = calls[number]
        if isinstance(call.outcome, Ok) and isinstance(call.operation, Append | Info) and call.operation != Append(b""):
            result = call.outcome.result
            wrong = result + 1 if isinstance(result, int) else result._replace(start=1)
            assert not accepts([*calls[:number], call._replace(outcome=Ok(wrong)), *calls[number + 1 :]]), call
            tried += 1
    assert tried > 30


def test_the_message_shows_the_call_and_what_was_near() -> None:
    calls = [at(n, Append(b"%d" % (n % 10)), n) for n in range(100)]
    calls[50] = at(50, Append(b"x" * 100), Unknown())
    calls += [info(70, 12)]
    with pytest.raises(NotLinearizable) as raised:
        check(events(calls))
    message = str(raised.value)
    assert "> 0.000 to 0.000 ms, p: append(b'1') -> 51" in message.replace("0.001", "0.000")
    assert "append(b'xxxxxxxxxxxxxxxx'…b'xxxxxxxxxxxxxxxx' (100 bytes)) unknown()" in message
    assert "Properties(length=50, start=0, sealed=False)" in message
    assert len(message.splitlines()) < 10


def test_too_many_ways_are_given_up() -> None:
    calls = [at(n, Append(b"%d" % n * (1 << n)), Unknown()) for n in range(18)]
    with pytest.raises(Undecided, match=r"until .*append\(b'zz'\) -> 131071"):
        check(events([*calls, at(30, Append(b"zz"), (1 << 17) - 1)]))


@pytest.mark.parametrize(
    ("history", "wrong"),
    [
        ([Response("p", 0, 1, Ok())], "no invocation"),
        ([Invocation("p", 0, 1, Seal()), Invocation("p", 0, 2, Seal())], "there twice"),
        ([Invocation("p", 0, 1, Seal()), Response("p", 0, 2, Ok()), Response("p", 0, 3, Ok())], "there twice"),
        ([Invocation("p", 0, 2, Seal()), Response("p", 0, 1, Ok())], "ended before it began"),
    ],
    ids=["response alone", "two invocations", "two responses", "back in time"],
)
def test_what_is_no_history(history: list[Event], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        check(history)


def test_a_call_without_response_is_of_unknown_outcome() -> None:
    begun = Invocation("killed", 0, 0, AA)
    read: list[Event] = [Invocation("p", 0, 5, Info()), Response("p", 0, 6, Ok(Properties(2, 0, False)))]
    check([begun])
    check([begun, *read])
    with pytest.raises(NotLinearizable):
        check(read)


# --- recording ---------------------------------------------------------------------------------------------------


def test_what_a_container_does_is_recorded_and_accepted(tmp_path: Path) -> None:
    simulation = Simulation()
    with simulation.open() as container, Recorder(container, "s", "a", tmp_path / "a.jsonl") as recorder:
        container.create_segment("s")
        assert recorder.append(bytes(range(256))) == 0
        assert recorder.append(b"bb", 256) == 256
        with pytest.raises(EngineError):
            recorder.append(b"c", 5)
        with pytest.raises(EngineError):
            recorder.truncate(300)
        with pytest.raises(EngineError):
            recorder.read(3, 999)
        recorder.truncate(1)
        with pytest.raises(EngineError):
            recorder.read(0, 2)
        recorder.seal()
        with pytest.raises(EngineError):
            recorder.append(b"d")
        assert recorder.read(254, 258) == b"\xfe\xffbb"
        assert recorder.info() == Properties(258, 1, True)
    outcomes = [event.outcome for event in recorder.events if isinstance(event, Response)]
    assert outcomes == [
        Ok(0),
        Ok(256),
        Refused("BadOffset", 258),
        Refused("BadOffset"),
        Refused("BadOffset"),
        Ok(),
        Refused("SegmentTruncated", 1),
        Ok(),
        Refused("SegmentSealed"),
        Ok(b"\xfe\xffbb"),
        Ok(Properties(258, 1, True)),
    ]
    check(recorder.events)
    assert load(tmp_path / "a.jsonl") == recorder.events


def test_who_was_overtaken_has_done_nothing() -> None:
    simulation = Simulation()
    with simulation.open(exclusive=True) as first, simulation.open() as second:
        second.create_segment("s")
        one, other = Recorder(first, "s", "one"), Recorder(second, "s", "other")
        with pytest.raises(NotPrimary):
            one.append(b"a")
        with pytest.raises(ContainerOffline):
            one.info()
        other.info()
    assert [event.outcome for event in one.events if isinstance(event, Response)] == [Refused("NotPrimary")] * 2
    check(one.events + other.events)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_that_nobody_knows_is_recorded_as_such(when: When) -> None:
    simulation = Simulation()
    broken = FaultStore(simulation.store, verbs=["put_if_absent"])
    with simulation.open(through=broken, timeout=0.1) as first, simulation.open() as second:
        first.create_segment("s")
        one, other = Recorder(first, "s", "one"), Recorder(second, "s", "other")
        broken.plan = fail_at(broken.passed + 1, when, forever=True)
        with pytest.raises(OutcomeUnknown):
            one.append(b"a")
        assert other.info().length == (when == "after")
    assert [event.outcome for event in one.events if isinstance(event, Response)] == [Unknown()]
    check(one.events + other.events)


def test_reads_are_up_to_date() -> None:
    """Also where the container would be content with what it knows."""
    simulation = Simulation()
    with simulation.open() as first, simulation.open() as second:
        first.create_segment("s")
        one, other = Recorder(first, "s", "one"), Recorder(second, "s", "other")
        one.append(b"some")
        assert other.read(0, 4) == b"some"
        one.truncate(2)
        with pytest.raises(EngineError):
            other.read(0, 4)
        check(one.events + other.events)


@settings(deadline=None, max_examples=50)
@given(chance=st.randoms(use_true_random=False))
def test_histories_are_saved_and_loaded(chance: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("histories")
    history = events(simulate(chance, 10, LONG))
    save(folder / "all", history)
    save(folder / "half", history[:10])
    save(folder / "other", history[10:])
    assert load(folder / "all") == load(folder / "half", folder / "other") == history


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    history = events([at(0, AA, 0), info(1, 2)])
    save(tmp_path / "cut", history)
    whole = (tmp_path / "cut").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-1])
    assert load(tmp_path / "cut") == history[:-1]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{}",
        "[]",
        '["p", 1, 2, "jump"]',
        '["p", 1, 2, "read", 1]',
        '["p", 1, 2, "read", 1, "2"]',
        '["p", 1, 2, "append", {"bytes": "\u20ac"}, null]',
        '["p", 1, 2, "append", {"text": ""}, null]',
        '["p", 1, 2, "ok", "text"]',
        '["p", 1, 2, "ok", [1, 2]]',
        '["p", 1, 2, "ok", [1, 2, "yes"]]',
        '["p", "1", 2, "seal"]',
        '["p", 1, 2.5, "seal"]',
        '["p", 1, 2, ["seal"]]',
    ],
)
def test_a_line_that_is_no_event_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text('["p", 0, 1, "seal"]\n' + line + "\n", "utf-8")
    with pytest.raises(ValueError, match=r"bad, line 2 is no event"):
        load(tmp_path / "bad")
