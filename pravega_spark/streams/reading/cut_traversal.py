"""Traversal from one stream cut to another, in stages, so that the events of a key come in order.

The segments of a stage can be read in any order: none of them succeeds another one. A segment is entered when all
its predecessors were read to their ends (Pravega: ReaderGroupState), together with all successors of those, because
a cut cannot say which keys of a segment were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pravega_spark.streams.model.epochs import Epochs, Positions


class CutTraversal:
    """The state of a traversal from `start` to `end`, valid cuts in this order.

    All segments of `start` exist, except those that `end` has too. `length` returns the length of a sealed segment.
    """

    def __init__(self, history: Epochs, length: Callable[[int], int], start: Positions, end: Positions) -> None:
        self._history = history
        self._length = length
        self._end = end
        self.position: dict[int, int] = {}
        self.go_to(start)

    @property
    def at_end(self) -> bool:
        """Whether the end is reached."""
        return self.position == self._end

    def stage(self) -> dict[int, tuple[int, int]]:
        """The readable ranges: of each segment at the position the rest, up to its end or the end cut."""
        return {
            number: (offset, self._end[number] if number in self._end else self._length(number))
            for number, offset in self.position.items()
        }

    def go_to(self, positions: Mapping[int, int]) -> None:
        """Move to positions within the stage. Segments at their ends are replaced by their successors."""
        self.position = dict(positions)
        while done := self._done():
            entered = [segment.id for number in done for segment in self._history.successors(number)]
            self.position = {number: at for number, at in self.position.items() if number not in done}
            self.position.update(dict.fromkeys(sorted(entered), 0))

    def _done(self) -> set[int]:
        """The segments read to their ends whose successors can all be entered."""
        done = {
            number for number, at in self.position.items() if number not in self._end and at == self._length(number)
        }
        while waiting := {number for number in done if not self._may_leave(number, done)}:
            done -= waiting
        return done

    def _may_leave(self, number: int, done: set[int]) -> bool:
        followers = (segment.id for segment in self._history.successors(number))
        return all(other.id in done for follower in followers for other in self._history.predecessors(follower))
