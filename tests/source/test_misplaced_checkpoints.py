"""Checkpoints in a root of streams: the query that has one is refused, and no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from pravega_spark import StreamManager
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.misplaced_checkpoints import refuse_for_query
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import StreamWriter
from pravega_spark.source.task_outputs import TaskMessage


class Checkpoint:
    """The files of a query's checkpoint in a root."""

    def __init__(self, root: Path, name: str, query_id: str) -> None:
        self.place = root / name
        (self.place / "offsets").mkdir(parents=True)
        (self.place / "metadata").write_text(json.dumps({"id": query_id}))

    def add_batch(self, number: int, offset: object) -> None:
        (self.place / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")


@pytest.fixture
def misplacing(tmp_path: Path) -> SourceOptions:
    """The options of a query on a root in a folder, where checkpoints come to lie."""
    with StreamManager(str(tmp_path / "root")) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    return SourceOptions.parse({"controller": str(tmp_path / "root"), "scope": "sc", "stream": "one"}, {})


def test_a_query_whose_checkpoint_is_in_the_root_is_refused(misplacing: SourceOptions) -> None:
    root = Path(misplacing.root)
    start = MicroBatchReader(misplacing).initialOffset()
    checkpoint = Checkpoint(root, "cp", "q")
    with pytest.raises(ValueError, match=f"^{root}/cp is the checkpoint of a .* No new query on this root starts"):
        MicroBatchReader(misplacing).initialOffset()
    checkpoint.add_batch(9, "another")
    checkpoint.add_batch(10, start)
    restarted = MicroBatchReader(misplacing)
    with pytest.raises(ValueError, match=f"^{root}/cp is the checkpoint of a .* Move this folder, and give the"):
        restarted.latestOffset(start, restarted.getDefaultReadLimit())


def test_what_another_query_has_left_in_the_root_stops_no_query(misplacing: SourceOptions) -> None:
    root = Path(misplacing.root)
    start = MicroBatchReader(misplacing).initialOffset()
    Checkpoint(root, "refused", "p")
    restarted = MicroBatchReader(misplacing)
    assert restarted.latestOffset(start, restarted.getDefaultReadLimit()) == start
    shutil.rmtree(root / "refused")
    Checkpoint(root, "running", "q").add_batch(0, {"other": 1})
    assert MicroBatchReader(misplacing).initialOffset() == start
    restarted = MicroBatchReader(misplacing)
    assert restarted.latestOffset(start, restarted.getDefaultReadLimit()) == start


@pytest.mark.parametrize("damage", [b"", b"[1]", b"\xff", b"[" * 100_000])
def test_a_checkpoint_that_cannot_be_read_is_nobodys(misplacing: SourceOptions, damage: bytes) -> None:
    checkpoint = Checkpoint(Path(misplacing.root), "cp", "q")
    (checkpoint.place / "metadata").write_bytes(damage)
    (checkpoint.place / "offsets/3").write_bytes(damage + b"\n" + damage)
    assert MicroBatchReader(misplacing).initialOffset()
    refuse_for_query(misplacing, "q")


def test_a_sink_is_refused_by_the_id_of_its_query(misplacing: SourceOptions) -> None:
    root = Path(misplacing.root)
    Checkpoint(root, "cp", "q")
    schema = StructType().add("event", StringType())
    writer = StreamWriter(misplacing, schema)
    message = TaskMessage((), "q", {}, None)
    with pytest.raises(ValueError, match=f"^{root}/cp is the checkpoint of a .* Move or delete this folder, and"):
        writer.commit([message], 0)
    writer.commit([TaskMessage((), "p", {}, None)], 0)
