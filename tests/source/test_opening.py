"""Who makes a root, a scope and a stream from Spark: writes, in a place that is empty; reads only if they are told."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from chunkstore import StorageRefused
from chunkstore.paths import ROOT
from engine.errors import RootNotFound
from engine.root import Root
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.jobs import maintain, retention
from pravega_spark.jobs.spread import Target
from pravega_spark.roots import open_root
from pravega_spark.source.opening import Access, open_stream
from pravega_spark.source.options import SourceOptions

TOLD = {"allow_create_scope": "true", "allow_create_stream": "true"}


def options(url: object, **more: str) -> SourceOptions:
    return SourceOptions.parse({"controller": str(url), "scope": "s", "stream": "t", **more}, {})


@pytest.mark.parametrize("access", ["read", "follow"])
def test_a_read_makes_no_root_unless_it_is_told_to(tmp_path: Path, access: Access) -> None:
    for url in (str(tmp_path / "new"), f"memory://{uuid.uuid4()}"):
        for told in ({}, {"allow_create_scope": "true"}, {"allow_create_stream": "true"}):
            with pytest.raises(RootNotFound, match="root create"):
                open_stream(options(url, **told), access)
        assert list(tmp_path.iterdir()) == []
    assert open_stream(options(tmp_path / "new", **TOLD), access).exists()


def test_a_write_makes_a_root_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(RootNotFound):
        open_stream(options(tmp_path / "new", allow_create_scope="false"), "write")
    (tmp_path / "notes").write_text("")
    with pytest.raises(StorageRefused, match="is not empty"):
        open_stream(options(tmp_path), "write")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert open_stream(options(tmp_path / "new"), "write").exists()


def test_nobody_makes_a_root_over_what_has_lost_its_description(tmp_path: Path) -> None:
    assert open_stream(options(tmp_path / "root"), "write").exists()
    open_root(str(tmp_path / "root"), {}).close()
    (tmp_path / "root" / ROOT).unlink()
    (tmp_path / "root").rename(tmp_path / "moved")  # else this process has it open
    for access in ("read", "follow", "write"):
        with pytest.raises(StorageRefused, match="restore the object from"):
            open_stream(options(tmp_path / "moved", **TOLD), access)  # type: ignore[arg-type]
    for job in (maintain.run, retention.run):
        with pytest.raises(StorageRefused, match="restore the object from"):
            job(Target(str(tmp_path / "moved")))
        with pytest.raises(RootNotFound):
            job(Target(str(tmp_path / "new")))
    assert not (tmp_path / "new").exists() and not (tmp_path / "moved" / ROOT).exists()


def test_a_batch_read_makes_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    Root.open(str(tmp_path / "root")).close()
    with pytest.raises(ScopeNotFound):
        open_stream(options(tmp_path / "root"), "read")
    assert open_stream(options(tmp_path / "root"), "follow").exists()
    other = {"stream": "other"}
    with pytest.raises(StreamNotFound):
        open_stream(options(tmp_path / "root", **other), "read")
    assert open_stream(options(tmp_path / "root", **other, allow_create_stream="true"), "read").exists()
