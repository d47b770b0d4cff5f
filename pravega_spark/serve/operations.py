"""The operations of the API: the one list from which routes, checks and /openapi.json are made.

Paths and answers of the first ones are those of Pravega's Controller.yaml; others are ours, below the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pravega_spark.serve import events, groups, health, reports, scopes, streams, tables
from pravega_spark.serve.replies import BYTES, JSON, PROMETHEUS, Answer, Call
from pravega_spark.serve.schemas import FORMATS, INT64, KEY, NAME, POSITION, Schema
from pravega_spark.serve.service import Service

Handler = Callable[[Service, Call], Answer]


class Parameter(NamedTuple):
    """A parameter of the query. default: of one that may be left out; None: it stays out."""

    name: str
    schema: Schema
    meaning: str
    required: bool = False
    default: Any = None


class Operation(NamedTuple):
    """What one method of one path does. name: its operationId. answers: by status, what it means; the first is the
    success. schema: the definition of the answer's JSON, empty without content. body: that of the request's. changes:
    whether it needs the right to change something. media: of the answer."""

    method: str
    path: str
    name: str
    handler: Handler
    answers: Mapping[int, str]
    schema: str = ""
    body: str = ""
    query: tuple[Parameter, ...] = ()
    media: str = JSON

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method not in ("GET", "HEAD")

    @property
    def summary(self) -> str:
        """What it does: the first sentence of its handler."""
        return (self.handler.__doc__ or "").partition("\n")[0]


_NATURAL: Schema = {"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64}
_TIME: Schema = {"type": "string", "minLength": 1, "maxLength": 100}
_FORMAT: Schema = {"type": "string", "enum": list(FORMATS)}


def _up_to(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


_SCOPES = "/v1/scopes"
_SCOPE = f"{_SCOPES}/{{scopeName}}"
_STREAMS = f"{_SCOPE}/streams"
_STREAM = f"{_STREAMS}/{{streamName}}"
_GROUPS = f"{_SCOPE}/readergroups"
_GROUP = f"{_GROUPS}/{{readerGroupName}}"
_TABLES = f"{_SCOPE}/keyvaluetables"
_TABLE = f"{_TABLES}/{{keyValueTableName}}"
_HEALTH = "/v1/health"

_NO_SCOPE, _NO_STREAM = "Scope not found", "Scope or stream not found"
_NO_GROUP = "Scope or reader group not found"
_NO_TABLE, _BAD_VERSION = "Scope or key-value table not found", "The entry has another version"
_FORM = Parameter("format", _FORMAT, "How payloads are shown.", default="base64")


def _health() -> list[Operation]:
    found = [
        Operation("GET", _HEALTH, "getHealth", health.get_health, {200: "The health"}, "HealthResult"),
        Operation("GET", f"{_HEALTH}/readiness", "getReadiness", health.get_readiness, {200: "Ready or not"}, "Alive"),
        Operation("GET", f"{_HEALTH}/liveness", "getLiveness", health.get_liveness, {200: "Alive or not"}, "Alive"),
        Operation("GET", f"{_HEALTH}/details", "getDetails", health.get_details, {200: "Details"}, "HealthDetails"),
        Operation("GET", f"{_HEALTH}/status", "getStatus", health.get_status, {200: "The status"}, "HealthStatus"),
    ]
    for each in list(found):
        name = each.name.replace("get", "getContributor")
        answers = {**each.answers, 404: "No contributor of this name"}
        found.append(each._replace(path=f"{each.path}/{{id}}", name=name, answers=answers))
    return found


OPERATIONS: tuple[Operation, ...] = (
    # --- Pravega's
    Operation("GET", _SCOPES, "listScopes", scopes.list_scopes, {200: "The scopes"}, "ScopesList"),
    Operation(
        "POST",
        _SCOPES,
        "createScope",
        scopes.create_scope,
        {201: "Created", 409: "Scope exists already"},
        "ScopeProperty",
        "CreateScopeRequest",
    ),
    Operation("GET", _SCOPE, "getScope", scopes.get_scope, {200: "The scope", 404: _NO_SCOPE}, "ScopeProperty"),
    Operation(
        "DELETE",
        _SCOPE,
        "deleteScope",
        scopes.delete_scope,
        {204: "Deleted", 404: _NO_SCOPE, 412: "Scope is not empty"},
    ),
    Operation(
        "GET",
        _STREAMS,
        "listStreams",
        streams.list_streams,
        {200: "The streams", 404: _NO_SCOPE},
        "StreamsList",
        query=(
            Parameter("filter_type", {"type": "string", "enum": ["showInternalStreams", "tag"]}, "Which streams."),
            Parameter("filter_value", {"type": "string", "maxLength": 256}, "The tag, with filter_type=tag."),
        ),
    ),
    Operation(
        "POST",
        _STREAMS,
        "createStream",
        streams.create_stream,
        {201: "Created", 404: _NO_SCOPE, 409: "Stream exists already"},
        "StreamProperty",
        "CreateStreamRequest",
    ),
    Operation("GET", _STREAM, "getStream", streams.get_stream, {200: "The stream", 404: _NO_STREAM}, "StreamProperty"),
    Operation(
        "PUT",
        _STREAM,
        "updateStream",
        streams.update_stream,
        {200: "Updated", 404: _NO_STREAM, 409: "Stream is sealed"},
        "StreamProperty",
        "UpdateStreamRequest",
    ),
    Operation(
        "DELETE",
        _STREAM,
        "deleteStream",
        streams.delete_stream,
        {204: "Deleted", 404: _NO_STREAM, 412: "Stream is not sealed"},
    ),
    Operation(
        "PUT",
        f"{_STREAM}/state",
        "updateStreamState",
        streams.update_state,
        {200: "Sealed", 404: _NO_STREAM},
        "StreamState",
        "StreamState",
    ),
    Operation(
        "GET",
        f"{_STREAM}/scaling-events",
        "getScalingEvents",
        streams.scaling_events,
        {200: "The epochs", 404: _NO_STREAM},
        "ScalingEventList",
        query=(
            Parameter("from", _NATURAL, "Milliseconds since 1970.", required=True),
            Parameter("to", _NATURAL, "Milliseconds since 1970.", required=True),
        ),
    ),
    Operation(
        "GET",
        _GROUPS,
        "listReaderGroups",
        groups.list_groups,
        {200: "The reader groups", 404: _NO_SCOPE},
        "ReaderGroupsList",
    ),
    Operation(
        "GET",
        _GROUP,
        "getReaderGroup",
        groups.get_group,
        {200: "The reader group", 404: _NO_GROUP},
        "ReaderGroupProperty",
    ),
    Operation("DELETE", _GROUP, "deleteReaderGroup", groups.delete_group, {204: "Deleted", 404: _NO_GROUP}),
    *_health(),
    Operation("GET", "/ping", "ping", health.ping, {200: "The server answers"}),
    # --- ours
    Operation(
        "GET",
        f"{_STREAM}/info",
        "getStreamInfo",
        streams.stream_info,
        {200: "What the stream holds", 404: _NO_STREAM},
        "StreamInfo",
    ),
    Operation(
        "GET",
        f"{_STREAM}/stream-cut",
        "getStreamCut",
        streams.cut_at,
        {200: "The cut", 404: _NO_STREAM},
        "StreamCut",
        query=(Parameter("time", _TIME, "Milliseconds since 1970, ISO 8601, or a time ago as 5m.", required=True),),
    ),
    Operation(
        "GET",
        f"{_STREAM}/next-stream-cut",
        "getNextStreamCut",
        streams.next_cut,
        {200: "The cut", 404: _NO_STREAM, 410: "Events there were truncated"},
        "StreamCut",
        query=(
            Parameter("from", POSITION, "A stream cut, head, tail, or a time.", required=True),
            Parameter("bytes", _up_to(1, INT64), "About how far behind it.", required=True),
        ),
    ),
    Operation(
        "POST",
        f"{_STREAM}/truncation",
        "truncateStream",
        streams.truncate,
        {200: "The new head", 404: _NO_STREAM, 409: "Stream is sealed"},
        "StreamCut",
        "TruncateRequest",
    ),
    Operation(
        "GET",
        f"{_STREAM}/events",
        "readEvents",
        events.list_events,
        {200: "Events", 404: _NO_STREAM, 410: "Events there were truncated"},
        "EventsPage",
        query=(
            Parameter("from", POSITION, "A stream cut, head, tail, or a time.", default="head"),
            Parameter("to", POSITION, "The same: the end.", default="tail"),
            Parameter("maxBytes", _up_to(1, 8 << 20), "About how much, event headers included.", default=64 << 10),
            _FORM,
        ),
    ),
    Operation(
        "POST",
        f"{_STREAM}/events",
        "writeEvents",
        events.write_events,
        {201: "Written", 404: _NO_STREAM, 409: "Stream is sealed, or the write was another before"},
        "Written",
        "WriteEventsRequest",
    ),
    Operation(
        "GET",
        f"{_STREAM}/last-events",
        "readLastEvents",
        events.list_last_events,
        {200: "Events", 404: _NO_STREAM, 410: "Events there were truncated"},
        "LastEvents",
        query=(Parameter("n", _up_to(1, 1000), "How many.", default=10), _FORM),
    ),
    Operation(
        "GET",
        f"{_STREAM}/event",
        "readEvent",
        events.get_event,
        {200: "The payload", 404: "No such stream, or event"},
        query=(Parameter("pointer", {"type": "string", "minLength": 1, "maxLength": 1000}, "Its pointer.", True),),
        media=BYTES,
    ),
    Operation(
        "GET",
        _TABLES,
        "listKeyValueTables",
        tables.list_tables,
        {200: "The key-value tables", 404: _NO_SCOPE},
        "KeyValueTablesList",
    ),
    Operation(
        "POST",
        _TABLES,
        "createKeyValueTable",
        tables.create_table,
        {201: "Created", 404: _NO_SCOPE, 409: "Key-value table exists already"},
        "KeyValueTable",
        "CreateKeyValueTableRequest",
    ),
    Operation(
        "GET",
        _TABLE,
        "getKeyValueTable",
        tables.get_table,
        {200: "The key-value table", 404: _NO_TABLE},
        "KeyValueTable",
    ),
    Operation("DELETE", _TABLE, "deleteKeyValueTable", tables.delete_table, {204: "Deleted", 404: _NO_TABLE}),
    Operation(
        "GET",
        f"{_TABLE}/entries",
        "readKeyValueTable",
        tables.table_entries,
        {200: "Entries", 404: _NO_TABLE},
        "KeyValueTableEntries",
        query=(
            Parameter("primaryKey", KEY, "Those of this primary key, in base64."),
            Parameter("afterPrimaryKey", KEY, "Those behind this key, in base64."),
            Parameter("afterSecondaryKey", KEY, "Its secondary key."),
            Parameter("limit", _up_to(1, 10_000), "How many.", default=100),
        ),
    ),
    Operation(
        "PUT",
        f"{_TABLE}/entries",
        "putEntry",
        tables.put_entry,
        {200: "Put", 404: _NO_TABLE, 409: "Another table has its name now", 412: _BAD_VERSION},
        "EntryVersion",
        "PutEntryRequest",
    ),
    Operation(
        "DELETE",
        f"{_TABLE}/entries",
        "removeEntry",
        tables.remove_entry,
        {204: "Removed", 404: _NO_TABLE, 409: "Another table has its name now", 412: _BAD_VERSION},
        query=(
            Parameter("primaryKey", KEY, "Its primary key, in base64.", required=True),
            Parameter("secondaryKey", KEY, "Its secondary key, in base64."),
            Parameter("version", _TIME, "The version that it must have."),
        ),
    ),
    Operation("GET", "/v1/status", "getRootStatus", reports.get_root_status, {200: "The status"}, "Status"),
    Operation("GET", "/health", "probe", health.probe, {200: "Ready", 503: "Not ready"}, "HealthResult"),
    Operation("GET", "/metrics", "getMetrics", reports.metrics, {200: "Metrics"}, media=PROMETHEUS),
)
"""All operations, in the order of /openapi.json."""

OPEN = frozenset({"/ping", "/v1/health/liveness"})
"""Paths that need no token where others do: they say nothing about the root."""


def path_schema(name: str) -> Schema:
    """The schema of a parameter of paths."""
    return {"type": "string", "minLength": 1, "maxLength": 255} if name == "id" else NAME
