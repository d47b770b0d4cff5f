"""How a container works: what may be tuned, with its defaults.

Owns no rule: what must be the same for all processes of a root (W7, G1) is fixed by the root, which sets it here when
it is opened (`engine.root.RootConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.clocks import TOLERANCE

CHECKPOINT_PART = 64 << 20
"""Bytes of a state that lie in one object, and of a part; S3 takes 90 MiB by one conditional request."""


@dataclass(frozen=True)
class Settings:
    """How a container works. Times are in seconds, sizes in bytes."""

    grace: float = 600.0
    """How long frames outlive the boundary that covers them (W7). The same for all processes of a root."""

    garbage_delay: float = 600.0
    """How long chunks outlive the operation that made them garbage (G1). The same for all processes of a root."""

    transient_idle: float = 3600.0
    """How long a transient segment lives without an append (PDP-43). The same for all processes of a root."""

    checkpoint_frames: int = 8
    """A checkpoint is due after this many frames, unless checkpoints would take too much of the time."""

    checkpoint_part: int = CHECKPOINT_PART
    """The most of a checkpoint that lies in one object; a larger one has parts of this size."""

    flush_bytes: int = 32 << 20
    """The append that brings the log to so many unflushed bytes sets off a flush cycle."""

    flush_frames: int = 1000
    """So does the one that brings it to so many frames since the last flush cycle began."""

    flush_seconds: float = 300.0
    """So does the first append after this much time since then."""

    backlog_bytes: int = 1 << 30
    """The most bytes in the log and not in LTS, before appends are held back (see Throttle)."""

    outstanding_bytes: int = 128 << 20
    """The most bytes that are submitted and not durable, before appends are held back."""

    attach_bytes: int = 4 << 20
    """An append of so many bytes of events goes to chunks first, which it attaches; less goes through the log."""

    active_segments: int = 25_000
    """How many segments are kept in memory at most (Pravega: segment.active.count.max)."""

    cache_bytes: int = 64 << 20
    """The size of the cache of what was read."""

    poll: float = 0.1
    """The most time between two looks at the log while a read waits for what other processes append."""

    clock_tolerance: float = TOLERANCE
    """How far this host's clock and the storage's may differ before nothing is deleted any more (W13)."""

    flights: int = 4
    """The most frames in flight."""

    frame_transactions: int = 4096
    """The most transactions of one frame."""

    linger: float = 0.005
    """How long operations are collected for the next frame while others are in flight."""

    timeout: float = 60.0
    """How long a request whose outcome is unknown is repeated before the caller is told, how long an append waits for
    room, and how long a flush cycle may show no sign of life."""

    upkeep_wait: float = 5.0
    """How long the first operation after an opening waits at most for upkeep that others should have done long ago, and
    `close` for what is under way (W12)."""

    upkeep: bool = True
    """Whether appends set off upkeep at all."""

    threaded: bool = True
    """Whether frames are sent, and upkeep is done, by threads; otherwise all is done in the caller's thread."""
