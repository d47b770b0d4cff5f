"""The status that all requests share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.serve.service import Service
from pravega_spark.serve.settings import ServeSettings
from tests.support.gated import GatedStore


def test_a_collection_that_takes_long_keeps_one_thread(tmp_path: Path) -> None:
    url = str(tmp_path / "root")
    with StreamManager(url, create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
    root = Root.open(url, settings=Settings(maintenance=False))
    store = GatedStore(root.stores.log, lambda request: threading.current_thread().name.startswith("collecting"))
    root.stores = Stores(store, store)
    with StreamManager.over(root) as manager:
        service = Service(manager, ServeSettings(max_age_seconds=0))
        first = service.status()
        store.open.clear()
        with ThreadPoolExecutor(1, thread_name_prefix="collecting") as threads:
            collecting = threads.submit(service.status)
            assert store.reached.wait(60)
            assert [service.status() for _ in range(3)] == [first] * 3  # however old it is
            store.open.set()
            newer = collecting.result()
        assert newer.moment > first.moment and service.status().moment > newer.moment
