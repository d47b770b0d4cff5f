"""Where a query is, by the files of its checkpoint as Spark writes them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from pravega_spark import StreamCut, StreamManager
from pravega_spark.source.checkpoint import NoCheckpoint, query_position
from tests.cli.test_cli import document, run


def cut(offset: int, stream: str = "st") -> StreamCut:
    return StreamCut("sc", stream, {0: offset})


def batch(place: Path, number: int, *ends: StreamCut, done: bool = True) -> None:
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *(json.dumps(end.as_text()) for end in ends)]
    (place / "offsets" / str(number)).write_text("\n".join(lines))
    (place / "offsets" / f".{number}.crc").write_bytes(b"crc")
    if done:
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_last_batch_that_is_done_counts(tmp_path: Path) -> None:
    batch(tmp_path, 9, cut(9))
    batch(tmp_path, 10, cut(3, "other"), cut(20))
    batch(tmp_path, 11, cut(5, "other"), cut(40), done=False)
    assert query_position(str(tmp_path), "sc", "st") == cut(20)
    assert query_position(str(tmp_path), "sc", "other") == cut(3, "other")
    batch(tmp_path, 11, cut(5, "other"), cut(40))
    assert query_position(str(tmp_path), "sc", "st") == cut(40)


def test_a_query_of_several_streams(tmp_path: Path) -> None:
    batch(tmp_path, 0, cut(9))
    ends = {"other": cut(3, "other").as_text(), "st": cut(20).as_text()}
    (tmp_path / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps(ends)}")
    assert query_position(str(tmp_path), "sc", "st") == cut(20)
    assert query_position(str(tmp_path), "sc", "other") == cut(3, "other")


def test_what_has_no_finished_batch(tmp_path: Path) -> None:
    for empty in (tmp_path, tmp_path / "none"):
        with pytest.raises(NoCheckpoint, match="does not exist or has no files, so it is not the checkpoint") as caught:
            query_position(str(empty), "sc", "st")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    batch(tmp_path, 0, cut(9), done=False)
    with pytest.raises(NoCheckpoint, match="has no finished batch of a query that reads stream sc/st"):
        query_position(str(tmp_path), "sc", "st")
    batch(tmp_path, 0, cut(9, "other"))
    (tmp_path / "offsets/0").write_bytes(b'v1\n{}\n{\n"\xff"\n7\n')
    with pytest.raises(NoCheckpoint, match="has no finished batch"):
        query_position(str(tmp_path), "sc", "st")


def test_the_lag_of_a_query_and_of_a_group(tmp_path: Path) -> None:
    url, place = str(tmp_path / "root"), tmp_path / "checkpoint"
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        with manager.create_writer("sc", "st") as writer:
            for _ in range(4):
                writer.write_event("12345678")
        manager.create_reader_group("rg", "sc", "st")
    batch(place, 0, cut(16))
    found = document("stream", "lag", "sc/st", "--checkpoint", str(place), root=url)
    assert (found["lag"]["events"], found["lag"]["bytes"], found["lag"]["truncated"]) == (3, 48, False)
    assert found["position"]["positions"] == {"0": 16}
    assert document("stream", "lag", "sc/st", "--group", "rg", root=url)["lag"]["events"] == 4
    told = run("stream", "lag", "sc/st", "--from", "tail", root=url).stdout
    assert told.startswith("stream sc/st: at the tail\n0.0 at 64\nH4sI")
    assert "3 events, 48 bytes, " in run("stream", "lag", "sc/st", "--checkpoint", str(place), root=url).stdout
    assert "does not exist" in run("stream", "lag", "sc/st", "--group", "none", root=url, code=1).stderr
    assert "Give one of" in run("stream", "lag", "sc/st", root=url, code=2).stderr
    assert "is not the checkpoint" in run("stream", "lag", "sc/st", "--checkpoint", url, root=url, code=1).stderr
