"""What a test's log has of the test itself."""

from __future__ import annotations

import logging

import pytest

_LEFT = "pravega_spark.client.groups.member"


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records, without those of readers that earlier tests left open: their threads go on, and say that their root
    is gone."""
    return [record for record in caplog.records if record.name != _LEFT]
