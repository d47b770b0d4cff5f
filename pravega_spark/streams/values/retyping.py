"""Gives a decoded column another type with the same values, at any depth, by its buffers: no Python object per event.

Types differ in the width of numbers, in the names of list items, in the size of offsets, in fields that were not
written (they are null), and in where they allow null: a null where it is not allowed makes its event malformed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.values.codec import MalformedValue


def retyped(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """A column in the type of a field. path: what an error calls it.

    Raises MalformedValue, with the row, for a null that the field, or a field within it, forbids.
    """
    if not field.nullable and column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise _forbidden(row, path)
    kind = field.type
    if column.type.equals(kind):
        return column
    if column.offset:
        column = pa.concat_arrays([column.slice(0, 0), column])
    if pa.types.is_struct(kind):
        return _rebuilt(column, kind, [_member(column, each, f"{path}.{each.name}") for each in kind])
    if pa.types.is_map(kind):
        items = _in_lists(column, column.items, kind.item_field, path)
        fields = [kind.key_field, kind.item_field]
        keys = column.keys.slice(0, len(items))
        return _rebuilt(column, kind, [pa.StructArray.from_arrays([keys, items], fields=fields)])
    if pa.types.is_list(kind):
        return _rebuilt(column, kind, [_in_lists(column, column.values, kind.value_field, path)])
    return column.cast(kind)


def _rebuilt(column: pa.Array, kind: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """The same nested values with other children."""
    own = 1 if pa.types.is_struct(kind) else 2  # validity, and the offsets of lists and maps
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:own], column.null_count, children=children)


def _member(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """A field of structs; null where it was not written. Where a struct is null its fields may be null, too."""
    place = column.type.get_field_index(field.name)
    child = column.field(place) if place >= 0 else pa.nulls(len(column), field.type)
    if not field.nullable and child.null_count:
        missing = pc.and_(pc.is_null(child), pc.is_valid(column))
        if pc.any(missing).as_py():
            raise _forbidden(pc.index(missing, True).as_py(), path)
    return retyped(child, field.with_nullable(True), path)


def _in_lists(column: pa.Array, values: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """What lists or maps contain, up to the end of the last one. An error has the row of the list."""
    if not len(column):
        return pa.nulls(0, field.type)
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)
    try:
        return retyped(values.slice(0, ends[-1]), field, f"{path}[]")
    except MalformedValue as error:
        row = int(np.searchsorted(ends, error.row, "right")) - 1
        raise MalformedValue(row, error.reason, error.forbidden_null) from None


def _forbidden(row: int, path: str) -> MalformedValue:
    reason = f"field {path!r} is null, which the schema of the read forbids (NOT NULL)"
    return MalformedValue(row, reason, forbidden_null=True)
