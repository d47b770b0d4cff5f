"""Columns of the fields of values, beside the columns of events: of which types a reader wants them, and made so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from pravega_spark.streams.values.codec import OnMalformed
from pravega_spark.streams.values.ddl import checked_schema
from pravega_spark.streams.values.retyping import retyped
from pravega_spark.streams.values.value_format import ValueFormat, refuse_event_columns, value_decoder


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
        decode = value_decoder(self.format, checked_schema(list(self.schema)), self.on_malformed).decode

        def columns(events: pa.Array) -> list[pa.Array]:
            found = decode(events)
            return [retyped(found.column(place), field, field.name) for place, field in enumerate(self.schema)]

        return columns
