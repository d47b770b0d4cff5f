"""Requests about key-value tables and their entries. Pravega's controller has none; keys and values are in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pravega_spark.serve.failures import Refusal
from pravega_spark.serve.replies import Call, Reply, Streamed, streamed_list
from pravega_spark.serve.schemas import Unfit
from pravega_spark.serve.service import Service
from pravega_spark.streams.key_value_table import KeyValueTableInfo
from pravega_spark.streams.model.key_value_table import (
    KeyValueTableConfiguration,
    KeyValueTableEntry,
    TableKey,
    Version,
)


def list_tables(service: Service, call: Call) -> Streamed:
    """The key-value tables of a scope, by their names."""
    names = service.manager.list_key_value_table(call.path["scopeName"])
    return streamed_list("keyValueTables", ({"keyValueTableName": name} for name in names))


def create_table(service: Service, call: Call) -> Reply:
    """Create a key-value table."""
    scope, body = call.path["scopeName"], call.body
    name = body["keyValueTableName"]
    configuration = KeyValueTableConfiguration(
        body.get("partitionCount", 1),
        body["primaryKeyLength"],
        body.get("secondaryKeyLength", 0),
        body.get("rolloverSizeBytes", 0),
    )
    if not service.manager.create_key_value_table(scope, name, configuration):
        raise Refusal(409, "KeyValueTableExists", f"Key-value table exists already: {scope}/{name}")
    return Reply(201, _info(service.manager.key_value_table_info(scope, name)))


def get_table(service: Service, call: Call) -> Reply:
    """The configuration of a key-value table, and what it holds."""
    return Reply(200, _info(service.manager.key_value_table_info(*_names(call))))


def delete_table(service: Service, call: Call) -> Reply:
    """Delete a key-value table with all of its entries."""
    scope, name = _names(call)
    if not service.manager.delete_key_value_table(scope, name):
        service.manager.key_value_table_info(scope, name)  # raises KeyValueTableNotFound, with similar names
    return Reply(204)


def table_entries(service: Service, call: Call) -> Streamed:
    """Entries of a key-value table, by their keys. A page goes on behind the last key of the one before."""
    query, names = call.query, _names(call)
    primary = _optional(query, "primaryKey")
    after = _optional(query, "afterPrimaryKey")
    entries: Iterator[KeyValueTableEntry]
    if primary is None and after is None:
        entries = service.manager.read_key_value_table(*names)
    else:
        behind = None if after is None else TableKey(after, _optional(query, "afterSecondaryKey") or b"")
        entries = service.manager.key_value_table(*names).entries(primary, after=behind)
    return streamed_list("entries", map(_entry, islice(entries, query["limit"])))


def put_entry(service: Service, call: Call) -> Reply:
    """Put an entry: with a version only if the entry has it, and with "" only if there is none."""
    body = call.body
    key = TableKey(_bytes("primaryKey", body["primaryKey"]), _optional(body, "secondaryKey") or b"")
    table, value = service.manager.key_value_table(*_names(call)), _bytes("value", body["value"])
    version = body.get("version")
    if version == "":
        return Reply(200, {"version": table.insert(key, value).as_text()})
    return Reply(200, {"version": table.put(key, value, None if version is None else _version(version)).as_text()})


def remove_entry(service: Service, call: Call) -> Reply:
    """Remove an entry, if it exists; with a version only if the entry has it."""
    query = call.query
    key = TableKey(_bytes("primaryKey", query["primaryKey"]), _optional(query, "secondaryKey") or b"")
    version = _version(query["version"]) if "version" in query else None
    service.manager.key_value_table(*_names(call)).remove(key, version)
    return Reply(204)


def _names(call: Call) -> tuple[str, str]:
    return call.path["scopeName"], call.path["keyValueTableName"]


def _info(info: KeyValueTableInfo) -> dict[str, Any]:
    configuration = info.configuration
    return {
        "scopeName": info.scope,
        "keyValueTableName": info.table,
        "partitionCount": configuration.partition_count,
        "primaryKeyLength": configuration.primary_key_length,
        "secondaryKeyLength": configuration.secondary_key_length,
        "rolloverSizeBytes": configuration.rollover_size_bytes,
        "created": info.created,
        "entries": info.entries,
    }


def _entry(entry: KeyValueTableEntry) -> dict[str, object]:
    return {
        "primaryKey": _base64(entry.primary),
        "secondaryKey": _base64(entry.secondary),
        "value": _base64(entry.value),
        "version": entry.version.as_text(),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unfit(f"{name} is not base64: encode its bytes so") from None


def _optional(given: Mapping[str, Any], name: str) -> bytes | None:
    return _bytes(name, given[name]) if name in given else None


def _version(text: str) -> Version:
    return Version.from_text(text)
