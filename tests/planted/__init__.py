"""Planted breakages: a product that is broken on purpose, one place at a time, and the tests that must notice.

A test that cannot fail proves nothing. Each module of this package lists breakages of one area; `python -m
tests.planted` (`make planted`) applies them one at a time to a copy of the tree, runs the tests that are named with
them, and fails when one of them survives.
"""

from __future__ import annotations

from typing import NamedTuple


class Breakage(NamedTuple):
    """One way to break the product.

    name: unique, short. file: the module, from the top of the repository. old: text that is there exactly once.
    new: what takes its place. tests: the pytest arguments that must fail then, and that pass otherwise.
    """

    name: str
    file: str
    old: str
    new: str
    tests: list[str]
