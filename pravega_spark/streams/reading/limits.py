"""Limits: how the bytes or events of a batch are divided among the streams of a query, and the segments of a stream.

Owns the one rule for it: nobody gets more than it has, and what one does not need is divided among the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def allocate(
    limit: int, demands: Mapping[Name, int], first: int = 0, *, weights: Mapping[Name, int] | None = None
) -> dict[Name, int]:
    """Divide a limit among those that demand something of it.

    Args:
        limit: the most that all get together, bytes or events. demands: the most that each can use.
        first: the place at which the remainder of a division begins. If the caller increases it from call to call, none
            starves, however small the limit is.
        weights: shares are in proportion to these; None: they are equal (max-min fair). With the demands themselves as
            weights, what all of them have is used up at the same time.
    """
    shares = dict.fromkeys(demands, 0)
    turn = first % len(demands) if demands else 0
    names = [*demands][turn:] + [*demands][:turn]
    while limit and (names := [name for name in names if shares[name] < demands[name]]):
        weight = {name: 1 if weights is None else weights[name] for name in names}
        total, left = sum(weight.values()), limit
        spare = limit - sum(limit * weight[name] // total for name in names)
        for place, name in enumerate(names):
            taken = min(demands[name] - shares[name], left * weight[name] // total + (place < spare))
            shares[name] += taken
            limit -= taken
    return shares
