"""Even shares of a sequence whose pieces come one after the other: what the tasks of a scan get.

A share ends near its bound: where a piece ends that is within an eighth of it, so that few pieces are cut, and
otherwise inside a piece, which the caller cuts at the place nearest to it. Bounds do not move with that, so shares
differ by little: from three quarters to five quarters of the mean. Where a piece cannot be cut there, the rest is
divided anew.
"""

from __future__ import annotations


def shares_of(total: int, size: int) -> int:
    """How many shares of about `size` there are in `total`, none of which is larger than five quarters of it."""
    return max(1, -(-(total - size // 4) // size))


class EvenShares:
    """`count` shares of what is `total` bytes. number: that of the share that is being filled, from 0 on."""

    def __init__(self, total: int, count: int) -> None:
        self.number = 0
        self._total = total
        self._size = max(1, -(-total // count))
        self._taken = 0
        self._begun = 0  # where this share begins
        self._divide(count)

    def _divide(self, count: int) -> None:
        """The rest is `count` shares."""
        self._left = count
        self._even = (self._total - self._taken) / count
        self._bound = self._taken + self._even

    @property
    def room(self) -> int:
        """How many bytes are left up to the share's bound; 1 at least."""
        return max(1, round(self._bound) - self._taken)

    def takes(self, size: int) -> bool:
        """Whether a piece goes into this share as a whole."""
        return self._left == 1 or self._taken + size <= self._bound + self._even / 8

    def is_over(self, size: int) -> bool:
        """Whether a piece, cut as well as it can be, is too large for what this share already has."""
        return self._taken > self._begun and self._taken + size > self._bound + self._even / 4 and self._left > 1

    def take(self, size: int) -> None:
        """Put a piece into this share, and go on to the next one if it is full."""
        self._taken += size
        if self._taken >= self._bound - self._even / 8 and self._left > 1:
            self.close()

    def close(self) -> None:
        """Go on to the next share."""
        self.number += 1
        self._begun = self._taken
        self._left -= 1
        self._bound += self._even
        if abs(self._bound - self._even - self._taken) > self._even / 8:
            self._divide(shares_of(self._total - self._taken, self._size))
