"""The stores for tests do what tests rely on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path

import pytest

from chunkstore import ObjectNotFound, Outcome, PutUnknown, Range, StorageUnavailable, Store, open_store
from chunkstore.testing import (
    WRITES,
    CountingStore,
    Crashed,
    Fault,
    FaultStore,
    LatencyStore,
    Request,
    SimulatedExecutor,
    SimulatedStore,
    crash_at,
    fail_at,
)
from chunkstore.testing.contracts import body
from chunkstore.testing.faults import When


@pytest.fixture
def inner() -> SimulatedStore:
    return SimulatedStore()


def paths(store: Store) -> list[str]:
    return [info.path for info in store.list("")]


# -- counting


def test_counting(inner: SimulatedStore) -> None:
    store = CountingStore(inner)
    store.put("wal/1", b"12345")
    store.put_if_absent("wal/2", bytes(30))
    store.append("wal/1", 5, b"6")
    store.read("wal/1", 1, 3)
    store.read_ranges([Range("wal/1"), Range("chunk/1"), Range("wal/2", 0, 4)])
    with pytest.raises(ObjectNotFound):
        store.read("chunk/1")
    store.list("wal/")
    store.stat("wal/1")
    store.delete(["wal/1", "chunk/1"])
    store.clock()
    assert store.counts == {
        "put": 1,
        "put_if_absent": 1,
        "append": 1,
        "read": 2,
        "read_ranges": 1,
        "list": 1,
        "stat": 1,
        "delete": 1,
        "clock": 1,
    }
    assert store.bytes_written == 36
    assert store.bytes_read == 2 + 6 + 4
    assert store.requests[0] == Request("put", ("wal/1",), 5)
    assert store.requests[4] == Request("read_ranges", ("wal/1", "chunk/1", "wal/2"))
    assert (store.count(), store.count("read"), store.count(prefix="wal/"), store.count("read", "chunk/")) == (
        10,
        2,
        8,
        1,
    )
    store.reset()
    assert (store.counts, store.requests, store.bytes_read, store.bytes_written, store.count()) == ({}, [], 0, 0, 0)


def test_counting_by_many_threads(inner: SimulatedStore) -> None:
    store = CountingStore(inner)
    threads = [threading.Thread(target=lambda: [store.list("") for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counts["list"] == len(store.requests) == 1600


# -- faults


def test_failing_before_and_after(inner: SimulatedStore) -> None:
    cases: list[tuple[When, list[str]]] = [("before", []), ("after", ["a"])]
    for when, effect in cases:
        store = FaultStore(inner, fail_at(2, when))
        store.list("")
        with pytest.raises(StorageUnavailable, match=f"{when} put of a"):
            store.put("a", b"")
        assert paths(store) == effect
        assert store.passed == 3


def test_an_unknown_outcome(inner: SimulatedStore) -> None:
    mine = body()
    cases: list[tuple[When, list[str]]] = [("before", []), ("after", ["a"])]
    for when, effect in cases:
        store = FaultStore(inner, fail_at(1, when))
        with pytest.raises(PutUnknown):
            store.put_if_absent("a", mine)
        assert paths(inner) == effect
    assert store.put_if_absent("a", mine) is Outcome.MINE


def test_failing_for_ever_and_by_plan(inner: SimulatedStore) -> None:
    store = FaultStore(inner, fail_at(2, forever=True))
    store.put("a", b"")
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            store.stat("a")
    store.plan = lambda number, request: Fault("before") if request.paths[0].startswith("wal/") else None
    store.put("b", b"")
    with pytest.raises(StorageUnavailable):
        store.put("wal/1", b"")
    store.plan = None
    assert paths(store) == ["a", "b"]


def test_only_some_verbs_have_numbers(inner: SimulatedStore) -> None:
    store = FaultStore(inner, fail_at(2), verbs=WRITES)
    store.put("a", b"")
    store.read("a")
    store.list("")
    with pytest.raises(StorageUnavailable):
        store.put("b", b"")
    assert store.passed == 2


def test_partway(inner: SimulatedStore) -> None:
    store = FaultStore(inner, lambda number, request: Fault("partway"), verbs={"append", "delete", "put"})
    for name in "abcd":
        inner.put(name, b"1234")
    calls: list[Callable[[], object]] = [
        lambda: store.append("d", 4, b"567890"),
        lambda: store.delete(["a", "b", "c"]),
        lambda: store.put("e", b"is atomic"),
    ]
    for call in calls:
        with pytest.raises(StorageUnavailable):
            call()
    assert paths(store) == ["b", "c", "d"]
    assert store.read("d") == b"1234567"


def crash_matrix(operation: Callable[[Store], None]) -> list[list[str]]:
    """What is stored after a crash before and after each request."""
    left = []
    dry = FaultStore(SimulatedStore())
    operation(dry)
    for number in range(1, dry.passed + 1):
        for when in ("before", "after"):
            inner = SimulatedStore()
            store = FaultStore(inner, crash_at(number, when))
            with pytest.raises(Crashed):
                operation(store)
            for call in (lambda store=store: store.list(""), lambda store=store: store.put("late", b""), store.clock):
                with pytest.raises(Crashed):
                    call()
            left.append(paths(inner))
    return left


def test_a_crash_ends_everything() -> None:
    def operation(store: Store) -> None:
        try:
            store.put("a", b"")
            store.read_ranges([Range("none")])
            store.put("b", b"")
        except Exception:
            store.put("handled", b"")
        finally:
            store.delete(["a"])

    # Not even the finally clause of a process that has died deletes anything.
    assert crash_matrix(operation) == [[], ["a"], ["a"], ["a"], ["a"], ["a", "b"], ["a", "b"], ["b"]]


def test_a_crash_after_a_request_that_fails_is_a_crash(inner: SimulatedStore) -> None:
    with pytest.raises(Crashed):
        FaultStore(inner, crash_at(1, "after")).read("none")


def test_a_crash_ends_other_threads_too(inner: SimulatedStore) -> None:
    answered = threading.Event()

    class Slow(SimulatedStore):
        def stat(self, path: str) -> None:  # type: ignore[override]
            answered.wait()

    store = FaultStore(Slow(), crash_at(2))
    heard: list[type[BaseException]] = []

    def look() -> None:
        try:
            store.stat("a")
        except BaseException as error:
            heard.append(type(error))

    thread = threading.Thread(target=look)
    thread.start()
    while not store.passed:
        time.sleep(0.001)
    with pytest.raises(Crashed):
        store.put("a", b"")
    answered.set()
    thread.join()
    assert heard == [Crashed]


# -- latency


def test_latency(tmp_path: Path) -> None:
    store = LatencyStore(open_store(str(tmp_path)), seconds=0.02)
    assert store.remote
    started = time.monotonic()
    store.put("a", b"a")
    store.read_ranges([Range("a")] * 10)
    assert time.monotonic() - started >= 0.04


# -- simulation


def trouble(seed: int) -> tuple[list[str], list[str], int]:
    store = SimulatedStore(seed, fail_before=0.2, fail_after=0.2, conflict=0.1, late=0.1)
    history = []
    for number in range(60):
        try:
            history.append(str(store.put_if_absent(f"a/{number % 20}", body())))
        except PutUnknown as error:
            history.append(str(error))
    met = store.faults
    store.arrive()
    store.fail_before = store.fail_after = store.late = 0
    return history, paths(store), met


def test_simulated_trouble_comes_from_the_seed() -> None:
    assert trouble(1) == trouble(1)
    assert trouble(1) != trouble(2)
    history, _, met = trouble(1)
    assert sum(told.startswith("simulated://1") for told in history) == met > 20
    for reason in ("request was lost", "response was lost", "come back later", "no response in time"):
        assert any(reason in told for told in history)


@pytest.mark.parametrize("fault", ["fail_before", "fail_after", "conflict", "late"])
def test_each_fault_has_its_effect(fault: str) -> None:
    store = SimulatedStore(**{fault: 1.0})  # type: ignore[arg-type]
    mine = body()
    with pytest.raises(PutUnknown):
        store.put_if_absent("a", mine)
    setattr(store, fault, 0.0)
    assert store.faults == 1
    if fault == "late":
        store.arrive()
    assert paths(store) == (["a"] if fault in ("fail_after", "late") else [])
    assert store.put_if_absent("a", mine) is Outcome.MINE


def test_late_requests_arrive_after_others() -> None:
    store = SimulatedStore(late=1.0)
    store.arrivals = 0
    mine, other = body(), body()
    for call in (partial(store.put, "p", b"old"), partial(store.delete, ["d"])):
        with pytest.raises(StorageUnavailable):
            call()
    with pytest.raises(PutUnknown):
        store.put_if_absent("a", mine)
    store.late = 0
    store.put("p", b"new")
    store.put("d", b"made again")
    assert store.put_if_absent("a", other) is Outcome.MINE
    store.arrive()
    assert store.read("p") == b"old"
    assert paths(store) == ["a", "p"]
    assert store.put_if_absent("a", mine) is Outcome.ANOTHERS


def test_late_requests_arrive_between_later_ones() -> None:
    store = SimulatedStore(late=1.0)
    with pytest.raises(StorageUnavailable):
        store.put("a", b"")
    store.late = 0
    looks = [paths(store) for _ in range(30)]
    assert looks[-1] == ["a"]


def test_simulated_time_stands_still(inner: SimulatedStore) -> None:
    inner.put("a", b"")
    assert inner.stat("a").modified == inner.clock() == inner.now
    inner.now += 3600
    inner.put("b", b"")
    assert [info.modified for info in inner.list("")] == [inner.now - 3600, inner.now]


def race(seed: int) -> list[str]:
    """Two writers with three requests in flight each; the order in which they were carried out."""
    store, executor = CountingStore(SimulatedStore(seed)), SimulatedExecutor(seed)
    futures = [
        [executor.submit(store.put_if_absent, f"{number}", body(writer)) for number in range(3)]
        for writer in (b"A", b"B")
    ]
    for number in range(3):
        assert {futures[writer][number].result() for writer in (0, 1)} == {Outcome.MINE, Outcome.ANOTHERS}
    return [request.paths[0] for request in store.requests] + [
        store.read(str(number))[-1:].decode() for number in range(3)
    ]


def test_an_executor_interleaves_by_its_seed() -> None:
    assert race(3) == race(3)
    assert len({tuple(race(seed)) for seed in range(10)}) > 3
    assert {race(seed)[-1] for seed in range(10)} == {"A", "B"}


def test_an_executor_works_only_when_asked() -> None:
    executor = SimulatedExecutor()
    done: list[int] = []
    futures = [executor.submit(done.append, number) for number in range(5)]
    assert done == []
    assert executor.step()
    assert len(done) == 1
    asked = 0
    while not all(future.done() for future in futures):
        asked += 1
        assert asked < 10
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert not executor.step()


def test_an_executor_passes_on_what_happened() -> None:
    executor = SimulatedExecutor()
    store = FaultStore(SimulatedStore(), crash_at(2))
    store.put("a", b"")
    crashed, refused = executor.submit(store.put, "b", b""), executor.submit(store.put, "c", b"")
    with pytest.raises(Crashed):
        crashed.result()
    assert isinstance(refused.exception(), Crashed)
    called: list[bool] = []
    future = executor.submit(int, "3", base=8)
    future.add_done_callback(lambda done: called.append(done.done()))
    assert future.result() == 3
    assert called == [True]
    assert executor.submit(int, "4").cancel()
    nested = executor.submit(lambda: executor.submit(int, "5").result())
    assert nested.result() == 5
    assert list(executor.map(int, ["6", "7"])) == [6, 7]
    stuck = executor.submit(lambda: stuck.result())
    with pytest.raises(futures.TimeoutError):  # before Python 3.11 another one than TimeoutError
        stuck.result()
    last = executor.submit(int, "8")
    executor.shutdown()
    assert last.done()
