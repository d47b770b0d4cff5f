"""The page about the segment store: its code runs, and it has every verb, error and field that there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import chunkstore
from chunkstore import SegmentStorageConfig, SegmentStore

PAGE = (Path(__file__).resolve().parents[2] / "docs/segment-store.md").read_text("utf-8")


def test_the_code_on_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace("/tmp/segments", str(tmp_path)), {})
    with SegmentStore.open(str(tmp_path)) as store:
        assert store.read("logs/app", 0, 21) == b"started\nstopped\nonce\n"


def test_the_page_has_every_verb_and_field() -> None:
    verbs = {name for name, _ in inspect.getmembers(SegmentStore, callable) if not name.startswith("_")}
    assert {verb for verb in verbs - {"open", "close"} if f"`{verb}(" not in PAGE} == set()
    assert {field.name for field in fields(SegmentStorageConfig) if f"`{field.name}`" not in PAGE} == set()


def test_every_name_that_the_page_takes_from_the_package_is_exported() -> None:
    classes = {name for name in re.findall(r"`([A-Z]\w+)", PAGE) if not name.isupper()}
    assert classes - set(chunkstore.__all__) == {"False", "True"}
