"""The metadata of LTS in a container's table does what every metadata store must do, in memory and from LTS."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterator, Mapping

import pytest

from chunkstore import open_store
from chunkstore.metadata.garbage_queue import GarbageKind
from chunkstore.metadata.metadata_records import Record
from chunkstore.metadata.store import MetadataStore, WithOperations
from chunkstore.segments.storage import ChunkedSegmentStorage
from engine.containers.container import Container
from engine.errors import FlushOvertaken
from engine.settings import Settings
from engine.state.operations import EndCycle, PutEntry
from engine.storage.object_reads import Stores
from engine.writer.container_garbage import ContainerGarbage
from engine.writer.container_records import ContainerRecords
from tests.support import limits
from tests.support.metadata_contracts import MetadataStoreContract
from tests.support.simulation import Simulation


class Flushed(ContainerRecords):
    """Whoever asks anew is answered from LTS."""

    def __init__(self, container: Container) -> None:
        super().__init__(container.tables, container.log)
        self.container = container

    def evict_all(self) -> None:
        super().evict_all()
        self.container.flush()


@pytest.fixture
def container() -> Iterator[Container]:
    store = open_store(f"memory://{uuid.uuid4()}")
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as container:
        yield container


class TestInMemory(MetadataStoreContract):
    @pytest.fixture
    def metadata(self, container: Container) -> MetadataStore:
        return container.records


class TestInTierTwo(MetadataStoreContract):
    @pytest.fixture
    def metadata(self, container: Container, monkeypatch: pytest.MonkeyPatch) -> MetadataStore:
        limits.resident_bytes(monkeypatch, 0)
        return Flushed(container)


class InTurn(MetadataStore):
    """Every look, and every change, is another process's than the one before; a look first follows the log."""

    def __init__(self, *containers: Container) -> None:
        super().__init__(cache_size=0)
        self._containers = itertools.cycle(containers)

    def _next(self) -> ContainerRecords:
        return next(self._containers).records

    def _following(self) -> ContainerRecords:
        container = next(self._containers)
        container.refresh()
        return container.records

    def _load(self, keys: Collection[str]) -> Mapping[str, tuple[int, Record | None]]:
        return self._following()._load(keys)

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> Mapping[str, int]:
        return self._next()._store(changes, expected, with_operations)

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        return self._following()._scan(prefix)


class TestOfAnotherProcess(MetadataStoreContract):
    """Half of what is asked for is answered by a container of another process, which follows the log."""

    @pytest.fixture
    def metadata(self, container: Container) -> Iterator[MetadataStore]:
        with Container(container.stores, 0, Settings(maintenance=False)) as other:
            yield InTurn(container, other)


# --- what goes into the same append


@pytest.fixture
def simulation() -> Simulation:
    return Simulation()


def segments_of(container: Container) -> ChunkedSegmentStorage:
    """The segments in LTS as a flush cycle changes them."""
    chunks = container.stores.chunks
    return ChunkedSegmentStorage(chunks, container.records, ContainerGarbage(container.log, announce=False), 1)


def test_a_change_and_its_companions_are_one_append(simulation: Simulation) -> None:
    container = simulation.open()
    container.create_segment("s")
    segments = segments_of(container)
    segments.create("s.1")
    before = container.head.address
    segments.write("s.1", 0, b"data", with_operations=[PutEntry("t", "k", b"v", -1)])
    assert container.head.address == before + 1
    assert (segments.info("s.1").length, container.entry("t", "k").value) == (4, b"v")  # type: ignore[union-attr]
    assert not container.state.garbage, "the new chunk is named"


def test_a_change_whose_companion_is_refused_is_not_made_and_its_chunk_is_garbage(simulation: Simulation) -> None:
    """The companion is what fences a cycle that slept; nothing of it is left for the next change (F1, G1)."""
    container = simulation.open()
    segments = segments_of(container)
    segments.create("s.1")
    with pytest.raises(FlushOvertaken):
        segments.write("s.1", 0, b"late", with_operations=[EndCycle(1), PutEntry("t", "k", b"late")])
    assert segments.info("s.1").length == 0 and container.entry("t", "k") is None
    [(name, garbage)] = container.state.garbage.items()
    assert (garbage.kind, garbage.segment) == (GarbageKind.NEW_CHUNK, "s.1") and simulation.store.read(name) == b"late"
    segments.write("s.1", 0, b"next")
    assert container.entry("t", "k") is None
    assert set(container.state.garbage) == {name}


def test_what_a_failed_deletion_would_have_made_garbage_goes_with_no_other_change(simulation: Simulation) -> None:
    container = simulation.open()
    segments = segments_of(container)
    segments.create("s.1")
    segments.create("t.1")
    with pytest.raises(FlushOvertaken):
        segments.delete("s.1", with_operations=[EndCycle(1)])
    segments.write("t.1", 0, b"data")
    assert not container.state.garbage and segments.exists("s.1")
    segments.delete("s.1")
    assert [garbage.kind for garbage in container.state.garbage.values()] == [GarbageKind.SEGMENT]
