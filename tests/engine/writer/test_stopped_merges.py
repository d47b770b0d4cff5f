"""A merge of small chunks whose host is stopped by a hypervisor, all of its clocks with it, is judged again by what the
log says when it goes on (W13, G1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from chunkstore.compaction import CompactionTask, copy_task
from chunkstore.testing import Crashed, FaultStore, Request
from chunkstore.testing.faults import Fault
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
from engine.writer.compaction import compact_segments
from tests.support.simulation import Simulation, audit

DELAY = 600.0
DATA = b"first, second, third, fourth"


class Stopped:
    """A root with two segments of several chunks, and a host whose clocks stand still."""

    def __init__(self) -> None:
        self.simulation = Simulation(grace=DELAY, garbage_delay=DELAY)
        self.stops = 0
        self.simulation.store.remote = True  # its time is asked rarely, and carried on by the host's clock
        for part in DATA.split(b" "):
            with self.simulation.open(exclusive=True) as writer:  # each of another epoch, with a chunk of its own
                for name in ("s/a", "s/b"):
                    if part == b"first,":
                        writer.create_segment(name)
                    writer.append(name, part if part == b"first," else b" " + part)
                writer.flush()

    def host(self, plan: Callable[[int, Request], None]) -> Container:
        store, now = FaultStore(self.simulation.store, plan), self.simulation.store.now
        return Container(
            Stores(store, store),
            0,
            Settings(threaded=False, maintenance=False, grace=DELAY, garbage_delay=DELAY),
            clock=lambda: 1000.0,
            now=lambda: now,
            sleep=lambda seconds: None,
        )

    def others_go_on(self, truncated: bool) -> None:
        """Hours pass for everybody else, who collects what is garbage, may truncate the log, and goes on."""
        self.stops += 1
        other = self.simulation.open()
        for name in ("s/a", "s/b"):
            other.append(name, b"+")
        for _ in range(3):
            self.simulation.advance(4 * DELAY)
            other.flush()
            other.collect_garbage()
            if truncated:
                other.checkpoint()
                self.simulation.advance(2 * DELAY)
                other.truncate_log()
        other.close()

    def check(self, expected: bytes, when: str) -> None:
        """Both segments can be read, and hold this."""
        reader = self.simulation.open()
        for name in ("s/a", "s/b"):
            assert reader.read(name, 0, reader.info(name).length) == expected, when
        audit(reader.state)


def copied_together(host: Container) -> Callable[[Sequence[CompactionTask]], Iterable[bytes | None]]:
    """All new chunks are made before the first one is swapped in, as a cluster makes them."""
    return lambda merges: [copy_task(merge, host.stores.chunks) for merge in merges]


@pytest.mark.parametrize("truncated", [False, True], ids=["the log is whole", "the log is truncated"])
def test_a_merge_of_a_stopped_host_swaps_in_nothing_that_was_collected(truncated: bool) -> None:
    """It is stopped before each of its requests, one at a time, while the storage's time goes on."""
    at, stopped = 0, True
    while stopped:
        at += 5 if truncated else 2  # between two writes there are more requests than that
        world = Stopped()

        def stop(number: int, request: Request, at: int = at, world: Stopped = world) -> None:
            if number == at:
                world.others_go_on(truncated)

        host = world.host(stop)
        try:
            list(compact_segments(host.flush_context, "", 1 << 20, copied_together(host), together=2))
        except Exception as error:
            assert type(error).__name__ in ("OutcomeUnknown", "LogMoved"), repr(error)
        stopped = bool(world.stops)
        world.check(DATA + b"+" * world.stops, f"before request {at}")
    assert at > 15


def test_a_new_chunk_that_a_collector_has_claimed_is_not_swapped_in() -> None:
    """The collector claimed it and was stopped before it deletes it; the host that made it goes on first. It has
    learned what the log says by then, as another merge of its own was refused."""
    world = Stopped()
    targets: list[str] = []

    def claim(number: int, request: Request) -> Fault | None:
        return Fault("before", crash=True) if request.paths[0] in targets[1:] else None

    def copies(merges: Sequence[CompactionTask]) -> Iterable[bytes | None]:
        made = [copy_task(merge, world.simulation.store) for merge in merges]
        targets.extend(merge.target for merge in merges)
        other = world.simulation.open(through=FaultStore(world.simulation.store, claim, verbs={"delete"}))
        world.simulation.advance(2 * DELAY)
        other.flush()
        with pytest.raises(Crashed):
            other.collect_garbage()
        return made

    reports = list(
        compact_segments(world.host(lambda number, request: None).flush_context, "", 1 << 20, copies, together=2)
    )
    assert len(targets) == 2 and [(report.merges, report.refused) for report in reports] == [(0, 1), (0, 1)]
    world.simulation.store.delete(targets)
    world.check(DATA, "after the collector's delete")
