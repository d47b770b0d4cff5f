"""After a restore or a recovery no position, number or transaction that was lost is taken for one that is there (P4).

Every history is the same: events are written and flushed, and the root is copied; more is written, maybe with scales in
between, and positions are taken; the copy becomes a root; events are written to that. Then the old positions are used.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from engine.root import Root
from engine.state.operations import Payload
from pravega_spark.client.large_events.event_file import EventPayload
from pravega_spark.errors import (
    CutOfDeletedStream,
    EventSegmentSealed,
    InvalidEventPointer,
    InvalidScale,
    NoSuchEvent,
    PositionLost,
    TransactionNotFound,
    WritesLost,
)
from pravega_spark.segment_ids import segment_number
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.subscribers import release, subscribe
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.reading.lag import lag
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import plan_slices
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions, uploads
from pravega_spark.streams.writing.changes import after_gap
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.producer_state import ProducerWrite
from pravega_spark.streams.writing.writes import StreamWrite, write_together
from tests.restored import recovered, restored
from tests.streams.test_transactions import check, parts, read, write

OLD, LOST, NEW = ("a", "b", "y", "z"), ("c", "d", "w", "x"), ("e", "f", "g", "s", "t", "u")


def split(stream: Stream) -> None:
    """Scale: the first segment is split."""
    first = stream.snapshot().record.current.segments[0]
    middle = (first.low + first.high) / 2
    stream.scale([first.id], [(first.low, middle), (middle, first.high)])


def merge(stream: Stream) -> None:
    """Scale: the first two segments are merged."""
    one, other = stream.snapshot().record.current.segments[:2]
    stream.scale([one.id, other.id], [(one.low, other.high)])


Scales = tuple[Callable[[Stream], None], ...]
VARIANTS: dict[str, tuple[Scales, Scales]] = {
    "not scaled": ((), ()),
    "scaled in what was lost": ((split,), ()),
    "split and merged in what was lost, split since": ((split, merge), (split,)),
    "scaled alike in both": ((split, merge), (split, merge)),
}


class History:
    """A root that was copied before some of it was lost. Each step is called once, in the order of the methods."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self.root = Root.open(str(folder / "root"), containers=1)
        catalog = Catalog(self.root)
        catalog.create_scope("sc")
        catalog.create_stream("sc", "st", ScalingPolicy(min_segments=2))
        self.stream = catalog.stream("sc", "st")

    def copy(self) -> None:
        """What is there by now can be restored."""
        self.root.container(0).flush()
        if self._kind == "restored":
            restored(self._folder / "root", self._folder / "copy")

    def lose(self) -> None:
        """What was written since the copy is gone."""
        self.root.close()
        if self._kind == "recovered":
            recovered(self._folder / "root", 0)
        self.root = Root.open(str(self._folder / ("copy" if self._kind == "restored" else "root")), create=False)
        self.stream = Stream(self.root, "sc", "st")


@pytest.fixture(params=["restored"])
def history(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[History]:
    made = History(tmp_path, request.param)
    yield made
    made.root.close()


either_way = pytest.mark.parametrize("history", ["restored", "recovered"], indirect=True)


def between(stream: Stream, start: StreamCut, end: StreamCut) -> list[str]:
    """The events between two cuts."""
    snapshot = stream.snapshot()
    ranges, _ = snapshot.available(snapshot.ranges(start, end))
    found = []
    for events in SliceReader(stream.root, stream.scope, stream.name).read(plan_slices(snapshot, ranges, 1 << 30)):
        for first, length in zip(events.starts.tolist(), events.lengths.tolist(), strict=True):
            found.append(bytes(events.data[first + 8 : first + 8 + length]).decode())
    return found


def after(stream: Stream, cut: StreamCut) -> list[str]:
    return sorted(between(stream, cut, stream.snapshot().tail_cut()))


# --- positions ---------------------------------------------------------------------------------------------------


@either_way
def test_the_first_write_after_a_restore_opens_segments_with_the_same_key_ranges(history: History) -> None:
    write(history.stream, *OLD)
    before = history.stream.snapshot().record
    history.copy()
    write(history.stream, *LOST)
    history.lose()
    check(history.stream, *OLD)
    assert history.stream.snapshot().record.epochs == before.epochs, "nothing is done before something is written"
    write(history.stream, *NEW)
    now = history.stream.snapshot().record
    assert [s[1:] for s in now.current.segments] == [s[1:] for s in before.current.segments]
    assert now.current.epoch == before.current.epoch + 1
    assert min(segment_number(s.id) for s in now.current.segments) > 1 << 17
    write(history.stream, "h")
    assert history.stream.snapshot().record == now, "once in a generation"
    check(history.stream, *OLD, *NEW, "h")


USES: tuple[Callable[[Stream, StreamCut], object], ...] = (
    after,
    lambda stream, cut: between(stream, stream.snapshot().head_cut(), cut),
    lambda stream, cut: stream.truncate(cut),
    lambda stream, cut: release(stream, "reader", cut),
    lambda stream, cut: lag(stream.snapshot(), cut),
)


@either_way
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cut_in_what_was_lost_is_refused_and_the_error_names_where_what_was_restored_ends(
    history: History, variant: str
) -> None:
    lost_scales, new_scales = VARIANTS[variant]
    write(history.stream, *OLD)
    kept = history.stream.snapshot().tail_cut()
    history.copy()
    write(history.stream, "c", "w")
    cuts = [history.stream.snapshot().tail_cut()]
    for scale in lost_scales:
        scale(history.stream)
        cuts.append(history.stream.snapshot().tail_cut())
        write(history.stream, *LOST)
        cuts.append(history.stream.snapshot().tail_cut())
    history.lose()
    refused(history.stream, cuts, kept)
    write(history.stream, *NEW, *NEW)
    for scale in new_scales:
        scale(history.stream)
        write(history.stream, *NEW, *NEW)
    refused(history.stream, cuts, kept)
    new = (*NEW, *NEW) * (1 + len(new_scales))
    assert after(history.stream, kept) == sorted(new), "a position in what was restored is one still"
    check(history.stream, *OLD, *new)


def refused(stream: Stream, cuts: Sequence[StreamCut], kept: StreamCut) -> None:
    """Whatever the cuts are used for, the error says where what was restored ends."""
    for cut, use in product(cuts, USES):
        with pytest.raises(PositionLost, match="before the root was restored or a container recovered") as error:
            use(stream, cut)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
        assert error.value.restored is not None
        assert error.value.restored in str(error.value)
        assert StreamCut.from_text(error.value.restored) == kept


def test_a_cut_in_what_was_lost_of_a_segment_that_is_truncated_now_is_refused(history: History) -> None:
    write(history.stream, *OLD)
    history.copy()
    write(history.stream, *LOST)
    cut = history.stream.snapshot().tail_cut()
    history.lose()
    write(history.stream, *NEW)
    [*_, begun] = history.stream.snapshot().record.epochs
    history.stream.truncate(StreamCut("sc", "st", {segment.id: 0 for segment in begun.segments}))
    with pytest.raises(PositionLost, match="now truncated, ended at 18"):
        after(history.stream, cut)


def test_a_cut_of_which_a_part_was_restored_is_set_back_only_where_it_was_lost(history: History) -> None:
    write(history.stream, "a", "b", "z")
    history.copy()
    history.stream.write(parts(history.stream.snapshot().record.routing, "y"))
    tail = history.stream.snapshot().tail_cut()
    first, second = tail.positions
    cut = StreamCut("sc", "st", {first: 9, second: tail.positions[second]})
    history.lose()
    write(history.stream, *NEW)
    with pytest.raises(PositionLost) as error:
        after(history.stream, cut)
    assert error.value.restored is not None
    assert after(history.stream, StreamCut.from_text(error.value.restored)) == sorted(["b", *NEW])


def test_a_position_lost_in_an_earlier_restore_is_recognised_after_another_one(tmp_path: Path) -> None:
    """Where it may have been lost in several of them, it is set back to the first: all that came since is behind it."""
    history = History(tmp_path, "recovered")
    write(history.stream, "a", "z")
    ends, cuts = [history.stream.snapshot().tail_cut()], []
    for _ in range(2):
        history.copy()
        split(history.stream)
        write(history.stream, *LOST)
        cuts.append(history.stream.snapshot().tail_cut())
        last = history.stream.snapshot().record.current.segments[-1]
        history.stream.scale([last.id], [(last.low, last.high)])
        write(history.stream, *LOST)
        cuts.append(history.stream.snapshot().tail_cut())
        history.lose()
        write(history.stream, *NEW)
        ends.append(history.stream.snapshot().tail_cut())
    for cut, expected in zip(cuts, (ends[0], ends[0], ends[1], ends[0]), strict=True):
        with pytest.raises(PositionLost) as error:
            after(history.stream, cut)
        assert error.value.restored is not None
        assert StreamCut.from_text(error.value.restored) == expected
    history.root.close()


@either_way
def test_a_cut_of_a_lost_stream_is_none_of_a_new_stream_of_its_name(history: History) -> None:
    history.copy()
    lost = Stream(history.root, "sc", "new")
    lost.create()
    write(lost, *OLD)
    cut = lost.snapshot().tail_cut()
    history.lose()
    made = Stream(history.root, "sc", "new")
    made.create()
    write(made, *NEW, *NEW)
    with pytest.raises(CutOfDeletedStream, match="lost when the root was restored"):
        after(made, cut)
    check(made, *NEW, *NEW)


def test_a_cut_of_a_lost_stream_is_none_of_one_that_was_deleted_and_made_again(history: History) -> None:
    write(history.stream, "a")
    history.copy()
    cuts = []
    for _ in range(2):
        history.stream.seal()
        history.stream.delete()
        history.stream.create(ScalingPolicy(min_segments=2))
        write(history.stream, *OLD)
        cuts.append(history.stream.snapshot().tail_cut())
        if len(cuts) == 1:
            history.lose()
    write(history.stream, *NEW)
    with pytest.raises(CutOfDeletedStream):
        after(history.stream, cuts[0])
    assert after(history.stream, cuts[1]) == sorted(NEW)


def test_a_pointer_to_a_lost_event_reads_no_other_event(history: History) -> None:
    write(history.stream, *OLD)
    [first, *_] = history.stream.snapshot().record.current.segments
    kept = EventPointer("sc", "st", first.id, 0, 9)
    history.copy()
    write(history.stream, *LOST)
    lost = EventPointer("sc", "st", first.id, 18, 9)
    assert bytes(EventPayload.at(history.root, lost).read(0, 1)) == b"c"
    split(history.stream)
    write(history.stream, *LOST)
    unknown = EventPointer("sc", "st", history.stream.snapshot().record.current.segments[0].id, 0, 9)
    assert bytes(EventPayload.at(history.root, unknown).read(0, 1)) == b"c"
    history.lose()
    split(history.stream)
    write(history.stream, *NEW, *NEW, *NEW)
    assert bytes(EventPayload.at(history.root, kept).read(0, 1)) == b"a"
    with pytest.raises(InvalidEventPointer, match="restored or a container recovered"):
        EventPayload.at(history.root, lost)
    with pytest.raises(NoSuchEvent, match="restored or a container recovered"):
        EventPayload.at(history.root, unknown)


def test_a_subscriber_restored_with_its_stream_goes_on(history: History) -> None:
    subscribe(history.stream, "reader", history.stream.snapshot().head_cut())
    write(history.stream, *OLD)
    kept = history.stream.snapshot().tail_cut()
    history.copy()
    release(history.stream, "reader", kept)
    write(history.stream, *LOST)
    release(history.stream, "reader", history.stream.snapshot().tail_cut())
    history.lose()
    write(history.stream, *NEW)
    release(history.stream, "reader", kept)
    release(history.stream, "reader", history.stream.snapshot().tail_cut())


def test_a_sealed_stream_is_left_as_it_is(history: History) -> None:
    write(history.stream, *OLD)
    history.stream.seal()
    history.copy()
    record = history.stream.snapshot().record
    history.lose()
    history.stream.begin_generation()
    assert history.stream.snapshot().record.epochs == record.epochs
    check(history.stream, *OLD)


def test_a_scale_as_the_first_change_begins_the_generation_in_the_same_append(history: History) -> None:
    write(history.stream, *OLD)
    history.copy()
    split(history.stream)
    write(history.stream, *LOST)
    lost = history.stream.snapshot()
    cut = lost.tail_cut()
    history.lose()
    epoch = history.stream.snapshot().record.current.epoch
    split(history.stream)
    found = history.stream.snapshot().record
    assert found.current.epoch == epoch + 1
    assert [s[1:] for s in found.current.segments] == [s[1:] for s in lost.record.current.segments]
    assert not {s.id for s in found.current.segments} & set(lost.record.history.segments)
    write(history.stream, *NEW)
    assert history.stream.snapshot().record == found
    with pytest.raises(PositionLost):
        after(history.stream, cut)
    check(history.stream, *OLD, *NEW)


def test_segment_numbers_that_are_used_up_are_an_error(history: History) -> None:
    with pytest.raises(InvalidScale, match="stream sc/st: its segment numbers, up to 2147483647, are used up"):
        after_gap("sc/st", (1 << 31) - (1 << 17), 1)


# --- producers ---------------------------------------------------------------------------------------------------


def number(stream: Stream, writer: str, value: int, event: str, accept: bool = False) -> bool:
    routing: Routing = stream.snapshot().record.routing
    return stream.write(parts(routing, event), ProducerWrite(writer, value, accept_lost=accept), routing)


@either_way
def test_a_producer_whose_writes_were_lost_is_refused_until_it_writes_them_again(
    history: History,
) -> None:
    for value in range(3):
        number(history.stream, "job", value, "a")
    number(history.stream, "other", 7, "a")
    history.copy()
    for value in (3, 4):
        number(history.stream, "job", value, "b")
    history.lose()
    with pytest.raises(WritesLost, match="write 5 of 'job' was rejected, as its last stored write is 2") as error:
        number(history.stream, "job", 5, "c")
    assert "its writes 3 to 4" in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert (error.value.number, error.value.remembered) == (5, 2)
    check(history.stream, "a", "a", "a", "a")
    assert not number(history.stream, "job", 2, "a"), "a replay is one still"
    for value in (3, 4, 5):
        assert number(history.stream, "job", value, "b")
        assert not number(history.stream, "job", value, "b")
    assert number(history.stream, "other", 8, "a")
    history.root.container(0).flush()
    assert number(history.stream, "job", 9, "b"), "a gap in the same generation is the producer's own"
    assert number(history.stream, "new", 0, "b")
    with pytest.raises(WritesLost, match="write 2 of 'newer' was rejected, as none of its writes is stored"):
        number(history.stream, "newer", 2, "b")


def test_a_producer_may_go_on_without_its_lost_writes(history: History, caplog: pytest.LogCaptureFixture) -> None:
    number(history.stream, "job", 0, "a")
    history.copy()
    number(history.stream, "job", 1, "b")
    history.lose()
    assert number(history.stream, "job", 2, "c", accept=True)
    assert "write 2 of 'job'" in caplog.text
    assert "accept_lost_batches" in caplog.text
    assert number(history.stream, "job", 4, "d")
    assert not number(history.stream, "job", 2, "c", accept=True)
    check(history.stream, "a", "c", "d")


def test_each_generation_refuses_a_gap_anew(tmp_path: Path) -> None:
    history = History(tmp_path, "recovered")
    number(history.stream, "job", 0, "a")
    for last in (0, 1):
        history.copy()
        number(history.stream, "job", last + 1, "b", accept=True)
        history.lose()
        with pytest.raises(WritesLost):
            number(history.stream, "job", last + 2, "c")
        assert number(history.stream, "job", last + 1, "d")
    check(history.stream, "a", "d", "d")
    history.root.close()


def test_a_producer_that_is_refused_in_one_stream_writes_nothing_to_another(history: History) -> None:
    other = Stream(history.root, "sc", "other")
    other.create()
    number(history.stream, "job", 0, "a")
    number(other, "job", 1, "a")
    history.copy()
    number(history.stream, "job", 1, "b")
    history.lose()
    other = Stream(history.root, "sc", "other")
    writes = []
    for stream in (other, history.stream):
        routing = stream.snapshot().record.routing
        writes.append(StreamWrite(stream, [(routing, parts(routing, "c"))], ProducerWrite("job", 2, Digest())))
    with pytest.raises(WritesLost, match="Stream sc/st"):
        write_together(writes)
    check(history.stream, "a")
    check(other, "a")


# --- whatever writes first -----------------------------------------------------------------------------------------

KEY = next(key for key in map(str, range(100)) if hash_key(key) < 0.5)
"""A key of the first segment."""


class Before:
    """A transaction and an upload that were begun before the copy, of the first segment."""

    def __init__(self, stream: Stream) -> None:
        self.transaction, record = transactions.begin(stream)
        self.transaction.write(parts(record.routing, "k", "l"))
        upload = uploads.begin(stream, KEY, "large")
        upload.attach(Payload(b"123456789"))
        upload.settle()


def begun_transaction(stream: Stream, before: Before) -> None:
    opened, record = transactions.begin(stream)
    opened.write(parts(record.routing, "k", "l"))
    opened.commit()


def begun_upload(stream: Stream, before: Before) -> None:
    upload = uploads.begin(stream, KEY)
    upload.attach(Payload(b"123456789"))
    upload.commit(move=False)


WRITES: dict[str, Callable[[Stream, Before], object]] = {
    "write": lambda stream, _: write(stream, "k", "l"),
    "producer": lambda stream, _: number(stream, "job", 0, "k"),
    "transaction": begun_transaction,
    "restored transaction": lambda stream, before: transactions.Transaction(stream, before.transaction.id).commit(),
    "small event": lambda stream, _: uploads.begin(stream, KEY).append(memoryview(event_header(3) + b"abc")),
    "large event": begun_upload,
    "restored large event": lambda stream, _: uploads.begin(stream, KEY, "large").commit(move=True),
    "scale": lambda stream, _: split(stream),
}


@pytest.mark.parametrize("way", WRITES)
def test_whatever_writes_first_begins_the_generation(history: History, way: str) -> None:
    """And grows the segment, if it is the old one, so that the position in what was lost would be believed."""
    write(history.stream, *OLD)
    before = Before(history.stream)
    history.copy()
    write(history.stream, "c")
    cut = history.stream.snapshot().tail_cut()
    history.lose()
    WRITES[way](history.stream, before)
    write(history.stream, "m", "n")
    with pytest.raises(PositionLost):
        after(history.stream, cut)


# --- what was begun before -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaled", [False, True])
def test_a_transaction_that_was_restored_commits_what_was_restored_of_it(history: History, scaled: bool) -> None:
    write(history.stream, *OLD)
    opened, record = transactions.begin(history.stream)
    opened.write(parts(record.routing, "c", "x"))
    history.copy()
    opened.write(parts(record.routing, "d"))
    lost, lost_record = transactions.begin(history.stream)
    lost.write(parts(lost_record.routing, "d"))
    lost.commit()
    cut = history.stream.snapshot().tail_cut()
    opened.commit()
    history.lose()
    if scaled:
        split(history.stream)
    transactions.Transaction(history.stream, opened.id).commit()
    with pytest.raises(TransactionNotFound):
        transactions.Transaction(history.stream, lost.id).commit()
    write(history.stream, *NEW)
    check(history.stream, *OLD, "c", "x", *NEW)
    with pytest.raises(PositionLost):
        after(history.stream, cut)


def test_epochs_of_a_rolling_transaction_after_a_restore_share_no_segment_with_lost_ones(history: History) -> None:
    """Before the restore a scale, then a rolling transaction; after it the transaction only: in the same epoch."""
    begun = [transactions.begin(history.stream) for _ in range(2)]
    for opened, record in begun:
        opened.write(parts(record.routing, "a", "z"))
    split(history.stream)
    history.copy()
    split(history.stream)
    begun[0][0].commit()
    lost = set(history.stream.snapshot().record.history.segments)
    history.lose()
    kept = set(history.stream.snapshot().record.history.segments)
    for opened, _ in begun:
        transactions.Transaction(history.stream, opened.id).commit()
    found = set(history.stream.snapshot().record.history.segments)
    assert found & lost == kept
    write(history.stream, *NEW)
    check(history.stream, "a", "z", "a", "z", *NEW)


def test_an_upload_that_was_restored_goes_on_with_what_was_restored_of_it(history: History) -> None:
    upload = uploads.begin(history.stream, "key", "large")
    upload.attach(Payload(b"12345"))
    upload.settle()
    history.copy()
    upload.attach(Payload(b"678"))
    upload.commit(move=True)
    history.lose()
    write(history.stream, *NEW)
    again = uploads.begin(history.stream, "key", "large")
    assert again.length == 5
    again.attach(Payload(b"xyz"))
    with pytest.raises(EventSegmentSealed):
        again.commit(move=False)
    pointer = again.commit(move=True)
    assert bytes(EventPayload.at(history.root, pointer).read(0, 8)) == b"12345xyz"
    assert sorted(read(history.stream)) == sorted([*NEW, "12345xyz"])
