"""Each option has a good value that counts, a bad one that is refused, and words for that; a new one needs them too."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pravega_spark.source.option_table import OPTIONS
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy

BASE = {"controller": "/r", "scope": "s", "stream": "t"}
SEGMENTS = {"default_num_segments": "2"}
SCALING = {**SEGMENTS, "default_scale_factor": "2"}


class Sample(NamedTuple):
    """What a good value becomes, and what a bad one is told. field: where it is kept. others: options given with it."""

    good: str
    field: str
    value: Any
    bad: str
    told: str
    others: dict[str, str] = {}  # noqa: RUF012 - read only


def number(name: str, good: str = "5", value: int = 5, bad: str = "0") -> Sample:
    return Sample(good, name, value, bad, f"^Option '{name}' must be a (whole number|size|duration) ")


def flag(name: str, good: str) -> Sample:
    return Sample(good, name, good == "true", "maybe", f"^Option '{name}' must be true or false, not 'maybe'")


SAMPLES: dict[str, Sample] = {
    "controller": Sample("s3://b/r", "root", "s3://b/r", "tcp://h:9090", "there is no broker"),
    "path": Sample("/r", "root", "/r", "/another", "^The path '/another' and .*, '/r', name different roots"),
    "scope": Sample("other", "scope", "other", "", "^Missing required option 'scope'"),
    "stream": Sample("a, b", "stream", "a,b", "a,,b", "^Option 'stream' has an empty name in its list"),
    "stream_pattern": Sample(
        "a.*", "stream_pattern", "a.*", "(", "^Option 'stream_pattern' must be a regular expression"
    ),
    "settings": Sample(
        "flights=2", "settings", (("flights", 2),), "flight=2", "^Option 'settings': there is no setting 'flight'"
    ),
    "storage.<name>": Sample('{"a": 1}', "storage", {"x": {"a": 1}}, "", "^Option 'storage.' needs a name"),
    "wal": Sample("/w", "wal", "/w", " ", "^'wal' is empty"),
    "start_stream_cut": Sample(
        "Earliest", "start_stream_cut", "earliest", "soon", "^Option 'start_stream_cut': 'soon' is"
    ),
    "end_stream_cut": Sample("latest", "end_stream_cut", "latest", "soon", "^Option 'end_stream_cut': 'soon' is not"),
    "starting_timestamp": Sample("7", "starting_timestamp", 7, "soon", "^Option 'starting_timestamp': "),
    "ending_timestamp": Sample("7", "ending_timestamp", 7, "soon", "^Option 'ending_timestamp': "),
    "approx_bytes_per_trigger": Sample(
        "1KiB",
        "max_bytes_per_trigger",
        1024,
        "0",
        "^Option 'approx_bytes_per_trigger' .*Max offset should be of type long",
    ),
    "max_bytes_per_trigger": number("max_bytes_per_trigger", "1KiB", 1024),
    "max_events_per_trigger": number("max_events_per_trigger"),
    "min_events_per_trigger": number("min_events_per_trigger"),
    "min_bytes_per_trigger": number("min_bytes_per_trigger", "1KiB", 1024),
    "max_trigger_delay": number("max_trigger_delay", "2m", 120_000),
    "limit_first_batch": flag("limit_first_batch", "true"),
    "subscriber": Sample("job", "subscriber", "job", "a/b", "^Option 'subscriber': "),
    "release_interval": number("release_interval", "2m", 120_000, "-1"),
    "fail_on_data_loss": flag("fail_on_data_loss", "false"),
    "push_filters": flag("push_filters", "true"),
    "min_partitions": number("min_partitions"),
    "max_bytes_per_partition": number("max_bytes_per_partition", "1KiB", 1024),
    "large_events": Sample("inline", "large_events", "inline", "skip", "^Option 'large_events' must be one of error, "),
    "max_event_bytes": number("max_event_bytes", "1KiB", 1024),
    "exactly_once": flag("exactly_once", "false"),
    "append_complete_results": flag("append_complete_results", "true"),
    "ignore_extra_columns": flag("ignore_extra_columns", "true"),
    "txn_app_id": Sample("j", "txn_app_id", "j", "", "^Option 'txn_app_id' is empty", {"txn_version": "1"}),
    "txn_version": number("txn_version", "0", 0, "-1")._replace(others={"txn_app_id": "job"}),
    "on_changed_replay": Sample(
        "fail", "on_changed_replay", "fail", "no", "^Option 'on_changed_replay' must be one of"
    ),
    "accept_lost_batches": flag("accept_lost_batches", "true"),
    "metadata": Sample("Counts", "metadata", "Counts", "counts", "^Option 'metadata' must be one of .*case-sensitive"),
    "include_metadata": flag("include_metadata", "true"),
    "time_window": flag("time_window", "true"),
    "insertable": flag("insertable", "true"),
    "value_format": Sample(
        "JSON", "value_format", "json", "xml", "^Option 'value_format' must be one of raw, json, avro"
    ),
    "value_schema": Sample(
        "id bigint", "value_schema", "id bigint", "id money", "^Option 'value_schema': ", {"value_format": "json"}
    ),
    "on_malformed": Sample("null", "on_malformed", "null", "skip", "^Option 'on_malformed' must be one of fail, null"),
    "salvage": flag("salvage", "true"),
    "unrecorded": flag("unrecorded", "true"),
    "allow_create_scope": flag("allow_create_scope", "false"),
    "allow_create_stream": flag("allow_create_stream", "false"),
    "default_num_segments": Sample(
        "3",
        "scaling",
        ScalingPolicy("fixed", 3),
        "0",
        "^Option 'default_num_segments' .*Number of segments needs to be integer and should be",
    ),
    "default_scale_factor": Sample(
        "3",
        "scaling",
        ScalingPolicy("events", 2, 9, 3),
        "1",
        "^Option 'default_scale_factor' .*Scale factor needs to be an integer greater than 1",
        {**SEGMENTS, "default_segment_target_rate_events_per_sec": "9"},
    ),
    "default_segment_target_rate_bytes_per_sec": Sample(
        "10KiB",
        "scaling",
        ScalingPolicy("bytes", 2, 10, 2),
        "1023",
        "^Option 'default_segment_target_rate_bytes_per_sec' .*Target rate should an integer",
        SCALING,
    ),
    "default_segment_target_rate_events_per_sec": Sample(
        "9",
        "scaling",
        ScalingPolicy("events", 2, 9, 2),
        "0",
        "^Option 'default_segment_target_rate_events_per_sec' .*Target rate should be an integer",
        SCALING,
    ),
    "default_retention_duration_milliseconds": Sample(
        "1d",
        "retention",
        RetentionPolicy("time", 86_400_000),
        "-1",
        "^Option 'default_retention_duration_milliseconds' .*Retention time should be an integer",
    ),
    "default_retention_size_bytes": Sample(
        "1KiB",
        "retention",
        RetentionPolicy("size", 1024),
        "-1",
        "^Option 'default_retention_size_bytes' .*Retention size should be an integer",
    ),
    "default_retention_max_duration_milliseconds": Sample(
        "2d",
        "retention",
        RetentionPolicy("time", 86_400_000, 172_800_000),
        "-1",
        "^Option 'default_retention_max_duration_milliseconds' must be a duration",
        {"default_retention_duration_milliseconds": "1d"},
    ),
    "default_retention_max_size_bytes": Sample(
        "2KiB",
        "retention",
        RetentionPolicy("size", 1024, 2048),
        "-1",
        "^Option 'default_retention_max_size_bytes' must be a size",
        {"default_retention_size_bytes": "1KiB"},
    ),
    "read_after_write_consistency": flag("read_after_write_consistency", "false"),
    "transaction_timeout_ms": Sample(
        "10000",
        "transaction_timeout_ms",
        10_000,
        "9999",
        "^Option 'transaction_timeout_ms' .*Transaction time must be at least 10 seconds",
    ),
    "transaction_status_poll_interval_ms": number("transaction_status_poll_interval_ms", bad="-1"),
}


def test_no_option_is_left_out() -> None:
    assert list(SAMPLES) == [option.name for option in OPTIONS]


def parsed(name: str, value: str, others: dict[str, str]) -> SourceOptions:
    given = {**BASE, **others}
    if name == "stream_pattern":
        del given["stream"]
    key = name if name != "storage.<name>" else "storage.x" if value else "storage."
    return SourceOptions.parse({**given, key: value}, {})


@pytest.mark.parametrize("name", SAMPLES)
def test_a_good_value_and_a_bad_one(name: str) -> None:
    sample = SAMPLES[name]
    assert getattr(parsed(name, sample.good, sample.others), sample.field) == sample.value
    with pytest.raises(ValueError, match=sample.told):
        parsed(name, sample.bad, sample.others)
