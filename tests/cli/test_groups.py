"""`group describe`: which readers a group has, and which segments they hold."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from pravega_spark import StreamManager
from tests.cli.test_cli import document, run


def segments(*numbers: int) -> list[dict[str, Any]]:
    return [{"stream": "sc/st", "id": number, "segment": f"{number}.0", "offset": 0} for number in numbers]


def test_the_readers_of_a_group_are_shown_with_their_segments(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 3)
        group = manager.create_reader_group("rg", "sc", "st")
        found = document("group", "describe", "sc/rg", root=root)
        assert (found["readers"], found["unassigned"], found["lease"]) == ([], segments(0, 1, 2), 60.0)
        told = run("group", "describe", "sc/rg", root=root).stdout
        assert "no reader is online" in told
        assert "without a reader: sc/st/0.0 at 0, sc/st/1.0 at 0, sc/st/2.0 at 0" in told
        group.create_reader("one")
        group.create_reader("two")
        found = document("group", "describe", "sc/rg", root=root)
        assert {each["reader"]: each["segments"] for each in found["readers"]} == {"one": segments(0, 1, 2), "two": []}
        assert found["unassigned"] == []
        told = run("group", "describe", "sc/rg", root=root).stdout
        assert "online readers (lease 1 min)" in told and "without a reader" not in told
        assert re.search(r"one +sc/st/0\.0 at 0, sc/st/1\.0 at 0, sc/st/2\.0 at 0 +\d", told)
        assert re.search(r"two +none +\d", told)
        group.reader_offline("one")
        found = document("group", "describe", "sc/rg", root=root)
        assert [each["reader"] for each in found["readers"]] == ["two"] and found["unassigned"] == segments(0, 1, 2)


def test_signs_of_life_grow_and_positions_are_those_recorded(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 1)
        with manager.create_writer("sc", "st") as writer:
            writer.write_event("event")
        reader = manager.create_reader_group("rg", "sc", "st").create_reader("one")
        [before] = document("group", "describe", "sc/rg", root=root)["readers"]
        piece = asyncio.run(reader.get_segment_slice_async())
        assert [event.data for event in piece] == [b"event"]
        reader.release_segment(piece)
        reader.record()
        [after] = document("group", "describe", "sc/rg", root=root)["readers"]
        assert after["signs_of_life"] > before["signs_of_life"]
        assert [each["offset"] for each in after["segments"]] == [13]
