"""The options of the Spark data source, each described once: name, type, default, where it applies, meaning.

This table has the defaults, limits and choices that `options.py` applies, and the documentation's reference is
generated from it. Messages of the original connector keep its wording, mistakes included, as programs may search for
it. They follow a sentence that names the option and the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pravega_spark.streams.model.policies import ON_CHANGED_REPLAY

Use = Literal["batch read", "stream read", "batch write", "stream write", "metadata"]
"""Where an option applies: `spark.read`, `spark.readStream`, `df.write`, `df.writeStream`, a metadata table."""

OptionType = Literal["string", "URL", "stream cut", "time", "duration", "size", "integer", "boolean", "choice"]
"""stream cut: a keyword or a cut's text. time: ISO 8601 (UTC unless it names a zone), a time ago (`5m`), or
milliseconds since 1970. duration: `7d`, or milliseconds. size: `10MiB`, or bytes. See `quantities`."""

STREAM_READ: tuple[Use, ...] = ("stream read",)
READS: tuple[Use, ...] = ("batch read", "stream read")
RANGES: tuple[Use, ...] = (*READS, "metadata")
"""Options that choose what is read. They apply to the metadata table Counts too."""

BATCH_WRITE: tuple[Use, ...] = ("batch write",)
STREAM_WRITE: tuple[Use, ...] = ("stream write",)
WRITES: tuple[Use, ...] = ("batch write", "stream write")
EVERYWHERE: tuple[Use, ...] = (*READS, *WRITES, "metadata")

RANGE_ENDS = ("start_stream_cut", "end_stream_cut", "starting_timestamp", "ending_timestamp")
"""Options that say where a read begins and ends. A typo in one of them is an error, as other events would be read."""

WHERE: Mapping[Use, str] = MappingProxyType(
    {
        "batch read": "spark.read",
        "stream read": "spark.readStream",
        "batch write": "df.write",
        "stream write": "df.writeStream",
        "metadata": "a metadata table",
    }
)
"""The uses as users write them."""

STORAGE_PREFIX = "storage."
TABLE_PREFIX = "option."
"""Spark passes the options of a catalog table twice, the second time with this prefix."""

CUT_KEYWORDS = ("earliest", "latest", "unbounded")
METADATA_TABLES = (
    "Streams",
    "StreamInfo",
    "Segments",
    "Counts",
    "KeyValueTable",
    "StreamCuts",
    "Chunks",
    "Transactions",
    "Containers",
    "Losses",
)

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Its name may be written in any case, and without underscores.

    default: the value if the option is not given, as a user would write it, or a default for each use; None if there is
    none. required: whether a read or write without it fails. least, most: limits of an integer. choices: the allowed
    values. message, too_small: the original connector's errors for an invalid value, and for an integer below `least`.
    """

    name: str
    type: OptionType
    meaning: str
    uses: tuple[Use, ...]
    default: str | Mapping[Use, str] | None = None
    required: bool = False
    least: int = 0
    most: int = MAX_INT64
    choices: tuple[str, ...] = ()
    message: str = ""
    too_small: str = ""

    def default_for(self, use: Use = "batch read") -> str | None:
        """The default in one use. `use` does not matter if all uses have the same default."""
        return self.default.get(use) if isinstance(self.default, Mapping) else self.default


_CREATES: Mapping[Use, str] = MappingProxyType(
    {
        "batch read": "false",
        "stream read": "true",
        "batch write": "true",
        "stream write": "true",
        "metadata": "false",
    }
)

OPTIONS: tuple[Option, ...] = (
    Option(
        "controller",
        "URL",
        "Root of the streams: a folder or an fsspec URL such as s3://bucket/streams. The default is the environment "
        "variable PRAVEGA_CONTROLLER_URI.",
        EVERYWHERE,
        required=True,
    ),
    Option(
        "path",
        "URL",
        "Root of the streams, given to load(), save() or start() instead of option 'controller'.",
        EVERYWHERE,
    ),
    Option(
        "scope",
        "string",
        "Scope of the stream. The metadata tables StreamCuts, Chunks, Transactions and Containers cover all scopes "
        "without it.",
        EVERYWHERE,
        required=True,
    ),
    Option(
        "stream",
        "string",
        "Name of the stream; a read may name several, with commas between them. A write without it sends each row to "
        "the stream that its column stream names. The metadata tables Streams, StreamCuts, "
        "Chunks, Transactions and Containers cover all streams of the scope without it.",
        EVERYWHERE,
        required=True,
    ),
    Option(
        "stream_pattern",
        "string",
        "Read all streams of the scope whose whole name matches this regular expression (Python's), instead of option "
        "stream. A streaming query also reads streams that are created later.",
        RANGES,
    ),
    Option(
        "settings",
        "string",
        "Settings of the driver and the tasks, and of a root that this write creates, as `cache_bytes=256MiB, "
        "flush_seconds=60s`. docs/settings.md lists them.",
        EVERYWHERE,
    ),
    Option(
        "storage.<name>",
        "string",
        "Passed to the fsspec filesystem as <name>; a value that is valid JSON is parsed. Never shown in plans, logs "
        "or errors.",
        EVERYWHERE,
    ),
    Option(
        "wal",
        "URL",
        "Root of the write-ahead log, if it is not below the root of the streams.",
        EVERYWHERE,
    ),
    Option(
        "start_stream_cut",
        "stream cut",
        "Where the read starts: earliest, latest, unbounded or a stream cut. For several streams also a JSON object "
        'that gives some of them one of these or a time, such as {"a": "latest", "b": "5m"}; the others have the '
        "default. A restarted query continues from its checkpoint instead.",
        RANGES,
        default={"batch read": "earliest", "stream read": "latest", "metadata": "earliest"},
        choices=CUT_KEYWORDS,
    ),
    Option(
        "end_stream_cut",
        "stream cut",
        "Where the read ends: latest, unbounded or a stream cut; for several streams also a JSON object, as in "
        "start_stream_cut.",
        RANGES,
        default={"batch read": "latest", "stream read": "unbounded", "metadata": "latest"},
        choices=CUT_KEYWORDS,
    ),
    Option(
        "starting_timestamp",
        "time",
        "Start at the first event written at this time or later, instead of at start_stream_cut. 5m is five minutes "
        "before the query starts. A restarted query continues from its checkpoint instead.",
        RANGES,
    ),
    Option(
        "ending_timestamp",
        "time",
        "End before the first event written at this time or later, instead of at end_stream_cut. A relative time such "
        "as 5m counts back from each start of the query.",
        RANGES,
    ),
    Option(
        "approx_bytes_per_trigger",
        "size",
        "Maximum bytes of a micro-batch, rounded to whole events; also of the first batch. Several streams share it "
        "fairly: a stream that needs less leaves the rest of its share to the others.",
        STREAM_READ,
        least=1,
        message="Max offset should be of type long more than or equal to one",
    ),
    Option(
        "max_bytes_per_trigger",
        "size",
        "The same as approx_bytes_per_trigger, under the name that other Spark sources use.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "max_events_per_trigger",
        "integer",
        "Maximum events of a micro-batch; also of the first batch. Several streams share it fairly: a stream that "
        "needs less leaves the rest of its share to the others.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "min_events_per_trigger",
        "integer",
        "Delay a micro-batch until this many events have accumulated in all streams of the read, or max_trigger_delay "
        "has passed. Not with the trigger availableNow.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "min_bytes_per_trigger",
        "size",
        "Delay a micro-batch until this many bytes have accumulated, event headers included. If min_events_per_trigger "
        "is given too, a micro-batch waits for both.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "max_trigger_delay",
        "duration",
        "Maximum time that events wait for min_events_per_trigger or min_bytes_per_trigger, counted from the poll that "
        "first found any of them. No effect if neither is given.",
        STREAM_READ,
        default="15m",
        least=1,
    ),
    Option(
        "limit_first_batch",
        "boolean",
        "With Spark 4.0 and 4.1: keep max_events_per_trigger, max_bytes_per_trigger and the minima in the first batch "
        "of each run too. Without it the first batch reads the whole backlog, as these versions do not tell whether "
        "the trigger is availableNow or once, which end after one batch. With later versions limits always hold.",
        STREAM_READ,
        default="false",
    ),
    Option(
        "subscriber",
        "string",
        "Let retention wait for this query, as a subscriber of this name to each of its streams: events that it has "
        "not read are kept, up to the policy's maximum. A restarted query remains the same subscriber; a new query "
        "starts at its own position.",
        STREAM_READ,
    ),
    Option(
        "release_interval",
        "duration",
        "Minimum time between two releases of what a subscriber has read; 0 releases after each micro-batch. No effect "
        "without option subscriber.",
        STREAM_READ,
        default="30s",
    ),
    Option(
        "fail_on_data_loss",
        "boolean",
        "Fail if events that should be read have been truncated, if a restore lost events that a streaming query has "
        "read, or if one of its streams was deleted. If false, log what is lost and continue: at the head of the "
        "stream, at the end of the restored events, or without the deleted stream.",
        RANGES,
        default="true",
    ),
    Option(
        "push_filters",
        "boolean",
        "Let a query's filters by stream, segment_id, offset and timestamp limit what is read. Needs Spark 4.1 or "
        "later and spark.sql.python.filterPushdown.enabled. Use a DataFrame with this option for one query only: "
        "Spark uses the plan of its filters for other queries too, which then miss rows.",
        ("batch read",),
        default="false",
    ),
    Option(
        "min_partitions",
        "integer",
        "Minimum number of Spark partitions, if there is enough data to split. Without it, twice the number of the "
        "driver's cores, with at least 4 MiB in each partition.",
        READS,
        least=1,
        most=MAX_INT32,
    ),
    Option(
        "max_bytes_per_partition",
        "size",
        "Target size at which a scan is split into partitions.",
        READS,
        default=str(128 << 20),
        least=1,
    ),
    Option(
        "large_events",
        "choice",
        "What to return for an event larger than max_event_bytes. error: fail the query. reference: a null event and "
        "its pointer in the column event_pointer. inline: its bytes.",
        READS,
        default="error",
        choices=("error", "reference", "inline"),
    ),
    Option(
        "max_event_bytes",
        "size",
        "Size above which an event counts as large; see large_events.",
        READS,
        default=str(128 << 20),
        least=1,
    ),
    Option(
        "exactly_once",
        "boolean",
        "Store the query id and batch number with each micro-batch, so that a replayed batch is not written twice. "
        "If false, a replayed batch is appended again.",
        STREAM_WRITE,
        default="true",
    ),
    Option(
        "append_complete_results",
        "boolean",
        "Allow output mode complete, in which each micro-batch appends the whole result again, as in the original "
        "connector. Without it that output mode is refused.",
        STREAM_WRITE,
        default="false",
    ),
    Option(
        "ignore_extra_columns",
        "boolean",
        "Write the columns event and routing_key, and drop all others. Without it extra columns are rejected, except "
        "those that a read of a stream returns.",
        WRITES,
        default="false",
    ),
    Option(
        "txn_app_id",
        "string",
        "Name of the writing job. Together with txn_version it makes a write idempotent, in batch jobs and in "
        "foreachBatch. Rejected in writeStream, which has its own key.",
        BATCH_WRITE,
    ),
    Option(
        "txn_version",
        "integer",
        "Number of this write, larger than that of the job's previous write. A write whose number is already stored is "
        "skipped.",
        BATCH_WRITE,
        least=0,
    ),
    Option(
        "on_changed_replay",
        "choice",
        "What to do if a batch with the same number but other rows was written before. skip: write nothing and log a "
        "warning. fail: raise ReplayChanged. write: append it.",
        WRITES,
        default=ON_CHANGED_REPLAY[0],
        choices=ON_CHANGED_REPLAY,
    ),
    Option(
        "accept_lost_batches",
        "boolean",
        "Write a batch although earlier batches were lost, because the root was restored or a container recovered "
        "since they were written. By default such a batch fails with WritesLost, so that the job can write them again.",
        WRITES,
        default="false",
    ),
    Option(
        "metadata",
        "choice",
        "Read a metadata table instead of events; the name of the table is case-sensitive. Counts: how many events and "
        "bytes a read with the same options would return. KeyValueTable: the entries of the key-value table that "
        "option stream names.",
        ("metadata",),
        choices=METADATA_TABLES,
    ),
    Option(
        "include_metadata",
        "boolean",
        "Add the columns timestamp, event_pointer and event_number.",
        READS,
        default="false",
    ),
    Option(
        "time_window",
        "boolean",
        "Add the columns lower_time_bound and upper_time_bound: the bounds of the times that writers have noted, of "
        "what the read or the micro-batch covers of the row's stream.",
        READS,
        default="false",
    ),
    Option(
        "insertable",
        "boolean",
        "Make a table or view into which SQL can insert texts and routing keys: event is a string, and there is a "
        "column routing_key. The latter is null in a read, as a stream does not store keys.",
        (*READS, "batch write"),
        default="false",
    ),
    Option(
        "value_format",
        "choice",
        "How events hold structured rows. json, avro: columns other than those of a stream are fields of the event, "
        "encoded in a write and decoded in a read. raw: an event is bytes, in column event.",
        (*READS, *WRITES),
        default="raw",
        choices=("raw", "json", "avro"),
    ),
    Option(
        "value_schema",
        "string",
        "Schema of the fields for value_format. For json, columns and their types in Spark's words, as in "
        "id bigint, name string; a read can also give them by schema(). For avro, the Avro schema with which the "
        "events are written, as JSON.",
        (*READS, *WRITES),
    ),
    Option(
        "on_malformed",
        "choice",
        "What a read with value_format does with an event that is no value of the schema. fail: fail the query, and "
        "name stream, segment and offset. null: make the columns of all its fields null.",
        READS,
        default="fail",
        choices=("fail", "null"),
    ),
    Option(
        "salvage",
        "boolean",
        "Read the intact events of a Pravega cluster's damaged long-term storage. What is lost is logged on the "
        "driver, by segment and offsets, and listed in the metadata table `Losses`.",
        (*READS, "metadata"),
        default="false",
    ),
    Option(
        "unrecorded",
        "boolean",
        "Also read whole events that a killed Pravega server wrote to its long-term storage and did not record in its "
        "metadata. Their number is logged on the driver, by segment and offsets. Without it the metadata table "
        "`Losses` lists them.",
        (*READS, "metadata"),
        default="false",
    ),
    Option(
        "allow_create_scope",
        "boolean",
        "Create the scope if it does not exist. In a write, together with allow_create_stream, it also creates a "
        "missing root in an empty folder or bucket; no read creates a root.",
        EVERYWHERE,
        default=_CREATES,
    ),
    Option(
        "allow_create_stream",
        "boolean",
        "Create the stream if it does not exist. By default a streaming read creates no stream whose name is probably "
        "a typo: a similar name exists in the scope, or the same name in another scope.",
        EVERYWHERE,
        default=_CREATES,
    ),
    Option(
        "default_num_segments",
        "integer",
        "Number of segments of a stream that this read or write creates; 1 without it. With default_scale_factor and "
        "a target rate it is the minimum of an auto-scaling stream.",
        EVERYWHERE,
        least=1,
        most=MAX_INT32,
        message="Number of segments needs to be integer and should be at least one",
    ),
    Option(
        "default_scale_factor",
        "integer",
        "Number of segments into which auto-scaling splits a busy segment of a stream that this read or write creates.",
        EVERYWHERE,
        least=2,
        most=MAX_INT32,
        message="Scale factor needs to be an integer greater than 1",
    ),
    Option(
        "default_segment_target_rate_bytes_per_sec",
        "size",
        "Target rate of a segment in bytes per second, for auto-scaling of a stream that this read or write creates. "
        "Excludes the rate in events.",
        EVERYWHERE,
        least=1024,
        message="Target rate should an integer and should at least be 1024 bytes",
    ),
    Option(
        "default_segment_target_rate_events_per_sec",
        "integer",
        "Target rate of a segment in events per second, for auto-scaling of a stream that this read or write creates. "
        "Excludes the rate in bytes.",
        EVERYWHERE,
        least=1,
        message="Target rate should be an integer amd should be at least one event per second",
    ),
    Option(
        "default_retention_duration_milliseconds",
        "duration",
        "Minimum time for which a stream that this read or write creates keeps its events: 7d, or milliseconds. "
        "Excludes retention by size.",
        EVERYWHERE,
        message="Retention time should be an integer morethan or equal to zero milliseconds",
    ),
    Option(
        "default_retention_size_bytes",
        "size",
        "Minimum bytes that a stream that this read or write creates keeps. Excludes retention by time.",
        EVERYWHERE,
        message="Retention size should be an integer more than or equal to zero bytes",
    ),
    Option(
        "default_retention_max_duration_milliseconds",
        "duration",
        "Maximum time for which a stream that this read or write creates keeps events that a subscriber has not read. "
        "Requires the minimum, default_retention_duration_milliseconds. Without it all unread events are kept.",
        EVERYWHERE,
    ),
    Option(
        "default_retention_max_size_bytes",
        "size",
        "Maximum bytes that a stream that this read or write creates keeps for subscribers that have not read them. "
        "Requires the minimum, default_retention_size_bytes. Without it all unread events are kept.",
        EVERYWHERE,
    ),
    Option(
        "read_after_write_consistency",
        "boolean",
        "Accepted for programs of the original connector, but has no effect: written events can always be read.",
        WRITES,
        default="true",
    ),
    Option(
        "transaction_timeout_ms",
        "duration",
        "Accepted for programs of the original connector, but has no effect: a job is committed in one append.",
        WRITES,
        least=10_000,
        too_small="Transaction time must be at least 10 seconds.",
    ),
    Option(
        "transaction_status_poll_interval_ms",
        "duration",
        "Accepted for programs of the original connector, but has no effect: a commit is done when it returns.",
        WRITES,
        default="50",
    ),
)
"""All options, in the order in which documentation shows them."""


_NO_BROKER = "There is no broker to set up: credentials of the storage go into options 'storage.<name>'."
_NO_SCHEMA = "Events are bytes without a schema: read their fields with 'value_format', or decode them in the query."
_ALL_CHANGES = (
    "A stream has no change feed apart from its events: choose them by 'start_stream_cut' and 'end_stream_cut', or "
    "by 'starting_timestamp' and 'ending_timestamp'."
)
_NO_CHANGES = (
    "Events are appended and never changed, so there is nothing to ignore; 'fail_on_data_loss' decides what happens if "
    "events were truncated."
)

FOREIGN_OPTION_HINTS: Mapping[str, str] = {
    # Kafka's
    "kafka.bootstrap.servers": "controller",
    "bootstrap.servers": "controller",
    "subscribe": "stream",
    "topic": "stream",
    "subscribePattern": "stream_pattern",
    "startingOffsets": "start_stream_cut",
    "endingOffsets": "end_stream_cut",
    "startingOffsetsByTimestamp": "starting_timestamp",
    "endingOffsetsByTimestamp": "ending_timestamp",
    "maxOffsetsPerTrigger": "max_events_per_trigger",
    "minOffsetsPerTrigger": "min_events_per_trigger",
    "maxRecordsPerPartition": "max_bytes_per_partition",
    "includeHeaders": "include_metadata",
    "groupIdPrefix": "A query has its position in its checkpoint, and no group.",
    "kafka.group.id": "A query has its position in its checkpoint, and no group.",
    # Delta's
    "readChangeFeed": _ALL_CHANGES,
    "readChangeData": _ALL_CHANGES,
    "ignoreChanges": _NO_CHANGES,
    "skipChangeCommits": _NO_CHANGES,
    "ignoreDeletes": "fail_on_data_loss",
    "mergeSchema": _NO_SCHEMA,
    "overwriteSchema": _NO_SCHEMA,
    "replaceWhere": "Events can only be appended. Truncate a stream to delete its oldest events.",
    # Iceberg's
    "start-timestamp": "starting_timestamp",
    "end-timestamp": "ending_timestamp",
    "stream-from-timestamp": "starting_timestamp",
    "streaming-max-files-per-micro-batch": "max_events_per_trigger",
    "streaming-max-rows-per-micro-batch": "max_events_per_trigger",
    # of file sources
    "maxFilesPerTrigger": "max_events_per_trigger",
    "maxFileAge": "starting_timestamp",
    "modifiedAfter": "starting_timestamp",
    "modifiedBefore": "ending_timestamp",
    "maxRecordsPerFile": "max_bytes_per_partition",
    "pathGlobFilter": "stream_pattern",
    "cleanSource": "Retention deletes old events: see 'default_retention_duration_milliseconds'.",
    "header": _NO_SCHEMA,
    "inferSchema": _NO_SCHEMA,
}
"""Options of other sources and sinks, and for each the option with its meaning here, or a sentence that says what to do
instead. They are ignored, and logged with this hint."""

_A_TIME = "a time, such as 2026-01-31T12:00:00Z or 5m for five minutes ago"
_START = (
    f"has no version or snapshot: set the start of the read by option 'starting_timestamp' ({_A_TIME}) or "
    "'start_stream_cut' (a cut, such as those in metadata table StreamCuts)"
)
_END = (
    f"has no version or snapshot: set the end of the read by option 'ending_timestamp' ({_A_TIME}) or "
    "'end_stream_cut' (a cut, such as those in metadata table StreamCuts)"
)
_TIME = f"is read up to a time by option 'ending_timestamp' ({_A_TIME}), or up to a cut by 'end_stream_cut'"
_BRANCH = "has no branches or tags: name the stream by option 'stream', and its end by 'end_stream_cut'"

REFUSED_FOREIGN_OPTIONS: Mapping[str, str] = {
    # Kafka's
    "assign": (
        "is read with all its segments: name it by option 'stream', and filter by key in the query; 'min_partitions' "
        "and 'max_bytes_per_partition' set the number of tasks"
    ),
    # Delta's
    "versionAsOf": _END,
    "timestampAsOf": _TIME,
    "startingVersion": _START,
    "endingVersion": _END,
    # Iceberg's
    "snapshot-id": _END,
    "start-snapshot-id": _START,
    "end-snapshot-id": _END,
    "as-of-timestamp": _TIME,
    "branch": _BRANCH,
    "tag": _BRANCH,
    # Hudi's
    "as.of.instant": _TIME,
    "hoodie.datasource.read.begin.instanttime": _START,
    "hoodie.datasource.read.start.timestamp": _START,
    "hoodie.datasource.read.end.instanttime": _END,
    "hoodie.datasource.read.end.timestamp": _END,
}
"""Options of other sources that limit what is read and have no equivalent here, and for each what to do instead.

They are rejected: if such an option were ignored, the read would return other data than the user asked for. One that
has an exact equivalent here is in `FOREIGN_OPTION_HINTS`, and the warning names the equivalent.
"""

KAFKA_PREFIX = "kafka."
"""The prefix of options for Kafka's clients. The hint is `_NO_BROKER`, unless an option has its own."""

USUAL_STORAGE_OPTIONS = (
    "key",
    "secret",
    "token",
    "profile",
    "anon",
    "endpoint_url",
    "client_kwargs",
    "account_name",
    "account_key",
    "sas_token",
    "connection_string",
    "username",
    "password",
)
"""Names of storage options that users often write without the prefix."""

SPARK_OPTIONS = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself passes to a source, in plain spelling."""


def foreign_option_hint(name: str) -> str | None:
    """What to do instead of giving an option of another source; None if no source is known to have it."""
    hint = FOREIGN_HINTS_BY_NAME.get(plain(name), _NO_BROKER if name.lower().startswith(KAFKA_PREFIX) else None)
    return f"Here it is option {hint!r}." if hint in BY_NAME else hint


def spelling(name: str) -> str:
    """An option of another source as that source spells it: Spark passes all names in lower case."""
    return next(
        (other for other in (*FOREIGN_OPTION_HINTS, *REFUSED_FOREIGN_OPTIONS) if plain(other) == plain(name)), name
    )


def foreign_option_refusal(name: str) -> str | None:
    """Why an option of another source is rejected, and what to give instead; None if it is not rejected."""
    instead = _REFUSED_BY_NAME.get(plain(name))
    if instead is None:
        return None
    reason = "If the option were ignored, other data would be read."
    return f"Option {spelling(name)!r} belongs to another source, and a stream {instead}. {reason}"


def plain(name: str) -> str:
    """A name in lower case without underscores, which is the same for all spellings of an option."""
    return name.lower().replace("_", "")


BY_PLAIN_NAME: Mapping[str, Option] = {plain(option.name): option for option in OPTIONS if "<" not in option.name}
"""The options with a fixed name, by that name in plain spelling."""

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}

FOREIGN_HINTS_BY_NAME: Mapping[str, str] = {plain(other): hint for other, hint in FOREIGN_OPTION_HINTS.items()}
_REFUSED_BY_NAME: Mapping[str, str] = {plain(other): instead for other, instead in REFUSED_FOREIGN_OPTIONS.items()}
