"""Reads the options of a read or write: finds each by its name in any spelling, and converts it to the table's type.

No error, repr or log holds the value of a `storage.` option.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from chunkstore.similarity import suggest
from chunkstore.urls import redact
from pravega_spark.quantities import DURATIONS, SIZES, parse_milliseconds, parse_size, parse_time
from pravega_spark.source.option_table import (
    BY_NAME,
    BY_PLAIN_NAME,
    FOREIGN_HINTS_BY_NAME,
    MAX_INT64,
    RANGE_ENDS,
    SPARK_OPTIONS,
    STORAGE_PREFIX,
    TABLE_PREFIX,
    USUAL_STORAGE_OPTIONS,
    WHERE,
    WRITES,
    Option,
    OptionType,
    Use,
    foreign_option_hint,
    foreign_option_refusal,
    plain,
    spelling,
)
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

log = logging.getLogger(__name__)

_NOTHING_SIMILAR = "No option has a similar name: remove it, or look it up in the table of Spark options."


class OptionReader:
    """The given options by name, in whatever spelling. Its methods convert them to a type, and check them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.storage: dict[str, Any] = {}
        self._values: dict[str, str] = {}
        self._unknown: list[str] = []
        table_options = {key.lower() for key in options if key.lower().startswith(TABLE_PREFIX)}
        for key, value in options.items():
            # Spark lower-cases all keys on their way here, so the case of a storage option's name cannot matter.
            if key.lower().startswith(STORAGE_PREFIX):
                self._keep_storage_option(key.lower().removeprefix(STORAGE_PREFIX), value)
            elif key.lower() in table_options:
                pass  # Spark passes a table's options twice, once with this prefix
            elif (option := BY_PLAIN_NAME.get(plain(key))) is None:
                if not table_options or f"{TABLE_PREFIX}{key.lower()}" in table_options:  # else a property of the table
                    self._unknown.append(key)
            elif self._values.setdefault(option.name, value) != value:
                raise ValueError(f"Option {option.name!r} is given twice with different values: keep one.")
        if "paths" in self._unknown:
            raise ValueError("Several paths were given: give one path, the root of the streams.")
        for key in self._unknown:
            if (refusal := foreign_option_refusal(key)) is not None:
                raise ValueError(refusal)
            if plain(key) not in SPARK_OPTIONS and foreign_option_hint(key) is None:
                self._refuse_typo_of_range(key)

    @staticmethod
    def _refuse_typo_of_range(key: str) -> None:
        """Raise ValueError for an unknown option that is probably one which chooses the events to read."""
        meant = _similar(plain(key))
        if meant in RANGE_ENDS:
            raise ValueError(
                f"Unknown option {key!r}: did you mean {meant!r}? If it were ignored, other events would be read."
            )

    def text(self, name: str) -> str | None:
        """The option as it was given."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._values

    def required(self, *names: str, rooted: bool, use: Use | None = None) -> list[str]:
        """These options as they were given. Raises ValueError for missing ones: it names all of them, and begins with
        the words of the original connector's error.

        rooted: whether the root is known. use: that of the options, if it is known.
        """
        values = [self.text(name) or "" for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if not value]
        if not missing:
            return values
        missing += [] if rooted else ["controller"]
        more = f", and {' and '.join(map(repr, missing[1:]))} as well" if len(missing) > 1 else ""
        advice = self._path_hint(missing) or self._stream_hint(missing)
        advice = advice or self._foreign_hint(missing) or self.similar_hint(missing)
        advice = advice or f": give {'it' if len(missing) == 1 else 'them'}, as in .option({missing[0]!r}, '…')"
        if "stream" in missing and use in WRITES:
            advice += f"{'' if advice.endswith('?') else '.'} Or give the rows a column 'stream' that names it"
        raise ValueError(f"Missing required option '{missing[0]}'{more}{advice}")

    def _foreign_hint(self, missing: list[str]) -> str:
        """The end of the error if options of other sources were given instead of the missing ones."""
        found = [(key, FOREIGN_HINTS_BY_NAME.get(plain(key))) for key in self._unknown]
        hints = [f"option {spelling(key)!r} is {name!r} here" for key, name in found if name in missing]
        return f": {', '.join(hints)}" if hints else ""

    def similar_hint(self, missing: Sequence[str]) -> str:
        """The end of the error if options with names similar to those of missing ones were given."""
        similar = [(key, _similar(plain(key), missing)) for key in self._unknown if plain(key) not in SPARK_OPTIONS]
        hints = [f"{key!r} is given. Did you mean {name!r}?" for key, name in similar if name is not None]
        return f": {' '.join(hints)}" if hints else ""

    def _path_hint(self, missing: list[str]) -> str:
        """The end of the error if the path may name the stream too."""
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

    def _stream_hint(self, missing: list[str]) -> str:
        """The end of the error if the stream was given as scope/stream, as on the command line."""
        parts = (self.text("stream") or "").split("/")
        if missing[0] != "scope" or len(parts) != 2:
            return ""
        try:
            scope, stream = validate_scope_name(parts[0]), validate_stream_name(parts[1])
        except ValueError:
            return ""
        return f": set option 'scope' to {scope!r} and option 'stream' to {stream!r}, instead of both in one"

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
        original = too_small or option.message  # the original connector's words, which programs may look for
        hint = f"{_WRITTEN[option.type]}." if option.type in _WRITTEN else ""
        error = f"Option {name!r} must be {_wanted(option, value)}, not {_shown(text)}."
        raise ValueError(" ".join(filter(None, (error, hint, original))))

    def value(self, name: str) -> Any:
        """A boolean, a choice or an integer, as the option's type says."""
        kind = BY_NAME[name].type
        return self.flag(name) if kind == "boolean" else self.choice(name) if kind == "choice" else self.number(name)

    def flag(self, name: str, use: Use = "batch read") -> bool:
        """A boolean. use: the use whose default applies, if uses have different defaults."""
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
        """Milliseconds since the epoch, None if it was not given. Smaller fractions are cut off."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_time(text)
        except ValueError as error:
            raise ValueError(f"Option {name!r}: {error}.") from None

    def warn_of_unknown(self) -> None:
        """Log each ignored option as a warning, with what to give instead."""
        for key in self._unknown:
            if plain(key) in SPARK_OPTIONS:
                continue
            hint = foreign_option_hint(key)
            if hint is not None:
                log.warning("Option %r belongs to another source and is ignored. %s", spelling(key), hint)
                continue
            similar = _similar(plain(key)) or _as_storage_option(plain(key))
            advice = _NOTHING_SIMILAR if similar is None else f"Did you mean {similar!r}?"
            log.warning("Unknown option %r is ignored. %s", key, advice)

    def warn_of_no_effect(self, use: Use) -> None:
        """Log each option that has no effect in this use, with the uses that it is for."""
        for name in self._values:
            uses = BY_NAME[name].uses
            if use not in uses:
                others = " and ".join(WHERE[each] for each in uses)
                log.warning("Option %r has no effect in %s: it is for %s. Remove it here.", name, WHERE[use], others)

    def _keep_storage_option(self, name: str, text: str) -> None:
        if not name:
            raise ValueError("Option 'storage.' needs a name after the dot, as in storage.endpoint_url.")
        value = _json_or_text(text)
        if name in self.storage and self.storage[name] != value:
            raise ValueError(f"Option 'storage.{name}' is given twice with different values: keep one.")
        self.storage[name] = value


def _json_or_text(text: str) -> Any:
    def refuse(_: str) -> None:
        raise ValueError  # NaN and Infinity are no JSON, but Python accepts them

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


_WRITTEN: Mapping[OptionType, str] = {"size": SIZES, "duration": DURATIONS}
_NOUNS: Mapping[OptionType, tuple[str, str]] = {"size": ("size", " bytes"), "duration": ("duration", " ms")}


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 40 else f"{text[:40]}…")


def _similar(name: str, among: Collection[str] = BY_PLAIN_NAME) -> str | None:
    """The option most similar to a name in plain spelling, or that contains it. among: plain names of options."""
    parts = [each for each in among if name in each] if len(name) > len("scope") else []
    found = suggest(name, among, most=1) or parts
    return BY_PLAIN_NAME[found[0]].name if found else None


def _as_storage_option(name: str) -> str | None:
    """The storage option that is meant by a name in plain spelling that lacks the prefix."""
    return next((STORAGE_PREFIX + each for each in USUAL_STORAGE_OPTIONS if plain(each) == name), None)


def _wanted(option: Option, value: int | None) -> str:
    """What the value of a numeric option must be; with the maximum only if the value exceeds it."""
    noun, unit = _NOUNS.get(option.type, ("whole number", ""))
    if option.most < MAX_INT64 or (value is not None and value > option.most):
        return f"a {noun} from {option.least} to {option.most}{unit}"
    one = option.least == 1 and unit.endswith("bytes")
    return f"a {noun} of {option.least}{unit.removesuffix('s') if one else unit} or more"


def _number(text: str, kind: OptionType) -> int | None:
    """The integer in an option's text, None if it has none."""
    with suppress(ValueError):
        if kind == "size":
            return parse_size(text)
        if kind == "duration":
            return parse_milliseconds(text)
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
