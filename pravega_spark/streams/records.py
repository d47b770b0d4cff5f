"""The record of a stream, as it lies in its container's table: policies, epochs, truncation.

One record for each stream, changed only with its version as condition and together with the segments that the change
is about, in one append (X1).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgpack

from pravega_spark.streams.names import segment_id, segment_number
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
    """What a stream keeps at least (Pravega: RetentionPolicy): milliseconds (kind `time`) or bytes (kind `size`)."""

    kind: Literal["time", "size"]
    limit: int

    @staticmethod
    def none() -> None:
        """Keep everything."""

    @classmethod
    def by_size(cls, size_in_bytes: int) -> RetentionPolicy:
        """Keep at least the last so many bytes."""
        return cls("size", size_in_bytes)

    @classmethod
    def by_time(cls, time_in_millis: int) -> RetentionPolicy:
        """Keep at least what was written in the last so many milliseconds."""
        return cls("time", time_in_millis)


class SegmentRecord(NamedTuple):
    """A segment of an epoch: its id and the key range (low, high] it owns."""

    id: int
    low: float
    high: float


class EpochRecord(NamedTuple):
    """A generation of segments. `created` in ms since the epoch; `segments` in order of their key ranges."""

    epoch: int
    created: int
    segments: tuple[SegmentRecord, ...]


@dataclass(frozen=True)
class StreamRecord:
    """Everything that is known of a stream besides its segments' content. `version` is the table entry's."""

    created: int
    epochs: tuple[EpochRecord, ...]
    scaling: ScalingPolicy = ScalingPolicy()
    retention: RetentionPolicy | None = None
    tags: tuple[str, ...] = ()
    sealed: bool = False
    head: dict[int, int] = field(default_factory=dict)
    """The truncation point: the head cut's positions. Empty: the first epoch from offset 0."""
    version: int = -1

    @property
    def current(self) -> EpochRecord:
        """The newest epoch."""
        return self.epochs[-1]

    def head_positions(self) -> dict[int, int]:
        """The positions of the head cut."""
        return self.head or {segment.id: 0 for segment in self.epochs[0].segments}

    def segment_ids(self) -> list[int]:
        """All segments of all epochs, in order of epoch and number."""
        return sorted({segment.id for epoch in self.epochs for segment in epoch.segments})

    def encode(self) -> bytes:
        """The table entry's value."""
        fields = {
            "created": self.created,
            "epochs": self.epochs,
            "scaling": astuple(self.scaling),
            "retention": astuple(self.retention) if self.retention is not None else None,
            "tags": self.tags,
            "sealed": self.sealed,
            "head": self.head,
        }
        return bytes(msgpack.packb(fields))

    @classmethod
    def decode(cls, data: bytes, version: int) -> StreamRecord:
        """The inverse of `encode`, with the version of the entry."""
        fields: dict[str, Any] = msgpack.unpackb(data, strict_map_key=False)
        epochs = tuple(
            EpochRecord(epoch, created, tuple(SegmentRecord(*segment) for segment in segments))
            for epoch, created, segments in fields["epochs"]
        )
        return cls(
            fields["created"],
            epochs,
            ScalingPolicy(*fields["scaling"]),
            RetentionPolicy(*fields["retention"]) if fields["retention"] is not None else None,
            tuple(fields["tags"]),
            fields["sealed"],
            fields["head"],
            version,
        )

    def with_changes(self, **changes: Any) -> StreamRecord:
        """A copy with other values."""
        return replace(self, **changes)


def first_epoch(scaling: ScalingPolicy, created: int, start_number: int = 0) -> EpochRecord:
    """Epoch 0: as many segments as the policy's minimum, with even key ranges."""
    ranges = even_ranges(scaling.min_segments)
    segments = (
        SegmentRecord(segment_id(start_number + index, 0), low, high) for index, (low, high) in enumerate(ranges)
    )
    return EpochRecord(0, created, tuple(segments))


def next_number(record: StreamRecord) -> int:
    """The segment number after the last one that the stream has used."""
    return max(segment_number(number) for number in record.segment_ids()) + 1
