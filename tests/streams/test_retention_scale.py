"""Retention of a stream that has very many recorded cuts: what it keeps, to one period, and what a run costs."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from chunkstore.testing import WRITES, CountingStore, SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.streams.maintenance import retention, subscribers
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.streams.test_retention import Kept, chosen

BEGIN = 10**12
PERIOD = int(1000 * retention.PERIOD)
EVENTS = 10
"""Events in each period."""


class Cost(NamedTuple):
    """What a run of retention took: objects read and written, bytes read, milliseconds."""

    reads: int
    writes: int
    bytes: int
    ms: float


class Grown:
    """A stream that was written to in each period, and has a recorded cut of each. It is scaled half-way.

    now: ms since the epoch, as retention is told. cuts: as the test remembers them.
    """

    def __init__(self, count: int) -> None:
        self.store = CountingStore(SimulatedStore(0))
        self.stream = self.opened()
        self.stream.create(ScalingPolicy(min_segments=2))
        self.now, self.cuts, self.written = BEGIN, list[Kept](), 0
        self.costs: dict[int, Cost] = {}
        self._chance = random.Random(0)
        writes = self._writes()
        for number in range(1, count + 1):
            if number == count // 2:
                first = self.stream.snapshot().record.current.segments[0]
                middle = (first.low + first.high) / 2
                self.stream.scale([first.id], [(first.low, middle), (middle, first.high)])
                writes = self._writes()
            parts, size = self._chance.choice(writes)
            self.stream.write(parts)
            self.written += size
            self.now += PERIOD + self._chance.randrange(1000)
            if number in (count // 100, count // 10, count):
                self.costs[number] = self.measured()
            else:
                self.remember(retention.record(self.stream, self.now))
            self.store.reset()

    def opened(self) -> Stream:
        """The stream as another process opens it."""
        settings = Settings(threaded=False, flush_frames=200)
        return Stream(Root(Stores(self.store, self.store), RootConfig("root", containers=1), settings), "sc", "st")

    def _writes(self) -> list[tuple[list[SegmentAppend], int]]:
        """Some ways to write the events of a period to segments that are open, and how many bytes that is."""
        open_ones = self.stream.snapshot().record.current.segments
        found = []
        for _ in range(20):
            segments = self._chance.sample(open_ones, 2)
            shares = [EVENTS // 2, EVENTS - EVENTS // 2]
            parts, total = [], 0
            for segment, share in zip(segments, shares, strict=True):
                events = [b"." * self._chance.randrange(30) for _ in range(share)]
                framed = frame_column(pa.array(events, pa.binary()), None, 1)
                records = sparse_records(framed.lengths, 0)
                parts.append(SegmentAppend(segment.id, Payload(framed.data.to_pybytes()), records, share))
                total += int(np.sum(framed.lengths))
            found.append((parts, total))
        return found

    def remember(self, cut: StreamCut | None) -> None:
        assert cut is not None
        self.cuts.append(Kept(self.now, self.written, cut))

    def measured(self) -> Cost:
        """A run of retention that records a cut, and finds nothing to truncate."""
        self.stream.update(retention=RetentionPolicy.by_size(1 << 60))
        self.stream.container.flush()
        self.store.reset()
        begun = time.perf_counter()
        done = retention.retain(self.stream, self.now)
        taken = self.cost(begun)
        assert done.truncated is None
        self.remember(done.recorded)
        return taken

    def cost(self, begun: float) -> Cost:
        """What was asked for since the store was reset."""
        taken = 1000 * (time.perf_counter() - begun)
        writes = sum(len(request.paths) for request in self.store.requests if request.verb in WRITES)
        reads = sum(len(request.paths) for request in self.store.requests) - writes
        return Cost(reads, writes, self.store.bytes_read, taken)

    def value(self, kind: str, cut: Kept) -> int:
        """How much truncating there would keep."""
        return self.cuts[-1].size - cut.size if kind == "size" else self.now - cut.time


LONG = pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("count", [400, LONG])
def test_very_many_recorded_cuts(count: int) -> None:
    begun = time.perf_counter()
    grown = Grown(count)
    print(f"\n{count:,} cuts and {EVENTS * count:,} events in {time.perf_counter() - begun:,.0f} s")
    for number, cost in grown.costs.items():
        print(f"  a cut is recorded, and nothing to truncate, with {number:,} cuts: {cost}")
    assert grown.stream.snapshot().events() == EVENTS * count
    assert grown.stream.snapshot().size() == grown.written
    first, *_, last = grown.costs.values()
    assert last.reads <= first.reads + 2 and last.writes <= first.writes + 1
    nothing_to_do(grown)
    plans_are_those_of_the_rules(grown)
    what_is_kept_is_right_to_one_period(grown)
    nothing_to_do(grown)


def nothing_to_do(grown: Grown) -> None:
    """A run before the period is over, in this process, and in one that has just opened the stream."""
    fresh = grown.opened()
    fresh.snapshot()
    for stream in (grown.stream, fresh):
        grown.store.reset()
        begun = time.perf_counter()
        assert retention.retain(stream, grown.now + PERIOD - 1).early
        cost = grown.cost(begun)
        print(f"  nothing to do: {cost}")
        assert cost.reads <= 2 and cost.writes == 0


def plans_are_those_of_the_rules(grown: Grown) -> None:
    """Policies and subscribers of all kinds, and for each where Pravega's rules say to truncate."""
    chance, total, took = random.Random(1), {"size": grown.written, "time": grown.now - BEGIN}, list[Cost]()
    subscribed = False
    for turn in range(32):
        kind = chance.choice(["size", "time"])
        limit = chance.randrange(total[kind] + total[kind] // 20)
        maximum = chance.choice([None, limit, limit + chance.randrange(total[kind])])
        policy = RetentionPolicy(kind, limit, maximum)  # type: ignore[arg-type]
        if turn == 12:
            subscribed = True
        slowest = chance.choice(grown.cuts).cut if subscribed else None
        if slowest is not None:
            subscribers.subscribe(grown.stream, "one", slowest, restart=True)
        grown.stream.update(retention=policy)
        expected = chosen(policy, grown.now, grown.cuts, slowest, grown.stream)
        grown.store.reset()
        begun = time.perf_counter()
        told = retention.retain(grown.stream, grown.now, 0.0, dry_run=True)
        took.append(grown.cost(begun))
        assert told.truncated == expected, (turn, policy, slowest)
    subscribers.unsubscribe(grown.stream, "one")
    most = max(took, key=lambda cost: cost.reads)
    slowest_run = max(took, key=lambda cost: cost.ms)
    print(f"  {len(took)} plans, the one of most reads {most}, the slowest {slowest_run}")
    assert most.writes == 0


def what_is_kept_is_right_to_one_period(grown: Grown) -> None:
    """Truncations, each further than the one before: the cut that keeps least of those that keep enough (facts 5.4)."""
    for kind in ("size", "time"):
        for share in (0.8, 0.5) if kind == "size" else (0.3, 0.02):
            stream = grown.stream
            limit = int(share * grown.value(kind, grown.cuts[0]))
            stream.update(retention=RetentionPolicy(kind, limit))
            grown.now += PERIOD
            grown.store.reset()
            begun = time.perf_counter()
            done = retention.retain(stream, grown.now)
            cost = grown.cost(begun)
            grown.remember(done.recorded)
            values = [grown.value(kind, cut) for cut in grown.cuts]
            place = max(number for number, value in enumerate(values) if value >= limit)
            while place + 1 < len(values) and values[place + 1] == values[place]:
                place += 1
            print(f"  by {kind}, of {len(values):,} cuts the one at {place:,} was truncated at: {cost}")
            assert done.truncated == grown.cuts[place].cut
            assert values[place] >= limit and all(value < limit for value in values[place + 1 :])
            snapshot = stream.snapshot()
            assert snapshot.head_cut() == grown.cuts[place].cut
            assert snapshot.size() == grown.written - grown.cuts[place].size
            assert snapshot.record.passed == grown.cuts[place].size
            grown.cuts = [cut for cut in grown.cuts if cut.size > snapshot.record.passed] or grown.cuts[-1:]
