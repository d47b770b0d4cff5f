"""W16: writers of events whose calls are ended by an exception at any point.

What was acknowledged is there once, of the call that was struck all or nothing, and the writer works on or says that it
has failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from engine.errors import EngineError
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import StreamError
from tests.interrupting import KINDS, Outcome, TimeLimit, alarms, chosen, struck, within_limit

SAYS = (StreamError, EngineError)
"""What a writer raises that has failed: it says that, and why."""


class Life(NamedTuple):
    """A writer with events that are acknowledged, and what is written by the call that is struck."""

    manager: StreamManager
    writer: EventWriter
    stream: str

    def written(self, *events: str) -> None:
        for event in events:
            self.writer.write_event(event, "key")


BEFORE = ["before 1", "before 2"]
AFTER = ["after 1", "after 2"]
SOME = [f"some {number}" for number in range(5)]
MUCH = [f"{number} {'much ' * 20_000}" for number in range(180)]  # of more than one append: 18 MB
"""Columns that are written with one call."""


class Call(NamedTuple):
    """A call that is struck. first: what is done before. events: those it may leave, all or none of them."""

    first: Callable[[Life], object]
    call: Callable[[Life], object]
    events: list[str]


def leave(life: Life) -> None:
    with life.writer as writer:
        writer.write_event("one", "key")


def write_and_flush(life: Life) -> None:
    life.written("one")
    life.writer.flush()


def nothing(life: Life) -> None:
    """Nothing is done before."""


CALLS: dict[str, Call] = {
    "write_event": Call(nothing, lambda life: life.writer.write_event("one", "key"), ["one"]),
    "write_event_bytes": Call(nothing, lambda life: life.writer.write_event_bytes(b"one"), ["one"]),
    "write_events": Call(nothing, lambda life: life.writer.write_events(SOME, ["key"] * 5), SOME),
    "write_events without keys": Call(nothing, lambda life: life.writer.write_events(SOME), SOME),
    "write_events of several appends": Call(nothing, lambda life: life.writer.write_events(MUCH, ["key"] * 180), MUCH),
    "flush": Call(lambda life: life.written("one"), lambda life: life.writer.flush(), ["one"]),
    "flush of a column": Call(lambda life: life.writer.write_events(SOME), lambda life: life.writer.flush(), SOME),
    "write_event and flush": Call(nothing, write_and_flush, ["one"]),
    "close": Call(lambda life: life.written("one"), lambda life: life.writer.close(), ["one"]),
    "with": Call(nothing, leave, ["one"]),
}

ROUNDS = 300
"""In which the program writes, and a signal may strike."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def root() -> Iterator[StreamManager]:
    """A root in memory, where each life has a stream."""
    with Root.open(f"memory://interrupted-writers-{next(_numbers)}") as root:
        manager = StreamManager.over(root)
        manager.create_scope("sc")
        yield manager
        within_limit(manager.close)  # with what was left behind by a call that failed


def lives(manager: StreamManager) -> Life:
    stream = f"s{next(_numbers)}"
    manager.create_stream("sc", stream, 1)
    life = Life(manager, manager.create_writer("sc", stream), stream)
    for event in BEFORE:
        life.written(event)
        life.writer.flush()
    return life


def live_on(life: Life) -> list[str]:
    """Use the writer again; the events that are acknowledged then. What it raises says that it has failed."""
    try:
        life.written(*AFTER)
        life.writer.flush()
    except SAYS:
        return []
    return AFTER


def close(life: Life) -> None:
    try:
        life.writer.close()
    except SAYS:
        return


def look(life: Life) -> list[str]:
    """All events, by a manager that knows nothing. What is counted is what is there."""
    with StreamManager(life.manager.to_str()[6:-2]) as fresh:
        events = [event.data.decode() for event in fresh.read_events("sc", life.stream)]
        table = fresh.read_events("sc", life.stream).to_arrow(["event", "timestamp", "event_number"])
        assert table.num_rows == len(events) == fresh.stream_info("sc", life.stream).events
        return events


def strike(manager: StreamManager, name: str, at: int | None) -> Outcome:
    """A life whose call `name` is struck at a point: everything that W16 says is looked at."""
    call, life = CALLS[name], lives(manager)
    call.first(life)
    written_before = call.first is not nothing
    outcome = struck(lambda: call.call(life), at, KINDS[(at or 0) % 2])
    again = within_limit(lambda: live_on(life)).value
    assert within_limit(lambda: close(life)).error is None
    new = within_limit(lambda: writes_anew(life))
    assert new.error is None, (outcome, new)
    found = within_limit(lambda: look(life))
    assert found.error is None, (outcome, found.error)
    told(outcome, again, found.value, call.events, written_before)
    return outcome


def writes_anew(life: Life) -> None:
    with life.manager.create_writer("sc", life.stream) as writer:
        writer.write_event("anew", "key")


def told(outcome: Outcome, again: Any, found: list[str], events: list[str], written_before: bool) -> None:
    """What was acknowledged is there once, in order, and of the rest all or nothing."""
    acknowledged = outcome.error is None or (written_before and bool(again))
    allowed = [BEFORE + events + again + ["anew"]]
    if not again:
        allowed.append(BEFORE + events + AFTER[:1] + ["anew"])  # which was written and never acknowledged
        allowed.append(BEFORE + events + AFTER + ["anew"])
    if not acknowledged:
        allowed += [[each for each in those if each not in events] for those in allowed]
    kept = sorted(found) if len(found) > 20 else found
    assert any(kept == (sorted(those) if len(found) > 20 else those) for those in allowed), (
        outcome.where,
        outcome.error,
        [each[:20] for each in found],
    )


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(6, id="some points"),
        pytest.param(10_000, id="every point", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_interrupted_leaves_all_or_nothing(root: StreamManager, name: str, most: int) -> None:
    points = strike(root, name, None).points
    for at in chosen(points, most):
        strike(root, name, at)


@pytest.mark.parametrize("name", ["write_event", "write_events"])
def test_a_writer_goes_on_where_the_stream_is_scaled_beside_a_torn_write(root: StreamManager, name: str) -> None:
    """It learns of that when it appends, and routes again what it was given, each event by its key."""
    call, points = CALLS[name], strike(root, name, None).points
    for at in range(points // 2, points):
        if name == "write_events" and at % 8:
            continue
        life = lives(root)
        root.scale_stream("sc", life.stream, [0], [(0.0, 0.5), (0.5, 1.0)])
        outcome = struck(partial(call.call, life), at, KINDS[at % 2])
        assert within_limit(partial(live_on, life)).value == AFTER, outcome
        life.writer.close()
        found = look(life)
        assert found in ([*BEFORE, *call.events, *AFTER], [*BEFORE, *AFTER]), (outcome, found)


@pytest.mark.parametrize("column", [False, True], ids=["event", "column"])
def test_a_numbered_write_that_is_interrupted_can_be_repeated(root: StreamManager, column: bool) -> None:
    """The program repeats it with its numbers: they are not taken for written before the events are queued."""

    def life_struck(at: int | None) -> int:
        stream = f"s{next(_numbers)}"
        root.create_stream("sc", stream, 1)
        with root.create_writer("sc", stream, producer="p") as writer:

            def write() -> None:
                if column:
                    writer.write_events(["one", "two"], numbers=[10, 11])
                else:
                    writer.write_event("one", number=10)

            outcome = struck(write, at, KINDS[(at or 0) % 2])
            write()
        found = [event.data.decode() for event in root.read_events("sc", stream)]
        assert found == (["one", "two"] if column else ["one"]), outcome
        return outcome.points

    for at in range(life_struck(None)):
        life_struck(at)


@pytest.mark.parametrize("segments", [1, 4])
def test_a_writer_that_is_interrupted_by_signals_loses_and_doubles_nothing(root: StreamManager, segments: int) -> None:
    """Signals at random moments, in the main thread; the program goes on with its writer, or with a new one."""
    stream = f"s{next(_numbers)}"
    root.create_stream("sc", stream, segments)
    given, acknowledged = 0, set[str]()
    calls: dict[str, list[str]] = {}
    writer = root.create_writer("sc", stream)

    def write(number: int, some: list[str]) -> None:
        if len(some) > 1:
            writer.write_events(some, [f"key {number % 5}"] * len(some))
        else:
            writer.write_event(some[0], f"key {number % 5}")
        writer.flush()

    with alarms(seed=segments) as during:
        for number in range(ROUNDS):
            some = [f"{number}-{each}" for each in range(1 + number % 4)]
            calls[some[0]] = some
            try:
                during(partial(write, number, some))
                acknowledged.add(some[0])
            except TimeLimit:
                given += 1
            except SAYS:
                writer = root.create_writer("sc", stream)
    writer.close()
    with StreamManager(root.to_str()[6:-2]) as fresh:
        found = [event.data.decode() for event in fresh.read_events("sc", stream)]
        table = fresh.read_events("sc", stream).to_arrow(["event", "timestamp", "event_number"])
        assert table.num_rows == len(found) == len(set(found)) == fresh.stream_info("sc", stream).events
    there = set(found)
    for first, events in calls.items():
        assert there.issuperset(events) or (first not in acknowledged and there.isdisjoint(events))
    assert given, "no signal struck"
