"""The errors of the segment layer. Each names its segment, and the offsets where there are any."""

from __future__ import annotations

from chunkstore.errors import Damaged, StorageError, StorageFull


class SegmentError(StorageError):
    """Base of all errors about one segment, which is `segment`."""

    def __init__(self, message: str, segment: str) -> None:
        super().__init__(f"segment {segment!r}: {message}")
        self.segment = segment


class StoredSegmentNotFound(SegmentError):
    """The segment does not exist, or was deleted."""

    def __init__(self, segment: str) -> None:
        super().__init__("it does not exist; create it first, or look for its name in the listing", segment)


class StoredSegmentExists(SegmentError):
    """A segment was to be created that exists."""

    def __init__(self, segment: str) -> None:
        super().__init__("it exists already; open it, or delete it first", segment)


class StoredSegmentSealed(SegmentError):
    """The segment is sealed: nothing can be added to it."""

    def __init__(self, segment: str) -> None:
        super().__init__("it is sealed, so nothing can be added; unseal it first", segment)


class StoredSegmentNotSealed(SegmentError):
    """A segment was to be merged into another before it was sealed."""

    def __init__(self, segment: str) -> None:
        super().__init__("it is not sealed; seal it before it is merged into another segment", segment)


class StoredSegmentTruncated(SegmentError):
    """A read at `offset`, but the segment begins at `start_offset` now."""

    def __init__(self, segment: str, offset: int, start_offset: int) -> None:
        super().__init__(f"offset {offset} was truncated away; it begins at {start_offset} now", segment)
        self.offset = offset
        self.start_offset = start_offset


class BadStoredOffset(SegmentError):
    """An operation at offset `given`, which is possible at `expected`, or up to there."""

    def __init__(self, segment: str, expected: int, given: int, what: str) -> None:
        super().__init__(f"{what}: offset {given} was given, {expected} was expected", segment)
        self.expected = expected
        self.given = given


class StorageNotPrimary(SegmentError):
    """An instance of `epoch` is no longer the one to change the segment: one of `owner_epoch` took over (S2)."""

    def __init__(self, segment: str, owner_epoch: int, epoch: int) -> None:
        super().__init__(f"epoch {owner_epoch} owns it, and this is epoch {epoch}; open the storage again", segment)
        self.owner_epoch = owner_epoch
        self.epoch = epoch


class SegmentStorageFull(SegmentError, StorageFull):
    """There is no room left in the storage. Nothing was added."""

    def __init__(self, segment: str, why: str) -> None:
        super().__init__(f"{why}; delete or truncate something and try again", segment)


class ConcurrentModification(SegmentError):
    """Another instance or thread changed the segment at the same time. Nothing was changed by this call."""

    def __init__(self, segment: str) -> None:
        super().__init__("it was changed concurrently, so nothing was done; read it again and retry", segment)


class ChunkInUse(SegmentError):
    """`chunk` was to be attached, but belongs to a segment already, or was named twice. Nothing was attached."""

    def __init__(self, segment: str, chunk: str) -> None:
        super().__init__(f"chunk {chunk!r} is in use already, or was given twice; nothing was attached", segment)
        self.chunk = chunk


class SegmentUnsupported(SegmentError):
    """This cannot be done with such a segment: a system segment, or one that was truncated."""


class SegmentDamaged(Damaged, SegmentError):
    """Storage or metadata lack what the metadata says is there."""
