"""Named writers: what a stream remembers of them, so that what is written again changes nothing, and is told (X3).

The number of a writer's last write and its digest are three attributes of the stream's segment `#writers`. They are
changed in the same append as the data, without a look at what they were before; the ids of a writer's attributes are
neighbours, so that looking one of them up in LTS finds all.

A fourth attribute is the epoch with which the stream's generation began in which the last write came (P4). A stream
that was made in its generation needs none. In another one a writer's first write is refused, by this attribute, before
its number is believed: a restore may have lost writes of it.
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
    from engine.containers.container import Container

logger = logging.getLogger(__name__)

_NUMBER, _SIZE, _REST, _GENERATION = range(4)


class Remembered(NamedTuple):
    """The number of a writer's last write, its digest, and in which generation it came (NULL_VALUE: the first one)."""

    number: int
    digest: Digest
    generation: int = NULL_VALUE


def writer_attribute(name: str, which: int = _NUMBER) -> bytes:
    """The attribute that remembers a named writer's last number, one of the two of its digest, or its generation.

    Unlike core attributes it begins with a zero bit.
    """
    digest = bytearray(hashlib.sha256(encoded(name, "writer")).digest()[:16])
    digest[0] &= 0x7F
    digest[-1] = digest[-1] & 0xFC | which
    return bytes(digest)


def remembers_any(container: Container, segment: str) -> bool:
    """Whether anything is remembered of any writer, as this process knows it."""
    try:
        return any(not attribute[0] & 0x80 for attribute in container.known_attributes(segment))
    except SegmentNotFound:
        return False


class NamedWrite:
    """A write that a stream remembers: who writes it, its number, and its digest.

    segment: the segment without content whose attributes remember it. generation: the epoch with which the stream's
    generation began.
    """

    def __init__(self, segment: str, name: str, number: int, digest: Digest, generation: int = 0) -> None:
        self.name = name
        self.number = number
        self.digest = digest.kept()
        self._segment = segment
        self._generation = generation or NULL_VALUE
        self._attributes = [writer_attribute(name, which) for which in (_NUMBER, _SIZE, _REST, _GENERATION)]

    def __str__(self) -> str:
        return f"write {self.number} of {self.name!r}"

    def remembering(self) -> list[Operation]:
        """What keeps it, and refuses it unless its number is greater than that of the writer's last write, which was in
        the same generation."""
        return self._update(UpdateKind.REPLACE_IF_GREATER, None, self._generation)

    def continuing(self, stream: str, found: Remembered | None, accept_lost: bool) -> list[Operation]:
        """The same for the first write in a generation, behind what was found of the writer.

        Raises WritesLost if numbers are left out between them, which were lost then, and that is not accepted.
        """
        last = found.number if found is not None else -1
        before = found.generation if found is not None else NULL_VALUE
        if before != self._generation and self.number > last + 1:
            lost = WritesLost(stream, self.name, self.number, last if found is not None else None)
            if not accept_lost:
                raise lost
            logger.warning("%s They are left out, because option 'accept_lost_batches' is true.", lost.fact)
        return self._update(UpdateKind.REPLACE_IF_GREATER, None, before)

    def replacing(self, found: Remembered) -> list[Operation]:
        """What keeps it instead of what was found, if that is still there."""
        return self._update(UpdateKind.REPLACE_IF_EQUALS, found, found.generation)

    def _update(self, kind: UpdateKind, found: Remembered | None, generation: int) -> list[Operation]:
        """generation: that of the writer's last write."""
        values = [self.number, *self.digest.encode()]
        kinds = [kind, *([UpdateKind.REPLACE, UpdateKind.REPLACE] if found is None else [kind, kind])]
        before = [0, 0, 0] if found is None else [found.number, *found.digest.encode()]
        updates = [*map(AttributeUpdate, self._attributes, kinds, values, before)]
        if not self._generation == generation == NULL_VALUE:
            mark = self._attributes[_GENERATION]
            updates.append(AttributeUpdate(mark, UpdateKind.REPLACE_IF_EQUALS, self._generation, generation))
        return [UpdateAttributes(self._segment, tuple(updates))]

    def is_refused(self, error: BadAttributeUpdate) -> bool:
        """Whether an append was refused because of what is remembered of the writer."""
        return error.segment == self._segment and error.attribute in self._attributes

    def found(self, container: Container) -> Remembered | None:
        """What is remembered of the writer, as this process knows it."""
        try:
            known = container.known_attributes(self._segment, self._attributes)
        except SegmentNotFound:
            return None
        if self._attributes[_NUMBER] not in known:
            return None
        number, size, rest, generation = (known.get(attribute, 0) for attribute in self._attributes)
        return Remembered(number, Digest.decode(size, rest), generation or NULL_VALUE)

    def judge(self, stream: str, found: Remembered, policy: OnChangedReplay) -> bool:
        """Tell what was found where this was to be written. True if it is to be written all the same.

        Raises ReplayChanged if these are other data, or nobody knows, and that is to be an error.
        """
        if found[:2] == (self.number, self.digest):
            logger.info(
                "stream %s: %s was committed before, with %s; nothing is written", stream, str(self), str(self.digest)
            )
            return False
        changed = ReplayChanged(stream, self.name, self.number, str(self.digest), found.number, str(found.digest))
        if policy == "fail":
            raise changed
        done = "was written anyway" if policy == "write" else "was NOT written"
        logger.warning("%s The new data %s, because option 'on_changed_replay' is %r.", str(changed), done, policy)
        return policy == "write"
