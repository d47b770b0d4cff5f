"""Stream cuts: a position in every segment of a stream at one moment, in the original's text and binary forms.

Equal cuts are equal in every form: positions are ordered by segment, and the text is compressed without a timestamp.
Texts of other implementations may differ for equal cuts, so cuts are compared, never texts.
"""

from __future__ import annotations

import base64
import re
import reprlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from chunkstore.decoding import InvalidData
from chunkstore.metadata.serialization import FieldWriter, open_version, with_version
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters, whole_number
from pravega_spark.quantities import count_text
from pravega_spark.segment_ids import segment_epoch, segment_id, segment_label, segment_number
from pravega_spark.streams.model.epochs import NOT_REACHED
from pravega_spark.streams.model.html_table import html_table
from pravega_spark.streams.model.names import validate_stored_name

_TEXT_VERSION = "0"
_UNBOUNDED_TEXT = "UNBOUNDED"
MAX_SEGMENTS = 100_000
"""Maximum number of segments of a cut, ten times the default limit of a stream."""

LONGEST_PLAIN_TEXT = 42 * MAX_SEGMENTS + 1024  # bytes of so many segments; larger content is rejected
LONGEST_TEXT = 2 * LONGEST_PLAIN_TEXT

# Deflate, no flags, no time, no extra flags, unknown system: what Java writes since JDK 16.
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_GZIP_FORMAT = 31  # makes zlib expect a gzip header and verify the checksum
BEGINNING = base64.b64encode(_GZIP_HEADER[:3]).decode()
"""The prefix of the text of every cut, of any implementation."""

_NUMBERS = re.compile(r"-?[0-9]{1,19}(?:,-?[0-9]{1,19})*")


@checks_parameters(but=("__init__", "as_text", "to_bytes"))
@dataclass(frozen=True)
class StreamCut:
    """A position in each segment of a stream. The tail cut of a sealed stream has no positions.

    `positions` maps segment ids to offsets in bytes. An offset may be NOT_REACHED.
    InvalidStreamCut for names that no stream has and for numbers out of range; TypeError for what is no whole number.
    """

    scope: str
    stream: str
    positions: Mapping[int, int]

    def __post_init__(self) -> None:
        try:
            validate_stored_name(self.scope)
            validate_stored_name(self.stream)
        except ValueError as error:
            raise InvalidStreamCut(str(error)) from None
        if not isinstance(self.positions, Mapping):
            raise TypeError(
                f"positions must map segment ids to offsets, as {{0: 1024}}, not {reprlib.repr(self.positions)}"
            )
        positions = dict(sorted(map(self._position, self.positions.items())))
        for segment, offset in positions.items():
            if not 0 <= segment < 1 << 62 or segment_number(segment) >= 1 << 31:
                raise InvalidStreamCut(f"a stream cut of {self.scope}/{self.stream} cannot have segment id {segment}")
            if not NOT_REACHED <= offset < 1 << 61:
                raise InvalidStreamCut(
                    f"a stream cut of {self.scope}/{self.stream} cannot have offset {offset} in segment "
                    f"{segment_label(segment)}"
                )
        object.__setattr__(self, "positions", MappingProxyType(positions))

    def _position(self, given: tuple[int, int]) -> tuple[int, int]:
        """A segment id and its offset, as whole numbers. Raises TypeError."""
        segment, offset = given
        if type(segment) is int and type(offset) is int:
            return given
        where = f"positions of a stream cut of {self.scope}/{self.stream}"
        number = whole_number(f"{where}: a segment id", segment)
        return number, whole_number(f"{where}: the offset in segment {number}", offset)

    def __hash__(self) -> int:
        return hash((self.scope, self.stream, tuple(self.positions.items())))

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only view of a dictionary cannot be pickled.
        return StreamCut, (self.scope, self.stream, dict(self.positions))

    def __str__(self) -> str:
        positions = ", ".join(f"{segment_label(segment)}={offset}" for segment, offset in self.positions.items())
        return f"{self.scope}/{self.stream}:{positions}"

    def _repr_html_(self) -> str:
        rows = [(segment_label(n), n, offset) for n, offset in self.positions.items()]
        return html_table(f"cut of {self.scope}/{self.stream}", ("segment", "segment id", "offset"), rows)

    def precedes(self, other: StreamCut) -> bool:
        """Whether no segment that both cuts have is further in this cut than in the other.

        True for equal cuts, and for cuts without a common segment. InvalidStreamCut if the cuts are of different
        streams or one is UNBOUNDED, which has no positions.
        """
        if UNBOUNDED in (self, other):
            raise InvalidStreamCut("UNBOUNDED has no positions to compare: use the head or the tail cut of the stream")
        if (self.scope, self.stream) != (other.scope, other.stream):
            raise InvalidStreamCut(f"stream cuts of different streams cannot be compared: {self} and {other}")
        return all(offset <= other.positions.get(segment, offset) for segment, offset in self.positions.items())

    def as_text(self) -> str:
        """The cut as text: Base64 of a compressed list of positions. Equal cuts have equal texts."""
        segments, offsets = self.positions.keys(), self.positions.values()
        parts = [_TEXT_VERSION, f"{self.scope}/{self.stream}"]
        parts += [",".join(map(str, map(segment_number, segments))), ",".join(map(str, map(segment_epoch, segments)))]
        parts += [",".join(map(str, offsets))]
        return base64.b64encode(_compressed(":".join(parts).encode())).decode()

    @staticmethod
    def from_text(text: str) -> StreamCut:
        """Parse what `as_text` returned, or `UNBOUNDED`. Raises InvalidStreamCut for anything else."""
        if text == _UNBOUNDED_TEXT:
            return UNBOUNDED
        parts = _decompressed(text).split(":", 4)
        if len(parts) != 5 or parts[0] != _TEXT_VERSION:
            raise _not_a_cut()
        scope, slash, stream = parts[1].partition("/")
        _check_count(max(part.count(",") + 1 for part in parts[2:]))  # before they are used
        numbers, epochs, offsets = (_parsed_numbers(part) for part in parts[2:])
        if not slash or not len(numbers) == len(epochs) == len(offsets):
            raise _not_a_cut()
        try:
            segments = [segment_id(number, epoch) for number, epoch in zip(numbers, epochs, strict=True)]
        except ValueError:
            raise _not_a_cut() from None
        return _made_of(scope, stream, list(zip(segments, offsets, strict=True)))

    def to_bytes(self) -> bytes:
        """The binary form; empty for UNBOUNDED."""
        fields = FieldWriter()
        fields.utf(f"{self.scope}/{self.stream}")
        fields.compact_int(len(self.positions))
        for segment, offset in self.positions.items():
            fields.compact_long(segment)
            fields.compact_signed_long(offset)
        return with_version(1, fields.getvalue())

    @staticmethod
    def from_bytes(data: bytes) -> StreamCut:
        """Parse the binary form, in either version. Raises InvalidStreamCut for anything else."""
        if not data:
            return UNBOUNDED
        try:
            version, fields = open_version(data)
            if version not in (0, 1):
                raise InvalidStreamCut(f"stream cut of unknown version {version}: expected 0 or 1")
            scope, slash, stream = fields.utf().partition("/")
            if not slash:
                raise _not_a_cut()
            offset = fields.compact_signed_long if version == 1 else fields.compact_long
            count = fields.count(2)
            _check_count(count)
            positions = [(fields.compact_long(), offset()) for _ in range(count)]
        except InvalidData as error:
            raise InvalidStreamCut(f"Invalid bytes of a stream cut: {error}") from None
        return _made_of(scope, stream, positions)


def positions_text(cut: StreamCut, most: int = 4) -> str:
    """The first positions of a cut for people: `2.1 at 1,024, 3.1 at 0 and 5 more`."""
    positions = [f"{segment_label(number)} at {count_text(offset)}" for number, offset in cut.positions.items()]
    more = f" and {len(positions) - most} more" if len(positions) > most else ""
    return f"{', '.join(positions[:most])}{more}"


class _Unbounded(StreamCut):
    """The cut that stands for the head of a stream where a range starts, and for its tail where it ends."""

    def __init__(self) -> None:
        for field, value in (("scope", ""), ("stream", ""), ("positions", MappingProxyType({}))):
            object.__setattr__(self, field, value)

    def __reduce__(self) -> str:  # type: ignore[override]
        return "UNBOUNDED"  # pickle looks the one instance up by this name

    def __repr__(self) -> str:
        return _UNBOUNDED_TEXT

    def __str__(self) -> str:
        return _UNBOUNDED_TEXT

    def _repr_html_(self) -> str:
        return _UNBOUNDED_TEXT

    def as_text(self) -> str:
        return _UNBOUNDED_TEXT

    def to_bytes(self) -> bytes:
        return b""


UNBOUNDED: StreamCut = _Unbounded()


def _made_of(scope: str, stream: str, pairs: list[tuple[int, int]]) -> StreamCut:
    positions = dict(pairs)
    if len(positions) != len(pairs):
        raise InvalidStreamCut(
            f"The cut of {scope}/{stream} has a segment twice. (Invalid string representation of StreamCut.)"
        )
    return StreamCut(scope, stream, positions)


def _parsed_numbers(text: str) -> list[int]:
    if not text:
        return []  # the tail of a sealed stream, which the original writes but cannot read
    if not _NUMBERS.fullmatch(text):
        raise _not_a_cut()
    return [int(number) for number in text.split(",")]


def _check_count(segments: int) -> None:
    if segments > MAX_SEGMENTS:
        raise InvalidStreamCut(f"The stream cut has {segments} segments; the limit is {MAX_SEGMENTS}.")


def _not_a_cut() -> InvalidStreamCut:
    return InvalidStreamCut(
        "This is not a stream cut: pass a text that StreamCut.as_text() returned. (Invalid string representation of "
        "StreamCut.)"
    )


def _compressed(data: bytes) -> bytes:
    # Written by hand, because gzip.compress puts different system codes into the header in different Python versions.
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return _GZIP_HEADER + deflate.compress(data) + deflate.flush() + trailer


def _decompressed(text: str) -> str:
    invalid = InvalidStreamCut(
        f"{reprlib.repr(text)} is not a stream cut: pass the text of one, which StreamCut.as_text() returns and which "
        f"begins with {BEGINNING}, or UNBOUNDED. (Invalid base64 input)"
    )
    if len(text) > LONGEST_TEXT:
        raise InvalidStreamCut(f"The text of the stream cut has {len(text)} characters; the limit is {LONGEST_TEXT}.")
    inflate = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain = inflate.decompress(base64.b64decode(text, validate=True), LONGEST_PLAIN_TEXT).decode()
    except (ValueError, zlib.error):
        raise invalid from None
    if inflate.unconsumed_tail:
        raise InvalidStreamCut(f"The text of the stream cut unpacks to more than {LONGEST_PLAIN_TEXT} bytes.")
    if not inflate.eof or inflate.unused_data:
        raise invalid
    return plain
