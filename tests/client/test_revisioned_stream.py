"""Revisioned streams: what the tests of Pravega's client expect (RevisionedStreamClientTest, SerializationTest), and
what must hold of ours: scales, restores, damage, other readers."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import DataCorruption
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import PutEntry
from pravega_spark import (
    Closed,
    InvalidStreamCut,
    NotOneSegment,
    PositionLost,
    Revision,
    RevisionedStreamClient,
    Serializer,
    StreamManager,
    StreamNotFound,
    StreamRecreated,
    StreamSealed,
    TruncatedData,
)
from pravega_spark.checks import verify_root
from pravega_spark.streams.catalog import Catalog
from tests.restored import flush, restored

Client = RevisionedStreamClient[bytes]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    root = Root.open(str(tmp_path / "root"), settings=Settings(maintenance=False, threaded=False), containers=2)
    with StreamManager.over(root) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "one")
        yield opened


@pytest.fixture
def client(manager: StreamManager) -> Client:
    return manager.create_revisioned_stream_client("sc", "one")


def values(client: Client, start: Revision | None = None) -> list[bytes]:
    return [value for _, value in client.read_from(start or client.fetch_oldest_revision())]


def write(client: Client, *written: bytes) -> list[Revision]:
    """Write values; the latest revision after each."""
    found = []
    for value in written:
        client.write_unconditionally(value)
        found.append(client.fetch_latest_revision())
    return found


# --- as the original ------------------------------------------------------------------------------------------------


def test_a_read_ends_where_the_stream_ended_when_it_began(client: Client) -> None:
    start = client.fetch_latest_revision()
    write(client, b"a", b"b", b"c")
    reading = client.read_from(start)
    assert next(reading)[1] == b"a"
    client.write_unconditionally(b"d")
    assert next(reading)[1] == b"b"
    after, value = next(reading)
    assert value == b"c" and next(reading, None) is None
    assert values(client, after) == [b"d"]


def test_ranges(client: Client) -> None:
    oldest = client.fetch_oldest_revision()
    first, second, third = write(client, b"a", b"b", b"c")
    assert [value for _, value in client.read_range(oldest, second)] == [b"a", b"b"]
    assert list(client.read_range(oldest, oldest)) == []
    with pytest.raises(InvalidStreamCut, match="the end lies before the start"):
        client.read_range(second, oldest)
    client.truncate_to_revision(second)
    assert client.fetch_oldest_revision() == second
    with pytest.raises(TruncatedData):
        client.read_range(first, third)


def test_a_conditional_write_needs_the_latest_revision(client: Client) -> None:
    [known] = write(client, b"a")
    after = client.write_conditionally(known, b"b")
    assert after is not None and after > known and client.fetch_latest_revision() == after
    assert client.write_conditionally(known, b"fail") is None
    assert client.fetch_latest_revision() == after
    assert list(client.read_from(known)) == [(after, b"b")]
    beyond = after._replace(offset=after.offset + 1)
    assert client.write_conditionally(beyond, b"fail") is None and values(client) == [b"a", b"b"]


def test_the_mark_is_compared_and_set(client: Client) -> None:
    first, second, third = write(client, b"a", b"b", b"c")
    assert client.get_mark() is None
    assert client.compare_and_set_mark(None, first) and client.get_mark() == first
    assert not client.compare_and_set_mark(None, second)
    assert client.compare_and_set_mark(first, second) and client.get_mark() == second
    assert not client.compare_and_set_mark(first, third) and client.get_mark() == second
    assert client.compare_and_set_mark(second, third) and client.get_mark() == third
    assert client.compare_and_set_mark(third, first) and client.get_mark() == first, "also to an earlier place"
    assert client.compare_and_set_mark(first, None) and client.get_mark() is None
    assert client.compare_and_set_mark(None, second) and client.get_mark() == second


def test_values_before_the_place_of_a_truncation_are_gone(client: Client) -> None:
    start = client.fetch_latest_revision()
    first, _, third = write(client, b"a", b"b", b"c")
    client.truncate_to_revision(start)
    assert client.fetch_oldest_revision() == start
    client.truncate_to_revision(first)
    assert client.fetch_oldest_revision() == first
    client.truncate_to_revision(start)
    assert client.fetch_oldest_revision() == first
    with pytest.raises(TruncatedData, match=r"sc/one, segment 0\.0: the data between offsets 0 and 9"):
        client.read_from(start)
    reading = client.read_from(first)
    assert next(reading)[1] == b"b"
    client.truncate_to_revision(third)
    assert list(client.read_from(third)) == [] and client.fetch_oldest_revision() == third
    with pytest.raises(InvalidStreamCut, match="begins at offset"):
        client.write_unconditionally(b"long")
        client.truncate_to_revision(third._replace(offset=third.offset + 1))


def test_a_stream_that_cannot_be_revisioned(manager: StreamManager) -> None:
    with pytest.raises(StreamNotFound, match="Did you mean 'sc/one'"):
        manager.create_revisioned_stream_client("sc", "ones")
    manager.create_stream("sc", "two", 2)
    with pytest.raises(NotOneSegment, match=r"sc/two has.* 2 segments"):
        manager.create_revisioned_stream_client("sc", "two")
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed):
        manager.create_revisioned_stream_client("sc", "one")


def test_a_sealed_stream_is_read_and_not_written(manager: StreamManager, client: Client) -> None:
    [latest] = write(client, b"a")
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed):
        client.write_unconditionally(b"b")
    with pytest.raises(StreamSealed):
        client.write_conditionally(latest, b"b")
    assert values(client) == [b"a"]


def test_a_revision_as_text(client: Client) -> None:
    revision = Revision("sc", "one", 0, 2, 3)
    assert revision.as_text() == str(revision) == "sc/one/0.#epoch.0:2:3", "as the original writes it"
    assert Revision.from_text(revision.as_text()) == revision == pickle.loads(pickle.dumps(revision))
    assert Revision.from_text("sc/one/7.#epoch.2:10:0") == Revision("sc", "one", (2 << 32) + 7, 10)
    for wrong in ("", "sc/one/0.#epoch.0", "sc/one/0.#epoch.0:1", "sc/one:1:0", "sc/one/0.#epoch.0:-1:0", "a:b:c"):
        with pytest.raises(ValueError, match=r"is not a (revision|segment name)"):
            Revision.from_text(wrong)


# --- values ---------------------------------------------------------------------------------------------------------


def test_values_of_a_serializer(manager: StreamManager) -> None:
    texts = Serializer(lambda value: json.dumps(value).encode(), lambda data: json.loads(data))
    client = manager.create_revisioned_stream_client("sc", "one", texts)
    client.write_unconditionally({"a": 1})
    assert [value for _, value in client.read_from(client.fetch_oldest_revision())] == [{"a": 1}]
    with pytest.raises(TypeError, match="Serializer: deserialize must be a function, not 'loads'"):
        Serializer(json.dumps, "loads")  # type: ignore[arg-type]
    other = manager.create_revisioned_stream_client("sc", "one", Serializer(json.dumps, json.loads))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the serializer must return bytes, not str"):
        other.write_unconditionally("text")


def test_large_values(client: Client) -> None:
    [revision] = write(client, b"x" * (8 << 20))
    assert values(client) == [b"x" * (8 << 20)]
    for call in (client.write_unconditionally, lambda value: client.write_conditionally(revision, value)):
        with pytest.raises(ValueError, match="keep large values elsewhere"):
            call(b"x" * (8 << 20) + b"x")
    assert client.write_conditionally(revision, b"") is not None and values(client, revision) == [b""]


def test_values_are_events_of_the_stream(manager: StreamManager, client: Client) -> None:
    [revision] = write(client, b"a")
    assert client.write_conditionally(revision, b"b")
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("c")
    assert [event.data for event in manager.read_events("sc", "one")] == [b"a", b"b", b"c"] == values(client)
    assert manager.stream_info("sc", "one").events == 3
    assert [event.data for event in manager.last_events("sc", "one", 2)] == [b"b", b"c"]
    manager.root.container(0).flush()
    assert verify_root(manager.root, deep=True).errors == 0 and values(client) == [b"a", b"b", b"c"]


# --- other lives and epochs -----------------------------------------------------------------------------------------


def test_revisions_go_on_in_the_next_segment_of_a_scaled_stream(manager: StreamManager, client: Client) -> None:
    start = client.fetch_oldest_revision()
    first, second = write(client, b"a", b"b")
    assert client.compare_and_set_mark(None, first)
    manager.scale_stream("sc", "one", [0], [(0.0, 1.0)])
    beginning = client.fetch_latest_revision()
    assert beginning > second and beginning.offset == 0
    assert client.write_conditionally(first, b"fail") is None
    third = client.write_conditionally(second, b"c")
    assert third is not None and third > beginning
    assert client.write_conditionally(second, b"fail") is None and client.write_conditionally(beginning, b"f") is None
    client.write_unconditionally(b"d")
    assert values(client) == [b"a", b"b", b"c", b"d"] and values(client, second) == [b"c", b"d"]
    assert client.bytes_before(client.fetch_latest_revision()) == 36 and client.bytes_before(second) == 18
    assert client.get_mark() == first
    client.truncate_to_revision(third)
    assert client.fetch_oldest_revision() == third and values(client) == [b"d"]
    client.truncate_to_revision(first)
    with pytest.raises(TruncatedData):
        client.read_from(start)
    assert client.write_conditionally(second, b"fail") is None
    segment = manager.stream_info("sc", "one").segments[0].id
    manager.scale_stream("sc", "one", [segment], [(0.0, 0.5), (0.5, 1.0)])
    for call in (client.fetch_latest_revision, client.get_mark, lambda: client.write_unconditionally(b"e")):
        with pytest.raises(NotOneSegment):
            call()


def test_a_writer_that_does_not_know_of_a_scale_yet(tmp_path: Path, manager: StreamManager, client: Client) -> None:
    [latest] = write(client, b"a")
    with StreamManager(str(tmp_path / "root")) as other:
        other.scale_stream("sc", "one", [0], [(0.0, 1.0)])
    after = client.write_conditionally(latest, b"b")
    assert after is not None and values(client) == [b"a", b"b"]
    with StreamManager(str(tmp_path / "root")) as other:
        other.scale_stream("sc", "one", [after.segment_id], [(0.0, 1.0)])
    client.write_unconditionally(b"c")
    assert values(client) == [b"a", b"b", b"c"]


def test_a_stream_of_the_same_name_is_another_one(manager: StreamManager, client: Client) -> None:
    [revision] = write(client, b"a")
    assert client.compare_and_set_mark(None, revision)
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")
    with pytest.raises(StreamNotFound):
        client.fetch_latest_revision()
    manager.create_stream("sc", "one")
    for call in (
        client.fetch_latest_revision,
        client.get_mark,
        lambda: client.write_unconditionally(b"lost"),
        lambda: client.write_conditionally(revision, b"lost"),
        lambda: client.compare_and_set_mark(None, revision),
        lambda: client.truncate_to_revision(revision),
        lambda: client.read_from(revision),
    ):
        with pytest.raises(StreamRecreated):
            call()
    other = manager.create_revisioned_stream_client("sc", "one")
    assert other.get_mark() is None and values(other) == []
    for call in (
        lambda: other.write_conditionally(revision, b"lost"),
        lambda: other.compare_and_set_mark(None, revision),
        lambda: other.truncate_to_revision(revision),
        lambda: other.read_from(revision),
    ):
        with pytest.raises(InvalidStreamCut, match="belongs to a stream that was deleted"):
            call()


def test_revisions_of_another_stream_are_refused(manager: StreamManager, client: Client) -> None:
    manager.create_stream("sc", "two")
    foreign = manager.create_revisioned_stream_client("sc", "two").fetch_latest_revision()
    for call in (
        lambda: client.write_conditionally(foreign, b"lost"),
        lambda: client.compare_and_set_mark(None, foreign),
        lambda: client.truncate_to_revision(foreign),
        lambda: client.read_from(foreign),
        lambda: client.write_conditionally(Revision("sc", "one", 0, -1), b"lost"),
    ):
        with pytest.raises(InvalidStreamCut):
            call()
    assert values(client) == []


def test_what_a_restore_has_lost_is_no_revision_of_the_restored_stream(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with StreamManager.over(Root.open(str(source), containers=2)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        client = manager.create_revisioned_stream_client("sc", "one")
        [kept] = write(client, b"a")
        assert client.compare_and_set_mark(None, kept)
    flush(source)
    with StreamManager(str(source)) as manager:
        [lost] = write(manager.create_revisioned_stream_client("sc", "one"), b"b")
    restored(source, tmp_path / "restored")
    with StreamManager(str(tmp_path / "restored")) as manager:
        client = manager.create_revisioned_stream_client("sc", "one")
        assert client.get_mark() == kept == client.fetch_latest_revision()
        after = client.write_conditionally(kept, b"c")
        assert after is not None and after.segment_id != kept.segment_id, "no lost value ever had this revision"
        assert values(client) == [b"a", b"c"]
        for call in (
            lambda: client.write_conditionally(lost, b"d"),
            lambda: client.read_from(lost),
            lambda: client.compare_and_set_mark(kept, lost),
        ):
            with pytest.raises(PositionLost):
                call()


# --- the rest -------------------------------------------------------------------------------------------------------


def test_a_damaged_mark_is_named_and_replaced(manager: StreamManager, client: Client) -> None:
    [revision] = write(client, b"a")
    container = Catalog(manager.root).stream("sc", "one").container
    for damage in (b"no cut", Revision("sc", "two", 0, 0).cut.to_bytes(), b""):
        container.commit([PutEntry("_system/marks", "sc/one/mark", damage)])
        with pytest.raises(DataCorruption, match=r"the mark of stream sc/one: .*compare_and_set_mark\(None, …\)"):
            client.get_mark()
        with pytest.raises(DataCorruption):
            client.compare_and_set_mark(revision, None)
        (finding,) = verify_root(manager.root).findings
        assert "the mark of stream sc/one" in str(finding)
        assert client.compare_and_set_mark(None, revision) and client.get_mark() == revision
    assert verify_root(manager.root).errors == 0


def test_closed(manager: StreamManager) -> None:
    with manager.create_revisioned_stream_client("sc", "one") as client:
        client.write_unconditionally(b"a")
        latest, reading = client.fetch_latest_revision(), client.read_from(client.fetch_oldest_revision())
    for call in (client.fetch_latest_revision, client.get_mark, lambda: next(reading), client.__enter__):
        with pytest.raises(Closed, match="this revisioned client of stream sc/one is closed"):
            call()
    other = manager.create_revisioned_stream_client("sc", "one")
    manager.close()
    with pytest.raises(Closed, match="this manager"):
        other.write_conditionally(latest, b"b")


def test_of_several_threads_that_know_one_revision_one_writes(client: Client) -> None:
    won: list[list[int]] = []

    def work(name: int) -> None:
        found = []
        for _ in range(10):
            while True:
                latest = client.fetch_latest_revision()
                if client.write_conditionally(latest, b"%d" % name) is not None:
                    found.append(latest.offset)
                    break
        won.append(found)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    places = [offset for found in won for offset in found]
    assert sorted(places) == [9 * number for number in range(40)] and len(values(client)) == 40
