"""Who makes a root, a scope and a stream from Spark: writes, in an empty place; reads only if told, and no root."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from chunkstore import StorageRefused
from chunkstore.paths import ROOT
from engine.errors import RootNotFound
from engine.root import Root
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.jobs import maintain, retention
from pravega_spark.jobs.spread import Target
from pravega_spark.roots import open_root
from pravega_spark.source.opening import Access, open_stream, resolve_cut
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.selection import Selection
from pravega_spark.source.sink import BatchWriter
from pravega_spark.source.tables import TableReader
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.model.policies import ScalingPolicy

EXPLICIT = {"allow_create_scope": "true", "allow_create_stream": "true"}


def options(url: object, **more: str) -> SourceOptions:
    return SourceOptions.parse({"controller": str(url), "scope": "s", "stream": "t", **more}, {})


def test_a_cut_with_a_segment_that_is_not_reached_is_taken(tmp_path: Path) -> None:
    """As a Java program may have stored it."""
    with Root.open(str(tmp_path)) as root:
        Catalog(root).create_scope("s")
        Catalog(root).create_stream("s", "t", ScalingPolicy("events", 2, 10, 2))
        stream = Catalog(root).stream("s", "t")
        stream.update(ScalingPolicy("events", 1, 10, 2))
        stream.scale([0, 1], [(0.0, 1.0)])
        merged = stream.snapshot().record.current.segments[0].id
        text = StreamCut("s", "t", {0: 0, merged: -1}).as_text()
        assert resolve_cut(stream.snapshot(), text, UNBOUNDED) == StreamCut("s", "t", {0: 0, 1: 0})


@pytest.mark.parametrize("access", ["read", "follow"])
def test_a_read_makes_no_root(tmp_path: Path, access: Access) -> None:
    for url in (str(tmp_path / "new"), f"memory://{uuid.uuid4()}"):
        for told in ({}, {"allow_create_scope": "true"}, {"allow_create_stream": "true"}, EXPLICIT):
            with pytest.raises(RootNotFound, match="root create"):
                open_stream(options(url, **told), access)
        assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named_with_what_is_like_it(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "streams")) as root:
        Catalog(root).create_scope("examples")
        Catalog(root).create_stream("examples", "clicks")
    (tmp_path / "stream-notes").mkdir()
    named = {"scope": "examples", "stream": "clicks"}
    for wrong, meant in (
        (tmp_path / "stream", f"'{tmp_path}/streams'"),
        (tmp_path / "streams/examples/clicks", f"root '{tmp_path}/streams', scope 'examples', stream 'clicks'"),
    ):
        with pytest.raises(RootNotFound) as missing:
            open_stream(options(wrong, **named), "read")
        assert missing.value.similar == (str(tmp_path / "streams"),)
        assert missing.value.fact.endswith(f"Did you mean {meant}?")
    with pytest.raises(StreamNotFound, match=r"examples/clcks\. Did you mean 'examples/clicks'\?"):
        open_stream(options(tmp_path / "streams", scope="examples", stream="clcks"), "read")
    with pytest.raises(ScopeNotFound, match=r"^Scope does not exist: exmples\. Did you mean 'examples'\?"):
        open_stream(options(tmp_path / "streams", scope="exmples", stream="clicks"), "read")
    with pytest.raises(StreamNotFound, match=r"^Scope does not exist: exmples, so .* Did you mean 'examples'\?"):
        open_stream(options(tmp_path / "streams", scope="exmples", stream="clicks", allow_create_scope="true"), "read")
    with pytest.raises(StreamNotFound) as found:
        open_stream(options(tmp_path / "streams", scope="examples", stream="xyz"), "read")
    assert found.value.similar == () and "Did you mean" not in str(found.value)


def test_who_makes_something_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return [(level, text) for level, text in found if "created" in text]

    new = tmp_path / "new"
    open_stream(options(new), "write")
    assert told() == [
        ("INFO", f"created a root of streams in file://{new}, where there was none"),
        (
            "WARNING",
            f"There was no root of streams in file://{new}, so this write created one. Check that this is the URL "
            "that you meant.",
        ),
        ("INFO", "scope s did not exist: it was created"),
        ("INFO", "stream s/t did not exist: it was created"),
    ]
    for _ in range(2):
        open_stream(options(new, stream="other"), "follow")
    assert told() == [("WARNING", "stream s/other did not exist: it was created")]


def test_a_write_warns_once_of_policies_that_its_stream_does_not_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the words of `stream create`, which names the command that changes them too."""
    rows = StructType([StructField("event", StringType())])
    week = {"default_retention_duration_milliseconds": "7d", "default_retention_max_duration_milliseconds": "14d"}

    def warned(**more: str) -> list[str]:
        caplog.clear()
        for _ in range(2):
            BatchWriter(options(tmp_path / "streams", **more), rows)
        return [record.getMessage() for record in caplog.records if "'default_'" in record.getMessage()]

    assert warned(default_num_segments="2") == []
    assert warned(stream="kept", **week) == []
    assert warned() == warned(default_num_segments="2") == warned(stream="kept", **week) == []
    (text,) = warned(default_num_segments="8", **week)
    assert "Stream s/t exists already" in text and "`pravega-spark stream update s/t`" in text
    assert "its scaling policy is: fixed; at least 2 segments, and its retention policy is: none" in text
    (text,) = warned(stream="kept", default_retention_duration_milliseconds="7d")
    assert "its retention policy is: at least 7 d, at most 14 d." in text


def test_who_makes_what_is_nearly_named_as_something_else_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def made(place: str, scope: str, stream: str, access: Access = "write") -> list[str]:
        caplog.clear()
        assert open_stream(options(tmp_path / place, scope=scope, stream=stream), access).exists()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    made("streams", "examples", "clicks")
    for other in ("clicks-copy", "rides", "rides-2026-01", "rides-2026-02"):
        assert made("streams", "examples", other) == [], other
    slip = "stream examples/clcks did not exist: it was created. Did you mean 'examples/clicks'?"
    assert made("streams", "examples", "clcks") == [slip]
    assert made("streams", "examples", "clcks") == [], "once"
    assert made("streams", "examples", "rides-2026-03", "follow") == [
        "stream examples/rides-2026-03 did not exist: it was created. Did you mean 'examples/rides-2026-02' or "
        "'examples/rides-2026-01'?"
    ], "a read that finds nothing may name it wrongly, whatever it is that differs"
    assert made("streams", "exmples", "clicks") == [
        "scope exmples did not exist: it was created. Did you mean 'examples'?"
    ]
    assert made("streems", "examples", "clicks") == [
        f"created a root of streams in file://{tmp_path}/streems, where there was none. "
        f"Did you mean '{tmp_path}/streams'?"
    ]


@pytest.mark.parametrize(
    ("scope", "stream", "meant"),
    [
        ("examples", "clcks", "examples/clicks"),
        ("examples", "cliks-eu", "examples/clicks-eu"),
        ("test", "clicks", "examples/clicks"),
        ("exmples", "clicks", "examples/clicks"),
        ("exmples", "other", "examples"),
    ],
)
def test_a_streaming_read_creates_no_stream_whose_name_is_probably_a_typo(
    tmp_path: Path, scope: str, stream: str, meant: str
) -> None:
    """Its query would wait for events forever."""
    with Root.open(str(tmp_path / "root")) as root:
        catalog = Catalog(root)
        for name in ("examples", "test"):
            catalog.create_scope(name)
        for name in ("clicks", "clicks-eu"):
            catalog.create_stream("examples", name)
        before = [catalog.scopes(), list(catalog.streams("test"))]
        typed = {"scope": scope, "stream": stream}
        with pytest.raises((ScopeNotFound, StreamNotFound), match=f"does not exist: .*Did you mean '{meant}'"):
            open_stream(options(tmp_path / "root", **typed), "follow")
        assert [catalog.scopes(), list(catalog.streams("test"))] == before
        assert open_stream(options(tmp_path / "root", **typed, **EXPLICIT), "follow").exists()


def test_each_option_allows_what_the_error_says_it_allows(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root")) as root:
        Catalog(root).create_scope("examples")
        Catalog(root).create_stream("examples", "clicks")
        typed = {"scope": "exmples", "stream": "other"}
        with pytest.raises(ScopeNotFound, match="'examples'"):
            open_stream(options(tmp_path / "root", **typed, allow_create_stream="true"), "follow")
        assert open_stream(options(tmp_path / "root", **typed, allow_create_scope="true"), "follow").exists()
        typed = {"scope": "examples", "stream": "clcks"}
        with pytest.raises(StreamNotFound, match="'examples/clicks'"):
            open_stream(options(tmp_path / "root", **typed, allow_create_scope="true"), "follow")
        assert open_stream(options(tmp_path / "root", **typed, allow_create_stream="true"), "follow").exists()


def test_a_streaming_read_creates_a_stream_whose_name_is_like_no_other(tmp_path: Path) -> None:
    Root.open(str(tmp_path / "root")).close()
    for name in ("rides-1", "rides-2", "clicks", "taxi"):
        assert open_stream(options(tmp_path / "root", stream=name), "follow").exists()


def test_a_pattern_creates_no_scope_whose_name_is_probably_a_typo(tmp_path: Path) -> None:
    place = {"controller": str(tmp_path / "root"), "scope": "exmples", "stream_pattern": ".*"}
    with Root.open(place["controller"]) as root:
        Catalog(root).create_scope("examples")
        with pytest.raises(ScopeNotFound, match="Did you mean 'examples'"):
            Selection(SourceOptions.parse(place, {}), "follow").current()
        assert Catalog(root).scopes() == ["examples"]
        Selection(SourceOptions.parse({**place, "allow_create_scope": "true"}, {}), "follow").current()
        assert Catalog(root).scopes() == ["examples", "exmples"]


@pytest.mark.parametrize("by", ["rows", "pattern", "table"])
def test_a_scope_that_is_made_alone_is_told_too(tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str) -> None:
    place = {"controller": str(tmp_path / "streams"), "scope": "exmples", "allow_create_scope": "true"}
    with Root.open(place["controller"]) as root:
        Catalog(root).create_scope("examples")
    if by == "rows":
        schema = StructType([StructField("event", StringType()), StructField("stream", StringType())])
        BatchWriter(SourceOptions.parse(place, {}, rows_name_streams=True), schema)
    elif by == "pattern":
        Selection(SourceOptions.parse({**place, "stream_pattern": ".*"}, {}), "follow").current()
    else:
        told = SourceOptions.parse({**place, "metadata": "Chunks"}, {})
        assert list(TableReader(told).read(InputPartition(0))) == []
    assert caplog.messages[-1] == "scope exmples did not exist: it was created. Did you mean 'examples'?"


def test_a_scope_is_not_made_for_a_stream_that_must_not_be(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root")) as root:
        with pytest.raises(StreamNotFound):
            open_stream(options(tmp_path / "root", allow_create_stream="false"), "follow")
        assert Catalog(root).scopes() == []


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
            open_stream(options(tmp_path / "moved", **EXPLICIT), access)
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
