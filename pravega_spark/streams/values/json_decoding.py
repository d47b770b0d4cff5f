"""Decodes JSON events into columns, as Spark's `from_json` does.

Arrow's reader parses a whole column at once. It is given only events of which each begins with a brace and ends with
one: then a line feed between two of them is between two objects of the text, because no string of JSON
contains one and a brace cannot follow a brace within an object. So each event is at least one object, and if there are
as many objects as events, each event is exactly one.

Where that reader refuses a column, or a type has no counterpart in it, Python's reader parses events one by one. It
also accepts what Spark does beyond: numbers and objects as the text of a string field, "NaN" and "Infinity", times
without a zone (here UTC), numbers of more digits than a decimal has. Fields that the schema does not have are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.values.codec import MalformedValue, OnMalformed
from pravega_spark.streams.values.ddl import type_text

_MOST_AT_ONCE = (1 << 31) - 2
"""Bytes that Arrow's reader takes at once."""

_PARTS = 16
"""A column that Arrow's reader refuses is tried again in so many parts, so that one odd event costs only its part."""

_SPACE = " \t\r\n"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class JsonDecoder:
    """Decodes events into the fields of a schema. on_malformed: see codec."""

    def __init__(self, schema: pa.Schema, on_malformed: OnMalformed = "fail") -> None:
        self.schema = schema
        self._on_malformed = on_malformed
        self._wire = None
        if all(_is_readable(field.type) for field in schema):
            self._wire = pa.schema([pa.field(field.name, _wire(field.type)) for field in schema])
        self._has_decimals = any("decimal" in type_text(field.type) for field in schema)
        self._converters = {field.name: _converter(field.type, field.name) for field in schema}

    def decode(self, events: pa.Array) -> pa.RecordBatch:
        """The fields of each event. Raises MalformedValue."""
        if self._wire is None or not len(events):
            return self._one_by_one(events, 0)
        found = self._at_once(events)
        if found is not None:
            return found
        size = -(-len(events) // _PARTS)
        parts = []
        for first in range(0, len(events), size):
            part = events.slice(first, size)
            found = self._at_once(part) if size < len(events) else None
            parts.append(self._one_by_one(part, first) if found is None else found)
        columns = [pa.concat_arrays([part.column(place) for part in parts]) for place in range(len(self.schema))]
        return self._batch(columns, len(events))

    def _batch(self, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        if not columns:  # Arrow cannot tell the rows of a batch without columns
            return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]).select([])
        return pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([field.with_nullable(True) for field in self.schema])
        )

    def _at_once(self, events: pa.Array) -> pa.RecordBatch | None:
        """The fields of all events by Arrow's reader; None if it is not sure of each of them."""
        assert self._wire is not None
        lines = _lines(events)
        if lines is None or lines.size > _MOST_AT_ONCE:
            return None
        from pyarrow import json as reader

        try:
            table = reader.read_json(
                pa.BufferReader(lines),
                read_options=reader.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=reader.ParseOptions(explicit_schema=self._wire, unexpected_field_behavior="ignore"),
            )
            if len(self.schema) and table.num_rows != len(events):
                return None
            if self._has_decimals:  # the reader does not check their number of digits
                table.validate(full=True)
            columns = [
                _converted(table.column(place).combine_chunks(), field.type) for place, field in enumerate(self.schema)
            ]
        except (pa.ArrowInvalid, ValueError):
            return None
        return self._batch(columns, len(events))

    def _one_by_one(self, events: pa.Array, first: int) -> pa.RecordBatch:
        """The fields of all events by Python's reader. first: the number of the first event, for errors."""
        columns: dict[str, list[Any]] = {name: [] for name in self._converters}
        for row, event in enumerate(events.to_pylist()):
            try:
                fields = {} if event is None else _object(event)
                values = [convert(fields.get(name)) for name, convert in self._converters.items()]
            except (_Unfit, RecursionError) as unfit:
                if self._on_malformed == "fail":
                    reason = str(unfit) if isinstance(unfit, _Unfit) else "it is nested too deep"
                    raise MalformedValue(first + row, reason) from None
                values = [None] * len(columns)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        made = [pa.array(columns[field.name], field.type) for field in self.schema]
        return self._batch(made, len(events))


def _lines(events: pa.Array) -> pa.Buffer | None:
    """The events with a line feed behind each, if each begins and ends with a brace; otherwise None."""
    if events.null_count:
        return None
    try:
        texts = events.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return None  # not UTF-8
    lines = _with_line_feeds(texts)
    if lines is None:
        lines = _with_line_feeds(pc.ascii_trim(texts, characters=_SPACE))
    return lines


def _with_line_feeds(texts: pa.Array) -> pa.Buffer | None:
    joined = pc.binary_join_element_wise(texts, pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string()))
    bounds = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    content = joined.buffers()[2]
    if np.diff(bounds).min() < len("{}\n"):
        return None
    data = np.frombuffer(content, np.uint8)
    if (data[bounds[:-1]] != ord("{")).any() or (data[bounds[1:] - 2] != ord("}")).any():
        return None
    return content.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


# --- at once -------------------------------------------------------------------------------------------------------


def _is_readable(kind: pa.DataType) -> bool:
    """Whether Arrow's reader has the type. It reads maps only as lists of entries."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_list(kind):
        return _is_readable(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_readable(field.type) for field in kind)
    return True


def _wire(kind: pa.DataType) -> pa.DataType:
    """The type as Arrow's reader reads it: texts of what has no type of JSON."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_wire(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _wire(field.type)) for field in kind])
    return kind


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of Arrow's reader in its own type. Raises ArrowInvalid or ValueError if a text does not fit."""
    if column.type.equals(kind):
        return column
    if pa.types.is_binary(kind):
        decoded = [None if each is None else base64.b64decode(each, validate=True) for each in column.to_pylist()]
        return pa.array(decoded, kind)
    if column.offset:
        raise ValueError("the reader gave a part of a column")
    if pa.types.is_list(kind):
        children = [_converted(column.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=children)
    if pa.types.is_struct(kind):
        children = [_converted(column.field(place), field.type) for place, field in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:1], column.null_count, children=children)
    return column.cast(kind)


# --- one by one ----------------------------------------------------------------------------------------------------


class _Unfit(Exception):
    """A value that does not fit; its text is the reason."""


class _Number(str):
    """A number as it stands in the event."""

    __slots__ = ()


def _object(event: bytes) -> dict[str, Any]:
    try:
        found = json.loads(event.decode(), parse_int=_Number, parse_float=_Number)
    except UnicodeDecodeError as error:
        raise _Unfit(f"it is not UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:
        raise _Unfit(f"it is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise _Unfit(f"it is no JSON object, but {_shown(found)}")
    return found


def _shown(value: object) -> str:
    return reprlib.repr(str(value)).strip("'") if isinstance(value, _Number) else reprlib.repr(value)


_Converter = Callable[[Any], Any]


def _converter(kind: pa.DataType, path: str) -> _Converter:
    """Converts a parsed value to one that Arrow takes for the type."""
    if pa.types.is_list(kind):
        return _list_converter(kind, path)
    if pa.types.is_map(kind):
        return _map_converter(kind, path)
    if pa.types.is_struct(kind):
        return _struct_converter(kind, path)
    leaf = _leaf(kind)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return leaf(value)
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            raise _Unfit(f"field {path!r} is {_shown(value)}, which is no {type_text(kind)}") from None

    return convert


def _list_converter(kind: pa.DataType, path: str) -> _Converter:
    element = _converter(kind.value_type, f"{path}[]")

    def convert(value: Any) -> list[Any] | None:
        if value is not None and not isinstance(value, list):
            raise _Unfit(f"field {path!r} is {_shown(value)}, which is no array")
        return None if value is None else [element(each) for each in value]

    return convert


def _map_converter(kind: pa.DataType, path: str) -> _Converter:
    key, item = _converter(pa.string(), f"a key of {path}"), _converter(kind.item_type, f"{path}[]")

    def convert(value: Any) -> list[tuple[str, Any]] | None:
        _require_object(value, path)
        return None if value is None else [(key(name), item(each)) for name, each in value.items()]

    return convert


def _struct_converter(kind: pa.DataType, path: str) -> _Converter:
    fields = {field.name: _converter(field.type, f"{path}.{field.name}") for field in kind}

    def convert(value: Any) -> dict[str, Any] | None:
        _require_object(value, path)
        return None if value is None else {name: each(value.get(name)) for name, each in fields.items()}

    return convert


def _require_object(value: object, path: str) -> None:
    if value is not None and not isinstance(value, dict):
        raise _Unfit(f"field {path!r} is {_shown(value)}, which is no object")


def _leaf(kind: pa.DataType) -> _Converter:
    """Converts a parsed value that is not null. Raises ValueError, TypeError, OverflowError or InvalidOperation."""
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda value: _integer(value, most)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _zoned_time if kind.tz is not None else _local_time
    return _LEAVES[kind]


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: object, most: int) -> int:
    if not isinstance(value, _Number) or len(value) > 20:
        raise TypeError
    number = int(value)
    if not -most <= number < most:
        raise OverflowError
    return number


_SPECIAL = {"NaN": math.nan, "+INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "INF": math.inf}
_SPECIAL |= {"-INF": -math.inf, "-Infinity": -math.inf}


def _float(value: object) -> float:
    if isinstance(value, float):  # of a bare NaN or Infinity
        return value
    if isinstance(value, _Number):
        return float(value)
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise TypeError


def _decimal(value: object, precision: int, scale: int) -> Decimal:
    if not isinstance(value, str):
        raise TypeError
    context = Context(prec=precision, rounding=ROUND_HALF_UP)
    found = Decimal(value)
    if not found.is_finite():
        raise ValueError
    return found.quantize(Decimal(1).scaleb(-scale), context=context)


def _string(value: object) -> str:
    text = str(value) if isinstance(value, str) else json_text(value)
    text.encode()  # refuses half of a surrogate pair
    return text


def json_text(value: object) -> str:
    """A parsed value as a JSON text, its numbers as they were."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(str(key))}:{json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: object) -> bytes:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise TypeError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError from error


_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?)?"
    r"(Z|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)


def _date(value: object) -> date:
    found = _DATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    return date(*map(int, found.groups()))


def _time(value: object, zoned: bool) -> datetime:
    found = _TIME.fullmatch(value) if isinstance(value, str) and not isinstance(value, _Number) else None
    if found is None or (found[8] and not zoned):
        raise ValueError
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups()[:6])
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    at = datetime(year, month, day, hour, minute, second, micros, tzinfo=timezone.utc)
    zone = (found[8] or "Z").replace(":", "")
    if zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
        at = at + offset if zone[0] == "-" else at - offset
    return at


def _zoned_time(value: object) -> int:
    """Microseconds since 1970. A number is seconds since then, as in Spark."""
    if isinstance(value, _Number):
        return _integer(value, 1 << 43) * 1_000_000
    return (_time(value, zoned=True) - _EPOCH) // timedelta(microseconds=1)


def _local_time(value: object) -> int:
    return (_time(value, zoned=False) - _EPOCH) // timedelta(microseconds=1)


_LEAVES: Mapping[pa.DataType, _Converter] = {
    pa.bool_(): _boolean,
    pa.string(): _string,
    pa.binary(): _bytes,
    pa.date32(): _date,
}
