"""Columns of the fields of values, beside the columns of events: of which types a reader wants them, and made so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.values.codec import MalformedValue, OnMalformed
from pravega_spark.streams.values.ddl import checked_schema
from pravega_spark.streams.values.value_format import ValueFormat, refuse_event_columns


@dataclass(frozen=True)
class ValueColumns:
    """Columns that are decoded from events. A plain value, which travels to tasks.

    schema: the columns, in the types and with the nullability that the reader wants.
    """

    format: ValueFormat
    schema: pa.Schema
    on_malformed: OnMalformed = "fail"

    @classmethod
    def of(cls, format: ValueFormat, on_malformed: OnMalformed = "fail") -> ValueColumns:
        """All fields of values. Raises ValueError if one has the name of a column of events."""
        fields = format.fields()
        refuse_event_columns(fields.names)
        return cls(format, pa.schema([field.with_nullable(True) for field in fields]), on_malformed)

    def chosen(self, names: Collection[str]) -> ValueColumns | None:
        """Those of some names; None if there are none, so that nothing is decoded."""
        fields = [self.schema.field(name) for name in names if name in self.schema.names]
        return replace(self, schema=pa.schema(fields)) if fields else None

    def decoder(self) -> Callable[[pa.Array], list[pa.Array]]:
        """A function from a column of events to these columns. It raises MalformedValue."""
        decode = self.format.decoder(checked_schema(list(self.schema)), self.on_malformed).decode

        def columns(events: pa.Array) -> list[pa.Array]:
            found = decode(events)
            return [_wanted(found.column(place), field) for place, field in enumerate(self.schema)]

        return columns


def _wanted(column: pa.Array, field: pa.Field) -> pa.Array:
    """A decoded column in the type that is wanted. Raises MalformedValue for a null that its schema forbids."""
    if not field.nullable and column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise MalformedValue(row, f"field {field.name!r} is null, which the schema of the read forbids (NOT NULL)")
    return column if column.type.equals(field.type) else _retyped(column, field.type, field.name)


def _retyped(column: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """The same values in a type that differs in names of list items, nullability within, and size of offsets only."""
    if column.type.equals(kind):
        return column
    if column.offset:
        column = pa.concat_arrays([column.slice(0, 0), column])
    if pa.types.is_struct(kind):
        children = []
        for place, field in enumerate(kind):
            child = column.field(place)
            if not field.nullable:
                _refuse_nulls(child, column, f"{path}.{field.name}")
            children.append(_retyped(child, field.type, f"{path}.{field.name}"))
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:1], column.null_count, children=children)
    if pa.types.is_map(kind):
        if not kind.item_field.nullable:
            _refuse_nulls(column.items, None, f"{path}[]")
        entries = pa.StructArray.from_arrays(
            [column.keys, _retyped(column.items, kind.item_type, f"{path}[]")], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=[entries])
    if pa.types.is_list(kind):
        if not kind.value_field.nullable:
            _refuse_nulls(column.values, None, f"{path}[]")
        children = [_retyped(column.values, kind.value_type, f"{path}[]")]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=children)
    return column.cast(kind)


def _refuse_nulls(column: pa.Array, parent: pa.Array | None, path: str) -> None:
    """Raise ValueError for nulls in a column, if its parent is there."""
    there = pc.is_null(column) if parent is None else pc.and_(pc.is_null(column), pc.is_valid(parent))
    if column.null_count and pc.any(there).as_py():
        raise ValueError(
            f"Field {path!r} is null in an event, which the schema of the read forbids (NOT NULL): let it be null."
        )
