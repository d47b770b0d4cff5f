"""What a reader of a stream can do about what is damaged or missing in the storage: mend it, and read the rest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from chunkstore.errors import Damaged
from engine.root import Root


@contextmanager
def with_recovery_advice(root: Root, scope: str, stream: str, place: list[str]) -> Iterator[None]:
    """Let errors about damage say with commands for this root what to do, and how the rest of the stream is read.

    place: what was read last, for people; the caller keeps it up to date.
    """
    try:
        yield
    except Damaged as error:
        program = f"pravega-spark --root {shlex.quote(root.stores.chunks.root)}"
        where = f" It was met in stream {scope}/{stream}{''.join(f', {each}' for each in place)}."
        remedy = (
            f"`{program} verify --deep` tells all that is damaged or missing: restore it from a backup "
            f"(docs/operations.md, When something fails).{where} What lies before and behind it can be read: end a "
            f"read at a cut before it, and start one at a cut behind it, as `{program} stream cuts {scope}/{stream}` "
            "lists them (with --at TIME that of a time). Option 'fail_on_data_loss' does not skip damage."
        )
        error.remedy = error.remedy.replace(Damaged.remedy, remedy)  # some have more to say, or had it said
        raise
