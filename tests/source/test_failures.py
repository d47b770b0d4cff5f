"""What Spark's users read of a failure: the sentence first, Spark's remedy, and few frames; a bug keeps all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql.types import StructType

from chunkstore import StorageError
from engine.errors import ContainerOffline, RootNotFound
from pravega_spark import PravegaDataSource
from pravega_spark.errors import ScopeNotFound, StreamNotFound, TruncatedData
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.failures import for_users, message_for_users
from pravega_spark.streams.model.names import validate_scope_name
from pravega_spark.streams.model.stream_record import checked_tags


def raising(error: Exception, cause: Exception | None = None) -> Callable[[], None]:
    def fail() -> None:
        raise error from cause

    return fail


def shown(call: Callable[[], object]) -> list[str]:
    """What Python prints of what a call raises, without what this test adds."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        call()
    return "".join(traceback.format_exception(caught.value)).splitlines()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ScopeNotFound("s"), "Scope does not exist: s. Create it first, or set option 'allow_create_scope' to true."),
        (
            StreamNotFound("s/t", ["s/tt"]),
            "Stream does not exist: s/t. Did you mean 's/tt'? Create it first, or set option 'allow_create_stream' to "
            "true.",
        ),
        (
            TruncatedData("s/t", 0, 5, 9),
            "Stream s/t, segment 0.0: the data between offsets 5 and 9 has been truncated and cannot be read any more. "
            "Set option 'fail_on_data_loss' to false to continue at the head of the stream, or start from a later cut "
            "(a streaming query with a new checkpoint).",
        ),
        (StorageError("the disk is full"), "the disk is full"),
    ],
)
def test_the_remedy_is_one_of_spark(error: Exception, advice: str) -> None:
    assert message_for_users(error) == advice
    lines = shown(for_users(raising(error, OSError("a cause that the message tells"))))
    assert lines[-1].endswith(advice) and not any("a cause that" in line for line in lines)
    assert not any("in fail" in line for line in lines), "the frames are left out"
    assert isinstance(error, type(error)) and str(error) == advice


def test_the_command_line_is_not_all_that_is_named() -> None:
    table = message_for_users(RootNotFound("file:///data/table", content="it is a Delta table"))
    assert table.startswith("file:///data/table holds no streams: it is a Delta table.") and "create" not in table
    text = message_for_users(RootNotFound("file:///data/stream", ["/data/streams"]))
    assert text.startswith("file:///data/stream holds no streams: there is no _system/pravega.json. Did you mean")
    assert "pravega-spark" not in text and "A write creates a root" in text


def test_what_our_own_code_refuses_has_few_frames() -> None:
    lines = shown(lambda: for_users(lambda: validate_scope_name("a b"))())
    assert not any("names.py" in line for line in lines) and lines[-1].startswith("ValueError: The scope name 'a b'")


def test_a_bug_keeps_its_frames() -> None:
    """Also a ValueError that a library raised below our code."""
    for bug in (lambda: 1 / 0, lambda: np.zeros(2) + np.zeros(3), lambda: checked_tags(5)):  # type: ignore[arg-type]
        lines = shown(for_users(bug))
        assert any("<lambda>" in line for line in lines)


def test_why_a_container_is_offline_stays() -> None:
    lines = shown(for_users(raising(ContainerOffline("container 1 is offline"), ValueError("its log is damaged"))))
    assert any("its log is damaged" in line for line in lines)


def test_generators_too() -> None:
    @for_users
    def rows() -> Iterator[int]:
        yield 1
        raise ScopeNotFound("s")

    found = rows()
    assert next(found) == 1
    lines = shown(lambda: next(found))
    assert "allow_create_scope" in lines[-1]


def test_what_spark_calls_is_covered(tmp_path: Path) -> None:
    source = PravegaDataSource({"controller": str(tmp_path / "none"), "scope": "s", "stream": "t"})
    reader = source.reader(StructType().add("event", "binary"))
    assert isinstance(reader, BatchReader)
    for call in (reader.partitions, PravegaDataSource({"controller": "/x"}).schema):
        lines = shown(call)
        frames = [line for line in lines if line.startswith("  File ")]
        assert len(frames) <= 3 and "failures.py" in frames[-1], lines
