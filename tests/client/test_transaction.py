"""Transactions as programs use them. What they are made of: see tests/streams/test_transactions.py."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from chunkstore.testing import FaultStore, fail_at
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import (
    OutcomeUnknown,
    StorageUnavailable,
    StreamManager,
    StreamSealed,
    TransactionClosed,
    TransactionIncomplete,
    TransactionNotFound,
    TransactionTooLong,
    TxnFailedException,
)
from pravega_spark.client import transaction as module
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.writing import transactions
from tests.client.large_events.simulated import process
from tests.support.simulation import Simulation


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path)) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "st", 3)
        yield opened


def texts(manager: StreamManager) -> list[str]:
    return sorted(event.data.decode() for event in manager.read_events("sc", "st"))


def test_a_program_of_the_original(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "st", 123)
    txn = writer.begin_txn()
    assert txn.is_open()
    txn.write_event("one", "key")
    txn.write_event_bytes(b"two")
    same = writer.get_txn(txn.get_txn_id())
    as_listed = uuid.UUID(int=txn.get_txn_id())
    assert {writer.get_txn(each).get_txn_id() for each in (as_listed, str(as_listed))} == {txn.get_txn_id()}
    txn.flush()
    same.write_event("three", routing_key="key")
    same.flush()
    assert texts(manager) == []
    txn.commit()
    assert not txn.is_open() and not same.is_open()
    assert texts(manager) == ["one", "three", "two"]
    dropped = writer.begin_txn()
    dropped.write_event("never")
    dropped.abort()
    assert not dropped.is_open() and texts(manager) == ["one", "three", "two"]
    with pytest.raises(TxnFailedException, match="aborted"):
        dropped.commit()
    with pytest.raises(TransactionNotFound):
        writer.get_txn(12345)


def test_after_a_write_that_failed_it_cannot_be_committed_and_says_what_to_do(tmp_path: Path) -> None:
    """Not with the error of the write, which may advise to repeat the call."""
    root = Root.open(str(tmp_path), settings=Settings(timeout=0.05, maintenance=False))
    store = FaultStore(root.stores.log, verbs=("put_if_absent",))
    root.stores = Stores(store, store)
    with StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 1)
        txn = manager.create_transaction_writer("sc", "st").begin_txn()
        store.plan = fail_at(store.passed + 1, forever=True)
        txn.write_event("lost")
        with pytest.raises((OutcomeUnknown, StorageUnavailable)) as caught:
            txn.flush()
        store.plan = None
        for call in (txn.commit, txn.flush, lambda: txn.write_event("more")):
            with pytest.raises(TransactionIncomplete, match="Abort it, and write all of it again") as incomplete:
                call()
            assert incomplete.value.__cause__ is caught.value
        txn.abort()
        assert texts(manager) == []


def test_with_statements(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "st")
    with writer.begin_txn() as txn:
        txn.write_event("kept")
    with pytest.raises(ZeroDivisionError), writer.begin_txn() as txn:
        txn.write_event("lost")
        raise ZeroDivisionError
    assert texts(manager) == ["kept"]


def test_columns(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 500)
    events = [f"event {number:03d}" for number in range(300)]
    with manager.create_transaction_writer("sc", "st").begin_txn() as txn:
        txn.write_events(pa.array(events[:200]), [f"{number % 9}" for number in range(200)])
        txn.write_events(events[200:])
        txn.write_events([])
    assert texts(manager) == events
    by_key: dict[int, list[str]] = {}
    for event in manager.read_events("sc", "st"):
        by_key.setdefault(event.segment_id, []).append(event.data.decode())
    assert all(found == sorted(found) for found in by_key.values())


def test_wrong_events_are_refused(manager: StreamManager) -> None:
    txn = manager.create_transaction_writer("sc", "st").begin_txn()
    with pytest.raises(TypeError, match="event must be a str, not bytes: use write_event_bytes"):
        txn.write_event(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="use write_event for a str"):
        txn.write_event_bytes("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Write size too large"):
        txn.write_event_bytes(bytes((8 << 20) + 1))
    with pytest.raises(ValueError, match="2 routing_keys were given for 1"):
        txn.write_events(["a"], ["b", "c"])
    txn.commit()
    assert texts(manager) == []


def test_a_commit_with_a_time_is_a_commit(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "st")
    txn = writer.begin_txn()
    txn.write_events(["one", "two"])
    txn.commit_timestamp(1_769_817_600_000)
    assert texts(manager) == ["one", "two"] and not txn.is_open()
    with pytest.raises(TransactionClosed, match="committed"):
        txn.commit_timestamp(1_769_817_600_001)


def test_what_could_not_be_written_cannot_be_committed(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "st")
    txn = writer.begin_txn()
    writer.get_txn(txn.get_txn_id()).abort()
    txn.write_event("too late")
    for call in (txn.flush, txn.commit, lambda: txn.write_event("more")):
        with pytest.raises(TransactionClosed, match="aborted"):
            call()
    manager.seal_stream("sc", "st")
    with pytest.raises(StreamSealed):
        writer.begin_txn()


def test_many_writes_wait_for_their_turn(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    with manager.create_transaction_writer("sc", "st").begin_txn(lease=60) as txn:
        for number in range(200):
            txn.write_event(f"{number:03d}", "key")
        txn.ping()
    assert [event.data.decode() for event in manager.read_events("sc", "st")] == [f"{n:03d}" for n in range(200)]


def test_events_without_a_key_are_in_one_segment_in_their_order(manager: StreamManager) -> None:
    """As in Pravega, where the id of the transaction is their key."""
    manager.create_stream("sc", "eight", 8)
    used = set()
    for _ in range(6):
        with manager.create_transaction_writer("sc", "eight").begin_txn() as txn:
            for number in range(20):
                txn.write_event(f"{txn.get_txn_id()} {number}")
            txn.write_events([f"{txn.get_txn_id()} {number}" for number in range(20, 40)])
            txn.write_events([f"{txn.get_txn_id()} {number}" for number in range(40, 50)], [None] * 10)
        events = [e for e in manager.read_events("sc", "eight") if e.data.startswith(str(txn.get_txn_id()).encode())]
        assert [int(event.data.split()[1]) for event in events] == list(range(50))
        (segment,) = {event.segment_id for event in events}
        used.add(segment)
    assert len(used) > 1


@pytest.mark.parametrize("written", [True, False])
def test_writes_keep_a_transaction_open(written: bool) -> None:
    simulation = Simulation()
    manager, maintainer = process(simulation), process(simulation)
    manager.create_scope("sc")
    manager.create_stream("sc", "st")
    txn = manager.create_transaction_writer("sc", "st").begin_txn(lease=60)
    for number in range(10):
        simulation.advance(40)
        if written:
            txn.write_event(str(number))
        transactions.expire(Catalog(maintainer.root).stream("sc", "st"))
    assert txn.is_open() is written
    if written:
        txn.commit()
        assert [event.data for event in manager.read_events("sc", "st")] == [b"%d" % number for number in range(10)]


def test_a_transaction_that_is_open_for_too_long_can_still_be_written_and_committed() -> None:
    simulation = Simulation()
    manager = process(simulation)
    manager.create_scope("sc")
    manager.create_stream("sc", "st")
    txn = manager.create_transaction_writer("sc", "st").begin_txn(lease=6 * 3600)
    for number in range(8):
        simulation.advance(3 * 3600)
        txn.write_event(str(number))
    with pytest.raises(TransactionTooLong):
        txn.ping()
    txn.commit()
    assert len(list(manager.read_events("sc", "st"))) == 8


def test_a_lease_has_a_minimum(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "st")
    for lease in (0.001, "9s", 9.999):
        with pytest.raises(ValueError, match="lease must be at least 10 seconds"):
            writer.begin_txn(lease)
    txn = writer.begin_txn("10s")
    with pytest.raises(ValueError, match="lease must be at least 10 seconds"):
        txn.ping(1)
    txn.ping(10)
    txn.abort()
