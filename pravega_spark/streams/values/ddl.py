"""Schemas of values as Spark's DDL text, such as `id bigint, at timestamp, tags array<string>`.

Spark's own parser needs a JVM, which neither its workers nor a Python program have. The types are those that a value
can have. All of them may be null inside of a value; NOT NULL is kept for the fields of the value itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from pravega_spark.errors import InvalidValueSchema

_T = TypeVar("_T")

MOST_DIGITS = 38
"""Maximum precision of a decimal."""

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_OTHER_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
    "char": "string",
    "character": "string",
    "varchar": "string",
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
TYPE_NAMES = (*_TYPES, "decimal(p,s)", "array<…>", "map<string,…>", "struct<…>")

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:])")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_NESTED = 64


def parse_schema(text: str) -> pa.Schema:
    """The fields of a DDL text. Raises InvalidValueSchema, which quotes the place."""
    return pa.schema(_Parser(text).whole())


def schema_text(schema: pa.Schema | Sequence[pa.Field]) -> str:
    """The DDL text of a schema of supported types. `parse_schema` reads it."""
    return ", ".join(
        f"{_quoted(field.name)} {type_text(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in schema
    )


def type_text(kind: pa.DataType) -> str:
    """A type in Spark's words; an unsupported one in Arrow's."""
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{type_text(field.type)}' for field in kind)}>"
    return _NAMES.get(kind, str(kind))


def checked_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """A schema of the same fields whose types are in the one form that codecs know. Raises InvalidValueSchema."""
    _refuse_repeated([field.name for field in fields], "")
    return pa.schema([pa.field(field.name, _checked(field.type, field.name), field.nullable) for field in fields])


def _checked(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _NAMES or pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_checked(kind.value_type, f"{path}[]"))
    if pa.types.is_map(kind) and _checked(kind.key_type, path) == pa.string():
        return pa.map_(pa.string(), _checked(kind.item_type, f"{path}[]"))
    if pa.types.is_struct(kind):
        _refuse_repeated([field.name for field in kind], path)
        return pa.struct([pa.field(field.name, _checked(field.type, f"{path}.{field.name}")) for field in kind])
    raise InvalidValueSchema(
        f"field {path!r} has type {type_text(kind)}, which a value cannot have: cast it to one of "
        f"{', '.join(TYPE_NAMES)}"
    )


def _refuse_repeated(names: Sequence[str], path: str) -> None:
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise InvalidValueSchema(
            f"field {f'{path}.{repeated}'.lstrip('.')!r} is there twice: give the fields different names"
        )


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Reads one DDL text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int]] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._error(place + len(text[place:]) - len(text[place:].lstrip()))
            self._tokens.append((found[1], found.start(1)))
            place = found.end()
        self._next = 0
        self._depth = 0

    def whole(self) -> list[pa.Field]:
        fields = self._fields("")
        if self._peek():
            raise self._error()
        return list(checked_schema(fields))

    def _fields(self, end: str) -> list[pa.Field]:
        """Fields up to a token, which is not taken."""
        fields: list[pa.Field] = []
        while not fields or self._skip(","):
            name = self._name()
            self._skip(":")
            kind = self._type()
            nullable = not self._skip("NOT", "NULL")
            if self._skip("COMMENT"):
                self._take()
                while self._peek()[:1] in ("'", '"') and self._peek():  # literals side by side are one
                    self._take()
            fields.append(pa.field(name, kind, nullable))
        if self._peek() != end:
            raise self._error()
        return fields

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            self._next -= 1
            raise self._error()
        return token

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise InvalidValueSchema(f"the schema nests types more than {_MOST_NESTED} deep")
        kind = self._nested_type()
        self._depth -= 1
        return kind

    def _nested_type(self) -> pa.DataType:
        given = self._take().lower()
        name = _OTHER_NAMES.get(given, given)
        if name == "decimal":
            return self._decimal()
        if name == "array":
            return pa.list_(self._within(self._type))
        if name == "map":
            return self._within(self._map)
        if name == "struct":
            return pa.struct(self._within(lambda: [] if self._peek() == ">" else self._fields(">")))
        if name not in _TYPES:
            self._next -= 1
            raise self._error()
        if given != name and name == "string" and self._skip("("):  # the length of a char or varchar
            self._take()
            self._expect(")")
        return _TYPES[name]

    def _map(self) -> pa.DataType:
        key = self._type()
        self._expect(",")
        return pa.map_(key, self._type())

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            scale = self._number() if self._skip(",") else 0
            self._expect(")")
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise InvalidValueSchema(
                f"decimal({precision},{scale}) is no type: the precision is 1 to {MOST_DIGITS}, and the scale no more"
            )
        return pa.decimal128(precision, scale)

    def _within(self, content: Callable[[], _T]) -> _T:
        self._expect("<")
        found = content()
        self._expect(">")
        return found

    def _number(self) -> int:
        token = self._take()
        if not re.fullmatch("[0-9]{1,4}", token):
            self._next -= 1
            raise self._error()
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise self._error()
        self._next += 1
        return token

    def _skip(self, *words: str) -> bool:
        """Take these tokens if they come next."""
        following = [token.upper() for token, _ in self._tokens[self._next : self._next + len(words)]]
        if following != list(words):
            return False
        self._next += len(words)
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise self._error()

    def _error(self, place: int | None = None) -> InvalidValueSchema:
        if place is None:
            place = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        rest = self._text[place : place + 20]
        where = f"at {rest!r}" if rest else "at its end"
        return InvalidValueSchema(
            f'the schema is wrong {where} (character {place}): write it as in "id bigint, tags array<string>", with '
            f"the types {', '.join(TYPE_NAMES)}"
        )
