"""Groups that are ahead of their streams after a restore or a recovery are set back to what was restored (P4)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from pravega_spark import StreamCut, StreamManager
from pravega_spark.cli.main import cli
from pravega_spark.errors import PositionLost, StreamError
from pravega_spark.streams.model.names import container_of
from tests.client.groups.reading import drained, numbered, write
from tests.restored import CONTAINERS, begun, flush, recovered, restored, split

pytestmark = pytest.mark.usefixtures("no_patience")

GROUP = next(
    name
    for name in map(str, range(100))
    if container_of(f"sc/{name}", CONTAINERS) != container_of("sc/one", CONTAINERS)
)
"""A group whose state lies in another container than the stream that it reads."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with 5 events in stream sc/one of one segment."""
    return begun(tmp_path / "root")


@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
@pytest.mark.parametrize("kind", ["restored", "recovered"])
def test_a_group_ahead_of_its_stream_gets_all_events_that_come_after_the_restore(
    place: Path, tmp_path: Path, scaled: bool, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup of a root in use: the container of the stream was copied before that of the group."""
    flush(place)
    with StreamManager(str(place)) as manager:
        if scaled:
            split(manager)
        write(manager, "one", numbered(5, 5))
        group = manager.create_reader_group(GROUP, "sc", "one")
        reader = group.create_reader("r")
        assert drained(reader, 3) == numbered(10)
        reader.reader_offline()
        group.checkpoint("here")
    flush(place, f"sc/{GROUP}")
    if kind == "recovered":
        recovered(place, container_of("sc/one", CONTAINERS))
    else:
        place = restored(place, tmp_path / "copy")
    caplog.clear()
    with StreamManager(str(place)) as manager:
        write(manager, "one", numbered(5, 100))
        group = manager.create_reader_group(GROUP, "sc", "one")
        [told] = [record for record in caplog.records if "continues at" in record.getMessage()]
        assert told.levelno == logging.WARNING
        assert drained(group.create_reader("t"), 3) == numbered(5, 100)
        write(manager, "one", numbered(5, 200))
        caplog.clear()
        group = manager.create_reader_group(GROUP, "sc", "one")
        assert "continues at" not in caplog.text
        with pytest.raises(PositionLost):
            group.reset(group.checkpoints()["here"])
        described = CliRunner().invoke(cli, ["--root", str(place), "--json", "group", "describe", f"sc/{GROUP}"])
        [row] = json.loads(described.stdout)["streams"]
        assert StreamCut.from_text(row["set_back_from"]) == group.checkpoints()["here"]["sc/one"]


def test_a_group_of_which_nothing_was_restored_is_told_to_be_reset(place: Path, tmp_path: Path) -> None:
    flush(place)
    with StreamManager(str(place)) as manager:
        split(manager)
        write(manager, "one", numbered(5, 5))
        drained(manager.create_reader_group(GROUP, "sc", "one").create_reader("r"), 3)
    flush(place, f"sc/{GROUP}")
    with StreamManager(str(restored(place, tmp_path / "copy"))) as manager:
        write(manager, "one", numbered(5, 100))
        manager.truncate_stream("sc", "one", "tail")
        write(manager, "one", numbered(5, 200))
        group = manager.create_reader_group(GROUP, "sc", "one")
        group.reader_offline("r")
        reader = group.create_reader("t")
        with pytest.raises(StreamError, match=r"which the stream does not have: .* group\.reset\('earliest'\)"):
            drained(reader)
        group.reset("earliest")
        assert drained(reader, 3) == numbered(5, 200)
