"""The policies of a stream in the JSON of Pravega's controller, and back (ModelHelper).

A policy that comes from JSON and goes back is the same, except that Pravega's JSON knows whole MiB and whole minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pravega_spark.serve.schemas import Unfit
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import StreamRecord

_MIB = 1 << 20
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000  # milliseconds

_KINDS: Mapping[str, Literal["fixed", "bytes", "events"]] = {
    "FIXED_NUM_SEGMENTS": "fixed",
    "BY_RATE_IN_KBYTES_PER_SEC": "bytes",
    "BY_RATE_IN_EVENTS_PER_SEC": "events",
}
_TYPES = {kind: name for name, kind in _KINDS.items()}


def stream_property(scope: str, stream: str, record: StreamRecord) -> dict[str, Any]:
    """A stream as Pravega's StreamProperty."""
    found: dict[str, Any] = {
        "scopeName": scope,
        "streamName": stream,
        "scalingPolicy": _scaling_config(record.scaling),
        "tags": list(record.tags),
        "timestampAggregationTimeout": 0,
        "rolloverSizeBytes": 0,
    }
    if record.retention is not None:
        found["retentionPolicy"] = _retention_config(record.retention)
    return found


def scaling_of(config: Mapping[str, Any]) -> ScalingPolicy:
    """The policy of a ScalingConfig. Raises ValueError for numbers that no policy has."""
    kind, segments = _KINDS[config["type"]], config.get("minSegments", 1)
    if kind == "fixed":
        return ScalingPolicy.fixed_scaling_policy(segments)
    return ScalingPolicy(kind, segments, config.get("targetRate", 0), config.get("scaleFactor", 0))


def retention_of(config: Mapping[str, Any]) -> RetentionPolicy:
    """The policy of a RetentionConfig. Raises ValueError for limits that no policy has."""
    if config["type"] == "LIMITED_SIZE_MB":
        if "value" not in config:
            raise Unfit("retentionPolicy has no value: give the MiB to keep")
        most = config.get("maxValue")
        return RetentionPolicy("size", config["value"] * _MIB, None if most is None else most * _MIB)
    least = _milliseconds(config, "value", "timeBasedRetention")
    if least is None:
        raise Unfit("retentionPolicy has neither value nor timeBasedRetention: give the time to keep")
    return RetentionPolicy("time", least, _milliseconds(config, "maxValue", "maxTimeBasedRetention"))


def tags_of(body: Mapping[str, Any]) -> list[str] | None:
    """The tags of a request; None without any member for them."""
    return list(body["streamTags"]) if "streamTags" in body else None


def without_effect(body: Mapping[str, Any]) -> list[str]:
    """The members of a request for a stream that have a value, and no effect here."""
    return [name for name in ("timestampAggregationTimeout", "rolloverSizeBytes") if body.get(name)]


def _scaling_config(policy: ScalingPolicy) -> dict[str, Any]:
    rates = {} if policy.kind == "fixed" else {"targetRate": policy.target_rate, "scaleFactor": policy.scale_factor}
    return {"type": _TYPES[policy.kind], **rates, "minSegments": policy.min_segments}


def _retention_config(policy: RetentionPolicy) -> dict[str, Any]:
    if policy.kind == "size":
        most = {} if policy.maximum is None else {"maxValue": policy.maximum // _MIB}
        return {"type": "LIMITED_SIZE_MB", "value": policy.limit // _MIB, **most}
    found = {"type": "LIMITED_DAYS", **_time_members(policy.limit, "value", "timeBasedRetention")}
    if policy.maximum is not None:
        found |= _time_members(policy.maximum, "maxValue", "maxTimeBasedRetention")
    return found


def _time_members(milliseconds: int, whole: str, parts: str) -> dict[str, Any]:
    """A time as Pravega has it: in days if it is some, and always in its parts."""
    days, rest = divmod(milliseconds, _DAY)
    hours, minutes = rest // _HOUR, rest % _HOUR // _MINUTE
    return {whole: 0 if rest else days, parts: {"days": days, "hours": hours, "minutes": minutes}}


def _milliseconds(config: Mapping[str, Any], whole: str, parts: str) -> int | None:
    """A time that is given in days, or, if these are 0, in parts. None if neither is given."""
    days, times = config.get(whole), config.get(parts)
    if times is not None and not days:
        parted: int = times.get("days", 0) * _DAY + times.get("hours", 0) * _HOUR + times.get("minutes", 0) * _MINUTE
        return parted
    return None if days is None else days * _DAY
