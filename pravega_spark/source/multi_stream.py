"""Options of a read of several streams: their names, a pattern for names, and a position in each stream.

Positions are kept as the text of a JSON object from stream names to a keyword, a cut's text, or a time (milliseconds
since 1970, as an integer).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from pravega_spark.quantities import parse_time
from pravega_spark.streams.model.names import validate_stream_name


def checked_names(text: str) -> str:
    """Option `stream`, each name once. Raises ValueError for a list with an invalid name."""
    if "," not in text:
        return text
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name:
            raise ValueError(f"Option 'stream' has an empty name in its list: {text!r}. Remove the extra comma.")
        try:
            validate_stream_name(name)
        except ValueError as error:
            raise ValueError(f"Option 'stream': {error}") from None
    return ",".join(dict.fromkeys(names))


def checked_pattern(text: str) -> str:
    """Option `stream_pattern`. Raises ValueError for an invalid one."""
    try:
        if text:
            re.compile(text)
            return text
        problem = "it is empty"
    except re.error as error:
        problem = str(error)
    raise ValueError(f"Option 'stream_pattern' must be a regular expression for stream names, not {text!r}: {problem}.")


def is_per_stream(text: str | None) -> bool:
    """Whether an option gives a position for each stream."""
    return text is not None and text.startswith("{")


def checked_positions(name: str, text: str, check_cut: Callable[[str, str], str]) -> str:
    """Option `name`, a JSON object of positions, in the form in which it is kept. Raises ValueError for an invalid one.

    check_cut: checks a position that is not a time; it gets a description of the option for errors, and the text.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"Option {name!r} begins like a JSON object, but is not valid JSON: write it as "
            '{"a": "earliest", "b": "2026-01-31"}, with a position for each stream.'
        ) from None
    return json.dumps(
        {stream: _position(f"Option {name!r}, stream {stream!r}", given[stream], check_cut) for stream in given}
    )


def _position(what: str, value: object, check_cut: Callable[[str, str], str]) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{what}: {value!r} is not a position: give a keyword, a cut's text, or a time, as a string.")
    try:
        return parse_time(value)
    except ValueError:
        return check_cut(what, str(value).strip())


def positions_of(text: str) -> dict[str, str | int]:
    """The position of each stream in an option that was checked."""
    positions: dict[str, str | int] = json.loads(text)
    return positions
