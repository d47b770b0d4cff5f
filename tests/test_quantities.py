"""Times, durations and sizes: what people write, and that what is shown can be given back."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

from pravega_spark.quantities import (
    DurationLike,
    SizeLike,
    TimeLike,
    count_text,
    counted,
    duration_text,
    moment_text,
    parse_milliseconds,
    parse_seconds,
    parse_size,
    parse_time,
    size_text,
)

NOW = 1_700_000_000.5


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("0", 0),
        (7, 7),
        ("1700000000007", 1_700_000_000_007),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 01:00:00.250+01:00", 250),
        ("1969-12-31T23:59:59Z", -1000),
        ("2026-07-01 12:00 Europe/Berlin", 1_782_900_000_000),
        ("2026-07-01T12:00 America/Argentina/Salta", 1_782_918_000_000),
        (datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2))), 1_782_900_000_000),
        ("now", 1_700_000_000_500),
        ("-5m", 1_699_999_700_500),
        ("5m", 1_699_999_700_500),
        ("5 minutes ago", 1_699_999_700_500),
        ("5 Minutes", 1_699_999_700_500),
        ("2h", 1_699_992_800_500),
        ("1d12h ago", 1_699_870_400_500),
    ],
)
def test_times(given: TimeLike, found: int) -> None:
    assert parse_time(given, NOW) == found


@pytest.mark.parametrize(
    "given",
    [
        "",
        "-5",
        "+5m",
        "1e3",
        "٣",
        "12:00",
        "tomorrow",
        "5 minutes hence",
        "5x",
        "2026-02-30",
        "2026-01-01 Mars/Base",
        "2026-01-01T12:00 ../etc/passwd",
        "2026-01-01T12",
        "9" * 19,
        "5m" * 100,
        True,
        datetime(2026, 1, 1),
    ],
)
def test_no_times(given: TimeLike) -> None:
    with pytest.raises(ValueError, match=r"is not a time: give ISO 8601|has no zone"):
        parse_time(given, NOW)


def test_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert parse_time("1970-01-01 05:30 local") == parse_time("1970-01-01") == 0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("90", 90),
        (0.2, 0.2),
        ("0.2", 0.2),
        (1e-05, 1e-05),
        ("500ms", 0.5),
        ("1h", 3600),
        ("1h30m", 5400),
        ("7 days", 604800),
        ("1.5 h", 5400),
        ("2w", 1209600),
        (timedelta(minutes=5), 300),
        ("1 h 30 min", 5400),
    ],
)
def test_durations(given: DurationLike, seconds: float) -> None:
    assert parse_seconds(given) == pytest.approx(seconds)


def test_a_plain_number_is_in_the_unit_of_its_name() -> None:
    assert parse_milliseconds("1500") == parse_milliseconds(1500) == parse_milliseconds("1.5s") == 1500
    assert parse_milliseconds(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("given", ["", "h", "5 parsecs", "1h 5", "5m ago", "inf", "nan", "1_0", "٣", True, "1h" * 99])
def test_no_durations(given: DurationLike) -> None:
    with pytest.raises(ValueError, match=r"is not a duration. Durations are written as 500ms, 90s"):
        parse_seconds(given)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("10485760", 10485760),
        (5, 5),
        ("10MB", 10000000),
        ("10MiB", 10 << 20),
        ("10 mib", 10 << 20),
        ("1B", 1),
        ("1.5GiB", 3 << 29),
        ("2kb", 2000),
        ("1TiB", 1 << 40),
        ("+7", 7),
    ],
)
def test_sizes(given: SizeLike, size: int) -> None:
    assert parse_size(given) == size


@pytest.mark.parametrize("given", ["", "10M", "10m", "1.5", "1_000", " 1", "MiB", "1e3", "٣", "9" * 20, True, None])
def test_no_sizes(given: SizeLike) -> None:
    with pytest.raises(ValueError, match=r"is not a size. Sizes are written as 10485760, 10MB .* or 10MiB"):
        parse_size(given)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (10 << 20, "10 MiB"),
        (120000000, "114 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (1 << 60, "1024 PiB"),
    ],
)
def test_sizes_as_they_are_shown(size: int, text: str) -> None:
    assert size_text(size) == text
    assert parse_size(text) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.2, "0.2 s"),
        (59.5, "59.5 s"),
        (60, "1 min"),
        (1800, "30 min"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86400, "1 d"),
        (90061, "1 d 1 h"),
        (400 * 86400, "400 d"),
    ],
)
def test_durations_as_they_are_shown(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert parse_seconds(text) == pytest.approx(seconds, rel=0.05)


def test_counts_and_times_as_they_are_shown() -> None:
    assert count_text(1234567) == "1,234,567"
    assert moment_text(1_700_000_000_500) == "2023-11-14 22:13:20 UTC"


# --- what is counted -----------------------------------------------------------------------------------------------

PACKAGE = Path(__file__).parents[1] / "pravega_spark"
NO_PLURALS = {
    *("has", "is", "was", "its", "does", "exists", "shows", "changes", "replaces", "needs", "requires", "this"),
}
"""Words that end in s and may stand behind a value that is no count."""

OTHERS = {"of", "to", "in", "at", "and", "would", "will", "by", "lies", "from", "that"}
"""Words behind which no noun belongs to the value."""


def test_counted_nouns_have_the_number_of_their_count() -> None:
    found = [counted(number, "event") for number in (0, 1, 2, 1000)]
    assert found == ["0 events", "1 event", "2 events", "1,000 events"]
    assert counted(1, "idle upload") == "1 idle upload"


def counts(source: str) -> Iterator[str]:
    """What follows the values in a source's texts, if that may be a noun in the plural."""
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, after in pairwise(parts):
            if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant):
                words = str(re.match(r"(?: [a-z]+){0,3}", str(after.value))[0])  # type: ignore[index]
                nouns = takewhile(lambda word: word not in NO_PLURALS | OTHERS, words.split())
                if any(word.endswith("s") for word in nouns):
                    yield f"{{{ast.unparse(before.value)}}}{words}"


@pytest.mark.parametrize("wing", ["cli", "jobs", "console"])
def test_programs_count_with_the_one_function(wing: str) -> None:
    """A count and its noun come from `counted`: else there is "1 errors" some day."""
    assert [*counts('f"{n} errors and more"')] == ["{n} errors and more"]
    assert not [*counts('f"{name} has events, {n} of them are here"')]
    found = {path.name: [*counts(path.read_text("utf-8"))] for path in sorted((PACKAGE / wing).rglob("*.py"))}
    assert {name: texts for name, texts in found.items() if texts} == {}
