"""The JSON of requests and answers: the definitions of Pravega's Controller.yaml, and those that are ours.

One description serves both: /openapi.json shows it, and `check` holds what clients send against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

INT32 = 2**31 - 1
INT64 = 2**63 - 1

_LONGEST = 60  # characters of a value in a message

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[A-Za-z0-9.-]+$"}
POSITION: Schema = {"type": "string", "minLength": 1, "maxLength": 32_000, "pattern": "^[ -~]+$"}  # it fits into a head
BASE64: Schema = {"type": "string", "description": "In base64."}
KEY: Schema = {"type": "string", "maxLength": 400, "pattern": "^[A-Za-z0-9+/=]*$", "description": "In base64."}
FORMATS = ("base64", "text", "json", "hex")


def _object(properties: Mapping[str, Schema], *required: str, closed: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        made["required"] = list(required)
    if closed:
        made["additionalProperties"] = False
    return made


def _list(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def ref(name: str) -> Schema:
    """A reference to a definition."""
    return {"$ref": f"#/components/schemas/{name}"}


_STRING: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "number"}
_LONG: Schema = {"type": "integer", "format": "int64"}
_NATURAL: Schema = {"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64}
_INT: Schema = {"type": "integer", "format": "int32", "minimum": 0, "maximum": INT32}
_UNUSED: Schema = {  # Pravega's documentation shows `{}` for these
    "anyOf": [_NATURAL, _object({}, closed=True)],
    "description": "Accepted as Pravega has it, and without effect; an answer with the header Warning says so.",
}
_CUT: Schema = {"type": "string", "minLength": 1, "maxLength": 500_000}  # in a body
_TAGS: Schema = {
    "anyOf": [_list({"type": "string", "maxLength": 256}, maxItems=128), _object({}, closed=True)],
}
_CONFIGURATION: Mapping[str, Schema] = {
    "scalingPolicy": ref("ScalingConfig"),
    "retentionPolicy": ref("RetentionConfig"),
    "streamTags": _TAGS,
    "timestampAggregationTimeout": _UNUSED,
    "rolloverSizeBytes": _UNUSED,
}
_LAG = _object({"bytes": _LONG, "events": _LONG, "seconds": _NUMBER, "truncated": _BOOLEAN})

DEFINITIONS: Mapping[str, Schema] = {
    # --- as Controller.yaml has them
    "CreateScopeRequest": _object({"scopeName": NAME}, "scopeName", closed=True),
    "ScopeProperty": _object({"scopeName": _STRING}, "scopeName"),
    "ScopesList": _object({"scopes": _list(ref("ScopeProperty"))}, "scopes"),
    "ScalingConfig": _object(
        {
            "type": {
                "type": "string",
                "enum": ["FIXED_NUM_SEGMENTS", "BY_RATE_IN_KBYTES_PER_SEC", "BY_RATE_IN_EVENTS_PER_SEC"],
            },
            "targetRate": _INT,
            "scaleFactor": _INT,
            "minSegments": _INT,
        },
        "type",
        closed=True,
    ),
    "TimeBasedRetention": _object({"days": _NATURAL, "hours": _NATURAL, "minutes": _NATURAL}, closed=True),
    "RetentionConfig": _object(
        {
            "type": {"type": "string", "enum": ["LIMITED_DAYS", "LIMITED_SIZE_MB"]},
            "value": _NATURAL,
            "timeBasedRetention": ref("TimeBasedRetention"),
            "maxValue": _NATURAL,
            "maxTimeBasedRetention": ref("TimeBasedRetention"),
        },
        "type",
        closed=True,
    ),
    "CreateStreamRequest": _object(
        {"streamName": {**NAME, "maxLength": 250}, **_CONFIGURATION}, "streamName", closed=True
    ),
    "UpdateStreamRequest": _object(_CONFIGURATION, closed=True),
    "StreamProperty": _object(
        {
            "scopeName": _STRING,
            "streamName": _STRING,
            "scalingPolicy": ref("ScalingConfig"),
            "retentionPolicy": ref("RetentionConfig"),
            "tags": _list(_STRING),
            "timestampAggregationTimeout": _LONG,
            "rolloverSizeBytes": _LONG,
        },
        "scopeName",
        "streamName",
        "scalingPolicy",
    ),
    "StreamsList": _object({"streams": _list(ref("StreamProperty"))}, "streams"),
    "StreamState": _object({"streamState": {"type": "string", "enum": ["SEALED"]}}, "streamState", closed=True),
    "Segment": _object({"number": _INT, "startTime": _LONG, "keyStart": _NUMBER, "keyEnd": _NUMBER}),
    "ScaleMetadata": _object(
        {"timestamp": _LONG, "segmentList": _list(ref("Segment")), "splits": _LONG, "merges": _LONG}
    ),
    "ScalingEventList": _object({"scalingEvents": _list(ref("ScaleMetadata"))}, "scalingEvents"),
    "ReaderGroupsList": _object(
        {"readerGroups": _list(_object({"readerGroupName": _STRING}, "readerGroupName"))}, "readerGroups"
    ),
    "ReaderGroupProperty": _object(
        {
            "scopeName": _STRING,
            "readerGroupName": _STRING,
            "streamList": _list(_STRING),
            "onlineReaderIds": _list(_STRING),
        },
        "scopeName",
        "readerGroupName",
        "streamList",
        "onlineReaderIds",
    ),
    "HealthStatus": {"type": "string", "enum": ["UP", "STARTING", "NEW", "UNKNOWN", "FAILED", "DOWN"]},
    "HealthDetails": {"type": "object", "additionalProperties": _STRING},
    "HealthResult": _object(
        {
            "name": _STRING,
            "status": ref("HealthStatus"),
            "readiness": _BOOLEAN,
            "liveness": _BOOLEAN,
            "details": ref("HealthDetails"),
            "children": {"type": "object", "additionalProperties": ref("HealthResult")},
        },
        "name",
        "status",
    ),
    "Alive": _BOOLEAN,
    # --- ours
    "Error": _object({"status": _INT, "error": _STRING, "message": _STRING}, "status", "error", "message"),
    "StreamCut": _object(
        {
            "streamCut": {"type": "string", "description": "The text by which every client knows the cut."},
            "positions": {"type": "object", "additionalProperties": _LONG},
        },
        "streamCut",
        "positions",
    ),
    "TruncateRequest": _object(
        {"streamCut": {"type": "string", "minLength": 1, "maxLength": 500_000}}, "streamCut", closed=True
    ),
    "StreamInfo": _object(
        {
            "scopeName": _STRING,
            "streamName": _STRING,
            "sealed": _BOOLEAN,
            "bytes": _LONG,
            "events": _LONG,
            "head": ref("StreamCut"),
            "tail": ref("StreamCut"),
            "segments": _list(ref("Segment")),
            "subscribers": {"type": "object", "additionalProperties": _LAG},
        },
        "scopeName",
        "streamName",
    ),
    "Event": _object(
        {
            "segment": {"type": "string", "description": "Number and epoch, as in 2.1."},
            "offset": _LONG,
            "size": {**_LONG, "description": "Bytes of the payload."},
            "pointer": {"type": "string", "description": "For GET …/event, which returns the payload."},
            "data": {"description": "The payload in the wanted format; null if it is too large, or is not of it."},
        },
        "segment",
        "offset",
        "size",
        "pointer",
    ),
    "EventsPage": _object(
        {
            "events": _list(ref("Event")),
            "next": {"type": "string", "description": "The cut behind these events, where the next page begins."},
            "atEnd": {"type": "boolean", "description": "Whether there are no events behind them now."},
        },
        "events",
        "next",
        "atEnd",
    ),
    "LastEvents": _object({"events": _list(ref("Event")), "next": _STRING}, "events", "next"),
    "WriteEventsRequest": _object(
        {
            "format": {"type": "string", "enum": list(FORMATS), "default": "text"},
            "events": _list(
                _object(
                    {"data": {}, "routingKey": {"type": "string", "maxLength": 10_000}},
                    "data",
                    closed=True,
                ),
                maxItems=10_000,
            ),
            "txnAppId": {"type": "string", "minLength": 1, "maxLength": 255},
            "txnVersion": _NATURAL,
        },
        "events",
        closed=True,
    ),
    "Written": _object({"written": _LONG}, "written"),
    "KeyValueTablesList": _object(
        {"keyValueTables": _list(_object({"keyValueTableName": _STRING}, "keyValueTableName"))}, "keyValueTables"
    ),
    "KeyValueTable": _object(
        {
            "scopeName": _STRING,
            "keyValueTableName": _STRING,
            "partitionCount": _LONG,
            "primaryKeyLength": _LONG,
            "secondaryKeyLength": _LONG,
            "rolloverSizeBytes": _LONG,
            "created": {**_LONG, "description": "Milliseconds since 1970."},
            "entries": _LONG,
        },
        "scopeName",
        "keyValueTableName",
        "primaryKeyLength",
        "secondaryKeyLength",
    ),
    "CreateKeyValueTableRequest": _object(
        {
            "keyValueTableName": {**NAME, "maxLength": 250},
            "partitionCount": {**_INT, "minimum": 1, "default": 1},
            "primaryKeyLength": {**_INT, "minimum": 1},
            "secondaryKeyLength": _INT,
            "rolloverSizeBytes": _NATURAL,
        },
        "keyValueTableName",
        "primaryKeyLength",
        closed=True,
    ),
    "KeyValueTableEntries": _object(
        {
            "entries": _list(
                _object(
                    {"primaryKey": BASE64, "secondaryKey": BASE64, "value": BASE64, "version": _STRING},
                    "primaryKey",
                    "value",
                    "version",
                )
            )
        },
        "entries",
    ),
    "PutEntryRequest": _object(
        {
            "primaryKey": BASE64,
            "secondaryKey": BASE64,
            "value": BASE64,
            "version": {
                "type": "string",
                "maxLength": 100,
                "description": "The version that the entry must have; empty: there must be no entry of this key.",
            },
        },
        "primaryKey",
        "value",
        closed=True,
    ),
    "EntryVersion": _object({"version": _STRING}, "version"),
    "Status": {"type": "object", "description": "As `pravega-spark --json status` prints it."},
    "Document": {"type": "object", "description": "This document."},
}


class Unfit(ValueError):
    """A value from a client does not fit the description."""


def check(schema: Schema, value: Any, where: str) -> None:
    """Raise Unfit, with the place and the value, if a value does not fit a schema.

    Knows the keywords that are used above, and no others.
    """
    if "$ref" in schema:
        schema = DEFINITIONS[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        _check_any(schema["anyOf"], value, where)
        return
    kind = schema.get("type")
    if kind is not None and not _is_a(kind, value):
        raise Unfit(f"{where} must be {_ARTICLES[kind]}, not {_shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise Unfit(f"{where} must be one of {', '.join(schema['enum'])}, not {_shown(value)}")
    if isinstance(value, str):
        _check_text(schema, value, where)
    elif isinstance(value, dict):
        _check_members(schema, value, where)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            raise Unfit(f"{where} has {len(value)} items: give at most {schema['maxItems']}")
        for place, item in enumerate(value):
            check(schema.get("items", {}), item, f"{where}[{place}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(schema, value, where)


def _check_any(schemas: list[Schema], value: Any, where: str) -> None:
    problems = []
    for schema in schemas:
        try:
            check(schema, value, where)
            return
        except Unfit as problem:
            problems.append(problem)
    raise problems[0]


def _check_text(schema: Schema, value: str, where: str) -> None:
    if len(value) > schema.get("maxLength", len(value)):
        raise Unfit(f"{where} has {len(value)} characters: give at most {schema['maxLength']}")
    if len(value) < schema.get("minLength", 0):
        raise Unfit(f"{where} is empty: give a value")
    if "pattern" in schema and not re.fullmatch(schema["pattern"].strip("^$"), value):
        raise Unfit(f"{where} has characters that it cannot have: use {_CHARACTERS[schema['pattern']]} only")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise Unfit(f"{where} has half a character (a lone surrogate): send text that is whole")


def _check_members(schema: Schema, value: Mapping[str, Any], where: str) -> None:
    known: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise Unfit(f"{where} has no {name}: give it")
    if schema.get("additionalProperties") is False:
        for name in value:
            if name not in known:
                raise Unfit(f"{where} has a member {_shown(name)} that is not known: use {', '.join(known) or 'none'}")
    for name, item in value.items():
        if name in known:
            check(known[name], item, f"{where}.{name}")


def _check_range(schema: Schema, value: float, where: str) -> None:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Unfit(
            f"{where} must be from {schema.get('minimum', '')} to {schema.get('maximum', '')}, not {_shown(value)}"
        )


_CHARACTERS = {
    NAME["pattern"]: "a to z, A to Z, digits, '.' and '-'",
    POSITION["pattern"]: "printable characters of ASCII",
    KEY["pattern"]: "those of base64",
}
_ARTICLES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def _is_a(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
