"""Changes of samples, drawn from a seed: bits, bytes, ranges, splices, and the structure of msgpack and JSON."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgpack

Mutator: TypeAlias = Callable[[random.Random, Sequence[bytes]], bytes]
"""Makes other bytes of one of the samples."""

INTERESTING = (b"\0", b"\xff", b"\x80", b"\x7f", b"\xff" * 4, b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\0" * 8)
LENGTHS = (b"\xdd\xff\xff\xff\xff", b"\xdd\x00\x10\x00\x00", b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xc1")
"""Of msgpack: claims of many elements or bytes, and what is no value."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 77, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.5, -1.0, float("inf"),
    float("nan"), "", "a", "s/a", "\ud800", "x" * 300, b"", b"\0" * 16, b"\xff" * 8, [], {}, [[]], [None], {"a": 1},
    {0: 0}, msgpack.ExtType(5, b"x"), msgpack.Timestamp(0),
)  # fmt: skip

DEEP = 2000


def of_bytes(dice: random.Random, samples: Sequence[bytes]) -> bytes:
    """A sample with one to four changes of its bytes."""
    data = bytearray(dice.choice(samples))
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(_CHANGES)(dice, data, samples)
    return bytes(data)


def _flip(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _overwrite(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    at, new = dice.randrange(len(data) + 1), dice.choice(INTERESTING)
    data[at : at + len(new)] = new


def _insert(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice((*INTERESTING, *LENGTHS, dice.randbytes(dice.randrange(1, 20))))


def _truncate(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _remove(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.randrange(1, 20)]


def _repeat(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = data[at : at + dice.randrange(1, 40)] * dice.choice((1, 1, 2, 30))


def _splice(dice: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    other = dice.choice(samples)
    data[dice.randrange(len(data) + 1) :] = other[dice.randrange(len(other) + 1) :]


_CHANGES = (_flip, _flip, _flip, _set, _overwrite, _insert, _truncate, _remove, _repeat, _splice)


# --- structures ---------------------------------------------------------------------------------------------------


def of_values(dice: random.Random, values: Sequence[Any]) -> Any:
    """One of some plain values, with one to three changes anywhere within."""
    value = [copy.deepcopy(dice.choice(values))]
    for _ in range(dice.choice((1, 1, 2, 3))):
        _change(dice, *_somewhere(dice, value), values)
    return value[0] if value else None


def _somewhere(dice: random.Random, value: Any) -> tuple[Any, Any]:
    """A list or map within a value, which is one itself, and a place in it."""
    while True:
        place = _place(dice, value)
        if place is None or not isinstance(value[place], list | dict) or not value[place] or dice.random() < 0.2:
            return value, place
        value = value[place]


def _place(dice: random.Random, within: Any) -> Any:
    if not within:
        return None
    return dice.randrange(len(within)) if isinstance(within, list) else dice.choice(list(within))


def _change(dice: random.Random, within: Any, place: Any, values: Sequence[Any]) -> None:
    new = _new(dice, values)
    match dice.randrange(6), within:
        case 0, _ if place is not None:
            del within[place]
        case 1, list():
            within.insert(dice.randrange(len(within) + 1), new)
        case 1, dict():
            within[dice.choice(("", "a", 0, -1, 1 << 63, "x" * 50, b"k"))] = new
        case 2, _ if place is not None and isinstance(within[place], int):
            within[place] += dice.choice((1, -1, 256, -(1 << 32)))
            if not -(1 << 63) <= within[place] < 1 << 64:
                within[place] = 0
        case 3, list() if place is not None:
            within.append(copy.deepcopy(within[place]))
        case 3, dict() if place is not None:
            within[_hashable(new)] = within.pop(place)
        case _ if place is not None:
            within[place] = new


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | bytes | int | float) else "key"


def _new(dice: random.Random, values: Sequence[Any]) -> Any:
    if dice.random() < 0.1:
        holder, place = _somewhere(dice, [dice.choice(values)])
        return copy.deepcopy(holder[place]) if place is not None else None
    return copy.deepcopy(dice.choice(VALUES))


def of_msgpack(dice: random.Random, samples: Sequence[bytes]) -> bytes:
    """A sample in msgpack with another structure; sometimes with other bytes, or nested deeply."""
    if dice.random() < 0.2:
        return of_bytes(dice, samples)
    if dice.random() < 0.002:
        return dice.choice((b"\x91", b"\x81\x01", b"\xdd\x00\x00\xff\xff")) * DEEP
    values = [_unpacked(sample) for sample in samples]
    return bytes(msgpack.packb(of_values(dice, values), unicode_errors="surrogatepass"))


_known: dict[bytes, Any] = {}


def _unpacked(sample: bytes) -> Any:
    if sample not in _known:
        _known[sample] = msgpack.unpackb(sample, strict_map_key=False)
    return _known[sample]


def of_json(dice: random.Random, samples: Sequence[bytes]) -> bytes:
    """The same for JSON."""
    if dice.random() < 0.2:
        return of_bytes(dice, samples)
    if dice.random() < 0.002:
        return dice.choice((b"[", b'{"a":')) * 100 * DEEP
    value = of_values(dice, [json.loads(sample) for sample in samples])
    return json.dumps(value, default=str, skipkeys=True).encode("utf-8", "surrogatepass")
