"""Names of chunks: unique for ever (S2), and recognisable, so that nothing else is ever taken for garbage."""

from __future__ import annotations

import re
import uuid

_NAME = re.compile(r"(.+)\.E-\d+-O-\d+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


def new_chunk_name(segment: str, epoch: int, offset: int) -> str:
    """A name for a chunk that an instance of `epoch` makes for what begins at `offset` of the segment."""
    return f"{segment}.E-{epoch}-O-{offset}.{uuid.uuid4()}"


def made_for(chunk: str) -> str | None:
    """The segment for which a chunk with this name was made; None for the name of anything else.

    Only that: merges, copies and deletions change to which segment a chunk belongs, and the metadata knows.
    """
    match = _NAME.fullmatch(chunk)
    return match[1] if match else None
