"""Conversions between NumPy and Arrow arrays, without a copy if possible.

pyarrow's own conversions (`pa.array`, `pa.scalar`, `to_numpy`) import pandas if it is installed: a third of a second
in each new process, and a small job has several.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

TEXTS = (pa.string(), pa.large_string(), pa.string_view())
"""The types of columns of strings."""


def arrow_array(values: np.ndarray) -> pa.Array:
    """An array of the same numbers or booleans, without nulls. Shares memory with numbers that lie close together."""
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(
            pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
        )
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numpy_values(array: pa.Array) -> np.ndarray:
    """The numbers or booleans of an array. Values of nulls are undefined; numbers share memory with it."""
    content = array.buffers()[1] if len(array) else None
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(content or b"", np.uint8)
        return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)
    values: np.ndarray = np.frombuffer(content or b"", array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def repeated(text: str, count: int) -> pa.Array:
    """A column of strings that are all the same."""
    content = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * len(content)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(content * count)])


def text_scalar(text: str) -> pa.StringScalar:
    """A string scalar for compute functions."""
    return repeated(text, 1)[0]


def null_scalar(kind: pa.DataType) -> pa.Scalar:
    """A null scalar for compute functions."""
    return pa.nulls(1, kind)[0]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values: a dictionary, as of categories, is written as they are."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_values(column: pa.Array) -> pa.Array:
    """The values of a column, also of one that is a dictionary or only nulls."""
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    if values.type in (pa.string_view(), pa.binary_view()):  # which `take` does not know
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values.take(column.indices)
