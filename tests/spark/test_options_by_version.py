"""What each option does in each of its uses, observed with the Spark that runs: docs/spark-options-by-version.md.

A probe covers options of one kind, in one use. It fails if an option has no effect, or another one than any version is
known to have; then it returns what the page says of it. Probes of what is the same with every version are long tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from engine.admin.backups import back_up, restore
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.source.option_table import METADATA_TABLES, OPTIONS, Use
from pravega_spark.source.tables import table_schema
from pravega_spark.streams.maintenance.subscribers import query_subscriber, subscribers
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from tests.archives import CHUNKED, ROLLING, case, laid_out
from tests.options_by_version import FLAG, PAGE, PROPERTY, columns_of, with_columns
from tests.spark.option_lab import READING, ROWS, WRITING, AnyUse, Lab, refusal, refused, settle, sizes

YES = "yes"
ACCEPTED = "accepted, has no effect"
FROM_SECOND = "limited: from the second batch of a run on"
NOT_NEEDED = "not needed: limits always hold"
NO_FILTERS = "no effect: this Spark pushes no filters down"
ALL_COLUMNS = "limited: an INSERT has to give all columns"
NOT_KEPT = "limited: not kept with a table, give it when the table is read"
REFUSED = "refused"

Outcome = Mapping[str, str] | None
"""What the page says of the options that a probe covers; None: each of them works."""

Observe = Callable[[Lab, AnyUse], Outcome]


class Probe(NamedTuple):
    """What is observed of some options in a use. varies: what they do depends on the version of Spark."""

    options: tuple[str, ...]
    observe: Observe
    use: AnyUse
    varies: bool

    def __str__(self) -> str:
        return f"{self.observe.__name__}-{self.use.replace(' ', '-')}"


PROBES: list[Probe] = []


def probe(*options: str, uses: tuple[AnyUse, ...], varies: bool = False) -> Callable[[Observe], Observe]:
    """What a function observes: these options, in each of these uses."""

    def register(observe: Observe) -> Observe:
        PROBES.extend(Probe(options, observe, use, varies) for use in uses)
        return observe

    return register


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(spark, tmp_path, containers=1)
    yield lab
    lab.root.close()


# --- where, and what is created ----------------------------------------------------------------------------------


@probe("controller", "scope", "stream", "path", uses=READING)
def the_right_stream_is_read(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(3)
    lab.fill(5, stream="u")
    lab.fill(7, scope="z")
    assert lab.count(use) == 3
    assert lab.count(use, controller=None, path=lab.url, stream="u") == 5
    assert lab.count(use, scope="z") == 7
    return None


@probe("controller", "scope", "stream", "path", uses=WRITING)
def the_right_stream_is_written(lab: Lab, use: AnyUse) -> Outcome:
    lab.put_by(use, "a")
    lab.put_by(use, "b", controller=None, path=lab.url, stream="u", scope="z")
    assert (lab.events(), lab.events("u", scope="z")) == (["a"], ["b"])
    return None


@probe("storage.<name>", uses=READING)
def a_storage_option_reaches_the_storage(lab: Lab, use: AnyUse) -> Outcome:
    """A folder takes none, and says so. (tests/backends has storages that do.)"""
    lab.fill(3)
    given = {"storage.mine": "1"}
    if use == "table":
        with lab.table(**given) as name:
            assert lab.spark.table(name).count() == 3
            refused("'mine'", lab.spark.read.options(**given).table(name).count)
        return {"storage.<name>": NOT_KEPT}
    refused("'mine'", lambda: lab.count(use, **given))
    return None


@probe("storage.<name>", uses=("batch write", "stream write"))
def a_storage_option_of_a_write_reaches_the_storage(lab: Lab, use: AnyUse) -> Outcome:
    refused("'mine'", lambda: lab.put_by(use, "a", **{"storage.mine": "1"}))
    return None


@probe("settings", uses=READING)
def settings_of_a_read(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(3)
    assert lab.count(use, settings="cache_bytes=1MiB") == 3
    refused("'cash'", lambda: lab.count(use, settings="cash=1"))
    return None


@probe("settings", uses=WRITING)
def settings_of_a_write(lab: Lab, use: AnyUse) -> Outcome:
    lab.put_by(use, "a", settings="flush_frames=5")
    refused("'cash'", lambda: lab.put_by(use, "b", settings="cash=1"))
    assert lab.events() == ["a"]
    return None


@probe("wal", uses=READING)
def the_log_is_read_elsewhere(lab: Lab, use: AnyUse) -> Outcome:
    lab.root.close()
    lab.url, wal = str(lab.path / "apart"), str(lab.path / "wal")
    lab.root = Root.open(lab.url, wal=wal, containers=1)
    lab.fill(3, wal=wal)
    assert lab.count(use, wal=wal) == 3
    refused("wal", lambda: lab.count(use, wal=str(lab.path / "wrong")))
    return None


@probe("wal", uses=WRITING)
def the_log_is_written_elsewhere(lab: Lab, use: AnyUse) -> Outcome:
    place, wal = str(lab.path / "apart"), lab.path / "wal"
    with Root.open(place, wal=str(wal), containers=1):
        pass
    lab.put_by(use, "a", controller=place, wal=str(wal))
    assert [file for file in wal.rglob("*") if file.is_file()]
    assert lab.events(controller=place) == ["a"]
    return None


CREATING: tuple[AnyUse, ...] = ("batch read", "stream read", "batch write", "stream write", "metadata", "table")
BY_TIME = {
    "default_num_segments": 2,
    "default_scale_factor": 3,
    "default_segment_target_rate_events_per_sec": 9,
    "default_retention_duration_milliseconds": "1d",
    "default_retention_max_duration_milliseconds": "2d",
}
BY_SIZE = {
    "default_num_segments": 2,
    "default_scale_factor": 3,
    "default_segment_target_rate_bytes_per_sec": "10KiB",
    "default_retention_size_bytes": "1KiB",
    "default_retention_max_size_bytes": "2KiB",
}


@probe("allow_create_scope", "allow_create_stream", *BY_TIME, uses=CREATING)
def scope_and_stream_are_created_with_policies(lab: Lab, use: AnyUse) -> Outcome:
    allowed = {"allow_create_scope": True, "allow_create_stream": True}
    _create(lab, use, scope="new", **BY_TIME, **allowed)
    record = _record(lab, "new")
    day = 86_400_000
    assert record.scaling == ScalingPolicy("events", 2, 9, 3) and record.retention == RetentionPolicy(
        "time", day, 2 * day
    )
    for name in allowed:
        missing = {"scope": "missing", "stream": "missing", **allowed, name: False}
        refused("does not exist", lambda missing=missing: _create(lab, use, **missing))  # type: ignore[misc]
    return None


@probe(*(name for name in BY_SIZE if name not in BY_TIME), uses=CREATING)
def streams_are_created_with_policies_by_size(lab: Lab, use: AnyUse) -> Outcome:
    _create(lab, use, allow_create_scope=True, allow_create_stream=True, **BY_SIZE)
    record = _record(lab, "s")
    assert record.scaling == ScalingPolicy("bytes", 2, 10, 3)
    assert record.retention == RetentionPolicy("size", 1024, 2048)
    return None


def _create(lab: Lab, use: AnyUse, **options: Any) -> None:
    if use in WRITING and use != "table":
        lab.put_by(use, "a", **options)
    else:
        assert lab.count(use, **options) == 0


def _record(lab: Lab, scope: str) -> Any:
    from pravega_spark.streams.catalog import Catalog

    return Catalog(lab.root).stream(scope, "t").snapshot().record


# --- what is read ------------------------------------------------------------------------------------------------


@probe("stream_pattern", uses=READING)
def streams_are_chosen_by_a_pattern(lab: Lab, use: AnyUse) -> Outcome:
    for number, stream in ((3, "t"), (5, "u"), (7, "tu")):
        lab.fill(number, stream=stream)
    assert lab.count(use, stream_pattern="t|u") == 8
    return None


@probe("start_stream_cut", "end_stream_cut", uses=READING)
def a_read_is_between_cuts(lab: Lab, use: AnyUse) -> Outcome:
    cuts = []
    for number in (3, 5, 7):
        lab.fill(number)
        cuts.append(lab.stream().snapshot().tail_cut().as_text())
    assert lab.count(use, start_stream_cut=cuts[0], end_stream_cut=cuts[1]) == 5
    return None


@probe("starting_timestamp", "ending_timestamp", uses=READING)
def a_read_is_between_times(lab: Lab, use: AnyUse) -> Outcome:
    for number in (3, 5, 7):
        lab.fill(number)
        time.sleep(0.002)
    times = lab.stream().snapshot().segments.index(0).records(0, 3)[:, 2].tolist()
    assert lab.count(use, starting_timestamp=times[1], ending_timestamp=times[2]) == 5
    return None


@probe("fail_on_data_loss", uses=READING)
def a_loss_is_an_error_unless_allowed(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(5, 5)
    start = StreamCut("s", "t", {0: 0}).as_text()
    lab.stream().truncate(StreamCut("s", "t", {0: 45}))
    refused("has been truncated", lambda: lab.count(use, start_stream_cut=start))
    assert lab.count(use, start_stream_cut=start, fail_on_data_loss=False) == 5
    return None


@probe("min_partitions", "max_bytes_per_partition", uses=ROWS)
def a_scan_is_split(lab: Lab, use: AnyUse) -> Outcome:
    for _ in range(8):
        lab.fill(4)  # 36 bytes

    def tasks(**options: Any) -> int:
        return len({row["task"] for row in lab.rows_of(use, "spark_partition_id() AS task", **options)})

    assert (tasks(), tasks(min_partitions=4), tasks(max_bytes_per_partition=72)) == (1, 4, 4)
    return None


@probe("large_events", "max_event_bytes", uses=ROWS)
def large_events_are_left_out(lab: Lab, use: AnyUse) -> Outcome:
    lab.put("small", "x" * 2000)
    found = lab.rows_of(use, large_events="reference", max_event_bytes=1000)
    assert sorted((row["event"] is None, row["event_pointer"] is None) for row in found) == [
        (False, True),
        (True, False),
    ]
    return None


@probe("include_metadata", uses=ROWS)
def columns_are_added(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(3)
    found = lab.rows_of(use, include_metadata=True)
    assert sorted(row["event_number"] for row in found) == [0, 1, 2]
    assert all(row["timestamp"] and row["event_pointer"] for row in found)
    return None


@probe("time_window", uses=ROWS)
def bounds_of_time_are_added(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(0)
    with StreamManager(lab.url) as manager, manager.create_writer("s", "t") as writer:
        writer.note_time(5)
        writer.write_event("a")
        writer.note_time(7)
        writer.write_event("b")
        writer.flush()
    found = lab.rows_of(use, time_window=True)
    assert [(row["lower_time_bound"], row["upper_time_bound"]) for row in found] == [(5, None)] * 2
    return None


@probe("insertable", uses=ROWS, varies=True)
def events_are_texts(lab: Lab, use: AnyUse) -> Outcome:
    lab.put("a")
    (row,) = lab.rows_of(use, insertable=True)
    assert (row["event"], row["routing_key"]) == ("a", None)
    if use != "table":
        return None
    with lab.table(insertable=True) as name:
        told = refusal(lambda: lab.spark.sql(f"INSERT INTO {name} (event, routing_key) VALUES ('b', 'k')"))
    assert not told or "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA" in told, told
    lab.put_by(use, "c", insertable=True)
    assert lab.events() == (["a", "c"] if told else ["a", "b", "c"])
    return {"insertable": ALL_COLUMNS if told else YES}


@probe("insertable", uses=("batch write",))
def rows_are_written_with_the_options_of_a_table(lab: Lab, use: AnyUse) -> Outcome:
    lab.put_by(use, "a", insertable=True)
    assert lab.events() == ["a"]
    return None


VALUES = {"value_format": "json", "value_schema": "a bigint"}


@probe(*VALUES, uses=ROWS)
def fields_of_events_are_columns(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill('{"a": 7, "b": 8}')
    (row,) = lab.rows_of(use, **VALUES)
    assert row["a"] == 7 and not {"b", "event"} & row.keys()
    if use == "table":
        with lab.table(**VALUES) as name:
            lab.spark.sql(f"INSERT INTO {name} VALUES (9, null, null, null, null)")
        assert lab.events()[1:] == ['{"a":9}']
    return None


@probe(*VALUES, uses=("batch write", "stream write"))
def columns_are_fields_of_events(lab: Lab, use: AnyUse) -> Outcome:
    if use == "batch write":
        lab.spark.sql("SELECT 7L AS a").write.format("pravega").options(**lab.given(VALUES)).mode("append").save()
    else:
        lab.run(lab.source("7").selectExpr("cast(string(event) AS bigint) AS a").writeStream, **VALUES)
    assert lab.events() == ['{"a":7}']
    return None


@probe("on_malformed", uses=ROWS)
def malformed_events_fail_or_are_null(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill("no JSON")
    refused("malformed", lambda: lab.rows_of(use, **VALUES))
    (row,) = lab.rows_of(use, **VALUES, on_malformed="null")
    assert row["a"] is None
    return None


@probe("salvage", uses=READING)
def what_is_sound_of_a_damaged_archive_is_read(lab: Lab, use: AnyUse) -> Outcome:
    objects = dict(case(ROLLING).objects)
    name = min(name for name in objects if name.startswith("demo/rides/0.#epoch.0$offset."))
    objects[name] = objects[name][:-1]
    damaged = {"controller": str(laid_out(objects, lab.path / "lts")), "scope": "demo", "stream": "rides"}
    refused("damage", lambda: lab.count(use, **damaged))
    assert lab.count(use, **damaged, salvage=True) > 0
    if use == "metadata":
        assert len(lab.rows_of(use, **damaged, salvage=True, metadata="Losses")) == 1
    return None


@probe("unrecorded", uses=READING)
def events_that_a_killed_server_did_not_record_are_read(lab: Lab, use: AnyUse) -> Outcome:
    objects = dict(case(CHUNKED).objects)
    name = max(name for name in objects if name.startswith("demo/sealed/1.#epoch.0.E-"))
    objects[name] += event_header(1) + b"a"
    killed = {"controller": str(laid_out(objects, lab.path / "lts")), "scope": "demo", "stream": "sealed"}
    counts = lab.count(use, **killed), lab.count(use, **killed, unrecorded=True)
    assert counts == (200, 201)
    return None


@probe("metadata", uses=("metadata", "table"))
def each_metadata_table_has_its_columns(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(3)
    for name in METADATA_TABLES:
        if name == "KeyValueTable":  # of a Pravega cluster's storage only
            refused("Key-value table", lambda: lab.rows_of(use, metadata="KeyValueTable"))
            continue
        with lab.frame_of(use, metadata=name) as frame:
            assert frame.columns == table_schema(name).names
            assert frame.count() > 0 or name in ("StreamCuts", "Transactions", "Losses")
    return None


@probe("metadata", uses=("stream read", "batch write", "stream write"))
def a_metadata_table_is_for_batch_reads(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(3)
    work = (
        (lambda: lab.put_by(use, "a", metadata="Streams"))
        if use in WRITING
        else (lambda: lab.count(use, metadata="Streams"))
    )
    refused("Option 'metadata' is for batch reads only", work)
    return {"metadata": REFUSED}


@probe("push_filters", uses=("batch read", "table"), varies=True)
def a_filter_limits_what_is_read(lab: Lab, use: AnyUse) -> Outcome:
    for _ in range(4):
        lab.fill(5)
    lab.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")

    def read(**options: Any) -> int:
        with lab.frame_of(use, max_bytes_per_partition=1, **options) as frame:
            chosen = frame.where("offset < 45")
            assert chosen.count() == 5
            return chosen.rdd.getNumPartitions()  # each has one append

    try:
        assert read() == 4
        found = read(push_filters=True)
    finally:
        lab.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found in (2, 4), "an append that has none of them may be read too"
    return {"push_filters": YES if found == 2 else NO_FILTERS}


@probe("max_events_per_trigger", "limit_first_batch", uses=("stream read",), varies=True)
def batches_have_a_maximum_of_events(lab: Lab, use: AnyUse) -> Outcome:
    limit = {"max_events_per_trigger": 10}
    found = outcome_of_limit(lab, **limit)
    assert is_limited(lab.batches("first", **limit, limit_first_batch=True))
    return {"max_events_per_trigger": found, "limit_first_batch": NOT_NEEDED if found == YES else YES}


@probe("max_bytes_per_trigger", uses=("stream read",), varies=True)
def batches_have_a_maximum_of_bytes(lab: Lab, use: AnyUse) -> Outcome:
    return {"max_bytes_per_trigger": outcome_of_limit(lab, max_bytes_per_trigger=100)}


@probe("approx_bytes_per_trigger", uses=("stream read",), varies=True)
def batches_have_the_maximum_of_the_original(lab: Lab, use: AnyUse) -> Outcome:
    return {"approx_bytes_per_trigger": outcome_of_limit(lab, approx_bytes_per_trigger=100)}


def outcome_of_limit(lab: Lab, **limit: int) -> str:
    """What a limit of 10 events does: 25 of them are there, and 25 come later."""
    found = lab.batches("t", **limit)
    assert is_limited(found) or (found[0] == 25 and is_limited([10, 10, 5, *found[1:]])), found
    return YES if found[0] == 10 else FROM_SECOND


def is_limited(batches: list[int]) -> bool:
    """Whether batches of 50 events have 10 at most, and as many where the backlog was there before."""
    return batches[:3] == [10, 10, 5] and max(batches) <= 10 and sum(batches) == 50


@probe("min_events_per_trigger", uses=("stream read",), varies=True)
def batches_wait_for_events(lab: Lab, use: AnyUse) -> Outcome:
    return {"min_events_per_trigger": outcome_of_minimum(lab, min_events_per_trigger=3)}


@probe("min_bytes_per_trigger", uses=("stream read",), varies=True)
def batches_wait_for_bytes(lab: Lab, use: AnyUse) -> Outcome:
    return {"min_bytes_per_trigger": outcome_of_minimum(lab, min_bytes_per_trigger=27)}


def outcome_of_minimum(lab: Lab, **limit: Any) -> str:
    """What a minimum of 3 events does: one is there, and others come later."""
    lab.fill(1)
    with lab.followed(**limit) as query:
        settle(query)
        first = sizes(query)
        assert first in ([], [1])
        for count, read in ((2, [*first] if first else [3]), (1, [*first, 3])):
            lab.fill(count)
            settle(query)
            assert sizes(query) == read
    return FROM_SECOND if first else YES


@probe("max_trigger_delay", uses=("stream read",))
def batches_do_not_wait_for_ever(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(2)
    with lab.followed(min_events_per_trigger=1000, max_trigger_delay=200, limit_first_batch=True) as query:
        begun = time.monotonic()
        while not sizes(query):
            assert time.monotonic() < begun + 60, "it waits for 1000 events"
            time.sleep(0.05)
        assert sizes(query) == [2]
    return None


@probe("subscriber", "release_interval", uses=("stream read",))
def retention_waits_for_a_query(lab: Lab, use: AnyUse) -> Outcome:
    lab.fill(5)
    with lab.followed(subscriber="job", release_interval=0) as query:
        query.processAllAvailable()
        lab.fill(5)
        query.processAllAvailable()  # Spark commits a batch when it begins the next one
        released = subscribers(lab.stream())[query_subscriber("job")]
    assert released.positions[0] >= 45
    return None


# --- writing -----------------------------------------------------------------------------------------------------


@probe("ignore_extra_columns", uses=("batch write", "stream write"))
def extra_columns_are_dropped(lab: Lab, use: AnyUse) -> Outcome:
    refused("would be dropped", lambda: lab.put_by(use, "a", columns="1 AS more"))
    lab.put_by(use, "b", columns="1 AS more", stream="u", ignore_extra_columns=True)
    assert "b" in lab.events("u")
    return None


@probe("txn_app_id", "txn_version", uses=("batch write", "table"))
def a_write_with_a_version_is_done_once(lab: Lab, use: AnyUse) -> Outcome:
    for event, version in (("a", 1), ("again", 1), ("b", 2)):
        lab.put_by(use, event, txn_app_id="job", txn_version=version)
    assert lab.events() == ["a", "b"]
    return None


@probe("txn_app_id", "txn_version", uses=("stream write",))
def a_query_has_versions_of_its_own(lab: Lab, use: AnyUse) -> Outcome:
    words = "Options 'txn_app_id' and 'txn_version' identify one batch"
    refused(words, lambda: lab.put_by(use, "a", txn_app_id="job", txn_version=1))
    return {"txn_app_id": REFUSED, "txn_version": REFUSED}


@probe("on_changed_replay", uses=("batch write", "table"))
def a_changed_replay_is_written_on_request(lab: Lab, use: AnyUse) -> Outcome:
    for event in ("a", "b"):
        lab.put_by(use, event, txn_app_id="job", txn_version=1, on_changed_replay="write")
    assert lab.events() == ["a", "b"]
    return None


@probe("on_changed_replay", "exactly_once", uses=("stream write",))
def replays_of_a_query(lab: Lab, use: AnyUse) -> Outcome:
    """The same batch again is skipped, another one is written on request, and each is without `exactly_once`."""
    source = lab.source("a")
    runs: tuple[tuple[str, dict[str, Any]], ...] = (
        ("event", {}),
        ("event", {}),
        ("concat(event, event) AS event", {"on_changed_replay": "write"}),
        ("event", {"exactly_once": False}),
    )
    for column, options in runs:
        lab.run(source.selectExpr(column).writeStream, **options)
        lab.forget_commits()
    assert lab.events() == ["a", "aa", "a"]
    return None


@probe("append_complete_results", uses=("stream write",))
def complete_results_are_appended(lab: Lab, use: AnyUse) -> Outcome:
    source = lab.source("a")
    counts = source.groupBy("event").count().selectExpr("concat(cast(event AS string), count) AS event")
    writer = counts.writeStream.outputMode("complete")
    refused("Output mode 'complete'", lambda: lab.run(writer, "refused"))
    lab.run(writer, append_complete_results=True)
    assert lab.events() == ["a1"]
    return None


@probe("accept_lost_batches", uses=("batch write", "stream write", "table"))
def batches_that_a_restore_lost_are_accepted(lab: Lab, use: AnyUse) -> Outcome:
    def write(version: int, **options: Any) -> None:
        if use == "stream write":
            lab.put_by(use, str(version), checkpoint="same", **options)
        else:
            lab.put_by(use, str(version), txn_app_id="job", txn_version=version, **options)

    write(1)
    back_up(lab.root, str(lab.path / "backup"))
    write(2)
    lab.root.close()
    restore(str(lab.path / "backup"), str(lab.path / "copy"))
    lab.url = str(lab.path / "copy")
    lab.root = Root.open(lab.url)
    refused("'accept_lost_batches'", lambda: write(3))
    write(3, accept_lost_batches=True)
    assert lab.events()[-1] == "3"
    return None


ORIGINAL: dict[str, Any] = {
    "read_after_write_consistency": False,
    "transaction_timeout_ms": 10_000,
    "transaction_status_poll_interval_ms": 5,
}


@probe(*ORIGINAL, uses=WRITING)
def options_of_the_original_are_accepted(lab: Lab, use: AnyUse) -> Outcome:
    lab.put_by(use, "a", **ORIGINAL)
    assert lab.events() == ["a"]
    return dict.fromkeys(ORIGINAL, ACCEPTED)


# --- the tests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "each", [pytest.param(each, id=str(each), marks=[] if each.varies else [pytest.mark.long]) for each in PROBES]
)
def test_what_the_options_do_is_what_the_page_says(
    lab: Lab, each: Probe, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    found = {**dict.fromkeys(each.options, YES), **(each.observe(lab, each.use) or {})}
    version = ".".join(lab.spark.version.split(".")[:2])
    if request.config.getoption(FLAG):
        for option, cell in found.items():
            record_property(PROPERTY, [version, option, each.use, cell])
        return
    column = columns_of(PAGE.read_text("utf-8")).get(version, {})
    assert found == {option: column.get((option, each.use)) for option in each.options}, (
        f"{PAGE.name} is not what this Spark does; if that is right: make options-by-version SPARK={lab.spark.version}"
    )


def test_each_option_is_observed_in_each_of_its_uses(request: pytest.FixtureRequest) -> None:
    covered = {(option, each.use) for each in PROBES for option in each.options}
    needed: set[tuple[str, Use]] = {(option.name, use) for option in OPTIONS for use in option.uses}
    assert needed <= covered
    columns = {} if request.config.getoption(FLAG) else columns_of(PAGE.read_text("utf-8"))
    for version, column in columns.items():
        assert set(column) == covered, f"the column of {version}"


def test_the_table_of_the_page_is_read_as_it_is_written() -> None:
    text, name = PAGE.read_text("utf-8"), OPTIONS[0].name
    columns = {"4.9": {(name, "batch read"): YES, (name, "table"): YES}, "4.10": {(name, "table"): REFUSED}}
    made = with_columns(text, columns)
    assert columns_of(made) == columns
    assert f"| `{name}` | read | yes | ? |\n| `{name}` | SQL | yes | refused |\n" in made
    assert with_columns(made, columns_of(text)) == with_columns(text, columns_of(text))
