"""The metadata of tier 2 in a container's table does what every metadata store must do, in memory and from tier 2."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterator, Mapping
from unittest import mock

import pytest

from chunkstore import open_store
from chunkstore.metadata_store import MetadataStore
from chunkstore.records import Record
from chunkstore.testing.metadata_contracts import MetadataStoreContract
from engine import tables
from engine.container import Container, Settings
from engine.reads import Stores
from engine.storage_metadata import ContainerRecords


class Flushed(ContainerRecords):
    """Whoever asks anew is answered from tier 2."""

    def evict_all(self) -> None:
        super().evict_all()
        self._container.flush()


@pytest.fixture
def container() -> Iterator[Container]:
    store = open_store(f"memory://{uuid.uuid4()}")
    with Container(Stores(store, store), 0, Settings(upkeep=False)) as container:
        yield container


class TestInMemory(MetadataStoreContract):
    @pytest.fixture
    def metadata(self, container: Container) -> MetadataStore:
        return container.records


class TestInTierTwo(MetadataStoreContract):
    @pytest.fixture
    def metadata(self, container: Container) -> Iterator[MetadataStore]:
        with mock.patch.object(tables, "RESIDENT_BYTES", 0):
            yield Flushed(container)


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

    def _store(self, changes: Mapping[str, Record | None], expected: Mapping[str, int]) -> Mapping[str, int]:
        return self._next()._store(changes, expected)

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        return self._following()._scan(prefix)


class TestOfAnotherProcess(MetadataStoreContract):
    """Half of what is asked for is answered by a container of another process, which follows the log."""

    @pytest.fixture
    def metadata(self, container: Container) -> Iterator[MetadataStore]:
        with Container(container.stores, 0, Settings(upkeep=False)) as other:
            yield InTurn(container, other)
