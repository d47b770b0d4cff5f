"""The options of the Spark data source, each described once: name, type, default, where it applies, meaning.

Parsing (`options.py`) takes defaults, limits and choices from here, and the reference in the documentation is made from
here. The messages marked as the original connector's keep its wording, mistakes included: programs may look for them.
They follow our own sentence, which names option and value.
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

BATCH_READ: tuple[Use, ...] = ("batch read",)
STREAM_READ: tuple[Use, ...] = ("stream read",)
READS: tuple[Use, ...] = ("batch read", "stream read")
RANGES: tuple[Use, ...] = (*READS, "metadata")
"""Options that choose what is read apply to the metadata table Counts too."""

BATCH_WRITE: tuple[Use, ...] = ("batch write",)
STREAM_WRITE: tuple[Use, ...] = ("stream write",)
WRITES: tuple[Use, ...] = ("batch write", "stream write")
EVERYWHERE: tuple[Use, ...] = (*READS, *WRITES, "metadata")

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
"""How the options of a table of the catalog begin when they come for the second time."""

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

    default: the value that counts if the option is not given, as a user would write it; by use, where uses differ;
    None if there is none. required: whether a read or write without it fails. least, most: limits of an integer.
    choices: the values it may have. message, too_small: the original connector's errors for a bad value, and for an
    integer below `least`, where it has one.
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
        """The default in one use; `use` does not matter where all uses have the same."""
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
        "stream. A streaming query takes in new ones as they come.",
        RANGES,
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
        'that gives some of them one of these or a time, as {"a": "latest", "b": "5m"}; for the others the default '
        "counts. A restarted query continues from its checkpoint instead.",
        RANGES,
        default={"batch read": "earliest", "stream read": "latest", "metadata": "earliest"},
        choices=CUT_KEYWORDS,
    ),
    Option(
        "end_stream_cut",
        "stream cut",
        "Where the read ends: latest, unbounded or a stream cut; for several streams also a JSON object as in "
        "start_stream_cut.",
        RANGES,
        default={"batch read": "latest", "stream read": "unbounded", "metadata": "latest"},
        choices=CUT_KEYWORDS,
    ),
    Option(
        "starting_timestamp",
        "time",
        "Start at the first event written at this time or later, instead of at start_stream_cut; 5m is five minutes "
        "before the query starts. A restarted query continues from its checkpoint instead.",
        RANGES,
    ),
    Option(
        "ending_timestamp",
        "time",
        "End before the first event written at this time or later, instead of at end_stream_cut. A time ago, as 5m, "
        "counts from each start of the query.",
        RANGES,
    ),
    Option(
        "approx_bytes_per_trigger",
        "size",
        "Maximum bytes of a micro-batch, rounded to whole events; the first batch included. Several streams share it, "
        "and what one does not need is the others'.",
        STREAM_READ,
        least=1,
        message="Max offset should be of type long more than or equal to one",
    ),
    Option(
        "max_bytes_per_trigger",
        "size",
        "The same as approx_bytes_per_trigger, by the name that other Spark sources use.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "max_events_per_trigger",
        "integer",
        "Maximum events of a micro-batch; the first batch included. Several streams share it, and what one does not "
        "need is the others'.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "min_events_per_trigger",
        "integer",
        "Begin a micro-batch only when so many events are there, of all streams of the read, or max_trigger_delay has "
        "passed. Not with the trigger availableNow.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "min_bytes_per_trigger",
        "size",
        "The same by bytes, event headers included. With both, both have to be reached.",
        STREAM_READ,
        least=1,
    ),
    Option(
        "max_trigger_delay",
        "duration",
        "How long events wait at most for min_events_per_trigger or min_bytes_per_trigger, from when the query first "
        "found some of them. Without effect where neither is given.",
        STREAM_READ,
        default="15m",
        least=1,
    ),
    Option(
        "subscriber",
        "string",
        "Let retention wait for this query, as a subscriber of this name to each of its streams: what it has not read "
        "is kept up to the policy's maximum. A restarted query goes on as the same subscriber; a new one begins anew.",
        STREAM_READ,
    ),
    Option(
        "release_interval",
        "duration",
        "How much time is at least between two releases of what a subscriber has read; 0: after each micro-batch. "
        "Without effect unless option subscriber is given.",
        STREAM_READ,
        default="30s",
    ),
    Option(
        "fail_on_data_loss",
        "boolean",
        "Fail if events that should be read have been truncated, if a restore lost events that a streaming query has "
        "read, or a stream of it was deleted. If false, log what is lost and continue at the head of the stream, where "
        "what was restored ends, or without the deleted stream.",
        RANGES,
        default="true",
    ),
    Option(
        "min_partitions",
        "integer",
        "Minimum number of Spark partitions, if there is enough data to split. Without it, twice the cores of the "
        "driver, with at least 4 MiB in each.",
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
        "Write the columns event and routing_key, and drop all others. Without it other columns are an error, but for "
        "those of a read of a stream.",
        WRITES,
        default="false",
    ),
    Option(
        "txn_app_id",
        "string",
        "Name of the writing job; together with txn_version it makes a write idempotent, in batch jobs and in "
        "foreachBatch. Rejected in writeStream, which has its own key.",
        BATCH_WRITE,
    ),
    Option(
        "txn_version",
        "integer",
        "Number of this write, larger than that of the job's write before. A number that is stored already is not "
        "written again.",
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
        "Write a batch although batches before it were lost: the root was restored, or a container recovered, since "
        "they were written. By default such a batch fails with WritesLost, so that they can be written again.",
        WRITES,
        default="false",
    ),
    Option(
        "metadata",
        "choice",
        "Read a metadata table instead of events; the name of the table is case-sensitive. Counts: how many events and "
        "bytes a read with the same options would find. KeyValueTable: the entries of a Pravega's key-value table, "
        "which option stream names.",
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
        "salvage",
        "boolean",
        "Of the long-term storage of a Pravega that is damaged, read the events that are sound; what is lost is logged "
        "on the driver, by segment and offsets, and is in the table `Losses`.",
        (*READS, "metadata"),
        default="false",
    ),
    Option(
        "allow_create_scope",
        "boolean",
        "Create the scope if it does not exist. In a write, together with allow_create_stream, it also creates a "
        "missing root in an empty place; no read creates one.",
        EVERYWHERE,
        default=_CREATES,
    ),
    Option(
        "allow_create_stream",
        "boolean",
        "Create the stream if it does not exist.",
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
        "How long a stream that this read or write creates keeps its events: 7d, or milliseconds. Excludes retention "
        "by size.",
        EVERYWHERE,
        message="Retention time should be an integer morethan or equal to zero milliseconds",
    ),
    Option(
        "default_retention_size_bytes",
        "size",
        "How many bytes a stream that this read or write creates keeps. Excludes retention by time.",
        EVERYWHERE,
        message="Retention size should be an integer more than or equal to zero bytes",
    ),
    Option(
        "read_after_write_consistency",
        "boolean",
        "Accepted for programs of the original connector and without effect: what was written can always be read.",
        WRITES,
        default="true",
    ),
    Option(
        "transaction_timeout_ms",
        "duration",
        "Accepted for programs of the original connector and without effect: a job is committed in one append.",
        WRITES,
        least=10_000,
        too_small="Transaction time must be at least 10 seconds.",
    ),
    Option(
        "transaction_status_poll_interval_ms",
        "duration",
        "Accepted for programs of the original connector and without effect: a commit is done when it returns.",
        WRITES,
        default="50",
    ),
)
"""All options, in the order in which documentation shows them."""


_NO_BROKER = "There is no broker to set up: credentials of the storage go into options 'storage.<name>'."
_NO_SCHEMA = "Events are bytes without a schema: decode them in the query, as with from_json."
_ALL_CHANGES = (
    "A stream is its changes, and a read returns them: 'start_stream_cut' and 'end_stream_cut' say which, or "
    "'starting_timestamp' and 'ending_timestamp'."
)
_NO_CHANGES = (
    "Events are appended and never changed, so there is nothing to ignore; 'fail_on_data_loss' is about events that "
    "were truncated."
)

NAMES_OF_OTHERS: Mapping[str, str] = {
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
    "groupIdPrefix": "A query keeps its place in its checkpoint, and has no group.",
    "kafka.group.id": "A query keeps its place in its checkpoint, and has no group.",
    # Delta's
    "readChangeFeed": _ALL_CHANGES,
    "readChangeData": _ALL_CHANGES,
    "ignoreChanges": _NO_CHANGES,
    "skipChangeCommits": _NO_CHANGES,
    "ignoreDeletes": "fail_on_data_loss",
    "mergeSchema": _NO_SCHEMA,
    "overwriteSchema": _NO_SCHEMA,
    "replaceWhere": "Events can only be appended; the head of a stream is cut off by truncating it.",
    # Iceberg's
    "start-timestamp": "starting_timestamp",
    "end-timestamp": "ending_timestamp",
    "stream-from-timestamp": "starting_timestamp",
    "streaming-max-files-per-micro-batch": "max_events_per_trigger",
    "streaming-max-rows-per-micro-batch": "max_events_per_trigger",
    # those of file sources
    "maxFilesPerTrigger": "max_events_per_trigger",
    "maxFileAge": "starting_timestamp",
    "modifiedAfter": "starting_timestamp",
    "modifiedBefore": "ending_timestamp",
    "maxRecordsPerFile": "max_bytes_per_partition",
    "pathGlobFilter": "stream_pattern",
    "cleanSource": "Retention deletes what was read: see 'default_retention_duration_milliseconds'.",
    "header": _NO_SCHEMA,
    "inferSchema": _NO_SCHEMA,
}
"""Options of other sources and sinks that a user may give here, and the option that does here what he wants; or, where
there is none, a sentence that says why, or what to do."""

_A_TIME = "a time, such as 2026-01-31T12:00:00Z or 5m for five minutes ago"
_START = (
    f"has no version or snapshot: say where the read starts, by option 'starting_timestamp' ({_A_TIME}) or "
    "'start_stream_cut' (a cut, as metadata table StreamCuts has them)"
)
_END = (
    f"has no version or snapshot: say where the read ends, by option 'ending_timestamp' ({_A_TIME}) or "
    "'end_stream_cut' (a cut, as metadata table StreamCuts has them)"
)
_TIME = f"is read up to a time by option 'ending_timestamp' ({_A_TIME}), or up to a cut by 'end_stream_cut'"
_BRANCH = "has no branches or tags: name the stream by option 'stream', and its end by 'end_stream_cut'"

BOUNDS_OF_OTHERS: Mapping[str, str] = {
    # Kafka's
    "assign": (
        "is read with all its segments: name it by option 'stream', and choose keys in the query; into how many tasks "
        "the read is cut say 'min_partitions' and 'max_bytes_per_partition'"
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
"""Options of other sources that bound what is read, where no option here means exactly the same; and what a stream has
or does instead. The rule: an ignored option that bounds the data would return other data than was asked for, so it is
refused; where an option here has exactly its meaning, it is in `NAMES_OF_OTHERS` and a warning names that one."""

OF_KAFKA = "kafka."
"""How options of Kafka's clients begin, which all mean `_NO_BROKER` unless they have a line of their own."""

OF_SPARK = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
"""What Spark hands to a source beside the options of a user, in plain spelling."""


def told_of_others(name: str) -> str | None:
    """What to do instead of giving an option of another source; None for a name that none of them has."""
    ours = BY_NAME_OF_OTHERS.get(plain(name), _NO_BROKER if name.lower().startswith(OF_KAFKA) else None)
    return f"Here it is option {ours!r}." if ours in BY_NAME else ours


def spelling(name: str) -> str:
    """An option of another source as that one spells it: Spark hands all names over in lower case."""
    return next((other for other in (*NAMES_OF_OTHERS, *BOUNDS_OF_OTHERS) if plain(other) == plain(name)), name)


def refused_of_others(name: str) -> str | None:
    """Why an option of another source is refused, and what to give instead; None for one that is not."""
    instead = _BY_BOUND.get(plain(name))
    if instead is None:
        return None
    because = "If it were ignored, other data would be read."
    return f"Option {spelling(name)!r} is of another source, and a stream {instead}. {because}"


def plain(name: str) -> str:
    """A name without case and underscores, in which spellings of one option agree."""
    return name.lower().replace("_", "")


BY_PLAIN_NAME: Mapping[str, Option] = {plain(option.name): option for option in OPTIONS if "<" not in option.name}
"""The options that have one fixed name, by that name in plain spelling."""

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}

BY_NAME_OF_OTHERS: Mapping[str, str] = {plain(other): ours for other, ours in NAMES_OF_OTHERS.items()}
_BY_BOUND: Mapping[str, str] = {plain(other): instead for other, instead in BOUNDS_OF_OTHERS.items()}
