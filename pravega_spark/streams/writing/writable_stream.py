"""A stream by name, as far as it is changed: the generation of its container, and changes of its record.

What is written aside and comes into the stream later (transactions, uploads) needs no more of a stream than this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import BadKeyVersion, OutcomeUnknown
from engine.root import Root
from engine.state.operations import Discard, Operation
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_view import StreamView
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry

if TYPE_CHECKING:
    from engine.containers.container import Container

_SAFE = "Repeating the call is safe"


class WritableStream(StreamView):
    """A stream by name whose container's generation can be begun, and whose record can be changed."""

    def __init__(self, root: Root, scope: str, name: str, suggesting: bool = False) -> None:
        super().__init__(root, scope, name, suggesting)
        self._begun: str | None = None  # the generation of the container that it has begun

    @property
    def container(self) -> Container:
        """The container that holds all of the stream."""
        return self.root.container(self.number)

    def begin_generation(self) -> None:
        """Let the stream have a new epoch, if its container's log was begun anew since its segments were opened (P4).

        Called before events are written to it; it costs an append once in a generation. What the stream lacks, as it is
        sealed or does not exist, is left for the write itself to find.
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
        """Carry out a change of the record; when somebody else changed it meanwhile, again on what it is then."""
        while True:
            with suppress(BadKeyVersion):
                operations = self.query(change, refresh)
                if operations:
                    self.container.commit(operations)
                return

    def discard(self, chunks: Sequence[str]) -> None:
        """Give up chunks that were written for an append that did not come about, or may not have (G1)."""
        self.container.commit([Discard(tuple(chunks))])
