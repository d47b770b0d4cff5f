"""Attachments: batches of an event writer that are uploaded as chunks, which one append then attaches (S3).

So large data is written once, not to a frame of the log first and to LTS by a flush later. A segment with much of a
batch gets a chunk of its own, which a flush adopts unchanged; the other segments share a chunk. Chunks that were not
attached are discarded here (G1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from chunkstore import StorageError
from engine.errors import EngineError
from engine.state.attach_fence import creation_time
from engine.state.segments import Extent
from pravega_spark.client.batches import Batch, now_ms
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads
from pravega_spark.streams.writing.event_order import Interleaving
from pravega_spark.streams.writing.writes import SegmentAppend

OWN_CHUNK_BYTES = 1 << 20
"""With this much of a batch a segment gets a chunk of its own. A shared chunk is copied by the next flush."""

THREADS = 3
MAX_UPLOADING = 2
"""Number of batches that are uploading while the next one is collected."""


class _Share(NamedTuple):
    """A batch's events of one segment. number: of the segment in the routes."""

    number: int
    pieces: list[memoryview]
    lengths: np.ndarray

    def size(self) -> int:
        """Bytes of the framed events."""
        return sum(map(len, self.pieces))


class Attachment:
    """A batch that is uploading, or uploaded, as chunks.

    chunks: their names. missing: number of segments whose events are not uploaded yet. parts: of the append.
    """

    def __init__(self, batch: Batch, shares: int, created_at: int) -> None:
        self.batch = batch
        self.missing = shares
        self.created_at = created_at
        self.chunks: list[str] = []
        self.parts: list[SegmentAppend] = []

    def add_uploaded(self, shares: Iterable[_Share], extents: Iterable[Extent]) -> None:
        """One of its chunks, which holds these shares, is uploaded."""
        segments, now = self.batch.routes.routing.segments, now_ms()
        for share, extent in zip(shares, extents, strict=True):
            records = sparse_records(share.lengths, now)
            segment = segments[share.number].id
            self.parts.append(SegmentAppend(segment, (extent,), records, len(share.lengths), self.created_at))
            self.missing -= 1


def combined(attachments: Sequence[Attachment]) -> Interleaving | None:
    """The interleaving of all events of consecutive batches; None if the stream has one segment."""
    interleavings = [found for each in attachments if (found := each.batch.interleaving()) is not None]
    return Interleaving.concatenated(interleavings) if interleavings else None


class Attachments:
    """The batches of one writer that are uploaded, in order. For one thread at a time."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._uploads: ChunkUploads[tuple[Attachment, list[_Share]]] | None = None
        self._uploading: deque[Attachment] = deque()

    def __len__(self) -> int:
        return len(self._uploading)

    @staticmethod
    def possible(stream: Stream) -> bool:
        """Whether chunks are in the same storage as the log, so that an append may wait for uploads."""
        stores = stream.container.stores
        return stores.log is stores.chunks

    def begin(self, batch: Batch) -> None:
        """Begin to upload a batch."""
        container = self._stream.container
        if self._uploads is None:
            self._uploads = ChunkUploads(container.stores.chunks, THREADS, "chunks")
        shares = [_Share(*share) for share in batch.pieces()]
        own = [[share] for share in shares if share.size() >= OWN_CHUNK_BYTES]
        small = [share for share in shares if share.size() < OWN_CHUNK_BYTES]
        attachment = Attachment(batch, len(shares), creation_time(container.storage_clock.now()))
        self._uploading.append(attachment)
        segments = batch.routes.routing.segments
        for together in [*own, *([small] if small else [])]:
            name = segment_name(self._stream.scope, self._stream.name, segments[together[0].number].id)
            self._uploads.send((attachment, together), name, [share.pieces for share in together])
            attachment.chunks.append(self._uploads.names.pop())

    def take_uploaded(self, most: int) -> list[Attachment]:
        """Wait until at most `most` batches are uploading, then remove and return the uploaded ones, in order.

        Raises StorageError.
        """
        if self._uploads is None or len(self._uploading) <= most:
            return []
        later = sum(len(each.chunks) for each in list(self._uploading)[len(self._uploading) - most :])
        for (attachment, shares), extents in self._uploads.written(later):
            attachment.add_uploaded(shares, extents)
        done: list[Attachment] = []
        while self._uploading and not self._uploading[0].missing:
            done.append(self._uploading.popleft())
        return done

    def delete(self, rejected: Iterable[Attachment]) -> None:
        """Delete the chunks of batches whose append was rejected: no segment can ever contain them."""
        with suppress(StorageError):
            self._stream.container.stores.chunks.delete([name for each in rejected for name in each.chunks])

    def settle(self, rejected: Iterable[Attachment]) -> None:
        """Discard the chunks of batches whose append was rejected, unless an earlier try has attached them."""
        with suppress(StorageError, EngineError):  # garbage collection will find them
            self._stream.discard([name for each in rejected for name in each.chunks])

    def discard(self, pending: Iterable[Attachment]) -> None:
        """Discard all chunks that are uploading, and those of batches whose append may have been committed or not."""
        self.close()
        chunks = [name for each in [*pending, *self._uploading] for name in each.chunks]
        self._uploading.clear()
        if chunks:
            with suppress(StorageError, EngineError):  # garbage collection will find them
                self._stream.discard(chunks)

    def close(self) -> None:
        """Wait for the uploads in flight."""
        if self._uploads is not None:
            self._uploads.close()
