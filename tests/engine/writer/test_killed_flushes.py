"""A flush cycle that is killed, or meets changes of other processes, loses and doubles no byte, and leaves no segment
in LTS's metadata that the container does not name, also after a recovery from LTS alone (S4, F1, F3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.paths import is_log
from chunkstore.testing import Crashed, FaultStore, Request, crash_at
from engine.containers.container import Container
from engine.state.operations import MergeSegment
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from tests.support.simulation import Simulation

DELAY = 1000.0


Contents = dict[str, bytes]
"""What the segments hold, by name, of their readable part."""


def untouched(container: Container) -> Contents:
    """Nothing is done to the segments."""
    return {"s/a": b"first", "s/b": b"first"}


def deleted(container: Container) -> Contents:
    """Both segments are deleted."""
    container.delete("s/a")
    container.delete("s/b")
    return {}


def truncated(container: Container) -> Contents:
    """All of one segment is truncated, and a part of the other."""
    container.truncate("s/a", 5)
    container.truncate("s/b", 3)
    return {"s/a": b"", "s/b": b"st"}


def merged(container: Container) -> Contents:
    """One segment becomes the other's end."""
    container.seal("s/a")
    container.commit([MergeSegment("s/b", "s/a")])
    return {"s/b": b"firstfirst"}


def written() -> tuple[Simulation, Container]:
    """A storage with two segments that were never flushed, and a process that wrote them."""
    simulation = Simulation(garbage_delay=DELAY)
    user = simulation.open()
    for name in ("s/a", "s/b"):
        user.create_segment(name)
        user.append(name, b"first")
    return simulation, user


def stored(container: Container) -> dict[str, int]:
    """The segments that LTS's metadata has as existing, with their lengths."""
    records = [record for _, record in container.records.records()]
    return {
        record.name: record.length
        for record in records
        if isinstance(record, StoredSegmentRecord) and record.status & RecordStatus.ACTIVE
    }


@pytest.mark.parametrize("afterwards", [untouched, deleted, truncated, merged])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_killed_flush_began_in_lts_goes_with_its_segment(
    afterwards: Callable[[Container], Contents], when: Literal["before", "after"]
) -> None:
    number = 0
    crashed = True
    while crashed:
        number += 1
        simulation, user = written()
        through = FaultStore(simulation.store, verbs={"put_if_absent"})
        killed = simulation.open(through=through)
        through.plan = crash_at(through.passed + number, when)
        try:
            killed.flush()
            crashed = False
        except Crashed:
            pass
        expected = afterwards(user)
        check_nothing_is_left(simulation, f"{when} {number}")
        reader = simulation.open()
        found = [segment for segment in reader.activated(["s/a", "s/b"]).values() if segment is not None]
        assert {
            segment.name: reader.read(segment.name, segment.start_offset, segment.length) for segment in found
        } == expected
    assert number > 6


@pytest.mark.parametrize("meanwhile", [deleted, truncated, merged])
@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_what_others_do_while_a_flush_runs_leaves_nothing_in_lts_after_a_recovery(
    meanwhile: Callable[[Container], Contents], flushed: bool, strict: bool
) -> None:
    """flushed: the segments were in LTS before. strict: a cycle is repeated instead of passing over a segment."""
    number = 0
    done = True
    while done:
        number += 1
        simulation, user = written()
        if flushed:
            user.flush()
            for name in ("s/a", "s/b"):
                user.append(name, b"more")
        done = flush_with(simulation, number, partial(meanwhile, user), strict)
        simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])
        recover(Stores(simulation.store, simulation.store), 0)
        check_nothing_is_left(simulation, str(number))
    assert number > 6


def flush_with(simulation: Simulation, number: int, act: Callable[[], object], strict: bool) -> bool:
    """Flush, in one cycle or more, with `act` before that write request. Returns whether there were so many."""
    done = False

    def meanwhile(at: int, request: Request) -> None:
        nonlocal done
        if at == passed + number and not done:
            done = True
            act()

    through = FaultStore(simulation.store, verbs={"put", "put_if_absent"})
    flusher = simulation.open(through=through)
    passed = through.passed
    through.plan = meanwhile
    while not flusher.writer.begin(flusher.refresh(), strict).run():
        pass
    return done


def check_nothing_is_left(simulation: Simulation, what: str) -> None:
    """Flush until all that was dropped is deleted: then LTS has exactly the segments that the container names."""
    user = simulation.open()
    for _ in range(3):
        user.flush()
        simulation.advance(2 * DELAY)
        user.collect_garbage()
    segments = [segment for segment in user.activated(["s/a", "s/b"]).values() if segment is not None]
    names = {segment.storage: segment.storage_length for segment in segments}
    assert stored(user) == {name: length for name, length in names.items() if name}, what
