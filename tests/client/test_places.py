"""Where things lie below a root, seen from the names that users give (P1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.root import Root
from pravega_spark import StreamManager


@pytest.mark.parametrize("scope", ["pravega.json", ".tmp", "containers"])
def test_no_name_that_is_permitted_is_in_our_way(tmp_path: Path, scope: str) -> None:
    """A scope is a folder beside what is ours, whatever it is called."""
    url = str(tmp_path / "root")
    with StreamManager(url) as manager:
        for stream in {scope, "pravega.json", "0", "wal"}:
            manager.create_scope(scope)
            manager.create_stream(scope, stream, 1)
            with manager.create_writer(scope, stream) as writer:
                writer.write_event("event")
    with Root.open(url) as root:
        for number in range(root.config.containers):
            root.container(number).flush()
            root.container(number).checkpoint()
    assert {path.name for path in Path(url).iterdir()} == {"_system", scope}
    with StreamManager(url) as manager:
        for stream in {scope, "pravega.json", "0", "wal"}:
            assert [bytes(event.data) for event in manager.read_events(scope, stream)] == [b"event"]


@pytest.mark.parametrize("name", ["_system", "_s", "_"])
def test_names_that_are_reserved_are_refused(tmp_path: Path, name: str) -> None:
    with StreamManager(str(tmp_path)) as manager:
        with pytest.raises(ValueError, match="has the character '_'"):
            manager.create_scope(name)
        manager.create_scope("s")
        with pytest.raises(ValueError, match="has the character"):
            manager.create_stream("s", name, 1)
    with Root.open(str(tmp_path)) as root, pytest.raises(ValueError, match="reserved"):
        root.container(0).create_segment("_system/containers/0/wal")
