"""Optional fields of stored records: what a newer version adds that older ones need not know (W19).

A record that is a map has them in its field `optional`; one that is an array ends with a map of them. A versioned
record has later revisions. A version keeps those that it does not know as they are whenever it changes the record. So
a newer version may put there only what remains true however older ones change the rest. Every other field that is not
known is a NewerFormat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from chunkstore.decoding import InvalidData, NewerFormat, read_field, reader

OPTIONAL = "optional"
"""The field of a map, and of the root's description."""


class OptionalFields(dict[str, Any]):
    """Plain values by name. Never changed, so a record that has them can be a key."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))  # of the names: values may have no hash


NONE = OptionalFields()

LaterRevisions: TypeAlias = tuple[tuple[int, bytes], ...]
"""The id and the fields of each revision that is not known."""

_READ = reader(dict[str, Any])


def read_optional(value: Any) -> OptionalFields:
    """The optional fields that stand in a record. Raises InvalidData."""
    return OptionalFields(read_field(OPTIONAL, _READ, value))


def without_optional(fields: Sequence[Any], count: int) -> tuple[list[Any], OptionalFields]:
    """The `count` fields of an array, and the optional ones behind them. Raises InvalidData, NewerFormat."""
    known, rest = list(fields[:count]), fields[count:]
    if len(rest) > 1 or (rest and not isinstance(rest[0], dict)):
        raise NewerFormat(f"it has {len(fields)} fields; this version knows {count}: upgrade this program")
    if len(known) < count:
        raise InvalidData(f"it has {len(known)} fields; {count} are due")
    return known, read_optional(rest[0]) if rest else NONE


def with_optional(fields: Sequence[Any], optional: OptionalFields) -> list[Any]:
    """The fields of an array, with the optional ones behind them if there are any."""
    return [*fields, dict(optional)] if optional else list(fields)
