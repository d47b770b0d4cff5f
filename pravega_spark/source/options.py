"""The options of one read or write of the Spark data source, checked. `option_table.py` describes each of them.

Names, defaults, the order of checks and the wording of errors are those of the original connector. Errors that it does
not have say what is wrong and what to do.

No error, repr or log shows the value of a `storage.` option.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from chunkstore import StorageRefused
from chunkstore.urls import check_url, redact
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.quantities import parse_time, time_text
from pravega_spark.settings import parse_settings
from pravega_spark.source.multi_stream import (
    checked_names,
    checked_pattern,
    checked_positions,
    is_per_stream,
    positions_of,
)
from pravega_spark.source.option_reader import OptionReader
from pravega_spark.source.option_table import BY_NAME, BY_PLAIN_NAME, CUT_KEYWORDS, METADATA_TABLES, OPTIONS, Use, plain
from pravega_spark.streams.model.cuts import BEGINNING, StreamCut
from pravega_spark.streams.model.names import validate_stream_name
from pravega_spark.streams.model.policies import OnChangedReplay, RetentionPolicy, ScalingPolicy, limited_retention

__all__ = ["METADATA_TABLES", "OPTIONS", "SourceOptions", "table_options"]

log = logging.getLogger(__name__)

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"

ROOT_TABLES = METADATA_TABLES[5:]
"""Metadata tables that can cover a whole scope or root: options `scope` and `stream` are not required."""

MULTI_STREAM_TABLES = (None, "Counts")
"""Values of option `metadata` with which a read may cover several streams. None: a read of events."""

LargeEvents = Literal["error", "reference", "inline"]
ValueFormatName = Literal["raw", "json", "avro"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write, checked. None means "not given" wherever the type allows it.

    storage: passed to fsspec; a value that parses as JSON is parsed (quote it, '"0123"', to keep a string).
    scope, stream: empty if a metadata table covers all of them; `stream` also if each row of a write names its stream.
    For several streams, `stream` has their names with commas between them, or there is a `stream_pattern`. Then a cut
    may be a JSON object with a position for each stream, and `of_stream` returns the options of a read of one of them.
    asked_to_create_…: the option was given as true; otherwise a batch read creates nothing.
    on_changed_replay: for a batch whose number is stored already with other data (X3). accept_lost_batches: for a batch
    before which batches were lost in a restore (P4).
    Times are milliseconds since the epoch, sizes bytes.
    """

    root: str
    scope: str
    stream: str
    stream_pattern: str | None
    storage: dict[str, Any] = field(repr=False, hash=False)
    wal: str | None
    settings: tuple[tuple[str, Any], ...]
    start_stream_cut: str | None
    end_stream_cut: str | None
    starting_timestamp: int | None
    ending_timestamp: int | None
    max_bytes_per_trigger: int | None
    max_events_per_trigger: int | None
    min_bytes_per_trigger: int | None
    min_events_per_trigger: int | None
    max_trigger_delay: int
    limit_first_batch: bool
    subscriber: str | None
    release_interval: int
    fail_on_data_loss: bool
    push_filters: bool
    min_partitions: int | None
    max_bytes_per_partition: int
    large_events: LargeEvents
    max_event_bytes: int
    exactly_once: bool
    append_complete_results: bool
    ignore_extra_columns: bool
    txn_app_id: str | None
    txn_version: int | None
    on_changed_replay: OnChangedReplay
    accept_lost_batches: bool
    metadata: str | None
    include_metadata: bool
    time_window: bool
    insertable: bool
    value_format: ValueFormatName
    value_schema: str | None
    on_malformed: Literal["fail", "null"]
    salvage: bool
    unrecorded: bool
    allow_create_scope: bool
    allow_create_stream: bool
    asked_to_create_scope: bool
    asked_to_create_stream: bool
    scaling: ScalingPolicy | None
    retention: RetentionPolicy | None
    read_after_write_consistency: bool
    transaction_timeout_ms: int | None
    transaction_status_poll_interval_ms: int

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        warn: bool = True,
        rows_name_streams: bool = False,
        use: Use | None = None,
    ) -> SourceOptions:
        """Check the options that Spark passes. Raises ValueError for the first invalid one.

        environment: replaces os.environ. warn: log ignored options, which should happen once for each read or write.
        rows_name_streams: for a write whose rows have a column `stream`, which replaces option `stream`. use: that of
        the options, if it is known.
        """
        given = OptionReader(options)
        environment = os.environ if environment is None else environment
        scope, stream, pattern = _names(given, environment, rows_name_streams, use)
        scaling, retention = _policies(given, warn)
        max_bytes = _max_bytes_per_trigger(given)
        root = _root(given, environment)
        wal = given.text("wal")
        start, end = _stream_cut(given, "start_stream_cut"), _stream_cut(given, "end_stream_cut")
        starting, ending = given.time("starting_timestamp"), given.time("ending_timestamp")
        _refuse_both(given, "start_stream_cut", "starting_timestamp")
        _refuse_both(given, "end_stream_cut", "ending_timestamp")
        _check_times(starting, ending)
        txn_app_id, txn_version = _transaction_key(given)
        parsed = cls(
            root=root,
            scope=scope,
            stream=stream,
            stream_pattern=pattern,
            storage=given.storage,
            wal=None if wal is None else _folder("wal", wal),
            settings=tuple(parse_settings(given.text("settings") or "", "Option 'settings'").items()),
            start_stream_cut=start,
            end_stream_cut=end,
            starting_timestamp=starting,
            ending_timestamp=ending,
            max_bytes_per_trigger=max_bytes,
            subscriber=_subscriber(given),
            txn_app_id=txn_app_id,
            txn_version=txn_version,
            metadata=_metadata(given),
            value_schema=_value_schema(given),
            allow_create_scope=given.flag("allow_create_scope", "batch write"),
            allow_create_stream=given.flag("allow_create_stream", "batch write"),
            asked_to_create_scope=given.flag("allow_create_scope", "batch read"),
            asked_to_create_stream=given.flag("allow_create_stream", "batch read"),
            scaling=scaling,
            retention=retention,
            **{each.name: given.value(each.name) for each in fields(cls) if each.name in _BY_TYPE},
        )
        _check_least(parsed)
        for name in ("start_stream_cut", "end_stream_cut"):
            _check_streams(name, getattr(parsed, name), parsed)
        if warn:
            given.warn_of_unknown()
        return parsed if parsed.is_multi_stream else parsed.of_stream(stream)

    @property
    def opening(self) -> dict[str, Any]:
        """The arguments of `open_root` for the root of these options."""
        return {
            "url": self.root,
            "storage_options": self.storage,
            "wal": self.wal,
            "salvage": self.salvage,
            "unrecorded": self.unrecorded,
            "settings": dict(self.settings),
        }

    @property
    def is_multi_stream(self) -> bool:
        """Whether the read may cover several streams."""
        return self.stream_pattern is not None or "," in self.stream

    @property
    def by_row(self) -> bool:
        """Whether each row of a write names its stream."""
        return not self.stream and self.stream_pattern is None and self.metadata is None

    @property
    def streams(self) -> tuple[str, ...]:
        """The named streams; empty if there is a pattern."""
        return tuple(self.stream.split(",")) if self.stream else ()

    def of_stream(self, stream: str) -> SourceOptions:
        """The options of a read of one of the streams alone. Raises ValueError if it would end before it starts."""
        places: dict[str, Any] = {}
        for cut, time in (("start_stream_cut", "starting_timestamp"), ("end_stream_cut", "ending_timestamp")):
            text = getattr(self, cut)
            if is_per_stream(text):
                place = positions_of(text).get(stream)
                places |= {cut: None, time: place} if isinstance(place, int) else {cut: place}
        one = replace(self, stream=stream, stream_pattern=None, **places)
        _check_times(one.starting_timestamp, one.ending_timestamp)
        return one

    def batch_cuts(self) -> tuple[str, str]:
        """Start and end of a batch read: keywords or texts. Raises ValueError if nothing can lie between them."""
        start, end = self._cuts("batch read")
        if "latest" in _cut_positions(start):
            raise ValueError("Option 'start_stream_cut' cannot be 'latest' in a batch read: nothing would be read.")
        return start, end

    def streaming_cuts(self) -> tuple[str, str]:
        """Start and end of a new streaming query: keywords or texts. Raises ValueError for the end `earliest`."""
        return self._cuts("stream read")

    def _cuts(self, use: Use) -> tuple[str, str]:
        start = self.start_stream_cut or BY_NAME["start_stream_cut"].default_for(use)
        end = self.end_stream_cut or BY_NAME["end_stream_cut"].default_for(use)
        assert start is not None
        assert end is not None
        if "earliest" in _cut_positions(end):
            raise ValueError("Option 'end_stream_cut' cannot be 'earliest': nothing would be read.")
        return start, end


_CHECKED_APART = ("max_bytes_per_trigger", "txn_version", "metadata", "allow_create_scope", "allow_create_stream")
_TYPES = ("integer", "size", "duration", "boolean", "choice")
_BY_TYPE = frozenset(option.name for option in OPTIONS if option.type in _TYPES) - {*_CHECKED_APART}
"""Options of which a field of their name has the value, as their type says."""


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a catalog table that belong to this source and hold no credentials."""
    return {key: value for key, value in options.items() if plain(key) in BY_PLAIN_NAME}


def _names(
    given: OptionReader, environment: Mapping[str, str], by_row: bool, use: Use | None
) -> tuple[str, str, str | None]:
    """Scope, stream, and the pattern for streams. by_row: rows name their streams, unless an option does."""
    rooted = bool(given.text("path") or given.text("controller") or environment.get(ROOT_VARIABLE))
    metadata = given.text("metadata")
    if given.has("stream_pattern") and metadata not in MULTI_STREAM_TABLES:
        raise ValueError(f"Option 'stream_pattern' is not for metadata table {metadata!r}: set option 'stream'.")
    if given.has("stream_pattern"):
        _refuse_both(given, "stream", "stream_pattern")
        (scope,) = given.required("scope", rooted=rooted)
        return scope, "", checked_pattern(given.text("stream_pattern") or "")
    if (by_row or metadata == "Streams") and not given.has("stream"):
        (scope,) = given.required("scope", rooted=rooted)
        return scope, "", None
    if metadata not in ROOT_TABLES:
        scope, stream = given.required("scope", "stream", rooted=rooted, use=use)
        stream = checked_names(stream)
        if "," in stream and metadata not in MULTI_STREAM_TABLES:
            raise ValueError(f"Metadata table {metadata!r} covers one stream, but option 'stream' names several.")
        return scope, stream, None
    given.required(*(name for name in ("scope", "stream") if given.has(name)), rooted=rooted)
    scope, stream = given.text("scope") or "", given.text("stream") or ""
    if stream and not scope:
        raise ValueError("Option 'stream' requires option 'scope': give both.")
    return scope, stream, None


def _policies(given: OptionReader, warn: bool) -> tuple[ScalingPolicy | None, RetentionPolicy | None]:
    """The policies of a new stream, checked in the order of the original connector, which interleaves the two."""
    byte_rate, event_rate = "default_segment_target_rate_bytes_per_sec", "default_segment_target_rate_events_per_sec"
    size, duration = "default_retention_size_bytes", "default_retention_duration_milliseconds"
    _refuse_both(given, byte_rate, event_rate, "Cannot set multiple options for scaling")
    _refuse_both(given, size, duration, "Cannot have multiple retention policy options")
    segments, factor = given.number("default_num_segments"), given.number("default_scale_factor")
    bytes_per_second, events_per_second = given.number(byte_rate), given.number(event_rate)
    kept = {name: given.number(name) for name in (size, duration)}
    return _scaling(segments, factor, bytes_per_second, events_per_second, warn), _retention(given, kept)


def _retention(given: OptionReader, kept: Mapping[str, int | None]) -> RetentionPolicy | None:
    """The retention policy of a new stream. kept: the options of its minimum, of which at most one is given."""
    size, duration = kept
    most_size, most_duration = "default_retention_max_size_bytes", "default_retention_max_duration_milliseconds"
    for one, other in ((most_size, most_duration), (most_size, duration), (most_duration, size)):
        _refuse_both(given, one, other)
    by_size = limited_retention("size", kept[size], given.number(most_size), (_named(size), _named(most_size)))
    names = _named(duration), _named(most_duration)
    return by_size or limited_retention("time", kept[duration], given.number(most_duration), names)


def _named(option: str) -> str:
    return f"option {option!r}"


def _scaling(
    segments: int | None, factor: int | None, bytes_per_second: int | None, events_per_second: int | None, warn: bool
) -> ScalingPolicy | None:
    rated = bytes_per_second is not None or events_per_second is not None
    complete = segments is not None and factor is not None and rated
    if warn and not complete and (factor is not None or rated):
        log.warning(
            "The stream will not scale automatically: that requires 'default_num_segments', 'default_scale_factor' and "
            "one of the two target rates."
        )
    if segments is None:
        return None
    if factor is not None and bytes_per_second is not None:
        return ScalingPolicy("bytes", segments, bytes_per_second // 1024, factor)
    if factor is not None and events_per_second is not None:
        return ScalingPolicy("events", segments, events_per_second, factor)
    return ScalingPolicy("fixed", segments)


def _max_bytes_per_trigger(given: OptionReader) -> int | None:
    original, ours = given.number("approx_bytes_per_trigger"), given.number("max_bytes_per_trigger")
    if original is not None and ours is not None and original != ours:
        raise ValueError(
            "Options 'approx_bytes_per_trigger' and 'max_bytes_per_trigger' are two names of one option: give one."
        )
    return ours if original is None else original


def _subscriber(given: OptionReader) -> str | None:
    name = given.text("subscriber")
    if name is not None:
        try:
            validate_stream_name(name, "subscriber")
        except ValueError as error:
            raise ValueError(f"Option 'subscriber': {error}") from None
    return name


def _check_least(options: SourceOptions) -> None:
    """Raise ValueError if the minimum of a micro-batch is larger than its maximum."""
    for kind in ("bytes", "events"):
        least, most = getattr(options, f"min_{kind}_per_trigger"), getattr(options, f"max_{kind}_per_trigger")
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"Option 'min_{kind}_per_trigger' ({least}) is more than 'max_{kind}_per_trigger' ({most}): lower it."
            )


def _root(given: OptionReader, environment: Mapping[str, str]) -> str:
    """The root of the streams. Path and option must agree; if neither is given, the environment variable applies."""
    found = {name: _folder(name, text) for name in ("path", "controller") if (text := given.text(name))}
    if len(set(found.values())) > 1:
        path, controller = (repr(redact(found[name])) for name in ("path", "controller"))
        raise ValueError(f"The path {path} and the option 'controller', {controller}, name different roots: give one.")
    if found:
        return next(iter(found.values()))
    if text := environment.get(ROOT_VARIABLE):
        return _folder(ROOT_VARIABLE, text)
    raise ValueError(
        "Missing required option 'controller': give the root of the streams, a folder or an fsspec URL such as "
        f"s3://bucket/streams, as this option, as the path, or in the environment variable {ROOT_VARIABLE}"
        f"{given.similar_hint(('controller',)) or '.'}"
    )


def _folder(name: str, text: str) -> str:
    """A root as an fsspec URL or an absolute path. Errors do not show it, as it may contain credentials."""
    scheme, separator, rest = text.partition("://")
    if (separator and scheme.lower() in ("tcp", "tls", "ssl", "pravega", "pravegas")) or re.fullmatch(
        r"[\w.\-]+:[0-9]+", text
    ):
        raise ValueError(
            f"{name!r} names a Pravega controller, but there is no broker: give the folder or bucket of the streams, "
            "such as /data/streams or s3://bucket/streams."
        )
    if not text.strip() or "\0" in text:
        raise ValueError(f"{name!r} is empty or contains a NUL character: give a folder or an fsspec URL.")
    try:
        check_url(text, repr(name))
    except StorageRefused as error:
        raise ValueError(f"{error}.") from None
    if separator:
        return text.rstrip("/") if rest.strip("/") else text
    return os.path.abspath(re.sub(r"^file:(?=/)", "", text))


def _stream_cut(given: OptionReader, name: str) -> str | None:
    text = given.text(name)
    if text is None:
        return None
    text = text.strip()
    if not text:
        raise ValueError(f"Option {name!r} is empty: give {', '.join(CUT_KEYWORDS)}, or a stream cut's text.")
    if is_per_stream(text):
        return checked_positions(name, text, _one_cut)
    if _is_time(text):
        raise ValueError(
            f"Option {name!r}: {text!r} is a time, not a stream cut: give it as option {_TIME_FOR[name]!r} instead, or "
            f"here {_CUTS}. Invalid base64 input."
        )
    return _one_cut(f"Option {name!r}", text)


_TIME_FOR = {"start_stream_cut": "starting_timestamp", "end_stream_cut": "ending_timestamp"}
_CUTS = f"{', '.join(CUT_KEYWORDS)}, or a cut's text (begins with {BEGINNING})"


def _is_time(text: str) -> bool:
    with suppress(ValueError):
        parse_time(text)
        return True
    return False


def _one_cut(what: str, text: str) -> str:
    """A keyword or the text of a cut, checked. what: describes the option for errors."""
    if text.lower() in CUT_KEYWORDS:
        return text.lower()
    try:
        StreamCut.from_text(text)
    except InvalidStreamCut as error:
        if text.startswith(BEGINNING):
            raise ValueError(f"{what}: {error}") from None
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(
            f"{what}: {shown!r} is not a stream cut; use {_CUTS}. Invalid base64 input."  # the original's words
        ) from None
    return text


def _cut_positions(text: str) -> Collection[str | int]:
    """The positions that a cut option gives, of all streams."""
    return positions_of(text).values() if is_per_stream(text) else (text,)


def _check_streams(name: str, text: str | None, options: SourceOptions) -> None:
    """Raise ValueError for a cut of a stream that is not read, or a cut that does not apply to all streams."""
    if text is None:
        return
    if is_per_stream(text):
        for stream in positions_of(text):
            pattern = options.stream_pattern
            if not (re.fullmatch(pattern, stream) if pattern is not None else stream in options.streams):
                raise ValueError(f"Option {name!r}: stream {stream!r} is not read. Remove it, or read it too.")
            options.of_stream(stream)
    elif options.is_multi_stream and text not in CUT_KEYWORDS and text != "UNBOUNDED":
        raise ValueError(
            f"Option {name!r} is a cut of one stream, but several are read: give a JSON object with a position for "
            'each, such as {"stream": "cut"}, or earliest or latest for all.'
        )


def _check_times(starting: int | None, ending: int | None) -> None:
    if starting is not None and ending is not None and ending < starting:
        raise ValueError(
            f"Option 'ending_timestamp' ({time_text(ending)}) is before 'starting_timestamp' ({time_text(starting)}): "
            "swap them, or remove one."
        )


def _refuse_both(given: OptionReader, one: str, other: str, original: str = "") -> None:
    """Raise ValueError if both options are given. original: the original connector's message."""
    if given.has(one) and given.has(other):
        raise ValueError(f"Options {one!r} and {other!r} exclude each other: give one of them. {original}".rstrip())


def _transaction_key(given: OptionReader) -> tuple[str | None, int | None]:
    app_id, version = given.text("txn_app_id"), given.number("txn_version")
    if (app_id is None) != (version is None):
        raise ValueError("Options 'txn_app_id' and 'txn_version' form one key: give both or neither.")
    if app_id == "":
        raise ValueError("Option 'txn_app_id' is empty: give a name that identifies this job.")
    return app_id, version


def _value_schema(given: OptionReader) -> str | None:
    """The schema of values, checked with their format, so that a mistake in it is an error of this option."""
    text, format = given.text("value_schema"), given.choice("value_format")
    if text is None:
        return None
    if format == "raw":
        raise ValueError(
            "Option 'value_schema' is the schema of structured events, but option 'value_format' is raw: set it to "
            "json or avro, or remove 'value_schema'."
        )
    from pravega_spark.streams.values.columns import ValueColumns
    from pravega_spark.streams.values.value_format import ValueFormat

    try:
        ValueColumns.of(ValueFormat("avro" if format == "avro" else "json", text))
    except ValueError as error:
        raise ValueError(f"Option 'value_schema': {error}") from None
    return text


def _metadata(given: OptionReader) -> str | None:
    text = given.text("metadata")
    if text is not None and text not in METADATA_TABLES:
        raise ValueError(
            f"Option 'metadata' must be one of {', '.join(METADATA_TABLES)} (case-sensitive), not {text!r}."
        )
    return text
