"""Settings as users give them, by name, as texts or as values: those of a process, and those of a root that is new.

One form serves all places: `StreamManager(settings=…)`, Spark's option `settings`, `--setting`, and the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, get_type_hints

from chunkstore.similarity import suggest
from engine.errors import did_you_mean
from engine.settings import OF_ROOT, Settings, Unit
from engine.signatures import SETTING, SigningKey, is_key, signing_key
from pravega_spark.quantities import parse_seconds, parse_size

VARIABLE = "PRAVEGA_SETTINGS"
"""The environment variable with settings, as "name=value, name=value". What a program gives itself counts first."""

_FIXED = {name.removesuffix("_seconds"): name for name in OF_ROOT if name.endswith("_seconds")}
"""The fields of Settings that the root sets, and their names there."""


def parse_settings(given: str | Mapping[str, Any] | Settings, where: str = "settings") -> dict[str, Any]:
    """Settings by name. given: a text "name=value, name=value"; or values by name, which may be texts too.

    Sizes may have a unit (64MiB), and durations too (90s). where: what the error names. Raises ValueError for a name
    that is unknown or given twice, and for a value that is none of its setting.
    """
    if isinstance(given, Settings):
        return {name: value for name, value in asdict(given).items() if name not in _FIXED}
    pairs = list(given.items()) if isinstance(given, Mapping) else [_pair(each, where) for each in _parts(given)]
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{where}: {name!r} is given twice: keep one")
        found[name] = _value(name, value, where)
    return found


def opening(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Root.open` for settings as `parse_settings` returns them, and behind them the environment's.

    Raises ValueError for wrong ones in the environment.
    """
    found = {**parse_settings(os.environ.get(VARIABLE, ""), f"environment variable {VARIABLE}"), **given}
    of_root = {name: found.pop(name) for name in OF_ROOT if name in found}
    return {"settings": found, **of_root}


def key_for(given: Mapping[str, Any]) -> SigningKey | None:
    """The key that settings name, as `parse_settings` returns them, or the environment. Raises StorageRefused."""
    return signing_key(opening(given)["settings"].get(SETTING, ""))


@cache
def known_settings() -> Mapping[str, Unit | None]:
    """The settings that may be given, those of a root first; None for those that are true or false."""
    hints = get_type_hints(Settings, include_extras=True)
    units = {name: next(iter(getattr(hint, "__metadata__", ())), None) for name, hint in hints.items()}
    return {**OF_ROOT, **{name: unit for name, unit in units.items() if name not in _FIXED}}


def _parts(text: str) -> list[str]:
    return [part for each in text.split(",") if (part := each.strip())]


def _pair(text: str, where: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{where}: {text!r} is not NAME=VALUE, as in cache_bytes=256MiB")
    return name.strip(), value.strip()


def _value(name: str, value: Any, where: str) -> Any:
    known = known_settings()
    if name not in known:
        similar = did_you_mean([_FIXED[name]] if name in _FIXED else suggest(name, known))
        raise ValueError(f"{where}: there is no setting {name!r}.{similar or ' docs/settings.md lists them'}")
    try:
        if (unit := known[name]) is None:
            return _flag(value)
        return _path(value, unit) if unit.name == "path" else _amount(value, unit)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {name!r}: {error}") from None


def _flag(value: Any) -> bool:
    texts = {"true": True, "false": False}
    found = value if isinstance(value, bool) else texts.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return found


def _path(value: Any, unit: Unit) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or len(value) > unit.most:
        raise ValueError("it is not the path of a file")
    if is_key(value):
        raise ValueError("it is a key; give the path of a file that has it")
    return value


def _amount(value: Any, unit: Unit) -> float:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number of {unit.name}")
    parsed = parse_seconds(value) if unit.name == "seconds" else parse_size(value)
    if not unit.least <= parsed <= unit.most:
        raise ValueError(f"{value!r} is not from {unit.least:g} to {unit.most:g}")
    return parsed
