"""What tests of several packages share: servers and Spark, each started when the first test asks for it; a root in
memory; and the marks that say what a test needs."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import engine.admin.backups
import engine.root
from chunkstore import Store
from chunkstore.backends.local import LocalStore
from chunkstore.backends.memory import MemoryStore
from chunkstore.measured_store import MeasuredStore
from chunkstore.selftest import NameRules, self_test
from pravega_spark import StreamManager
from tests.support.azurite import Azurite
from tests.support.gcs_server import GcsServer
from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import Server, ServerMissing
from tests.support.sftp_server import SftpServer
from tests.support.spark_home import VARIABLE, make_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.backend_table", "tests.options_by_version"]

os.environ.pop("COLUMNS", None)  # workers of pytest-xdist are told the width of the terminal, which tables heed
pytest.register_assert_rewrite(
    "chunkstore.testing.contracts",
    "tests.support.metadata_contracts",
    "tests.support.segment_contracts",
    "tests.support.log_contracts",
    "tests.backends.suites",
)

os.environ.setdefault("PRAVEGA_INDEX_CACHE", "")  # tests leave nothing in the user's cache

REQUIRED = "PRAVEGA_SERVERS_REQUIRED"
"""The environment variable that turns a skip for a server that is not installed into a failure."""

AnyServer = TypeVar("AnyServer", bound=Server)


LONGEST = (
    "tests/spark/test_kill_matrix.py",
    "tests/spark/",
    "tests/notebooks/",
    "tests/client/test_processes.py",
    "tests/client/large_events/test_large_processes.py",
    "tests/backends/",
    "tests/examples/",
    "tests/docs/test_site.py",
    "tests/cli/test_upkeep.py",
    "tests/engine/containers/test_crash.py",
    "tests/chunkstore/pravega/test_journal.py",
    "tests/chunkstore/test_compaction.py",
    "tests/streams/test_stream.py",
    "tests/chunkstore/segments/",
    "tests/cli/",
    "tests/engine/test_root.py",
    "tests/engine/logs/",
    "tests/engine/admin/",
    "tests/engine/containers/",
)
"""The files that take longest come first, so that no process is left with one of them in the end."""


SLOW = (
    "tests/backends/",
    "tests/chunkstore/backends/",
    "tests/notebooks/",
    "tests/examples/",
    "tests/docs/test_site.py",
    "tests/docs/test_readme.py",
    "tests/test_imports.py",
    "tests/test_format_1.py",
    "tests/simulation/",
    "tests/exhaustive/",
    "tests/test_optional_fields.py",
    "tests/spark/test_kill_matrix.py",
    "tests/spark/test_scala_program.py",
    "tests/spark/test_options_by_version.py",
    "tests/spark/test_scaling.py",
    "tests/spark/test_data_loss.py",
    "tests/spark/test_generations.py",
    "tests/spark/test_large_events.py",
    "tests/spark/test_imports.py",
    "tests/spark/test_archives.py",
    "tests/spark/test_structured_rows.py",
    "tests/spark/test_smoke_program.py",
    "tests/spark/test_read_write.py::test_secrets_are_shown_nowhere",
    "tests/source/test_secrets.py",
    "tests/source/test_many_batches.py",
    "tests/streams/test_imports.py",
    "tests/streams/test_pravega_lts",
    "tests/streams/test_scopes.py",
    "tests/client/large_events/",
    "tests/client/test_processes.py",
    "tests/client/test_stream_time.py::test_too_many_writers_that_note_time",
    "tests/cli/test_upkeep.py",
    "tests/cli/test_policies.py::test_the_example",
    "tests/chunkstore/test_compaction.py",
    "tests/engine/admin/test_read_only.py",
    "tests/engine/admin/test_backups.py::test_backups_of_several_processes",
    "tests/engine/containers/test_soak.py",
    "tests/engine/logs/test_commit_queue_stress.py",
    "tests/engine/logs/test_commit_queue_simulated.py",
)
"""What `make test` leaves to `make test-slow`, so that it takes minutes: every backend and program from end to end, and
what takes long for what it alone shows. .ci/run runs both."""


SERVERS = {"s3_server", "rados_gateway", "gcs_server", "azurite", "sftp_server"}
"""The fixtures that start a server. A test that asks for one by name at run time carries the mark itself."""


def pytest_configure(config: pytest.Config) -> None:
    """Let all JVMs have a home whose Python workers start fast, unless the environment names another one."""
    if VARIABLE not in os.environ:
        home = tempfile.TemporaryDirectory(prefix="spark-home-")
        make_spark_home(Path(home.name))
        os.environ[VARIABLE] = home.name  # also for the processes of pytest-xdist, which start later
        config.add_cleanup(home.cleanup)
    if metadata.version("pyspark").startswith(("4.0.", "4.1.")):  # they leave sockets to JVMs to the garbage collector
        sockets = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", sockets)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs Spark or a server, leave out what is long unless `-m` speaks of it, and put the longest first."""
    for item in items:
        mark_needs(item)
    if "long" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=place_in_order)


def pytest_collection_finish() -> None:
    """Without this, each full collection of garbage walks through all that was imported and collected."""
    gc.collect()
    gc.freeze()


def mark_needs(item: pytest.Item) -> None:
    """Add the marks `spark` and `server` to a test by the fixtures that it uses, and `slow` to those of SLOW."""
    if item.nodeid.startswith(SLOW):
        item.add_marker("slow")
    fixtures = set(getattr(item, "fixturenames", ()))
    if "spark" in fixtures:
        item.add_marker("spark")
    if fixtures & SERVERS:
        item.add_marker("server")


def place_in_order(item: pytest.Item) -> int:
    """When a test's file is given out."""
    return next((place for place, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))


def running(kind: type[AnyServer]) -> Iterator[AnyServer]:
    """A server in a process of its own, one for every process of pytest-xdist."""
    try:
        server = kind()
    except ServerMissing as missing:
        if os.environ.get(REQUIRED):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto, which is quick to start and meets requests with faults."""
    yield from running(S3Server)


@pytest.fixture(scope="session")
def rados_gateway() -> Iterator[RadosGateway]:
    """Ceph's S3."""
    yield from running(RadosGateway)


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """Google Cloud Storage as we understand it."""
    yield from running(GcsServer)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Azure's own emulator."""
    yield from running(Azurite)


@pytest.fixture(scope="session")
def sftp_server() -> Iterator[SftpServer]:
    """OpenSSH."""
    yield from running(SftpServer)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session, one for every process of pytest-xdist."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pravega-spark tests")
        .config("spark.ui.enabled", "false")
        # Quick to start beats quick to run here, and two processes share two cores.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def folders_and_memory_are_trusted() -> Iterator[None]:
    """A folder and memory pass the self-test of a new root once in each process of the tests, and not again for each of
    their thousands of roots: for most of these it took longer than all the rest of the test. A store that is wrapped
    is tested each time, and so are all others."""
    passed: set[type[Store]] = set()

    def tested(store: Store) -> NameRules | None:
        kind = type(store.inner) if type(store) is MeasuredStore else type(store)
        if kind in passed:
            return None
        rules = self_test(store)
        if kind in (LocalStore, MemoryStore):
            passed.add(kind)
        return rules

    with pytest.MonkeyPatch.context() as patch:
        for module in (engine.root, engine.admin.backups):
            patch.setattr(module, "self_test", tested)
        yield


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Who runs the tests in the background may have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def no_reader_is_left() -> Iterator[None]:
    """A reader group that is not closed goes on in its threads, and its warnings are in the logs of other tests."""
    yield
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    left = [timer for timer in timers if not timer.finished.is_set()]
    for timer in left:
        timer.cancel()
    assert not left, "tests of this file left reader groups open"


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a new root in memory, which is forgotten afterwards: a listing looks at all objects that there are."""
    folder = str(uuid.uuid4())
    yield f"memory://{folder}"
    for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{folder}/")]:
        del MemoryFileSystem.store[path]


@pytest.fixture
def manager(url: str) -> Iterator[StreamManager]:
    """A manager of a root with the streams `one` (1 segment) and `four` (4 segments) in scope `sc`."""
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        manager.create_stream("sc", "four", 4)
        yield manager
