"""An operation processor that moves on only when it is told to: tests decide what happens in which order."""

from engine.logs.processor import Processor


class Stepped(Processor):
    """Does nothing by itself: `step` settles or sends one frame."""

    _steps_left = 0

    def _drain(self) -> None:
        return

    def step(self) -> None:
        with self._turn:
            self._steps_left = 1
            self._steps()

    def _step(self) -> bool:
        self._steps_left -= 1
        return self._steps_left >= 0 and super()._step()
