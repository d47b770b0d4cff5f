"""The state machine of reader groups: by hand, and as a random group over a random stream, against a model of cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import DataCorruption
from pravega_spark.client.groups.leases import Leases
from pravega_spark.client.groups.state import (
    MAX_CHECKPOINTS,
    CheckpointFailed,
    GroupSegment,
    GroupState,
    ReaderOffline,
    ReaderOnline,
    SegmentNotHeld,
    TooManyCheckpoints,
    followers,
    places,
)
from pravega_spark.segment_ids import segment_id
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import EpochRecord, Epochs, StreamSegmentRecord
from pravega_spark.streams.model.readback import UnreadableRecord

NAME = "sc/st"


def history_of(*bounds: list[tuple[int, float, float]]) -> Epochs:
    """Epochs by the ids and ranges of their segments."""
    epochs = [
        EpochRecord(number, number, tuple(StreamSegmentRecord(*one) for one in segments), number)
        for number, segments in enumerate(bounds)
    ]
    return Epochs(epochs, {number: 0 for number, _, _ in bounds[0]})


def group_of(count: int, readers: str = "", stream: str = NAME) -> GroupState:
    """A group over `count` even segments, with readers that have no segments yet."""
    parts = {GroupSegment(stream, n, n / count, (n + 1) / count): 0 for n in range(count)}
    state = GroupState((stream,)).reset(stream, parts)
    for name in readers:
        state = state.joined(name, f"token {name}")
    return state


def held(state: GroupState, name: str) -> list[int]:
    return [segment.id for segment in state.readers[name].positions]


def settled(state: GroupState) -> GroupState:
    """After each reader has asked for its share some times."""
    for _ in range(len(state.readers) + 2):
        for name in state.readers:
            state = state.balanced(name)
    return state


def numbers(positions: Mapping[GroupSegment, object]) -> dict[int, object]:
    """Positions, or what is awaited, by ids only."""
    return {segment.id: value for segment, value in positions.items()}


TWO, THREE, FOUR, FIVE = segment_id(2, 1), segment_id(3, 1), segment_id(4, 2), segment_id(5, 2)
HISTORY = history_of(
    [(0, 0.0, 0.5), (1, 0.5, 1.0)],
    [(TWO, 0.0, 0.25), (THREE, 0.25, 1.0)],
    [(TWO, 0.0, 0.25), (FOUR, 0.25, 0.5), (FIVE, 0.5, 1.0)],
)
"""Two segments; the border between them is moved; then one of them is split."""


def begun_at(positions: dict[int, int]) -> GroupState:
    """A group over HISTORY that begins at a cut."""
    return GroupState((NAME,)).reset(NAME, places(HISTORY, StreamCut("sc", "st", positions)))


def end(state: GroupState, name: str, number: int, history: Epochs = HISTORY, stream: str = NAME) -> GroupState:
    """A reader has read one of its segments to its end."""
    (segment,) = (one for one in state.readers[name].positions if (one.stream, one.id) == (stream, number))
    return state.ended(name, f"token {name}", segment, followers(history, stream, number))


# --- by hand -------------------------------------------------------------------------------------------------


def test_a_name_is_online_once() -> None:
    state = group_of(1).joined("a", "one")
    assert state.joined("a", "one") is state  # tried again
    with pytest.raises(ReaderOnline, match=r"reader a is online already: .*reader_offline\('a'\)"):
        state.joined("a", "another")
    assert state.left("a").joined("a", "another").readers["a"].token == "another"


def test_a_zombie_records_nothing() -> None:
    state = group_of(1, "ab").balanced("a")
    (segment,) = state.readers["a"].positions
    taken = state.left("a").balanced("b")
    for token in ("token a", "token b"):
        with pytest.raises(ReaderOffline, match="reader a is offline"):
            taken.recorded("a", token, {segment: 10})
        with pytest.raises(ReaderOffline):
            taken.ended("a", token, segment, {})
    assert taken.left("a") is taken
    again = taken.joined("a", "new")
    assert again.left("a", "token a") is again
    with pytest.raises(ReaderOffline):
        again.recorded("a", "token a", {segment: 10})
    assert again.recorded("a", "new", {segment: 10}).positions() == {segment: 0}  # it belongs to b


def test_positions_only_move_forward() -> None:
    state = group_of(1, "a").balanced("a")
    (segment,) = state.readers["a"].positions
    state = state.recorded("a", "token a", {segment: 10}).recorded("a", "token a", {segment: 5})
    assert state.positions() == {segment: 10}
    assert state.readers["a"].beat == 2
    assert state.left("a", "token a", {segment: 12}).unassigned == {segment: 12}


def test_who_was_heard_of_has_not_lapsed() -> None:
    state = group_of(1, "a").balanced("a")
    assert state.recorded("a", "token a", {}).lapsed("a", "token a", 0).readers.keys() == {"a"}
    assert state.lapsed("a", "another", 0).readers.keys() == {"a"}
    assert state.lapsed("a", "token a", 0).readers == {}


def test_leases_go_by_what_was_seen_when() -> None:
    leases, state = Leases(), group_of(1, "ab")
    assert leases.expired(state, 1000.0) == []
    assert leases.expired(state, 1059.9) == []
    state = state.recorded("a", "token a", {})
    assert leases.expired(state, 1060.0) == [("b", "token b", 0)]
    assert leases.expired(state.left("b"), 1100.0) == []
    assert leases.expired(state, 1119.9) == []  # b is seen for the first time again
    assert leases.expired(state, 1120.0) == [("a", "token a", 1)]


@pytest.mark.parametrize(
    ("segments", "names", "shares"),
    [(4, "ab", [2, 2]), (5, "ab", [2, 3]), (4, "abc", [1, 1, 2]), (1, "ab", [0, 1]), (7, "abc", [2, 2, 3])],
)
def test_shares_are_fair(segments: int, names: str, shares: list[int]) -> None:
    state = settled(group_of(segments, names))
    assert sorted(len(held(state, name)) for name in names) == shares
    joined = settled(state.joined("z", "token z"))
    counts = [len(held(joined, name)) for name in joined.readers]
    assert (sum(counts), max(counts) - min(counts) <= 1) == (segments, True)
    assert settled(joined) == joined


def test_a_free_segment_is_left_to_who_has_too_few() -> None:
    state = settled(group_of(4, "ab")).left("b").joined("b", "token b").balanced("b", ()).joined("c", "token c")
    state = state.balanced("a")
    assert [len(held(state, name)) for name in "abc"] == [1, 2, 0]
    assert state.balanced("a") == state.balanced("b") == state
    assert [len(held(state.balanced("c"), name)) for name in "abc"] == [1, 2, 1]


def test_what_is_out_in_a_slice_is_not_given_up() -> None:
    state = group_of(2, "a").balanced("a").joined("b", "token b")
    first, second = state.readers["a"].positions
    assert state.balanced("a", {first, second}) == state
    assert list(state.balanced("a", {second}).unassigned) == [first]
    assert list(state.balanced("a").unassigned) == [second]


def test_followers() -> None:
    def of(number: int) -> dict[int, object]:
        return numbers(followers(HISTORY, NAME, number))

    assert of(0) == of(1) == {TWO: {0, 1}, THREE: {0, 1}}
    assert of(THREE) == {FOUR: {THREE}, FIVE: {THREE}}
    assert of(TWO) == of(FOUR) == of(FIVE) == {}


def test_a_segment_waits_for_all_before_it_whoever_reads_them() -> None:
    state = settled(begun_at({0: 5, 1: 6}).joined("a", "token a").joined("b", "token b"))
    waiting = end(state, "a", 0)
    assert (waiting.unassigned, numbers(waiting.completed)) == ({}, {0: 5})
    assert numbers(waiting.future) == {TWO: {1}, THREE: {1}}
    assert waiting.cuts() == (StreamCut("sc", "st", {0: 5, 1: 6}),)
    (zero,), (one,) = waiting.completed, waiting.readers["b"].positions
    following = followers(HISTORY, NAME, 0)
    assert waiting.ended("a", "token a", zero, following) == waiting  # tried again
    ready = end(waiting, "b", 1)
    assert (numbers(ready.unassigned), ready.completed, ready.future) == ({TWO: 0, THREE: 0}, {}, {})
    assert ready.ended("b", "token b", one, following) == ready


def test_streams_with_the_same_ids_are_kept_apart() -> None:
    merged = segment_id(2, 1)
    history = history_of([(0, 0.0, 0.5), (1, 0.5, 1.0)], [(merged, 0.0, 1.0)])
    state = GroupState(("sc/x", "sc/y")).joined("a", "token a")
    for name in ("x", "y"):
        state = state.reset(f"sc/{name}", places(history, StreamCut("sc", name, {0: 0, 1: 0})))
    state = state.balanced("a")
    for stream, number in (("sc/x", 0), ("sc/y", 1), ("sc/y", 0)):
        state = end(state, "a", number, history, stream)
    assert {(one.stream, one.id) for one in state.unassigned} == {("sc/y", merged)}
    assert {(one.stream, one.id) for one in state.future} == {("sc/x", merged)}
    assert {(one.stream, one.id) for one in state.completed} == {("sc/x", 0)}
    head = places(history, StreamCut("sc", "x", {merged: 3}))
    gone = set(state.positions("sc/x"))
    assert numbers(state.truncated(gone, head).positions("sc/x")) == {merged: 3}
    assert state.truncated(gone, head).positions("sc/y") == state.positions("sc/y")
    assert state.truncated({GroupSegment("sc/y", 1, 0.5, 1.0)}, {}).future == state.future
    again = state.reset("sc/x", places(history, StreamCut("sc", "x", {merged: 7})))
    assert (numbers(again.positions("sc/x")), numbers(again.positions("sc/y"))) == ({merged: 7}, {merged: 0})


def test_a_reset_forgets_what_was_free_or_waited() -> None:
    state = end(begun_at({0: 5, 1: 6}).joined("a", "token a").balanced("a"), "a", 0)
    again = state.reset(NAME, places(HISTORY, StreamCut("sc", "st", {TWO: 8, FOUR: 0, FIVE: 9})))
    assert numbers(again.unassigned) == {TWO: 8, FOUR: 0, FIVE: 9}
    assert (again.positions(), again.future) == (again.unassigned, {})
    back = again.reset(NAME, places(HISTORY, StreamCut("sc", "st", {0: 1, 1: 2})))
    assert (numbers(back.positions()), held(back, "a")) == ({0: 1, 1: 2}, [])


def test_what_waits_may_be_truncated_too() -> None:
    state = end(begun_at({0: 5, 1: 6}).joined("a", "token a").balanced("a"), "a", 0)
    head = places(HISTORY, StreamCut("sc", "st", {TWO: 2, FOUR: 3, FIVE: 4}))
    after = state.truncated(set(state.positions()), head)
    assert (numbers(after.unassigned), after.positions(), after.future) == (
        {TWO: 2, FOUR: 3, FIVE: 4},
        after.unassigned,
        {},
    )


def test_what_was_not_truncated_stays() -> None:
    state = begun_at({TWO: 7, THREE: 8}).joined("a", "token a").balanced("a")
    gone = {one for one in state.positions() if one.id == THREE}
    after = state.truncated(gone, places(HISTORY, StreamCut("sc", "st", {TWO: 2, FOUR: 3, FIVE: 4})))
    assert numbers(after.positions()) == {TWO: 7, FOUR: 3, FIVE: 4}
    assert held(after, "a") == [TWO]


def test_what_came_after_truncated_segments_is_read_once() -> None:
    """Two readers lag in 0 and 1, which were merged and truncated away; what follows must not come twice."""
    state = settled(group_of(2, "ab"))
    merged = GroupSegment(NAME, segment_id(2, 1), 0.0, 1.0)
    after = state.truncated(set(state.positions()), {merged: 30})
    assert after.positions() == {merged: 30}
    assert held(after, "a") == held(after, "b") == []
    assert after.truncated(set(state.positions()), {merged: 30}) == after


def test_what_waits_for_a_truncated_segment_that_nobody_had_is_there_once() -> None:
    """0 is completed, 1 is being read, and 2, which follows it, has not been entered yet: all go, and 3 is the head."""
    first, second = (GroupSegment(NAME, number, number / 2, number / 2 + 0.5) for number in (0, 1))
    last, between = GroupSegment(NAME, segment_id(3, 2), 0.0, 1.0), segment_id(2, 1)
    state = replace(group_of(1, "a"), unassigned={second: 4}, completed={first: 5}, future={last: frozenset({between})})
    after = state.truncated({first, second}, {last: 0})
    assert (after.unassigned, after.completed, after.future) == ({last: 0}, {}, {})
    assert GroupState.decode(after.encode(), "g") == after


def test_checkpoints_are_kept_and_limited() -> None:
    state = group_of(1, "a").balanced("a")
    (segment,) = state.readers["a"].positions
    for number in range(MAX_CHECKPOINTS + 3):
        state = state.recorded("a", "token a", {segment: number}).checkpointed(f"c{number}")
    assert list(state.checkpoints) == [f"c{number}" for number in range(3, MAX_CHECKPOINTS + 3)]
    assert state.checkpoints["c5"] == (StreamCut("sc", "st", {0: 5}),)
    assert list(state.checkpointed("c5").checkpoints)[-1] == "c5"
    assert GroupState.decode(state.encode(), "g") == state


def passing(state: GroupState, name: str, run: str, offset: int = 0) -> GroupState:
    """A reader passes a checkpoint, at an offset of each of its segments."""
    state = state.recorded(name, f"token {name}", dict.fromkeys(state.readers[name].positions, offset))
    return state.passed(name, f"token {name}", run)


def test_a_checkpoint_is_complete_when_all_readers_have_passed_it() -> None:
    state = settled(group_of(2, "ab")).initiated("1", "c")
    assert state.initiated("1", "c") is state.initiated("2", "c") is state  # tried again, and by another
    assert state.outcome("1", "c") is None and state.next_checkpoint("a") == "1"
    state = passing(state, "a", "1", 5)
    assert state.passed("a", "token a", "1") is state and state.next_checkpoint("a") is None
    assert state.outcome("1", "c") is None and state.checkpoints == {}
    state = passing(state, "b", "1", 7)
    (first,), (second,) = held(state, "a"), held(state, "b")
    cuts = (StreamCut("sc", "st", {first: 5, second: 7}),)
    assert state.outcome("1", "c") == state.checkpoints["c"] == state.restart_cuts() == cuts
    assert GroupState.decode(state.encode(), "g") == state
    later = state.initiated("2", "c")
    assert later.checkpoints == state.checkpoints  # until the new one is complete
    assert later.without_outstanding().checkpoints == state.checkpoints
    with pytest.raises(CheckpointFailed):
        later.without_outstanding().outcome("2", "c")
    with pytest.raises(ReaderOffline):
        state.passed("a", "another", "1")


def test_checkpoints_of_a_reader_come_in_order_and_a_silent_one_is_not_stored() -> None:
    state = settled(group_of(2, "ab")).initiated("1", "c").initiated("2", None).initiated("3", "d")
    assert state.passed("a", "token a", "2") is state  # it is not the next one
    for run in "123":
        assert state.next_checkpoint("a") == run
        state = passing(state, "a", run)
        assert state.outcome(run, run) is None
    state = passing(passing(state, "b", "1", 1), "b", "2", 2)
    assert list(state.checkpoints) == ["c"] and list(state.silent) == ["2"]
    assert GroupState.decode(state.encode(), "g") == state
    assert state.left("b").checkpoints.keys() == {"c", "d"}


def test_a_reader_that_is_to_pass_a_checkpoint_keeps_what_it_has() -> None:
    state = begun_at({0: 5, 1: 6}).joined("a", "token a").balanced("a").initiated("1", "c").joined("b", "token b")
    assert state.balanced("a") is state
    assert end(state, "a", 0) is state
    assert state.next_checkpoint("b") is None and state.balanced("b") is state
    after = state.passed("a", "token a", "1")
    assert after.checkpoints["c"] == (StreamCut("sc", "st", {0: 5, 1: 6}),)
    assert end(after, "a", 0).completed and after.balanced("a") != after


def test_what_a_reader_loses_by_truncation_before_it_passes_is_in_the_checkpoint() -> None:
    state = settled(group_of(2, "ab")).initiated("1", "c")
    merged = GroupSegment(NAME, segment_id(2, 1), 0.0, 1.0)
    state = passing(state, "a", "1", 3).truncated(set(state.positions()), {merged: 30})
    state = passing(state, "b", "1")
    (cut,) = state.checkpoints["c"]
    assert sorted(cut.positions) == [0, 1] and sorted(cut.positions.values()) == [0, 3]


def test_a_group_waits_for_a_limited_number_of_checkpoints() -> None:
    state = group_of(1, "a")
    for number in range(3):
        state = state.initiated(str(number), f"c{number}")
    for number in range(MAX_CHECKPOINTS):
        state = state.initiated(f"silent {number}", None)
    for name in ("d", None):
        with pytest.raises(TooManyCheckpoints, match=r"call cancel_outstanding_checkpoints\(\)"):
            state.initiated("more", name)
    for run in list(state.outstanding):
        state = passing(state, "a", run)
    for number in range(100):
        state = passing(state.initiated(f"x{number}", f"x{number}"), "a", f"x{number}")
        state = passing(state.initiated(f"y{number}", None), "a", f"y{number}")
    assert len(state.checkpoints) == len(state.runs) == len(state.silent) == MAX_CHECKPOINTS
    with pytest.raises(CheckpointFailed, match="16 later ones have replaced it"):
        state.outcome("x0", "x0")


def test_what_a_reader_does_not_have_it_does_not_complete() -> None:
    state = begun_at({0: 5, 1: 6}).joined("a", "token a").balanced("a")
    zero = next(one for one in state.positions() if one.id == 0)
    with pytest.raises(ReaderOffline):
        state.left("a").ended("a", "token a", zero, followers(HISTORY, NAME, 0))
    again = state.left("a").joined("a", "token a")
    with pytest.raises(SegmentNotHeld, match=r"reader a does not have segment 0\.0 of sc/st any more"):
        again.ended("a", "token a", zero, followers(HISTORY, NAME, 0))
    again.balanced("a").ended("a", "token a", zero, followers(HISTORY, NAME, 0))


def test_a_segment_may_be_given_back_further_back() -> None:
    state = settled(group_of(2, "ab"))
    (first,), (second,) = state.readers["a"].positions, state.readers["b"].positions
    state = state.recorded("a", "token a", {first: 123}).recorded("b", "token b", {second: 123})
    assert state.left("a", positions={first: 1, second: 7}).positions() == {first: 1, second: 123}


def damaged() -> list[bytes]:
    good = settled(group_of(2, "ab")).encode()
    return [
        b"",
        b"\x00",
        good[:-1],
        good + b"\x00",
        good.replace(b"\xa6format\x01", b"\xa6format\x02"),
        good.replace(b"\xa4none", b"\xa4nine"),
        good.replace(b"sc/st", b"sc+st"),
        good.replace(b"lease\xcb@", b"lease\xcb\xc0"),
        good.replace(b"\xcb?\xf0", b"\xc0\xc0\xc0"),
    ]


@pytest.mark.parametrize("number", range(9))
def test_damage_is_named(number: int) -> None:
    data = damaged()[number]
    assert data not in damaged()[:number]
    with pytest.raises(DataCorruption, match=r"reader group sc/g: it (cannot be understood|has format 2)"):
        GroupState.decode(data, "sc/g")


def test_no_state_has_a_segment_twice() -> None:
    state = settled(group_of(2, "ab"))
    (segment,) = state.readers["a"].positions
    twice = state.reset("sc/other", {segment: 0})
    with pytest.raises(UnreadableRecord, match="a segment is there twice"):
        twice.encode()


# --- a random group ------------------------------------------------------------------------------------------

CELLS = 8
"""The key space of the model is that many cells; each has one segment after the other."""


class World:
    """A stream that scales, and what of it was delivered."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self.cells: dict[int, range] = {}
        self.chains: list[list[int]] = [[] for _ in range(CELLS)]
        self.epochs: list[EpochRecord] = []
        self.delivered: dict[int, int] = {}
        self.gone: set[int] = set()
        self.completed: set[int] = set()
        self.head: dict[int, int] = {}
        self.numbers = 0
        self.end: StreamCut | None = None

    def scale(self, sealed: Collection[int], ranges: list[range], lengths: list[int]) -> None:
        """Put new segments in the place of others."""
        epoch = self.epochs[-1].epoch + 1 if self.epochs else 0
        kept = [one.id for one in self.epochs[-1].segments if one.id not in sealed] if self.epochs else []
        for cells, length in zip(ranges, lengths, strict=False):
            number = segment_id(self.numbers, epoch)
            self.numbers += 1
            self.lengths[number], self.cells[number], self.delivered[number] = length, cells, 0
            for cell in cells:
                self.chains[cell].append(number)
            kept.append(number)
        kept.sort(key=lambda number: self.cells[number].start)
        self.epochs.append(EpochRecord(epoch, epoch, tuple(self.record(number) for number in kept), epoch))

    @property
    def history(self) -> Epochs:
        return Epochs(self.epochs, self.head)

    def record(self, number: int) -> StreamSegmentRecord:
        cells = self.cells[number]
        return StreamSegmentRecord(number, cells.start / CELLS, cells.stop / CELLS)

    def segment(self, number: int) -> GroupSegment:
        return GroupSegment(NAME, *self.record(number))

    def before(self, number: int) -> set[int]:
        """Everything that must have been delivered before this segment."""
        return {
            other for cell in self.cells[number] for other in self.chains[cell][: self.chains[cell].index(number)]
        } - self.gone

    def forget_behind(self, cut: StreamCut) -> None:
        """Only what lies before the cut counts as delivered."""
        delivered = dict(self.lengths)
        for chain in self.chains:
            at = next(index for index, number in enumerate(chain) if number in cut.positions)
            delivered[chain[at]] = max(cut.positions[chain[at]], 0)
            delivered |= dict.fromkeys(chain[at + 1 :], 0)
        self.delivered = delivered
        self.completed = {number for number in self.lengths if self.passed(number, cut)}

    def passed(self, number: int, cut: StreamCut) -> bool:
        """Whether a segment lies before a cut, which names neither it nor an earlier one of its keys."""
        chains = [self.chains[cell] for cell in self.cells[number]]
        return not any(set(chain[: chain.index(number) + 1]) & set(cut.positions) for chain in chains)

    def due(self, number: int) -> int:
        """How much of a segment is to be read, with the group's end."""
        if self.end is None or number in self.gone or self.passed(number, self.end):
            return self.lengths[number]
        return self.end.positions.get(number, 0)

    def rewind(self, positions: Mapping[GroupSegment, int]) -> None:
        """What was delivered after these positions will be delivered again."""
        self.delivered |= {key.id: offset for key, offset in positions.items() if key.id not in self.gone}

    def truncate(self, steps: list[int]) -> None:
        """Move the head on over some segments that are sealed, and what else must go so that it remains a cut."""
        at = [next(i for i, number in enumerate(chain) if number in self.head) for chain in self.chains]
        for step in steps:
            cell = step % CELLS
            at[cell] += at[cell] + 1 < len(self.chains[cell])
            while (further := self.whole(at)) != at:
                at = further
        for chain, index in zip(self.chains, at, strict=True):
            self.gone |= set(chain[:index])
        self.head = {chain[index]: 0 for chain, index in zip(self.chains, at, strict=True)}
        self.delivered |= {number: self.lengths[number] for number in self.gone}
        first = min(epoch.epoch for epoch in self.epochs if any(one.id in self.head for one in epoch.segments))
        self.epochs = [epoch for epoch in self.epochs if epoch.epoch >= first]

    def whole(self, at: list[int]) -> list[int]:
        """Places in the cells, moved on to where a segment is that one of its cells has come to, or has left."""
        further = list(at)
        for chain, index in zip(self.chains, at, strict=True):
            for number in chain[: index + 1]:
                for cell in self.cells[number]:
                    left = number != chain[index]
                    further[cell] = max(further[cell], self.chains[cell].index(number) + left)
        return further


class Member:
    """A reader that lives: what it believes."""

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.token = token
        self.positions: dict[GroupSegment, int] = {}


class RandomGroup(RuleBasedStateMachine):
    """Readers join, read, record, complete, leave and crash while the stream scales and is truncated."""

    @initialize(count=st.sampled_from([1, 2, 4]), length=st.integers(0, 3))
    def begin(self, count: int, length: int) -> None:
        self.world = World()
        size = CELLS // count
        ranges = [range(number * size, (number + 1) * size) for number in range(count)]
        self.world.scale([], ranges, [length] * count)
        self.world.head = {one.id: 0 for one in self.world.epochs[0].segments}
        start = places(self.world.history, StreamCut("sc", "st", self.world.head))
        self.state = GroupState((NAME,)).reset(NAME, start)
        self.members: list[Member] = []
        self.dead: list[Member] = []
        self.tokens = self.runs = 0

    # --- the stream

    @rule(place=st.integers(0, CELLS - 1), size=st.integers(1, 3), data=st.data())
    def scale(self, place: int, size: int, data: st.DataObject) -> None:
        """Neighbouring segments are replaced by others with the same keys."""
        segments = self.world.epochs[-1].segments
        first = place % len(segments)
        sealed = [one.id for one in segments[first : first + size]]
        low = self.world.cells[sealed[0]].start
        high = self.world.cells[sealed[-1]].stop
        inner = data.draw(st.lists(st.integers(low + 1, high - 1), max_size=3, unique=True)) if high - low > 1 else []
        bounds = [low, *sorted(inner), high]
        ranges = [range(one, other) for one, other in pairwise(bounds)]
        self.world.scale(sealed, ranges, data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)))

    @rule(steps=st.lists(st.integers(0, 7), min_size=1, max_size=3))
    def truncate(self, steps: list[int]) -> None:
        self.world.truncate(steps)
        self.notice_truncation()

    def notice_truncation(self) -> None:
        gone = {one for one in self.state.positions() if one.id in self.world.gone}
        head = places(self.world.history, StreamCut("sc", "st", self.world.head))
        self.state = self.state.truncated(gone, head)

    # --- readers

    @rule()
    @precondition(lambda self: len(self.members) < 4)
    def join(self) -> None:
        self.tokens += 1
        member = Member(f"r{self.tokens}", str(self.tokens))
        self.state = self.state.joined(member.name, member.token).balanced(member.name)
        self.members.append(member)
        self.adopt(member)

    def adopt(self, member: Member) -> None:
        member.positions = dict(self.state.readers[member.name].positions)

    def pick(self, number: int) -> Member:
        return self.members[number % len(self.members)]

    @rule(who=st.integers(0, 3), which=st.integers(0, 7), out=st.booleans())
    @precondition(lambda self: self.members)
    def read(self, who: int, which: int, out: bool) -> None:
        """Take an event; or, at the end of a segment that is sealed, complete it."""
        member = self.pick(who)
        if not member.positions:
            return
        segment = list(member.positions)[which % len(member.positions)]
        blocked = self.state.next_checkpoint(member.name) is not None
        if segment.id in self.world.gone or segment not in self.state.readers[member.name].positions:
            self.record(who, out)
            return
        position = member.positions[segment]
        limit = min(self.world.lengths[segment.id], self.state.ends.get(segment, 99))
        assert all(self.world.delivered[one] == self.world.lengths[one] for one in self.world.before(segment.id))
        following = followers(self.world.history, NAME, segment.id) if segment not in self.state.ends else {}
        if position < limit:
            assert position == self.world.delivered[segment.id], "an event was left out, or comes twice"
            self.world.delivered[segment.id] = position + 1
            member.positions[segment] = position + 1
        elif (following or segment in self.state.ends) and not blocked:
            state = self.state.recorded(member.name, member.token, member.positions)
            state = state.ended(member.name, member.token, segment, following)
            assert state.ended(member.name, member.token, segment, following) == state
            self.world.completed.add(segment.id)
            self.state = state.balanced(member.name)
            self.adopt(member)

    @rule(who=st.integers(0, 3), which=st.integers(0, 7))
    @precondition(lambda self: self.members)
    def finish(self, who: int, which: int) -> None:
        """Read what is left of a segment."""
        for _ in range(4):
            self.read(who, which, False)

    @rule(who=st.integers(0, 3), out=st.booleans())
    @precondition(lambda self: self.members)
    def record(self, who: int, out: bool) -> None:
        member = self.pick(who)
        kept = list(member.positions)[:1] if out else []
        state = self.state.recorded(member.name, member.token, member.positions)
        owned = state.readers[member.name].positions.keys()
        self.state = state.balanced(member.name, kept)
        assert set(kept) & owned <= self.state.readers[member.name].positions.keys()
        self.adopt(member)

    @rule(who=st.integers(0, 3))
    @precondition(lambda self: self.members)
    def leave(self, who: int) -> None:
        member = self.pick(who)
        self.state = self.state.left(member.name, member.token, member.positions)
        assert self.state.left(member.name, member.token, member.positions) is self.state
        self.members.remove(member)

    @rule(who=st.integers(0, 3), back=st.integers(1, 3))
    @precondition(lambda self: self.members)
    def leave_further_back(self, who: int, back: int) -> None:
        """At a position that the program has stored."""
        member = self.pick(who)
        held = self.state.readers[member.name].positions
        at = {key: max(member.positions.get(key, 0) - back, 0) for key in held if key.id not in self.world.gone}
        self.state = self.state.left(member.name, member.token, at)
        self.world.rewind(at)
        self.members.remove(member)

    @rule(who=st.integers(0, 3))
    @precondition(lambda self: self.members)
    def crash(self, who: int) -> None:
        """It is not heard of any more; its segments are stuck until others find out."""
        member = self.pick(who)
        self.members.remove(member)
        self.dead.append(member)

    @rule()
    @precondition(lambda self: self.dead)
    def take_over(self) -> None:
        member = self.dead.pop(0)
        if member.name in self.state.readers:
            self.world.rewind(self.state.readers[member.name].positions)
            self.state = self.state.lapsed(member.name, member.token, self.state.readers[member.name].beat)
        with pytest.raises(ReaderOffline):  # should it come back
            self.state.recorded(member.name, member.token, member.positions)

    @rule()
    def checkpoint(self) -> None:
        self.state = self.state.checkpointed("only")

    @rule(silent=st.booleans())
    def initiate(self, silent: bool) -> None:
        self.runs += 1
        run = str(self.runs)
        try:
            state = self.state.initiated(run, None if silent else f"c{run}")
        except TooManyCheckpoints:
            assert len([each for each in self.state.outstanding.values() if (each.name is None) == silent]) >= 3
            return
        assert state.initiated(run, None if silent else f"c{run}") is state
        self.state = state

    @rule(who=st.integers(0, 3))
    @precondition(lambda self: self.members)
    def pass_checkpoint(self, who: int) -> None:
        member = self.pick(who)
        run = self.state.next_checkpoint(member.name)
        if run is None:
            return
        name = self.state.outstanding[run].name
        state = self.state.recorded(member.name, member.token, member.positions)
        state = state.passed(member.name, member.token, run)
        assert state.passed(member.name, member.token, run) is state
        assert state.next_checkpoint(member.name) != run
        if (cuts := state.outcome(run, "c")) is not None:
            assert self.world.history.problem(cuts[0].positions) is None
            assert name is None or list(state.checkpoints)[-1] == name
        self.state = state.balanced(member.name)
        self.adopt(member)

    @rule()
    def cancel(self) -> None:
        self.state = self.state.without_outstanding()
        assert all(each.name is None for each in self.state.outstanding.values())

    @rule(which=st.integers(0, 15))
    @precondition(lambda self: self.state.checkpoints)
    def end_at_a_checkpoint(self, which: int) -> None:
        """Begin again at the head, with an end."""
        (end,) = list(self.state.checkpoints.values())[which % len(self.state.checkpoints)]
        if any(number in self.world.gone for number in end.positions):
            return
        start = StreamCut("sc", "st", self.world.head)
        other = GroupState((NAME,), ends=places(self.world.history, end), max_outstanding=3)
        self.state = self.state.restarted(other.reset(NAME, places(self.world.history, start)))
        self.world.end = end
        self.world.forget_behind(start)
        for member in self.members:
            self.adopt(member)

    @rule(which=st.integers(0, 15))
    @precondition(lambda self: self.state.checkpoints)
    def reset(self, which: int) -> None:
        (cut,) = list(self.state.checkpoints.values())[which % len(self.state.checkpoints)]
        if any(number in self.world.gone for number in cut.positions):
            return
        self.state = self.state.reset(NAME, places(self.world.history, cut))
        self.world.forget_behind(cut)
        for member in self.members:
            assert self.state.readers[member.name].positions == {}
            self.adopt(member)

    # --- what must hold

    @invariant()
    def what_is_stored_is_what_it_was(self) -> None:
        assert GroupState.decode(self.state.encode(), "g") == self.state  # which also refuses a segment twice

    @invariant()
    def the_positions_are_a_cut(self) -> None:
        (cut,) = self.state.cuts()
        assert self.world.history.problem(cut.positions) is None

    @invariant()
    def what_was_recorded_was_delivered(self) -> None:
        for segment, offset in self.state.positions().items():
            assert offset <= self.world.delivered[segment.id]

    @invariant()
    def what_is_completed_never_comes_again(self) -> None:
        assert not numbers({**self.state.positions(), **self.state.future}).keys() & (
            self.world.completed - numbers(self.state.completed).keys()
        )

    @invariant()
    def nobody_has_more_than_a_fair_share_for_long(self) -> None:
        state = settled(self.state.without_outstanding())
        if state.outstanding:
            return
        counts = [len(reader.positions) for reader in state.readers.values()]
        assert not counts or (max(counts) - min(counts) <= 1 and not state.unassigned)

    def teardown(self) -> None:
        """Whatever happened, everything is read in the end."""
        for member in [*self.dead, *self.members]:
            if member.name in self.state.readers:
                self.world.rewind(self.state.readers[member.name].positions)
            self.state = self.state.left(member.name)
        assert self.state.outstanding == {}
        self.dead, self.members = [], []
        self.join()
        self.join()
        rounds = 4 * (len(self.world.lengths) + 1)  # in each, at least one event of a segment, or its end
        due = {number: self.world.due(number) for number in self.world.lengths}
        while rounds and self.world.delivered != due:
            rounds -= 1
            for who in (0, 1):
                self.record(who, False)
                for which in range(CELLS):
                    self.read(who, which, False)
        assert self.world.delivered == due
        for _ in range(4 * len(due)):
            self.read(0, 0, False)
            self.read(1, 0, False)
        assert self.state.read_completely is (self.world.end is not None)


RandomGroup.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_a_random_group = RandomGroup.TestCase
