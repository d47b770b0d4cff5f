"""A scope is deleted while something is made in it: one of the two fails, whatever comes between their requests."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from chunkstore.port import Store
from chunkstore.testing import Crashed, FaultStore, Request, SimulatedStore, WrappingStore, crash_at
from chunkstore.testing.faults import When
from chunkstore.wrapping import Result
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark import KeyValueTableConfiguration, StreamReaderGroupConfig
from pravega_spark.client.groups import opening
from pravega_spark.client.groups.positions import group_names
from pravega_spark.client.manager import StreamManager
from pravega_spark.errors import ScopeNotEmpty, ScopeNotFound
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.key_value_table import key_value_tables
from pravega_spark.streams.maintenance.subscribers import subscribers
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.writing.writes import SegmentAppend

SCOPE = "sc"


def opened(store: Store) -> Root:
    return Root(Stores(store, store), RootConfig("root", containers=3), Settings(maintenance=False, threaded=False))


def create_stream(root: Root) -> None:
    assert Catalog(root).create_stream(SCOPE, "st")


def create_group(root: Root) -> None:
    opening.create_group(root, SCOPE, "gr", StreamReaderGroupConfig(False, "other", "st"))


def create_table(root: Root) -> None:
    assert Catalog(root).create_key_value_table(SCOPE, "kvt", KeyValueTableConfiguration(1, 4))


def delete(root: Root) -> None:
    assert StreamManager.over(root).delete_scope(SCOPE)


MAKERS = {"a stream": create_stream, "a reader group": create_group, "a key-value table": create_table}


@functools.cache
def _made() -> SimulatedStore:
    store = SimulatedStore()
    catalog = Catalog(opened(store))
    catalog.create_scope(SCOPE)
    catalog.create_scope("other")
    catalog.create_stream("other", "st")
    return store


def fresh() -> SimulatedStore:
    """A root with an empty scope, and with another one that has a stream."""
    store = SimulatedStore()
    store.copy_of(_made())
    return store


def lies_there(store: Store) -> bool:
    """Whether anything is in the scope, which exists then."""
    root = opened(store)
    there = bool([*Catalog(root).streams(SCOPE), *group_names(root, SCOPE), *key_value_tables(root, SCOPE)])
    assert Catalog(root).scope_exists(SCOPE) or not there, "it lies in no scope"
    return there


class Stopping(WrappingStore):
    """The requests of one process, which stops before that number until it is let on."""

    def __init__(self, inner: Store, stop: int) -> None:
        super().__init__(inner)
        self._stop = stop
        self._passed = 0
        self.stopped, self.let_on = threading.Event(), threading.Event()

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self._passed == self._stop:
            self.stopped.set()
            assert self.let_on.wait(60)
        self._passed += 1
        return call()


class Process:
    """Does something up to a request, and goes on when it is told."""

    def __init__(self, store: Store, stop: int, what: Callable[[Root], None]) -> None:
        self._store = Stopping(store, stop)
        self._what = what
        self.failed: Exception | None = None
        self.whole = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._store.stopped.wait(60)

    def _run(self) -> None:
        try:
            self._what(opened(self._store))
        except (ScopeNotEmpty, ScopeNotFound) as error:
            self.failed = error
        finally:
            self.whole = not self._store.stopped.is_set()
            self._store.stopped.set()

    def end(self) -> bool:
        """Go on to the end; whether it succeeded."""
        self._store.let_on.set()
        self._thread.join(60)
        return self.failed is None


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", MAKERS)
def test_a_scope_is_deleted_or_something_is_made_in_it_whatever_comes_between(what: str, step: int) -> None:
    """The one up to each of its requests, the other up to each of its own, then the one to its end, then the other. Of
    the pairs of requests every fourth one in `make test-slow`, with each request of either among them."""
    tried, outcomes = 0, set()
    for first, second in ((MAKERS[what], delete), (delete, MAKERS[what])):
        for one_stop in range(60):
            ended = False
            for other_stop in range(one_stop % step, 60, step):
                store = fresh()
                one = Process(store, one_stop, first)
                other = Process(store, other_stop, second)
                ended, at_end = one.whole, other.whole
                made = (one.end(), other.end())
                assert sum(made) == 1, f"{one_stop}, {other_stop}: {one.failed!r}, {other.failed!r}"
                assert lies_there(store) == made[first is delete]
                outcomes.add((first is delete, made))
                tried += 1
                if at_end:
                    break
            if ended:
                break
    assert len(outcomes) == 4 and tried > 100 // step, "each of them wins, whichever comes first"


@pytest.mark.parametrize("what", MAKERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_at_either_leaves_nothing_in_no_scope_and_keeps_nobody_from_it(
    what: str, when: When
) -> None:
    for dying, living in ((MAKERS[what], delete), (delete, MAKERS[what])):
        number, crashed = 0, True
        while crashed:
            number += 1
            store = fresh()
            try:
                dying(opened(FaultStore(store, crash_at(number, when))))
                crashed = False
            except Crashed:
                pass
            lies_there(store)
            try:
                living(opened(store))
            except (ScopeNotEmpty, ScopeNotFound):
                pass
            else:
                assert lies_there(store) == (living is not delete)
            lies_there(store)
        assert number > 3


# --- with all that it has --------------------------------------------------------------------------------------------


@functools.cache
def _filled() -> SimulatedStore:
    store = fresh()
    root = opened(store)
    catalog = Catalog(root)
    for name in ("st", "sealed"):
        catalog.create_stream(SCOPE, name)
        catalog.stream(SCOPE, name).write([appended(b"some")])
    catalog.stream(SCOPE, "sealed").seal()
    create_table(root)
    for name in ("gr", "abroad"):
        stream = "other" if name == "abroad" else SCOPE
        config = StreamReaderGroupConfig(False, stream, "st", retention="manual")
        opening.create_group(root, SCOPE, name, config)
    config = StreamReaderGroupConfig(False, "other", "st", retention="manual")
    opening.create_group(root, "other", "stays", config)
    return store


def filled() -> SimulatedStore:
    """A root with a scope that has everything; one of its groups holds back the retention of a stream elsewhere."""
    store = SimulatedStore()
    store.copy_of(_filled())
    return store


def appended(event: bytes) -> SegmentAppend:
    framed = bytes(4) + len(event).to_bytes(4, "big") + event
    return SegmentAppend(0, Payload(framed), sparse_records(np.array([len(framed)]), 0), 1)


def delete_everything(root: Root) -> None:
    StreamManager.over(root).delete_scope(SCOPE, force=True)


def check_gone(store: Store) -> None:
    root = opened(store)
    assert not lies_there(store) and Catalog(root).scopes() == ["other"]
    stream = Catalog(root).stream("other", "st")
    assert list(subscribers(stream)) == ["stays"], "only what a group of another scope has not read is kept"
    assert not any(name.startswith(f"{SCOPE}/") for number in range(3) for name in names_of(root, number))
    assert Catalog(root).create_scope(SCOPE) and Catalog(root).create_stream(SCOPE, "st")


def names_of(root: Root, number: int) -> set[str]:
    container = root.container(number)
    state = container.refresh()
    return {name for name, segment in container.activated(set(state.segments), state).items() if segment is not None}


def test_a_scope_is_deleted_with_all_that_it_has() -> None:
    store = filled()
    manager = StreamManager.over(opened(store))
    with pytest.raises(ScopeNotEmpty):
        manager.delete_scope(SCOPE)
    assert manager.delete_scope(SCOPE, force=True) and not manager.delete_scope(SCOPE, force=True)
    check_gone(store)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forced_deletion_that_dies_anywhere_is_completed_by_another(when: When) -> None:
    number, crashes = 1, 0
    while True:
        store = filled()
        try:
            StreamManager.over(opened(FaultStore(store, crash_at(number, when)))).delete_scope(SCOPE, force=True)
            break
        except Crashed:
            crashes += 1
        StreamManager.over(opened(store)).delete_scope(SCOPE, force=True)
        check_gone(store)
        number += 1
    assert crashes > 20


@pytest.mark.parametrize("what", MAKERS)
def test_what_is_made_meanwhile_is_deleted_too(what: str) -> None:
    """Up to each request of the deletion, then something is made; or the scope is gone before."""
    made = 0
    for stop in range(0, 60, 3):
        store = fresh()
        deletion = Process(store, stop, delete_everything)
        try:
            MAKERS[what](opened(store))
            made += 1
        except ScopeNotFound:
            pass
        whole = deletion.whole
        assert deletion.end() and not (lies_there(store) and not whole)
        if whole:
            break
    assert made
