"""Settings of a container, and their defaults.

Settings that must be the same for all processes of a root (W7, G1) are fixed by the root and set here when it is opened
(`engine.root.RootConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.clocks import TOLERANCE

CHECKPOINT_PART = 64 << 20
"""The largest checkpoint in one object, and the size of its parts, bytes. S3 accepts 90 MiB in a conditional
request."""


@dataclass(frozen=True)
class Settings:
    """Settings of a container. Times are in seconds, sizes in bytes."""

    grace: float = 600.0
    """How long frames are kept after a checkpoint covers them (W7). The same for all processes of a root."""

    garbage_delay: float = 600.0
    """How long chunks are kept after an operation made them garbage (G1). The same for all processes of a root."""

    transient_idle: float = 3600.0
    """How long a transient segment is kept without an append (PDP-43). The same for all processes of a root."""

    checkpoint_frames: int = 8
    """A checkpoint is due after this many frames, but checkpoints take a tenth of the time at most."""

    checkpoint_part: int = CHECKPOINT_PART
    """A checkpoint larger than this is written in parts of this size."""

    flush_bytes: int = 32 << 20
    """Unflushed bytes in the log at which an append starts a flush cycle."""

    flush_frames: int = 1000
    """Frames since the beginning of the last flush cycle at which an append starts one."""

    flush_seconds: float = 300.0
    """Time since the beginning of the last flush cycle after which an append starts one."""

    backlog_bytes: int = 1 << 30
    """Bytes in the log and not in LTS above which appends wait (see Throttle)."""

    outstanding_bytes: int = 128 << 20
    """Bytes submitted and not durable above which appends wait."""

    attach_bytes: int = 4 << 20
    """Appends of at least this size write their events to chunks and attach those; smaller ones go through the log."""

    active_segments: int = 25_000
    """The most segments in memory (Pravega: segment.active.count.max)."""

    cache_bytes: int = 64 << 20
    """The size of the block cache."""

    poll: float = 0.1
    """The first pause between two looks at a flush cycle of another process that a flush waits for; later ones are
    longer."""

    clock_tolerance: float = TOLERANCE
    """The largest difference between the clocks of this host and of the storage at which data is deleted (W13)."""

    flights: int = 4
    """The most frames in flight."""

    frame_transactions: int = 4096
    """The most transactions of one frame."""

    linger: float = 0.005
    """How long operations are collected for the next frame while other frames are in flight."""

    timeout: float = 60.0
    """How long a request with an unknown outcome is retried, how long a throttled append waits, and how long after its
    last step a flush cycle is taken for dead."""

    maintenance_wait: float = 5.0
    """The longest wait of the first operation after an opening for overdue maintenance, and of `close` for running
    maintenance (W12)."""

    maintenance: bool = True
    """Whether appends start maintenance."""

    threaded: bool = True
    """Whether threads send frames and run maintenance; otherwise the calling thread does."""
