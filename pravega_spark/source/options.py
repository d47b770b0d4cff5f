"""What a user may ask of the Spark data source: every option's name, default and check.

Option names come in any case, with or without underscores. Names, defaults, the order of checks and the wording of
the original connector's errors are kept; where it had no message of its own, ours says what was wrong and what to do.
No error, repr or log holds the value of a `storage.` option.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from pravega_spark.streams.records import RetentionPolicy, ScalingPolicy

log = logging.getLogger(__name__)

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"
MiB = 1024 * 1024

CUT_KEYWORDS = ("earliest", "latest", "unbounded")
METADATA_TABLES = ("Streams", "StreamInfo", "Segments", "StreamCuts", "Chunks", "Transactions", "Containers")
OF_ROOTS = METADATA_TABLES[3:]
"""Those that can be about a whole scope or root: options `scope` and `stream` may be left out."""

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_STORAGE = "storage."
_NAMES = (
    "controller", "path", "scope", "stream", "wal", "start_stream_cut", "end_stream_cut", "starting_timestamp",
    "ending_timestamp", "approx_bytes_per_trigger", "max_bytes_per_trigger", "max_events_per_trigger",
    "fail_on_data_loss", "min_partitions", "max_bytes_per_partition", "large_events", "max_event_bytes",
    "exactly_once", "txn_app_id", "txn_version", "metadata", "include_metadata", "allow_create_scope",
    "allow_create_stream", "default_num_segments", "default_scale_factor",
    "default_segment_target_rate_bytes_per_sec", "default_segment_target_rate_events_per_sec",
    "default_retention_duration_milliseconds", "default_retention_size_bytes", "read_after_write_consistency",
    "transaction_timeout_ms", "transaction_status_poll_interval_ms",
)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


_KNOWN = {_plain(name): name for name in _NAMES}

LargeEvents = Literal["error", "reference", "inline"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write, checked. None is "not given" wherever the type allows it.

    `storage` goes to fsspec; a value that parses as JSON is what it parses to (quote it, '"0123"', to keep a text).
    `scope` and `stream` are empty where a metadata table is about all of them.
    Some defaults of the original differ between batch and streaming: ask `batch_cuts`, `streaming_cuts` and
    `transaction_timeout` for those. Times are milliseconds since the epoch, sizes bytes.
    """

    root: str
    scope: str
    stream: str
    storage: dict[str, Any] = field(repr=False, hash=False)
    wal: str | None
    start_stream_cut: str | None
    end_stream_cut: str | None
    starting_timestamp: int | None
    ending_timestamp: int | None
    max_bytes_per_trigger: int | None
    max_events_per_trigger: int | None
    fail_on_data_loss: bool
    min_partitions: int | None
    max_bytes_per_partition: int
    large_events: LargeEvents
    max_event_bytes: int
    exactly_once: bool
    txn_app_id: str | None
    txn_version: int | None
    metadata: str | None
    include_metadata: bool
    allow_create_scope: bool
    allow_create_stream: bool
    scaling: ScalingPolicy | None
    retention: RetentionPolicy | None
    read_after_write_consistency: bool
    transaction_timeout_ms: int | None
    transaction_status_poll_interval_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> SourceOptions:
        """Checks what Spark handed us. `environment` stands for os.environ. Raises ValueError for the first fault."""
        given = _Given(options)
        scope, stream = _names(given)
        scaling, retention = _policies(given)
        max_bytes = _max_bytes_per_trigger(given)
        root = _root(given, os.environ if environment is None else environment)
        wal = given.text("wal")
        start, end = _stream_cut(given, "start_stream_cut"), _stream_cut(given, "end_stream_cut")
        starting, ending = _timestamp(given, "starting_timestamp"), _timestamp(given, "ending_timestamp")
        _refuse_both(given, "start_stream_cut", "starting_timestamp")
        _refuse_both(given, "end_stream_cut", "ending_timestamp")
        if starting is not None and ending is not None and ending < starting:
            raise ValueError("Option 'ending_timestamp' is before 'starting_timestamp': swap them or drop one.")
        txn_app_id, txn_version = _transaction_key(given)
        parsed = cls(
            root=root,
            scope=scope,
            stream=stream,
            storage=given.storage,
            wal=None if wal is None else _folder("wal", wal),
            start_stream_cut=start,
            end_stream_cut=end,
            starting_timestamp=starting,
            ending_timestamp=ending,
            max_bytes_per_trigger=max_bytes,
            max_events_per_trigger=given.number("max_events_per_trigger", least=1),
            fail_on_data_loss=given.flag("fail_on_data_loss", default=True),
            min_partitions=given.number("min_partitions", least=1, most=_MAX_INT32),
            max_bytes_per_partition=given.number_or("max_bytes_per_partition", 128 * MiB, least=1),
            large_events=cast(LargeEvents, given.choice("large_events", ("error", "reference", "inline"))),
            max_event_bytes=given.number_or("max_event_bytes", 128 * MiB, least=1),
            exactly_once=given.flag("exactly_once", default=True),
            txn_app_id=txn_app_id,
            txn_version=txn_version,
            metadata=_metadata(given),
            include_metadata=given.flag("include_metadata", default=False),
            allow_create_scope=given.flag("allow_create_scope", default=True),
            allow_create_stream=given.flag("allow_create_stream", default=True),
            scaling=scaling,
            retention=retention,
            read_after_write_consistency=given.flag("read_after_write_consistency", default=True),
            transaction_timeout_ms=_transaction_timeout(given),
            transaction_status_poll_interval_ms=given.number_or("transaction_status_poll_interval_ms", 50, least=0),
        )
        given.warn_of_misspellings()
        return parsed

    def batch_cuts(self) -> tuple[str, str]:
        """Start and end of a batch read: keywords or texts. ValueError for a pair that cannot hold anything."""
        start, end = self.start_stream_cut or "earliest", self.end_stream_cut or "latest"
        if start == "latest":
            raise ValueError("Option 'start_stream_cut' cannot be 'latest' in a batch read: nothing would be read.")
        return start, _checked_end(end)

    def streaming_cuts(self) -> tuple[str, str]:
        """Start and end of a new streaming query: keywords or texts. ValueError for the end `earliest`."""
        return self.start_stream_cut or "latest", _checked_end(self.end_stream_cut or "unbounded")

    def transaction_timeout(self, *, streaming: bool) -> int:
        """How long a transaction may stay open, in milliseconds."""
        if self.transaction_timeout_ms is not None:
            return self.transaction_timeout_ms
        return 30_000 if streaming else 120_000


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that are ours and hold no credentials."""
    return {key: value for key, value in options.items() if _plain(key) in _KNOWN}


class _Given:
    """The options as they came: looked up by name, whatever their spelling, and converted to a type."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.storage: dict[str, Any] = {}
        self._values: dict[str, str] = {}
        self._unknown: list[str] = []
        for key, value in options.items():
            # Spark lower-cases all keys on their way here, so the case of a storage option's name cannot matter.
            if key.lower().startswith(_STORAGE):
                self._keep_storage_option(key.lower().removeprefix(_STORAGE), value)
            elif key.lower().startswith("option."):
                pass  # a table's options come twice, once with this prefix
            elif (name := _KNOWN.get(_plain(key))) is None:
                self._unknown.append(key)
            elif self._values.setdefault(name, value) != value:
                raise ValueError(f"Option {name!r} is given in two spellings with different values: keep one of them.")
        if "paths" in self._unknown:
            raise ValueError("Several paths were given, but streams have one root: give one path.")

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def has(self, name: str) -> bool:
        return name in self._values

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise ValueError(f"Missing required option '{name}'")
        return value

    def number(self, name: str, *, least: int, most: int = _MAX_INT64, message: str = "") -> int | None:
        """A decimal number in [least, most]; `message` replaces the usual one."""
        text = self.text(name)
        if text is None:
            return None
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and least <= (value := int(text)) <= most:
            return value
        raise ValueError(message or f"Option {name!r} must be a number from {least} to {most}, not {text!r}.")

    def number_or(self, name: str, default: int, *, least: int) -> int:
        value = self.number(name, least=least)
        return default if value is None else value

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ValueError(f"Option {name!r} must be true or false, not {text!r}.")
        return text.lower() == "true"

    def choice(self, name: str, values: tuple[str, ...]) -> str:
        """One of `values` in any case; the first is the default."""
        text = self._values.get(name, values[0])
        if text.lower() not in values:
            raise ValueError(f"Option {name!r} must be one of {', '.join(values)}, not {text!r}.")
        return text.lower()

    def warn_of_misspellings(self) -> None:
        """Unknown options are ignored, as Spark's own travel with ours; one that is nearly ours is likely a slip."""
        for key in self._unknown:
            for match in difflib.get_close_matches(_plain(key), _KNOWN, n=1, cutoff=0.85):
                log.warning("Option %r is not known and is ignored. Did you mean %r?", key, _KNOWN[match])

    def _keep_storage_option(self, name: str, text: str) -> None:
        if not name:
            raise ValueError("Option 'storage.' needs a name after the dot, as in storage.endpoint_url.")
        value = _json_or_text(text)
        if name in self.storage and self.storage[name] != value:
            raise ValueError(f"Option 'storage.{name}' is given twice with different values: keep one of them.")
        self.storage[name] = value


def _json_or_text(text: str) -> Any:
    def refuse(_: str) -> None:
        raise ValueError  # NaN and Infinity are Python's addition to JSON

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


def _names(given: _Given) -> tuple[str, str]:
    """Scope and stream."""
    if given.text("metadata") not in OF_ROOTS:
        return given.required("scope"), given.required("stream")
    scope, stream = (given.required(name) if given.has(name) else "" for name in ("scope", "stream"))
    if stream and not scope:
        raise ValueError("Option 'stream' names a stream of a scope: give option 'scope' too.")
    return scope, stream


def _policies(given: _Given) -> tuple[ScalingPolicy | None, RetentionPolicy | None]:
    """Both policies of a new stream; their checks are interleaved in the original, and so they are here."""
    byte_rate, event_rate = "default_segment_target_rate_bytes_per_sec", "default_segment_target_rate_events_per_sec"
    size, duration = "default_retention_size_bytes", "default_retention_duration_milliseconds"
    if given.has(byte_rate) and given.has(event_rate):
        raise ValueError("Cannot set multiple options for scaling")
    if given.has(size) and given.has(duration):
        raise ValueError("Cannot have multiple retention policy options")
    segments = given.number(
        "default_num_segments",
        least=1,
        most=_MAX_INT32,
        message="Number of segments needs to be integer and should be at least one",
    )
    factor = given.number(
        "default_scale_factor",
        least=2,
        most=_MAX_INT32,
        message="Scale factor needs to be an integer greater than 1",
    )
    bytes_per_second = given.number(
        byte_rate, least=1024, message="Target rate should an integer and should at least be 1024 bytes"
    )
    events_per_second = given.number(
        event_rate,
        least=1,
        message="Target rate should be an integer amd should be at least one event per second",
    )
    bytes_kept = given.number(
        size, least=0, message="Retention size should be an integer more than or equal to zero bytes"
    )
    milliseconds_kept = given.number(
        duration, least=0, message="Retention time should be an integer morethan or equal to zero milliseconds"
    )
    retention: RetentionPolicy | None = None
    if bytes_kept is not None:
        retention = RetentionPolicy("size", bytes_kept)
    elif milliseconds_kept is not None:
        retention = RetentionPolicy("time", milliseconds_kept)
    return _scaling(segments, factor, bytes_per_second, events_per_second), retention


def _scaling(
    segments: int | None, factor: int | None, bytes_per_second: int | None, events_per_second: int | None
) -> ScalingPolicy | None:
    rated = bytes_per_second is not None or events_per_second is not None
    complete = segments is not None and factor is not None and rated
    if not complete and (factor is not None or rated):
        log.warning(
            "The stream will not scale by itself: that takes 'default_num_segments', 'default_scale_factor' and one of "
            "the two target rates together."
        )
    if segments is None:
        return None
    if factor is not None and bytes_per_second is not None:
        return ScalingPolicy("bytes", segments, bytes_per_second // 1024, factor)
    if factor is not None and events_per_second is not None:
        return ScalingPolicy("events", segments, events_per_second, factor)
    return ScalingPolicy("fixed", segments)


def _max_bytes_per_trigger(given: _Given) -> int | None:
    original = given.number(
        "approx_bytes_per_trigger",
        least=1,
        message="Max offset should be of type long more than or equal to one",
    )
    ours = given.number("max_bytes_per_trigger", least=1)
    if original is not None and ours is not None and original != ours:
        raise ValueError(
            "Options 'approx_bytes_per_trigger' and 'max_bytes_per_trigger' are one option with two names: give one."
        )
    return ours if original is None else original


def _root(given: _Given, environment: Mapping[str, str]) -> str:
    """The root of the streams. Path and option must agree; the environment counts where neither is given."""
    found = {name: _folder(name, text) for name in ("path", "controller") if (text := given.text(name))}
    if len(set(found.values())) > 1:
        raise ValueError("The path and the option 'controller' name different roots: give one of them.")
    if found:
        return next(iter(found.values()))
    if text := environment.get(ROOT_VARIABLE):
        return _folder(ROOT_VARIABLE, text)
    raise ValueError(
        "Missing required option 'controller': give the root of the streams, a folder or an fsspec URL such as "
        f"s3://bucket/streams, as this option, as the path, or in the environment variable {ROOT_VARIABLE}."
    )


def _folder(name: str, text: str) -> str:
    """A root in one spelling: an fsspec URL, or an absolute path. Errors do not show it; it may hold credentials."""
    scheme, separator, rest = text.partition("://")
    if (separator and scheme.lower() in ("tcp", "tls", "ssl", "pravega", "pravegas")) or re.fullmatch(
        r"[\w.\-]+:[0-9]+", text
    ):
        raise ValueError(
            f"{name!r} names a Pravega controller, but there is no broker here: give the folder or bucket the streams "
            "live in, as in /data/streams or s3://bucket/streams."
        )
    if not text.strip() or "\0" in text:
        raise ValueError(f"{name!r} is empty or holds a NUL character: give a folder or an fsspec URL.")
    if separator and re.match(r"[^/@]*:[^/@]*@", rest):
        raise ValueError(f"{name!r} holds a password: give credentials as storage.<name> options, never in the URL.")
    if separator:
        return text.rstrip("/") if rest.strip("/") else text
    return os.path.abspath(re.sub(r"^file:(?=/)", "", text))


def _stream_cut(given: _Given, name: str) -> str | None:
    text = given.text(name)
    if text is None:
        return None
    text = text.strip()
    if not text:
        raise ValueError(f"Option {name!r} is empty: give {', '.join(CUT_KEYWORDS)}, or a stream cut's text.")
    return text.lower() if text.lower() in CUT_KEYWORDS else text


def _checked_end(end: str) -> str:
    if end == "earliest":
        raise ValueError("Option 'end_stream_cut' cannot be 'earliest': nothing would be read.")
    return end


_ISO_8601 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:Z|([+-])([01]\d|2[0-3])(?::?([0-5]\d))?)?)?",
    re.ASCII | re.IGNORECASE,
)


def _timestamp(given: _Given, name: str) -> int | None:
    """ISO 8601 (UTC where it names no zone) or milliseconds since the epoch. Finer parts are cut off."""
    text = given.text(name)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        return _milliseconds(_ISO_8601.fullmatch(text.strip()))
    except ValueError as error:
        raise ValueError(
            f"Option {name!r} must be ISO 8601, as in 2026-01-31T12:00:00Z (UTC unless it names another zone), or "
            f"milliseconds since the epoch, not {text!r}."
        ) from error


def _milliseconds(match: re.Match[str] | None) -> int:
    if match is None:
        raise ValueError("not ISO 8601")
    *calendar, fraction, sign, zone_hours, zone_minutes = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, calendar)
    since = datetime(year, month, day, hour, minute, second) - datetime(1970, 1, 1)
    east = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    since += east if sign == "-" else -east
    return since // timedelta(milliseconds=1) + int(fraction.ljust(3, "0")[:3])


def _refuse_both(given: _Given, one: str, other: str) -> None:
    if given.has(one) and given.has(other):
        raise ValueError(f"Options {one!r} and {other!r} both say where to begin or end: give one of them.")


def _transaction_key(given: _Given) -> tuple[str | None, int | None]:
    app_id, version = given.text("txn_app_id"), given.number("txn_version", least=0)
    if (app_id is None) != (version is None):
        raise ValueError("Options 'txn_app_id' and 'txn_version' make one key: give both or neither.")
    if app_id == "":
        raise ValueError("Option 'txn_app_id' is empty: give the name under which this job's batches are remembered.")
    return app_id, version


def _metadata(given: _Given) -> str | None:
    text = given.text("metadata")
    if text is not None and text not in METADATA_TABLES:
        raise ValueError(f"Option 'metadata' must be one of {', '.join(METADATA_TABLES)} (case counts), not {text!r}.")
    return text


def _transaction_timeout(given: _Given) -> int | None:
    timeout = given.number("transaction_timeout_ms", least=-_MAX_INT64)
    if timeout is not None and timeout < 10_000:
        raise ValueError("Transaction time must be at least 10 seconds.")
    return timeout
