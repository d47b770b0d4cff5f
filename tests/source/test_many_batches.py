"""Micro-batches without end: what one costs, and what there is of the root, does not grow with their number."""

from __future__ import annotations

import os

import pytest

from tests.source.fast_motion import FastMotion, Row


def test_two_hundred_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an hour in fast motion, with a restart, upkeep and retention: what is there stays within bounds."""
    motion = FastMotion(monkeypatch, restart_every=110, maintain_every=130)
    rows = motion.run(200, 2)
    motion.check_copied()
    motion.close()
    for row in rows:
        assert row.requests <= 80, row
        assert row.objects <= 350 and row.chunks <= 250, row
        assert 0 < row.checkpoint_bytes <= 100_000 and row.frames > 0, row
        assert row.offset_bytes <= 130 and row.plan_bytes <= 2000, row


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_thousand_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty-five hours in fast motion. MICRO_BATCHES: another number of them."""
    number = int(os.environ.get("MICRO_BATCHES", "20000"))
    motion = FastMotion(monkeypatch)
    print(*Row._fields)
    rows = motion.run(number, 40, lambda row: print(*row, flush=True))
    motion.check_copied()
    motion.close()
    check_flat([row for row in rows if row.batches > number // 10])


def check_flat(rows: list[Row]) -> None:
    """The second half is as the first one. How long a batch takes is for people to see: machines have moods."""
    first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    slack = {
        "requests": (1.1, 2.0),
        "objects": (1.2, 20),  # those of the last grace period, wherever it stands between two clean-ups
        "frames": (1.2, 20),
        "chunks": (1.2, 20),
        "checkpoint_bytes": (1.2, 5_000),
        "offset_bytes": (1.0, 10),  # offsets have more digits
        "plan_bytes": (1.1, 100),
        "resident": (1.2, 20.0),
    }
    for field, (times, more) in slack.items():
        before, after = (max(getattr(row, field) for row in some) for some in (first, second))
        assert after <= times * before + more, (field, before, after)
