"""The suites on S3 with the client obstore, on moto."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.backends.suites import Place
from tests.support.s3_server import S3Server

pytest.importorskip("obstore")

BACKEND = "S3 (obstore)"
SERVER = "moto"


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> S3Server:
    return s3_server


@pytest.fixture(scope="module")
def place(server: S3Server) -> Place:
    return suites.new_obstore_place(server)


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest


class TestRoundTrips(suites.RoundTrips):
    dated = False


TestRace = suites.RaceOfSpawned
TestWal = suites.Wal
TestSpark = suites.SparkBatch
