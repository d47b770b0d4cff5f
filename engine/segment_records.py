"""The entry of a segment in the container's metadata table, in bytes (Pravega: MetadataStore.SegmentInfo).

The first revision is the original's: id, name, length, start offset, sealed, core attributes. A revision of our own
holds what the original keeps elsewhere: extended attributes, and what tier 2 knows of the segment.
"""

from __future__ import annotations

import immutables
import msgpack

from chunkstore.serialization import FieldReader, FieldWriter, InvalidData, read_revisions, with_version
from engine.errors import DataCorruption
from engine.segments import Extents, Segment, is_core

_VERSION = 0


def encode_segment(segment: Segment) -> bytes:
    """The entry of a segment whose content is in tier 2 as far as `storage_length`."""
    fields = FieldWriter()
    fields.long(segment.id)
    fields.utf(segment.name)
    fields.long(segment.length)
    fields.long(segment.start_offset)
    fields.boolean(segment.sealed)
    core = sorted((key, value) for key, value in segment.attributes.items() if is_core(key))
    fields.compact_int(len(core))
    for key, value in core:
        fields.raw(key)
        fields.long(value)
    extended = {key: value for key, value in segment.attributes.items() if not is_core(key)}
    ours = msgpack.packb(
        [
            segment.modified,
            segment.storage_length,
            segment.storage,
            segment.stored_start,
            segment.stored_sealed,
            segment.spilled,
            extended,
            segment.parent,
        ]
    )
    return with_version(_VERSION, fields.getvalue(), ours)


def decode_segment(data: bytes, sequence: int) -> Segment:
    """The segment as it becomes active by operation `sequence`. Raises DataCorruption."""
    try:
        _, revisions = read_revisions(FieldReader(data))
        return _segment(revisions, sequence)
    except (InvalidData, ValueError, KeyError) as error:
        raise DataCorruption(
            f"an entry of the metadata table cannot be read: {error}; restore it from a backup"
        ) from error


def _segment(revisions: dict[int, FieldReader], sequence: int) -> Segment:
    fields = revisions[0]
    number, name, length, start = fields.long(), fields.utf(), fields.long(), fields.long()
    sealed = fields.boolean()
    attributes = {fields.take(16): fields.long() for _ in range(fields.compact_int())}
    modified, storage_length, storage, stored_start, stored_sealed, spilled, extended, parent = msgpack.unpackb(
        revisions[1].take(revisions[1].rest), strict_map_key=False
    )
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
    )
