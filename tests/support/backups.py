"""A process that writes and backs up in turn: `python -m tests.support.backups ROOT NAME ROUNDS TARGET RESTORED`.

In each round it appends lines to a segment of its own, backs ROOT up to TARGET, restores TARGET to a new folder below
RESTORED, and prints, as JSON, how many lines were acknowledged before the backup began and how many were restored.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from engine.admin.backups import back_up, restore
from engine.errors import SegmentExists
from engine.root import Root

LINE = 12
"""Bytes of a line."""

LINES = 20
"""Lines of a round."""


def main(url: str, name: str, rounds: str, target: str, restored: str) -> None:
    """Run as described above."""
    segment = f"h/{name}"
    with Root.open(url) as root:
        container = root.container(0)
        with suppress(SegmentExists):
            container.create_segment(segment)
        for number in range(int(rounds)):
            for line in range(LINES):
                container.append(segment, b"%011d\n" % (number * LINES + line))
            done = back_up(root, target)
            place = f"{restored}/{name} {number}"
            restore(target, place)
            with Root.open(place) as copy:
                there = copy.container(0).info(segment).length // LINE
            print(json.dumps([(number + 1) * LINES, there, done.containers[0].sequence]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
