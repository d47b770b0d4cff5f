"""What is measured and logged of each request to a storage."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

import pytest

from chunkstore import ObjectNotFound, Outcome, Range, Store, open_store
from chunkstore.errors import InvalidOffset
from chunkstore.metrics import default_metrics
from chunkstore.port import TOKEN
from chunkstore.wrapping import WRITES

DATA = bytes(range(100))
VERBS = WRITES | {"read", "read_into", "read_ranges", "list", "stat", "clock"}


def measured(name: str, **labels: str) -> float:
    """A number of the layer; 0 before there is one."""
    return default_metrics().registry.get_sample_value(f"pravega_storage_{name}", labels) or 0


def totals(name: str) -> dict[str, float]:
    """One number of each verb."""
    return {verb: measured(name, operation=verb) for verb in VERBS}


def use(store: Store) -> dict[str, int]:
    """Every verb once. Returns how many bytes each moved."""
    store.put("a", DATA)
    store.post("b", DATA[:7])
    assert store.put_if_absent("c", [os.urandom(TOKEN), DATA]) is Outcome.MINE
    store.append("a", 100, DATA[:10])
    store.link("d", store, "a")
    store.set_read_only("a", True)
    store.read("a", 0, 30)
    store.read_into("a", 0, memoryview(bytearray(20)))
    store.read_ranges([Range("a", 0, 5), Range("none"), Range("b", 0, 6)])
    store.list("")
    store.stat("a")
    store.clock()
    store.delete(["a", "b", "c", "d"])
    moved = {"put": 100, "post": 7, "put_if_absent": TOKEN + 100, "append": 10, "read": 30, "read_into": 20}
    return {**dict.fromkeys(VERBS, 0), **moved, "read_ranges": 11}


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_every_verb_is_measured_once(tmp_path: Path, kind: str) -> None:
    store = open_store(str(tmp_path) if kind == "folder" else f"memory://{uuid.uuid4().hex}")
    counts, moved = totals("seconds_count"), totals("bytes_total")
    expected = use(store)
    assert totals("seconds_count") == {verb: count + 1 for verb, count in counts.items()}
    assert totals("bytes_total") == {verb: count + expected[verb] for verb, count in moved.items()}


def test_failures_are_counted_and_move_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a", DATA)
    failures = {"operation": "append", "error": "InvalidOffset"}
    before = measured("failures_total", **failures), measured("bytes_total", operation="append")
    for _ in range(2):
        with pytest.raises(InvalidOffset):
            store.append("a", 3, DATA)
    assert measured("failures_total", **failures) == before[0] + 2
    assert measured("bytes_total", operation="append") == before[1]


def test_every_request_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "chunkstore.measured_store")
    store = open_store(str(tmp_path))
    store.put("a\nb", DATA)
    with pytest.raises(ObjectNotFound):
        store.read("none")
    texts = [record.getMessage() for record in caplog.records if record.name == "chunkstore.measured_store"]
    assert len(texts) == 2
    assert texts[0].startswith("put ('a\\nb',): done, 100 bytes, ")
    assert texts[1].startswith("read ('none',): ObjectNotFound, 0 bytes, ")


def test_a_link_between_folders_is_made_by_the_filesystem(tmp_path: Path) -> None:
    source, target = open_store(str(tmp_path / "one")), open_store(str(tmp_path / "other"))
    source.put("a", DATA)
    target.link("b", source, "a")
    assert (tmp_path / "other" / "b").samefile(tmp_path / "one" / "a")
