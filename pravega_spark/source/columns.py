"""The columns of a read: what a stream has, and what of it is to be read.

Spark cannot tell a source in Python which columns a query needs, so whoever needs few of them gives a schema.
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
    """The columns of a read with these options; `event_columns` says their types to Arrow."""
    if options.include_metadata:
        return READ_COLUMNS | METADATA_COLUMNS
    return {**READ_COLUMNS, "event_pointer": "string"} if options.large_events == "reference" else READ_COLUMNS


def chosen_columns(schema: StructType) -> dict[str, bool]:
    """The columns that a read is to have, and whether they may be null: those of a schema, which a user may have given.

    Any of ours in any order. Raises ValueError for one that is not ours, or of another type.
    """
    ours = {**READ_COLUMNS, **METADATA_COLUMNS}
    for field in schema.fields:
        if field.name not in ours:
            raise ValueError(
                f"Column {field.name!r} of the given schema is not one of a stream's: choose among {', '.join(ours)}."
            )
        if field.dataType.simpleString() != ours[field.name]:
            raise ValueError(
                f"Column {field.name!r} of the given schema has type {field.dataType.simpleString()}, but it is "
                f"{ours[field.name]}: give it this type, and cast the column that is read."
            )
    if not schema.fields:
        raise ValueError(f"The given schema has no columns: choose among {', '.join(ours)}.")
    return {field.name: field.nullable for field in schema.fields}


def read_schema(options: SourceOptions) -> str:
    """The same as Spark's text of a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in read_columns(options).items())
