"""The options of a read or write as they were given: found by name in any spelling, converted as the table says.

No error, repr or log holds the value of a `storage.` option.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from chunkstore.urls import redact
from pravega_spark.quantities import DURATIONS, SIZES, parse_milliseconds, parse_size, parse_time
from pravega_spark.source.option_table import (
    BY_NAME,
    BY_NAME_OF_OTHERS,
    BY_PLAIN_NAME,
    MAX_INT64,
    OF_SPARK,
    STORAGE_PREFIX,
    TABLE_PREFIX,
    WHERE,
    WRITES,
    Option,
    OptionType,
    Use,
    plain,
    refused_of_others,
    spelling,
    told_of_others,
)
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

log = logging.getLogger(__name__)

_NO_LIKE_IT = "No option here has a name like it: remove it, or look it up in the table of Spark options."


class GivenOptions:
    """The options as they came: looked up by name, whatever their spelling, and converted to a type."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.storage: dict[str, Any] = {}
        self._values: dict[str, str] = {}
        self._unknown: list[str] = []
        of_table = {key.lower() for key in options if key.lower().startswith(TABLE_PREFIX)}
        for key, value in options.items():
            # Spark lower-cases all keys on their way here, so the case of a storage option's name cannot matter.
            if key.lower().startswith(STORAGE_PREFIX):
                self._keep_storage_option(key.lower().removeprefix(STORAGE_PREFIX), value)
            elif key.lower() in of_table:
                pass  # a table's options come twice, once with this prefix
            elif (option := BY_PLAIN_NAME.get(plain(key))) is None:
                if not of_table or f"{TABLE_PREFIX}{key.lower()}" in of_table:  # others are the table's properties
                    self._unknown.append(key)
            elif self._values.setdefault(option.name, value) != value:
                raise ValueError(f"Option {option.name!r} is given twice with different values: keep one.")
        if "paths" in self._unknown:
            raise ValueError("Several paths were given: streams have one root, so give one path.")
        for key in self._unknown:
            if (refusal := refused_of_others(key)) is not None:
                raise ValueError(refusal)

    def text(self, name: str) -> str | None:
        """The option as it was given."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._values

    def required(self, *names: str, rooted: bool, use: Use | None = None) -> list[str]:
        """These options as they were given; an error that begins as the original connector's, and names all at once.

        rooted: whether the root is known. use: what for, if that is known.
        """
        values = [self.text(name) or "" for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if not value]
        if not missing:
            return values
        missing += [] if rooted else ["controller"]
        more = f", and {' and '.join(map(repr, missing[1:]))} as well" if len(missing) > 1 else ""
        advice = self._of_path(missing) or self._of_others(missing) or self.nearly(missing)
        if "stream" in missing and use in WRITES:
            advice += f"{'' if advice.endswith('?') else '.'} Or give the rows a column 'stream' that names it"
        raise ValueError(f"Missing required option '{missing[0]}'{more}{advice}")

    def _of_others(self, missing: list[str]) -> str:
        """What follows where options of other sources were given in the place of those that are missing."""
        found = [(key, BY_NAME_OF_OTHERS.get(plain(key))) for key in self._unknown]
        told = [f"option {spelling(key)!r} is {ours!r} here" for key, ours in found if ours in missing]
        return f": {', '.join(told)}" if told else ""

    def nearly(self, missing: Sequence[str]) -> str:
        """What follows where options were given whose names are like those of some that are missing."""
        near = [(key, _nearest(plain(key), missing)) for key in self._unknown if plain(key) not in OF_SPARK]
        told = [f"{key!r} is given. Did you mean {name!r}?" for key, name in near if name is not None]
        return f": {' '.join(told)}" if told else ""

    def _of_path(self, missing: list[str]) -> str:
        """What follows where the path may name the stream too."""
        path = self.text("path") or ""
        parts = path.rstrip("/").split("/")
        if missing != ["scope", "stream"] or len(parts) < 3 or redact(path) != path:
            return ""
        try:
            scope, stream = validate_scope_name(parts[-2]), validate_stream_name(parts[-1])
        except ValueError:
            return ""
        return (
            f": the path is the root of the streams. If it ends in stream {stream!r} of scope {scope!r}, remove both "
            f"from it and set option 'scope' to {scope!r} and option 'stream' to {stream!r}"
        )

    def number(self, name: str) -> int | None:
        """An integer within the option's limits, or its default; None if it has neither. Sizes are bytes, durations
        milliseconds."""
        option = BY_NAME[name]
        text = self._values.get(name, option.default_for())
        if text is None:
            return None
        value = _number(text, option.type)
        if value is not None and option.least <= value <= option.most:
            return value
        too_small = value is not None and value < option.least and option.too_small
        original = too_small or option.message  # the original connector's words, which programs look for
        hint = f"{_WRITTEN[option.type]}." if option.type in _WRITTEN else ""
        told = f"Option {name!r} must be {_wanted(option, value)}, not {_shown(text)}."
        raise ValueError(" ".join(filter(None, (told, hint, original))))

    def size(self, name: str) -> int:
        """An integer that has a default."""
        value = self.number(name)
        assert value is not None
        return value

    def flag(self, name: str, use: Use = "batch read") -> bool:
        """A boolean. use: whose default counts, if defaults differ."""
        text = self._values.get(name, BY_NAME[name].default_for(use))
        if text is None or text.lower() not in ("true", "false"):
            raise ValueError(f"Option {name!r} must be true or false, not {_shown(text)}.")
        return text.lower() == "true"

    def choice(self, name: str) -> str:
        """One of the option's choices, in any case."""
        option = BY_NAME[name]
        text = self._values.get(name, option.default_for())
        if text is None or text.lower() not in option.choices:
            raise ValueError(f"Option {name!r} must be one of {', '.join(option.choices)}, not {_shown(text)}.")
        return text.lower()

    def time(self, name: str) -> int | None:
        """Milliseconds since the epoch, None if it was not given. Finer fractions are cut off."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_time(text)
        except ValueError as error:
            raise ValueError(f"Option {name!r}: {error}.") from None

    def warn_of_unknown(self) -> None:
        """Log which options are ignored, and what to give instead: none of a user's is dropped without a word."""
        for key in self._unknown:
            if plain(key) in OF_SPARK:
                continue
            instead = told_of_others(key)
            if instead is not None:
                log.warning("Option %r is of another source and is ignored. %s", spelling(key), instead)
                continue
            near = _nearest(plain(key))
            advice = _NO_LIKE_IT if near is None else f"Did you mean {near!r}?"
            log.warning("Unknown option %r is ignored. %s", key, advice)

    def warn_of_no_effect(self, use: Use) -> None:
        """Log which options are for other uses than this one, and for which."""
        for name in self._values:
            uses = BY_NAME[name].uses
            if use not in uses:
                others = " and ".join(WHERE[each] for each in uses)
                told = "Option %r has no effect in %s: it is for %s. Remove it here."
                log.warning(told, name, WHERE[use], others)

    def _keep_storage_option(self, name: str, text: str) -> None:
        if not name:
            raise ValueError("Option 'storage.' needs a name after the dot, as in storage.endpoint_url.")
        value = _json_or_text(text)
        if name in self.storage and self.storage[name] != value:
            raise ValueError(f"Option 'storage.{name}' is given twice with different values: keep one.")
        self.storage[name] = value


def _json_or_text(text: str) -> Any:
    def refuse(_: str) -> None:
        raise ValueError  # NaN and Infinity are Python's addition to JSON

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


_WRITTEN: Mapping[OptionType, str] = {"size": SIZES, "duration": DURATIONS}
_NOUNS: Mapping[OptionType, tuple[str, str]] = {"size": ("size", " bytes"), "duration": ("duration", " ms")}


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 40 else f"{text[:40]}…")


def _nearest(name: str, among: Collection[str] = BY_PLAIN_NAME) -> str | None:
    """The option that a name, in plain spelling, is most like, or is a part of. among: the plain names of some."""
    parts = [each for each in among if name in each] if len(name) > len("scope") else []
    near = difflib.get_close_matches(name, among, n=1) or parts
    return BY_PLAIN_NAME[near[0]].name if near else None


def _wanted(option: Option, value: int | None) -> str:
    """What the value of a numeric option has to be; the largest is only told where it is exceeded."""
    noun, unit = _NOUNS.get(option.type, ("whole number", ""))
    if option.most < MAX_INT64 or (value is not None and value > option.most):
        return f"a {noun} from {option.least} to {option.most}{unit}"
    one = option.least == 1 and unit.endswith("bytes")
    return f"a {noun} of {option.least}{unit.removesuffix('s') if one else unit} or more"


def _number(text: str, kind: OptionType) -> int | None:
    """The integer that an option's text stands for, None for anything else."""
    with suppress(ValueError):
        if kind == "size":
            return parse_size(text)
        if kind == "duration":
            return parse_milliseconds(text)
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
