"""What encodes columns into events and decodes events into columns, whatever the format, and how an event fails.

A codec keeps that row n of its columns is event n alone. It reads and writes nothing, and has no state between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

OnMalformed = Literal["fail", "null"]
"""What to do with an event that is no value of the schema: raise MalformedValue, or make all of its columns null."""


class MalformedValue(ValueError):
    """An event that is no value of the schema. row: its number in the decoded column. reason: a clause. forbidden_null:
    whether the schema alone is in the way, which forbids a null, so that the event is no value with null fields either.
    """

    def __init__(self, row: int, reason: str, forbidden_null: bool = False) -> None:
        super().__init__(f"the event in row {row} is malformed: {reason}")
        self.row = row
        self.reason = reason
        self.forbidden_null = forbidden_null


class UnencodableValue(ValueError):
    """A column that has no form in the format. It names the column and says what to do."""


class Decoder(Protocol):
    """Decodes columns of events."""

    @property
    def schema(self) -> pa.Schema: ...

    def decode(self, events: pa.Array) -> pa.RecordBatch:
        """The columns of `schema` for a column of binary. A null event has null columns. Raises MalformedValue."""
        ...


class Encoder(Protocol):
    """Encodes columns."""

    def encode(self, values: pa.RecordBatch) -> pa.Array:
        """An event for each row, as a column of strings or of binary without nulls. Raises UnencodableValue."""
        ...
