"""Event pointers: the position of one event, in the original's text and binary forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chunkstore.metadata.serialization import FieldWriter, open_version, with_version
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.names import parse_segment_name, segment_name, validate_stored_name

_TEXT = re.compile(r"(?P<segment>.+):(?P<offset>[0-9]{1,19})-(?P<length>[0-9]{1,10})")
_VERSION = 0


@checks_parameters(but=("as_text", "to_bytes"))
@dataclass(frozen=True)
class EventPointer:
    """The position of an event: its segment, the offset of its header there, and its length with the header, in bytes.

    ValueError for names that no stream has and for numbers out of range.
    """

    scope: str
    stream: str
    segment_id: int
    offset: int
    length: int

    def __post_init__(self) -> None:
        validate_stored_name(self.scope)
        validate_stored_name(self.stream)
        if not 0 <= self.segment_id < 1 << 63:
            raise ValueError(f"an event pointer cannot have segment id {self.segment_id}")
        if not 0 <= self.offset < 1 << 63:
            raise ValueError(f"an event pointer cannot have offset {self.offset}")
        if self.length < HEADER_SIZE:
            raise ValueError(f"an event has at least {HEADER_SIZE} bytes with its header, not {self.length}")

    @property
    def segment(self) -> str:
        """The full name of the segment."""
        return segment_name(self.scope, self.stream, self.segment_id)

    def as_text(self) -> str:
        """`<segment>:<offset>-<length>`."""
        return f"{self.segment}:{self.offset}-{self.length}"

    __str__ = as_text

    @classmethod
    def from_text(cls, text: str) -> EventPointer:
        """Parse what `as_text` returned. Raises ValueError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an event pointer: expected <segment>:<offset>-<length>")
        return cls(*parse_segment_name(match["segment"]), int(match["offset"]), int(match["length"]))

    def to_bytes(self) -> bytes:
        """The binary form. ValueError for an event of 2^30 bytes or more: only the text form can name it."""
        fields = FieldWriter()
        fields.utf(self.segment)
        fields.compact_long(self.offset)
        fields.compact_int(self.length)
        return with_version(_VERSION, fields.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> EventPointer:
        """Parse what `to_bytes` returned. Raises ValueError for anything else."""
        version, fields = open_version(data)
        if version != _VERSION:
            raise ValueError(f"event pointer of unknown version {version}: expected {_VERSION}")
        return cls(*parse_segment_name(fields.utf()), fields.compact_long(), fields.compact_int())
