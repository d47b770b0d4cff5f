"""The suites on S3 with the client obstore, on Ceph's RADOS gateway."""

from __future__ import annotations

import pytest

from tests.backends import suites
from tests.backends.suites import Place
from tests.support.rados_gateway import RadosGateway

pytest.importorskip("obstore")

BACKEND = "S3 (obstore)"
SERVER = "Ceph's RADOS gateway"


@pytest.fixture(scope="module")
def server(rados_gateway: RadosGateway) -> RadosGateway:
    return rados_gateway


@pytest.fixture(scope="module")
def place(server: RadosGateway) -> Place:
    return suites.new_obstore_place(server)


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest


class TestRoundTrips(suites.RoundTrips):
    dated = False


TestRace = suites.RaceOfSpawned
TestWal = suites.Wal
TestSpark = suites.SparkBatch
