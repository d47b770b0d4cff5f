"""The entry of a segment in the container's metadata table, in bytes (Pravega: MetadataStore.SegmentInfo).

The first revision is Pravega's: id, name, length, start offset, sealed, core attributes. A second revision, which
Pravega does not have, holds extended attributes and the segment's properties in LTS. Later ones are kept (W19).
"""

from __future__ import annotations

import immutables
import msgpack

from chunkstore.decoding import Natural, check_format, reader, unpack, validator
from chunkstore.metadata.serialization import (
    FieldReader,
    FieldWriter,
    check_version,
    later_revisions,
    read_revisions,
    with_version,
)
from engine.errors import understanding
from engine.state.operations import AttributeId
from engine.state.segments import Extents, Segment, is_core

_VERSION = 0
_FORMAT = 1
"""The format of the second revision."""


def encode_segment(segment: Segment) -> bytes:
    """The entry of a segment whose content up to `storage_length` is in LTS. Raises InvalidData for a value that could
    not be read back (W14)."""
    attributes = _JUDGED_ATTRIBUTES(segment.attributes)
    fields = FieldWriter()
    fields.long(segment.id)
    fields.name(segment.name)
    fields.long(segment.length)
    fields.long(segment.start_offset)
    fields.boolean(segment.sealed)
    core = sorted((key, value) for key, value in attributes.items() if is_core(key))
    fields.compact_int(len(core))
    for key, value in core:
        fields.raw(key)
        fields.long(value)
    extended = {key: value for key, value in attributes.items() if not is_core(key)}
    ours = _JUDGED_OURS(
        (
            segment.modified,
            segment.storage_length,
            segment.storage,
            segment.stored_start,
            segment.stored_sealed,
            segment.spilled,
            extended,
            segment.parent,
        )
    )
    return with_version(_VERSION, fields.getvalue(), msgpack.packb([_FORMAT, *ours]), later=segment.later)


def decode_segment(data: bytes, sequence: int, name: str) -> Segment:
    """The segment `name`, as operation `sequence` makes it active. Raises DataCorruption."""
    with understanding(f"segment {name!r}: its entry in the metadata table", "Restore it from a backup"):
        version, revisions = read_revisions(FieldReader(data))
        check_version(version, _VERSION, "it")
        return _segment(revisions, sequence)


_Ours = tuple[int, Natural, str, Natural, bool, bool, dict[AttributeId, int], str]
_OURS, _JUDGED_OURS = reader(_Ours), validator(_Ours)
_JUDGED_ATTRIBUTES = validator(dict[AttributeId, int])


def _segment(revisions: dict[int, FieldReader], sequence: int) -> Segment:
    fields = revisions[0]
    number, name, length, start = fields.long(), fields.name(), fields.long(), fields.long()
    sealed = fields.boolean()
    attributes = {fields.take(16): fields.long() for _ in range(fields.count(24))}
    number_of_format, *ours = unpack(revisions[1].take(revisions[1].rest))
    check_format(number_of_format, _FORMAT)
    modified, storage_length, storage, stored_start, stored_sealed, spilled, extended, parent = _OURS(ours)
    return Segment(
        name,
        number,
        start,
        length,
        sealed,
        modified,
        0,
        immutables.Map(attributes | extended),
        Extents(),
        storage_length,
        storage,
        stored_start,
        stored_sealed,
        touched=sequence,
        saved=sequence,
        spilled=spilled,
        parent=parent,
        later=later_revisions(revisions, 2),
    )
