"""What a container knows of its segments: the values of its table `metadata_<container>` (Pravega: MetadataStore).

They hold a segment's core attributes only; the rest is in its attribute index. An attribute's id is a UUID.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from chunkstore.decoding import InvalidData, decoding
from chunkstore.metadata.serialization import FieldReader, check_version, open_version

_CORE = 1 << 63
_TABLE = 1 << 20  # where the attributes of table segments begin


def core_attribute(number: int) -> uuid.UUID:
    """The id of one of Pravega's own attributes."""
    return uuid.UUID(int=_CORE << 64 | number)


SEGMENT_TYPE = core_attribute(9)
INDEX_OFFSET = core_attribute(_TABLE)

_IS_TABLE = 0x01
_IS_FIXED = 0x05


class SegmentInfo(NamedTuple):
    """A segment as its container knows it: offsets in bytes, and the core attributes."""

    name: str
    start_offset: int
    length: int
    sealed: bool
    attributes: dict[uuid.UUID, int]

    @property
    def is_table(self) -> bool:
        """Whether it is a table segment. Servers before 0.10 say so by the attributes of tables only."""
        return bool(self.attributes.get(SEGMENT_TYPE, 0) & _IS_TABLE) or INDEX_OFFSET in self.attributes

    @property
    def has_fixed_keys(self) -> bool:
        """Whether it is a table whose keys have one length, by which they are indexed themselves."""
        return self.attributes.get(SEGMENT_TYPE, 0) & _IS_FIXED == _IS_FIXED


def decode_info(data: bytes) -> SegmentInfo:
    """The value of a segment. Raises InvalidData."""
    with decoding():
        version, fields = open_version(data)
        check_version(version, 0, "what the container knows of a segment")
        fields.long()  # the segment's number in the container that wrote it
        name, length, start, sealed = fields.name(), fields.long(), fields.long(), fields.boolean()
        attributes = dict(_attribute(fields) for _ in range(fields.count(24)))
        if not 0 <= start <= length:
            raise InvalidData(f"it says that segment {name!r} begins at {start} and ends at {length}")
        return SegmentInfo(name, start, length, sealed, attributes)


def _attribute(fields: FieldReader) -> tuple[uuid.UUID, int]:
    return uuid.UUID(bytes=fields.take(16)), fields.long()
