"""Where objects of the system lie below a root: all of them in `_system/`, a name that no scope can have (P1).

Users' chunks lie at `<scope>/<stream>/…`, and scopes' names do not begin with `_`. So no name that a user chooses
collides with an object of the system, and outside `_system/` only chunks are ever deleted.
"""

from __future__ import annotations

import enum
import re

SYSTEM = "_system/"
"""The folder of the system."""

ROOT = "_system/pravega.json"
"""Describes a root of streams; in the root of a log that lies apart, says whose log it is."""

BACKUP = "_system/backup.json"
"""Describes a backup: of which root it is. It has no `ROOT`, so it is not taken for a root."""

RESTORING = "_system/restoring.json"
"""Describes a root that is being made of a backup; it is gone when that is done."""

CONTAINERS = "_system/containers/"
"""Has a folder for each container, with the chunks of its tables, and `wal/`, `checkpoints/` and their parts,
`recovery-points/`, `witness/`, `inbox/`, each of which has a folder for each generation of the container's log."""

LAYOUTS = "_system/layout/"
"""The modes of layout that a root of chunks has had."""

EPOCHS = "_system/epochs/"
"""The epochs of a segment store that stands by itself: each opening makes one."""

IMPORTS = "_system/imports/"
"""What is known of imports that are not finished: a folder for each stream."""

TEMPORARY = "_system/tmp"
"""Files that an adapter is writing; no object may lie there."""

SELF_TESTS = "_system/selftest/"
"""What the self-test of a storage makes and deletes."""

_GENERATION = r"(?:([0-9a-f]{32})/)?"
_CONTAINER = rf"{CONTAINERS}([0-9]{{1,10}})"
_NUMBERED = r"[0-9]{20}"
_SUBMITTED = r"[0-9]{20}/[0-9a-f]{32}-[0-9]{20}-[0-9a-f]{16}"
_PART = r"[0-9]{20}-[0-9a-f]{32}-[0-9]{5}"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class SystemPlace(enum.Enum):
    """What an object below `_system/` is, by where it lies."""

    LOG = "log"
    RECOVERY_POINT = "recovery_point"
    TABLES = "tables"
    ROOT = "root"


_PLACES = {
    SystemPlace.LOG: re.compile(
        rf"{_CONTAINER}/(?:(?:wal|checkpoints)/{_GENERATION}{_NUMBERED}|checkpoint-parts/{_GENERATION}{_PART}"
        rf"|witness/{_GENERATION}newest|inbox/{_GENERATION}{_SUBMITTED})"
    ),
    SystemPlace.RECOVERY_POINT: re.compile(rf"{_CONTAINER}/recovery-points/{_GENERATION}{_NUMBERED}"),
    SystemPlace.TABLES: re.compile(rf"{_CONTAINER}/E-[0-9]+-S-[0-9]+\.{_UUID}"),
}
_SIGNED = re.compile(rf"{_CONTAINER}/(?:wal|checkpoints|checkpoint-parts|recovery-points|witness|inbox)/")
_FOLDERS = (SELF_TESTS, EPOCHS, LAYOUTS, IMPORTS, f"{TEMPORARY}/")
MARKERS = (ROOT, BACKUP, RESTORING)
"""What says that a folder is a root, the root of a log, or a backup: each is alone in its folder."""


class ContainerId(int):
    """The number of a container, with the generation of its log, if it belongs to a root (P4).

    A root that is created, restored or recovered begins a generation. Its log, checkpoints and recovery points lie in
    folders of their own, so a process that still uses an earlier root in the same place never adds to this one's.
    """

    generation: str

    def __new__(cls, number: int, generation: str) -> ContainerId:
        container = super().__new__(cls, number)
        container.generation = generation
        return container

    def __reduce__(self) -> tuple[type[ContainerId], tuple[int, str]]:
        return ContainerId, (int(self), self.generation)


def generation_of(container: int) -> str:
    """The generation of a container's log: 32 hexadecimal digits; "" for a container that belongs to no root."""
    return container.generation if isinstance(container, ContainerId) else ""


def container_folder(container: int) -> str:
    """The folder of a container, in the root of its chunks and in that of its log."""
    return f"{CONTAINERS}{int(container)}"


def generation_folder(container: int, kind: str) -> str:
    """The folder, as a listing's prefix, of one generation of a container's log: `kind` is "wal", "checkpoints", …"""
    generation = generation_of(container)
    folder = f"{container_folder(container)}/{kind}/"
    return f"{folder}{generation}/" if generation else folder


def checkpoint_parts_folder(container: int) -> str:
    """Where the parts of large checkpoints lie."""
    return generation_folder(container, "checkpoint-parts")


def tables_path(container: int, epoch: int, sequence: int, unique: object) -> str:
    """A chunk of what was new in tables up to a sequence number; `unique`: a uuid."""
    return f"{container_folder(container)}/E-{epoch}-S-{sequence}.{unique}"


def nested_folder(path: str) -> str | None:
    """The folder "a/b/" that is a root or a backup by itself, if that is what an object there says; else None."""
    for marker in MARKERS:
        if path.endswith(f"/{marker}"):
            return path.removesuffix(marker)
    return None


def is_log(path: str) -> bool:
    """Whether an object belongs to a write-ahead log."""
    return _PLACES[SystemPlace.LOG].fullmatch(path) is not None


def is_signed(path: str) -> bool:
    """Whether an object is signed where a root is: all that a log's state is read from (W20)."""
    return path.startswith(CONTAINERS) and _SIGNED.match(path) is not None


def is_earlier(path: str, container: int) -> bool:
    """Whether an object belongs to another generation of a container's log, or recovery points, than the present."""
    for place in (SystemPlace.LOG, SystemPlace.RECOVERY_POINT):
        match = _PLACES[place].fullmatch(path)
        if match is not None:
            return next(filter(None, match.groups()[1:]), "") != generation_of(container)
    return False


def place_of(path: str) -> tuple[SystemPlace, int] | None:
    """What the object at a path is, and of which container (-1: of the root). None: foreign, or a segment's chunk."""
    if not path.startswith(SYSTEM):
        return None
    for place, pattern in _PLACES.items():
        match = pattern.fullmatch(path)
        if match is not None:
            return place, int(match[1])
    return (SystemPlace.ROOT, -1) if path in MARKERS or path.startswith(_FOLDERS) else None
