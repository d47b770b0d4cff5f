"""Transactions on a storage whose clock the test sets: leases to the millisecond, records, lists, and damaged ones."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

import msgpack
import numpy as np
import pytest

from chunkstore.errors import StorageFull
from chunkstore.testing import CountingStore, SimulatedStore
from engine.containers.container import Container
from engine.errors import DataCorruption, SegmentNotFound, UnknownFormat
from engine.logs.transaction import Receipt
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.index_records import THIS_APPEND
from engine.state.operations import Operation, PutEntry
from engine.storage.object_reads import Stores
from pravega_spark.errors import TransactionClosed, TransactionNotFound, TransactionTooLong
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.stream_record import FORMAT
from pravega_spark.streams.model.system_tables import TRANSACTIONS
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions
from pravega_spark.streams.writing.event_order import Interleaving, StoredOrder
from tests.streams.test_transactions import begun, check, leftovers, parts, write

DAY = 86_400_000
SETTINGS = Settings(maintenance=False, threaded=False)


class TimedRoot(Root):
    """A root whose clocks all show the simulated storage's time."""

    def __init__(self, store: SimulatedStore | None = None) -> None:
        self.simulated = store or SimulatedStore(0)
        self.counting = CountingStore(self.simulated)
        super().__init__(Stores(self.counting, self.counting), RootConfig("root", containers=1), SETTINGS)

    def _start(self, number: int) -> Container:
        return Container(self.stores, number, SETTINGS, clock=self._time, now=self._time)

    def _time(self) -> float:
        return self.simulated.now


@pytest.fixture
def root() -> TimedRoot:
    root = TimedRoot()
    root.simulated.now = 1_000_000.0
    return root


@pytest.fixture
def stream(root: TimedRoot) -> Stream:
    made = Stream(root, "sc", "st")
    made.create(ScalingPolicy(min_segments=2))
    return made


def spoil(stream: Stream, transaction: transactions.Transaction, value: bytes) -> None:
    """Replace a transaction's record."""
    version = transaction.record().version
    stream.container.commit([PutEntry(TRANSACTIONS, transaction.key, value, version)])


def append_of(stream: Stream, segment: int, offset: int) -> int:
    """The number of the append whose event ends at or after an offset."""
    record = stream.snapshot().segments.index(segment).locate_offset(offset)
    assert record is not None
    return record.append


# --- records and leases ------------------------------------------------------------------------------------------


def test_a_new_transaction_is_of_the_current_epoch_and_has_a_thousand_leases(root: TimedRoot, stream: Stream) -> None:
    assert {transactions.begin(stream)[0].id.int >> 96 for _ in range(10)} == {0}
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    transaction, record = transactions.begin(stream, 2.5)
    another, _ = transactions.begin(stream)
    assert (transaction.id.int >> 96, another.id.int >> 96) == (1, 1)
    assert transaction.id != another.id
    now = 1_000_000_000
    assert record == transactions.TransactionRecord(stream.snapshot().record.routing, now, 2500, now, 2_500_000)
    assert transaction.record() == record._replace(version=transaction.record().version)
    assert repr(transaction) == f"Transaction('sc/st/{transaction.id.hex}')"


def test_a_ping_counts_from_its_own_time(root: TimedRoot, stream: Stream) -> None:
    transaction, record = transactions.begin(stream, 10)
    root.simulated.now += 7
    transaction.ping()
    assert transaction.record()[:5] == (record.routing, record.created, 10_000, record.created + 7000, record.longest)
    root.simulated.now += 1
    transaction.ping(3)
    pinged = transaction.record()
    assert (pinged.changed, pinged.lease) == (record.created + 8000, 3000)
    assert pinged.timeout == record.created + 11_000
    assert not pinged.expired(pinged.timeout)
    assert pinged.expired(pinged.timeout + 1)


def test_a_ping_lasts_at_most_to_the_end_of_the_longest_time(root: TimedRoot, stream: Stream) -> None:
    transaction, record = transactions.begin(stream, 600)
    root.simulated.now += 86_400 - 600
    transaction.ping(600)
    assert transaction.record().timeout == record.created + DAY
    root.simulated.now += 1
    for left in (599, 0):
        with pytest.raises(TransactionTooLong) as refused:
            transaction.ping(600)
        assert (refused.value.longest, refused.value.left) == (86_400, left)
        root.simulated.now += 1000
    assert transaction.record().changed == record.created + DAY - 600_000


def test_a_lease_of_less_than_nothing_or_more_than_a_day_is_refused(stream: Stream) -> None:
    transaction = begun(stream)
    for lease in (0, -1, 86_400.001, float("nan")):
        with pytest.raises(ValueError, match="lease must be above 0"):
            transaction.ping(lease)


def test_a_lease_expires_by_the_storages_time(root: TimedRoot, stream: Stream) -> None:
    transaction, record = transactions.begin(stream, 600)
    root.simulated.now += 600
    assert transactions.expire(stream) == []
    root.simulated.now += 0.001
    assert [each.id for each in transactions.expire(stream)] == [transaction.id]
    assert transaction.record().changed == record.created + 600_001
    with pytest.raises(TransactionClosed, match="aborted"):
        transaction.write(parts(record.routing, "a"))


def test_the_record_of_an_ended_transaction_is_kept_for_a_day(root: TimedRoot, stream: Stream) -> None:
    ended = begun(stream, "a")
    root.simulated.now += 5
    still_open = begun(stream, "b")
    ended.commit()
    changed = ended.record().changed
    assert changed == 1_000_005_000
    still_open.ping(86_400)
    stream.container.flush()  # the table keeps what is removed from it, until the next flush
    transactions.expire(stream, changed + DAY)
    assert ended.record().status == transactions.COMMITTED
    transactions.expire(stream, changed + DAY + 1)
    with pytest.raises(TransactionNotFound):
        ended.record()
    assert [each.id for each, _ in transactions.transactions(stream)] == [still_open.id]
    assert still_open.record().status == transactions.ABORTED
    check(stream, "a")


def test_expiry_of_a_stream_without_transactions_costs_no_request(root: TimedRoot, stream: Stream) -> None:
    root.counting.reset()
    assert transactions.expire(stream, refresh=False) == []
    assert root.counting.count() == 0
    transaction, _ = transactions.begin(stream, 1)
    root.simulated.now += 2
    assert [each.id for each in transactions.expire(stream, refresh=False)] == [transaction.id]


def test_transactions_of_another_process_expire_too(root: TimedRoot, stream: Stream) -> None:
    other = Stream(TimedRoot(root.simulated), "sc", "st")
    begun(other, "a")
    later, _ = transactions.begin(other)
    root.simulated.now += 1000
    assert later.id in [each.id for each in transactions.expire(stream)]
    assert list(transactions.open_transactions(stream.container)) == []


def test_what_was_pinged_meanwhile_does_not_expire(root: TimedRoot, stream: Stream) -> None:
    transaction, record = transactions.begin(stream)
    transaction.ping()
    assert not transaction.expire(record)
    assert transaction.expire(transaction.record())
    assert leftovers(stream) == []


def test_an_abort_is_dated(root: TimedRoot, stream: Stream) -> None:
    transaction = begun(stream, "a")
    root.simulated.now += 5
    transaction.abort()
    assert (transaction.record().status, transaction.record().changed) == (transactions.ABORTED, 1_000_005_000)


def test_a_full_storage_takes_no_new_transaction_and_no_event(
    root: TimedRoot, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, record = transactions.begin(stream)

    def full(container: Container) -> None:
        raise StorageFull("full")

    with monkeypatch.context() as patched:
        patched.setattr(Container, "check_room", full)
        with pytest.raises(StorageFull):
            transactions.begin(stream)
        with pytest.raises(StorageFull):
            transaction.write(parts(record.routing, "a"))
    assert [each.id for each, _ in transactions.transactions(stream)] == [transaction.id]
    transaction.commit()
    check(stream)


# --- what is read back ------------------------------------------------------------------------------------------


def test_a_record_is_read_back_and_belongs_to_its_key(stream: Stream) -> None:
    transaction, record = transactions.begin(stream)
    data = record.encode()
    decode = transactions.TransactionRecord.decode
    assert decode(data, 17, transaction.key) == record._replace(version=17)
    scope, name, number = transactions.transaction_of(transaction.key)
    assert (scope, name, number) == ("sc", "st", transaction.id)
    for key in ("sc/st", f"sc/st/{'x' * 32}", f"sc/st/more/{transaction.id.hex}"):
        with pytest.raises(DataCorruption, match=f"transaction {key}: its record"):
            decode(data, 17, key)
    fields = msgpack.unpackb(data)
    with pytest.raises(UnknownFormat):
        decode(bytes(msgpack.packb([FORMAT + 1, *fields[1:]])), 17, transaction.key)
    for place, value in ((2, "1"), (3, -1), (5, -1), (6, "undecided")):
        with pytest.raises(DataCorruption, match=transaction.key):
            decode(bytes(msgpack.packb([*fields[:place], value, *fields[place + 1 :]])), 17, transaction.key)


def test_a_damaged_record_is_reported_after_all_others_and_can_be_aborted(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    some = sorted((begun(stream, "a", "z") for _ in range(3)), key=lambda each: each.key)
    bad, *others = some
    spoil(stream, bad, b"\xc1")
    listed = transactions.transactions(stream)
    assert [next(listed)[0].id for _ in others] == [each.id for each in others]
    with pytest.raises(DataCorruption, match=bad.key):
        next(listed)
    with caplog.at_level(logging.WARNING, "pravega_spark"):
        assert [each.id for each in transactions.open_transactions(stream.container)] == [each.id for each in others]
    assert bad.key in caplog.text
    with pytest.raises(DataCorruption):
        bad.commit()
    bad.abort()
    with pytest.raises(TransactionNotFound):
        bad.record()
    assert [name for name in leftovers(stream) if bad.id.hex in name] == []
    for each in others:
        each.commit()
    check(stream, "a", "a", "z", "z")


def test_a_record_of_a_newer_version_is_not_aborted(stream: Stream) -> None:
    transaction = begun(stream, "a")
    spoil(stream, transaction, bytes(msgpack.packb([FORMAT + 1])))
    with pytest.raises(UnknownFormat):
        transaction.abort()
    assert len(leftovers(stream)) == 4
    with pytest.raises(UnknownFormat):
        transaction.record()


def test_damage_elsewhere_aborts_no_transaction(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = begun(stream, "a")

    def damaged(container: Container, operations: Sequence[Operation]) -> Receipt:
        patched.undo()  # what is tried after it succeeds
        raise DataCorruption("a frame of the log")

    with monkeypatch.context() as patched:
        patched.setattr(Container, "commit", damaged)
        with pytest.raises(DataCorruption, match="a frame of the log"):
            transaction.abort()
    transaction.commit()
    check(stream, "a")


# --- lists ------------------------------------------------------------------------------------------------------


def test_open_transactions_are_listed_with_the_bytes_written_to_them(root: TimedRoot, stream: Stream) -> None:
    other = Stream(root, "sc", "st2")
    other.create(ScalingPolicy(min_segments=1))
    made = [begun(stream, "a", "zz"), begun(other, "bbb"), begun(stream), begun(stream, "z")]
    made[3].commit()
    sizes = {made[0].id: 9 + 10, made[1].id: 11, made[2].id: 0}
    listed = [each.key for each, _ in transactions.transactions(stream)]
    assert listed == sorted(each.key for each in (made[0], made[2], made[3]))
    found = list(transactions.open_transactions(root.container(0)))
    assert len(found) == 3
    assert {each.id: each.size for each in found} == sizes
    assert [f"{each.scope}/{each.stream}/{each.id.hex}" for each in found] == sorted(each.key for each in made[:3])
    assert all(each.record.status == transactions.OPEN for each in found)
    below = list(transactions.open_transactions(root.container(0), "sc/st/"))
    assert {each.id for each in below} == {made[0].id, made[2].id}
    assert [each.segments() for each in below if each.id == made[0].id] == [[made[0].segment(n) for n in (0, 1)]]


# --- commits ----------------------------------------------------------------------------------------------------


def column(stream: Stream, transaction: transactions.Transaction, *events: str) -> transactions.ColumnOrder:
    """Write events to both segments by one append. Returns their order."""
    own = parts(transaction.record().routing, *events)
    stream.container.refresh()
    offset = stream.container.info(transaction.segment(own[0].segment_id)).length
    transaction.write(own)
    places = np.array([0 if event < "n" else 1 for event in events], np.uint8)
    return transactions.ColumnOrder(own[0].segment_id, offset, Interleaving((0, 1), places))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_commit_keeps_the_order_of_columns(stream: Stream, scaled: bool) -> None:
    transaction = begun(stream, "a0", "z0")
    first = column(stream, transaction, "z1", "a1", "z2")
    transaction.write(parts(transaction.record().routing, "z3"))
    second = column(stream, transaction, "a2", "z4", "a3")
    if scaled:
        stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    transaction.commit([first, second])
    segments = [each.id for each in stream.snapshot().record.epochs[-2 if scaled else -1].segments]
    order = StoredOrder(stream.snapshot()).of(append_of(stream, segments[0], 1))
    assert order is not None
    assert [order.segments[place] for place in order.places.tolist()] == [
        segments[place] for place in (0, 1, 1, 0, 1, 1, 0, 1, 0)
    ]
    check(stream, "a0", "a1", "a2", "a3", "z0", "z1", "z2", "z3", "z4")


def test_the_events_of_one_segment_need_no_order(stream: Stream) -> None:
    begun(stream, "a", "b").commit()
    begun(stream).commit()
    assert not StoredOrder(stream.snapshot()).has_entries


def test_events_have_the_number_of_the_commit(stream: Stream) -> None:
    transaction = begun(stream, "a", "z")
    write(stream, "b")
    transaction.write(parts(transaction.record().routing, "c"))
    transaction.commit()
    before, *commit = (append_of(stream, segment, end) for segment, end in ((0, 9), (0, 10), (0, 27), (1, 9)))
    assert len(set(commit)) == 1
    assert THIS_APPEND != before < commit[0]


@pytest.mark.parametrize("rival", ["commit", "abort"])
def test_a_commit_finds_that_another_thread_ended_the_transaction(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, rival: str
) -> None:
    """After this one has read that it is open, and before it looks at its segments."""
    transaction = begun(stream, "a", "z")
    begin_generation = stream.begin_generation

    def begun_later() -> None:
        monkeypatch.undo()
        getattr(transactions.Transaction(stream, transaction.id), rival)()
        begin_generation()

    monkeypatch.setattr(stream, "begin_generation", begun_later)
    if rival == "commit":
        transaction.commit()
    else:
        with pytest.raises(TransactionClosed, match="aborted"):
            transaction.commit()
    check(stream, *(["a", "z"] if rival == "commit" else []))


def test_a_commit_without_its_segments_is_an_error(stream: Stream) -> None:
    """Not an endless loop, nor a commit of nothing."""
    transaction = begun(stream, "a", "z")
    record = transaction.record()
    other = transactions.Transaction(stream, uuid.UUID(int=transaction.id.int + 1))
    stream.container.commit([PutEntry(TRANSACTIONS, other.key, record._replace(version=-1).encode(), -1)])
    with pytest.raises(SegmentNotFound):
        other.commit()
    assert {each.id: each.size for each in transactions.open_transactions(stream.container)}[other.id] == 0
    assert other.record().status == transactions.OPEN
    check(stream)
