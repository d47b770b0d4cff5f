"""Segments of many epochs and cuts that mix them, against brute force: every key by itself.

The model divides the keys into cells. Over a cell the segments of all epochs are a plain list; a cut is a place in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.segment_ids import segment_epoch, segment_id, segment_number
from pravega_spark.streams.model.epochs import (
    GONE,
    NOT_REACHED,
    Comparison,
    EpochRecord,
    Epochs,
    StreamSegmentRecord,
    Traversal,
    duplicate,
    overlapping,
    replaced,
)
from pravega_spark.streams.model.stream_record import StreamRecord, next_number
from pravega_spark.streams.reading.cut_traversal import CutTraversal

CELLS = 12
Cut = dict[int, int]
Rank = tuple[int, int]


def bound(cell: int) -> float:
    return cell / CELLS


def epoch_of(number: int, *segments: tuple[int, float, float], reference: int | None = None) -> EpochRecord:
    records = tuple(StreamSegmentRecord(*segment) for segment in segments)
    return EpochRecord(number, 1000 + number, records, number if reference is None else reference)


class Model:
    """The history of a stream that was scaled at random, and the places of its segments over each cell."""

    def __init__(self, seed: int, scales: int) -> None:
        self.random = random.Random(seed)
        count = self.random.randint(1, 4)
        bounds = [0, *sorted(self.random.sample(range(1, CELLS), count - 1)), CELLS]
        first = [(place, bound(bounds[place]), bound(bounds[place + 1])) for place in range(count)]
        self.epochs = [epoch_of(0, *first)]
        for _ in range(scales):
            self.scale()
        segments = {segment.id: segment for epoch in self.epochs for segment in epoch.segments}
        self.cells = {
            number: [cell for cell in range(CELLS) if low <= bound(cell) < high]
            for number, low, high in sorted(segments.values())
        }
        self.lines = [[n for n, cells in self.cells.items() if cell in cells] for cell in range(CELLS)]
        self.lengths = {number: self.random.choice((0, 0, 10, 20)) for number in self.cells}

    def scale(self) -> None:
        """A split, a merge, anything between; or the two epochs of a transaction that came late."""
        current = self.epochs[-1]
        if self.random.random() < 0.2:
            past = self.random.choice(self.epochs)
            self.epochs.append(duplicate(past, current.epoch + 1, current.created + 1))
            self.epochs.append(duplicate(current, current.epoch + 2, current.created + 2))
            return
        sealed = self.random.sample(current.segments, self.random.randint(1, min(3, len(current.segments))))
        new: list[tuple[float, float]] = []
        for low, high in joined(sealed):
            inner = range(round(low * CELLS) + 1, round(high * CELLS))
            inside = sorted(self.random.sample(inner, self.random.randint(0, min(2, len(inner)))))
            bounds = [low, *map(bound, inside), high]
            new += pairwise(bounds)
        number, epoch = next_number(current), current.epoch + 1
        made = [
            StreamSegmentRecord(segment_id(number + place, epoch), low, high) for place, (low, high) in enumerate(new)
        ]
        self.epochs.append(EpochRecord(epoch, current.created + 1, replaced(current.segments, made), epoch))

    @property
    def history(self) -> Epochs:
        return Epochs(self.epochs, {segment.id: 0 for segment in self.epochs[0].segments})

    # --- cuts by cells -----------------------------------------------------------------------------------------

    def cut(self, low: Cut | None = None) -> Cut:
        """Any valid cut, not before `low`."""
        places = [line.index(self.at(low, cell)) if low else 0 for cell, line in enumerate(self.lines)]
        for _ in range(self.random.choice((0, 1, 2, 6))):
            cell = self.random.randrange(CELLS)
            places[cell] = self.random.randint(places[cell], len(self.lines[cell]) - 1)
        while self._raise(places):
            pass
        found = {line[place] for place, line in zip(places, self.lines, strict=True)}
        return {n: self.random.randint((low or {}).get(n, 0), self.lengths[n]) for n in sorted(found)}

    def _raise(self, places: list[int]) -> bool:
        """Lift cells over which a segment is entered, or left, as it is over others."""
        before = list(places)
        for number, cells in self.cells.items():
            lines = {cell: self.lines[cell].index(number) for cell in cells}
            left = any(places[cell] > place for cell, place in lines.items())
            entered = any(places[cell] >= place for cell, place in lines.items())
            for cell, place in lines.items():
                places[cell] = max(places[cell], place + 1 if left else place if entered else 0)
        return places != before

    def at(self, cut: Mapping[int, int], cell: int) -> int:
        """The segment that a cut has over a cell."""
        (found,) = (number for number in cut if cell in self.cells[number])
        return found

    def rank(self, cut: Mapping[int, int], cell: int) -> Rank:
        number = self.at(cut, cell)
        return self.lines[cell].index(number), cut[number]

    def is_cut(self, numbers: set[int]) -> bool:
        """Whether every key has one segment, and no segment is behind the cut for one and before it for another."""
        if sorted(cell for number in numbers for cell in self.cells[number]) != list(range(CELLS)):
            return False
        for number, cells in self.cells.items():
            places = [self.at(dict.fromkeys(numbers, 0), cell) for cell in cells]
            if min(places) < number < max(places):
                return False
        return True


def joined(segments: list[StreamSegmentRecord]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for _, low, high in sorted(segments, key=lambda segment: segment.low):
        if found and found[-1][1] == low:
            low = found.pop()[0]
        found.append((low, high))
    return found


models = st.builds(Model, st.integers(0, 10**9), st.integers(0, 8))
checked = settings(max_examples=60, deadline=None)


@checked
@given(models)
def test_successors_and_predecessors(model: Model) -> None:
    history = model.history
    assert list(history.segments) == sorted(model.cells)
    for number, cells in model.cells.items():
        lines = [model.lines[cell] for cell in cells]
        places = [line.index(number) for line in lines]
        after = {line[place + 1] for line, place in zip(lines, places, strict=True) if place + 1 < len(line)}
        before = {line[place - 1] for line, place in zip(lines, places, strict=True) if place}
        assert {segment.id for segment in history.successors(number)} == after
        assert {segment.id for segment in history.predecessors(number)} == before


@checked
@given(models)
def test_every_epoch_has_all_keys_once(model: Model) -> None:
    for epoch in model.epochs:
        assert model.history.problem({segment.id: 0 for segment in epoch.segments}) is None
        traversal = Traversal(epoch.segments)
        assert traversal.gap() is None and traversal.overlap() is None
        assert model.history.epoch(epoch.epoch) == epoch


@checked
@given(models)
def test_which_segments_make_a_cut(model: Model) -> None:
    history, tried = model.history, set()
    for _ in range(60):
        cut = set(model.cut())
        tried.add(model.is_cut(cut))
        assert history.problem(dict.fromkeys(cut, 0)) is None
        cut ^= set(model.random.sample(sorted(model.cells), model.random.randint(0, min(2, len(model.cells)))))
        cut = cut or {0}
        assert (history.problem(dict.fromkeys(cut, 0)) is None) == model.is_cut(cut), cut
    assert True in tried


def pairs(model: Model) -> Iterator[tuple[Cut, Cut]]:
    for _ in range(6):
        one = model.cut()
        yield one, model.cut(one)
        yield one, model.cut()


@checked
@given(models)
def test_comparison_and_what_is_earlier_or_later(model: Model) -> None:
    history = model.history
    for one, other in pairs(model):
        ranks = [(model.rank(one, cell), model.rank(other, cell)) for cell in range(CELLS)]
        lower, greater = any(a < b for a, b in ranks), any(a > b for a, b in ranks)
        expected = Comparison.BEFORE if lower else Comparison.EQUAL_OR_AFTER
        if lower and greater:
            expected = Comparison.OVERLAPS
        assert history.compare(one, other) is expected
        low, high = history.earlier(one, other), history.later(one, other)
        assert history.problem(low) is None and history.problem(high) is None
        assert [model.rank(low, cell) for cell in range(CELLS)] == [min(pair) for pair in ranks]
        assert [model.rank(high, cell) for cell in range(CELLS)] == [max(pair) for pair in ranks]


@checked
@given(models)
def test_what_lies_between_two_cuts(model: Model) -> None:
    history = model.history
    for one, other in pairs(model):
        if history.compare(one, other) is not Comparison.BEFORE:
            continue
        expected = {}
        for number, cells in model.cells.items():
            first = [model.lines[cell].index(model.at(one, cell)) for cell in cells]
            last = [model.lines[cell].index(model.at(other, cell)) for cell in cells]
            own = [model.lines[cell].index(number) for cell in cells]
            if all(a <= b <= c for a, b, c in zip(first, own, last, strict=True)):
                expected[number] = one.get(number, 0), other.get(number, model.lengths[number])
        found = history.ranges(one, other, model.lengths.__getitem__)
        assert found == expected and list(found) == sorted(found)
        sizes = (high - low for low, high in expected.values())
        assert history.size(one, other, model.lengths.__getitem__) == sum(sizes)


@checked
@given(models)
def test_truncated_records_keep_what_is_from_the_head_on(model: Model) -> None:
    """And tell the same of it as before, after they were written and read."""
    whole = model.history
    head = model.cut()
    dropped = whole.first_epoch(head)
    record = StreamRecord(b"i" * 16, 1, tuple(model.epochs[dropped:]), head=head)
    assert StreamRecord.decode(record.encode(), -1, "s/a") == record
    left = record.history
    gone = whole.before(head)
    assert sorted([*gone, *left.segments]) == list(model.cells)
    assert gone == [n for n, cells in model.cells.items() if all(model.at(head, cell) > n for cell in cells)]
    assert any(segment.id in head for segment in model.epochs[dropped].segments)
    for number in left.segments:
        assert left.successors(number) == whole.successors(number)
        there = [segment for segment in whole.predecessors(number) if segment.id not in gone]
        assert left.predecessors(number) == there
    for _ in range(5):
        cut = model.cut(head)
        assert left.problem(cut) is None
        assert left.between(head, cut) == whole.between(head, cut)
        assert left.span(cut) == whole.span(cut)
        old = model.cut()
        assert left.problem(old) is None
        if not left.gone(old):
            assert left.compare(old, head) is whole.compare(old, head)
        clamped = left.earlier(left.later(old, head), cut)
        assert clamped == whole.earlier(whole.later(old, head), cut)


@checked
@given(models)
def test_span(model: Model) -> None:
    cut = model.cut()
    newest = max(map(segment_epoch, cut))
    for number, last in model.history.span(cut).items():
        having = [epoch.epoch for epoch in model.epochs if number in {segment.id for segment in epoch.segments}]
        assert last == max(epoch for epoch in having if epoch <= newest)


@checked
@given(models)
def test_a_walk_enters_a_segment_behind_its_predecessors(model: Model) -> None:
    """And reads everything between the cuts once."""
    history = model.history
    for _ in range(4):
        start = model.cut()
        end = model.cut(start)
        walk = CutTraversal(history, model.lengths.__getitem__, start, end)
        expected = history.ranges(start, end, model.lengths.__getitem__)
        read: dict[int, list[tuple[int, int]]] = {}
        steps = 0
        while not walk.at_end:
            steps += 1
            assert steps < 1000
            stage = walk.stage()
            assert history.problem(walk.position) is None
            assert history.compare(walk.position, start) is Comparison.EQUAL_OR_AFTER
            assert history.compare(end, walk.position) is Comparison.EQUAL_OR_AFTER
            assert any(low < high for low, high in stage.values()), "there is something to read in every stage"
            whole = model.random.random() < 0.5
            reached = {n: high if whole else model.random.randint(low, high) for n, (low, high) in stage.items()}
            for number, at in reached.items():
                if stage[number][0] < at:
                    for before in history.predecessors(number):
                        low, high = expected.get(before.id, (0, 0))
                        assert low == high or read[before.id][-1][1] == high == model.lengths[before.id]
                    read.setdefault(number, []).append((stage[number][0], at))
            walk.go_to(reached)
        for number, (low, high) in expected.items():
            parts = read.pop(number, [])
            assert [a for a, _ in parts] + [high] == [low, *(b for _, b in parts)] if parts else low == high
        assert not read


# --- by hand -----------------------------------------------------------------------------------------------------

S = segment_id


@pytest.fixture
def four() -> Epochs:
    """Two segments; the upper one is split; all are merged to one; and that is split in three."""
    return Epochs(
        [
            epoch_of(0, (0, 0.0, 0.5), (1, 0.5, 1.0)),
            epoch_of(1, (0, 0.0, 0.5), (S(2, 1), 0.5, 0.75), (S(3, 1), 0.75, 1.0)),
            epoch_of(2, (S(4, 2), 0.0, 1.0)),
            epoch_of(3, (S(5, 3), 0.0, 0.25), (S(6, 3), 0.25, 0.5), (S(7, 3), 0.5, 1.0)),
        ],
        {0: 0, 1: 0},
    )


LENGTHS = {0: 100, 1: 50, S(2, 1): 30, S(3, 1): 20, S(4, 2): 70}


def ids(segments: list[StreamSegmentRecord]) -> list[int]:
    return [segment.id for segment in segments]


def test_golden_successors(four: Epochs) -> None:
    assert ids(four.successors(0)) == [S(4, 2)]
    assert ids(four.successors(1)) == [S(2, 1), S(3, 1)]
    assert ids(four.predecessors(S(4, 2))) == [0, S(2, 1), S(3, 1)]
    assert ids(four.successors(S(4, 2))) == [S(5, 3), S(6, 3), S(7, 3)]
    assert four.successors(S(7, 3)) == four.predecessors(1) == []


def test_golden_ranges_and_sizes(four: Epochs) -> None:
    """Size: to - from where both have it; the offset where only the end has it; what is left where the start has it."""
    start, end = {0: 40, 1: 10}, {S(5, 3): 1, S(6, 3): 2, S(7, 3): 4}
    assert four.ranges(start, end, LENGTHS.__getitem__) == {
        0: (40, 100),
        1: (10, 50),
        S(2, 1): (0, 30),
        S(3, 1): (0, 20),
        S(4, 2): (0, 70),
        S(5, 3): (0, 1),
        S(6, 3): (0, 2),
        S(7, 3): (0, 4),
    }
    assert four.size(start, end, LENGTHS.__getitem__) == 60 + 40 + 30 + 20 + 70 + 7
    mixed = {0: 50, S(2, 1): 5, S(3, 1): 0}
    assert four.size(start, mixed, LENGTHS.__getitem__) == 10 + 40 + 5
    assert four.span(mixed) == {0: 1, S(2, 1): 1, S(3, 1): 1}
    assert four.compare(mixed, {0: 60, 1: 0}) is Comparison.OVERLAPS
    assert four.compare(mixed, start) is Comparison.EQUAL_OR_AFTER
    assert four.compare(start, mixed) is Comparison.BEFORE
    assert four.before(mixed) == [1]
    assert four.before(end) == [0, 1, S(2, 1), S(3, 1), S(4, 2)]


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        ({}, "keys between 0.0 and 1.0"),
        ({0: 0}, "keys between 0.5 and 1.0"),
        ({0: 0, S(3, 1): 0}, "keys between 0.5 and 0.75"),
        ({0: 0, 1: 0, S(2, 1): 0}, "share keys"),
        ({0: 0, S(4, 2): 0}, "share keys"),
        ({0: 0, S(7, 3): 0}, "before segment 4.2 for some keys"),
        ({0: 0, 17: 0}, "the stream has no segment 17.0"),
        ({0: 0, S(1, 1): 0}, "the stream has no segment 1.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_golden_problems(four: Epochs, positions: Cut, told: str) -> None:
    assert told in str(four.problem(positions))


def test_cuts_with_segments_that_are_gone(four: Epochs) -> None:
    """What cannot be told is believed: a segment of a forgotten epoch has the keys that no other has."""
    head = {S(5, 3): 7, S(6, 3): 0, S(7, 3): 9}
    left = Epochs([four.epoch(3)], head)
    old = {0: 40, 1: 50}
    assert left.problem(old) is None and sorted(left.gone(old)) == [0, 1]
    assert left.problem({0: 4, S(6, 3): 0, S(7, 3): 0}) is None
    assert "was deleted, but the other segments cover all keys" in str(left.problem({0: 4, **head}))
    assert left.later(old, head) == left.later(head, old) == head
    assert left.later({0: 4, S(6, 3): 5, S(7, 3): 0}, head) == {S(5, 3): 7, S(6, 3): 5, S(7, 3): 9}
    assert left.compare(old, head) is Comparison.BEFORE
    assert left.compare(head, old) is Comparison.EQUAL_OR_AFTER
    older, newer = {0: 1, 1: 2}, {0: 1, S(2, 1): 5, S(3, 1): 5}
    assert left.compare(older, newer) is Comparison.BEFORE
    assert left.compare(newer, older) is Comparison.EQUAL_OR_AFTER
    assert left.compare(older, {0: 2, 1: 2}) is Comparison.BEFORE
    assert left.traversal(old).at(left.segments[S(5, 3)]) == GONE
    assert left.between(old, head) == list(head)
    assert left.earlier(head, {0: 4, S(6, 3): 5, S(7, 3): 0}) == {0: 4, S(6, 3): 0, S(7, 3): 0}


def test_a_transaction_that_came_late_has_duplicates_of_both_epochs(four: Epochs) -> None:
    first, last = four.epoch(0), four.epoch(3)
    epochs = [four.epoch(0), four.epoch(1), four.epoch(2), last, duplicate(first, 4, 2000), duplicate(last, 5, 2001)]
    history = Epochs(epochs, {0: 0, 1: 0})
    assert [(epoch.reference, epoch.created) for epoch in epochs[4:]] == [(0, 2000), (3, 2001)]
    assert [segment_number(segment.id) for segment in epochs[5].segments] == [5, 6, 7]
    assert ids(history.successors(S(5, 3))) == [S(0, 4)]
    assert ids(history.predecessors(S(1, 4))) == [S(7, 3)]
    assert ids(history.successors(S(0, 4))) == [S(5, 5), S(6, 5)]
    assert history.between({S(5, 3): 0, S(6, 3): 0, S(7, 3): 0}, {S(5, 5): 0, S(6, 5): 0, S(7, 5): 0})[3:5] == [
        S(0, 4),
        S(1, 4),
    ]
    again = duplicate(epochs[5], 6, 3000)
    assert again.reference == 3, "a duplicate of a duplicate is one of the original"


def test_ranges_touch_without_overlapping() -> None:
    low, high = StreamSegmentRecord(0, 0.0, 1 / 3), StreamSegmentRecord(1, 1 / 3, 1.0)
    assert list(overlapping([low, high], StreamSegmentRecord(2, 0.0, 1 / 3))) == [low]
    assert list(overlapping([low, high], StreamSegmentRecord(2, 1 / 3, 0.5))) == [high]
    assert list(overlapping([low, high], StreamSegmentRecord(2, 0.3, 0.4))) == [low, high]


def test_ten_thousand_epochs_make_a_small_record_that_is_soon_read() -> None:
    """A stream scaled up and down many times. Once the stream is truncated, its older epochs are forgotten."""
    epochs = [epoch_of(0, (0, 0.0, 0.5), (1, 0.5, 1.0))]
    while len(epochs) < 10_000:
        number, epoch = next_number(epochs[-1]), len(epochs)
        half = 0.5 if epoch % 2 else 1.0
        new = [StreamSegmentRecord(S(number, epoch), 0.0, half)]
        if epoch % 2 == 1:
            new.append(StreamSegmentRecord(S(number + 1, epoch), 0.5, 1.0))
        epochs.append(EpochRecord(epoch, 1000 + epoch, replaced(epochs[-1].segments, new), epoch))
    record = StreamRecord(b"i" * 16, 1, tuple(epochs))
    data = record.encode()
    assert len(data) < 60 * len(epochs)
    assert StreamRecord.decode(data, -1, "s/a") == record
    tail = {segment.id: 0 for segment in epochs[-1].segments}
    first = record.history.first_epoch(tail)
    truncated = StreamRecord(b"i" * 16, 1, tuple(epochs[first:]), head=tail)
    assert len(truncated.epochs) == 1 and len(truncated.encode()) < 230


class JavaGroup:
    """The positions of a reader group of the original that reads a stream: a segment is readable when its predecessors
    are read, and one of which only some are read is in its cuts with offset -1."""

    def __init__(self, model: Model) -> None:
        self._model, self._history = model, model.history
        self.positions = {segment.id: 0 for segment in model.epochs[0].segments}
        self.future: dict[int, set[int]] = {}

    def read(self) -> None:
        """Read on in one of its segments, maybe to its end."""
        number = self._model.random.choice(sorted(self.positions))
        length = self._model.lengths[number]
        if self._model.random.random() < 0.3:
            self.positions[number] = self._model.random.randint(self.positions[number], length)
            return
        followers = self._history.successors(number)
        if not followers:
            self.positions[number] = length
            return
        del self.positions[number]
        for each in followers:
            known = {segment.id for segment in self._history.predecessors(each.id)}
            missing = self.future.setdefault(each.id, known)
            missing.discard(number)
            if not missing:
                del self.future[each.id]
                self.positions[each.id] = 0

    def cut(self) -> Cut:
        return {**self.positions, **dict.fromkeys(self.future, NOT_REACHED)}

    def rank(self, cell: int) -> Rank:
        """Where it is over a cell."""
        line = self._model.lines[cell]
        found = next((n for n in self.positions if n in line), None)
        if found is not None:
            return line.index(found), self.positions[found]
        return min(line.index(n) for n in self.future if n in line), 0


def test_a_cut_of_the_original_with_segments_that_are_not_reached_is_a_cut_that_loses_nothing() -> None:
    """It is the same place, unless keys of a segment that was read are further: then these are read again."""
    same = total = 0
    for seed in range(600):
        model = Model(seed, seed % 9)
        group = JavaGroup(model)
        for _ in range(model.random.randint(0, 30)):
            group.read()
        found = model.history.with_reached(group.cut(), model.lengths.__getitem__)
        assert model.history.problem(found) is None and model.is_cut(set(found)), (seed, group.cut(), found)
        if not group.future:
            assert found == group.positions
        total += bool(group.future)
        places = []
        for cell in range(CELLS):
            place, offset = model.rank(found, cell)
            while offset == model.lengths[model.lines[cell][place]] and place + 1 < len(model.lines[cell]):
                place, offset = place + 1, 0
            real, at = group.rank(cell)
            while at == model.lengths[model.lines[cell][real]] and real + 1 < len(model.lines[cell]):
                real, at = real + 1, 0
            assert (place, offset) <= (real, at), (seed, cell)
            places.append((place, offset) == (real, at))
        same += bool(group.future) and all(places)
    assert total > 100 and same > total // 2


def test_the_cuts_of_the_tests_of_the_original_with_segments_that_are_not_reached() -> None:
    """StreamMetadataTasksTest.consumptionBasedRetentionWithScale and …2: segments by their numbers."""
    third, sixth = 1 / 3, 1 / 6
    history = Epochs(
        [
            epoch_of(0, (0, 0.0, third), (1, third, 2 / 3), (2, 2 / 3, 1.0)),
            epoch_of(1, (S(3, 1), 0.0, sixth), (S(4, 1), sixth, third), (1, third, 2 / 3), (2, 2 / 3, 1.0)),
            epoch_of(2, (S(3, 1), 0.0, sixth), (S(5, 2), sixth, 1.0)),
            epoch_of(3, (S(6, 3), 0.0, 1.0)),
        ],
        {0: 0, 1: 0, 2: 0},
    )
    assert history.with_reached({0: 1, S(5, 2): -1}, lambda _: 9) == {0: 1, 1: 9, 2: 9}
    assert history.with_reached({0: 1, 2: 1, S(5, 2): -1}, lambda _: 9) == {0: 1, 1: 9, 2: 1}
    assert history.earlier({0: 1, 1: 9, 2: 9}, {0: 1, 1: 9, 2: 1}) == {0: 1, 1: 9, 2: 1}
    other = Epochs(
        [
            epoch_of(0, (0, 0.0, 0.5), (1, 0.5, 1.0)),
            epoch_of(1, (S(2, 1), 0.0, 0.6), (S(3, 1), 0.6, 1.0)),
            epoch_of(2, (S(2, 1), 0.0, 0.6), (S(4, 2), 0.6, 0.8), (S(5, 2), 0.8, 1.0)),
            epoch_of(3, (S(2, 1), 0.0, 0.6), (S(6, 3), 0.6, 1.0)),
            epoch_of(4, (S(7, 4), 0.0, 0.3), (S(8, 4), 0.3, 0.6), (S(9, 4), 0.6, 1.0)),
            epoch_of(5, (S(10, 5), 0.0, 1.0)),
        ],
        {0: 0, 1: 0},
    )
    first = other.with_reached({0: 1, S(2, 1): -1, S(8, 4): -1, S(9, 4): 1}, lambda _: 9)
    second = other.with_reached({1: 1, S(2, 1): -1}, lambda _: 9)
    assert first == {0: 1, 1: 9} and second == {0: 9, 1: 1}
    assert other.earlier(first, second) == {0: 1, 1: 1}
