"""The record of a stream, an entry of a table of its container: policies, epochs, truncation.

There is one record for each stream. It is changed on the condition of its version, in one append with the segments
that the change is about (X1).
"""

from __future__ import annotations

import enum
import reprlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgpack

from chunkstore.decoding import (
    InvalidData,
    Natural,
    Reader,
    check_format,
    check_known,
    encoded,
    read_field,
    reader,
    unpack,
)
from chunkstore.optional_fields import OPTIONAL, OptionalFields, read_optional
from engine.errors import understanding
from engine.tables.content import MAX_VALUE
from pravega_spark.errors import RecordTooLarge, TooManySegments
from pravega_spark.segment_ids import segment_epoch, segment_id, segment_label, segment_number
from pravega_spark.streams.model.epochs import EpochRecord, Epochs, Positions, StreamSegmentRecord, duplicate, replaced
from pravega_spark.streams.model.policies import ONE_SEGMENT, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.routing import even_ranges

FORMAT = 1
"""The format of a stream's table entries."""

REMEDY = "Restore the root from a copy"

ID_SIZE = 16
"""Bytes of a stream's id."""


def removal(command: str) -> str:
    """The advice for an entry that cannot be decoded. command: deletes it."""
    return f"{REMEDY}, or delete it: `{command}`; all else can be used meanwhile"


MAX_TAGS = 127
MAX_TAG_LENGTH = 255
"""Maximum number of tags of a stream, and of characters of each (Pravega: StreamConfiguration)."""


class Unchanged(enum.Enum):
    """The type of UNCHANGED."""

    UNCHANGED = "kept"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED
"""For a policy, or tags, that an update leaves unchanged."""


class StoredValueFormat(NamedTuple):
    """The format of a stream's values and their schema, as they are stored (`values.value_format`)."""

    format: Literal["json", "avro"]
    schema: str


class StreamUpdate(NamedTuple):
    """What an update changes of a stream. retention: None removes the policy. tags: see `checked_tags`. values: None
    removes the format."""

    scaling: ScalingPolicy | Unchanged
    retention: RetentionPolicy | Unchanged | None
    tags: tuple[str, ...] | Unchanged
    values: StoredValueFormat | Unchanged | None = UNCHANGED


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The distinct tags of a stream. Raises ValueError for too many, or too long ones."""
    for tag in tags:
        if not isinstance(tag, str) or len(tag) > MAX_TAG_LENGTH:
            raise ValueError(f"a tag must be text of at most {MAX_TAG_LENGTH} characters, not {reprlib.repr(tag)}")
        encoded(tag, "tag")
    once = tuple(dict.fromkeys(tags))
    if len(once) > MAX_TAGS:
        raise ValueError(f"a stream can have {MAX_TAGS} tags at most, not {len(once)}: remove some")
    return once


class Generation(NamedTuple):
    """A generation of a stream's container in which events were written to the stream (P4).

    name: that of the container's log. epoch: the stream's first epoch in this generation.
    """

    name: str
    epoch: int


class Routing(NamedTuple):
    """The information that routes events: the stream's id, and the segments of an epoch.

    reference: of that epoch. Plain values: travels with the events.
    """

    id: bytes
    reference: int
    segments: tuple[StreamSegmentRecord, ...]


class Ended(NamedTuple):
    """A deleted segment: its length, and its successors."""

    length: Natural
    successors: tuple[Natural, ...]


_KEPT_ENDS = 256


def whole_ends(deleted: Mapping[int, Ended], head: Positions) -> dict[int, Ended]:
    """The deleted segments between whose ends and the head nothing was lost: their successors begin at the head, or
    were empty, recursively. At most _KEPT_ENDS, the newest."""
    found: dict[int, Ended] = {}
    for number, each in sorted(deleted.items(), reverse=True)[:_KEPT_ENDS]:
        if all((next_ in found and found[next_].length == 0) or head.get(next_) == 0 for next_ in each.successors):
            found[number] = each
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class StreamRecord:
    """All information about a stream except its segments' content. `version` is the table entry's.

    id: ID_SIZE random bytes that distinguish the stream from deleted streams of the same name. first_number: the
    number of its first segment. Segments with lower numbers belonged to deleted streams of the same name, so
    positions in them are recognised although a stream cut has no id (P4). epochs: consecutive ones, from the first
    one with a segment of the head. The stored form of an epoch holds only its difference from the one before.
    """

    id: bytes
    created: int
    epochs: tuple[EpochRecord, ...]
    scaling: ScalingPolicy = ONE_SEGMENT
    retention: RetentionPolicy | None = None
    tags: tuple[str, ...] = ()
    sealed: bool = False
    head: dict[int, int] = field(default_factory=dict)
    """The truncation point: the head cut's positions. Empty: the first epoch from offset 0."""
    ended: dict[int, Ended] = field(default_factory=dict)
    """Deleted segments between whose ends and the head nothing was lost: a reader at their ends has lost nothing."""
    passed: int = 0
    """Bytes before the head: with those after it, all bytes that the stream ever had."""
    first_number: int = 0
    unknown: tuple[str, ...] = ()
    """Missing information, in words: of a stream in the long-term storage of a Pravega, where it was never flushed."""
    generations: tuple[Generation, ...] = ()
    """The generations whose epochs are not truncated, oldest first. Empty for a stream in the storage of a Pravega."""
    values: StoredValueFormat | None = None
    """How events hold values, if their writers agreed on it."""
    optional: OptionalFields = field(default_factory=OptionalFields)
    """What newer versions added that this one need not know (W19)."""
    version: int = -1

    @property
    def generation(self) -> Generation:
        """The generation in which the current segments were opened."""
        return self.generations[-1] if self.generations else Generation("", 0)

    @property
    def current(self) -> EpochRecord:
        """The newest epoch."""
        return self.epochs[-1]

    @cached_property
    def history(self) -> Epochs:
        """The existing segments, and their order."""
        return Epochs(self.epochs, self.head_positions())

    @property
    def routing(self) -> Routing:
        """The present routing."""
        return Routing(self.id, self.current.reference, self.current.segments)

    def head_positions(self) -> dict[int, int]:
        """The positions of the head cut."""
        return self.head or {segment.id: 0 for segment in self.epochs[0].segments}

    def segment_ids(self) -> list[int]:
        """All existing segments, in order of epoch and number."""
        return list(self.history.segments)

    def encode(self) -> bytes:
        """The table entry's value. Raises UnreadableRecord."""
        return readable(
            "the record of a stream",
            self,
            StreamRecord._encoded,
            lambda data: self._decoded(unpack(data), self.version),
        )

    def _encoded(self) -> bytes:
        fields = {"format": FORMAT} | {name: getattr(self, name) for name in _FIELDS}
        fields |= {"epochs": list(_plain_epochs(self.epochs)), "scaling": astuple(self.scaling)}
        if self.retention is not None:
            fields["retention"] = astuple(self.retention)
        for name in ("unknown", "values", OPTIONAL):
            if not fields[name]:
                del fields[name]
        return bytes(msgpack.packb(fields))

    def checked(self, stream: str) -> bytes:
        """As `encode`. Raises RecordTooLarge if it exceeds the limit of a table entry."""
        data = self.encode()
        if len(data) > MAX_VALUE:
            raise RecordTooLarge(stream, len(data), MAX_VALUE)
        return data

    @classmethod
    def decode(cls, data: bytes, version: int, stream: str) -> StreamRecord:
        """The inverse of `encode`, with the version of the entry. Raises DataCorruption, which names the stream."""
        with understanding(f"stream {stream}: its record", removal(f"pravega-spark stream delete {stream} --yes")):
            return cls._decoded(unpack(data), version)

    @classmethod
    def _decoded(cls, fields: dict[str, Any], version: int) -> StreamRecord:
        check_format(fields.pop("format"), FORMAT)
        check_known(fields, _FIELDS)
        read = {name: read_field(name, _FIELDS[name], value) for name, value in fields.items()}
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
        if len(record.id) != ID_SIZE:
            raise InvalidData(f"its id has {len(record.id)} bytes, not {ID_SIZE}")
        least = min(segment_number(segment.id) for epoch in record.epochs for segment in epoch.segments)
        if least < record.first_number:
            raise InvalidData(f"it has segment number {least}, but its first one was {record.first_number}")
        return record

    def with_changes(self, **changes: Any) -> StreamRecord:
        """A copy with other values."""
        return replace(self, **changes)


def _plain_epochs(epochs: Sequence[EpochRecord]) -> Iterator[list[Any]]:
    """The first epoch as a whole; of the others the segments created in them, or none for a duplicate."""
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
    "id": reader(bytes),
    "created": reader(int),
    "epochs": reader(list[Any]),
    "scaling": reader(tuple[Literal["fixed", "bytes", "events"], Natural, Natural, Natural]),
    "retention": reader(tuple[Literal["time", "size"], Natural, Natural | None] | None),
    "tags": reader(tuple[str, ...]),
    "sealed": reader(bool),
    "head": _POSITIONS,
    "ended": reader(dict[Natural, Ended]),
    "passed": reader(int),
    "generations": reader(tuple[Generation, ...]),
    "first_number": reader(Natural),
    "unknown": reader(tuple[str, ...]),
    "values": reader(StoredValueFormat),
    OPTIONAL: read_optional,
}
"""The stored fields, in the order in which they are stored, and how each is read."""


def former_segments(record: StreamRecord, numbers: Iterable[int]) -> list[int]:
    """The segment ids that belonged to deleted streams of the same name."""
    return [number for number in numbers if segment_number(number) < record.first_number]


def new_id() -> bytes:
    """The id of a new stream, from the system's random numbers: a forked process never generates it again."""
    return secrets.token_bytes(ID_SIZE)


def encode_number(number: int) -> bytes:
    """The entry of a deleted stream: the first segment number of a new stream of its name. Raises UnreadableRecord."""
    what = "the number of a stream's next segment"
    return readable(
        what, number, lambda value: bytes(msgpack.packb([FORMAT, value])), lambda data: decode_number(data, "")
    )


def decode_number(data: bytes, stream: str) -> int:
    """The inverse of `encode_number`. Raises DataCorruption, which names the stream."""
    with understanding(
        f"stream {stream}: the number of its next segment", removal(f"pravega-spark stream delete {stream} --yes")
    ):
        known, *number = unpack(data)
        check_format(known, FORMAT)
        [found] = reader(tuple[Natural])(number)
        return segment_number(segment_id(found, 0))


def check_segments(stream: str, count: int, most: int) -> None:
    """Raise TooManySegments if a stream would have more segments at a time than its root allows."""
    if count > most:
        raise TooManySegments(stream, count, most)


def first_epoch(scaling: ScalingPolicy, created: int, start_number: int = 0) -> EpochRecord:
    """Epoch 0: as many segments as the policy's minimum, with even key ranges."""
    ranges = even_ranges(scaling.min_segments)
    segments = (
        StreamSegmentRecord(segment_id(start_number + index, 0), low, high) for index, (low, high) in enumerate(ranges)
    )
    return EpochRecord(0, created, tuple(segments), 0)


def first_number_of(epochs: Sequence[EpochRecord]) -> int:
    """The number of the first segment of a stream with these epochs; 0 if the first epoch is not among them."""
    return min(segment_number(segment.id) for segment in epochs[0].segments) if epochs[0].epoch == 0 else 0


def next_number(epoch: EpochRecord) -> int:
    """The segment number after those of an epoch: no epoch before it has had a greater one."""
    return max(segment_number(segment.id) for segment in epoch.segments) + 1
