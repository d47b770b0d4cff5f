"""What streams cost each other: the requests are the same among ten and among hundreds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from chunkstore.testing import CountingStore, SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.jobs import work
from pravega_spark.jobs.spread import names, over_named
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import RetentionPolicy

FEW, MANY = 10, 500
CONTAINERS = 2
RETENTION = {"retention": partial(work.retain, dry_run=False, period=1800.0)}


def opened(store: CountingStore) -> Root:
    """The root as another process opens it."""
    return Root(Stores(store, store), RootConfig("root", CONTAINERS), Settings(threaded=False, maintenance=False))


@pytest.fixture(scope="module")
def roots() -> list[CountingStore]:
    """A root with few streams and one with many, all of which have a recorded cut, and a checkpoint at the end."""
    return [made(count) for count in (FEW, MANY)]


def simulated() -> SimulatedStore:
    """A storage whose clock agrees with this host's."""
    store = SimulatedStore(0)
    store.now = time.time()
    return store


def made(count: int) -> CountingStore:
    store = CountingStore(simulated())
    root = opened(store)
    catalog = Catalog(root)
    catalog.create_scope("s")
    for number in range(count):
        catalog.create_stream("s", f"stream-{number}", retention=RetentionPolicy.by_size(100))
    for outcome in over_named(root, names(root), RETENTION):
        assert outcome.error is None and outcome.detail.startswith("recorded")
    for number in range(CONTAINERS):
        root.container(number).checkpoint()
    return store


def requests(store: CountingStore, do: Callable[[Root], object]) -> dict[str, int]:
    """What a process that has nothing open yet asks for, by verb."""
    store.reset()
    do(opened(store))
    return dict(store.counts)


def tail(root: Root) -> None:
    assert Catalog(root).stream("s", "stream-3").snapshot().tail_cut().positions == {0: 0}


def infos(root: Root) -> None:
    found = [info.stream for info in StreamManager.over(root).stream_infos("s")]
    assert found == sorted(found) and len(found) in (FEW, MANY)


def retention(root: Root) -> None:
    found = names(root)
    told = list(over_named(root, found, RETENTION))
    assert len(told) == len(found) in (FEW, MANY) and not any(outcome.error for outcome in told)
    assert all(outcome.detail.startswith("the last recorded cut is") for outcome in told)


@pytest.mark.parametrize("do", [tail, infos, retention])
def test_requests_do_not_grow_with_the_number_of_streams(
    roots: list[CountingStore], do: Callable[[Root], object]
) -> None:
    few, many = (requests(store, do) for store in roots)
    assert few == many
    assert sum(many.values()) <= 8 * CONTAINERS


def test_a_stream_that_is_deleted_meanwhile_is_left_out() -> None:
    store = CountingStore(simulated())
    root = opened(store)
    catalog = Catalog(root)
    catalog.create_scope("s")
    for name in ("one", "three", "two"):
        catalog.create_stream("s", name)
    told = catalog.query("s", lambda snapshot: snapshot.stream.name)
    assert next(told) == "one"
    catalog.stream("s", "three").seal()
    catalog.stream("s", "three").delete()
    assert list(told) == ["two"]
