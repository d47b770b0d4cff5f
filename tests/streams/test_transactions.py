"""Transactions: all of their events or none, whatever happens to the stream and to whoever commits."""

import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from chunkstore import Store
from chunkstore.testing import Crashed, FaultStore, SimulatedStore, crash_at
from chunkstore.testing.faults import When
from engine.errors import BadOffset
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.state.segments import EVENT_COUNT
from engine.storage.object_reads import Stores
from pravega_spark.errors import StreamSealed, TransactionClosed, TransactionNotFound, TransactionTooLong
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import plan_slices
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.clocks import moved_on
from tests.streams.test_stream import beforehand


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root.open(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def stream(root: Root) -> Stream:
    catalog = Catalog(root)
    catalog.create_scope("sc")
    catalog.create_stream("sc", "st", ScalingPolicy(min_segments=2))
    return catalog.stream("sc", "st")


def parts(routing: Routing, *events: str) -> list[SegmentAppend]:
    """Each event goes to a segment by its first letter: those of the alphabet's first half to the first one."""
    found = []
    for place, segment in enumerate(routing.segments):
        own = [event for event in events if (ord(event[0]) - 97) * len(routing.segments) // 26 == place]
        if own:
            framed = frame_column(pa.array(own), None, 1)
            records = sparse_records(framed.lengths, 0)
            found.append(SegmentAppend(segment.id, Payload(framed.data.to_pybytes()), records, len(own)))
    return found


def write(stream: Stream, *events: str) -> None:
    routing = stream.snapshot().record.routing
    stream.write(parts(routing, *events), planned=routing)


def read(stream: Stream) -> list[str]:
    """All events, in order of segments."""
    snapshot = stream.snapshot()
    slices = plan_slices(snapshot, snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut()), 1 << 30)
    reader = SliceReader(stream.root, stream.scope, stream.name)
    return [
        bytes(events.data[start + 8 : start + 8 + length]).decode()
        for events in reader.read(slices)
        for start, length in zip(events.starts.tolist(), events.lengths.tolist(), strict=True)
    ]


def check(stream: Stream, *events: str) -> None:
    """The stream has these events, and its index says so too."""
    assert sorted(read(stream)) == sorted(events)
    snapshot = stream.snapshot()
    assert snapshot.events() == len(events)
    for number in snapshot.record.segment_ids():
        segment = snapshot.segments.segment(number)
        assert snapshot.segments.count_before(number, segment.length) == segment.attributes.get(EVENT_COUNT, 0)


def begun(stream: Stream, *events: str) -> transactions.Transaction:
    transaction, record = transactions.begin(stream)
    if events:
        transaction.write(parts(record.routing, *events))
    return transaction


def test_events_come_with_the_commit(stream: Stream) -> None:
    write(stream, "before", "zero")
    transaction = begun(stream, "a1", "z1", "a2")
    write(stream, "between")
    transaction.write(parts(transaction.record().routing, "z2"))
    check(stream, "before", "zero", "between")
    transaction.commit()
    check(stream, "before", "zero", "between", "a1", "a2", "z1", "z2")
    assert read(stream) == ["before", "between", "a1", "a2", "zero", "z1", "z2"]
    assert stream.snapshot().record.epochs[-1].epoch == 0
    transaction.commit()
    write(stream, "after")
    assert read(stream)[4] == "after"
    assert leftovers(stream) == []


def leftovers(stream: Stream) -> list[str]:
    stream.container.refresh()
    return [name for name in stream.container.state.segments if "#transaction" in name]


def test_aborted_events_never_come(stream: Stream) -> None:
    transaction = begun(stream, "a", "z")
    transaction.abort()
    transaction.abort()
    check(stream)
    assert leftovers(stream) == []
    more = parts(stream.snapshot().record.routing, "a")
    calls: list[Callable[[], None]] = [transaction.commit, transaction.ping, lambda: transaction.write(more)]
    for call in calls:
        with pytest.raises(TransactionClosed, match="aborted"):
            call()
    committed = begun(stream)
    committed.commit()
    with pytest.raises(TransactionClosed, match="committed"):
        committed.abort()
    with pytest.raises(TransactionNotFound, match="never begun"):
        transactions.Transaction(stream, uuid.uuid4()).commit()


def test_a_transaction_outlives_scales(stream: Stream) -> None:
    transaction = begun(stream, "a1", "n1", "z1")
    record = stream.snapshot().record
    stream.scale([record.current.segments[0].id], [(0.0, 0.25), (0.25, 0.5)])
    write(stream, "between")
    current = stream.snapshot().record.current.segments
    stream.scale([segment.id for segment in current], [(0.0, 0.7), (0.7, 1.0)])
    write(stream, "later")
    transaction.commit()
    record = stream.snapshot().record
    assert [epoch.reference for epoch in record.epochs] == [0, 1, 2, 0, 2]
    check(stream, "a1", "n1", "z1", "between", "later")
    another = begun(stream, "b")
    again = begun(stream, "c")
    another.commit()
    again.commit()
    assert stream.snapshot().record.current == record.current
    check(stream, "a1", "n1", "z1", "between", "later", "b", "c")


def test_where_its_keys_have_one_segment_it_needs_no_epochs(stream: Stream) -> None:
    transaction = begun(stream, "a1", "z1")
    current = stream.snapshot().record.current.segments
    with_one = Catalog(stream.root).stream("sc", "st")
    with_one.update(ScalingPolicy(min_segments=1))  # which merges them
    assert len(current) == 2
    transaction.commit()
    assert [epoch.reference for epoch in stream.snapshot().record.epochs] == [0, 1]
    check(stream, "a1", "z1")


def test_a_sealed_stream_takes_no_transaction(stream: Stream) -> None:
    transaction = begun(stream, "a")
    stream.seal()
    with pytest.raises(StreamSealed):
        transaction.commit()
    with pytest.raises(StreamSealed):
        transactions.begin(stream)
    transaction.abort()
    check(stream)


def test_a_deleted_stream_leaves_nothing(stream: Stream) -> None:
    transaction = begun(stream, "a")
    stream.seal()
    stream.delete()
    assert leftovers(stream) == []
    assert list(transactions.transactions(stream)) == []
    Catalog(stream.root).create_stream("sc", "st")
    with pytest.raises(TransactionNotFound):
        transaction.commit()


def test_leases(stream: Stream) -> None:
    kept, lost = begun(stream, "a"), begun(stream, "b")
    now = kept.record().changed
    kept.ping(3000)
    assert [found.id for found in transactions.expire(stream, now + 700_000)] == [lost.id]
    assert transactions.expire(stream, now + 700_000) == []
    found = {found.id: record.status for found, record in transactions.transactions(stream)}
    assert found == {kept.id: "open", lost.id: "aborted"}
    kept.commit()
    check(stream, "a")
    transactions.expire(stream, now + 200_000_000)
    assert list(transactions.transactions(stream)) == []
    for lease in (0, -1, 31 * 86_400):
        with pytest.raises(ValueError, match="lease"):
            transactions.begin(stream, lease)


def test_no_transaction_is_open_for_longer_than_a_thousand_leases_or_a_day(stream: Stream) -> None:
    for lease, longest in ((0.5, 500), (600, 86_400), (86_400, 86_400)):
        transaction, record = transactions.begin(stream, lease)
        assert record.longest == 1000 * longest
        over = record.created + 1000 * longest
        assert not record._replace(changed=over, lease=1).expired(over)
        assert record._replace(changed=over, lease=1).expired(over + 1)
        moved_on(stream.root.stores.chunks)
        with pytest.raises(TransactionTooLong, match=f"{transaction.id} .* {longest:g} seconds in total") as error:
            transaction.ping(min(longest + 1, 86_400))
        assert transaction.record()._replace(version=record.version) == record
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(ValueError, match="the longest a transaction may be open"):
        transactions.begin(stream, 86_401)


@pytest.mark.parametrize("rival", ["ping", "commit"])
def test_what_is_pinged_or_committed_while_it_is_judged_stays(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rival: str
) -> None:
    """It was found expired, and another process is told that its ping, or commit, is durable before it is aborted."""
    saved, lost = begun(stream, "a"), begun(stream, "b")
    with Root.open(str(tmp_path)) as other:
        elsewhere = transactions.Transaction(Catalog(other).stream("sc", "st"), saved.id)
        beforehand(stream, monkeypatch, getattr(elsewhere, rival))
        later = saved.record().changed + 700_000
        expired = transactions.expire(stream, later)
    assert saved.id not in [transaction.id for transaction in expired]
    assert saved.record().status == {"ping": "open", "commit": "committed"}[rival]
    transactions.expire(stream, later)
    assert lost.record().status == "aborted"


def test_a_commit_is_routed_again_when_the_stream_is_scaled_meanwhile(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the stream and the commit's append another process scales it, or seals it."""
    transaction, empty = begun(stream, "a"), begun(stream)
    with Root.open(str(tmp_path)) as other:
        elsewhere = Catalog(other).stream("sc", "st")
        first = elsewhere.snapshot().record.current.segments[0].id
        beforehand(stream, monkeypatch, lambda: elsewhere.scale([first], [(0.0, 0.25), (0.25, 0.5)]))
        transaction.commit()
        assert [epoch.reference for epoch in stream.snapshot().record.epochs] == [0, 1, 0, 1]
        beforehand(stream, monkeypatch, elsewhere.seal)
        with pytest.raises(StreamSealed):
            empty.commit()
    check(stream, "a")


@pytest.mark.parametrize("meanwhile", ["sealed", "scaled"])
def test_a_transaction_is_begun_in_the_stream_as_it_is(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Between the look at the stream and the append that begins it another process changes the stream."""
    with Root.open(str(tmp_path)) as other:
        elsewhere = Catalog(other).stream("sc", "st")
        first = elsewhere.snapshot().record.current.segments[0].id
        if meanwhile == "sealed":
            beforehand(stream, monkeypatch, elsewhere.seal)
            with pytest.raises(StreamSealed):
                transactions.begin(stream)
            assert list(transactions.transactions(stream)) == []
        else:
            beforehand(stream, monkeypatch, lambda: elsewhere.scale([first], [(0.0, 0.25), (0.25, 0.5)]))
            assert transactions.begin(stream)[1].routing == elsewhere.snapshot().record.routing


def test_events_have_the_time_of_the_commit(stream: Stream) -> None:
    """Else the index would go back in time, behind what others wrote meanwhile."""
    transaction = begun(stream, "a1", "z1")
    before = int(time.time() * 1000)
    transaction.commit()
    after = int(time.time() * 1000)
    snapshot = stream.snapshot()
    for number in snapshot.record.segment_ids():
        record = snapshot.segments.index(number).locate_offset(1)
        assert record is not None and before <= record.time_ms <= after


def test_two_processes_commit_at_the_same_time(stream: Stream, tmp_path: Path) -> None:
    transaction = begun(stream, *(f"a{number}" for number in range(100)))
    with Root.open(str(tmp_path)) as other:
        elsewhere = transactions.Transaction(Catalog(other).stream("sc", "st"), transaction.id)
        elsewhere.write(parts(elsewhere.record().routing, "z"))
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(one.commit) for one in (transaction, elsewhere)]:
                done.result()
    check(stream, *(f"a{number}" for number in range(100)), "z")


def test_what_is_written_while_it_is_committed_is_in_it_or_refused(stream: Stream, tmp_path: Path) -> None:
    """The commit has looked at the transaction's index before others write to it."""
    transaction = begun(stream, "a1")
    record = transaction.record()
    operations = transaction._commit(record)
    transaction.write(parts(record.routing, "a2"))
    with pytest.raises(BadOffset):
        stream.container.commit(operations)
    transaction.commit()
    check(stream, "a1", "a2")


def test_what_comes_to_an_empty_part_while_it_is_committed_is_in_it(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has found nothing in one of the transaction's segments; before its append others write there."""
    transaction = begun(stream, "a1")
    with Root.open(str(tmp_path)) as other:
        elsewhere = transactions.Transaction(Catalog(other).stream("sc", "st"), transaction.id)
        more = parts(elsewhere.record().routing, *(f"z{number}" for number in range(8)))
        beforehand(stream, monkeypatch, lambda: elsewhere.write(more))
        transaction.commit()
    check(stream, "a1", *(f"z{number}" for number in range(8)))


# --- crashes -----------------------------------------------------------------------------------------------------


def stream_on(store: Store) -> Stream:
    root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False, threaded=False))
    return Stream(root, "sc", "st")


def prepared(store: Store) -> transactions.Transaction:
    """Begun two scales ago, with events in both of its segments, on a stream with others' events."""
    stream = stream_on(store)
    stream.create(ScalingPolicy(min_segments=2))
    write(stream, "early")
    transaction = begun(stream, "a1", "z1", "a2")
    first = stream.snapshot().record.current.segments[0].id
    stream.scale([first], [(0.0, 0.25), (0.25, 0.5)])
    write(stream, "between")
    stream.container.flush()
    stream.scale([segment.id for segment in stream.snapshot().record.current.segments], [(0.0, 0.7), (0.7, 1.0)])
    return transaction


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_request_of_its_end(when: When, end: str) -> None:
    """After two scales: all or none in any cut, and what was not finished can be finished by another process."""
    all_events = ["early", "between", *(["a1", "a2", "z1"] if end == "commit" else [])]
    status = {"commit": "committed", "abort": "aborted"}[end]
    number, crashed = 0, True
    while crashed:
        number += 1
        inner = SimulatedStore(0)
        transaction = prepared(inner)
        crashing = FaultStore(inner, crash_at(number, when))
        try:
            getattr(transactions.Transaction(stream_on(crashing), transaction.id), end)()
            crashed = False
        except Crashed:
            pass
        stream = stream_on(inner)
        found = sorted(read(stream))
        assert found in (sorted(all_events), ["between", "early"])
        check(stream, *found)
        getattr(transactions.Transaction(stream, transaction.id), end)()
        check(stream, *all_events)
        assert leftovers(stream) == []
        assert transactions.Transaction(stream_on(inner), transaction.id).record().status == status
    assert number > 3
