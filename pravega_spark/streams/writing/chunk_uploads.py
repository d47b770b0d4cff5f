"""Uploads of chunks in the background, while the caller collects more data.

Threads write each chunk once, as a whole, with checksums, under a unique name (S2). The caller gets their extents in
order, and attaches them (S3). Chunks that are never attached are garbage; their names are known here, so a failed
caller can discard them at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from chunkstore import Store
from chunkstore.chunk_names import new_chunk_name
from engine.state.segments import Extent
from engine.storage.chunk_writer import write_chunk

Buffers = Sequence[bytes | memoryview]
Label = TypeVar("Label")


class ChunkUploads(Generic[Label]):
    """Uploads into the chunk store, at most `threads` in parallel. For one thread.

    Each chunk has a label, for the caller. names: of all chunks whose upload began.
    """

    def __init__(self, store: Store, threads: int, name: str) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(threads, name)
        self._sent: deque[tuple[Label, Future[list[Extent]]]] = deque()
        self.names: list[str] = []

    @property
    def pending(self) -> int:
        """Number of chunks that were sent, and not yet returned by `written`."""
        return len(self._sent)

    def send(self, label: Label, segment: str, groups: Sequence[Buffers], epoch: int = 0, offset: int = 0) -> None:
        """Begin to upload a chunk of a segment. The buffers must not change until it is uploaded.

        epoch, offset: part of its name. Raises StorageFull.
        """
        self._store.check_room(sum(len(buffer) for group in groups for buffer in group))
        self.names.append(new_chunk_name(segment, epoch, offset))
        self._sent.append((label, self._pool.submit(write_chunk, self._store, self.names[-1], groups)))

    def written(self, most: int | None = None) -> Iterator[tuple[Label, list[Extent]]]:
        """The uploaded chunks, in order: label, and an extent for each group.

        Waits until at most `most` are pending; None: does not wait. Raises the errors of the uploads.
        """
        while self._sent and (self._sent[0][1].done() or (most is not None and len(self._sent) > most)):
            label, extents = self._sent.popleft()
            yield label, extents.result()

    def close(self) -> None:
        """Cancel pending uploads, and wait for those that are running."""
        self._pool.shutdown(cancel_futures=True)
        self._sent.clear()
