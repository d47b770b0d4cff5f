"""The columns of a read: those that a stream has, and those that a user chooses.

Spark does not tell a Python data source which columns a query needs, so users who need few of them give a schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pravega_spark.source.options import SourceOptions

READ_COLUMNS = {"event": "binary", "scope": "string", "stream": "string", "segment_id": "bigint", "offset": "bigint"}
METADATA_COLUMNS = {"timestamp": "timestamp", "event_pointer": "string", "event_number": "bigint"}
"""The columns of a read, and those that option `include_metadata` adds: names and Spark's types."""


def read_columns(options: SourceOptions) -> dict[str, str]:
    """The columns of a read with these options; `event_columns` has their Arrow types."""
    if options.include_metadata:
        return READ_COLUMNS | METADATA_COLUMNS
    return {**READ_COLUMNS, "event_pointer": "string"} if options.large_events == "reference" else READ_COLUMNS


def chosen_columns(schema: StructType) -> dict[str, bool]:
    """The columns of a schema, which a user may have given, and whether each may be null.

    They are columns of a stream, in any order. Raises ValueError for an unknown column, or one of another type.
    """
    known = {**READ_COLUMNS, **METADATA_COLUMNS}
    for field in schema.fields:
        if field.name not in known:
            raise ValueError(
                f"Column {field.name!r} of the given schema is not a column of a stream: choose among "
                f"{', '.join(known)}."
            )
        if field.dataType.simpleString() != known[field.name]:
            raise ValueError(
                f"Column {field.name!r} of the given schema has type {field.dataType.simpleString()} instead of "
                f"{known[field.name]}: give it this type, and cast the column after the read."
            )
    if not schema.fields:
        raise ValueError(f"The given schema has no columns: choose among {', '.join(known)}.")
    return {field.name: field.nullable for field in schema.fields}


def read_schema(options: SourceOptions) -> str:
    """The same columns as a schema in Spark's text form."""
    return ", ".join(f"{name} {kind}" for name, kind in read_columns(options).items())
