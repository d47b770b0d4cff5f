"""Recovery advice in errors about damaged or missing data: how to restore it, and how to read the rest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from chunkstore.errors import Damaged
from engine.errors import DataCorruption
from engine.root import Root


@contextmanager
def with_recovery_advice(root: Root, scope: str, stream: str, place: list[str]) -> Iterator[None]:
    """Add commands for this root to errors about damage: how to restore it, and how to read the rest of the stream.

    place: what was read last, for the message; the caller updates it.
    """
    try:
        yield
    except Damaged as error:
        program = f"pravega-spark --root {shlex.quote(root.stores.chunks.root)}"
        where = f" It was met in stream {scope}/{stream}{''.join(f', {each}' for each in place)}."
        remedy = (
            f"`{program} verify --deep` lists all that is damaged or missing: restore it from a backup "
            f"(docs/operations.md, When something fails).{where} Events before and after it can be read: end a "
            f"read at a cut before it, and start one at a cut after it, as `{program} stream cuts {scope}/{stream}` "
            "lists them (with --at TIME that of a time). Option 'fail_on_data_loss' does not skip damage."
        )
        for general in (DataCorruption.remedy, Damaged.remedy):  # some errors have additional or earlier advice
            error.remedy = error.remedy.replace(general, remedy)
        raise
