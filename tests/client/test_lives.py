"""A stream that is deleted and created again under its name while something of the deleted one lives on (P4).

Each thing that may live on, with each way in which the new stream may look like the old one: it raises an error that
says so, or returns the right data. It never writes to the new stream, and takes no position of the old one for one
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from engine.root import Root
from pravega_spark import (
    ByteStreamError,
    CutOfDeletedStream,
    NoSuchEvent,
    StreamCut,
    StreamManager,
    StreamReaderGroupConfig,
    StreamRecreated,
    StreamRetentionPolicy,
    TransactionNotFound,
)
from pravega_spark.checks import verify_root
from pravega_spark.client.groups.group import StreamReaderGroup
from pravega_spark.client.groups.reader import StreamReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.offset import cut_of, cuts_of
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance import retention
from pravega_spark.streams.maintenance.subscribers import positions, subscribe
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.producer_state import ProducerWrite
from tests.client.groups.reading import next_slice, payloads

OLD = [f"old {number}" for number in range(20)]
NEW = [f"new {number}" for number in range(60)]


class Place(NamedTuple):
    """A stream of 20 events, which is going to be deleted and created again with 60."""

    manager: StreamManager
    root: Root
    folder: str

    @property
    def stream(self) -> Stream:
        return Catalog(self.root).stream("sc", "st")

    def events(self) -> list[str]:
        return sorted(event.data.decode() for event in self.manager.read_events("sc", "st"))

    def write(self, events: list[str]) -> None:
        with self.manager.create_writer("sc", "st") as writer:
            for event in events:
                writer.write_event(event, "key")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    folder = str(tmp_path / "root")
    root = Root.open(folder)
    with StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        found = Place(manager, root, folder)
        found.write(OLD)
        yield found


def grown(place: Place) -> None:
    """Longer than the old one was."""
    place.write(NEW)


def grown_scaled_and_truncated(place: Place) -> None:
    """With a head in epoch 1, so that what is of epoch 0 has been truncated, of whichever stream it is; and with
    everything in long-term storage, as the old one was before it was deleted."""
    (segment,) = place.manager.stream_info("sc", "st").segments
    place.manager.scale_stream("sc", "st", [segment.id], [(0.0, 1.0)])
    place.manager.truncate_stream("sc", "st", place.manager.stream_info("sc", "st").tail)
    place.write(NEW)
    place.stream.container.flush()


WAYS = [grown, grown_scaled_and_truncated]


def read(reader: StreamReader, count: int) -> list[str]:
    """So many events, or more."""
    found: list[str] = []
    while len(found) < count:
        part = next_slice(reader)
        found += payloads(part)
        reader.release_segment(part)
    return sorted(found)


def recreate(place: Place, way: Callable[[Place], None]) -> None:
    if way is grown_scaled_and_truncated:
        place.stream.container.flush()
    place.manager.seal_stream("sc", "st")
    place.manager.delete_stream("sc", "st")
    place.manager.create_stream("sc", "st")
    way(place)
    assert place.events() == sorted(NEW)


# --- what lives on: each returns what is done with it once its stream is another one ---------------------------------


def writer(place: Place) -> Callable[[], None]:
    kept = place.manager.create_writer("sc", "st")
    kept.write_event("old one", "key")
    kept.flush()

    def use() -> None:
        kept.write_event("lost", "key")
        with pytest.raises(StreamRecreated, match="sc/st was deleted, and another one was created under its name"):
            kept.flush()
        kept.close()

    return use


def writer_of_columns(place: Place) -> Callable[[], None]:
    """Whose batch goes to chunks first."""
    kept = place.manager.create_writer("sc", "st")

    def use() -> None:
        kept.write_events(pa.array([b"x" * 1000] * 6000), None)
        with pytest.raises(StreamRecreated):
            kept.flush()
        kept.close()

    return use


def writer_of_times(place: Place) -> Callable[[], None]:
    """The new stream has no time, and gets none of the old one's writers."""
    kept = place.manager.create_writer("sc", "st")
    kept.note_time(100)
    transactions = place.manager.create_transaction_writer("sc", "st")
    transactions.begin_txn().commit(100)

    def use() -> None:
        assert place.manager.time_window("sc", "st", "tail") == (None, None)
        with pytest.raises(StreamRecreated):
            kept.note_time(200)
        kept.close()
        transactions.begin_txn().commit(5)  # of the new stream, by name
        assert place.manager.time_window("sc", "st", "tail") == (5, None)

    return use


def routed_write(place: Place) -> Callable[[], None]:
    """As a Spark task routes its rows, and the driver commits them."""
    from pravega_spark.streams.model.framing import frame_column
    from pravega_spark.streams.writing.writes import segment_appends

    routing = place.stream.snapshot().record.routing
    framed = frame_column(pa.array([b"lost"]), None, 1)
    parts = segment_appends(framed.contents(), routing.segments, 0)

    def use() -> None:
        with pytest.raises(StreamRecreated):
            place.stream.write(parts, planned=routing)
        with pytest.raises(StreamRecreated):
            place.stream.write(parts, ProducerWrite("batch", 7), routing)

    return use


def named_producer(place: Place) -> Callable[[], None]:
    """The new stream remembers nothing of the old one's producers."""
    from pravega_spark.streams.model.framing import frame_column
    from pravega_spark.streams.writing.writes import segment_appends

    def write(event: bytes, number: int) -> bool:
        stream = place.stream
        framed = frame_column(pa.array([event]), None, 1)
        parts = segment_appends(framed.contents(), stream.snapshot().record.current.segments, 0)
        return stream.write(parts, ProducerWrite("producer", number))

    assert write(b"old", 5) and not write(b"old", 5)

    def use() -> None:
        assert not place.stream.is_committed(ProducerWrite("producer", 1))
        assert write(NEW[0].encode(), 1), "number 5 was the old stream's"
        last = place.manager.read_events("sc", "st").to_arrow(["event"]).column(0).to_pylist()
        assert sorted(last) == sorted([*map(str.encode, NEW), NEW[0].encode()])

    return use


def transaction(place: Place) -> Callable[[], None]:
    kept = place.manager.create_transaction_writer("sc", "st").begin_txn()
    kept.write_event("lost", "key")
    kept.flush()
    other = place.manager.create_transaction_writer("sc", "st").begin_txn()

    def use() -> None:
        for act in (kept.commit, kept.ping, kept.abort):
            with pytest.raises(TransactionNotFound):
                act()
        other.write_event("lost", "key")
        with pytest.raises(TransactionNotFound):
            other.commit()

    return use


def upload(place: Place) -> Callable[[], None]:
    named, unnamed = (place.manager.begin_event("sc", "st", "key", name=name) for name in ("one", None))
    for each in (named, unnamed):
        each.write(b"x" * (9 << 20))
    named.flush()

    def use() -> None:
        for each in (named, unnamed):
            with pytest.raises(StreamRecreated):
                each.commit()

    return use


def small_upload(place: Place) -> Callable[[], None]:
    kept = place.manager.begin_event("sc", "st", "key", name="one")

    def use() -> None:
        kept.write(b"lost")
        with pytest.raises(StreamRecreated):
            kept.commit()

    return use


def byte_stream(place: Place) -> Callable[[], None]:
    manager = place.manager
    manager.create_stream("sc", "bytes")
    kept = manager.create_byte_stream("sc", "bytes")
    kept.write(b"0123456789")
    kept.flush()

    def use() -> None:
        manager.seal_stream("sc", "bytes")
        manager.delete_stream("sc", "bytes")
        manager.create_stream("sc", "bytes")
        with manager.create_byte_stream("sc", "bytes") as other:
            other.write(b"abcdefghijklmn")
            other.flush()
            acts: list[Callable[[], Any]] = [lambda: kept.read(4), kept.current_tail_offset, lambda: kept.truncate(3)]
            for act in acts:
                with pytest.raises(ByteStreamError, match="was deleted"):
                    act()
            kept.write(b"lost")
            with pytest.raises(ByteStreamError, match="was deleted"):
                kept.flush()
            kept.close()
            assert other.read() == b"abcdefghijklmn"

    return use


def revisions(place: Place) -> Callable[[], None]:
    """The mark and the state of the old stream are none of the new one."""
    manager = place.manager
    kept = manager.create_revisioned_stream_client("sc", "st")
    latest = kept.fetch_latest_revision()
    assert kept.compare_and_set_mark(None, latest)

    def use() -> None:
        acts: list[Callable[[], Any]] = [
            lambda: kept.write_unconditionally(b"lost"),
            lambda: kept.write_conditionally(latest, b"lost"),
            lambda: kept.read_from(latest),
            kept.get_mark,
            lambda: kept.compare_and_set_mark(latest, None),
            lambda: kept.truncate_to_revision(latest),
        ]
        for act in acts:
            with pytest.raises(StreamRecreated):
                act()
        other = manager.create_revisioned_stream_client("sc", "st")
        assert other.get_mark() is None
        for use_old in (lambda: other.write_conditionally(latest, b"lost"), lambda: other.read_from(latest)):
            with pytest.raises(CutOfDeletedStream):
                use_old()

    return use


def follower(place: Place) -> Callable[[], None]:
    kept = place.manager.tail("sc", "st", "head", poll_interval=0.0)
    for _ in OLD:
        next(kept)

    def use() -> None:
        with pytest.raises(CutOfDeletedStream, match="sc/st"):
            next(kept)

    return use


def range_of_events(place: Place) -> Callable[[], None]:
    kept = place.manager.read_events("sc", "st")

    def use() -> None:
        left = [event.data.decode() for event in kept]  # what it had found is there until it is collected
        assert sorted(left) == sorted(OLD)
        with pytest.raises(StreamRecreated):
            kept.to_arrow()

    return use


def cuts(place: Place) -> Callable[[], None]:
    info = place.manager.stream_info("sc", "st")

    def use() -> None:
        manager = place.manager
        for cut in (info.head, info.tail):
            acts: list[Callable[[], Any]] = [
                partial(manager.read_events, "sc", "st", cut),
                partial(manager.tail, "sc", "st", cut),
                partial(manager.truncate_stream, "sc", "st", cut),
                partial(manager.lag, cut),
            ]
            for act in acts:
                with pytest.raises(CutOfDeletedStream, match=r"belongs to a stream that was deleted"):
                    act()

    return use


def pointer(place: Place) -> Callable[[], None]:
    found = next(place.manager.read_events("sc", "st")).pointer

    def use() -> None:
        with pytest.raises(NoSuchEvent):
            place.manager.open_event(found).read()

    return use


def group(place: Place, retention: Any = "none") -> Callable[[], None]:
    """Which reads on only after somebody has said where."""
    config = StreamReaderGroupConfig(False, "sc", "st", retention=retention)
    kept = place.manager.create_reader_group_with_config("rg", "sc", config)
    reader = kept.create_reader("one")
    assert read(reader, len(OLD)) == sorted(OLD)
    reader.reader_offline()

    def use() -> None:
        for opened in (kept, place.manager.create_reader_group_with_config("rg", "sc", config)):
            assert isinstance(opened, StreamReaderGroup)
            again = opened.create_reader("two")
            with pytest.raises(StreamRecreated, match="reset the reader group"):
                read(again, 1)
            again.reader_offline()
            with pytest.raises(CutOfDeletedStream):
                opened.unread_bytes()
            if retention == "manual":
                with pytest.raises(CutOfDeletedStream):
                    opened.update_retention_stream_cut(opened.stream_cuts()["sc/st"])
        kept.reset("head")
        reader = kept.create_reader("three")
        assert read(reader, len(NEW)) == sorted(NEW)
        reader.reader_offline()

    return use


def group_that_holds_back(place: Place) -> Callable[[], None]:
    return group(place, "automatic")


def group_with_checkpoint(place: Place) -> Callable[[], None]:
    kept = place.manager.create_reader_group("rg", "sc", "st")
    checkpoint = kept.checkpoint("then")

    def use() -> None:
        with pytest.raises(CutOfDeletedStream):
            kept.reset(checkpoint)

    return use


def query(place: Place) -> Callable[[], None]:
    """A streaming query, which is restarted from its checkpoint or runs on."""

    def started(**more: str) -> MicroBatchReader:
        given = {"controller": place.folder, "scope": "sc", "stream": "st", "start_stream_cut": "earliest", **more}
        return MicroBatchReader(SourceOptions.parse(given))

    kept = started()
    lenient = started(fail_on_data_loss="false")
    middle = kept.latestOffset(kept.initialOffset(), ReadAllAvailable())
    assert lenient.latestOffset(lenient.initialOffset(), ReadAllAvailable()) == middle

    def use() -> None:
        for reader in (kept, lenient, started(), started(fail_on_data_loss="false"), started(subscriber="q")):
            with pytest.raises(StreamRecreated, match="with a new checkpoint"):
                reader.latestOffset(middle, ReadAllAvailable())
        without_id = cut_of(middle).as_text()  # of a checkpoint that a Pravega's connector wrote
        for reader in (started(), started(fail_on_data_loss="false"), started(subscriber="q")):
            with pytest.raises(CutOfDeletedStream, match="give the query a checkpoint of its own"):
                reader.latestOffset(without_id, ReadAllAvailable())
        assert "query:q" not in positions(place.stream.snapshot()), "a refused query holds nothing back"

    return use


def query_of_several(place: Place) -> Callable[[], None]:
    """Which reads whatever streams there are: the new one joins at its head, where losses are no errors."""

    def started(fail: str) -> MicroBatchReader:
        given = {"controller": place.folder, "scope": "sc", "stream_pattern": "s.*", "start_stream_cut": "earliest"}
        return MicroBatchReader(SourceOptions.parse({**given, "fail_on_data_loss": fail}))

    kept = started("false")
    middle = kept.latestOffset(kept.initialOffset(), ReadAllAvailable())

    def use() -> None:
        with pytest.raises(StreamRecreated):
            started("true").latestOffset(middle, ReadAllAvailable())
        assert kept.latestOffset(middle, ReadAllAvailable()) == {}
        joined = kept.latestOffset({}, ReadAllAvailable())
        assert cuts_of(joined) == {"st": place.stream.snapshot().head_cut()}
        without_id = {"st": cut_of(middle["st"]).as_text()}
        with pytest.raises(CutOfDeletedStream):
            started("true").latestOffset(without_id, ReadAllAvailable())
        forgotten = started("false").latestOffset(without_id, ReadAllAvailable())
        assert forgotten == {}
        assert kept.latestOffset(forgotten, ReadAllAvailable()) == joined

    return use


def recorded_cuts(place: Place) -> Callable[[], None]:
    """Those of the old stream say nothing of the new one."""
    stream = place.stream
    stream.update(retention=RetentionPolicy("time", 1000))
    now = int(stream.container.storage_clock.now() * 1000)
    retention.retain(stream, now, 0.0)

    def use() -> None:
        stream.update(retention=RetentionPolicy("time", 1000))
        found = retention.retain(stream, now + 5000, 0.0)
        assert found.truncated is None and found.recorded == stream.snapshot().tail_cut()
        assert place.events() == sorted(NEW)

    return use


LIVES = [
    writer,
    writer_of_columns,
    writer_of_times,
    routed_write,
    named_producer,
    transaction,
    upload,
    small_upload,
    byte_stream,
    revisions,
    follower,
    range_of_events,
    cuts,
    pointer,
    group,
    group_that_holds_back,
    group_with_checkpoint,
    query,
    query_of_several,
    recorded_cuts,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_what_outlives_its_stream_takes_no_other_for_it(
    life: Callable[[Place], Callable[[], None]], way: Callable[[Place], None], place: Place
) -> None:
    use = life(place)
    recreate(place, way)
    use()
    if life is not named_producer:
        assert place.events() == sorted(NEW)
    assert not verify_root(place.root, deep=True).errors


def test_a_query_does_not_take_a_stream_of_another_root_for_its_own(place: Place, tmp_path: Path) -> None:
    """The root made anew, with a stream of the same name that has grown past the checkpoint."""

    def started(folder: str) -> MicroBatchReader:
        given = {"controller": folder, "scope": "sc", "stream": "st", "start_stream_cut": "earliest"}
        return MicroBatchReader(SourceOptions.parse(given))

    reader = started(place.folder)
    middle = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert place.stream.snapshot().has(cut_of(middle)) and StreamCut.from_text(middle) == cut_of(middle)
    other = str(tmp_path / "other")
    with StreamManager(other) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        with manager.create_writer("sc", "st") as writer:
            writer.write_events(pa.array(NEW), ["key"] * len(NEW))
    for act in (
        lambda: started(other).latestOffset(middle, ReadAllAvailable()),
        lambda: started(other).partitions(middle, started(other).initialOffset()),
    ):
        with pytest.raises(StreamRecreated, match="with a new checkpoint"):
            act()
    assert reader.latestOffset(middle, ReadAllAvailable()) == middle


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_retention_keeps_everything_for_a_subscriber_whose_position_does_not_fit(
    way: Callable[[Place], None], place: Place
) -> None:
    released = place.manager.stream_info("sc", "st").tail
    recreate(place, way)
    stream = place.stream
    subscribe(stream, "query:a b", released)
    place.manager.set_retention("sc", "st", StreamRetentionPolicy("size", 1))
    found = retention.retain(stream, period=0.0)
    assert found.truncated is None and place.events() == sorted(NEW)
    assert "it waits for subscriber query:a b. The position of query:a b does not fit" in found.why
    assert "belongs to a stream that was deleted" in found.why
    assert "`pravega-spark stream unsubscribe sc/st 'query:a b' --yes`" in found.why
    info = place.manager.stream_info("sc", "st")
    assert info.subscribers["query:a b"].events == info.events
    assert (
        "belongs to a stream that was deleted" in info.unplaced["query:a b"]
        and info.unplaced["query:a b"] in info._repr_html_()
    )
    (finding,) = verify_root(place.root).findings
    assert finding.object == "subscriber sc/st/query:a b" and "unsubscribe sc/st 'query:a b' --yes" in finding.remedy
    assert place.manager.remove_subscriber("sc", "st", "query:a b")
    assert retention.retain(stream, period=0.0).why.startswith(("no recorded", "nothing lies"))
