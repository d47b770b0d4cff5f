"""An operation processor that moves on only when it is told to: tests decide what happens in which order."""

from engine.logs.pending import Pending
from engine.logs.processor import Processor


class Stepped(Processor):
    """Does nothing by itself: `step` settles or sends one frame."""

    _steps_left = 0
    _only_sends = False

    @property
    def first(self) -> Pending:
        """What is to leave next."""
        return self._queue.first()

    def _drain(self) -> None:
        return

    def step(self) -> None:
        with self._turn:
            self._steps_left = 1
            self._steps()

    def _step(self) -> bool:
        self._steps_left -= 1
        if self._only_sends:
            self._send()
            return True
        return self._steps_left >= 0 and super()._step()

    def send(self) -> None:
        """Send frames, and settle none that has landed, until that fails."""
        self._only_sends = True
        self._steps()
        self._only_sends = False
