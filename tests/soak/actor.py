"""What all actors are: a process with a clock of its own, a log of JSON lines, and a standard input that controls it.

    python -m tests.soak.actor FAMILY SPECIFICATION

FAMILY is a module of this package with a function `run(actor)`. SPECIFICATION is a JSON object: name, role, root,
storage (options), folder (outside the root), seed. On standard input, `clock SECONDS` sets how far
the process's time of day is ahead; its end lets the actor finish in order. The clock is set up before the product is
imported, which binds `time.time`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import mmap
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pravega_spark import StreamManager

PAUSE = 0.5
"""Seconds between two tries."""

MEMORY_EVERY = 60.0
"""Seconds between two lines about the process's memory."""

LATE = 3.0
"""Seconds without a processor that are worth a line in the log."""

_real_time = time.time


class Actor:
    """The process's own specification, log, clock and end."""

    def __init__(self, specification: dict[str, Any]) -> None:
        self.name: str = specification["name"]
        self.role: str = specification.get("role", "")
        self.root: str = specification["root"]
        self.storage: dict[str, Any] = specification["storage"]
        self.folder = Path(specification["folder"])
        self.more: dict[str, Any] = specification.get("more", {})
        self.chance = random.Random(f"{specification['seed']} {self.name}")
        self.ended = threading.Event()
        self.ahead = 0.0
        self._file = (self.folder / "logs" / f"{self.name}.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()

    def control(self) -> None:
        """Follow standard input, in a thread."""
        time.time = lambda: _real_time() + self.ahead
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._notice_pauses, daemon=True).start()
        threading.Thread(target=self._note_memory, daemon=True).start()

    def _notice_pauses(self) -> None:
        """Log when the process was not run for some seconds: stopped, or on a machine that is too busy."""
        before = time.monotonic()
        while not self.ended.wait(PAUSE):
            now = time.monotonic()
            if now - before > PAUSE + LATE:
                self.log("late", seconds=round(now - before, 1))
            before = now

    def _note_memory(self) -> None:
        """Log now and then what the memory is: Python's objects, or the heap below it."""
        while not self.ended.wait(MEMORY_EVERY):
            self.log("memory", **memory())

    def _listen(self) -> None:
        for line in sys.stdin:
            word, _, value = line.strip().partition(" ")
            if word == "clock":
                self.ahead = float(value)
        self.ended.set()

    def log(self, kind: str, **fields: Any) -> None:
        """Write a line to the process's log. `t` is the true time."""
        line = json.dumps({"t": round(_real_time(), 3), "actor": self.name, "kind": kind, **fields}, default=str)
        with self._lock:
            self._file.write(line + "\n")

    def problem(self, what: str) -> None:
        """Log what must never be: the run has failed."""
        self.log("problem", reason=what)

    def manager(self, **more: Any) -> StreamManager:
        """The root, opened. Tries until it can be."""
        from pravega_spark import StreamManager

        while True:
            with self.surviving("open"):
                return StreamManager(self.root, **{**self.storage, **more})

    @contextmanager
    def surviving(self, call: str) -> Iterator[None]:
        """Log an error of the block, and go on after a pause. `checks.py` knows which errors are to be expected."""
        try:
            yield
        except Exception as error:
            self.log_error(call, error)
            self.ended.wait(PAUSE)

    def log_error(self, call: str, error: BaseException) -> None:
        """Log an error with its causes."""
        chain: list[str] = []
        cause: BaseException | None = error
        while cause is not None and len(chain) < 6:
            chain.append(type(cause).__name__)
            cause = cause.__cause__
        frames = traceback.extract_tb(error.__traceback__)
        place = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:]]
        self.log("error", call=call, error=chain, reason=str(error)[:500], at=place)


class _Heap(ctypes.Structure):
    """What glibc's mallinfo2 returns: bytes, but for the counts."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def memory() -> dict[str, int]:
    """What the process's memory is, in bytes: resident; of glibc's heap, used and free; mapped for large blocks. The
    number of Python's small blocks, and of threads."""
    found = {"resident": int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE}
    library = ctypes.CDLL(None)
    if hasattr(library, "mallinfo2"):
        library.mallinfo2.restype = _Heap
        heap = library.mallinfo2()
        found |= {"heap_used": heap.uordblks, "heap_free": heap.fordblks, "mapped": heap.hblkhd}
    # Not the number of objects: `gc.get_objects` has tuples that another thread is just making, which fails then.
    counts = {"blocks": sys.getallocatedblocks(), "threads": threading.active_count()}
    return found | counts


class _ToLog(logging.Handler):
    """Puts the product's warnings into the actor's log."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(logging.WARNING)
        self._actor = actor

    def emit(self, record: logging.LogRecord) -> None:
        self._actor.log("warning", level=record.levelname, logger=record.name, reason=record.getMessage()[:500])


def main(family: str, specification: str) -> None:
    """Be an actor until standard input ends."""
    actor = Actor(json.loads(specification))
    actor.control()
    logging.getLogger().addHandler(_ToLog(actor))
    run = importlib.import_module(f"tests.soak.{family}").run
    actor.log("started")
    try:
        run(actor)
    except BaseException as error:
        actor.log_error("died", error)
        raise
    actor.log("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
