"""What is run on every backend. A module per backend names these, and says in BACKEND and SERVER what they run on.

It has fixtures `place`, the root's URL and the options for it, and `store`, which is empty.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chunkstore import Outcome, Range, StorageRefused, Store, open_store, stamps
from chunkstore.backends.bucket import BucketStore
from chunkstore.selftest import self_test
from chunkstore.testing.contracts import StoreContract, WaysToCut, body
from tests.backends.racing import check, names_of, race_processes
from tests.spark.folder import read_all
from tests.support.adapters import adapter_of
from tests.support.cutting_proxy import CuttingProxy
from tests.support.cycles import frames_left
from tests.support.log_contracts import LogContract
from tests.support.segment_contracts import SegmentContract, World
from tests.support.servers import Server

Place = tuple[str, Mapping[str, Any]]


def new_place(server: Server) -> Place:
    """A folder of a new bucket on a server."""
    return f"{server.make_bucket()}/some/folder", server.storage_options()


def new_obstore_place(server: Server) -> Place:
    """The same of a server of S3, for the client obstore."""
    url, options = new_place(server)
    return url, {**options, "client": "obstore"}


def opened(place: Place) -> Iterator[Store]:
    """The store there, closed at the end."""
    store = open_store(*place)
    yield store
    store.close()


def empty(store: Store) -> None:
    """Delete all objects."""
    store.delete([info.path for info in store.list("")])


def cut_connections(server: Server, place: Place) -> Iterator[WaysToCut]:
    """Ways to cut listings: before an answer, in its middle, in a later page; in order or by a reset."""
    with CuttingProxy(server) as proxy:
        url, options = proxy.through(*place)
        if url.startswith("s3:"):
            options["config_kwargs"] = {"retries": {"max_attempts": 0}}
        store = open_store(url, options)
        adapter = adapter_of(store)
        if isinstance(adapter, BucketStore):
            adapter.page, adapter.first_pause = 4, 0.001

        @contextmanager
        def cut(after: int, reset: bool) -> Iterator[Store]:
            store.list("")  # it is the listing that is cut, and not the making of the connection
            before = proxy.cuts
            with proxy.cut(after, reset=reset):
                yield store
            assert proxy.cuts > before

        yield [partial(cut, after, reset) for after in (0, 100, 900) for reset in (False, True)]
        store.close()


@pytest.mark.suite("storage port")
class Port(StoreContract):
    """Every verb of the port, alone and in races of threads."""

    def test_what_is_absent_leaves_nothing_to_pythons_collector(self, store: Store) -> None:
        """A follower asks for what is not there yet again and again. Frames in cycles would keep what they hold."""
        store.put("other", b"")
        requests: list[Callable[[], object]] = [
            lambda: store.read_ranges([Range("absent"), Range("absent/too")]),
            lambda: store.read("absent"),
            lambda: store.stat("absent"),
            lambda: store.delete(["absent"]),
        ]
        # The first request of a kind may open a connection.
        assert [min(frames_left(request) for _ in range(2)) for request in requests] == [0, 0, 0, 0]


@pytest.mark.long
class Segments(SegmentContract):
    """Segments of chunks: written, read, merged, truncated, taken over, collected. On folders and in memory they are
    tried with the chunk store's own tests."""

    @pytest.fixture
    def world(self, store: Store) -> World:
        return World(store)


@pytest.mark.suite("self-test at the first opening")
class SelfTest:
    """The race that decides whether a root is accepted."""

    @pytest.mark.long
    def test_it_passes_on_a_new_root(self, place: Place) -> None:
        url, options = place
        store = open_store(f"{url}/new", options)
        self_test(store)
        assert store.list("") == []
        store.close()

    def test_it_leaves_nothing(self, store: Store) -> None:
        store.put("other", b"")
        self_test(store)
        assert [info.path for info in store.list("")] == ["other"]


@pytest.mark.usefixtures("store")  # which leaves the place empty
class RoundTrips:
    """What a request waits for: one answer, however far away the server is (P3). Only of buckets."""

    def test_each_verb_waits_for_one_answer(self, server: Server, place: Place) -> None:
        with CuttingProxy(server) as proxy:
            store = open_store(*proxy.through(*place))
            store.put("first", b"first")  # connections, credentials
            counts = {}
            requests: dict[str, Callable[[], object]] = {
                "put_if_absent": lambda: store.put_if_absent("created", body(b"x" * 1000)),
                "put": lambda: store.put("put", body(b"x" * 1000)),
                "post": lambda: store.post("posted", body(b"x" * 1000)),
                "read": lambda: store.read("created"),
                "range": lambda: store.read("created", 10, 20),
                "stat": lambda: store.stat("created"),
                "list": lambda: store.list(""),
                "delete": lambda: store.delete(["created"]),
            }
            for name, request in requests.items():
                before = proxy.round_trips
                request()
                counts[name] = proxy.round_trips - before
            store.close()
        assert set(counts.values()) == {1}, counts

    dated = True
    """Whether the client hands on the dates of responses."""

    def test_answers_carry_the_servers_time(self, store: Store) -> None:
        """A host that was stopped, with all of its clocks, learns of it without another request (W13)."""
        begun = time.time()
        with stamps.listening() as created:
            assert store.put_if_absent("dated", body()) is Outcome.MINE
        with stamps.listening() as read:
            assert store.read_ranges([Range("dated", 0, 1), Range("none", 0, 1)])[1] is None
        with stamps.listening() as absent:
            assert store.read_ranges([Range("none", 0, 1)]) == [None]
        for noted in (created, read, absent):
            assert (noted.latest is not None) is self.dated
            assert noted.latest is None or begun - 2 <= noted.latest <= time.time() + 2


@pytest.mark.suite("race of processes")
class Race:
    """Writers and readers in processes of their own."""

    names, writers, readers = 25, 3, 1

    def test_a_race(self, place: Place) -> None:
        names = names_of(self.names)
        check(*place, names, *race_processes(*place, names, self.writers, self.readers))

    @pytest.mark.processes
    def test_used_before_and_after_a_fork(self, store: Store) -> None:
        store.put("a", b"before")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which are of no concern here
            child = os.fork()
        if not child:
            good = False
            try:
                good = store.put_if_absent("c", body()) is Outcome.MINE and store.read("a") == b"before"
            finally:
                os._exit(0 if good else 1)
        assert store.put_if_absent("p", body()) is Outcome.MINE
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [info.path for info in store.list("")] == ["a", "c", "p"]

    @pytest.mark.long
    @pytest.mark.timeout(300)
    def test_a_long_race(self, place: Place) -> None:
        names = names_of(200)
        check(*place, names, *race_processes(*place, names, writers=8, readers=2))


class RaceOfSpawned(Race):
    """The same of a store that no fork survives."""

    @pytest.mark.processes
    def test_used_before_and_after_a_fork(self, store: Store) -> None:
        """The child is told at once, and the parent goes on."""
        store.put("a", b"before")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which are of no concern here
            child = os.fork()
        if not child:
            told = 0
            try:
                for verb, *arguments in ((store.read, "a"), (store.put, "c", b""), (store.list, "")):
                    try:
                        verb(*arguments)
                    except StorageRefused as error:
                        told += '"spawn"' in str(error)
                store.close()
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        store.put("p", b"after")
        assert [info.path for info in store.list("")] == ["a", "p"]


@pytest.mark.suite("write-ahead log")
class Wal(LogContract):
    """Frames, succession, boundaries, damage and repair."""


@pytest.mark.suite("Spark, batch and streaming")
class Spark:
    """One batch and one streaming round trip, with credentials as storage options."""

    @pytest.fixture
    def options(self, place: Place) -> dict[str, Any]:
        url, options = place
        storage = {f"storage.{name}": _text(value) for name, value in options.items()}
        return {"controller": f"{url}/streams", "scope": "s", "default_num_segments": 3, **storage}

    @pytest.mark.timeout(300)
    def test_batch_and_streaming(self, spark: SparkSession, options: dict[str, Any], tmp_path: Path) -> None:
        self.write(spark, "in", options)

        def copy() -> list[int]:
            source = spark.readStream.format("pravega").options(stream="in", start_stream_cut="earliest", **options)
            source = source.options(max_events_per_trigger=2_500, limit_first_batch=True)
            sink = source.load().selectExpr("event").writeStream.format("pravega").options(stream="out", **options)
            query = read_all(sink.option("checkpointLocation", str(tmp_path / "checkpoint")))
            return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

        assert copy() == [2_500, 1_600]
        assert copy() == []
        assert self.numbers(spark, "out", options) == list(range(4_100))

    def write(self, spark: SparkSession, stream: str, options: dict[str, Any]) -> None:
        """4,100 events by tasks of both kinds: with events in the log, and with chunks."""
        numbered = "cast(id AS string) AS event"
        small = spark.range(0, 100, 1, 2).selectExpr(numbered, "cast(id % 7 AS string) AS routing_key")
        large = spark.range(100, 4_100, 1, 2).selectExpr("concat(cast(id AS string), repeat('.', 200)) AS event")
        both = small.unionByName(large, allowMissingColumns=True)
        both.write.format("pravega").options(stream=stream, **options).mode("append").save()

    def numbers(self, spark: SparkSession, stream: str, options: dict[str, Any]) -> list[int]:
        """Those of the events of a stream, sorted."""
        frame = spark.read.format("pravega").options(stream=stream, **options).load()
        rows = frame.selectExpr("cast(split_part(cast(event AS string), '.', 1) AS int) AS id").collect()
        return sorted(row.id for row in rows)


class SparkBatch(Spark):
    """The same; in `make test-slow` the batch round trip only. A query takes several times as long, and on a folder and
    on S3 there is one in each run."""

    @pytest.mark.timeout(300)
    def test_batch(self, spark: SparkSession, options: dict[str, Any]) -> None:
        self.write(spark, "batch", options)
        assert self.numbers(spark, "batch", options) == list(range(4_100))

    @pytest.mark.long
    @pytest.mark.timeout(300)
    def test_batch_and_streaming(self, spark: SparkSession, options: dict[str, Any], tmp_path: Path) -> None:
        super().test_batch_and_streaming(spark, options, tmp_path)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
