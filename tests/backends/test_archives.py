"""What a Pravega left in a bucket or in memory: read there, imported from there, and into a bucket."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from chunkstore import open_store
from pravega_spark import StreamManager
from tests.archives import CHUNKED, ROLLING, case, laid_out
from tests.backends.suites import Place, new_place
from tests.support.s3_server import S3Server

EVENTS = {"rides": 2000, "scaled": 2000, "truncated": 1200, "sealed": 200, "empty": 0}


def events(manager: StreamManager) -> dict[str, list[tuple[int, int, bytes]]]:
    return {
        name: [(event.segment_id, event.offset, event.data) for event in manager.read_events("demo", name)]
        for name in EVENTS
    }


@pytest.fixture
def place(where: str, request: pytest.FixtureRequest) -> Place:
    """An empty place for an archive."""
    if where == "memory":
        return f"memory://{uuid.uuid4().hex}/lts", {}
    return new_place(request.getfixturevalue("s3_server"))


@pytest.mark.parametrize(
    ("where", "path"),
    [
        pytest.param("memory", CHUNKED, id=f"memory-{CHUNKED.name}"),
        pytest.param("memory", ROLLING, id=f"memory-{ROLLING.name}"),
        pytest.param("s3", CHUNKED, id=f"s3-{CHUNKED.name}", marks=pytest.mark.server),
        pytest.param("s3", ROLLING, id=f"s3-{ROLLING.name}", marks=[pytest.mark.server, pytest.mark.long]),
    ],
)
def test_an_archive_is_read_and_imported_where_it_is(place: Place, tmp_path: Path, path: Path) -> None:
    url, options = place
    store = open_store(url, options)
    for name, data in case(path).objects.items():
        store.put(name, data)
    with StreamManager(url, **options) as manager:
        there = events(manager)
        assert {name: len(found) for name, found in there.items()} == EVENTS
        assert manager.stream_info("demo", "rides").events == 2000
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        report = manager.import_streams(url, [f"demo/{name}" for name in EVENTS], copy=True, storage_options=options)
        assert {each.outcome for each in report.streams} == {"imported"}
        assert events(manager) == there
    found = store.list("", limit=1000)
    assert {info.path: info.size for info in found} == {n: len(data) for n, data in case(path).objects.items()}
    store.close()


@pytest.mark.server
def test_an_archive_is_imported_into_a_bucket(s3_server: S3Server, tmp_path: Path) -> None:
    source = laid_out(case(CHUNKED).objects, tmp_path / "lts")
    with StreamManager(str(source)) as manager:
        due = events(manager)
    url, options = new_place(s3_server)
    with StreamManager(url, create=True, **options) as manager:
        report = manager.import_streams(source, [f"demo/{name}" for name in EVENTS], copy=True)
        assert {each.outcome for each in report.streams} == {"imported"}
        assert events(manager) == due
        with manager.create_writer("demo", "rides") as writer:
            writer.write_event("new", routing_key="a")
        assert manager.stream_info("demo", "rides").events == 2001
