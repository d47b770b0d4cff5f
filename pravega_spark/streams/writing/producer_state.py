"""Producer state: the last write of each idempotent producer of a stream. A replayed write changes nothing (X3).

The sequence of a producer's last write and its digest are three attributes of the stream's segment `#writers`. The
append that carries the events updates them, without reading them first. The ids of a producer's attributes are
neighbours, so one look-up in LTS finds all of them.

A fourth attribute is the epoch with which the stream's generation began in which the last write was made (P4). It is
absent in a stream that was created in its present generation. In a later generation this attribute rejects a producer's
first write before its sequence is compared, because a restore may have lost writes of the producer.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from chunkstore.decoding import encoded
from engine.errors import BadAttributeUpdate, SegmentNotFound
from engine.state.operations import AttributeUpdate, Operation, UpdateAttributes, UpdateKind
from engine.state.segments import NULL_VALUE
from pravega_spark.errors import ReplayChanged, WritesLost
from pravega_spark.streams.model.policies import OnChangedReplay
from pravega_spark.streams.writing.digests import Digest

if TYPE_CHECKING:
    from pravega_spark.streams.reading.location import StreamLocation
    from pravega_spark.streams.reading.readable import ReadableContainer

logger = logging.getLogger(__name__)

_NUMBER, _SIZE, _REST, _GENERATION = range(4)


class ProducerWrite(NamedTuple):
    """One write of an idempotent producer.

    sequence: grows with each write of the producer. digest: of the events; None: their number and size only.
    on_changed_replay: what to do if the sequence was committed before, and possibly with other data. accept_lost:
    whether the producer continues although a restore or a recovery lost writes of it.
    """

    producer: str
    sequence: int
    digest: Digest | None = None
    on_changed_replay: OnChangedReplay = "skip"
    accept_lost: bool = False

    def __str__(self) -> str:
        return f"write {self.sequence} of {self.producer!r}"


class ProducerState(NamedTuple):
    """A producer's last write: sequence, digest, and the generation it was made in (NULL_VALUE: the first one)."""

    sequence: int
    digest: Digest
    generation: int = NULL_VALUE


def writer_attribute(name: str, which: int = _NUMBER) -> bytes:
    """The attribute for a producer's last sequence, one of the two of its digest, or its generation.

    Unlike core attributes it begins with a zero bit.
    """
    digest = bytearray(hashlib.sha256(encoded(name, "writer")).digest()[:16])
    digest[0] &= 0x7F
    digest[-1] = digest[-1] & 0xFC | which
    return bytes(digest)


def has_producers(container: ReadableContainer, segment: str) -> bool:
    """Whether there is state of any producer, as this process knows it."""
    try:
        return any(not attribute[0] & 0x80 for attribute in container.known_attributes(segment))
    except SegmentNotFound:
        return False


class ProducerUpdate:
    """The update of a producer's state by one write. The append that it is part of fails if it does not apply.

    generation: the epoch with which the stream's generation began.
    """

    def __init__(self, stream: StreamLocation, write: ProducerWrite, generation: int = 0) -> None:
        self._stream = stream
        self._write = write
        self._digest = (write.digest or Digest()).kept()
        self._generation = generation or NULL_VALUE
        self._attributes = [writer_attribute(write.producer, which) for which in (_NUMBER, _SIZE, _REST, _GENERATION)]

    def advance(self) -> list[Operation]:
        """Applies if the producer's last write has a lower sequence, and was made in the same generation."""
        return self._operations(UpdateKind.REPLACE_IF_GREATER, None, self._generation)

    def is_rejected_by(self, error: BadAttributeUpdate) -> bool:
        """Whether the error says that this update did not apply."""
        return error.segment == self._stream.writers and error.attribute in self._attributes

    def state(self) -> ProducerState | None:
        """The producer's state, as this process knows it."""
        try:
            known = self._stream.container.known_attributes(self._stream.writers, self._attributes)
        except SegmentNotFound:
            return None
        if self._attributes[_NUMBER] not in known:
            return None
        sequence, size, rest, generation = (known.get(attribute, 0) for attribute in self._attributes)
        return ProducerState(sequence, Digest.decode(size, rest), generation or NULL_VALUE)

    def is_committed(self) -> bool:
        """Whether this write, or a later one of the producer, was committed."""
        state = self.state()
        return state is not None and state.sequence >= self._write.sequence

    def resolved(self) -> list[Operation] | None:
        """The update against the producer's present state. None if the write is a replay and must be skipped, which is
        logged. Raises ReplayChanged, WritesLost."""
        state = self.state()
        if state is None or state.sequence < self._write.sequence:
            return self._first_of_generation(state)
        if self._overwrites(state):
            return self._operations(UpdateKind.REPLACE_IF_EQUALS, state, state.generation)
        return None

    def _first_of_generation(self, state: ProducerState | None) -> list[Operation]:
        """For the producer's first write in a generation. Raises WritesLost if sequences are missing between its last
        write and this one, unless the producer accepts that."""
        last = state.sequence if state is not None else -1
        before = state.generation if state is not None else NULL_VALUE
        if before != self._generation and self._write.sequence > last + 1:
            lost = WritesLost(
                self._stream.key, self._write.producer, self._write.sequence, last if state is not None else None
            )
            if not self._write.accept_lost:
                raise lost
            logger.warning("%s They are left out, because option 'accept_lost_batches' is true.", lost.fact)
        return self._operations(UpdateKind.REPLACE_IF_GREATER, None, before)

    def _overwrites(self, state: ProducerState) -> bool:
        """Whether a replay is written all the same. Logs which case it is.

        Raises ReplayChanged if its data differ, or may differ, and the policy is to fail.
        """
        write, policy = self._write, self._write.on_changed_replay
        if state[:2] == (write.sequence, self._digest):
            logger.info(
                "stream %s: %s was committed before, with %s; nothing is written",
                self._stream.key,
                str(write),
                str(self._digest),
            )
            return False
        changed = ReplayChanged(
            self._stream.key, write.producer, write.sequence, str(self._digest), state.sequence, str(state.digest)
        )
        if policy == "fail":
            raise changed
        done = "was written anyway" if policy == "write" else "was NOT written"
        logger.warning("%s The new data %s, because option 'on_changed_replay' is %r.", str(changed), done, policy)
        return policy == "write"

    def _operations(self, kind: UpdateKind, state: ProducerState | None, generation: int) -> list[Operation]:
        """generation: that of the producer's last write."""
        values = [self._write.sequence, *self._digest.encode()]
        kinds = [kind, *([UpdateKind.REPLACE, UpdateKind.REPLACE] if state is None else [kind, kind])]
        before = [0, 0, 0] if state is None else [state.sequence, *state.digest.encode()]
        updates = [*map(AttributeUpdate, self._attributes, kinds, values, before)]
        if not self._generation == generation == NULL_VALUE:
            mark = self._attributes[_GENERATION]
            updates.append(AttributeUpdate(mark, UpdateKind.REPLACE_IF_EQUALS, self._generation, generation))
        return [UpdateAttributes(self._stream.writers, tuple(updates))]
