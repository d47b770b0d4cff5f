"""The suites on Azure's blobs, on Azurite."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.support.azurite import Azurite

BACKEND = "Azure Blob Storage, ADLS (adlfs)"
SERVER = "Azurite"


@pytest.fixture(scope="module")
def server(azurite: Azurite) -> Azurite:
    return azurite


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRoundTrips = suites.RoundTrips
TestRace = suites.Race
TestWal = suites.Wal
TestSpark = suites.SparkBatch
