"""Pravega's versioned binary format: as much of it as metadata records, stream cuts and event pointers need.

A value is `00 | version | revision count | revisions`, and a revision `id | int32 length | data`. A value of one of
several types has its type behind the 00. A reader skips what newer writers add: revisions it does not know, which it
keeps (W19), and data behind the fields it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from chunkstore.decoding import InvalidData, NewerFormat, integer, validator
from chunkstore.optional_fields import LaterRevisions

MAX_UTF_BYTES = 0xFFFF


class _Form(NamedTuple):
    """One of the sizes of a compact integer: its bytes, its value bits, and the marker in its first byte."""

    size: int
    bits: int
    marker: int


_INT_FORMS = (_Form(1, 7, 0x00), _Form(2, 14, 0x80), _Form(4, 30, 0xC0))
_LONG_FORMS = (_Form(1, 6, 0x00), _Form(2, 14, 0x40), _Form(4, 30, 0x80), _Form(8, 62, 0xC0))
_SIGNED_FORMS = (_Form(1, 5, 0x00), _Form(2, 13, 0x20), _Form(4, 29, 0x40), _Form(8, 61, 0x60))
_SIGN = 0x80


class FieldWriter:
    """Writes the fields of a revision one after the other. Values that do not fit their form are ValueErrors: what is
    written can be read back (W14)."""

    def __init__(self) -> None:
        self._data = bytearray()

    def getvalue(self) -> bytes:
        """What has been written."""
        return bytes(self._data)

    def compact_int(self, value: int) -> None:
        """An int in [0, 2^30)."""
        self._data += _packed(value, _INT_FORMS)

    def compact_long(self, value: int) -> None:
        """An int in [0, 2^62)."""
        self._data += _packed(value, _LONG_FORMS)

    def compact_signed_long(self, value: int) -> None:
        """An int in [-2^61, 2^61)."""
        value = integer(value)
        packed = bytearray(_packed(value if value >= 0 else -value - 1, _SIGNED_FORMS))
        if value < 0:
            packed[0] |= _SIGN
        self._data += packed

    def long(self, value: int) -> None:
        """An int in [-2^63, 2^63)."""
        self._data += integer(value).to_bytes(8, "big", signed=True)

    def boolean(self, value: bool) -> None:
        """A truth value."""
        self._data.append(_TRUTH(value))

    def raw(self, data: bytes) -> None:
        """Bytes as they are, whose format says where they end."""
        self._data += _BYTES(data)

    def utf(self, text: str) -> None:
        """A string of at most 65535 bytes in Java's modified UTF-8."""
        if not isinstance(text, str):
            raise InvalidData(f"{text!r} stands where text is due")
        encoded = _modified_utf8(text)
        if len(encoded) > MAX_UTF_BYTES:
            raise ValueError(f"a string of {len(encoded)} bytes is too long: the format allows {MAX_UTF_BYTES}")
        self._data += len(encoded).to_bytes(2, "big") + encoded

    def name(self, text: str) -> None:
        """The same of what is the name of something: without half a character."""
        self.utf(_TEXT(text))


_TRUTH, _BYTES, _TEXT = validator(bool), validator(bytes), validator(str)


class FieldReader:
    """Reads the fields of a revision one after the other. InvalidData where the bytes end early or make no sense."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def rest(self) -> int:
        """How many bytes have not been read."""
        return len(self._data) - self._place

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._place + size
        if end > len(self._data):
            raise InvalidData(f"the data ends at byte {len(self._data)}, but {size} bytes are due at {self._place}")
        taken = self._data[self._place : end]
        self._place = end
        return taken

    def compact_int(self) -> int:
        """An int in [0, 2^30)."""
        return self._compact(self.take(1)[0], _INT_FORMS)

    def compact_long(self) -> int:
        """An int in [0, 2^62)."""
        return self._compact(self.take(1)[0], _LONG_FORMS)

    def compact_signed_long(self) -> int:
        """An int in [-2^61, 2^61)."""
        first = self.take(1)[0]
        value = self._compact(first & ~_SIGN, _SIGNED_FORMS)
        return -value - 1 if first & _SIGN else value

    def long(self) -> int:
        """An int in [-2^63, 2^63)."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def boolean(self) -> bool:
        """A truth value."""
        return self.take(1) != b"\0"

    def utf(self) -> str:
        """A string in Java's modified UTF-8."""
        return _from_modified_utf8(self.take(int.from_bytes(self.take(2), "big")))

    def name(self) -> str:
        """A string that may be the name of something: without half a character, which no storage takes."""
        text = self.utf()
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidData(f"the name {text!r} has half of a surrogate pair")
        return text

    def count(self, least: int) -> int:
        """How many things follow, each of at least so many bytes. InvalidData if there are too few for that."""
        found = self.compact_int()
        if found * least > self.rest:
            raise InvalidData(f"{found} things of at least {least} bytes are due, and {self.rest} bytes are left")
        return found

    def _compact(self, first: int, forms: tuple[_Form, ...]) -> int:
        form = next(form for form in reversed(forms) if first >= form.marker)
        return int.from_bytes(bytes([first - form.marker]) + self.take(form.size - 1), "big")


class FieldForm(NamedTuple):
    """How the value of a field is written and read."""

    write: Callable[[FieldWriter, Any], None]
    read: Callable[[FieldReader], Any]


LONG = FieldForm(FieldWriter.compact_long, FieldReader.compact_long)
INT = FieldForm(FieldWriter.compact_int, FieldReader.compact_int)
NAME = FieldForm(FieldWriter.name, FieldReader.name)
OPTIONAL_NAME = FieldForm(lambda fields, name: fields.name(name or ""), lambda fields: fields.name() or None)


def write_fields(record: object, forms: Mapping[str, FieldForm]) -> bytes:
    """The bytes of these attributes of a record, one after the other. Raises ValueError for what does not fit."""
    fields = FieldWriter()
    for name, form in forms.items():
        form.write(fields, getattr(record, name))
    return fields.getvalue()


def read_fields(fields: FieldReader, forms: Mapping[str, FieldForm]) -> dict[str, Any]:
    """The values that come next, by the names of their fields. Raises InvalidData."""
    return {name: form.read(fields) for name, form in forms.items()}


def check_version(found: int, known: int, what: str) -> None:
    """Raise NewerFormat unless the version of a value is the one that is known here."""
    if found != known:
        raise NewerFormat(f"{what} has version {found}; this program reads version {known}: upgrade it")


def with_version(version: int, *revisions: bytes, later: LaterRevisions = ()) -> bytes:
    """A whole value: the fields of the revisions of `version`, from revision 0 on, and those that are not known."""
    return bytes([0]) + _with_revisions(version, revisions, later)


def open_version(data: bytes) -> tuple[int, FieldReader]:
    """The version of a value and a reader for the fields of its revision 0. Later revisions are skipped."""
    return read_version(FieldReader(data))


def read_version(reader: FieldReader) -> tuple[int, FieldReader]:
    """As `open_version`, where other fields may follow the value."""
    version, revisions = read_revisions(reader)
    return version, revisions[0]


def read_revisions(reader: FieldReader) -> tuple[int, dict[int, FieldReader]]:
    """The version of a value, and readers for the fields of its revisions by their ids, 0 among them."""
    _check_form(reader)
    return _read_revisions(reader)


def with_type(kind: int, version: int, *revisions: bytes, later: LaterRevisions = ()) -> bytes:
    """A whole value of one of several types, as `with_version`."""
    return bytes([0, kind]) + _with_revisions(version, revisions, later)


def later_revisions(revisions: Mapping[int, FieldReader], known: int) -> LaterRevisions:
    """The revisions behind the `known` first ones. They are kept as they are (W19)."""
    return tuple((number, fields.take(fields.rest)) for number, fields in revisions.items() if number >= known)


def read_type(reader: FieldReader) -> tuple[int, int, dict[int, FieldReader]]:
    """The type of a value, its version, and readers for the fields of its revisions by their ids, 0 among them."""
    _check_form(reader)
    kind = reader.take(1)[0]
    return kind, *_read_revisions(reader)


def _with_revisions(version: int, revisions: Sequence[bytes], later: LaterRevisions) -> bytes:
    numbers = [number for number, _ in later]
    if numbers != sorted(set(numbers)) or any(not len(revisions) <= number <= 0xFF for number in numbers):
        raise ValueError(f"later revisions {numbers} must ascend from {len(revisions)} to 255 at most")
    all_of_them = [*enumerate(revisions), *later]
    head = bytes([version, len(all_of_them)])
    return head + b"".join(bytes([number]) + len(fields).to_bytes(4, "big") + fields for number, fields in all_of_them)


def _check_form(reader: FieldReader) -> None:
    form = reader.take(1)[0]
    if form != 0:
        raise InvalidData(f"unknown format {form}: expected 0")


def _read_revisions(reader: FieldReader) -> tuple[int, dict[int, FieldReader]]:
    version, count = reader.take(2)
    revisions: dict[int, FieldReader] = {}
    for _ in range(count):
        number = reader.take(1)[0]
        revisions[number] = FieldReader(reader.take(int.from_bytes(reader.take(4), "big")))
    first = next(iter(revisions), None)
    if first is None:
        raise InvalidData("the value has no revision")
    if first != 0:
        raise InvalidData(f"the first revision is {first}: expected 0")
    return version, revisions


def _packed(value: int, forms: tuple[_Form, ...]) -> bytes:
    value = integer(value)
    for size, bits, marker in forms:
        if 0 <= value < 1 << bits:
            return (value | marker << 8 * (size - 1)).to_bytes(size, "big")
    raise ValueError(f"{value} does not fit a compact integer: it must be between 0 and 2^{forms[-1].bits} - 1")


def _modified_utf8(text: str) -> bytes:
    """UTF-8 of each UTF-16 code unit by itself, with NUL as two bytes."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    return b"".join(
        chr(high << 8 | low).encode("utf-8", "surrogatepass") if high or low else b"\xc0\x80"
        for high, low in zip(units[0::2], units[1::2], strict=True)
    )


def _from_modified_utf8(encoded: bytes) -> str:
    if encoded.isascii():
        return encoded.decode()
    try:
        units = encoded.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        if max(units, default="") > "\uffff":
            raise InvalidData("a string is not modified UTF-8: it has a character of four bytes")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidData(f"a string is not modified UTF-8: {error.reason} at byte {error.start}") from None
