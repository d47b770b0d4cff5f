"""Roots in a new generation: restored from a copy of a moment ago, beside the root that went on, or recovered."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from chunkstore import open_store
from chunkstore.paths import ROOT
from engine.root import Root, RootConfig
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from pravega_spark import StreamManager
from pravega_spark.streams.model.names import container_of
from tests.client.groups.reading import numbered, write
from tests.copies import copied

CONTAINERS = 2


def restored(source: Path, place: Path) -> Path:
    """Make a root in `place` of a copy of a root's folder, as the last flush of each of its containers left it: as of a
    backup that was made while the root was in use."""
    copied(source, place)
    store = open_store(str(place))
    config = RootConfig.from_bytes(store.read(ROOT), str(place))
    made = replace(config, id=uuid.uuid4().hex, origin=config.id, recovered=())
    for number in range(config.containers):
        recover(Stores(store, store), config.container(number), made.container(number), force=True)
    store.put(ROOT, made.to_bytes())
    return place


def recovered(place: Path, number: int) -> None:
    """Let a container of a root continue from its last flush, as if its log were lost."""
    with Root.open(str(place), create=False) as root:
        root.recover(number, force=True)


def begun(place: Path) -> Path:
    """A root with 5 events in stream sc/one of one segment."""
    Root.open(str(place), containers=CONTAINERS).close()
    with StreamManager(str(place)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        write(manager, "one", numbered(5))
    return place


def flush(place: Path, *keys: str) -> None:
    """Flush the containers of these keys "scope/name"; all of them if there are none."""
    with Root.open(str(place)) as root:
        for number in {container_of(key, CONTAINERS) for key in keys} or range(CONTAINERS):
            root.container(number).flush()


def split(manager: StreamManager) -> None:
    """Scale stream sc/one, which has one segment."""
    [segment] = manager.stream_info("sc", "one").tail.positions
    manager.scale_stream("sc", "one", [segment], [(0.0, 0.5), (0.5, 1.0)])
