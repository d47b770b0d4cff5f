"""Divides a sequence of pieces into even splits, one for each task of a scan.

A split ends near its bound: at the end of a piece that is within an eighth of a split from it, so that few pieces are
cut, and otherwise inside a piece, which the caller cuts at the next possible place. The bounds do not move with that,
so the sizes of splits are between three quarters and five quarters of the mean. Where a piece cannot be cut near the
bound, the rest is divided again.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Piece = TypeVar("Piece")


def split_count(total: int, size: int) -> int:
    """The number of splits of about `size` in `total`, such that none is larger than five quarters of it."""
    return max(1, -(-(total - size // 4) // size))


class SplitPlanner(Generic[Piece]):
    """Fills `count` splits, one after the other, with pieces of `total` bytes."""

    def __init__(self, total: int, count: int) -> None:
        self._splits: list[list[Piece]] = [[]]
        self._total = total
        self._size = max(1, -(-total // count))
        self._taken = 0
        self._begin = 0  # of the current split
        self._divide(count)

    def _divide(self, count: int) -> None:
        """Plan `count` splits for the rest."""
        self._left = count
        self._even = (self._total - self._taken) / count
        self._bound = self._taken + self._even

    @property
    def room(self) -> int:
        """Bytes up to the bound of the current split; at least 1."""
        return max(1, round(self._bound) - self._taken)

    def takes(self, size: int) -> bool:
        """Whether a piece goes into the current split as a whole."""
        return self._left == 1 or self._taken + size <= self._bound + self._even / 8

    def is_over(self, size: int) -> bool:
        """Whether a piece, cut as well as possible, is too large for a split that is not empty."""
        return self._taken > self._begin and self._taken + size > self._bound + self._even / 4 and self._left > 1

    def add(self, piece: Piece, size: int) -> None:
        """Put a piece of `size` bytes into the current split, and begin the next split if it is full."""
        self._splits[-1].append(piece)
        self._taken += size
        if self._taken >= self._bound - self._even / 8 and self._left > 1:
            self.close()

    def close(self) -> None:
        """Begin the next split."""
        self._splits.append([])
        self._begin = self._taken
        self._left -= 1
        self._bound += self._even
        if abs(self._bound - self._even - self._taken) > self._even / 8:
            self._divide(split_count(self._total - self._taken, self._size))

    def splits(self) -> list[list[Piece]]:
        """The splits that have pieces."""
        return [split for split in self._splits if split]
