"""The record of a stream, as it lies in its container's table: policies, epochs, truncation.

One record for each stream, changed only with its version as condition and together with the segments that the change
is about, in one append (X1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgpack

from pravega_spark.streams.epochs import EpochRecord, Epochs, SegmentRecord, duplicate, replaced
from pravega_spark.streams.names import segment_epoch, segment_id, segment_number
from pravega_spark.streams.routing import even_ranges


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How many segments a stream begins with, and when it is scaled (Pravega: ScalingPolicy).

    target_rate: per segment and second, in KiB for kind `bytes`, in events for kind `events`; it and `scale_factor`
    are 0 for a `fixed` number of segments.
    """

    kind: Literal["fixed", "bytes", "events"] = "fixed"
    min_segments: int = 1
    target_rate: int = 0
    scale_factor: int = 0

    @classmethod
    def fixed_scaling_policy(cls, initial_segments: int) -> ScalingPolicy:
        """So many segments, for ever."""
        return cls(min_segments=initial_segments)

    @classmethod
    def auto_scaling_policy_by_data_rate(
        cls, target_rate_kbytes_per_sec: int, scale_factor: int, initial_segments: int
    ) -> ScalingPolicy:
        """Split a segment that takes more KiB per second into `scale_factor` ones, merge such that take much less."""
        return cls("bytes", initial_segments, target_rate_kbytes_per_sec, scale_factor)

    @classmethod
    def auto_scaling_policy_by_event_rate(
        cls, target_events_per_sec: int, scale_factor: int, initial_segments: int
    ) -> ScalingPolicy:
        """The same by events per second."""
        return cls("events", initial_segments, target_events_per_sec, scale_factor)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What a stream keeps (Pravega: RetentionPolicy): milliseconds (kind `time`) or bytes (kind `size`).

    limit: what it keeps at least. maximum: what it keeps at most, even if a subscriber has not read it yet; None for
    all that has not been read.
    """

    kind: Literal["time", "size"]
    limit: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.limit < 0 or (self.maximum is not None and self.maximum < self.limit):
            raise ValueError(
                f"a retention policy keeps at least 0 and at most as much or more, not {self.limit} to {self.maximum}"
            )

    @staticmethod
    def none() -> None:
        """Keep everything."""

    @classmethod
    def by_size(cls, size_in_bytes: int, maximum: int | None = None) -> RetentionPolicy:
        """Keep at least the last so many bytes."""
        return cls("size", size_in_bytes, maximum)

    @classmethod
    def by_time(cls, time_in_millis: int, maximum: int | None = None) -> RetentionPolicy:
        """Keep at least what was written in the last so many milliseconds."""
        return cls("time", time_in_millis, maximum)


class Routing(NamedTuple):
    """What a writer knows of a stream when it routes events: which stream of that name, and an epoch's segments.

    created: when the stream was made. reference: as of that epoch. Plain values: travels with the events.
    """

    created: int
    reference: int
    segments: tuple[SegmentRecord, ...]


@dataclass(frozen=True)
class StreamRecord:
    """Everything that is known of a stream besides its segments' content. `version` is the table entry's.

    epochs: the consecutive ones from the first that the head has a segment of. Scaling does not write them all again:
    an epoch is kept as what it has that the one before it had not.
    """

    created: int
    epochs: tuple[EpochRecord, ...]
    scaling: ScalingPolicy = ScalingPolicy()
    retention: RetentionPolicy | None = None
    tags: tuple[str, ...] = ()
    sealed: bool = False
    head: dict[int, int] = field(default_factory=dict)
    """The truncation point: the head cut's positions. Empty: the first epoch from offset 0."""
    ended: dict[int, int] = field(default_factory=dict)
    """Lengths of deleted segments right before the head: who has read them to their ends has lost nothing."""
    passed: int = 0
    """Bytes that lay before the head: with those behind it, all that the stream has ever had."""
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
        return bytes(msgpack.packb(fields))

    @classmethod
    def decode(cls, data: bytes, version: int) -> StreamRecord:
        """The inverse of `encode`, with the version of the entry."""
        fields: dict[str, Any] = msgpack.unpackb(data, strict_map_key=False)
        return cls(
            fields["created"],
            _epochs(fields["epochs"]),
            ScalingPolicy(*fields["scaling"]),
            RetentionPolicy(*fields["retention"]) if fields["retention"] is not None else None,
            tuple(fields["tags"]),
            fields["sealed"],
            fields["head"],
            fields["ended"],
            fields["passed"],
            version,
        )

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


def _epochs(plain: Sequence[Sequence[Any]]) -> tuple[EpochRecord, ...]:
    """The inverse of `_plain_epochs`."""
    number, created, reference, segments = plain[0]
    epochs = [EpochRecord(number, created, tuple(SegmentRecord(*segment) for segment in segments), reference)]
    for created, reference, new in plain[1:]:
        number += 1
        if new is None:
            epochs.append(duplicate(epochs[reference - epochs[0].epoch], number, created))
        else:
            made = [SegmentRecord(segment_id(segment, number), low, high) for segment, low, high in new]
            epochs.append(EpochRecord(number, created, replaced(epochs[-1].segments, made), reference))
    return tuple(epochs)


def first_epoch(scaling: ScalingPolicy, created: int, start_number: int = 0) -> EpochRecord:
    """Epoch 0: as many segments as the policy's minimum, with even key ranges."""
    ranges = even_ranges(scaling.min_segments)
    segments = (
        SegmentRecord(segment_id(start_number + index, 0), low, high) for index, (low, high) in enumerate(ranges)
    )
    return EpochRecord(0, created, tuple(segments), 0)


def next_number(epoch: EpochRecord) -> int:
    """The segment number after those of an epoch: no epoch before it has had a greater one."""
    return max(segment_number(segment.id) for segment in epoch.segments) + 1
