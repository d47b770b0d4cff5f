"""A host in a soak: appends numbered lines to a segment of its own, by a clock that may be wrong, until told to end.

    python -m tests.support.host FOLDER NAME SECONDS_AHEAD

How many lines were acknowledged is printed after each. It ends when its input does.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

from chunkstore import StorageUnavailable, open_store
from engine.containers.container import Container
from engine.errors import BadOffset, ClocksDisagree, OutcomeUnknown, SegmentExists, Throttled
from engine.settings import Settings
from engine.storage.object_reads import Stores

LINE = 12
"""Bytes of a line."""

KEPT = 1000
"""How many lines it leaves when it truncates."""

SETTINGS = Settings(
    grace=3.0,
    garbage_delay=3.0,
    checkpoint_frames=50,
    flush_bytes=1 << 20,
    flush_frames=200,
    active_segments=40,
    cache_bytes=4 << 20,
    poll=0.05,
)
"""Of all processes of a soak."""


def segment(name: str) -> str:
    """Where the host of that name writes."""
    return f"h/{name}"


def line(number: int) -> bytes:
    """The line with this number."""
    return b"%011d\n" % number


def main(folder: str, name: str, ahead: float) -> None:
    """Append until standard input ends."""
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    store = open_store(folder)
    with Container(Stores(store, store), 0, SETTINGS, now=lambda: time.time() + ahead) as container:
        with suppress(SegmentExists):
            container.create_segment(segment(name))
        number = 0
        while not ended.is_set():
            try:
                container.append(segment(name), line(number), number * LINE)
                number += 1
            except (OutcomeUnknown, BadOffset, StorageUnavailable, Throttled):  # what became of it, its length tells
                found = container.info(segment(name)).length // LINE
                assert found >= number, f"{number} lines were acknowledged, and {found} are there"
                number = found
            print(number, flush=True)
            if number % 100 == 0:
                try:
                    container.truncate(segment(name), max(number - KEPT, 0) * LINE)
                    container.truncate_log()
                    container.collect_garbage()
                except ClocksDisagree as error:
                    print(error, file=sys.stderr, flush=True)
                except OutcomeUnknown:  # a truncation that may be done; the next one is
                    pass
            ended.wait(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
