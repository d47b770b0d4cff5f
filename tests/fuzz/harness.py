"""Runs a parser on mutations of its samples, and tells of the first input that it did not refuse as it declares."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.fuzz import mutators
from tests.fuzz.mutators import Mutator


class Parser(NamedTuple):
    """Something that understands bytes. parse: does so, and uses what it has understood. declared: what it raises.

    samples: what real encoders made. mutator: how others are made of them. cost: what takes so much longer than others
    that it is done so many times less often: a whole journal that is booted, of which each part is a parser too.
    """

    name: str
    parse: Callable[[bytes], object]
    samples: Sequence[bytes]
    declared: tuple[type[Exception], ...]
    mutator: Mutator = mutators.of_bytes
    cost: int = 1


class Undeclared(AssertionError):
    """A parser raised something that it does not declare."""


def fuzz(parser: Parser, count: int, seed: int = 0) -> int:
    """Let a parser read its samples, then `count` mutations of them; how many it refused. Raises Undeclared."""
    for sample in parser.samples:
        parser.parse(sample)
    dice, refused = random.Random(f"{parser.name}:{seed}"), 0
    for number in range(count):
        data = parser.mutator(dice, parser.samples)
        try:
            parser.parse(data)
        except parser.declared:
            refused += 1
        except Exception as error:
            shown = data if len(data) <= 2000 else data[:2000] + b"..."
            raise Undeclared(f"{parser.name}, seed {seed}, execution {number}: {error!r} of {shown!r}") from error
    return refused
