"""Large events on simulated storage, in processes of a test's making."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from chunkstore import Store
from engine.containers.container import Container
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.segments import EVENT_COUNT
from engine.storage.object_reads import Stores
from pravega_spark import EventPointer, LargeEvent, StreamManager
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import plan_slices
from pravega_spark.streams.stream import Stream
from tests.support.simulation import Simulation, audit

IDLE = 1000.0
PART = 64


class SimulatedRoot(Root):
    """A root whose only container is a simulated one: time passes when a test says so."""

    def __init__(self, simulation: Simulation, through: Store | None = None) -> None:
        self._simulation, self._through = simulation, through
        store = through or simulation.store
        super().__init__(Stores(store, store), RootConfig("root", 1, transient_idle_seconds=IDLE), Settings())

    def _start(self, number: int) -> Container:
        return self._simulation.open(through=self._through, transient_idle=IDLE)


def process(simulation: Simulation, through: Store | None = None) -> StreamManager:
    """Another process on that root."""
    return StreamManager.over(SimulatedRoot(simulation, through))


@contextmanager
def dying(simulation: Simulation) -> Iterator[StreamManager]:
    """A process that is killed in the end: it closes and aborts nothing."""
    yield process(simulation)


def stream_of(manager: StreamManager, name: str = "one") -> Stream:
    return Catalog(manager.root).stream("sc", name)


def payload(manager: StreamManager, pointer: EventPointer) -> bytes:
    """The payload of the event at a pointer, whose header is checked."""
    container = stream_of(manager, pointer.stream).container
    data = container.read(pointer.segment, pointer.offset, pointer.offset + pointer.length)
    assert data[:8] == bytes(4) + (pointer.length - 8).to_bytes(4, "big")
    return data[8:]


def events(manager: StreamManager, name: str = "one") -> list[bytes]:
    """All (small) events, in order of segments; the index must agree with them."""
    stream = stream_of(manager, name)
    snapshot = stream.snapshot()
    slices = plan_slices(snapshot, snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut()), 1 << 30)
    found = [
        bytes(read.data[start + 8 : start + 8 + length])
        for read in SliceReader(stream.root, stream.scope, stream.name).read(slices)
        for start, length in zip(read.starts.tolist(), read.lengths.tolist(), strict=True)
    ]
    assert snapshot.events() == len(found)
    for number in snapshot.record.segment_ids():
        segment = snapshot.segments.segment(number)
        assert snapshot.segments.count_before(number, segment.length) == segment.attributes.get(EVENT_COUNT, 0)
    audit(stream.container.state)
    return found


def transients(manager: StreamManager, name: str = "one") -> list[str]:
    return list(stream_of(manager, name).container.refresh().transients)


def collect(simulation: Simulation) -> None:
    """All that is due when the idle time is over, and the delay of garbage."""
    simulation.advance(1.1 * IDLE)
    container = simulation.open(transient_idle=IDLE)
    container.expire_transients()
    for _ in range(2):
        container.flush()
        simulation.advance(700)
        container.collect_garbage()


def data_of(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def scaled(manager: StreamManager, *ranges: tuple[float, float]) -> None:
    """Give the stream `one` segments with these ranges."""
    current = manager.stream_info("sc", "one").segments
    manager.scale_stream("sc", "one", [segment.id for segment in current], ranges)


def uploaded(manager: StreamManager, name: str | None, size: int) -> LargeEvent:
    event = manager.begin_event("sc", "one", name=name)
    event.write(data_of(size))
    return event
