"""The suites on S3, on Ceph's RADOS gateway."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.support.rados_gateway import RadosGateway

BACKEND = "S3 (s3fs)"
SERVER = "Ceph's RADOS gateway"


@pytest.fixture(scope="module")
def server(rados_gateway: RadosGateway) -> RadosGateway:
    return rados_gateway


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRoundTrips = suites.RoundTrips
TestRace = suites.Race
TestWal = suites.Wal
TestSpark = suites.SparkBatch
