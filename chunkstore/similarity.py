"""Suggestions: the names most similar to one that does not exist. Only error messages show them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, among: Iterable[str], most: int = 3) -> list[str]:
    """The names that are most similar to `name`, the most similar first; none if none is similar."""
    return difflib.get_close_matches(name, among, n=most)


def by_similarity(name: str, among: Iterable[str]) -> list[str]:
    """All names, the most similar to `name` first."""
    return sorted(among, key=lambda each: -difflib.SequenceMatcher(None, name, each).ratio())
