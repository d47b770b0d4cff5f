"""Requests about key-value tables: their names, and entries from the first one on."""

from __future__ import annotations

import base64
from itertools import islice

from pravega_spark.serve.replies import Call, Streamed, streamed_list
from pravega_spark.serve.service import Service
from pravega_spark.streams.model.key_value_table import KeyValueTableEntry


def list_tables(service: Service, call: Call) -> Streamed:
    """The key-value tables of a scope, by their names."""
    names = service.manager.list_key_value_table(call.path["scopeName"])
    return streamed_list("keyValueTables", ({"keyValueTableName": name} for name in names))


def table_entries(service: Service, call: Call) -> Streamed:
    """Entries of a key-value table; keys and values in base64."""
    entries = service.manager.read_key_value_table(call.path["scopeName"], call.path["keyValueTableName"])
    return streamed_list("entries", map(_entry, islice(entries, call.query["limit"])))


def _entry(entry: KeyValueTableEntry) -> dict[str, object]:
    return {
        "primaryKey": _base64(entry.primary),
        "secondaryKey": _base64(entry.secondary),
        "value": _base64(entry.value),
        "version": entry.version[1],
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
