"""State that processes share by the updates that they write to one stream (Pravega: StateSynchronizer).

The stream begins with an initial update, and `compact` writes another one, at which new readers begin. The stored form
is that of the original (UpdateOrInitSerializer): `1` and an initial update, or `2` and updates with their lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from engine.ownership import ProcessLock
from pravega_spark.client.revisioned_stream import RevisionedStreamClient, Serializer
from pravega_spark.errors import CorruptedState, NotInitialized, TruncatedData
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.revisions import Revision

_NUMBER = struct.Struct(">i")
_INITIAL, _UPDATES = 1, 2


S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")


@runtime_checkable
class InitialUpdate(Protocol[S_co]):
    """Makes a state that depends on nothing before it."""

    def create(self, scoped_stream_name: str, revision: Revision) -> S_co:
        """The state, a value that nothing changes. revision: the place after this update. Raises nothing, as every
        process makes it."""


@runtime_checkable
class Update(Protocol[S]):
    """Makes a state of the one before it."""

    def apply_to(self, old_state: S, new_revision: Revision) -> S:
        """The state after the update; `old_state` stays as it is. new_revision: the place after this update. Raises
        nothing, as every process applies it."""


class _Initial:
    """An initial update in the stream."""

    def __init__(self, update: Any) -> None:
        self.update = update


_Written: TypeAlias = "_Initial | Sequence[Any]"
"""What one event holds: an initial update, or updates."""


@checks_parameters(but=("__init__",))
class StateSynchronizer(Generic[S]):
    """State that several processes change, each by updates of what it knows.
    `StreamManager.create_state_synchronizer` opens it. Thread-safe.

    The state in memory is as of the last call that fetched updates. If a write raises OutcomeUnknown, its updates may
    be in the stream or not: `fetch_updates`, and look at the state. All methods that read or write raise the errors of
    RevisionedStreamClient, and CorruptedState for what is no update.
    """

    def __init__(
        self, client: RevisionedStreamClient[bytes], name: str, update: Serializer[Any], initial: Serializer[Any]
    ) -> None:
        """name: scope/stream. update, initial: the serializers of updates and of initial updates."""
        self._client = client
        self._name = name
        self._update, self._initial = update, initial
        self._known: tuple[S, Revision] | None = None  # the state, and the place up to which it has all updates
        self._applying = ProcessLock(recursive=True)

    def __repr__(self) -> str:
        return f"StateSynchronizer({self._name!r})"

    def close(self) -> None:
        """Close the synchronizer. The stream and its state stay as they are."""
        self._client.close()

    def __enter__(self) -> StateSynchronizer[S]:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the state ---------------------------------------------------------------------------------------------

    def get_state(self) -> S | None:
        """The state in memory, without a request; None before one was initialized or fetched."""
        known = self._known
        return known[0] if known is not None else None

    def fetch_updates(self) -> None:
        """Apply all updates that were written since, by any process.

        If the updates after the state in memory were truncated, the state is made again from the last compaction.
        """
        known = self._known
        try:
            for revision, written in self._read(known[1] if known is not None else self._start()):
                self._apply(revision, written)
        except TruncatedData:
            self._begin_again()

    def _start(self) -> Revision:
        """Where a process without a state begins: at the mark of the last compaction, or at the head."""
        return self._client.get_mark() or self._client.fetch_oldest_revision()

    def _begin_again(self) -> None:
        """Make the state from the first initial update after the mark, then apply what follows it."""
        while True:
            try:
                last = self._make_initial()
                break
            except TruncatedData:  # another process has compacted further meanwhile
                continue
        if last is not None:
            raise CorruptedState(self._name, last.as_text(), "no initial state comes after the place of truncation")
        self.fetch_updates()

    def _make_initial(self) -> Revision | None:
        """Make the state from the first initial update after the mark. The last revision that was read if there is
        none."""
        start = last = self._start()
        for last, written in self._read(start):
            if isinstance(written, _Initial):
                self._apply(last, written)
                return None
        return last

    def _read(self, start: Revision) -> Iterator[tuple[Revision, _Written]]:
        for revision, data in self._client.read_from(start):
            yield revision, self._decoded(revision, data)

    def _apply(self, revision: Revision, written: _Written) -> None:
        """Apply what an event holds, as far as the state in memory is older. The lock keeps two threads from applying
        an update twice; readers of the state do not wait for it."""
        with self._applying.mine:
            known = self._known
            if isinstance(written, _Initial):
                if known is None or known[1] < revision:
                    self._known = written.update.create(self._name, revision), revision
                return
            for index, update in enumerate(written):
                each = revision._replace(event_at_offset=index)
                if known is not None and known[1] < each:
                    self._known = known = update.apply_to(known[0], each), each
            if known is not None and known[1] < revision:  # an event without updates
                self._known = known[0], revision

    # --- changes -----------------------------------------------------------------------------------------------

    def initialize(self, initial: InitialUpdate[S]) -> None:
        """Write the initial state, unless there is one. Then the state in memory is that of the stream."""
        beginning = self._client.fetch_oldest_revision()._replace(offset=0)
        revision = self._client.write_conditionally(beginning, self._encoded(_Initial(initial)))
        if revision is None:
            self._begin_again()
        else:
            self._apply(revision, _Initial(initial))

    def update_state(self, update_generator: Callable[[S, list[Update[S]]], R]) -> R:
        """Change the state: the generator gets the state and a list, to which it adds updates; they are written
        together, if no other process has changed the state meanwhile. Otherwise the generator is called again, with the
        new state and an empty list. If it adds nothing, nothing is written.

        Returns what the generator returned last. Raises NotInitialized, and what the generator raises.
        """

        def generated(state: S, at: Revision) -> tuple[R, Sequence[Update[S]] | None]:
            updates: list[Update[S]] = []
            result = update_generator(state, updates)
            return result, updates or None

        return self._write_conditionally(generated)

    def update_state_unconditionally(self, update: Update[S] | Iterable[Update[S]]) -> None:
        """Write an update, or several together, whatever the state is. `fetch_updates` applies them."""
        updates = [update] if isinstance(update, Update) else list(update)
        if updates:
            self._client.write_unconditionally(self._encoded(updates))

    def compact(self, compactor: Callable[[S], InitialUpdate[S] | None]) -> None:
        """Write the state as an initial update, at which new readers begin, and truncate the stream at the compaction
        before. The compactor gets the state; it returns an initial update that makes exactly this state, or None if
        nothing is to be done. It is called again if another process has changed the state meanwhile.

        Raises NotInitialized.
        """

        def generated(state: S, at: Revision) -> tuple[Revision | None, _Initial | None]:
            initial = compactor(state)
            return (None, None) if initial is None else (at, _Initial(initial))

        compacted = self._write_conditionally(generated)
        if compacted is None:
            return
        mark, new = self._client.get_mark(), compacted._replace(event_at_offset=0)
        if mark is None or mark < new:
            self._client.compare_and_set_mark(mark, new)
        if mark is not None:
            self._client.truncate_to_revision(mark)

    def bytes_written_since_compaction(self) -> int:
        """The bytes that were written from the last compaction to the state in memory, to decide when to compact."""
        mark, known = self._client.get_mark(), self._known
        if known is None:
            return 0
        before = self._client.bytes_before(mark) if mark is not None else 0
        return max(0, self._client.bytes_before(known[1]) - before)

    def _write_conditionally(self, generate: Callable[[S, Revision], tuple[R, _Written | None]]) -> R:
        """Write what is generated for the state and its revision, once nobody else has written meanwhile."""
        while True:
            if self._known is None:
                self.fetch_updates()
            known = self._known
            if known is None:
                raise NotInitialized(self._name)
            result, written = generate(*known)
            if written is None:
                return result
            revision = self._client.write_conditionally(known[1], self._encoded(written))
            if revision is None:
                self.fetch_updates()
                continue
            if not isinstance(written, _Initial):
                self._apply(revision, written)
            return result

    # --- the stored form ---------------------------------------------------------------------------------------

    def _encoded(self, written: _Written) -> bytes:
        if isinstance(written, _Initial):
            return _NUMBER.pack(_INITIAL) + self._initial.serialize(written.update)
        each = [self._update.serialize(update) for update in written]
        return _NUMBER.pack(_UPDATES) + b"".join(_NUMBER.pack(len(data)) + data for data in each)

    def _decoded(self, revision: Revision, data: bytes) -> _Written:
        kind = int.from_bytes(data[:4], "big") if len(data) >= 4 else None
        if kind == _INITIAL:
            return _Initial(self._initial.deserialize(data[4:]))
        if kind == _UPDATES:
            return [self._update.deserialize(each) for each in self._split(revision, data)]
        raise CorruptedState(self._name, revision.as_text(), f"it is no update: its type is {kind}")

    def _split(self, revision: Revision, data: bytes) -> Iterator[bytes]:
        """The updates of an event."""
        at = 4
        while at < len(data):
            length = _NUMBER.unpack_from(data, at)[0] if at + 4 <= len(data) else -1
            start, at = at + 4, at + 4 + length
            if length < 0 or at > len(data):
                raise CorruptedState(self._name, revision.as_text(), "it ends within an update")
            yield data[start:at]
