"""The status of a root: on the terminal, as a document, as a page, and as metrics."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chunkstore.testing import WRITES, CountingStore
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.status import root_status
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.subscribers import query_subscriber, subscribe
from tests.cli.test_cli import damaged_frame, document, run


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with a stream of 100 events, of which reader group `rg` has read 40, and an empty one that is sealed."""
    url = str(tmp_path / "root")
    Root.open(url, containers=2).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 2)
        manager.create_stream("sc", "closed")
        manager.seal_stream("sc", "closed")
        with manager.create_writer("sc", "one") as writer:
            writer.write_events([f"{number}" for number in range(100)], [f"{number}" for number in range(100)])
        stream = Catalog(manager.root).stream("sc", "one")
        subscribe(stream, query_subscriber("billing"), stream.snapshot().head_cut())
        manager.create_reader_group("rg", "sc", "one")
    return url


def test_streams_consumers_and_containers(folder: str) -> None:
    found = document("status", root=folder)
    closed, one = found["streams"]
    assert one.items() >= {"stream": "sc/one", "segments": 2, "events": 100, "bytes": 990, "sealed": False}.items()
    assert one["events_per_second"] == pytest.approx(100 / 60) and one["bytes_per_second"] == pytest.approx(990 / 60)
    assert 0 <= time.time() - datetime.fromisoformat(one["last_event"].replace("Z", "+00:00")).timestamp() < 60
    assert closed.items() >= {"stream": "sc/closed", "sealed": True, "segments": 0, "last_event": None}.items()
    lags = {(each["kind"], each["consumer"]): each["lag"]["events"] for each in found["consumers"]}
    assert lags == {("subscriber", "query:billing"): 100, ("group", "sc/rg"): 100}
    assert [each["online"] for each in found["containers"]] == [True, True]
    assert found["problems"] == []


def test_the_rate_is_that_of_the_last_minute(folder: str) -> None:
    with StreamManager(folder) as manager:
        later = root_status(manager.root, now=time.time() + 61)
    [_, one] = later.streams
    assert (one.events_per_second, one.bytes_per_second, one.events) == (0, 0, 100)
    assert one.last_event is not None and later.moment - one.last_event / 1000 > 60


def test_for_people(folder: str) -> None:
    shown = run("status", "sc", root=folder).stdout
    assert re.search(r"sc/one +2 +100 +990 bytes +1\.7 +16 bytes +\d s ago", shown), shown
    assert re.search(r"sc/closed +sealed +0 +0 bytes +0 +0 +-", shown), shown
    assert re.search(r"query:billing +subscriber +sc/one +100 events, 990 bytes, \d s behind", shown), shown
    assert "containers" in shown and "online" in shown


def test_a_query_is_a_consumer_by_its_checkpoint(folder: str, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
    with StreamManager(folder) as manager:
        tail = manager.stream_info("sc", "one").tail
    (place / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(tail.as_text())}\n")
    (place / "commits" / "0").write_text("v1\n{}\n")
    found = document("status", "--checkpoint", str(place), root=folder)
    [query] = [each for each in found["consumers"] if each["kind"] == "query"]
    assert (query["stream"], query["lag"]["events"]) == ("sc/one", 0)
    nowhere = document("status", "--checkpoint", str(tmp_path / "nowhere"), root=folder, code=1)
    assert "nowhere does not exist" in nowhere["problems"][0]
    assert len(nowhere["streams"]) == 2, "what can be read is shown"


def test_a_checkpoint_whose_url_holds_credentials_is_not_shown(folder: str) -> None:
    """P1: nor a place twice."""
    for options in ([], ["--json"]):
        shown = run(*options, "status", "--checkpoint", "s3://key:secret@bucket/x", root=folder, code=1)
        assert "holds a user and a password" in shown.output
        assert "secret" not in shown.output and "key:" not in shown.output
    [problem] = document("status", "--checkpoint", f"{folder}-x", root=folder, code=1)["problems"]
    assert problem.count(f"{folder}-x") == 1


def test_a_page_that_loads_nothing(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    run("status", "-o", str(file), root=folder)
    page = file.read_text()
    assert "sc/one" in page and "100 events, 990 bytes" in page and "<h2>Containers</h2>" in page
    assert not re.search(r"(src|href)=|https?://|<script", page)
    assert [name.name for name in tmp_path.iterdir() if name.name.startswith(".")] == []
    refused = run("status", "-o", str(tmp_path / "status.txt"), root=folder, code=2)
    assert "must end with .html or .prom" in refused.stderr


def test_metrics_that_prometheus_takes(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "status.prom"
    run("status", "-o", str(file), root=folder)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
    one = (("scope", "sc"), ("stream", "one"))
    events = ("pravega_stream_events", *one)
    lag = ("pravega_consumer_lag_events", ("consumer", "sc/rg"), ("kind", "group"), *one)
    assert samples[events] == samples[lag] == 100
    assert samples["pravega_container_online", ("container", "1")] == 1
    last = ("pravega_stream_last_event_timestamp_seconds", *one)
    assert datetime.fromtimestamp(samples[last], timezone.utc).year >= 2026


def test_what_cannot_be_read_hides_nothing_else(folder: str) -> None:
    with StreamManager(folder) as manager:
        number = Catalog(manager.root).stream("sc", "one").number
    damaged_frame(folder, number)
    found = document("status", root=folder, code=1)
    assert [each["online"] for each in found["containers"]] == [each != number for each in range(2)]
    assert f"container {number} is offline" in "".join(found["problems"])


@pytest.mark.parametrize("scaled", [False, True], ids=["open segments", "sealed segments"])
def test_segments_that_are_truncated_at_their_end(folder: str, scaled: bool) -> None:
    """Their indexes have no record left, where the newest one is looked for: the others are shown all the same."""
    with StreamManager(folder) as manager:
        if scaled:
            segments = [each.id for each in manager.stream_info("sc", "one").segments]
            manager.scale_stream("sc", "one", segments[:1], [(0.0, 0.25), (0.25, 0.5)])
        manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
        for page in (manager.page(), manager.page("sc", "one")):
            assert "sc/one" in page._repr_html_()
    [_, one] = document("status", root=folder)["streams"]
    assert (one["events"], one["last_event"], one["events_per_second"]) == (0, None, 0)
    with StreamManager(folder) as manager, manager.create_writer("sc", "one") as writer:
        writer.write_event("first after the truncation")  # in one segment; nothing is in the others
    [_, one] = document("status", root=folder)["streams"]
    assert one["events"] == 1 and one["last_event"] is not None


def test_it_changes_nothing_and_costs_few_requests(folder: str) -> None:
    root = Root.open(folder, settings=Settings(maintenance=False))
    store = CountingStore(root.stores.log)
    root.stores = Stores(store, store)
    with root:
        root_status(root)
        first = store.count()
        root_status(root)
        assert store.count() - first <= 30
        assert not {*WRITES} & {*store.counts}
