"""Makes some hundred bytes much for event writers, so that small tests write chunks and several appends."""

from __future__ import annotations

import pytest

from pravega_spark.client import attachments, writer as writer_module


def make_batches_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks begin at 400 bytes, columns at 500. One thread writes chunks, so that runs are alike."""
    for owner, name, value in (
        (attachments, "OWN_CHUNK_BYTES", 400),
        (attachments, "THREADS", 1),
        (writer_module, "COPIED_BYTES", 500),
        (writer_module, "COLUMNS_BYTES", 1500),
        (writer_module, "INLINE_BYTES", 400),
    ):
        monkeypatch.setattr(owner, name, value)
