"""The pages inside a notebook: the same views, which load nothing and run nothing."""

from __future__ import annotations

import re
from html import unescape

import pytest

from pravega_spark import StreamManager
from pravega_spark.errors import StreamNotFound


def test_all_streams_and_the_root(manager: StreamManager) -> None:
    found = manager.page()
    for text in ("sc/one", "sc/rg", "Containers", "Maintenance", "oldest unread"):
        assert text in found.html


def test_a_stream(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("<script>", "k")
    found = manager.page("sc", "one")
    assert "Segments over time" in found.html and "<svg " in found.html
    assert manager.stream_info("sc", "one").tail.as_text() in found.html


def test_a_notebook_shows_it_in_a_frame_without_rights(manager: StreamManager) -> None:
    for shown in (manager.page(), manager.page("sc", "one")):
        assert not re.search(r"<(script|link|a|button|form)\b|src=|href=", shown.html)
        frame = shown._repr_html_()
        (content,) = re.findall(r'srcdoc="([^"]*)"></iframe>$', frame)
        assert 'sandbox=""' in frame and unescape(content) == shown.html


def test_what_is_not_there(manager: StreamManager) -> None:
    with pytest.raises(StreamNotFound):
        manager.page("sc", "none")
    with pytest.raises(ValueError, match="belong together"):
        manager.page("sc")
