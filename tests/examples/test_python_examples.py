"""The examples that need no Spark run, and do what they say."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from examples import (
    disaster_recovery,
    key_value_table,
    large_files,
    metrics_scrape,
    python_client,
    reader_group,
    resuming_producer,
    retention_job,
    segment_store,
    shared_state,
    transactions,
)
from pravega_spark import StreamManager


def test_python_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = python_client.run(str(tmp_path))
    assert sorted(seen) == [f"reading {number}" for number in range(10)]
    assert capsys.readouterr().out.count("reading") == 10


def test_transactions(tmp_path: Path) -> None:
    assert transactions.run(str(tmp_path)) == ["+100", "-100"]


def test_reader_group(tmp_path: Path) -> None:
    assert sorted(reader_group.run(str(tmp_path))) == sorted(f"order {number}" for number in range(100))


def test_large_files(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    assert large_files.run(str(tmp_path / "root"), tmp_path / "files")


def test_resuming_producer(tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("".join(f"line {number}\n" for number in range(300)))
    assert resuming_producer.run(str(tmp_path / "root"), source) == 300
    source.write_text("".join(f"line {number}\n" for number in range(310)))
    assert resuming_producer.run(str(tmp_path / "root"), source) == 10
    with StreamManager(str(tmp_path / "root")) as manager:
        last = manager.last_events("examples", "lines", 400)
        assert [event.data.decode() for event in last] == [f"line {number}" for number in range(310)]


def test_key_value_table(tmp_path: Path) -> None:
    assert key_value_table.run(str(tmp_path)) == {"_L": 10, "_M": 7}


def test_shared_state(tmp_path: Path) -> None:
    assert shared_state.run(str(tmp_path)) == {"worker-1": True, "worker-2": True, "worker-3": False}


def test_segment_store(tmp_path: Path) -> None:
    assert segment_store.run(str(tmp_path)) == b"worked\nstopped\n"


def test_metrics_scrape(tmp_path: Path) -> None:
    text = metrics_scrape.run(str(tmp_path))
    assert 'pravega_log_seconds_count{operation="put_frame"}' in text


def test_disaster_recovery(tmp_path: Path) -> None:
    assert disaster_recovery.run(tmp_path) == ("in the backup", "in the backup and written later")


def test_retention_job(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("rides")
        manager.create_stream("rides", "trips")
        with manager.create_writer("rides", "trips") as writer:
            writer.write_event("old")
        now = datetime.now(timezone.utc).isoformat()
        arguments = ["--root", root, "--scope", "rides", "--logical-date", now, "--keep-days"]
        [kept] = retention_job.run([*arguments, "1"])
        assert not kept.changed
        [dry] = retention_job.run([*arguments, "0", "--dry-run"])
        assert dry.changed and len(list(manager.read_events("rides", "trips"))) == 1
        [gone] = retention_job.run([*arguments, "0"])
        assert gone.changed and list(manager.read_events("rides", "trips")) == []
