"""Ages that no step of a clock can make, where the storage's clock is a host's own: in a folder (W7, W13).

A boundary's time is the time of day when its name appeared. After a step forward it looks old at once, and frames
would be deleted while processes that know no better still trust their addresses. What its maker could write into it
does not help: he may have slept between writing and publishing. So somebody has to have seen it, and to have said so
after that: a *witness*, an object beside the log, names the newest boundary and the last operation that were there
when a clock that cannot be stepped showed so much, since this boot of this host. They are old when that clock has
gone on by the delay.

- The same boot: the clock of the witness and ours are one, so its age is what has truly passed for everybody here.
- Another boot: no process of this host is older than the boot, so nobody here holds what was there before it; the age
  by the storage's clock is enough. Where several hosts share a folder, that clock is the file server's, and a step of
  it is noticed by comparing it with the hosts' (`engine.clocks`).

A witness stays until it is older than all delays, as who always replaced it would wait for ever; and the one before it
stays beside it, as whoever looks next would find nothing that is old. Lost, damaged, or overwritten ones cost time and
nothing else.
"""

from __future__ import annotations

import logging
import math
import struct
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgpack

from chunkstore import ObjectNotFound, Store
from chunkstore.checksums import crc32c
from chunkstore.decoding import InvalidData, check_format, decoding, reader, unpack, validator
from engine.logs.log import witness_path

logger = logging.getLogger(__name__)

FORMAT = 1
_CRC = struct.Struct(">I")


class Seen(NamedTuple):
    """What was there: boundaries up to `address`, operations with numbers below `sequence`."""

    address: int
    sequence: int


EVERYTHING = Seen(1 << 63, 1 << 63)
NOTHING = Seen(-1, 0)


class Witness(NamedTuple):
    """What somebody saw, in which boot of a host, and what the clock that cannot be stepped showed there, in s."""

    boot: str
    time: float
    seen: Seen


_SEEN = tuple[Witness, ...]
_WITNESSES = reader(_SEEN)


def seen_before(
    store: Store,
    container: int,
    delay: float,
    longest: float,
    look: Callable[[], Seen],
    clock: Callable[[], float],
    boot: str | None = None,
) -> Seen:
    """What has been in a container's log for `delay` seconds, as far as its storage's clock cannot be trusted.

    longest: the longest delay that anybody asks for. look: what is there now. clock: seconds of one that cannot be
    stepped. Raises StorageError.
    """
    if not store.host_clock or delay <= 0:
        return EVERYTHING
    boot = boot_id() if boot is None else boot
    witnesses = _read(store, container)
    ages = [_age(witness, boot, clock()) for witness in witnesses]
    if not ages or ages[-1] > longest:
        now = look()
        _write(store, container, (*witnesses[-1:], Witness(boot, clock(), now)))  # the clock after the look
    old = (witness.seen for witness, age in zip(witnesses, ages, strict=True) if age >= delay)
    return max(old, default=NOTHING)


def _age(witness: Witness, boot: str, now: float) -> float:
    """Seconds since somebody saw it; endless in another boot, which the clock tells where there is no name for it."""
    return now - witness.time if witness.boot == boot and witness.time <= now else math.inf


@cache
def boot_id() -> str:
    """What tells this boot of this host from all others. Where the system has no such thing, all have the same, and
    boots are told apart by a clock that begins anew."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return f"a host that tells no boots apart: {uuid.getnode():x}"


def encode(witnesses: Sequence[Witness]) -> bytes:
    """The object's content."""
    body: bytes = msgpack.packb([FORMAT, validator(_SEEN)(witnesses)])
    return _CRC.pack(crc32c(body)) + body


def decode(data: bytes) -> tuple[Witness, ...]:
    """The inverse of `encode`. Raises InvalidData."""
    with decoding():
        if _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
            raise InvalidData("its checksum does not match")
        number, fields = unpack(data[_CRC.size :])
        check_format(number, FORMAT)
        witnesses: tuple[Witness, ...] = _WITNESSES(fields)
        return witnesses


def _read(store: Store, container: int) -> tuple[Witness, ...]:
    path = witness_path(container)
    try:
        return decode(store.read(path))
    except ObjectNotFound:
        return ()
    except InvalidData as problem:
        logger.warning("%s: %s: %s; it is made anew, which puts off deleting", store.root, path, str(problem))
        return ()


def _write(store: Store, container: int, witnesses: Sequence[Witness]) -> None:
    store.put(witness_path(container), encode(witnesses))
