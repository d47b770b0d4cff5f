"""A walk from one stream cut to another, stage by stage, by which events of one key are met in their order.

In a stage all segments may be read at once: none of them follows another one. A segment is entered when all of those
that it succeeds have been read to their ends (Pravega: ReaderGroupState), and with it all that were made of the same
ones, because a cut cannot tell which keys of a segment were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pravega_spark.streams.model.epochs import Epochs, Positions


class CutTraversal:
    """Where somebody is who walks from `start` to `end`, valid cuts in this order.

    Of `start` nothing may be gone that `end` does not name too. `length` tells how long a sealed segment is.
    """

    def __init__(self, history: Epochs, length: Callable[[int], int], start: Positions, end: Positions) -> None:
        self._history = history
        self._length = length
        self._end = end
        self.position: dict[int, int] = {}
        self.go_to(start)

    @property
    def at_end(self) -> bool:
        """Whether there is nothing left."""
        return self.position == self._end

    def stage(self) -> dict[int, tuple[int, int]]:
        """The readable ranges: of each segment at the position the rest, up to its end or the end cut."""
        return {
            number: (offset, self._end[number] if number in self._end else self._length(number))
            for number, offset in self.position.items()
        }

    def go_to(self, positions: Mapping[int, int]) -> None:
        """Move to positions within the stage. Segments at their ends give way to their successors."""
        self.position = dict(positions)
        while done := self._done():
            entered = [segment.id for number in done for segment in self._history.successors(number)]
            self.position = {number: at for number, at in self.position.items() if number not in done}
            self.position.update(dict.fromkeys(sorted(entered), 0))

    def _done(self) -> set[int]:
        """The segments that were read to their ends, if those that follow them can be entered, all of them."""
        done = {
            number for number, at in self.position.items() if number not in self._end and at == self._length(number)
        }
        while waiting := {number for number in done if not self._may_leave(number, done)}:
            done -= waiting
        return done

    def _may_leave(self, number: int, done: set[int]) -> bool:
        followers = (segment.id for segment in self._history.successors(number))
        return all(other.id in done for follower in followers for other in self._history.predecessors(follower))
