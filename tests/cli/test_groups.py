"""`group describe`: which readers a group has, and which segments they hold."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from pravega_spark import StreamManager, StreamReaderGroupConfig
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


def test_a_group_is_moved_to_cuts_a_place_a_checkpoint_or_its_last_one(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        for name in ("st", "other"):
            manager.create_stream("sc", name, 1)
            with manager.create_writer("sc", name) as writer:
                writer.write_event("event")
        config = StreamReaderGroupConfig(False, "sc", "st", "other")
        group = manager.create_reader_group_with_config("rg", "sc", config)

        def offsets() -> dict[str, int]:
            return {key: cut.positions[0] for key, cut in group.stream_cuts().items()}

        told = run("group", "reset", "sc/rg", "--to", "latest", "--yes", root=root).stdout
        assert "reader group sc/rg was moved: sc/st from 0.0 at 0 to 0.0 at 13; sc/other from 0.0 at 0" in told
        group.checkpoint("tail")
        assert offsets() == {"sc/st": 13, "sc/other": 13}
        head = manager.stream_info("sc", "st").head.as_text()
        [row] = document("group", "reset", "sc/rg", "--to", head, "--yes", root=root)["streams"]
        assert (row["stream"], row["cut"]) == ("sc/st", head) and offsets() == {"sc/st": 0, "sc/other": 13}
        run("group", "reset", "sc/rg", "--to", "earliest", "--yes", root=root)
        assert offsets() == {"sc/st": 0, "sc/other": 0}
        run("group", "reset", "sc/rg", "--yes", root=root)
        assert offsets() == {"sc/st": 13, "sc/other": 13}
        group.reset("earliest")
        run("group", "reset", "sc/rg", "--checkpoint", "tail", "--yes", root=root)
        assert offsets() == {"sc/st": 13, "sc/other": 13}
        told = run("group", "reset", "sc/rg", "--checkpoint", "tall", "--yes", root=root, code=1).stderr
        assert "has no checkpoint 'tall', but tail. Did you mean 'tail'?" in told
        run("group", "reset", "sc/rg", "--checkpoint", "tail", "--to", head, root=root, code=2)
        run("group", "reset", "sc/rg", "--to", "latest", "--to", head, root=root, code=2)


def test_a_reader_is_taken_offline_and_a_checkpoint_does_not_wait_for_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        group = manager.create_reader_group("rg", "sc", "st")
        group.create_reader("one")
        future = group.initiate_checkpoint("c")
        assert document("group", "describe", "sc/rg", root=root)["outstanding_checkpoints"] == {"c": ["one"]}
        assert "checkpoint c: it waits for one" in run("group", "describe", "sc/rg", root=root).stdout
        told = run("group", "offline", "sc/rg", "on", "--yes", root=root, code=1).stderr
        assert "reader on of reader group sc/rg is not online; online: one. Did you mean 'one'?" in told
        found = document("group", "offline", "sc/rg", "one", "--yes", root=root)
        assert found == {"group": "sc/rg", "reader": "one", "segments": segments(0, 1)}
        assert group.online_readers() == [] and sorted(future.result(60)) == ["sc/st"]


def test_a_group_that_has_read_everything_is_shown_as_such(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 1)
        manager.seal_stream("sc", "st")
        reader = manager.create_reader_group("rg", "sc", "st").create_reader("one")
        assert reader.read_next_event(0).is_read_completed
        assert "everything was read" in run("group", "describe", "sc/rg", root=root).stdout
