"""Containers to which everything has happened, and what `verify` tells of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from chunkstore import Store
from chunkstore.metadata.metadata_records import ChunkRecord, StoredSegmentRecord, decode
from engine.admin.checks.findings import Finding, Severity
from engine.admin.progress import Progress, no_progress
from engine.admin.verify import Report, verify
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.attach_fence import creation_time
from engine.state.operations import Append, AttributeUpdate, UpdateKind
from engine.state.segments import EVENT_COUNT
from engine.state.tables import STORAGE
from engine.storage.object_reads import Stores
from tests.support.container_model import Model
from tests.support.simulation import Simulation
from tests.support.transactions import chunk_writer

DELAY = 600.0


def root_of(store: Store) -> Root:
    return Root(Stores(store, store), RootConfig("0" * 32, containers=1), Settings())


def verified(
    simulation: Simulation, through: Store | None = None, progress: Progress = no_progress, **options: Any
) -> Report:
    store = through or simulation.store
    return verify(root_of(store), progress, opener=lambda root, number: simulation.open(through=store), **options)


class Life:
    """A container to which everything happens that can, again and again. `begun`: objects of one that began before."""

    def __init__(self, begun: Mapping[str, bytes] | None = None, rounds: int = 0) -> None:
        self.simulation = Simulation(grace=DELAY, garbage_delay=DELAY, active_segments=6)
        for path, data in (begun or {}).items():
            self.simulation.store.put(path, data)
        self.container = self.simulation.open()
        self.dice = random.Random(rounds)
        self.round = rounds
        self.attach = chunk_writer(Model(), self.simulation.store)
        for number in range(0 if begun else 10):
            self.container.create_segment(f"s/{number}")

    @property
    def store(self) -> Store:
        return self.simulation.store

    def go_on(self, rounds: int) -> Life:
        for _ in range(rounds):
            self.round += 1
            self._change()
            if self.round % 2:
                self.container.flush()
            self._end()
            if self.round % 3 == 0:
                self.container.checkpoint()
            if self.round % 5 == 4:
                self.take_care()
        return self

    def _change(self) -> None:
        container, dice, number = self.container, self.dice, self.round
        for segment in range(10):
            if segment % 4 != number % 4:
                updates = [
                    AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 1),
                    AttributeUpdate(dice.randbytes(1) + bytes(15), UpdateKind.REPLACE, number),
                ]
                container.append(f"s/{segment}", dice.randbytes(dice.randint(1, 400)), None, updates)
        made = creation_time(container.storage_clock.now())
        first, second = self.attach([b"attached" * 9, b"to both"])
        container.commit([Append("s/1", (first,), created_at=made), Append("s/2", (second,), created_at=made)])
        container.put_entries("t", {f"k{dice.randint(0, 200)}": dice.randbytes(20) for _ in range(30)})
        container.put_entries("t", {f"k{dice.randint(0, 200)}": None for _ in range(5)})
        for name in (f"m/{number}", f"d/{number}"):
            container.create_segment(name)
            container.append(name, dice.randbytes(300))

    def _end(self) -> None:
        container, number = self.container, self.round
        container.seal(f"m/{number}")
        container.merge("s/3", f"m/{number}")
        container.truncate("s/4", self.dice.randint(0, container.info("s/4").length))
        container.truncate("s/5", max(container.info("s/5").length - 1, 0))
        container.delete(f"d/{number}")

    def take_care(self) -> None:
        self.simulation.advance(1.1 * DELAY)
        self.container.truncate_log()
        self.container.collect_garbage()

    def verified(self, *, deep: bool = False) -> Report:
        return verified(self.simulation, deep=deep)

    def records(self, kind: type) -> dict[str, object]:
        found = {key: decode(entry.value or b"") for key, entry in self.container.scan_entries(STORAGE)}
        return {key: record for key, record in sorted(found.items()) if isinstance(record, kind)}

    def whole_segment(self) -> StoredSegmentRecord:
        """The record of a segment that has several chunks in LTS."""
        found = self.records(StoredSegmentRecord).values()
        return next(
            r for r in found if isinstance(r, StoredSegmentRecord) and r.chunk_count > 3 and r.start_offset == 0
        )

    def middle_chunk(self) -> str:
        first = self.records(ChunkRecord)[str(self.whole_segment().first_chunk)]
        assert isinstance(first, ChunkRecord) and first.next_chunk is not None
        return first.next_chunk


@cache
def objects_after(rounds: int) -> dict[str, bytes]:
    store = Life().go_on(rounds).store
    return {info.path: store.read(info.path) for info in store.list("")}


def lived(rounds: int) -> Life:
    """A container to which so much has happened, as a process finds it that comes now."""
    return Life(objects_after(rounds), rounds)


def told(report: Report, severity: Severity | None = None) -> list[Finding]:
    return [finding for finding in report.findings if severity in (None, finding.severity)]


def assert_told(report: Report, name: str, problem: str = "", severity: Severity = Severity.ERROR) -> None:
    """It is told, with its name."""
    found = [f for f in report.findings if name in f.object and problem in f.problem and f.severity is severity]
    assert found, f"{name} ({problem}) is not among {told(report)}"
    assert all(finding.remedy and finding.container == 0 for finding in found)


def flip(store: Store, path: str, place: int = -1) -> None:
    data = bytearray(store.read(path))
    data[place] ^= 1
    store.put(path, bytes(data))
