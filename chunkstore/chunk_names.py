"""Names of objects that are made of names that users choose, chunks first of all: unique for ever (S2), recognisable,
so that nothing else is ever taken for garbage, and different on every storage (P5).

Some storages fold case or normalise text, cannot name a file `con` or `orders.`, or take short names only. So each part
of a name is written in a form that all of them keep, on every storage alike, and a root can be copied from any to any:

    orders     as it is: lower-case letters, digits and `.-_#$`
    Orders     `8!orders`: lower case, and in front of it which letters are capitals, as hexadecimal digits of four each
    con        `!con`: nothing is capital, but Windows has no such file
    orders.    `orders.!`: no part ends in a dot
    örders     `(c3)(b6)rders`: any other byte of the UTF-8 (no scope or stream has one)
    very long  split behind 160 bytes into `<begin>!!/!<end>`
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

from chunkstore.paths import SELF_TESTS

_NAME = re.compile(r"(.+)\.E-\d+-O-\d+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)

LONGEST_PART = 160
"""Bytes of a part of an object's name: with all that a chunk's name adds it has less than 255."""

_PLAIN = re.compile(r"[a-z0-9._#$\-]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.DOTALL)
_OTHER = re.compile(rb"[^A-Za-z0-9._#$\-]")
_ESCAPED = re.compile(r"\(([0-9a-f]{2})\)")
_CAPITALS = re.compile(r"([0-9a-f]*)!(.*)", re.DOTALL)


def object_name(name: str) -> str:
    """The name by which an object, or a folder, for something that is called `name` is stored ("a/b/c")."""
    return "/".join(_encoded(part) for part in name.split("/"))


def name_of(stored: str) -> str | None:
    """The inverse of `object_name`; None for what it never makes."""
    try:
        name = "/".join(map(_decoded, _joined(stored)))
        return name if object_name(name) == stored else None
    except ValueError:
        return None


def new_chunk_name(segment: str, epoch: int, offset: int) -> str:
    """A name for a chunk that an instance of `epoch` makes for what begins at `offset` of the segment."""
    return chunk_name(segment, epoch, offset, uuid.uuid4())


def chunk_name(segment: str, epoch: int, offset: int, unique: uuid.UUID) -> str:
    """The name of a chunk of a segment. unique: what no other one has."""
    return f"{object_name(segment)}.E-{epoch}-O-{offset}.{unique}"


def made_for(chunk: str) -> str | None:
    """The segment for which a chunk with this name was made; None for the name of anything else.

    Only that: merges, copies and deletions change to which segment a chunk belongs, and the metadata knows. The
    self-test of another opener, which may run now, puts objects with a chunk's name: they belong to no segment.
    """
    match = _NAME.fullmatch(chunk)
    return name_of(match[1]) if match and not chunk.startswith(SELF_TESTS) else None


def _encoded(part: str) -> str:
    if len(part) <= LONGEST_PART and _PLAIN.fullmatch(part) and part[-1] != "." and not _RESERVED.fullmatch(part):
        return part
    escaped = _OTHER.sub(lambda byte: b"(%02x)" % byte[0][0], part.encode()).decode()
    stored = escaped.lower()
    if stored != escaped or _RESERVED.fullmatch(stored):
        stored = f"{_mask(escaped)}!{stored}"
    if stored.endswith("."):
        stored += "!"
    pieces = [stored[start : start + LONGEST_PART] for start in range(0, len(stored), LONGEST_PART)]
    return "!!/!".join(pieces)


def _mask(escaped: str) -> str:
    """Which characters are capital letters: hexadecimal digits for four of them each, without zeros at the end."""
    bits = "".join("1" if character.isupper() else "0" for character in escaped)
    bits += "0" * (-len(bits) % 4)
    return "".join(f"{int(bits[at : at + 4], 2):x}" for at in range(0, len(bits), 4)).rstrip("0")


def _joined(stored: str) -> Iterator[str]:
    """The parts of a stored name, each whole again."""
    begun = ""
    for piece in stored.split("/"):
        body = piece.removeprefix("!") if begun else piece
        if len(body) == LONGEST_PART + 2 and body.endswith("!!"):
            begun += body[:-2]
        else:
            yield begun + body
            begun = ""
    if begun:
        raise ValueError(stored)


def _decoded(stored: str) -> str:
    text = stored.removesuffix("!") if stored.endswith(".!") else stored
    capitals = _CAPITALS.fullmatch(text)
    if capitals is not None:
        bits = "".join(f"{int(digit, 16):04b}" for digit in capitals[1])
        text = "".join(
            character.upper() if bits[at : at + 1] == "1" else character for at, character in enumerate(capitals[2])
        )
    if not text.isascii():
        raise ValueError(stored)
    return _ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), text).encode("latin-1").decode()
