"""Age evidence: shows by a monotonic clock how old a log's content is, where the storage's clock is a host's own: in a
folder (W7, W13).

A checkpoint's time is the time of day when its name appeared. After a step of that clock it looks old at once, and
frames would be deleted while other processes still trust their addresses. A time that its maker writes into it does not
help: the maker may have slept between writing and publishing. So a process records what it observed, after it observed
it: an object beside the log names the newest checkpoint and the last operation that were there when a monotonic clock
showed a time, since this boot of this host. They are old when that clock has advanced by the delay.

- The same boot: the evidence and this process have the same clock, so the age is the time that has really passed.
- Another boot: no process of this host is older than the boot, so none relies on what was there before it; the age by
  the storage's clock is enough. Where several hosts share a folder, that clock is the file server's, and a step of it
  is noticed by comparing it with the hosts' (`engine.clocks`).

An object stays until it is older than all delays, as a process that always replaced it would wait for ever. The one
before it stays beside it, so that the next process finds old evidence too. Lost, damaged or overwritten evidence delays
deletion and has no other effect.
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
from engine.logs.log import age_evidence_path

logger = logging.getLogger(__name__)

FORMAT = 1
_CRC = struct.Struct(">I")


class Observed(NamedTuple):
    """What the log held: checkpoints up to `address`, operations with numbers below `sequence`."""

    address: int
    sequence: int


EVERYTHING = Observed(1 << 63, 1 << 63)
NOTHING = Observed(-1, 0)


class AgeEvidence(NamedTuple):
    """What a process observed, in which boot of a host, and what the monotonic clock showed there, in s."""

    boot: str
    time: float
    observed: Observed


_FIELDS = tuple[AgeEvidence, ...]
_EVIDENCE = reader(_FIELDS)


def observed_before(
    store: Store,
    container: int,
    delay: float,
    longest: float,
    look: Callable[[], Observed],
    clock: Callable[[], float],
    boot: str | None = None,
) -> Observed:
    """What has been in a container's log for `delay` seconds, as far as its storage's clock cannot be trusted.

    longest: the longest delay that is in use. look: returns what is there now. clock: seconds of a monotonic clock.
    Raises StorageError.
    """
    if not store.host_clock or delay <= 0:
        return EVERYTHING
    boot = boot_id() if boot is None else boot
    evidence = read(store, container)
    ages = [_age(each, boot, clock()) for each in evidence]
    if not ages or ages[-1] > longest:
        now = look()
        _write(store, container, (*evidence[-1:], AgeEvidence(boot, clock(), now)))  # the clock after the look
    old = (each.observed for each, age in zip(evidence, ages, strict=True) if age >= delay)
    return max(old, default=NOTHING)


def _age(each: AgeEvidence, boot: str, now: float) -> float:
    """Seconds since it was observed; infinite in another boot. If boots have no names, a clock that began again shows
    another one."""
    return now - each.time if each.boot == boot and each.time <= now else math.inf


@cache
def boot_id() -> str:
    """The name of this boot of this host. If the system has none, all boots have the same name, and a clock that began
    again tells them apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return f"a host that tells no boots apart: {uuid.getnode():x}"


def encode(evidence: Sequence[AgeEvidence]) -> bytes:
    """The object's content."""
    body: bytes = msgpack.packb([FORMAT, validator(_FIELDS)(evidence)])
    return _CRC.pack(crc32c(body)) + body


def decode(data: bytes) -> tuple[AgeEvidence, ...]:
    """The inverse of `encode`. Raises InvalidData."""
    with decoding():
        if _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
            raise InvalidData("its checksum does not match")
        number, fields = unpack(data[_CRC.size :])
        check_format(number, FORMAT)
        evidence: tuple[AgeEvidence, ...] = _EVIDENCE(fields)
        return evidence


def read(store: Store, container: int) -> tuple[AgeEvidence, ...]:
    """What was recorded last, the oldest first; nothing if the object is lost or damaged. Raises StorageError."""
    path = age_evidence_path(container)
    try:
        return decode(store.read(path))
    except ObjectNotFound:
        return ()
    except InvalidData as problem:
        logger.warning("%s: %s: %s; it is replaced, which delays deletion", store.root, path, str(problem))
        return ()


def _write(store: Store, container: int, evidence: Sequence[AgeEvidence]) -> None:
    store.put(age_evidence_path(container), encode(evidence))
