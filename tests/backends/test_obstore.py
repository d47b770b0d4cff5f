"""The suites on S3 with the client obstore, on moto."""

from __future__ import annotations

import os
import warnings

import pytest

from chunkstore import StorageRefused, Store
from chunkstore.testing.s3_server import S3Server
from tests.backends import suites
from tests.backends.suites import Place

pytest.importorskip("obstore")

BACKEND = "S3 (obstore)"
SERVER = "moto"


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> S3Server:
    return s3_server


@pytest.fixture(scope="module")
def place(server: S3Server) -> Place:
    url, options = suites.new_place(server)
    return url, {**options, "client": "obstore"}


TestPort = suites.Port
TestChunks = suites.Chunks
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRoundTrips = suites.RoundTrips
TestWal = suites.Wal
TestSpark = suites.Spark


class TestRace(suites.Race):
    """Writers and readers in processes of their own, which are spawned."""

    @pytest.mark.processes
    def test_used_before_and_after_a_fork(self, store: Store) -> None:
        """The child is told at once, and the parent goes on."""
        store.put("a", b"before")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which are of no concern here
            child = os.fork()
        if not child:
            told = 0
            try:
                for verb, *arguments in ((store.read, "a"), (store.put, "c", b""), (store.list, "")):
                    try:
                        verb(*arguments)
                    except StorageRefused as error:
                        told += '"spawn"' in str(error)
                store.close()
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        store.put("p", b"after")
        assert [info.path for info in store.list("")] == ["a", "p"]
