"""Settings of a container, and their defaults.

Settings that must be the same for all processes of a root (W7, G1) are fixed by the root and set here when it is opened
(`engine.root.RootConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeAlias

from engine.clocks import TOLERANCE

CHECKPOINT_PART = 64 << 20
"""The largest checkpoint in one object, and the size of its parts, bytes. S3 accepts 90 MiB in a conditional
request."""


MAX_FLIGHTS = 16
"""The most frames that any process may have in flight. A frame so far behind an absent address shows that a frame was
there (W21), so the number never grows."""


class Unit(NamedTuple):
    """What the values of a setting are, and from which to which; how many characters of a path."""

    name: Literal["seconds", "bytes", "number", "path"]
    least: float
    most: float = 2**40


Seconds: TypeAlias = Annotated[float, Unit("seconds", 0)]
Bytes: TypeAlias = Annotated[int, Unit("bytes", 1)]
Number: TypeAlias = Annotated[int, Unit("number", 1)]

FilePath: TypeAlias = Annotated[str, Unit("path", 0, 4096)]

MAX_SEGMENTS = 100_000
"""The largest `max_segments`: as many segments as a stream cut can name."""

MAX_SECONDS = 1e9
"""About thirty years: the longest time that a root may fix."""

OF_ROOT: Mapping[str, Unit] = MappingProxyType(
    {
        "containers": Unit("number", 1, 10_000),
        "grace_seconds": Unit("seconds", 1e-9, MAX_SECONDS),
        "garbage_delay_seconds": Unit("seconds", 0, MAX_SECONDS),
        "transient_idle_seconds": Unit("seconds", 1e-9, MAX_SECONDS),
        "max_segments": Unit("number", 1, MAX_SEGMENTS),
    }
)
"""What a root fixes for all processes, when it is created."""

CHANGEABLE = ("garbage_delay_seconds", "transient_idle_seconds", "max_segments")
"""Those that may differ between processes for a while. The others may not: logs are named by the number of containers,
and a process that trusts a longer grace period than another one has would lose frames that it needs (W7)."""


@dataclass(frozen=True)
class Settings:
    """Settings of a container. Times are in seconds, sizes in bytes."""

    grace: Seconds = 600.0
    """How long frames are kept after a checkpoint covers them (W7). The same for all processes of a root."""

    garbage_delay: Seconds = 600.0
    """How long chunks are kept after an operation made them garbage (G1). The same for all processes of a root."""

    transient_idle: Seconds = 3600.0
    """How long a transient segment is kept without an append (PDP-43). The same for all processes of a root."""

    checkpoint_frames: Number = 8
    """A checkpoint is due after this many frames, but checkpoints take a tenth of the time at most."""

    checkpoint_part: Annotated[int, Unit("bytes", 1 << 20, 90 << 20)] = CHECKPOINT_PART
    """A checkpoint larger than this is written in parts of this size."""

    flush_bytes: Bytes = 32 << 20
    """Unflushed bytes in the log at which an append starts a flush cycle."""

    flush_frames: Number = 1000
    """Frames since the beginning of the last flush cycle at which an append starts one."""

    flush_seconds: Seconds = 300.0
    """Time since the beginning of the last flush cycle after which an append starts one."""

    backlog_bytes: Bytes = 1 << 30
    """Bytes in the log and not in LTS above which appends wait (see Throttle)."""

    outstanding_bytes: Bytes = 128 << 20
    """Bytes submitted and not durable above which appends wait."""

    attach_bytes: Bytes = 4 << 20
    """Appends of at least this size write their events to chunks and attach those; smaller ones go through the log."""

    active_segments: Number = 25_000
    """The most segments in memory (Pravega: segment.active.count.max)."""

    cache_bytes: Bytes = 64 << 20
    """The size of the block cache."""

    poll: Seconds = 0.1
    """The first pause between two looks at a flush cycle of another process that a flush waits for; later ones are
    longer."""

    clock_tolerance: Seconds = TOLERANCE
    """The largest difference between the clocks of this host and of the storage at which data is deleted (W13)."""

    flights: Annotated[int, Unit("number", 1, MAX_FLIGHTS)] = 4
    """The most frames in flight, 16 at most: frames further behind a missing one show that it was there (W21)."""

    frame_transactions: Number = 4096
    """The most transactions of one frame."""

    linger: Seconds = 0.005
    """How long operations are collected for the next frame while other frames are in flight."""

    timeout: Seconds = 60.0
    """How long a request with an unknown outcome is retried, how long a throttled append waits, and how long after its
    last step a flush cycle is taken for dead."""

    maintenance_wait: Seconds = 5.0
    """The longest wait of the first operation after an opening for overdue maintenance, and of `close` for running
    maintenance (W12)."""

    maintenance: bool = True
    """Whether appends start maintenance."""

    threaded: bool = True
    """Whether threads send frames and run maintenance; otherwise the calling thread does."""

    signing_key_file: FilePath = ""
    """The path, on each host, of a file with the key of a signed root, in hexadecimal (W20). A root that is created
    with a key is signed. Otherwise the key in the environment variable PRAVEGA_SIGNING_KEY counts."""

    def __post_init__(self) -> None:
        """Refuse more frames in flight than other processes reckon with: they would take a gap for a lost frame (W21),
        and not open the log. Raises ValueError."""
        if not 1 <= self.flights <= MAX_FLIGHTS:
            raise ValueError(f"setting 'flights' is {self.flights}: give a number from 1 to {MAX_FLIGHTS}")
