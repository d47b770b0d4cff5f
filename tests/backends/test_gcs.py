"""The suites on Google Cloud Storage, on a small server of our own."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.support.gcs_server import GcsServer

BACKEND = "Google Cloud Storage (gcsfs)"
SERVER = "a small one of this project"


@pytest.fixture(scope="module")
def server(gcs_server: GcsServer) -> GcsServer:
    return gcs_server


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRoundTrips = suites.RoundTrips
TestRace = suites.Race
TestWal = suites.Wal
TestSpark = suites.SparkBatch
