"""Attachments: batches of an event writer that go to chunks first, which one append then attaches (S3).

Much data is written once so: not to a frame of the log, and again by the flush that takes it from there. A segment with
much of a batch gets a chunk of its own, which a flush takes over as it is; the others share one. Who made a chunk that
nothing can name gives it up here (G1).
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
from pravega_spark.client.batches import Batch, mix_of, now_ms
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads
from pravega_spark.streams.writing.event_order import Mix
from pravega_spark.streams.writing.writes import SegmentAppend

OWN_CHUNK_BYTES = 1 << 20
"""With this much of a batch a segment gets a chunk of its own; what outputs share is copied by the next flush."""

THREADS = 3
AHEAD = 2
"""How many batches are being written while the next one is collected."""


class _Share(NamedTuple):
    """What a batch has for one segment, the one at `place` in its routes."""

    place: int
    pieces: list[memoryview]
    lengths: np.ndarray

    def size(self) -> int:
        """Bytes of the framed events."""
        return sum(map(len, self.pieces))


class Attachment:
    """A batch whose bytes are in chunks, or on their way there.

    chunks: their names. missing: shares of segments that are not written yet. parts: what is to be appended.
    """

    def __init__(self, batch: Batch, shares: int, created_at: int) -> None:
        self.batch = batch
        self.missing = shares
        self.created_at = created_at
        self.chunks: list[str] = []
        self.parts: list[SegmentAppend] = []

    def take(self, shares: Iterable[_Share], extents: Iterable[Extent]) -> None:
        """One of its chunks is written, and holds these shares."""
        segments, now = self.batch.routes.routing.segments, now_ms()
        for share, extent in zip(shares, extents, strict=True):
            records = sparse_records(share.lengths, now)
            number = segments[share.place].id
            self.parts.append(SegmentAppend(number, (extent,), records, len(share.lengths), self.created_at))
            self.missing -= 1


def mix_of_all(attachments: Sequence[Attachment]) -> Mix | None:
    """How the events of batches were mixed that come one behind the other; None if they have one segment."""
    mixes = [mix for each in attachments if (mix := mix_of(each.batch)) is not None]
    return Mix.together(mixes) if mixes else None


class Attachments:
    """The batches of one writer that go to chunks, in the order in which they were begun. For one thread at a time."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._uploads: ChunkUploads[tuple[Attachment, list[_Share]]] | None = None
        self._begun: deque[Attachment] = deque()

    def __len__(self) -> int:
        return len(self._begun)

    @staticmethod
    def possible(stream: Stream) -> bool:
        """Whether an append may wait for chunks: their storage is the log's, and not a slower one behind it."""
        stores = stream.container.stores
        return stores.log is stores.chunks

    def begin(self, batch: Batch) -> None:
        """Begin to write a batch, which must not change any more, to chunks."""
        container = self._stream.container
        if self._uploads is None:
            self._uploads = ChunkUploads(container.stores.chunks, THREADS, "chunks")
        shares = [_Share(*share) for share in batch.pieces()]
        own = [[share] for share in shares if share.size() >= OWN_CHUNK_BYTES]
        small = [share for share in shares if share.size() < OWN_CHUNK_BYTES]
        attachment = Attachment(batch, len(shares), creation_time(container.storage_clock.now()))
        self._begun.append(attachment)
        segments = batch.routes.routing.segments
        for together in [*own, *([small] if small else [])]:
            name = segment_name(self._stream.scope, self._stream.name, segments[together[0].place].id)
            self._uploads.send((attachment, together), name, [share.pieces for share in together])
            attachment.chunks.append(self._uploads.names.pop())

    def written(self, most: int) -> list[Attachment]:
        """Those that are written, in order, once no more than `most` are not. They are no longer looked after here.

        Raises StorageError.
        """
        if self._uploads is None or len(self._begun) <= most:
            return []
        later = sum(len(each.chunks) for each in list(self._begun)[len(self._begun) - most :])
        for (attachment, shares), extents in self._uploads.written(later):
            attachment.take(shares, extents)
        done: list[Attachment] = []
        while self._begun and not self._begun[0].missing:
            done.append(self._begun.popleft())
        return done

    def drop(self, refused: Iterable[Attachment]) -> None:
        """Delete the chunks of batches whose append was refused: nothing names them, nor will."""
        with suppress(StorageError):
            self._stream.container.stores.chunks.delete([name for each in refused for name in each.chunks])

    def give_up(self, doubtful: Iterable[Attachment]) -> None:
        """Give up all chunks that are begun, and those of batches that may have been appended or not."""
        self.close()
        chunks = [name for each in [*doubtful, *self._begun] for name in each.chunks]
        self._begun.clear()
        if chunks:
            with suppress(StorageError, EngineError):  # then a clean-up finds them
                self._stream.discard(chunks)

    def close(self) -> None:
        """Wait for what is being written."""
        if self._uploads is not None:
            self._uploads.close()
