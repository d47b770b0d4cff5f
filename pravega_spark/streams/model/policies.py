"""The policies of a stream: number of segments, retention, and how to handle a changed replay. Their texts for users.

Plain values. Options create them in processes that open no stream, so nothing heavy is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pravega_spark.parameters import as_number, checks_parameters
from pravega_spark.quantities import (
    DurationLike,
    SizeLike,
    counted,
    duration_text,
    parse_milliseconds,
    parse_size,
    size_text,
)

logger = logging.getLogger(__name__)

_SHORT = 1000
"""A number below so many milliseconds was probably meant in another unit."""

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1

OnChangedReplay = Literal["skip", "fail", "write"]
"""How to handle a write whose sequence was committed before with other, or unknown, data."""

ON_CHANGED_REPLAY: tuple[OnChangedReplay, ...] = ("skip", "fail", "write")


@checks_parameters(but=("__init__",))
@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Initial number of segments of a stream, and when it is scaled (Pravega: ScalingPolicy).

    target_rate: per segment and second, in KiB for kind `bytes`, in events for kind `events`; it and `scale_factor`
    are 0 for a `fixed` number of segments.
    """

    kind: Literal["fixed", "bytes", "events"] = "fixed"
    min_segments: int = 1
    target_rate: int = 0
    scale_factor: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "bytes", "events"):
            raise ValueError(f"the kind of a scaling policy must be 'fixed', 'bytes' or 'events', not {self.kind!r}")
        for name in ("kind", "min_segments", "target_rate", "scale_factor"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        _check_number("min_segments of a scaling policy", self.min_segments, 1, _MAX_INT32)
        least, most = (1, _MAX_INT32) if self.kind != "fixed" else (0, 0)
        for name in ("target_rate", "scale_factor"):
            _check_number(f"{name} of a scaling policy of kind {self.kind!r}", getattr(self, name), least, most)

    @classmethod
    def fixed_scaling_policy(cls, initial_segments: int) -> ScalingPolicy:
        """A fixed number of segments."""
        _check_number("initial_segments", initial_segments, 1, _MAX_INT32)
        return cls(min_segments=initial_segments)

    @classmethod
    def auto_scaling_policy_by_data_rate(
        cls, target_rate_kbytes_per_sec: int, scale_factor: int, initial_segments: int
    ) -> ScalingPolicy:
        """Split a segment above this rate in KiB per second into `scale_factor` ones; merge segments far below it."""
        _check_number("target_rate_kbytes_per_sec", target_rate_kbytes_per_sec, 1, _MAX_INT32)
        return cls._scaled("bytes", target_rate_kbytes_per_sec, scale_factor, initial_segments)

    @classmethod
    def auto_scaling_policy_by_event_rate(
        cls, target_events_per_sec: int, scale_factor: int, initial_segments: int
    ) -> ScalingPolicy:
        """The same by events per second."""
        _check_number("target_events_per_sec", target_events_per_sec, 1, _MAX_INT32)
        return cls._scaled("events", target_events_per_sec, scale_factor, initial_segments)

    @classmethod
    def _scaled(cls, kind: Literal["bytes", "events"], rate: int, scale_factor: int, segments: int) -> ScalingPolicy:
        _check_number("scale_factor", scale_factor, 1, _MAX_INT32)
        _check_number("initial_segments", segments, 1, _MAX_INT32)
        return cls(kind, segments, rate, scale_factor)


@checks_parameters(but=("__init__",))
@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What a stream keeps (Pravega: RetentionPolicy): milliseconds (kind `time`) or bytes (kind `size`).

    limit: the minimum that is kept. maximum: the maximum that is kept, even if a subscriber has not read it; None keeps
    everything unread.
    """

    kind: Literal["time", "size"]
    limit: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("time", "size"):
            raise ValueError(f"the kind of a retention policy must be 'time' or 'size', not {self.kind!r}")
        for name in ("kind", "limit", "maximum"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        _check_number("the minimum of a retention policy", self.limit, 0, _MAX_INT64)
        if self.maximum is not None:
            what = f"the maximum of a retention policy with a minimum of {self.limit}"
            _check_number(what, self.maximum, self.limit, _MAX_INT64)

    @staticmethod
    def none() -> None:
        """Keep everything."""

    @classmethod
    def by_size(cls, size_in_bytes: SizeLike, maximum: SizeLike | None = None) -> RetentionPolicy:
        """Keep at least this many bytes; a text such as "10GiB" does too."""
        least = parse_size(size_in_bytes)
        return cls._limited("size", "size_in_bytes", least, None if maximum is None else parse_size(maximum))

    @classmethod
    def by_time(cls, time_in_millis: DurationLike, maximum: DurationLike | None = None) -> RetentionPolicy:
        """Keep events for at least this many milliseconds; a text with its unit, such as "7d", or a timedelta, does
        too."""
        least = parse_milliseconds(time_in_millis, unit=True)
        if isinstance(time_in_millis, int) and 0 < least < _SHORT:
            logger.warning(
                "by_time(%d) keeps events for %d milliseconds at least: give another unit as a text, such as '%dd'.",
                *(least,) * 3,
            )
        most = None if maximum is None else parse_milliseconds(maximum, unit=True)
        return cls._limited("time", "time_in_millis", least, most)

    @classmethod
    def _limited(cls, kind: Literal["time", "size"], name: str, least: int, maximum: int | None) -> RetentionPolicy:
        _check_number(name, least, 0, _MAX_INT64)
        if maximum is not None:
            _check_number(f"maximum, with {name} {least},", maximum, least, _MAX_INT64)
        return cls(kind, least, maximum)


def limited_retention(
    kind: Literal["time", "size"], minimum: int | None, maximum: int | None, names: tuple[str, str]
) -> RetentionPolicy | None:
    """The policy of a minimum and a maximum that a user gave as options; None if neither was given.

    names: those of the options. Raises ValueError for a maximum that is less than the minimum, or is given without one.
    """
    least, most = names
    if minimum is None:
        if maximum is not None:
            raise ValueError(f"{most} is given without {least}: a maximum of retention requires a minimum. Give both.")
        return None
    if maximum is not None and maximum < minimum:
        raise ValueError(
            f"The maximum of retention, {_limit_text(kind, maximum)} ({most}), is less than the minimum, "
            f"{_limit_text(kind, minimum)} ({least}): raise the maximum, or lower the minimum."
        )
    return RetentionPolicy(kind, minimum, maximum)


def scaling_text(policy: ScalingPolicy) -> str:
    """When a stream is scaled, for users."""
    if policy.kind == "fixed":
        return f"fixed; at least {counted(policy.min_segments, 'segment')}"
    rate = policy.target_rate
    text = size_text(rate * 1024) if policy.kind == "bytes" else counted(rate, "event")
    return f"segments above {text}/s are split into {policy.scale_factor}; at least {policy.min_segments}"


def retention_text(policy: RetentionPolicy | None) -> str:
    """What a stream keeps, for users."""
    if policy is None:
        return "none: everything is kept"
    limits = [f"at least {_limit_text(policy.kind, policy.limit)}"]
    limits += [f"at most {_limit_text(policy.kind, policy.maximum)}"] if policy.maximum is not None else []
    return ", ".join(limits)


def not_applied(
    scaling: ScalingPolicy | None,
    retention: RetentionPolicy | None,
    present: tuple[ScalingPolicy, RetentionPolicy | None],
) -> Iterator[str]:
    """The policies given for a new stream that differ from those of the stream, which exists already: what it has.

    scaling, retention: None if none was given. present: those of the stream.
    """
    if scaling is not None and scaling != present[0]:
        yield f"its scaling policy is: {scaling_text(present[0])}"
    if retention is not None and retention != present[1]:
        yield f"its retention policy is: {retention_text(present[1])}"


def _limit_text(kind: str, limit: int) -> str:
    return size_text(limit) if kind == "size" else duration_text(limit / 1000)


def _plain(value: Any) -> Any:
    """NumPy numbers, and strings of subclasses, as Python's own types, so that a policy can be stored."""
    return str.__str__(value) if isinstance(value, str) else as_number(value)


def _check_number(what: str, value: object, least: int, most: int) -> None:
    number = as_number(value)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        wanted = f"{least}" if least == most else f"a whole number from {least} to {most}"
        raise ValueError(f"{what} must be {wanted}, not {value!r}")


ONE_SEGMENT = ScalingPolicy()
"""The policy of a stream for which none was given."""
