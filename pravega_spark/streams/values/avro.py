"""Values as Avro: each event is one datum without a header, as Spark's `to_avro` writes it.

Only the schema with which an event was written can decode it. A datum that does not end with its event is malformed, so
that no event is read with a wrong schema and no event is read into the next one.
"""

from __future__ import annotations

import io
import json
import reprlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pravega_spark.errors import InvalidValueSchema
from pravega_spark.streams.values.codec import MalformedValue, OnMalformed, UnencodableValue
from pravega_spark.streams.values.ddl import MOST_DIGITS, checked_schema, type_text
from pravega_spark.streams.values.retyping import retyped

if TYPE_CHECKING:
    from types import ModuleType

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MOST_NESTED = 64


def _library() -> ModuleType:
    try:
        import fastavro
    except ImportError:
        raise ImportError(
            "values in Avro need the package fastavro: install pravega-spark[avro] on the driver and the executors"
        ) from None
    return fastavro


class AvroSchema:
    """A schema of records. Raises InvalidValueSchema if it is wrong, or has what a column cannot hold.

    parsed: as the library writes datums of it. fields: its fields as columns. stored: the type in which the datums are
    read, which differs in units of time.
    """

    def __init__(self, text: str) -> None:
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidValueSchema(f"the Avro schema is no JSON: {error}") from None
        if not isinstance(plain, dict) or plain.get("type") != "record":
            raise InvalidValueSchema(f"the Avro schema must be a record, not {reprlib.repr(plain)}")
        self._plain = plain
        self.parsed = self._parsed(plain)
        self.stored = _Types().record(plain, "")
        nullable = [_is_nullable(field["type"]) or "default" in field for field in plain["fields"]]
        fields = [field.with_nullable(null) for field, null in zip(self.stored, nullable, strict=True)]
        self.fields = checked_schema(fields)

    @cached_property
    def physical(self) -> Any:
        """As the library reads datums of it: times remain numbers, and identifiers texts, which Arrow takes."""
        return self._parsed(_without_times(self._plain))

    @staticmethod
    def _parsed(plain: Any) -> Any:
        library = _library()
        try:
            return library.parse_schema(json.loads(json.dumps(plain)))
        except Exception as error:  # the library has errors of several kinds, KeyError among them
            raise InvalidValueSchema(f"the Avro schema is wrong: {type(error).__name__}: {error}") from None


def _is_nullable(kind: Any) -> bool:
    return isinstance(kind, list) and "null" in kind


def _without_times(plain: Any) -> Any:
    """The schema without logical types, except decimals."""
    if isinstance(plain, list):
        return [_without_times(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    return {
        name: _without_times(value)
        for name, value in plain.items()
        if name not in ("default", "doc", "logicalType") or (name == "logicalType" and value == "decimal")
    }


class _Types:
    """The Arrow types of one schema. Its named types are known where they were defined before."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._depth = 0

    def record(self, plain: Mapping[str, Any], path: str) -> pa.DataType:
        fields = plain.get("fields") or []
        if not fields:
            raise InvalidValueSchema(f"the Avro record {plain.get('name')!r} has no fields")
        kinds = [(field["name"], self.of(field["type"], f"{path}{field['name']}")) for field in fields]
        return self._remember(plain, pa.struct(kinds))

    def of(self, plain: Any, path: str) -> pa.DataType:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise InvalidValueSchema(f"the Avro schema nests types more than {_MOST_NESTED} deep")
        kind = self._of(plain, path)
        self._depth -= 1
        return kind

    def _of(self, plain: Any, path: str) -> pa.DataType:
        if isinstance(plain, list):
            kinds = [each for each in plain if each != "null"]
            if len(kinds) != 1:
                raise InvalidValueSchema(f"Avro field {path!r} is a union of several types, which no column can hold")
            return self.of(kinds[0], path)
        if isinstance(plain, str):
            known = _PRIMITIVES.get(plain, self._named.get(plain))
            if known is None:
                known = self._named.get(plain.rpartition(".")[2])
            if known is None:
                raise InvalidValueSchema(
                    f"Avro field {path!r} has type {plain!r}, which no column can hold: neither null alone nor a type "
                    "that contains itself can be read"
                )
            return known
        kind = plain["type"]
        if isinstance(kind, list | dict):
            return self.of(kind, path)
        if plain.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = plain.get("precision", 0), plain.get("scale", 0)
            if not 1 <= precision <= MOST_DIGITS or not 0 <= scale <= precision:
                raise InvalidValueSchema(f"Avro field {path!r} is a decimal of more than {MOST_DIGITS} digits")
            return self._remember(plain, pa.decimal128(precision, scale))
        logical = _LOGICAL.get((kind, plain.get("logicalType", "")))
        if logical is not None:
            return logical
        if kind == "record":
            return self.record(plain, f"{path}.")
        if kind == "array":
            return pa.list_(self.of(plain["items"], f"{path}[]"))
        if kind == "map":
            return pa.map_(pa.string(), self.of(plain["values"], f"{path}[]"))
        if kind == "enum":
            return self._remember(plain, pa.string())
        if kind == "fixed":
            if plain["size"] < 1:
                raise InvalidValueSchema(f"Avro field {path!r} has no bytes")
            return self._remember(plain, pa.binary())
        return self.of(kind, path)

    def _remember(self, plain: Mapping[str, Any], kind: pa.DataType) -> pa.DataType:
        if "name" in plain:
            self._named[str(plain["name"]).rpartition(".")[2]] = kind
        return kind


class AvroDecoder:
    """Decodes events that were written with one schema into fields that are wanted. on_malformed: see codec.

    Raises InvalidValueSchema for a wanted field whose type cannot hold the written one.
    """

    def __init__(self, written: str, wanted: pa.Schema, on_malformed: OnMalformed = "fail") -> None:
        self.schema = wanted
        self._written = AvroSchema(written)
        self._on_malformed = on_malformed
        found = {field.name: field.type for field in self._written.fields}
        for field in wanted:
            if field.name in found:
                _check_wide_enough(found[field.name], field.type, field.name)

    def decode(self, events: pa.Array) -> pa.RecordBatch:
        """The wanted fields of each event. Raises MalformedValue."""
        rows = self._rows(self._datums(events))
        if not len(self.schema):
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=[""]).select([])
        fields = dict(zip(self._written.fields.names, rows.flatten(), strict=True))
        columns = [
            retyped(fields[field.name], field.with_nullable(True), field.name)
            if field.name in fields
            else pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)

    def _rows(self, datums: list[dict[str, Any] | None]) -> pa.Array:
        try:
            return pa.array(datums, self._written.stored)
        except (pa.ArrowInvalid, OverflowError):
            pass  # a number with more digits than its type has
        for row, datum in enumerate(datums):
            try:
                pa.array([datum], self._written.stored)
            except (pa.ArrowInvalid, OverflowError) as error:
                if self._on_malformed == "fail":
                    raise MalformedValue(row, f"it has a value that its Avro schema does not allow ({error})") from None
                datums[row] = None
        return pa.array(datums, self._written.stored)

    def _datums(self, events: pa.Array) -> list[dict[str, Any] | None]:
        read, schema = _library().schemaless_reader, self._written.physical
        found: list[dict[str, Any] | None] = []
        for row, event in enumerate(events.to_pylist()):
            datum = None
            if event is not None:
                source = io.BytesIO(event)
                try:
                    datum = read(source, schema, None)
                    reason = f"it has {len(event) - source.tell()} bytes behind its Avro value"
                    whole = source.tell() == len(event)
                except Exception as error:  # the library has errors of several kinds
                    reason, whole = f"it is no Avro value of the schema ({type(error).__name__}: {error})", False
                if not whole:
                    if self._on_malformed == "fail":
                        raise MalformedValue(row, reason)
                    datum = None
            found.append(datum)
        return found


def _check_wide_enough(written: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Raise InvalidValueSchema if a type cannot hold all values of the written one."""
    if pa.types.is_struct(written) and pa.types.is_struct(wanted):
        fields = {field.name: field.type for field in written}
        for field in wanted:
            if field.name in fields:
                _check_wide_enough(fields[field.name], field.type, f"{path}.{field.name}")
    elif pa.types.is_list(written) and pa.types.is_list(wanted):
        _check_wide_enough(written.value_type, wanted.value_type, f"{path}[]")
    elif pa.types.is_map(written) and pa.types.is_map(wanted):
        _check_wide_enough(written.item_type, wanted.item_type, f"{path}[]")
    elif not written.equals(wanted) and (written, wanted) not in _WIDER:
        raise InvalidValueSchema(
            f"field {path!r} is {type_text(written)} in the Avro schema, which {type_text(wanted)} cannot hold: read "
            "it as it is written, and cast it after the read"
        )


_WIDER = {
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
}


class AvroEncoder:
    """Encodes columns as datums of a schema."""

    def __init__(self, schema: str) -> None:
        self._schema = AvroSchema(schema)

    def encode(self, values: pa.RecordBatch) -> pa.Array:
        """A datum for each row. Raises UnencodableValue for a null or a value that the schema does not have."""
        write, schema = _library().schemaless_writer, self._schema.parsed
        columns = [_objects(values.column(name)) for name in values.schema.names]
        found = []
        for row in zip(*columns, strict=True):
            datum = dict(zip(values.schema.names, row, strict=True))
            target = io.BytesIO()
            try:
                write(target, schema, datum)
            except Exception as error:  # the library has errors of several kinds
                raise UnencodableValue(self._reason(datum, error)) from None
            found.append(target.getvalue())
        return pa.array(found, pa.large_binary())

    def _reason(self, datum: Mapping[str, Any], error: Exception) -> str:
        for field in self._schema.fields:
            if not field.nullable and datum.get(field.name) is None:
                return f"column {field.name!r} is null in a row, but the Avro schema has it without null"
        return f"a row does not fit the Avro schema: {type(error).__name__}: {error}"


def _objects(column: pa.Array) -> list[Any]:
    """The values of a column as the library takes them: maps are dictionaries."""
    values: list[Any] = column.to_pylist()
    convert = _map_converter(column.type)
    return values if convert is None else [convert(value) for value in values]


def _map_converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What converts the entries of maps within a value; None if the type has none."""
    if pa.types.is_map(kind):
        item = _map_converter(kind.item_type) or _same
        return lambda value: None if value is None else {key: item(each) for key, each in value}
    if pa.types.is_list(kind):
        element = _map_converter(kind.value_type)
        if element is not None:
            return lambda value: None if value is None else [element(each) for each in value]
    if pa.types.is_struct(kind):
        fields = {field.name: _map_converter(field.type) for field in kind}
        if any(fields.values()):
            return lambda value: (
                None if value is None else {name: (fields[name] or _same)(each) for name, each in value.items()}
            )
    return None


def _same(value: Any) -> Any:
    return value


def avro_schema(columns: pa.Schema) -> str:
    """An Avro schema for columns, as Spark's `to_avro` derives it; decimals are bytes."""
    return json.dumps(_record(columns, "topLevelRecord"))


def _record(fields: Any, name: str) -> dict[str, Any]:
    made = []
    for field in fields:
        kind = _avro_type(field.type, f"{name}_{field.name}")
        made.append({"name": field.name, "type": [kind, "null"] if field.nullable else kind})
    return {"type": "record", "name": name, "fields": made}


def _avro_type(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind):
        return {"type": "array", "items": [_avro_type(kind.value_type, name), "null"]}
    if pa.types.is_map(kind):
        return {"type": "map", "values": [_avro_type(kind.item_type, name), "null"]}
    if pa.types.is_struct(kind):
        return _record(kind, name)
    if pa.types.is_integer(kind):
        return "long" if kind == pa.int64() else "int"
    for (physical, logical), known in _LOGICAL.items():
        if known.equals(kind):
            return {"type": physical, "logicalType": logical}
    return next(text for text, known in _PRIMITIVES.items() if known.equals(kind))
