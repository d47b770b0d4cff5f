"""Writes of key-value tables whose process dies, or whose storage fails once, at every request; and writes of several
threads and processes at once.

Then another process finds what a dictionary says: all that was acknowledged, of the call under way all or nothing.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, FaultStore, crash_at, fail_at
from chunkstore.testing.faults import Plan
from engine.errors import EngineError
from pravega_spark import (
    BadKeyVersion,
    ConditionalTableUpdateFailed,
    Insert,
    KeyValueTableConfiguration,
    Put,
    Remove,
    StreamManager,
    TableKey,
    Version,
)
from pravega_spark.checks import verify_root
from tests.client.large_events.simulated import process
from tests.support.simulation import Simulation, audit, small_sizes

CONFIGURATION = KeyValueTableConfiguration(2, 4, 2)
Content = dict[TableKey, bytes] | None
"""The entries of the table; None: it does not exist."""


def key(secondary: int) -> TableKey:
    return TableKey(b"abcd", b"%02d" % secondary)


Step = Callable[[StreamManager], object]


def version_of(manager: StreamManager, secondary: int) -> Version:
    entry = manager.key_value_table("sc", "kvt").get(key(secondary))
    assert entry is not None
    return entry.version


def update(*changes: Put | Insert | Remove) -> Step:
    return lambda manager: manager.key_value_table("sc", "kvt").update(changes)


def flush(manager: StreamManager) -> None:
    manager.root.container(0).flush()


SOME = {key(s): b"%d" % s * 30 for s in range(8)}
STEPS: list[tuple[Step, Content]] = [
    (lambda manager: manager.create_key_value_table("sc", "kvt", CONFIGURATION), {}),
    (update(*(Insert(each, value) for each, value in SOME.items())), SOME),
    (flush, SOME),
    (update(Put(key(1), b"one"), Insert(key(20), b"new")), SOME | {key(1): b"one", key(20): b"new"}),
    (
        lambda manager: manager.key_value_table("sc", "kvt").replace(key(2), b"two", version_of(manager, 2)),
        SOME | {key(1): b"one", key(20): b"new", key(2): b"two"},
    ),
    (flush, SOME | {key(1): b"one", key(20): b"new", key(2): b"two"}),
    (update(*(Remove(each) for each in SOME)), {key(20): b"new"}),
    (lambda manager: manager.delete_key_value_table("sc", "kvt"), None),
    (flush, None),
    (lambda manager: manager.create_key_value_table("sc", "kvt", CONFIGURATION), {}),
    (update(Insert(key(5), b"again")), {key(5): b"again"}),
    (flush, {key(5): b"again"}),
]


def content(manager: StreamManager) -> Content:
    if not manager.key_value_table_exists("sc", "kvt"):
        return None
    return {entry.key: entry.value for entry in manager.key_value_table("sc", "kvt").entries()}


def run(plan: Plan | None) -> tuple[Simulation, int, int, bool]:
    """All steps up to the first that fails. Returns how many were acknowledged, the requests, and if one failed."""
    simulation = Simulation()
    process(simulation).create_scope("sc")
    through = FaultStore(simulation.store)
    manager = process(simulation, through)
    through.plan, through.passed = plan or (lambda number, request: None), 0
    done = 0
    try:
        for step, _ in STEPS:
            step(manager)
            done += 1
    except (Crashed, EngineError, StorageError, ConditionalTableUpdateFailed):
        return simulation, done, through.passed, True
    return simulation, done, through.passed, False


@pytest.mark.parametrize(
    "step", [pytest.param(4, id="every fourth"), pytest.param(1, id="all", marks=[pytest.mark.long])]
)
@pytest.mark.parametrize("kind", ["crash before", "crash after", "failure before", "failure after"])
def test_a_write_that_is_interrupted_is_made_or_not(kind: str, step: int) -> None:
    what, _, when = kind.partition(" ")
    fault = crash_at if what == "crash" else fail_at
    with small_sizes():
        _, done, requests, failed = run(None)
        assert done == len(STEPS) and not failed and requests > 40
        interrupted = 0
        for number in range(1, requests + 1, step):
            simulation, done, _, failed = run(fault(number, when))  # type: ignore[arg-type]
            interrupted += failed
            newcomer = process(simulation)
            possible = [STEPS[done - 1][1] if done else None]
            if failed:
                possible.append(STEPS[done][1])
            assert content(newcomer) in possible, f"request {number}, step {done}"
            audit(newcomer.root.container(0).state)
            flush(newcomer)
            assert content(newcomer) in possible
            if number % (7 * step) == 1:
                assert verify_root(newcomer.root, deep=True).errors == 0
        assert interrupted >= (3 if what == "failure" else requests // step // 2)


def test_the_container_is_recovered_from_any_recovery_point_with_whole_tables() -> None:
    """A log that is lost after each step: the recovered table is that of the last flush, and can be written."""
    from engine.storage.recovery import recover

    for last in range(3, len(STEPS) + 1):
        simulation = Simulation()
        manager = process(simulation)
        manager.create_scope("sc")
        flushed: Content = None
        for step, after in STEPS[:last]:
            step(manager)
            flushed = after if step is flush else flushed
        recover(simulation.stores, 0, force=True)
        newcomer = process(simulation)
        assert content(newcomer) == flushed, last
        newcomer.create_key_value_table("sc", "kvt", CONFIGURATION)
        newcomer.key_value_table("sc", "kvt").put(key(30), b"goes on")
        assert content(newcomer) == {**(flushed or {}), key(30): b"goes on"}
        audit(newcomer.root.container(0).state)


def test_a_recovery_point_has_each_table_or_nothing_of_it() -> None:
    """A table is deleted at each request of a flush cycle: the cycle is repeated, and its recovery point has the table
    whole, or neither its record nor its entries."""
    from chunkstore.testing.faults import Fault
    from chunkstore.wrapping import Request
    from engine.storage.recovery import recover

    with small_sizes():
        for at in range(1, 60):
            simulation = Simulation()
            other = process(simulation)
            other.create_scope("sc")
            for name in ("kvt", "stays"):
                other.create_key_value_table("sc", name, CONFIGURATION)
                other.key_value_table("sc", name).update([Put(each, value) for each, value in SOME.items()])
            through = FaultStore(simulation.store)
            manager = process(simulation, through)
            assert manager.root.container(0).refresh()

            def meanwhile(number: int, request: Request, at: int = at, other: StreamManager = other) -> Fault | None:
                if number == at:
                    other.delete_key_value_table("sc", "kvt")
                return None

            through.plan, through.passed = meanwhile, 0
            flush(manager)
            passed = through.passed
            audit(manager.root.container(0).state)
            recover(simulation.stores, 0, force=True)
            newcomer = process(simulation)
            assert content(newcomer) in (None, SOME)
            tables = [name for name in newcomer.root.container(0).state.tables if name.startswith("_kvt/sc/kvt/")]
            record = newcomer.root.container(0).entry("_system/key_value_tables", "sc/kvt")
            assert (record is not None) == bool(tables), f"request {at}"
            assert {e.key: e.value for e in newcomer.key_value_table("sc", "stays").entries()} == SOME
            audit(newcomer.root.container(0).state)
            if passed < at:
                return
        raise AssertionError("the cycle never ends")


# --- several at once -----------------------------------------------------------------------------------------------


def count_up(manager: StreamManager, times: int) -> list[int]:
    """Increments counters by conditional updates; the numbers that this caller put."""
    table = manager.key_value_table("sc", "kvt")
    put: list[int] = []
    while len(put) < times:
        each = key(len(put) % 2)
        entry = table.get(each)
        try:
            if entry is None:
                table.insert(each, b"1")
            else:
                table.replace(each, b"%d" % (int(entry.value) + 1), entry.version)
        except BadKeyVersion:
            continue
        put.append(int(entry.value) + 1 if entry else 1)
    return put


def check(manager: StreamManager, outcomes: list[list[int]], times: int) -> None:
    """Each value of each counter was put exactly once: the conditional updates of a key have an order."""
    even = sorted(number for put in outcomes for number in put[::2])
    odd = sorted(number for put in outcomes for number in put[1::2])
    assert even == list(range(1, len(even) + 1)) and odd == list(range(1, len(odd) + 1))
    entries = manager.key_value_table("sc", "kvt").get_all([key(0), key(1)])
    assert [int(entry.value) for entry in entries if entry] == [len(even), len(odd)]
    assert len(even) + len(odd) == times


def test_conditional_updates_of_threads_have_an_order_for_each_key(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_key_value_table("sc", "kvt", CONFIGURATION)
        outcomes: list[list[int]] = []
        threads = [threading.Thread(target=lambda: outcomes.append(count_up(manager, 12))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(manager, outcomes, 48)


def _count_in_process(root: str, times: int) -> list[int]:
    with StreamManager(root) as manager:
        return count_up(manager, times)


def test_conditional_updates_of_processes_have_an_order_for_each_key(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_key_value_table("sc", "kvt", CONFIGURATION)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        outcomes = pool.starmap(_count_in_process, [(root, 10)] * 3)
    with StreamManager(root) as manager:
        check(manager, outcomes, 30)
