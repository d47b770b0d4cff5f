"""The pages in a real Chromium: each view and each action, with the keyboard, light and dark, wide and on a phone.

Needs Chromium (Debian: `apt-get install chromium`) and `pip install playwright`, which needs no browser of its own. The
folder that PRAVEGA_SCREENSHOTS names gets a picture of each view.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pravega_spark import StreamManager
from pravega_spark.jobs.maintenance_service import MaintenanceService
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.subscribers import query_subscriber, subscribe
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import RetentionPolicy
from tests.support.served import Served, served

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is found: apt-get install chromium"),
]

VIEWS = {
    "overview": "/",
    "overview-by-lag": "/?sort=consumers&filter=o",
    "stream": "/streams/sc/one",
    "stream-even": "/streams/sc/one?even=1",
    "events-json": "/streams/sc/one?at=head&format=json",
    "events-hex": "/streams/sc/one?format=hex",
    "root": "/root",
    "problem": "/streams/sc/none",
}
MARKUP = "<script>alert('x')</script>\"&<b>"


@pytest.fixture
def rich(manager: StreamManager) -> Iterator[Served]:
    """A server of a root with all that pages show."""
    manager.scale_stream("sc", "one", [0], [(0.0, 0.25), (0.25, 0.5)])
    manager.update_stream_with_policy("sc", "one", retention_policy=RetentionPolicy.by_size(10), tags=["<i>tag"])
    MaintenanceService(manager.root).look()
    stream = Catalog(manager.root).stream("sc", "one")
    subscribe(stream, query_subscriber(MARKUP), stream.snapshot().head_cut())
    manager.create_transaction_writer("sc", "one").begin_txn().write_event(MARKUP, "k")
    with manager.create_writer("sc", "one") as writer:
        writer.write_event(MARKUP, "k")
        writer.write_event('{"a": {"b": "<c>"}}', "k")
        writer.write_event("x" * 5000, "k")
    with served(manager, ServeSettings(poll_seconds=0.2)) as server:
        yield server


@pytest.fixture
def browser() -> Iterator[Any]:
    """A Chromium."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, server: Served, **context: Any) -> Iterator[Any]:
    """A page, in which nothing may go wrong: no message of the console (a violated policy of content is one), nothing
    that is loaded from elsewhere, no script of a stream."""
    address = f"http://127.0.0.1:{server.port}"
    with browser.new_context(base_url=address, **context) as made:
        page, problems = made.new_page(), []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda sent: problems.append(sent.url) if not is_own(sent.url, address) else None)
        yield page
        # The browser itself reports the page of a problem by its status, as it should have.
        assert not [each for each in problems if "status of 404" not in each]


def is_own(url: str, address: str) -> bool:
    """Whether something is loaded from the server, or is in the page."""
    return url.startswith((f"{address}/", "data:"))


@pytest.mark.parametrize("width", [1300, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_view(browser: Any, rich: Served, scheme: str, width: int) -> None:
    with opened(browser, rich, color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
        for name, path in VIEWS.items():
            page.goto(path)
            if name != "problem":
                page.get_by_text("live", exact=True).wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert dark == (scheme == "dark"), name
            if folder := os.environ.get("PRAVEGA_SCREENSHOTS"):
                page.screenshot(path=str(Path(folder) / f"{name}-{scheme}-{width}.png"), full_page=True)


def test_streams_are_found_sorted_and_opened(browser: Any, rich: Served) -> None:
    rich.manager.create_stream("sc", "two")
    with opened(browser, rich) as page:
        page.goto("/")
        links = page.locator("#part-streams tbody a")
        assert links.all_inner_texts() == ["sc/one", "sc/two"]
        page.get_by_role("link", name="last event").click()
        assert page.locator("[aria-sort]").inner_text() == "last event" and links.count() == 2
        page.get_by_label("Name contains").fill("two")
        page.get_by_role("button", name="Show").click()
        assert links.all_inner_texts() == ["sc/two"] and "sort=last" in page.url
        links.first.click()
        assert page.locator("h1").inner_text() == "sc/two"
        page.get_by_role("link", name="Root").click()
        assert "healthy" in page.locator("#part-maintenance").inner_text()


def test_a_place_in_the_picture_has_its_cut(browser: Any, rich: Served) -> None:
    with opened(browser, rich, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/streams/sc/one?even=1")
        picture = page.locator("#part-picture svg")
        width = page.locator(".canvas").bounding_box()["width"]
        picture.hover(position={"x": 0.3 * width, "y": 150})
        assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:.]+ UTC, epoch 0", page.locator("#place-time").inner_text())
        picture.click(position={"x": 0.53 * width, "y": 150})  # soon after the second epoch began
        found = page.locator("#place-cut")
        found.wait_for()
        text = found.locator("code").inner_text()
        cut = StreamCut.from_text(text)
        assert (cut.scope, cut.stream) == ("sc", "one") and "epoch 1" in page.locator("#place-time").inner_text()
        assert len(cut.positions) == 3 and "1.0 at " in found.inner_text() and "2.1 at " in found.inner_text()
        found.get_by_role("button").click()
        assert page.evaluate("navigator.clipboard.readText()") == text
        found.get_by_role("link").click()
        assert page.get_by_label("From").input_value() == text
        assert page.locator("table.events").inner_text().count("alert") == 1  # as text


def test_the_picture_can_be_zoomed_and_follows_the_stream(browser: Any, rich: Served) -> None:
    with opened(browser, rich) as page:
        page.goto("/streams/sc/one")
        picture, canvas = page.locator("#part-picture svg"), page.locator(".canvas")
        width = canvas.bounding_box()["width"]
        page.get_by_role("button", name="Zoom in").click()
        assert canvas.bounding_box()["width"] == pytest.approx(1.5 * width, rel=0.01)
        page.get_by_role("button", name="Zoom out").click()
        assert canvas.bounding_box()["width"] == pytest.approx(width, rel=0.01)
        titles = picture.locator("rect.segment title").all_text_contents()
        assert any("offsets 0 to " in title and "segment 1.0" in title for title in titles)
        with rich.manager.create_writer("sc", "one") as writer:
            writer.write_event("news", "k")
        page.locator("#part-facts").get_by_text("104", exact=True).wait_for()


def test_everything_is_reached_by_the_keyboard(browser: Any, rich: Served) -> None:
    with opened(browser, rich) as page:
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        assert {"Streams", "Root", "API", "Metrics", "Show", "size", "consumers", "sc/one"} <= reached
        page.goto("/streams/sc/one")
        page.get_by_label("Place in time").focus()
        for _ in range(3):
            page.keyboard.press("PageDown")
        page.locator("#place-cut").wait_for()
        page.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        assert "zoom 150 %" in page.locator("#state").inner_text()


def test_cuts_and_payloads(browser: Any, rich: Served) -> None:
    with opened(browser, rich, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/streams/sc/one")
        page.locator("#part-cuts").get_by_role("button").last.click()
        tail = rich.manager.stream_info("sc", "one").tail.as_text()
        assert page.evaluate("navigator.clipboard.readText()") == tail
        page.get_by_label("as").select_option("hex")
        page.get_by_role("button", name="Show").click()
        assert "3c 73 63 72 69 70 74" in page.locator("table.events").inner_text()
        with page.expect_download() as download:
            page.locator("table.events a").last.click()
        assert Path(download.value.path()).read_bytes() == b"x" * 5000
        page.get_by_label("From").fill("nonsense")
        page.get_by_role("button", name="Show").click()
        assert "events: " in page.locator("p.bad").inner_text()


def test_a_server_that_ends_is_told_on_open_pages(browser: Any, manager: StreamManager) -> None:
    with opened(browser, _ended(browser, manager)) as _:
        pass


def _ended(browser: Any, manager: StreamManager) -> Served:
    """A server that has ended, after its page said so."""
    with served(manager) as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_text("live", exact=True).wait_for()
        server.server.stop()
        page.get_by_text("not live").wait_for()
    return server
