"""Parses and formats times, durations and sizes.

Spark's options, the command line and the Python API share these formats. Formatted values can be parsed again.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo

from pravega_spark.parameters import as_number

TIMES = (
    "ISO 8601, as 2026-01-31T12:00:00Z (UTC unless it names another zone), a time ago, as 5m or '5 minutes ago', now, "
    "or milliseconds since the epoch"
)
"""The formats of a time, for errors and help texts."""

DURATIONS = "Durations are written as 500ms, 90s, 30m, 1h30m, 7d or 2w"
SIZES = "Sizes are written as 10485760, 10MB (1000 × 1000 bytes each) or 10MiB (1024 × 1024)"

_LONGEST = 100  # characters of any of them
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_DURATION_UNITS = {
    ("ms", "millisecond", "milliseconds"): 1,
    ("s", "sec", "secs", "second", "seconds"): 1000,
    ("m", "min", "mins", "minute", "minutes"): 60_000,
    ("h", "hr", "hrs", "hour", "hours"): 3_600_000,
    ("d", "day", "days"): 86_400_000,
    ("w", "week", "weeks"): 7 * 86_400_000,
}
_MILLISECONDS = {name: length for names, length in _DURATION_UNITS.items() for name in names}
_BYTES = {"b": 1, "byte": 1, "bytes": 1}
_BYTES |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)}
_BYTES |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)}

_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,2})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_AMOUNT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([a-z]+)")
_AMOUNTS = re.compile(rf"{_AMOUNT.pattern}(?: ?{_AMOUNT.pattern})*")
_ISO_8601 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?"
    r"(?:(Z)|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?| ?(local|[a-z_]+(?:/[a-z0-9_+\-]+)*))?",
    re.IGNORECASE,
)


def time_text(milliseconds: int) -> str:
    """A time (ms since the epoch) as ISO 8601, in UTC; the number itself if that is no date."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"


# --- parsing -------------------------------------------------------------------------------------------------------


def parse_time(value: str | int | datetime, now: float | None = None) -> int:
    """Milliseconds since the epoch; smaller fractions are cut off. ValueError for anything else.

    Texts: a date or a time as ISO 8601, in UTC unless a zone follows it (`Z`, `+02:00`, `Europe/Berlin`, or `local`,
    that of this machine); a time ago (`5m`, `-5m`, `5 minutes ago`); `now`; milliseconds since the epoch. now: seconds
    since the epoch, to which relative times refer; by default this host's clock, which event times have too.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no zone: give it one, as with .astimezone()")
        return (value - _EPOCH) // timedelta(milliseconds=1)
    value = as_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) and len(value) <= _LONGEST else None
    found = None if text is None else _moment(text, time.time() if now is None else now)
    if found is None:
        raise ValueError(f"{_quoted(value)} is not a time: give {TIMES}")
    return found


def parse_milliseconds(value: str | int | float | timedelta, *, unit: bool = False) -> int:
    """A duration in whole milliseconds; a plain number is milliseconds. ValueError for anything else.

    unit: a text must have a unit, as "5" might be seconds, days or milliseconds.
    """
    if unit and isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value):
        raise ValueError(f"{_quoted(value)} has no unit. {DURATIONS}")
    return int(_duration(value, 1))


def parse_seconds(value: str | int | float | timedelta) -> float:
    """A duration in seconds; a plain number is seconds. ValueError for anything else."""
    return float(_duration(value, 1000)) / 1000


def parse_size(value: str | int) -> int:
    """A number of bytes. ValueError for anything else."""
    value = as_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    match = _AMOUNT.fullmatch(value.lower()) if isinstance(value, str) else None
    if match is None or match[2] not in _BYTES:
        raise ValueError(f"{_quoted(value)} is not a size. {SIZES}")
    return int(Decimal(match[1]) * _BYTES[match[2]])


def _duration(value: str | int | float | timedelta, plain: int) -> Decimal:
    """Milliseconds. plain: milliseconds per unit of a plain number."""
    if isinstance(value, timedelta):
        return Decimal(value // timedelta(microseconds=1)) / 1000
    value = as_number(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    if isinstance(value, str) and len(value) <= _LONGEST:
        if _PLAIN_NUMBER.fullmatch(value):
            return Decimal(value) * plain
        found = _amounts(value.lower())
        if found is not None:
            return found
    raise ValueError(f"{_quoted(value)} is not a duration. {DURATIONS}")


def _amounts(text: str) -> Decimal | None:
    """The milliseconds of `1h30m` or `1 hour 30 minutes`; None for anything else."""
    parts = _AMOUNT.findall(text) if _AMOUNTS.fullmatch(text) else []
    if not parts or any(unit not in _MILLISECONDS for _, unit in parts):
        return None
    return sum((Decimal(number) * _MILLISECONDS[unit] for number, unit in parts), Decimal())


def _moment(text: str, now: float) -> int | None:
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    if text.lower() == "now":
        return int(now * 1000)
    ago = _amounts(re.sub(r"^-| ago$", "", text.lower()))
    if ago is not None:
        return int(now * 1000) - int(ago)
    match = _ISO_8601.fullmatch(text)
    try:
        return None if match is None else _of_calendar(match)
    except (ValueError, OverflowError, KeyError, OSError):  # no such day, or no such zone
        return None


def _of_calendar(match: re.Match[str]) -> int:
    *calendar, fraction, _, sign, zone_hours, zone_minutes, zone = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, calendar)
    local = datetime(year, month, day, hour, minute, second, tzinfo=_zone(sign, zone_hours, zone_minutes, zone))
    whole = (local.astimezone() if zone.lower() == "local" else local) - _EPOCH
    return whole // timedelta(seconds=1) * 1000 + int(fraction.ljust(3, "0")[:3])


def _zone(sign: str, hours: str, minutes: str, name: str) -> tzinfo | None:
    """The time zone; None for this machine's."""
    if name != "0":
        return None if name.lower() == "local" else ZoneInfo(name)
    east = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-east if sign == "-" else east)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


TimeLike: TypeAlias = Annotated["str | int | datetime", parse_time]
"""A time: its text, milliseconds since the epoch, or a datetime with a zone."""

DurationLike: TypeAlias = Annotated["str | int | float | timedelta", parse_seconds]
"""A duration: its text, a number in the unit that the parameter's name has, or a timedelta."""

SizeLike: TypeAlias = Annotated["str | int", parse_size]
"""A size: its text, or bytes."""


# --- formatting ----------------------------------------------------------------------------------------------------


def count_text(number: int) -> str:
    """A number in groups of three digits: `1,234,567`."""
    return f"{number:,}"


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 event`, `1,000 events`. what: the singular."""
    return f"{count_text(number)} {plural(what, number)}"


def plural(what: str, number: int) -> str:
    """The noun for a number: `event` for 1, otherwise `events`."""
    return what if number == 1 else f"{what}s"


def size_text(size: int) -> str:
    """A size to three digits: `1 byte`, `999 bytes`, `1.5 KiB`, `10 MiB`."""
    if size == 1:
        return "1 byte"
    amount, units = float(size), ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    place = 0
    while abs(amount) >= 1023.5 and place + 1 < len(units):
        amount, place = amount / 1024, place + 1
    digits = 0 if place == 0 or abs(amount) >= 100 else 1
    return f"{amount:.{digits}f}".removesuffix(".0") + f" {units[place]}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `1 h 30 min`, `7 d`, `2.5 s`, `0 s`."""
    if abs(seconds) < 60:
        return f"{round(seconds, 3):g} s"
    left = round(abs(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append(f"{amount:,} {unit}" if amount else "")
    return ("-" if seconds < 0 else "") + " ".join(part for part in parts[:2] if part)


def moment_text(milliseconds: int) -> str:
    """A time (ms since the epoch) to the second, with its zone: `2026-01-31 12:00:00 UTC`."""
    try:
        return f"{_EPOCH + timedelta(seconds=milliseconds // 1000):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:  # outside the range of datetime
        return f"{milliseconds} ms since the epoch"
