"""A stream by name that can be changed: begins generations, and commits changes of its record.

Transactions and uploads need no more of a stream than this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import BadKeyVersion, OutcomeUnknown
from engine.root import Root
from engine.state.operations import DiscardChunks, Operation
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_view import StreamView
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry

if TYPE_CHECKING:
    from engine.containers.container import Container

_SAFE = "Repeating the call is safe"


class WritableStream(StreamView):
    """A stream by name, whose record can be changed."""

    def __init__(self, root: Root, scope: str, name: str, suggesting: bool = False) -> None:
        super().__init__(root, scope, name, suggesting)
        self._begun: str | None = None  # the last generation of the container that it has begun

    @property
    def container(self) -> Container:
        """The container that holds all of the stream."""
        return self.root.container(self.number)

    def begin_generation(self) -> None:
        """Begin a new epoch if its container got a new log since its segments were opened (P4).

        Called before events are written; it costs one append in a generation. If the stream is sealed or does not
        exist, nothing happens: the write itself raises the error.
        """
        generation = self.container.generation
        if self._begun == generation:
            return
        retry = OutcomeRetry(self.container, f"stream {self.key}: it is unknown whether its new epoch began", _SAFE)
        while True:
            try:
                self._commit_change(lambda found: changes.begin_generation(found).committed(self.key), refresh=False)
                self._begun = generation
                return
            except StreamNotFound:
                return
            except OutcomeUnknown as error:
                retry.wait_or_raise(error)

    def _commit_change(self, change: Callable[[Snapshot], list[Operation]], refresh: bool = True) -> None:
        """Commit a change of the record, and retry if another process changed it."""
        while True:
            with suppress(BadKeyVersion):
                operations = self.query(change, refresh)
                if operations:
                    self.container.commit(operations)
                return

    def discard(self, chunks: Sequence[str]) -> None:
        """Discard chunks whose append failed, or may have failed (G1)."""
        self.container.commit([DiscardChunks(tuple(chunks))])
