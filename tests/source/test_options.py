"""Every row of the option table: default, conversion, check, message."""

import json
import logging
import os
import pickle
import re
import time

import pytest

from pravega_spark.source.option_table import (
    BY_NAME,
    BY_PLAIN_NAME,
    FOREIGN_HINTS_BY_NAME,
    FOREIGN_OPTION_HINTS,
    OPTIONS,
    REFUSED_FOREIGN_OPTIONS,
    SPARK_OPTIONS,
    plain,
)
from pravega_spark.source.options import METADATA_TABLES, SourceOptions
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy

REQUIRED = {"controller": "/data/streams", "scope": "examples", "stream": "rides"}
ENVIRONMENT = {"PRAVEGA_CONTROLLER_URI": "/from/environment"}
BYTE_RATE = "default_segment_target_rate_bytes_per_sec"
EVENT_RATE = "default_segment_target_rate_events_per_sec"
RETENTION_MS = "default_retention_duration_milliseconds"
RETENTION_BYTES = "default_retention_size_bytes"
RETENTION_MAX_MS = "default_retention_max_duration_milliseconds"
RETENTION_MAX_BYTES = "default_retention_max_size_bytes"


def parse(environment: dict[str, str] | None = None, /, **options: str) -> SourceOptions:
    return SourceOptions.parse({**REQUIRED, **options}, environment or {})


def message(**options: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its callers look at the message
        parse(**options)
    return str(caught.value)


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in REQUIRED.items() if name not in names}


def test_defaults() -> None:
    assert parse() == SourceOptions(
        root="/data/streams",
        scope="examples",
        stream="rides",
        stream_pattern=None,
        storage={},
        wal=None,
        settings=(),
        start_stream_cut=None,
        end_stream_cut=None,
        starting_timestamp=None,
        ending_timestamp=None,
        max_bytes_per_trigger=None,
        max_events_per_trigger=None,
        min_bytes_per_trigger=None,
        min_events_per_trigger=None,
        max_trigger_delay=900_000,
        limit_first_batch=False,
        subscriber=None,
        release_interval=30_000,
        fail_on_data_loss=True,
        push_filters=False,
        min_partitions=None,
        max_bytes_per_partition=134217728,
        large_events="error",
        max_event_bytes=134217728,
        exactly_once=True,
        append_complete_results=False,
        ignore_extra_columns=False,
        txn_app_id=None,
        txn_version=None,
        on_changed_replay="skip",
        accept_lost_batches=False,
        metadata=None,
        include_metadata=False,
        time_window=False,
        insertable=False,
        value_format="raw",
        value_schema=None,
        on_malformed="fail",
        salvage=False,
        unrecorded=False,
        allow_create_scope=True,
        allow_create_stream=True,
        asked_to_create_scope=False,
        asked_to_create_stream=False,
        scaling=None,
        retention=None,
        read_after_write_consistency=True,
        transaction_timeout_ms=None,
        transaction_status_poll_interval_ms=50,
    )


# The table


def test_each_option_is_described_once() -> None:
    names = [option.name for option in OPTIONS]
    assert len(set(names)) == len(names)
    for option in OPTIONS:
        assert option.meaning.endswith(".") and option.uses, option.name
        assert not isinstance(option.default, dict) or set(option.default) == set(option.uses), option.name


def test_each_default_of_the_table_is_what_parsing_gives() -> None:
    """Except where uses have different defaults, which are asked for one by one below."""
    for option in OPTIONS:
        if isinstance(option.default, str):
            assert parse(**{option.name: option.default}) == parse(), option.name


# Names


@pytest.mark.parametrize("spelling", ["start_stream_cut", "startStreamCut", "STARTSTREAMCUT", "Start_StreamCut"])
def test_names_in_any_spelling(spelling: str) -> None:
    assert parse(**{spelling: "earliest"}).start_stream_cut == "earliest"


def test_two_spellings_must_agree() -> None:
    assert parse(fail_on_data_loss="false", failOnDataLoss="false").fail_on_data_loss is False
    assert "'fail_on_data_loss' is given twice" in message(fail_on_data_loss="false", failOnDataLoss="true")


def test_what_is_ignored_is_told_once_and_what_to_give_instead(caplog: pytest.LogCaptureFixture) -> None:
    """Each option is ours, Spark's own, or told: there is no fourth kind."""
    with caplog.at_level(logging.WARNING):
        assert parse(queryName="q", checkpointLocation="/c", path="/data/streams", outputMode="append") == parse()
    assert caplog.messages == []
    given = {
        "fail_on_dataloss_": "false",
        "max_byte_per_trigger": "1",
        "foo": "1",
        "retention_size": "abc",
        "endpointUrl": "e",
    }
    assert parse(**given).fail_on_data_loss is False
    assert caplog.messages == [
        "Unknown option 'max_byte_per_trigger' is ignored. Did you mean 'max_bytes_per_trigger'?",
        "Unknown option 'foo' is ignored. No option has a similar name: remove it, or look it up in the table of "
        "Spark options.",
        "Unknown option 'retention_size' is ignored. Did you mean 'default_retention_size_bytes'?",
        "Unknown option 'endpointUrl' is ignored. Did you mean 'storage.endpoint_url'?",
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("startingOffsets", "start_stream_cut"),
        ("maxOffsetsPerTrigger", "max_events_per_trigger"),
        ("kafka.bootstrap.servers", "controller"),
        ("stream-from-timestamp", "starting_timestamp"),
        ("ignoreDeletes", "fail_on_data_loss"),
        ("maxFilesPerTrigger", "max_events_per_trigger"),
    ],
)
def test_options_of_other_sources_are_told_ours(caplog: pytest.LogCaptureFixture, theirs: str, ours: str) -> None:
    for name in (theirs, theirs.lower()):  # as Spark hands it over
        parse(**{name: "1"})
        assert caplog.messages == [
            f"Option {theirs!r} belongs to another source and is ignored. Here it is option {ours!r}."
        ]
        caplog.clear()
        SourceOptions.parse({**REQUIRED, name: "1"}, {}, warn=False)
        assert caplog.messages == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("versionAsOf", ["ending_timestamp", "end_stream_cut"]),
        ("timestampAsOf", ["ending_timestamp", "end_stream_cut"]),
        ("startingVersion", ["starting_timestamp", "start_stream_cut"]),
        ("endingVersion", ["ending_timestamp", "end_stream_cut"]),
        ("snapshot-id", ["ending_timestamp", "end_stream_cut"]),
        ("as.of.instant", ["ending_timestamp", "end_stream_cut"]),
        ("hoodie.datasource.read.begin.instanttime", ["starting_timestamp", "start_stream_cut"]),
        ("branch", ["stream", "end_stream_cut"]),
        ("assign", ["stream", "min_partitions", "max_bytes_per_partition"]),
    ],
)
def test_an_option_of_another_source_that_bounds_the_data_is_refused(theirs: str, ours: list[str]) -> None:
    """Where no option here is exactly it: to ignore it would be to return other data than was asked for."""
    for name in (theirs, theirs.lower()):
        with pytest.raises(ValueError, match=f"^Option '{theirs}' belongs to another source, and a stream ") as caught:
            parse(**{name: "1"})
        first, _, rest = str(caught.value).partition(". ")
        assert re.findall(r"'([^']+)'", first) == [theirs, *ours]
        assert rest == "If the option were ignored, other data would be read."


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ("readChangeFeed", "A stream has no change feed apart from its events: choose them by"),
        ("ignoreChanges", "Events are appended and never changed, so there is nothing to ignore; 'fail_on_data_loss'"),
        ("mergeSchema", "Events are bytes without a schema"),
        ("kafka.security.protocol", "There is no broker to set up: credentials of the storage go into options"),
        ("kafka.group.id", "A query has its position in its checkpoint"),
    ],
)
def test_what_is_no_option_here_is_told_why(caplog: pytest.LogCaptureFixture, theirs: str, told: str) -> None:
    parse(**{theirs.lower(): "sesame"})
    assert len(caplog.messages) == 1 and "sesame" not in caplog.text
    assert caplog.messages[0].startswith(f"Option {theirs!r} belongs to another source and is ignored. {told}")


def test_an_option_of_another_source_in_the_place_of_a_required_one_is_told() -> None:
    given = {name: value for name, value in REQUIRED.items() if name != "stream"}
    with pytest.raises(ValueError, match=r"^Missing required option 'stream': option 'subscribe' is 'stream' here$"):
        SourceOptions.parse({**given, "subscribe": "clicks"}, {})


def test_what_other_sources_call_as_we_do_is_ours() -> None:
    """And what the table says of their options is true."""
    bounds = {plain(name) for name in REFUSED_FOREIGN_OPTIONS}
    assert not (set(FOREIGN_HINTS_BY_NAME) | bounds) & (set(BY_PLAIN_NAME) | SPARK_OPTIONS)
    assert not set(FOREIGN_HINTS_BY_NAME) & bounds
    for instead in FOREIGN_OPTION_HINTS.values():
        named = re.findall(r"'([^']+)'", instead) if instead.endswith(".") else [instead]
        assert set(named) <= set(BY_NAME) and (named or instead.endswith(".")), instead
    parsed = parse(failOnDataLoss="false", minPartitions="3", maxBytesPerTrigger="5", txnAppId="a", txnVersion="1")
    assert (parsed.fail_on_data_loss, parsed.min_partitions, parsed.max_bytes_per_trigger) == (False, 3, 5)


def test_options_of_a_table_come_twice(caplog: pytest.LogCaptureFixture) -> None:
    """CREATE TABLE hands over each option again as `option.<name>`, with properties of the table and its location."""
    table = {"provider": "pravega", "owner": "me", "location": "file:/data/streams", "path": "file:/data/streams"}
    doubled = {RETENTION_MS: "3", f"option.{RETENTION_MS}": "3", "option.storage.secret": "sesame"}
    parsed = parse(**table, **doubled)
    assert parsed.retention == RetentionPolicy("time", 3)
    assert parsed.storage == {}
    assert caplog.messages == []
    parse(**table, **doubled, comment="mine", foo="1", **{"option.foo": "1"})
    assert [text.partition(" is ")[0] for text in caplog.messages] == ["Unknown option 'foo'"]


# Root


def test_root_from_path_or_option_before_environment() -> None:
    where = without("controller")
    assert SourceOptions.parse({**where, "path": "/p"}, ENVIRONMENT).root == "/p"
    assert SourceOptions.parse({**where, "controller": "/c"}, ENVIRONMENT).root == "/c"
    assert SourceOptions.parse(where, ENVIRONMENT).root == "/from/environment"
    assert SourceOptions.parse({**where, "controller": ""}, ENVIRONMENT).root == "/from/environment"


def test_root_from_this_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", "s3://bucket/streams")
    assert SourceOptions.parse(without("controller")).root == "s3://bucket/streams"


def test_missing_root_says_where_it_can_be_given() -> None:
    with pytest.raises(ValueError, match=r"Missing required option 'controller'.*path.*PRAVEGA_CONTROLLER_URI"):
        SourceOptions.parse(without("controller"), {})


def test_path_and_controller_must_agree() -> None:
    assert parse(path="/data/streams/").root == "/data/streams"
    assert "different roots" in message(path="/elsewhere")


def test_several_paths_are_refused() -> None:
    assert "give one path" in message(paths='["/a", "/b"]')


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("streams", os.path.abspath("streams")),
        ("/data//streams/", "/data/streams"),
        ("file:/data/streams", "/data/streams"),
        ("file:///data/streams/", "file:///data/streams"),
        ("s3://bucket/streams/", "s3://bucket/streams"),
        ("memory://", "memory://"),
        (
            "abfs://container@account.dfs.core.windows.net/streams",
            "abfs://container@account.dfs.core.windows.net/streams",
        ),
    ],
)
def test_root_in_one_spelling(given: str, root: str) -> None:
    assert parse(controller=given).root == root
    assert parse(wal=given).wal == root


@pytest.mark.parametrize("uri", ["tcp://localhost:9090", "TLS://h:1", "pravega://h:9090", "localhost:9090"])
@pytest.mark.parametrize("option", ["controller", "wal"])
def test_a_controller_uri_is_told_that_there_is_no_broker(option: str, uri: str) -> None:
    text = message(**{option: uri})
    assert "there is no broker" in text and "s3://bucket/streams" in text
    assert text.startswith(f"'{option}'")


def test_a_controller_uri_in_the_environment_is_told_too() -> None:
    with pytest.raises(ValueError, match=r"'PRAVEGA_CONTROLLER_URI' names a Pravega controller.*no broker"):
        SourceOptions.parse(without("controller"), {"PRAVEGA_CONTROLLER_URI": "tcp://pravega:9090"})


@pytest.mark.parametrize("root", ["  ", "/a\0b"])
def test_unusable_roots(root: str) -> None:
    assert "'controller' is empty or contains a NUL" in message(controller=root)
    assert "'wal' is empty or contains a NUL" in message(wal=root)
    assert "'wal' is empty or contains a NUL" in message(wal="")


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    text = message(controller="s3://AKIA:sesame@bucket/streams")
    assert "storage.<name>" in text and "sesame" not in text and "AKIA" not in text


# Storage options


def test_storage_options_are_parsed_as_json_where_they_are() -> None:
    given = {
        "storage.key": "AKIA",
        "storage.anon": "false",
        "storage.max_concurrency": "8",
        "storage.client_kwargs": '{"endpoint_url": "http://h:1", "Region": "eu"}',
        "storage.secret": "a/b+c==",
        "storage.session": '"0123"',
        "storage.odd": "NaN",
        "STORAGE.Token": "t",
        "storage.nested.name": "n",
    }
    assert parse(**given).storage == {
        "key": "AKIA",
        "anon": False,
        "max_concurrency": 8,
        "client_kwargs": {"endpoint_url": "http://h:1", "Region": "eu"},
        "secret": "a/b+c==",
        "session": "0123",
        "odd": "NaN",
        "token": "t",
        "nested.name": "n",
    }


def test_storage_options_never_show() -> None:
    parsed = parse(**{"storage.secret": "sesame", "storage.client_kwargs": json.dumps({"k": "sesame"})})
    assert "sesame" not in repr(parsed) and "sesame" not in str(parsed)
    assert "/data/streams" in repr(parsed)
    twice = message(**{"storage.secret": "sesame", "storage.Secret": "sesame2"})
    assert "storage.secret" in twice and "sesame" not in twice
    assert "name after the dot" in message(**{"storage.": "sesame"})


def test_deeply_nested_storage_value_stays_text() -> None:
    assert parse(**{"storage.x": "[" * 100_000}).storage == {"x": "[" * 100_000}


def test_options_travel_to_executors() -> None:
    parsed = parse(**{"storage.secret": "sesame", "default_num_segments": "3", RETENTION_MS: "5"})
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert hash(parsed) == hash(pickle.loads(pickle.dumps(parsed)))


# Names of scope and stream


@pytest.mark.parametrize("name", ["scope", "stream"])
def test_required(name: str) -> None:
    for given in (without(name), {**REQUIRED, name: ""}, {**without(name), "metadata": "StreamInfo"}):
        with pytest.raises(
            ValueError, match=f"^Missing required option '{name}': give it, as in .option\\('{name}', '…'\\)$"
        ):
            SourceOptions.parse(given, {})


def test_all_that_is_missing_is_named_at_once() -> None:
    missing = [
        ({}, "Missing required option 'scope', and 'stream' and 'controller' as well"),
        ({"stream": "t"}, "Missing required option 'scope', and 'controller' as well"),
        ({"controller": "/data"}, "Missing required option 'scope', and 'stream' as well"),
    ]
    for given, expected in missing:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - its message is looked at
            SourceOptions.parse(given, {})
        assert str(caught.value) == f"{expected}: give them, as in .option('scope', '…')"


def test_a_stream_that_is_named_as_on_the_command_line_is_told_apart() -> None:
    advice = "set option 'scope' to 'shop' and option 'stream' to 'orders', instead of both in one"
    with pytest.raises(ValueError, match=f"^Missing required option 'scope': {advice}$"):
        SourceOptions.parse({"stream": "shop/orders", "controller": "/data"}, {})
    for other in ("shop/", "a/b/c", "my_scope/orders"):  # which are no scope and stream
        with pytest.raises(ValueError, match=r"^Missing required option 'scope': give it, as in"):
            SourceOptions.parse({"stream": other, "controller": "/data"}, {})


def test_what_was_given_in_the_place_of_a_required_option_is_told(caplog: pytest.LogCaptureFixture) -> None:
    for missing, slip in (("stream", "strem"), ("scope", "scop"), ("stream", "streamname")):
        with pytest.raises(
            ValueError, match=f"^Missing required option '{missing}'.*: '{slip}' is given. Did you mean"
        ):
            SourceOptions.parse({**without(missing), slip: "x"}, {})
    with pytest.raises(
        ValueError, match=r"^Missing required option 'controller': .*'controler' is given\. Did you mean"
    ):
        SourceOptions.parse({**without("controller"), "controler": "x"}, {})
    for use in ("batch write", "stream write"):
        with pytest.raises(ValueError, match=r"'stream': give it, .*\. Or give the rows a column 'stream'") as told:
            SourceOptions.parse(without("stream"), {}, use=use)
        assert str(told.value).startswith("Missing required option 'stream'")
        with pytest.raises(ValueError, match=r"Did you mean 'stream'\? Or give the rows a column 'stream'"):
            SourceOptions.parse({**without("stream"), "strem": "x"}, {}, use=use)


def test_streams_of_a_scope_need_the_scope_alone() -> None:
    parsed = SourceOptions.parse({**without("stream"), "metadata": "Streams"}, {})
    assert (parsed.scope, parsed.stream) == ("examples", "")
    with pytest.raises(ValueError, match=r"^Missing required option 'scope': give it"):
        SourceOptions.parse({**without("scope", "stream"), "metadata": "Streams"}, {})


def test_a_path_that_ends_in_scope_and_stream() -> None:
    told = r"as well: the path is the root .* option 'scope' to 'examples' and option 'stream' to 'clicks'"
    for path in ("/data/streams/examples/clicks", "s3://bucket/examples/clicks/"):
        with pytest.raises(ValueError, match=told):
            SourceOptions.parse({"path": path}, {})
    for path in ("/data", "/data/my scope/clicks", "s3://key:pass/examples/clicks@host", "/p?token=x/examples/clicks"):
        with pytest.raises(ValueError, match=r"'stream' as well: give them"):
            SourceOptions.parse({"path": path}, {})


# Several streams


def test_streams_by_name() -> None:
    assert parse().streams == ("rides",) and not parse().is_multi_stream
    several = parse(stream="rides, taxis,rides")
    assert several.streams == ("rides", "taxis") and several.is_multi_stream
    assert parse(stream="rides,rides").stream == "rides"
    assert several.of_stream("taxis") == parse(stream="taxis")
    assert message(stream="rides,,taxis") == (
        "Option 'stream' has an empty name in its list: 'rides,,taxis'. Remove the extra comma."
    )
    assert message(stream="rides,my taxis").startswith("Option 'stream': The stream name 'my taxis'")
    assert message(stream="rides,taxis", metadata="Segments") == (
        "Metadata table 'Segments' covers one stream, but option 'stream' names several."
    )


def by_pattern(pattern: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({**without("stream"), "streamPattern": pattern, **more}, {})


def test_streams_by_pattern() -> None:
    parsed = by_pattern("r.*")
    assert (parsed.stream_pattern, parsed.streams, parsed.is_multi_stream) == ("r.*", (), True)
    assert parsed.of_stream("rides") == parse()
    assert message(stream_pattern="r.*") == (
        "Options 'stream' and 'stream_pattern' exclude each other: give one of them."
    )
    told = "^Option 'stream_pattern' must be a regular expression for stream names, not"
    for bad, why in (("", "it is empty"), ("(r", "missing \\)")):
        with pytest.raises(ValueError, match=f"{told} {re.escape(repr(bad))}: {why}"):
            by_pattern(bad)
    with pytest.raises(ValueError, match="'stream_pattern' is not for metadata table 'Segments': set option 'stream'"):
        by_pattern("r.*", metadata="Segments")


def test_a_place_for_each_stream() -> None:
    given = json.dumps({"rides": CUT, "taxis": "2026-01-31", "trams": "Latest"})
    parsed = parse(stream="rides,taxis,trams,ferries", start_stream_cut=given)
    assert parsed.of_stream("rides") == parse(start_stream_cut=CUT)
    assert parsed.of_stream("taxis") == parse(stream="taxis", starting_timestamp="2026-01-31")
    assert parsed.of_stream("trams") == parse(stream="trams", start_stream_cut="latest")
    assert parsed.of_stream("ferries") == parse(stream="ferries")
    assert parse(end_stream_cut=json.dumps({"rides": 1769817600000})) == parse(ending_timestamp="2026-01-31")
    assert by_pattern("r.*", end_stream_cut=json.dumps({"rides": CUT})).of_stream("rides") == parse(end_stream_cut=CUT)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ('{"rides": ', "Option 'start_stream_cut' begins like a JSON object, but is not valid JSON: write it as"),
        (
            '{"rides": {"0": 5}}',
            "Option 'start_stream_cut', stream 'rides': {'0': 5} is not a position",
        ),
        ('{"rides": true}', "Option 'start_stream_cut', stream 'rides': True is not a position"),
        ('{"rides": "begin"}', "Option 'start_stream_cut', stream 'rides': 'begin' is not a stream cut; use earliest"),
        ('{"trams": "5m"}', "Option 'start_stream_cut': stream 'trams' is not read. Remove it, or read it too."),
    ],
)
def test_what_is_no_place_for_each_stream(place: str, told: str) -> None:
    for streams in ("rides", "rides,taxis"):
        assert message(stream=streams, start_stream_cut=place).startswith(told)


def test_a_cut_is_of_one_stream() -> None:
    assert "is a cut of one stream, but several are read" in message(stream="rides,taxis", end_stream_cut=CUT)
    assert parse(stream="rides,taxis", start_stream_cut="earliest").of_stream("rides").start_stream_cut == "earliest"
    with pytest.raises(ValueError, match="'start_stream_cut' cannot be 'latest' in a batch read"):
        parse(stream="rides,taxis", start_stream_cut='{"taxis": "latest"}').batch_cuts()
    given = '{"rides": "2026-01-31"}'
    assert "is before 'starting_timestamp'" in message(start_stream_cut=given, end_stream_cut='{"rides": "2026-01-30"}')


# The least of a trigger


def test_the_least_of_a_trigger() -> None:
    parsed = parse(minEventsPerTrigger="5", minBytesPerTrigger="1KiB", maxTriggerDelay="30s", maxEventsPerTrigger="5")
    assert (parsed.min_events_per_trigger, parsed.min_bytes_per_trigger) == (5, 1024)
    assert parsed.max_trigger_delay == 30_000
    for name in ("min_events_per_trigger", "min_bytes_per_trigger"):
        for bad in ("0", "-1", "many"):
            kind = "size of 1 byte" if "bytes" in name else "whole number of 1"
            assert message(**{name: bad}).startswith(f"Option {name!r} must be a {kind} or more, not {bad!r}.")
    for bad in ("0", "soon"):
        told = message(min_events_per_trigger="1", max_trigger_delay=bad)
        assert told.startswith("Option 'max_trigger_delay' must be a duration of 1 ms or more, not")
    assert message(min_events_per_trigger="6", max_events_per_trigger="5") == (
        "Option 'min_events_per_trigger' (6) is more than 'max_events_per_trigger' (5): lower it."
    )
    assert "'min_bytes_per_trigger' (6) is more" in message(min_bytes_per_trigger="6", approx_bytes_per_trigger="5")


# Cuts and times


CUT = StreamCut("examples", "rides", {0: 5}).as_text()


@pytest.mark.parametrize("name", ["start_stream_cut", "end_stream_cut"])
def test_stream_cuts_stay_text(name: str) -> None:
    assert getattr(parse(**{name: " Earliest "}), name) == "earliest"
    assert getattr(parse(**{name: "LATEST"}), name) == "latest"
    assert getattr(parse(**{name: "Unbounded"}), name) == "unbounded"
    assert getattr(parse(**{name: f"{CUT}\n"}), name) == CUT
    assert f"'{name}' is empty" in message(**{name: " "})


@pytest.mark.parametrize("name", ["start_stream_cut", "end_stream_cut"])
def test_what_is_no_stream_cut(name: str) -> None:
    told = "is not a stream cut; use earliest, latest, unbounded, or a cut's text (begins with H4sI)."
    told += " Invalid base64 input."
    assert message(**{name: "beginning"}) == f"Option '{name}': 'beginning' {told}"
    assert message(**{name: "x" * 100}) == f"Option '{name}': '{'x' * 40}…' {told}"
    assert message(**{name: CUT[:-8]}).startswith(f"Option '{name}': 'H4sI")


@pytest.mark.parametrize(
    ("name", "option"), [("start_stream_cut", "starting_timestamp"), ("end_stream_cut", "ending_timestamp")]
)
def test_a_time_where_a_cut_is_wanted(name: str, option: str) -> None:
    for text in ("5m", "5 minutes ago", "2026-01-31", "1769817600000"):
        assert message(**{name: text}) == (
            f"Option '{name}': {text!r} is a time, not a stream cut: give it as option {option!r} instead, or here "
            "earliest, latest, unbounded, or a cut's text (begins with H4sI). Invalid base64 input."
        )
        assert getattr(parse(**{option: text}), option) is not None


def test_cuts_of_a_batch() -> None:
    assert parse().batch_cuts() == ("earliest", "latest")
    assert parse(start_stream_cut=CUT, end_stream_cut="unbounded").batch_cuts() == (CUT, "unbounded")
    with pytest.raises(ValueError, match=r"'start_stream_cut' cannot be 'latest'"):
        parse(start_stream_cut="latest").batch_cuts()
    with pytest.raises(ValueError, match=r"'end_stream_cut' cannot be 'earliest'"):
        parse(end_stream_cut="earliest").batch_cuts()


def test_cuts_of_a_stream() -> None:
    assert parse().streaming_cuts() == ("latest", "unbounded")
    assert parse(start_stream_cut="latest", end_stream_cut=CUT).streaming_cuts() == ("latest", CUT)
    with pytest.raises(ValueError, match=r"'end_stream_cut' cannot be 'earliest'"):
        parse(end_stream_cut="earliest").streaming_cuts()


@pytest.mark.parametrize("name", ["starting_timestamp", "ending_timestamp"])
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1700000000123", 1700000000123),
        ("1970-01-01", 0),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14t22:13:20z", 1700000000000),
        ("2023-11-14 22:13:20", 1700000000000),
        ("2023-11-14T22:13", 1699999980000),
        ("2023-11-14T22:13:20.123456789Z", 1700000000123),
        ("2023-11-14T22:13:20,5Z", 1700000000500),
        ("2023-11-15T03:43:20+05:30", 1700000000000),
        ("2023-11-15T03:43:20+0530", 1700000000000),
        ("2023-11-14T18:43:20-03:30", 1700000000000),
        ("2023-11-15T00:13:20+02", 1700000000000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_timestamps(name: str, text: str, milliseconds: int) -> None:
    assert getattr(parse(**{name: text}), name) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "later",
        "2023-13-01",
        "2023-02-30T00:00Z",
        "2023-11-14T22",
        "20231114T221320Z",
        "2023-11-14T22:13:20+24:00",
        "2023-11-14T22:13:20+05:60",
        "1.7e12",
        "٢٠٢٣",
        "9" * 19,
    ],
)
def test_bad_timestamps(text: str) -> None:
    given = text if len(text) < 50 else "999"
    assert f"Option 'starting_timestamp': '{given}" in message(starting_timestamp=text)
    assert "is not a time: give ISO 8601" in message(starting_timestamp=text)


def test_times_ago_durations_and_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    assert parse(starting_timestamp="5m", ending_timestamp="now").starting_timestamp == 1_699_999_700_000
    assert parse(max_bytes_per_trigger="10MiB", max_event_bytes="1MB").max_bytes_per_trigger == 10 << 20
    assert parse(maxEventBytes="1MB").max_event_bytes == 1_000_000
    assert parse(**{RETENTION_MS: "7d"}).retention == RetentionPolicy("time", 7 * 86_400_000)
    assert parse(**{RETENTION_BYTES: "5 GB"}).retention == RetentionPolicy("size", 5 * 10**9)
    assert parse(transaction_timeout_ms="1m").transaction_timeout_ms == 60_000
    assert message(max_event_bytes="10M") == (
        "Option 'max_event_bytes' must be a size of 1 byte or more, not '10M'. Sizes are written as "
        "10485760, 10MB (1000 × 1000 bytes each) or 10MiB (1024 × 1024)."
    )


def test_time_and_cut_exclude_each_other() -> None:
    assert "give one of them" in message(start_stream_cut="earliest", starting_timestamp="0")
    assert "give one of them" in message(end_stream_cut="latest", ending_timestamp="0")
    assert parse(start_stream_cut="earliest", ending_timestamp="0").ending_timestamp == 0
    assert "before 'starting_timestamp'" in message(starting_timestamp="2", ending_timestamp="1")
    assert parse(starting_timestamp="2", ending_timestamp="2").ending_timestamp == 2


# Numbers


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "", "many", "1.5", "1e3", "1_000", " 1", "9223372036854775808", pytest.param("9" * 5000, id="endless")],
)
def test_bad_bytes_per_trigger(text: str) -> None:
    told = message(approx_bytes_per_trigger=text)
    assert told.startswith("Option 'approx_bytes_per_trigger' must be a size ") and len(told) < 300
    assert told.endswith("Max offset should be of type long more than or equal to one")
    assert "'max_bytes_per_trigger' must be a size " in message(max_bytes_per_trigger=text)


def test_bytes_per_trigger_has_two_names() -> None:
    assert parse(approx_bytes_per_trigger="1").max_bytes_per_trigger == 1
    assert parse(maxBytesPerTrigger="9223372036854775807").max_bytes_per_trigger == 2**63 - 1
    assert parse(approx_bytes_per_trigger="+7", max_bytes_per_trigger="7").max_bytes_per_trigger == 7
    assert "two names of one option" in message(approx_bytes_per_trigger="1", max_bytes_per_trigger="2")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("max_events_per_trigger", 1, 2**63 - 1),
        ("min_partitions", 1, 2**31 - 1),
        ("max_bytes_per_partition", 1, 2**63 - 1),
        ("max_event_bytes", 1, 2**63 - 1),
        ("transaction_status_poll_interval_ms", 0, 2**63 - 1),
        ("transaction_timeout_ms", 10_000, 2**63 - 1),
    ],
)
def test_number_ranges(name: str, least: int, most: int) -> None:
    assert getattr(parse(**{name: str(least)}), name) == least
    assert getattr(parse(**{name: str(most)}), name) == most
    assert message(**{name: str(least - 1)})
    assert f"Option '{name}' must be a " in message(**{name: str(most + 1)})
    assert f"Option '{name}' must be a " in message(**{name: "lots"})


def test_transaction_timeout() -> None:
    assert message(transaction_timeout_ms="9999").endswith("Transaction time must be at least 10 seconds.")
    assert message(transaction_timeout_ms="-1").endswith("Transaction time must be at least 10 seconds.")
    assert parse().transaction_timeout_ms is None
    assert parse(transaction_timeout_ms="10000").transaction_timeout_ms == 10_000


# Flags and choices


@pytest.mark.parametrize(
    "name",
    [
        "fail_on_data_loss",
        "exactly_once",
        "append_complete_results",
        "ignore_extra_columns",
        "include_metadata",
        "time_window",
        "allow_create_scope",
        "allow_create_stream",
        "read_after_write_consistency",
    ],
)
def test_flags(name: str) -> None:
    for text in ("true", "True", "TRUE"):
        assert getattr(parse(**{name: text}), name) is True
    for text in ("false", "False", "FALSE"):
        assert getattr(parse(**{name: text}), name) is False
    for text in ("yes", "1", "", " true"):
        assert message(**{name: text}) == f"Option '{name}' must be true or false, not {text!r}."


def test_large_events() -> None:
    for text in ("error", "reference", "inline"):
        assert parse(large_events=text).large_events == text
    assert parse(large_events="Inline").large_events == "inline"
    assert message(large_events="skip") == "Option 'large_events' must be one of error, reference, inline, not 'skip'."


@pytest.mark.parametrize("table", METADATA_TABLES)
def test_metadata(table: str) -> None:
    assert parse(metadata=table).metadata == table
    assert "Streams, StreamInfo" in message(metadata=table.lower())


def test_metadata_unknown() -> None:
    assert "'metadata' must be one of" in message(metadata="")


def test_transaction_key() -> None:
    parsed = parse(txnAppId="job", txnVersion="0")
    assert (parsed.txn_app_id, parsed.txn_version) == ("job", 0)
    assert "both or neither" in message(txn_app_id="job")
    assert "both or neither" in message(txn_version="1")
    assert "'txn_version' must be a whole number of 0 or more" in message(txn_app_id="job", txn_version="-1")
    assert "'txn_app_id' is empty" in message(txn_app_id="", txn_version="1")


# Policies of new streams

NUMBERS = {
    "default_num_segments": (1, 2**31 - 1, "Number of segments needs to be integer and should be at least one"),
    "default_scale_factor": (2, 2**31 - 1, "Scale factor needs to be an integer greater than 1"),
    BYTE_RATE: (1024, 2**63 - 1, "Target rate should an integer and should at least be 1024 bytes"),
    EVENT_RATE: (1, 2**63 - 1, "Target rate should be an integer amd should be at least one event per second"),
    RETENTION_MS: (0, 2**63 - 1, "Retention time should be an integer morethan or equal to zero milliseconds"),
    RETENTION_BYTES: (0, 2**63 - 1, "Retention size should be an integer more than or equal to zero bytes"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_policy_numbers(name: str) -> None:
    least, most, expected = NUMBERS[name]
    assert parse(**{name: str(least)}) and parse(**{name: str(most)})
    for text in (str(least - 1), str(most + 1), "x", ""):
        told = message(**{name: text})
        assert told.startswith(f"Option {name!r} must be a ") and f", not {text!r}." in told and told.endswith(expected)


def test_scaling_policy() -> None:
    full = {"default_num_segments": "3", "default_scale_factor": "2"}
    assert parse(default_num_segments="3").scaling == ScalingPolicy("fixed", 3)
    assert parse(**full, **{BYTE_RATE: "10300"}).scaling == ScalingPolicy("bytes", 3, 10, 2)
    assert parse(**full, **{EVENT_RATE: "50"}).scaling == ScalingPolicy("events", 3, 50, 2)


def test_an_incomplete_scaling_policy_is_fixed_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse(default_num_segments="3").scaling == ScalingPolicy("fixed", 3)
        assert caplog.messages == []
        assert parse(**{"default_num_segments": "3", EVENT_RATE: "50"}).scaling == ScalingPolicy("fixed", 3)
        assert parse(default_num_segments="3", default_scale_factor="2").scaling == ScalingPolicy("fixed", 3)
        assert parse(**{"default_scale_factor": "2", EVENT_RATE: "50"}).scaling is None
    assert len(caplog.messages) == 3
    assert all("will not scale automatically" in text for text in caplog.messages)


def test_retention_policy() -> None:
    assert parse(**{RETENTION_MS: "86400000000"}).retention == RetentionPolicy("time", 86_400_000_000)
    assert parse(**{RETENTION_BYTES: "5000000000"}).retention == RetentionPolicy("size", 5_000_000_000)


@pytest.mark.parametrize(
    ("least", "most", "texts"),
    [(RETENTION_MS, RETENTION_MAX_MS, ("14 d", "15 d")), (RETENTION_BYTES, RETENTION_MAX_BYTES, ("1 KiB", "2 KiB"))],
)
def test_a_maximum_of_retention_needs_a_minimum_that_is_not_larger(
    least: str, most: str, texts: tuple[str, str]
) -> None:
    low, high = (text.replace(" ", "") for text in texts)
    kept = parse(**{least: low, most: low}).retention
    assert kept is not None and kept.limit == kept.maximum
    assert message(**{least: high, most: low}) == (
        f"The maximum of retention, {texts[0]} (option {most!r}), is less than the minimum, {texts[1]} (option "
        f"{least!r}): raise the maximum, or lower the minimum."
    )
    assert (
        message(**{most: low})
        == f"option {most!r} is given without option {least!r}: a maximum of retention requires a minimum. Give both."
    )
    other = RETENTION_BYTES if least == RETENTION_MS else RETENTION_MS
    assert message(**{most: low, other: "9"}).startswith(f"Options {most!r} and {other!r} exclude each other")


def test_policies_exclude_each_other() -> None:
    assert message(**{BYTE_RATE: "2048", EVENT_RATE: "1"}) == (
        f"Options {BYTE_RATE!r} and {EVENT_RATE!r} exclude each other: give one of them. Cannot set multiple options "
        "for scaling"
    )
    assert message(**{RETENTION_MS: "1", RETENTION_BYTES: "1"}).endswith(
        "Cannot have multiple retention policy options"
    )


def test_order_of_checks() -> None:
    """With everything wrong at once, mending one fault at a time shows them in the original's order, then ours."""
    faults = {
        BYTE_RATE: "1",
        EVENT_RATE: "0",
        RETENTION_MS: "-1",
        RETENTION_BYTES: "-1",
        "default_num_segments": "0",
        "default_scale_factor": "1",
        "approx_bytes_per_trigger": "0",
        "large_events": "skip",
    }
    mend: list[tuple[dict[str, str | None], str]] = [
        ({"scope": "examples"}, "Missing required option 'scope'"),
        ({"stream": "rides"}, "Missing required option 'stream'"),
        ({BYTE_RATE: None}, "Cannot set multiple options for scaling"),
        ({RETENTION_MS: None}, "Cannot have multiple retention policy options"),
        ({"default_num_segments": "1"}, NUMBERS["default_num_segments"][2]),
        ({"default_scale_factor": "2"}, NUMBERS["default_scale_factor"][2]),
        ({EVENT_RATE: None, BYTE_RATE: "1"}, NUMBERS[EVENT_RATE][2]),
        ({BYTE_RATE: None}, NUMBERS[BYTE_RATE][2]),
        ({RETENTION_BYTES: None, RETENTION_MS: "-1"}, NUMBERS[RETENTION_BYTES][2]),
        ({RETENTION_MS: None}, NUMBERS[RETENTION_MS][2]),
        ({"approx_bytes_per_trigger": None}, "Max offset should be of type long more than or equal to one"),
        ({"controller": "/data/streams"}, "Missing required option 'controller'"),
        ({"large_events": None}, "Option 'large_events' must be"),
    ]
    for change, expected in mend:
        with pytest.raises(ValueError, match=re.escape(expected)):
            SourceOptions.parse(faults, {})
        faults = {name: value for name, value in {**faults, **change}.items() if value is not None}
    assert SourceOptions.parse(faults, {}).root == "/data/streams"


def test_values_of_options_that_contradict_each_other_are_shown() -> None:
    times = {"starting_timestamp": "2026-01-02", "ending_timestamp": "2026-01-01"}
    told = "'ending_timestamp' (2026-01-01T00:00:00.000+00:00) is before 'starting_timestamp' (2026-01-02T00:00:00.000"
    with pytest.raises(ValueError, match=re.escape(told)):
        SourceOptions.parse({**REQUIRED, **times}, {})
    with pytest.raises(ValueError, match=r"^The path '/a' and the option 'controller', '/b', name different roots"):
        SourceOptions.parse({**REQUIRED, "path": "/a", "controller": "/b"}, {})


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("start_steam_cut", "start_stream_cut"),
        ("endStreamCuts", "end_stream_cut"),
        ("starting_timestmp", "starting_timestamp"),
        ("endingTimestamps", "ending_timestamp"),
    ],
)
def test_a_typo_in_the_end_of_a_range_is_an_error(typed: str, meant: str) -> None:
    """If it were ignored, other events would be read."""
    with pytest.raises(ValueError, match=f"^Unknown option '{typed}': did you mean '{meant}'"):
        SourceOptions.parse({**REQUIRED, typed: "earliest"}, {})
