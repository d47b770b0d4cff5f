"""What options say of several streams: their names, a pattern that names match, and a place in each of them.

Places are kept as the text of a JSON object from a stream's name to a keyword, a cut's text, or a time (milliseconds
since 1970, as an integer).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from pravega_spark.quantities import parse_time
from pravega_spark.streams.model.names import validate_stream_name


def stream_names(text: str) -> str:
    """Option `stream`, each name once. Raises ValueError for a list with a name that no stream has."""
    if "," not in text:
        return text
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name:
            raise ValueError(f"Option 'stream' has an empty name in its list: {text!r}. Remove the comma too many.")
        try:
            validate_stream_name(name)
        except ValueError as error:
            raise ValueError(f"Option 'stream': {error}") from None
    return ",".join(dict.fromkeys(names))


def pattern_of(text: str) -> str:
    """Option `stream_pattern`, checked. Raises ValueError."""
    try:
        if text:
            re.compile(text)
            return text
        problem = "it is empty"
    except re.error as error:
        problem = str(error)
    raise ValueError(
        f"Option 'stream_pattern' must be a regular expression for names of streams, not {text!r}: {problem}."
    )


def is_by_stream(text: str | None) -> bool:
    """Whether an option gives a place for each stream."""
    return text is not None and text.startswith("{")


def cuts_by_stream(name: str, text: str, one_cut: Callable[[str, str], str]) -> str:
    """Option `name`, a JSON object of places, checked, and in the form in which it is kept. Raises ValueError.

    one_cut: checks what is no time, given where it stands and the text.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"Option {name!r} begins as a JSON object, but is none: write it as "
            '{"a": "earliest", "b": "2026-01-31"}, with a place for each stream.'
        ) from None
    return json.dumps(
        {stream: _place(f"Option {name!r}, stream {stream!r}", given[stream], one_cut) for stream in given}
    )


def _place(what: str, place: object, one_cut: Callable[[str, str], str]) -> str | int:
    if isinstance(place, bool) or not isinstance(place, str | int) or place == "":
        raise ValueError(f"{what}: {place!r} is no place: give a keyword, a cut's text, or a time, as a text.")
    try:
        return parse_time(place)
    except ValueError:
        return one_cut(what, str(place).strip())


def places_of(text: str) -> dict[str, str | int]:
    """The places of an option that was checked, by stream."""
    places: dict[str, str | int] = json.loads(text)
    return places
