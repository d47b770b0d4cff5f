"""The record of a stream, as it lies in its container's table: policies, epochs, truncation.

One record for each stream, changed only with its version as condition and together with the segments that the change
is about, in one append (X1).
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgpack

from chunkstore.decoding import InvalidData, Natural, Reader, check_format, encoded, reader, unpack
from engine.errors import understanding
from engine.tables.content import MAX_VALUE
from pravega_spark.errors import RecordTooLarge, TooManySegments
from pravega_spark.segment_ids import segment_epoch, segment_id, segment_label, segment_number
from pravega_spark.streams.epochs import EpochRecord, Epochs, StreamSegmentRecord, duplicate, replaced
from pravega_spark.streams.policies import ONE_SEGMENT, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.routing import even_ranges

FORMAT = 1
"""The format of what is kept of a stream in tables."""

REMEDY = "Restore the root from a copy"

MAX_TAGS = 127
MAX_TAG_LENGTH = 255
"""How many tags a stream has at most, and characters of each (Pravega: StreamConfiguration)."""


class Kept(enum.Enum):
    """What an update of a stream leaves out, and so keeps."""

    KEPT = "kept"

    def __repr__(self) -> str:
        return "KEPT"


KEPT = Kept.KEPT
"""Stands for a policy, or tags, that an update leaves as they are."""


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags of a stream. Raises ValueError for more, or longer ones, than a stream may have."""
    if len(tags) > MAX_TAGS:
        raise ValueError(f"a stream can have {MAX_TAGS} tags at most, not {len(tags)}: remove some")
    for tag in tags:
        if not isinstance(tag, str) or len(tag) > MAX_TAG_LENGTH:
            raise ValueError(f"a tag must be text of at most {MAX_TAG_LENGTH} characters, not {reprlib.repr(tag)}")
        encoded(tag, "tag")
    return tuple(tags)


class Routing(NamedTuple):
    """What a writer knows of a stream when it routes events: which stream of that name, and an epoch's segments.

    created: when the stream was made. reference: as of that epoch. Plain values: travels with the events.
    """

    created: int
    reference: int
    segments: tuple[StreamSegmentRecord, ...]


@dataclass(frozen=True)
class StreamRecord:
    """Everything that is known of a stream besides its segments' content. `version` is the table entry's.

    epochs: the consecutive ones from the first that the head has a segment of. Scaling does not write them all again:
    an epoch is kept as what it has that the one before it had not.
    """

    created: int
    epochs: tuple[EpochRecord, ...]
    scaling: ScalingPolicy = ONE_SEGMENT
    retention: RetentionPolicy | None = None
    tags: tuple[str, ...] = ()
    sealed: bool = False
    head: dict[int, int] = field(default_factory=dict)
    """The truncation point: the head cut's positions. Empty: the first epoch from offset 0."""
    ended: dict[int, int] = field(default_factory=dict)
    """Lengths of deleted segments right before the head: who has read them to their ends has lost nothing."""
    passed: int = 0
    """Bytes that lay before the head: with those behind it, all that the stream has ever had."""
    unknown: tuple[str, ...] = ()
    """What is not known of it, in words: of a stream in the long-term storage of a Pravega, which was never flushed."""
    version: int = -1

    @property
    def current(self) -> EpochRecord:
        """The newest epoch."""
        return self.epochs[-1]

    @cached_property
    def history(self) -> Epochs:
        """The segments that are there, and how they follow each other."""
        return Epochs(self.epochs, self.head_positions())

    @property
    def routing(self) -> Routing:
        """How events are routed now."""
        return Routing(self.created, self.current.reference, self.current.segments)

    def head_positions(self) -> dict[int, int]:
        """The positions of the head cut."""
        return self.head or {segment.id: 0 for segment in self.epochs[0].segments}

    def segment_ids(self) -> list[int]:
        """All segments that are there, in order of epoch and number."""
        return list(self.history.segments)

    def encode(self) -> bytes:
        """The table entry's value."""
        fields = {
            "format": FORMAT,
            "created": self.created,
            "epochs": list(_plain_epochs(self.epochs)),
            "scaling": astuple(self.scaling),
            "retention": astuple(self.retention) if self.retention is not None else None,
            "tags": self.tags,
            "sealed": self.sealed,
            "head": self.head,
            "ended": self.ended,
            "passed": self.passed,
        }
        if self.unknown:
            fields["unknown"] = self.unknown
        return bytes(msgpack.packb(fields))

    def checked(self, stream: str) -> bytes:
        """As `encode`. Raises RecordTooLarge, which names the stream, for more than a table's entry may have."""
        data = self.encode()
        if len(data) > MAX_VALUE:
            raise RecordTooLarge(stream, len(data), MAX_VALUE)
        return data

    @classmethod
    def decode(cls, data: bytes, version: int, stream: str) -> StreamRecord:
        """The inverse of `encode`, with the version of the entry. Raises DataCorruption, which names the stream."""
        with understanding(f"stream {stream}: its record", REMEDY):
            return cls._decoded(unpack(data), version)

    @classmethod
    def _decoded(cls, fields: dict[str, Any], version: int) -> StreamRecord:
        check_format(fields.pop("format"), FORMAT)
        read = {name: _FIELDS[name](value) for name, value in fields.items()}
        retention = read.pop("retention")
        record = cls(
            epochs=_epochs(read.pop("epochs")),
            scaling=ScalingPolicy(*read.pop("scaling")),
            retention=RetentionPolicy(*retention) if retention is not None else None,
            version=version,
            **read,
        )
        if not {segment.id for epoch in record.epochs for segment in epoch.segments}.issuperset(record.head):
            raise InvalidData("its head is in segments that none of its epochs has")
        return record

    def with_changes(self, **changes: Any) -> StreamRecord:
        """A copy with other values."""
        return replace(self, **changes)


def _plain_epochs(epochs: Sequence[EpochRecord]) -> Iterator[list[Any]]:
    """The first epoch whole; of the others the segments that were made in them, or nothing for a duplicate."""
    first = epochs[0]
    yield [first.epoch, first.created, first.reference, first.segments]
    for epoch, created, segments, reference in epochs[1:]:
        if first.epoch <= reference < epoch:
            yield [created, reference, None]
        else:
            new = (segment for segment in segments if segment_epoch(segment.id) == epoch)
            yield [created, reference, [(segment_number(number), low, high) for number, low, high in new]]


def _epochs(plain: Sequence[Any]) -> tuple[EpochRecord, ...]:
    """The inverse of `_plain_epochs`. Raises InvalidData for epochs whose segments do not cover all keys once."""
    number, created, reference, segments = _FIRST_EPOCH(plain[0])
    epochs = [EpochRecord(number, created, segments, reference)]
    _check_epoch(epochs[0])
    for following in plain[1:]:
        created, reference, new = _EPOCH(following)
        number += 1
        if new is not None:
            made = [StreamSegmentRecord(segment_id(segment, number), low, high) for segment, low, high in new]
            epochs.append(EpochRecord(number, created, replaced(epochs[-1].segments, made), reference))
            _check_epoch(epochs[-1])
        elif epochs[0].epoch <= reference < number:
            epochs.append(duplicate(epochs[reference - epochs[0].epoch], number, created))
        else:
            raise InvalidData(f"epoch {number} is a duplicate of epoch {reference}, which is not there")
    return tuple(epochs)


def _check_epoch(epoch: EpochRecord) -> None:
    reached = 0.0
    for segment in epoch.segments:
        if not segment.low == reached < segment.high <= 1.0 or segment_epoch(segment.id) > epoch.epoch:
            raise InvalidData(
                f"epoch {epoch.epoch} has segment {segment_label(segment.id)} with keys {segment.low} to {segment.high}"
            )
        segment_id(segment_number(segment.id), segment_epoch(segment.id))
        reached = segment.high
    if reached != 1.0 or len({segment.id for segment in epoch.segments}) < len(epoch.segments):
        raise InvalidData(f"the segments of epoch {epoch.epoch} do not have all keys once")


_FIRST_EPOCH = reader(tuple[Natural, int, int, tuple[StreamSegmentRecord, ...]])
_EPOCH = reader(tuple[int, int, tuple[tuple[Natural, float, float], ...] | None])
_POSITIONS = reader(dict[Natural, Natural])
_FIELDS: dict[str, Reader] = {
    "created": reader(int),
    "epochs": reader(list[Any]),
    "scaling": reader(tuple[Literal["fixed", "bytes", "events"], Natural, Natural, Natural]),
    "retention": reader(tuple[Literal["time", "size"], Natural, Natural | None] | None),
    "tags": reader(tuple[str, ...]),
    "sealed": reader(bool),
    "head": _POSITIONS,
    "ended": _POSITIONS,
    "passed": reader(int),
    "unknown": reader(tuple[str, ...]),
}


def encode_number(number: int) -> bytes:
    """The entry of a deleted stream: the segment number at which one of its name goes on when it is made again."""
    return bytes(msgpack.packb([FORMAT, number]))


def decode_number(data: bytes, stream: str) -> int:
    """The inverse of `encode_number`. Raises DataCorruption, which names the stream."""
    with understanding(f"stream {stream}: the number of its next segment", REMEDY):
        known, *number = unpack(data)
        check_format(known, FORMAT)
        [found] = reader(tuple[Natural])(number)
        return segment_number(segment_id(found, 0))


def check_segments(stream: str, count: int, most: int) -> None:
    """Raise TooManySegments if a stream is to have more segments at a time than its root allows."""
    if count > most:
        raise TooManySegments(stream, count, most)


def first_epoch(scaling: ScalingPolicy, created: int, start_number: int = 0) -> EpochRecord:
    """Epoch 0: as many segments as the policy's minimum, with even key ranges."""
    ranges = even_ranges(scaling.min_segments)
    segments = (
        StreamSegmentRecord(segment_id(start_number + index, 0), low, high) for index, (low, high) in enumerate(ranges)
    )
    return EpochRecord(0, created, tuple(segments), 0)


def next_number(epoch: EpochRecord) -> int:
    """The segment number after those of an epoch: no epoch before it has had a greater one."""
    return max(segment_number(segment.id) for segment in epoch.segments) + 1
