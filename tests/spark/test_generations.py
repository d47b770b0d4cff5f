"""A query whose root was restored from a copy that is older than the query's checkpoint (P4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from engine.admin.backups import back_up, restore
from engine.root import Root
from tests.spark.folder import Folder


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(spark, tmp_path, containers=1)
    yield folder
    folder.root.close()


def numbers(first: int, end: int) -> list[str]:
    return [f"{number:04d}" for number in range(first, end)]


def test_a_checkpoint_from_before_a_restore_is_refused_and_leaves_out_what_was_lost_only_when_told_to(
    folder: Folder,
) -> None:
    """The query reads one stream of the root and writes another: both were further than the copy."""
    folder.put(*numbers(0, 20))
    assert folder.drain(folder.follow(start_stream_cut="earliest")) == [20]
    back_up(folder.root, str(folder.path / "backup"))
    for first in (20, 30):
        folder.put(*numbers(first, first + 10))
        assert folder.drain(folder.follow()) == [10]
    folder.root.close()
    restore(str(folder.path / "backup"), str(folder.path / "copy"))
    folder.url, folder.root = str(folder.path / "copy"), Root.open(str(folder.path / "copy"))
    folder.put(*numbers(100, 150))
    with pytest.raises(StreamingQueryException, match=r"before the root was restored.*option 'start_stream_cut' set"):
        folder.drain(folder.follow())
    with pytest.raises(StreamingQueryException, match=r"write 3 of 'query:.*its writes 1 to 2 .*'accept_lost_batches'"):
        folder.drain(folder.follow(fail_on_data_loss=False))
    assert folder.events("sink") == numbers(0, 20)
    assert folder.drain(folder.follow(fail_on_data_loss=False), accept_lost_batches=True) == [50]
    assert folder.drain(folder.follow()) == []
    folder.put(*numbers(150, 160))
    assert folder.drain(folder.follow()) == [10]
    assert sorted(folder.events("sink")) == numbers(0, 20) + numbers(100, 160)
