"""What the name of a chunk says: `<segment>.E-<epoch>-O-<offset>.<uuid>`, in the chunked layout.

It says for which segment a chunk was made, by an owner of which epoch, and for what begins at which offset. A merge
moves chunks to another segment, so only metadata says to which segment a chunk belongs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(.+)\.E-(\d{1,18})-O-(\d{1,18})\.[0-9a-f-]{36}", re.DOTALL)


class MadeChunk(NamedTuple):
    """A chunk as it was made. offset: in the segment, in bytes. name: of the object."""

    segment: str
    epoch: int
    offset: int
    name: str


def made_chunk(name: str) -> MadeChunk | None:
    """What an object's name says of a chunk; None if it is not the name of one."""
    match = _NAME.fullmatch(name)
    return MadeChunk(match[1], int(match[2]), int(match[3]), name) if match is not None else None
