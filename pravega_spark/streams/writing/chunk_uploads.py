"""Chunks that a program or a task uploads while it collects what comes next.

Threads write them, each once and whole, with checksums, under a name of its own (S2); the caller gets their extents in
the order in which they were sent, and attaches them (S3). What is never attached is garbage: the names of all chunks
that were begun are known here, so that they can be given up at once after a failure.
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
    """Uploads into the store of the chunks, at most `threads` at a time. For one thread.

    Each chunk has a label, by which the caller knows it again. names: of the chunks that were begun.
    """

    def __init__(self, store: Store, threads: int, name: str) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(threads, name)
        self._sent: deque[tuple[Label, Future[list[Extent]]]] = deque()
        self.names: list[str] = []

    @property
    def pending(self) -> int:
        """How many chunks were sent, and not yet returned by `written`."""
        return len(self._sent)

    def send(self, label: Label, segment: str, groups: Sequence[Buffers], epoch: int = 0, offset: int = 0) -> None:
        """Begin to write a chunk of a segment, of all groups of buffers, which must not change until it is written.

        epoch, offset: what its name says of where it comes from.
        """
        self.names.append(new_chunk_name(segment, epoch, offset))
        self._sent.append((label, self._pool.submit(write_chunk, self._store, self.names[-1], groups)))

    def written(self, most: int | None = None) -> Iterator[tuple[Label, list[Extent]]]:
        """The chunks that are written, in the order in which they were sent: label, and an extent for each group.

        Waits until no more than `most` are pending; None: does not wait. Raises what writing a chunk raised.
        """
        while self._sent and (self._sent[0][1].done() or (most is not None and len(self._sent) > most)):
            label, extents = self._sent.popleft()
            yield label, extents.result()

    def close(self) -> None:
        """Forget the chunks that are pending, and wait for those that are being written."""
        self._pool.shutdown(cancel_futures=True)
        self._sent.clear()
