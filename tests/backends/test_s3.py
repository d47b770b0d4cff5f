"""The suites on S3, on moto."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.support.s3_server import S3Server

BACKEND = "S3 (s3fs)"
SERVER = "moto"


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> S3Server:
    return s3_server


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRoundTrips = suites.RoundTrips
TestRace = suites.Race
TestWal = suites.Wal
TestSpark = suites.Spark
