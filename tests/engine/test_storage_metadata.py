"""The metadata of tier 2 in a container's table does what every metadata store must do, in memory and from tier 2."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from unittest import mock

import pytest

from chunkstore import open_store
from chunkstore.metadata_store import MetadataStore
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


class TestOfAnotherProcess(MetadataStoreContract):
    """Half of what is asked for is answered by a container of another process, which follows the log."""

    @pytest.fixture
    def metadata(self, container: Container) -> Iterator[MetadataStore]:
        with Container(container.stores, 0, Settings(upkeep=False)) as other:

            class Other(ContainerRecords):
                def evict_all(self) -> None:
                    super().evict_all()
                    self._container.refresh()
                    self._container = other if self._container is container else container
                    self._container.refresh()

            yield Other(container)
