"""A process that is to be stopped in the middle of an append: `python -m tests.support.sleeper ROOT GRACE WHEN`.

It opens container 0 of ROOT and appends to segment "s". WHEN is "before" or "after": then, seen from the put of the
frame, it prints the frame's path and waits for a line; whoever started it has time to stop it. In the end it prints
what became of this append and of a second one, as JSON: an offset, or the name of the error. With a further argument
"trusting" it leaves out the look at the truncation point (W7).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

from chunkstore import Store, open_store
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.errors import EngineError
from engine.logs.log import Log
from engine.settings import Settings
from engine.storage.object_reads import Stores

DATA = b"sleeper"


class Pausing(WrappingStore):
    """Waits before or after the next put of a frame, once `armed`."""

    def __init__(self, inner: Store, when: str) -> None:
        super().__init__(inner)
        self.armed = False
        self._when = when

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if not self.armed or request.verb != "put_if_absent" or "/wal/" not in request.paths[0]:
            return call()
        self.armed = False
        if self._when == "before":
            self._pause(request)
            return call()
        result = call()
        self._pause(request)
        return result

    def _pause(self, request: Request) -> None:
        print(request.paths[0], flush=True)
        sys.stdin.readline()


def attempt(container: Container) -> int | str:
    """Append; the offset, or the name of the error."""
    try:
        return container.append("s", DATA)
    except EngineError as error:
        return type(error).__name__


def main(root: str, grace: str, when: str, *mode: str) -> None:
    """Run as described above."""
    store = open_store(root)
    pausing = Pausing(store, when)
    with (
        mock.patch.object(Log, "_trust", return_value=None) if mode else nullcontext(),
        Container(Stores(pausing, store), 0, Settings(grace=float(grace), maintenance=False)) as container,
    ):
        pausing.armed = True
        print(json.dumps([attempt(container), attempt(container)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
