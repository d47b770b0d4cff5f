"""What is bounded only to spare work: a process that lives for long meets ever more names, and need not keep all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class BoundedSet(Generic[T]):
    """A set of `most` values at most: when it is full, all are forgotten but `kept`. May be used by many threads."""

    def __init__(self, most: int, kept: T | None = None) -> None:
        self._most = most
        self._kept = kept
        self._values: set[T] = set()

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: T) -> None:
        """Remember a value."""
        if len(self._values) >= self._most:
            self._values = {self._kept} if self._kept is not None and self._kept in self._values else set()
        self._values.add(value)

    def clear(self) -> None:
        """Forget all."""
        self._values = set()
