"""What a reader is told to be missing is what is: by a twin of the stream that is never truncated."""

from __future__ import annotations

import random
import string

import pytest

from chunkstore.testing import SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark.errors import TruncatedData
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.streams.test_transactions import parts


class Twins:
    """A stream, and one that had the same events and scales, and no truncation."""

    def __init__(self, chance: random.Random) -> None:
        store = SimulatedStore()
        root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False, threaded=False))
        self._chance = chance
        self.stream, self.twin = Stream(root, "sc", "st"), Stream(root, "sc", "twin")
        for each in (self.stream, self.twin):
            each.create(ScalingPolicy(min_segments=2))
        self.cuts: list[StreamCut] = []

    def write(self) -> None:
        """Some events, of few keys: so there are segments that stay empty."""
        events = [self._chance.choice(string.ascii_lowercase) for _ in range(self._chance.randrange(1, 4))]
        for each in (self.stream, self.twin):
            each.write(parts(each.snapshot().record.routing, *events))

    def scale(self) -> None:
        """Split a segment, or merge two neighbours, or give one its keys anew."""
        current = sorted(self.stream.snapshot().record.current.segments, key=lambda each: each.low)
        place = self._chance.randrange(len(current))
        sealed = current[place : place + self._chance.choice((1, 1, 2))]
        low, high = sealed[0].low, sealed[-1].high
        new = [(low, high)]
        if self._chance.random() < 0.4 and len(current) < 5:
            new = [(low, (low + high) / 2), ((low + high) / 2, high)]
        if len(current) - len(sealed) + len(new) < 2:
            return
        for each in (self.stream, self.twin):
            each.scale([segment.id for segment in sealed], new)

    def remember_a_cut(self) -> None:
        """Somewhere between the head and the tail: of the keys of the twin, so also of what is truncated."""
        snapshot = self.twin.snapshot()
        events = self._chance.randrange(snapshot.events() + 1)
        cut = snapshot.next_cut(snapshot.head_cut(), snapshot.tail_cut(), max_events=events)
        self.cuts.append(self._chance.choice((cut, snapshot.tail_cut())))

    def truncate(self) -> None:
        """At one of the cuts that do not lie before the head."""
        history, head = self.twin.snapshot().record.history, self.stream.snapshot().head_cut().positions
        cut = self._chance.choice(self.cuts)
        later = history.later(cut.positions, head)
        self.stream.truncate(StreamCut("sc", "st", later))

    def check(self) -> tuple[int, int]:
        """What is told of each cut. How often something was missing, and how often nothing before the head was."""
        snapshot, twin = self.stream.snapshot(), self.twin.snapshot()
        head, missed, whole = snapshot.head_cut().positions, 0, 0
        for cut in self.cuts:
            behind = StreamCut("sc", "twin", twin.record.history.later(cut.positions, head))
            missing = twin.size_between(cut, behind)
            ranges = snapshot.ranges(StreamCut("sc", "st", cut.positions), snapshot.tail_cut())
            if missing:
                with pytest.raises(TruncatedData):
                    snapshot.available(ranges)
                missed += 1
                continue
            snapshot.available(ranges)
            whole += behind.positions != cut.positions
        return missed, whole


@pytest.mark.parametrize("seed", range(8))
def test_data_are_told_to_be_missing_where_they_are_and_nowhere_else(seed: int) -> None:
    """Whatever was truncated, past whatever empty segments, and whatever cut somebody kept."""
    missed = whole = 0
    for number in range(8):
        chance = random.Random(1000 * seed + number)
        twins = Twins(chance)
        twins.remember_a_cut()
        for _ in range(25):
            chance.choice((twins.write, twins.scale, twins.scale, twins.remember_a_cut, twins.truncate))()
            found = twins.check()
            missed, whole = missed + found[0], whole + found[1]
    assert missed and whole, "both are tried"
