"""Encodes columns as JSON texts, as Spark's `to_json` does, column by column: no Python object per event.

Null fields are left out, nulls in arrays and maps are `null`. Bytes are base64; NaN and infinities are the strings
"NaN", "Infinity" and "-Infinity"; dates and timestamps are ISO 8601 texts. A timestamp has six digits of a second and
the zone Z, so that nothing of it is lost, where `to_json` cuts off after milliseconds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.values.codec import UnencodableValue

_TEXT = pa.large_string()
"""Texts have offsets of 64 bits, as those of a batch may exceed 2 GiB when they are quoted."""

_CONTROL = 0x20
_NON_ASCII = 0x80


class JsonEncoder:
    """Encodes the columns of a batch."""

    def encode(self, values: pa.RecordBatch) -> pa.Array:
        """A JSON object for each row. Raises UnencodableValue."""
        columns = [(name, _plain(values.column(name))) for name in values.schema.names]
        return _object(columns, values.num_rows, "")


def _scalar(text: str) -> pa.Scalar:
    data = text.encode()
    bounds = pa.py_buffer(np.array([0, len(data)], np.int64))
    return pa.Array.from_buffers(_TEXT, 1, [None, bounds, pa.py_buffer(data)])[0]


def _joined(*parts: pa.Array | pa.Scalar | str) -> pa.Array:
    """The texts of each row side by side; null if one of them is null."""
    merged: list[pa.Array | pa.Scalar | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "" or not isinstance(part, str):
            merged.append(part)
    arguments = [_scalar(part) if isinstance(part, str) else part for part in merged]
    return pc.binary_join_element_wise(*arguments, _scalar(""))


def _plain(column: pa.Array) -> pa.Array:
    """The same column with its bytes at the beginning of its buffers, as children of nested arrays need."""
    return pa.concat_arrays([column.slice(0, 0), column]) if column.offset else column


def _object(columns: Sequence[tuple[str, pa.Array]], rows: int, path: str) -> pa.Array:
    """The objects with these fields. Fields before the first one without nulls end with a comma, those after it begin
    with one."""
    columns = [(name, column) for name, column in columns if column.null_count < rows]
    anchor = next((place for place, (_, column) in enumerate(columns) if not column.null_count), None)
    parts: list[pa.Array | str] = []
    for place, (name, column) in enumerate(columns):
        start, text, end = _value(column, f"{path}{name}")
        start = json.dumps(name, ensure_ascii=False) + ":" + start
        if anchor is not None and place < anchor:
            end += ","
        elif anchor is None or place > anchor:
            start = "," + start
        if column.null_count:
            parts.append(pc.fill_null(_joined(start, text, end), _scalar("")))
        else:
            parts += [start, text, end]
    if not columns:
        return _repeated("{}", rows)
    if anchor is None:  # a row begins with a comma, unless it has no field
        parts = [pc.ascii_ltrim(parts[0] if len(parts) == 1 else _joined(*parts), characters=",")]
    return _joined("{", *parts, "}")


def _repeated(text: str, rows: int) -> pa.Array:
    data = text.encode()
    bounds = np.arange(rows + 1, dtype=np.int64) * len(data)
    return pa.Array.from_buffers(_TEXT, rows, [None, pa.py_buffer(bounds), pa.py_buffer(data * rows)])


def _whole(column: pa.Array, path: str) -> pa.Array:
    """The JSON texts of a column of values; `null` for nulls."""
    if column.null_count == len(column):
        return _repeated("null", len(column))
    texts = _joined(*_value(column, path))
    return pc.fill_null(texts, _scalar("null")) if column.null_count else texts


def _value(column: pa.Array, path: str) -> tuple[str, pa.Array, str]:
    """The JSON texts of a column, null where it is null, with what stands before and after each of them."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return '"', _escaped(column.cast(_TEXT), path), '"'
    if pa.types.is_floating(kind):
        return "", _number(column), ""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return "", column.cast(_TEXT), ""
    if pa.types.is_date(kind):
        return '"', column.cast(_TEXT), '"'
    if pa.types.is_timestamp(kind):
        exact = column.cast(pa.timestamp("us", tz=None if kind.tz is None else "UTC"))
        return '"', pc.binary_replace_slice(exact.cast(_TEXT), 10, 11, "T"), '"'
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return '"', _base64(column), '"'
    if pa.types.is_map(kind):
        return "{", _entries(column, path), "}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        bounds, first, count = _bounds(column)
        return "[", _listed(column, bounds, _whole(_plain(column.values.slice(first, count)), f"{path}[]")), "]"
    if pa.types.is_struct(kind):
        fields = [(kind.field(place).name, _plain(column.field(place))) for place in range(kind.num_fields)]
        return "", _only_valid(column, _object(fields, len(column), f"{path}.")), ""
    raise UnencodableValue(f"column {path!r} has type {kind}, which JSON cannot hold: cast it to a string")


def _only_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of the rows that are not null."""
    return pc.if_else(pc.is_valid(column), texts, pa.nulls(1, _TEXT)[0]) if column.null_count else texts


def _escaped(texts: pa.Array, path: str) -> pa.Array:
    """Texts as they stand between the quotes of JSON."""
    _, bounds, content = texts.buffers()
    if content is None:
        return texts
    ends = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    if not len(data):
        return texts
    if data.max() >= _NON_ASCII:
        try:
            texts = texts.view(pa.large_binary()).cast(_TEXT)
        except pa.ArrowInvalid:
            raise UnencodableValue(
                f"column {path!r} has a string that is not valid UTF-8, which JSON cannot hold: cast it to binary"
            ) from None
    if (data == ord("\\")).any():
        texts = pc.replace_substring(texts, pattern="\\", replacement="\\\\")
    if (data == ord('"')).any():
        texts = pc.replace_substring(texts, pattern='"', replacement='\\"')
    if data.min() < _CONTROL:
        for code in np.unique(data[data < _CONTROL]).tolist():
            texts = pc.replace_substring(texts, pattern=chr(code), replacement=json.dumps(chr(code))[1:-1])
    return texts


def _number(column: pa.Array) -> pa.Array:
    texts = column.cast(_TEXT)
    for special, text in ((pc.is_nan(column), '"NaN"'), (pc.is_inf(column), '"Infinity"')):
        if pc.any(special).as_py():
            texts = pc.if_else(special, _scalar(text), texts)
            if text == '"Infinity"':
                negative = pc.and_(special, pc.less(column, 0))
                texts = pc.if_else(negative, _scalar('"-Infinity"'), texts)
    return texts


def _base64(column: pa.Array) -> pa.Array:
    encoded = [None if each is None else base64.b64encode(each) for each in column.to_pylist()]
    return pa.array(encoded, pa.large_binary()).view(_TEXT)


def _entries(column: pa.Array, path: str) -> pa.Array:
    """The entries of maps, with commas between them."""
    bounds, first, count = _bounds(column)
    keys, items = (_plain(each.slice(first, count)) for each in (column.keys, column.items))
    if not pa.types.is_string(keys.type) and not pa.types.is_large_string(keys.type):
        raise UnencodableValue(f"column {path!r} has keys of type {keys.type}: cast the keys of a map to strings")
    if not count:
        return _listed(column, bounds, pa.nulls(0, _TEXT))
    start, texts, end = _value(keys, path)
    return _listed(column, bounds, _joined(start, texts, end, ":", _whole(items, f"{path}[]")))


def _bounds(column: pa.Array) -> tuple[np.ndarray, int, int]:
    """The bounds of the lists of a column, from 0 on, and the first of their values and how many there are."""
    kind = np.int64 if pa.types.is_large_list(column.type) else np.int32
    content = column.buffers()[1]
    if not len(column) or content is None:
        return np.zeros(len(column) + 1, np.int64), 0, 0
    bounds = np.frombuffer(content, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return bounds - bounds[0], int(bounds[0]), int(bounds[-1] - bounds[0])


def _listed(column: pa.Array, bounds: np.ndarray, texts: pa.Array) -> pa.Array:
    """The texts of the values of each list, with commas between them; null where the list is null."""
    lists = pa.Array.from_buffers(
        pa.large_list(_TEXT), len(column), [None, pa.py_buffer(np.ascontiguousarray(bounds))], children=[texts]
    )
    return _only_valid(column, pc.binary_join(lists, _scalar(",")))
