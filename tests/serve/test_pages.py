"""The pages for people: what they show, that they are well-formed and load nothing from elsewhere, that everything from
streams is escaped, and that open pages follow the streams, at no cost when nobody looks."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.serve.live import MOST_SUBJECTS
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.lease import MaintenanceLease, MaintenanceRun, Verification
from pravega_spark.streams.maintenance.subscribers import query_subscriber, subscribe
from pravega_spark.streams.model.policies import RetentionPolicy
from tests.support.served import Served, served

MARKUP = "<script>alert('x')</script>\"&<b>"
VOID = {"meta", "link", "input", "br"}


class Checker(HTMLParser):
    """Fails for tags that are not closed, ids that are there twice, and what a policy of content forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag begins."""
        found = dict(attrs)
        assert len(found) == len(attrs), (tag, attrs)
        assert not [name for name in found if name.startswith("on") or name == "style"], (tag, attrs)
        self.ids += [str(found["id"])] if "id" in found else []
        self.loaded += [str(found[name]) for name in ("src", "href", "action") if name in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content, as SVG has them."""

    def handle_endtag(self, tag: str) -> None:
        """A tag ends."""
        assert self.open and self.open.pop() == tag, f"</{tag}> in {self.open}"

    def handle_data(self, data: str) -> None:
        """A text."""
        self.texts.append(data)


def checked(page: str) -> Checker:
    """A page that is well-formed, and loads only from the server."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == [] and len(set(checker.ids)) == len(checker.ids)
    assert all(re.match(r"/(?!/)|#|data:,$", each) for each in checker.loaded), checker.loaded
    return checker


def text(page: str) -> str:
    """What a page says, in one line."""
    return " ".join(" ".join(checked(page).texts).split())


@pytest.fixture
def rich(server: Served) -> Served:
    """A stream with all that a page shows."""
    manager = server.manager
    manager.scale_stream("sc", "one", [0], [(0.0, 0.25), (0.25, 0.5)])
    manager.update_stream_with_policy("sc", "one", retention_policy=RetentionPolicy.by_size(10), tags=["<i>tag"])
    stream = Catalog(manager.root).stream("sc", "one")
    subscribe(stream, query_subscriber(MARKUP), stream.snapshot().head_cut())
    transaction = manager.create_transaction_writer("sc", "one").begin_txn()
    transaction.write_event(MARKUP, "k")
    with manager.create_writer("sc", "one") as writer:
        writer.write_event(MARKUP, "k")
        writer.write_event('{"a": {"b": "<c>"}}', "k")
        writer.write_event_bytes(b"\x00\xff<", "k")
    return server


def test_the_overview(rich: Served) -> None:
    page = rich.get("/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    found = text(page.text)
    assert "sc/one" in found and "events 103 size" in found and "sc/rg group sc/one" in found and "1 stream" in found
    assert rich.get("/?filter=two").text.count("<tr>") < page.text.count("<tr>")
    assert f"No stream has “{MARKUP}” in its name." in text(rich.get(f"/?filter={quote(MARKUP)}").text)
    for odd in ("page=0", "page=x", "page=99999999", "page=5", "filter=%00"):
        assert rich.get(f"/?{odd}").status == 200


def test_streams_are_shown_page_by_page(manager: StreamManager) -> None:
    for number in range(24):
        manager.create_stream("sc", f"more-{number:02}")
    with served(manager, ServeSettings(page_rows=5)) as server:
        names = [
            re.findall(r"row\"><a [^>]*>(sc/[\w-]+)</a>", server.get(f"/?page={page}").text) for page in range(1, 6)
        ]
        assert [len(each) for each in names] == [5] * 5 and len({name for each in names for name in each}) == 25
        assert 'href="/?page=5"' in server.get("/").text


def test_streams_are_sorted_by_each_column(manager: StreamManager) -> None:
    manager.create_stream("sc", "all-read", 3)
    manager.create_stream("sc", "some")
    for stream, count in (("all-read", 1), ("some", 2)):
        with manager.create_writer("sc", stream) as writer:
            writer.write_events([f"{number}" for number in range(count)], ["k"] * count)
    manager.create_reader_group("tail", "sc", "all-read", read_from_tail=True)
    with served(manager) as server:

        def order(column: str) -> list[str]:
            page = server.get(f"/?sort={quote(column)}").text
            assert text(page).count("↓") == 0 and page.count("aria-sort") == 1
            return re.findall(r'row"><a [^>]*>sc/([\w-]+)</a>', page)

        assert order("nonsense") == order("stream") == ["all-read", "one", "some"]
        assert order("events") == order("size") == ["one", "some", "all-read"]
        assert order("segments") == ["all-read", "one", "some"]
        assert order("last event") == ["some", "all-read", "one"]
        assert order("consumers") == ["one", "all-read", "some"]  # a stream without a consumer comes last
        assert 'href="/?filter=o&amp;sort=events"' in server.get("/?filter=o").text


def test_a_stream(rich: Served) -> None:
    page = rich.get("/streams/sc/one")
    found, info = text(page.text), rich.manager.stream_info("sc", "one")
    assert info.head.as_text() in page.text and info.tail.as_text() in page.text
    assert "next run deletes nothing: " in found and "at least 10 bytes" in found
    assert page.text.count("<svg ") == 1 and "seg 2.1" in found and "epoch" in found
    assert "sc/rg group" in found and "lease ends" in found and "No transaction is open" not in found
    assert text(rich.get("/streams/sc/one?even=1").text)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("text", [MARKUP, '{"a": {"b": "<c>"}}', "\ufffd\ufffd<"]),
        ("json", [f"(no JSON) {MARKUP}", '{\n  "a": {\n    "b": "<c>"\n  }\n}']),
        ("hex", ["000000  3c 73 63 72", "000000  00 ff 3c"]),
    ],
)
def test_events_near_a_place(rich: Served, form: str, shown: list[str]) -> None:
    for place in ("last", "head", "1h"):
        page = rich.get(f"/streams/sc/one?at={place}&format={form}").text
        texts = checked(page).texts
        for each in shown:
            assert any(text.startswith(each) for text in texts), (place, each)
        written = re.findall(r'data-heading="written">([^<]*)<', page)
        assert written and all(re.fullmatch(r"20\d\d-\d\d-\d\d [\d:]{8} UTC", each) for each in written), place
    behind = re.search(r'<a href="([^"]+)">Events behind these', page)
    assert behind is not None and "No events there." in rich.get(behind[1].replace("&amp;", "&")).text
    wrong = rich.get(f"/streams/sc/one?at={quote(MARKUP)}&format={form}")
    assert wrong.status == 200 and "no place in a stream" in text(wrong.text)


def test_large_and_odd_events_are_shown_in_part(server: Served) -> None:
    server.manager.create_stream("sc", "odd")
    with server.manager.create_writer("sc", "odd") as writer:
        for payload in (b"", b"\xed\xa0\x80", b"x" * 70_000, b"y" * 60_000, b"[" * 9000, b"\xe2\x80\xae"):
            writer.write_event_bytes(payload)
    for form in ("text", "json", "hex"):
        page = server.get(f"/streams/sc/odd?format={form}").text
        assert "not shown" in text(page) and len(page) < 60_000 and "\u202e" not in page


def test_the_root(rich: Served) -> None:
    found = text(rich.get("/root").text)
    assert "online" in found and "in all logs and not in long-term storage" in found


def test_what_maintenance_did_last_and_verify_found(server: Served) -> None:
    manager = server.manager
    assert "last run none is recorded verify did not run" in text(server.get("/root").text)
    lease = MaintenanceLease(manager.root, MARKUP)
    assert lease.take()
    assert f"now under way in {MARKUP}" in text(server.get("/root").text)
    run = MaintenanceRun(1_700_000_000_000, "host-1, process 7", 5, 2, 1, (f"retention of sc/one: {MARKUP}",))
    assert lease.give_back(run, Verification(1_700_000_000_000, 1, f"1 error: {MARKUP}"))
    found = text(server.get("/root").text)
    assert "not under way last run 2023-11-14 22:13:20 UTC, by host-1, process 7" in found
    assert "5: 2 changed something, 1 failed" in found and f"retention of sc/one: {MARKUP}" in found
    assert "The last verification found errors" in found


@pytest.mark.parametrize("path", ["/", "/root", "/streams/sc/one", "/streams/sc/one?format=json", "/streams/sc/none"])
def test_no_markup_comes_from_streams(rich: Served, path: str) -> None:
    page = rich.get(path).text
    checked(page)
    assert "<script>alert" not in page and "<i>tag" not in page and "<c>" not in page


def test_what_is_not_there_is_a_page_too(server: Served) -> None:
    missing = server.get("/streams/sc/none")
    assert missing.status == 404 and "Stream does not exist: sc/none" in text(missing.text)
    assert server.get("/streams/sc/a_b").status == 400


def test_what_pages_load(server: Served) -> None:
    for name in checked(server.get("/streams/sc/one").text).loaded:
        if name.startswith("/"):
            assert server.get(name.partition("#")[0]).status == 200, name
    assert server.get("/static/serve.js").headers["content-type"].startswith("text/javascript")
    assert server.get("/static/serve.css").headers["content-type"].startswith("text/css")


def test_the_style_inside_pictures_is_allowed_by_its_hash(server: Served) -> None:
    page = server.get("/streams/sc/one")
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    wanted = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{wanted}'" in page.headers["content-security-policy"]


# --- live -----------------------------------------------------------------------------------------------------------


@contextmanager
def watching(server: Served, view: str) -> Iterator[Iterator[dict[str, str]]]:
    """The changes of a page that is open."""
    with closing(server.connect()) as connection:
        connection.request("GET", f"/live?{view}")
        response = connection.getresponse()
        assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")

        def changes() -> Iterator[dict[str, str]]:
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

        yield changes()
        if connection.sock is not None:
            connection.sock.close()


def test_an_open_page_follows_its_stream(manager: StreamManager) -> None:
    with served(manager, ServeSettings(poll_seconds=0.05)) as server:
        with watching(server, "view=/") as changes, watching(server, "view=/streams/sc/one") as others:
            assert "sc/one" in next(changes)["streams"]
            first = next(others)
            assert first.keys() == {"facts", "picture", "cuts", "retention", "transactions", "consumers"}
            assert all(checked(part) for part in first.values())
            with manager.create_writer("sc", "one") as writer:
                writer.write_event(MARKUP)
            assert any(">101<" in change.get("streams", "") for change in changes)
            assert any(">101<" in change.get("facts", "") for change in others)
        assert server.get("/live?view=/none").status == 404
        assert server.get("/live?view=/streams/sc/a_b").status == 400


def test_a_page_of_a_deleted_stream_says_so(manager: StreamManager) -> None:
    settings, page = ServeSettings(poll_seconds=0.05), "view=/streams/sc/one"
    with served(manager, settings) as server, watching(server, page) as changes:
        next(changes)
        manager.seal_stream("sc", "one")
        manager.delete_stream("sc", "one")
        assert any("does not exist" in change.get("facts", "") for change in changes)


def test_viewers_are_limited(manager: StreamManager) -> None:
    with served(manager, ServeSettings(max_viewers=1)) as server, watching(server, "view=/") as changes:
        next(changes)
        refused = server.get("/live?view=/")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


def test_viewers_that_have_gone_leave_no_subject(manager: StreamManager) -> None:
    for number in range(MOST_SUBJECTS):
        manager.create_stream("sc", f"more-{number}")
    with served(manager, ServeSettings(poll_seconds=0.05)) as server:
        for number in range(MOST_SUBJECTS):
            with watching(server, f"view=/streams/sc/more-{number}") as changes:
                next(changes)
        while server.under_way():  # until the server has noticed that the pages were closed
            server.get("/ping")
        with watching(server, "view=/streams/sc/one") as changes:
            next(changes)


def test_nobody_watching_costs_no_request(tmp_path: Path) -> None:
    url = str(tmp_path / "root")
    with StreamManager(url, create=True) as manager:
        manager.create_scope("sc")
    root = Root.open(url, settings=Settings(maintenance=False))
    store = CountingStore(root.stores.log)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as manager:
        settings = ServeSettings(poll_seconds=0.05, max_age_seconds=0)
        with served(manager, settings) as server:
            with watching(server, "view=/") as changes:
                next(changes)
            while server.under_way():  # until the server has noticed that the page was closed
                server.get("/ping")
            before = store.count()
            for _ in range(20):
                assert server.get("/ping").status == server.get("/v1/health/liveness").status == 200
            assert store.count() == before
