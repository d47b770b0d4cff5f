"""The long-term storage of a Pravega as an open root that can only be read.

The stores refuse every write (`read_only`), and so does every change of its one container.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from chunkstore import Store, open_store
from engine.admin.progress import Progress
from engine.admin.verify import Report
from engine.ownership import this_process
from engine.root import RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.key_value_table import KeyValueTableEntry
from pravega_spark.streams.pravega_lts.container import PravegaContainer
from pravega_spark.streams.pravega_lts.read_only import ReadOnlyStore, RootReadOnly
from pravega_spark.streams.pravega_lts.verification import verify_pravega_root
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.reading.readable import ReadableContainer

if TYPE_CHECKING:
    from engine.containers.container import Container


class PravegaRoot(ForeignRoot):
    """The long-term storage of a Pravega as an open root. Its metadata is read on first access.

    salvage: the sound part of damaged segments can be read; see PravegaContainer.losses. unrecorded: so can events that
    a killed server did not record in its metadata; see PravegaContainer.recovered.
    """

    def __init__(self, store: Store, *, salvage: bool = False, unrecorded: bool = False) -> None:
        read_only = ReadOnlyStore(store)
        stores = Stores(read_only, read_only)
        super().__init__(stores, RootConfig(id="", containers=1), Settings(maintenance=False, threaded=False))
        self._salvage = salvage
        self._unrecorded = unrecorded
        self._begin()

    def _begin(self) -> None:
        """A forked child reads the metadata itself: threads that it does not have may hold the locks of its parent's
        container and caches (W10)."""
        self._lock = threading.Lock()
        self._view: PravegaContainer | None = None
        self._process = this_process()

    @classmethod
    def at(cls, url: str, storage_options: Mapping[str, Any] | None = None, **how: bool) -> PravegaRoot:
        """The long-term storage at a URL. how: as of the constructor."""
        return cls(open_store(url, storage_options), **how)

    @property
    def archived(self) -> PravegaContainer:
        """Its only container. Raises ArchiveDamaged, and what the store raises."""
        if self._process is not this_process():
            self._begin()
        with self._lock:
            if self._view is None:
                self._view = PravegaContainer(self.stores, self._salvage, self._unrecorded)
            return self._view

    def container(self, number: int) -> Container:
        if number:
            raise ValueError(f"container {number}: the storage of a Pravega is read as one container, number 0")
        readable: ReadableContainer = self.archived
        return cast("Container", readable)  # everything else of a container it refuses with RootReadOnly

    # --- what only the storage of a Pravega has ----------------------------------------------------------------

    def reader_groups(self, scope: str) -> list[str]:
        return self.archived.streams.reader_groups(scope)

    def reader_group_cuts(self, scope: str, group: str) -> list[StreamCut]:
        return self.archived.streams.reader_group_cuts(scope, group)

    def key_value_tables(self, scope: str) -> list[str]:
        return self.archived.streams.key_value_tables(scope)

    def key_value_table_entries(self, scope: str, name: str) -> Iterator[KeyValueTableEntry]:
        return self.archived.streams.key_value_table(scope, name).entries()

    def verify_storage(self, progress: Progress, deep: bool) -> Report:
        return verify_pravega_root(self, lambda: self.archived, progress, deep)

    # --- as an open root ---------------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[str, ...]:
        return tuple(map(str, self._view.losses)) if self._view is not None else ()

    @property
    def recovered(self) -> tuple[str, ...]:
        return tuple(map(str, self._view.recovered)) if self._view is not None else ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise RootReadOnly(self.stores.chunks.root)

    check_writable = recover = repair = _refuse

    def open_private(self, number: int) -> Container:
        return self.container(number)

    restart = open_private

    def close(self) -> None:
        self.stores.chunks.close()

    def __repr__(self) -> str:
        return f"PravegaRoot({self.stores.chunks.root!r})"
