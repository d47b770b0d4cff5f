"""Decoding bytes that were written elsewhere: all decoding errors are raised here (P2).

Every parser of a record runs within `decoding`. Any failure there becomes `InvalidData`, or the declared error that the
caller makes of it, which names the object. A `reader` checks plain values (of msgpack, of JSON) against their types: a
record's annotations are its schema. A `validator` checks values that are about to be written by the same rules (W14). A
record begins with a format number, and one that is not known is a `NewerFormat`: nothing is damaged, this program is
too old.

Time and memory are bounded by the bytes that are there, never by what they claim: `unpack` looks whether all of a value
is there before it makes any of it, and `json_value` refuses what is nested deeply.
"""

from __future__ import annotations

import enum
import functools
import json
import numbers
import reprlib
import struct
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgpack


class InvalidData(ValueError):
    """Bytes that cannot be understood. The message says why, and not what they are of."""


class NewerFormat(InvalidData):
    """Bytes of a format, or with a part, that this version does not know. They are whole."""


Failure: TypeAlias = Callable[[InvalidData], Exception]
"""Makes the declared error of what could not be understood."""

_NONSENSE = (
    ValueError,  # also of UTF-8, of JSON, of numbers and of msgpack
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    struct.error,
    msgpack.UnpackException,
)
"""What code raises that takes apart what is not what it should be."""

_SKIM = 512  # bytes below which a value cannot claim enough to matter


class decoding:
    """Within it, whatever cannot be understood is InvalidData, or what `failure` makes of that. Other errors pass."""

    __slots__ = ("_failure",)

    def __init__(self, failure: Failure | None = None) -> None:
        self._failure = failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None or not issubclass(kind, _NONSENSE):
            return
        problem = error if isinstance(error, InvalidData) else InvalidData(f"{kind.__name__}: {_shortened(str(error))}")
        if self._failure is not None:
            raise self._failure(problem) from error
        if problem is not error:
            raise problem from error


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


# --- formats ------------------------------------------------------------------------------------------------------


def check_format(found: object, known: int) -> None:
    """Raise NewerFormat for another format number than this version reads, InvalidData for what is none."""
    if type(found) is not int:
        raise InvalidData(f"its format is {reprlib.repr(found)}, which is no number")
    if found != known:
        raise NewerFormat(f"it has format {found}; this version reads format {known}: upgrade this program")


def check_known(fields: Collection[str], known: Collection[str]) -> None:
    """Raise NewerFormat if a record has fields that are not known: a newer version wrote them. They are not ignored, as
    the next change of the record by this version would lose them."""
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise NewerFormat(f"it has {reprlib.repr(unknown[0])}, which this version does not know: upgrade this program")


def unpack(data: bytes) -> Any:
    """The value in msgpack that these bytes are. Raises InvalidData."""
    with decoding():
        if len(data) > _SKIM:  # so that an array that claims a million elements is refused before it is made
            skim = msgpack.Unpacker(max_buffer_size=len(data))
            skim.feed(data)
            skim.skip()
        return msgpack.unpackb(data, strict_map_key=False)


def json_value(data: bytes | str) -> Any:
    """The value in JSON that this is. Raises InvalidData."""
    with decoding():
        return json.loads(data, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise InvalidData(f"{name} is not JSON")


def encoded(text: str, what: str) -> bytes:
    """Text that was given, in UTF-8. Raises ValueError, which says what it is, for half of a surrogate pair: that is
    what bytes of a command line or a file name become which are not UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {text!r} is not valid Unicode text: it has half of a surrogate pair") from None


# --- types --------------------------------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[Any], Any]
"""Makes of a plain value the one that it stands for. Raises InvalidData."""


class Least(int):
    """In an annotation: the least value of a number."""


class Size(int):
    """In an annotation: how many bytes there are."""


class Given(NamedTuple):
    """In an annotation: what validates values of the type, which no `reader` reads."""

    validate: Reader


Natural: TypeAlias = Annotated[int, Least(0)]
"""An offset, a length, a number of things."""

_INT64 = range(-1 << 63, 1 << 63)


@functools.cache
def reader(hint: Any) -> Reader:
    """What reads values of a type: scalars, enums, Literal, Optional, tuples, lists, dictionaries and NamedTuples.

    A NamedTuple is a list of all of its fields, in their order.
    """
    return _of_hint(hint, _READ)


@functools.cache
def validator(hint: Any) -> Reader:
    """A function that validates values before they are written: it returns them as the type's `reader` would.

    Raises InvalidData for what the reader would refuse (W14).

    Of what means the same it makes that: NumPy's integers are integers, its floats are numbers, any buffer is bytes,
    any mapping a dictionary.
    """
    return _of_hint(hint, _GIVEN)


def integer(value: Any) -> int:
    """A whole number of 64 bits that was given, NumPy's included. Raises InvalidData for anything else: floats and
    bools are none."""
    if type(value) is not int:
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            raise _wrong(value, "a whole number")
        value = int(value)
    return _integer(value)


def read_field(name: str, read: Reader, value: Any) -> Any:
    """What `read` makes of a record's field. Its error names the field."""
    try:
        return read(value)
    except InvalidData as problem:
        raise InvalidData(f"{name}: {problem}") from None


def _of_hint(hint: Any, scalars: Mapping[Any, Reader]) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    of = functools.partial(_of_hint, scalars=scalars)
    if hint is Any:
        return lambda value: value
    if hint in scalars:
        return scalars[hint]
    if origin is Annotated and isinstance(arguments[1], Given) and scalars is _GIVEN:
        return arguments[1].validate
    if origin is Annotated:
        return _annotated(of(arguments[0]), arguments[1])
    if origin in (Union, types.UnionType):
        return _optional(arguments, of)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _row(of(arguments[0]), tuple, scalars is _GIVEN)
    if origin is tuple:
        return _fields(str(hint), (), [of(argument) for argument in arguments], lambda *values: values)
    if hint == list[Any]:
        return _list  # of what is read later: a checkpoint has one for each segment
    if origin is list:
        return _row(of(arguments[0]), list, scalars is _GIVEN)
    if origin is dict:
        return _mapping(of(arguments[0]), of(arguments[1]), Mapping if scalars is _GIVEN else dict)
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint, include_extras=True)
        return _fields(hint.__name__, hint._fields, [of(hints[name]) for name in hint._fields], hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _member(hint, scalars)
    raise TypeError(f"no reader for {hint!r}")


def _wrong(value: object, due: str) -> InvalidData:
    return InvalidData(f"{reprlib.repr(value)} stands where {due} is due")


def _scalar(kind: type[Any]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong(value, kind.__name__)
        return value

    return read


def _integer(value: Any) -> int:
    if type(value) is not int or value not in _INT64:
        raise _wrong(value, "a number of 64 bits")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or value != value:
        raise _wrong(value, "a number")
    return float(value)


def _given_number(value: Any) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = float(value)
    return _number(value)


def _given_text(value: Any) -> Any:
    if type(value) is not str:
        if not isinstance(value, str):
            raise _wrong(value, "str")
        value = str.__str__(value)  # of a subclass, such as NumPy's
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            text = reprlib.repr(value)
            raise InvalidData(f"{text} is not valid Unicode text: it has half of a surrogate pair") from None
    return value


def _given_bytes(value: Any) -> Any:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")
    return bytes(value)


_READ: dict[Any, Reader] = {
    int: _integer,
    float: _number,
    str: _scalar(str),
    bytes: _scalar(bytes),
    bool: _scalar(bool),
}
_GIVEN: dict[Any, Reader] = {
    int: integer,
    float: _given_number,
    str: _given_text,
    bytes: _given_bytes,
    bool: _scalar(bool),
}


def _annotated(read: Reader, mark: object) -> Reader:
    def checked(value: Any) -> Any:
        found = read(value)
        if found < mark:
            raise _wrong(value, f"at least {mark}")
        return found

    def sized(value: Any) -> Any:
        found = read(value)
        if len(found) != mark:
            raise _wrong(value, f"{mark} bytes")
        return found

    return checked if isinstance(mark, Least) else sized


def _optional(choices: tuple[Any, ...], of: Callable[[Any], Reader]) -> Reader:
    [present] = [choice for choice in choices if choice is not type(None)]
    read = of(present)
    return lambda value: None if value is None else read(value)


def _literal(values: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        for each in values:
            if type(value) is type(each) and value == each:
                return each
        raise _wrong(value, f"one of {sorted(values)}")

    return read


def _member(kind: type[enum.Enum], scalars: Mapping[Any, Reader]) -> Reader:
    members = {member.value: member for member in kind}
    [plain] = {type(value) for value in members}  # of one type, or there is no reader
    read = scalars[plain]

    def member(value: Any) -> Any:
        if type(value) is kind:
            return value
        found = members.get(read(value))
        if found is None:
            raise _wrong(value, f"one of {', '.join(map(repr, members))}")
        return found

    return member


def _list(value: Any) -> list[Any]:
    if type(value) not in (list, tuple):
        raise _wrong(value, "a list")
    return value if type(value) is list else list(value)


def _row(read: Reader, kind: Callable[[list[Any]], Any], given: bool) -> Reader:
    def read_all(value: Any) -> Any:
        if type(value) not in (list, tuple) and not (given and isinstance(value, list | tuple)):
            raise _wrong(value, "a list")
        return kind([read(each) for each in value])

    return read_all


def _fields(name: str, names: tuple[str, ...], readers: list[Reader], kind: Callable[..., Any]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong(value, name)
        if len(value) != len(readers):
            wrong = NewerFormat if len(value) > len(readers) else InvalidData
            raise wrong(f"{name} has {len(value)} fields; this version knows {len(readers)}")
        try:
            return kind(*[field(each) for field, each in zip(readers, value, strict=True)])
        except InvalidData:
            _name_field(names, readers, value)
            raise

    return read


def _name_field(names: tuple[str, ...], readers: list[Reader], value: Any) -> None:
    """Raise what is wrong with the first field that cannot be read, and say which one that is."""
    for name, read, each in zip(names, readers, value, strict=False):
        read_field(name, read, each)


def _mapping(key: Reader, value: Reader, kind: type[Any]) -> Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, kind):
            raise _wrong(plain, "a map")
        return {key(one): value(other) for one, other in plain.items()}

    return read


__all__ = [
    "Given",
    "InvalidData",
    "Least",
    "Natural",
    "NewerFormat",
    "Reader",
    "Size",
    "check_format",
    "check_known",
    "decoding",
    "encoded",
    "integer",
    "json_value",
    "read_field",
    "reader",
    "unpack",
    "validator",
]
