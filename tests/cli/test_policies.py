"""`stream update`: what is not given stays as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pravega_spark import StreamManager, StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.changes import StreamChange
from tests.cli.test_cli import document, run


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with a stream that has policies and tags."""
    url = str(tmp_path / "root")
    scaling = StreamScalingPolicy.auto_scaling_policy_by_data_rate(100, 3, 2)
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream_with_policy("sc", "st", scaling, StreamRetentionPolicy.by_size(5000), ["a", "b"])
        manager.create_stream("sc", "plain")
    return url


def updated(root: str, *options: str, stream: str = "sc/st") -> tuple[Any, Any, Any]:
    """Scaling (kind, minimum, rate, factor), retention (kind, limit, maximum) and tags afterwards."""
    found = document("stream", "update", stream, *options, root=root)
    described = document("stream", "describe", stream, root=root)["stream"]
    assert (
        all(found[name] == described[name] for name in ("scaling", "retention", "tags")) and found["stream"] == stream
    )
    return tuple(found["scaling"].values()), found["retention"] and tuple(found["retention"].values()), found["tags"]


def test_each_part_for_itself(root: str) -> None:
    scaling, retention = ("bytes", 2, 100, 3), ("size", 5000, None)
    assert updated(root, "--tag", "c") == (scaling, retention, ["c"])
    assert updated(root, "--retain-time", "7ms") == (scaling, ("time", 7, None), ["c"])
    assert updated(root, "--scale-kib", "200") == (("bytes", 2, 200, 3), ("time", 7, None), ["c"])
    assert updated(root, "--scale-factor", "4") == (("bytes", 2, 200, 4), ("time", 7, None), ["c"])
    assert updated(root, "--scale-events", "9", "--min-segments", "1")[0] == ("events", 1, 9, 4)
    assert updated(root, "--no-retention", "--no-tags") == (("events", 1, 9, 4), None, [])
    assert updated(root, "--no-scaling")[0] == ("fixed", 2, 0, 0)  # as many as it has
    assert updated(root, "--scale-kib", "8", stream="sc/plain")[0] == ("bytes", 1, 8, 2)


def test_another_number_of_segments_scales_the_stream_and_a_dry_run_says_so(root: str) -> None:
    def segments() -> int:
        return len(document("stream", "describe", "sc/plain", root=root)["stream"]["current"])

    planned = run("stream", "update", "sc/plain", "--min-segments", "3", "--tag", "new", "--dry-run", root=root).stdout
    assert "would update stream sc/plain" in planned and "tags: new" in planned
    assert "It would be scaled from 1 to 3 segments." in planned and segments() == 1
    done = run("stream", "update", "sc/plain", "--min-segments", "3", root=root).stdout
    assert "it was scaled from 1 to 3 segments" in done and segments() == 3
    run("stream", "update", "sc/plain", "--scale-events", "9", "--min-segments", "1", root=root)
    assert segments() == 3
    assert "scaled" not in run("stream", "update", "sc/plain", "--tag", "x", "--dry-run", root=root).stdout
    run("stream", "update", "sc/plain", "--no-scaling", root=root)
    assert segments() == 3
    assert document("stream", "update", "sc/plain", "--min-segments", "2", root=root)["segments"] == 2


def test_a_maximum_stays_until_another_is_given(root: str) -> None:
    def retention(*options: str) -> Any:
        return updated(root, *options)[1]

    assert retention("--retain-size-max", "9000") == ("size", 5000, 9000)
    assert retention("--retain-size", "6000") == ("size", 6000, 9000)
    assert retention("--retain-time", "7d", "--retain-time-max", "14d") == ("time", 7 * 86_400_000, 14 * 86_400_000)
    assert "at least 7 d, at most 14 d" in run("stream", "describe", "sc/st", root=root).stdout
    refused = run("stream", "update", "sc/st", "--retain-time", "15d", root=root, code=2).stderr
    assert "14 d (--retain-time-max), is less than the minimum, 15 d (--retain-time): raise the maximum" in refused
    assert retention("--no-retention") is None


def test_create_takes_a_maximum(root: str) -> None:
    run("stream", "create", "sc/new", "--retain-size", "1KiB", "--retain-size-max", "1MiB", root=root)
    described = document("stream", "describe", "sc/new", root=root)["stream"]
    assert described["retention"] == {"kind": "size", "limit": 1024, "maximum": 1 << 20}


def test_what_people_see(root: str) -> None:
    told = run("stream", "update", "sc/st", "--retain-size", "9", root=root).stdout
    assert "stream sc/st was updated" in told and "at least 9 bytes" in told and "a, b" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "at least one option"),
        (("--tag", "a", "--no-tags"), "not both"),
        (("--scale-kib", "1", "--no-scaling"), "only one of"),
        (("--retain-time", "1s", "--retain-size", "1"), "only one of"),
        (("--retain-time", "1s", "--no-retention"), "only one of"),
        (
            ("--retain-time-max", "1s"),
            "--retain-time-max is given without --retain-time: a maximum of retention requires a minimum",
        ),
        (("--no-scaling", "--scale-factor", "2"), "requires --scale-kib"),
    ],
)
def test_what_makes_no_sense(root: str, options: tuple[str, ...], told: str) -> None:
    assert told in run("stream", "update", "sc/st", *options, root=root, code=2).stderr


def test_what_another_process_changes_meanwhile_is_kept(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes the policies after this process has read them, and before this one changes them."""
    original, others = changes.update, [StreamScalingPolicy.auto_scaling_policy_by_data_rate(900, 5, 2)]

    def update(*given: Any) -> StreamChange:
        if others:
            policy = others.pop()
            with StreamManager(root) as other:
                other.update_stream_with_policy("sc", "st", policy, StreamRetentionPolicy.by_size(5000, 9000))
        return original(*given)

    monkeypatch.setattr(changes, "update", update)
    expected = ("bytes", 4, 900, 5), ("size", 6000, 9000), ["a", "b"]
    assert updated(root, "--min-segments", "4", "--retain-size", "6000") == expected
    assert not others


def test_the_example_of_a_policy_by_size_truncates_what_its_page_says(tmp_path: Path) -> None:
    project = Path(__file__).parents[2]
    section = (project / "docs" / "retention.md").read_text("utf-8").partition("### Trying a policy by size\n")[2]
    commands = re.findall(r"^    (.*)$", section.partition("\n## ")[0], re.MULTILINE)
    program = tmp_path / "pravega-spark"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pravega_spark.cli "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project),
        "PRAVEGA_CONTROLLER_URI": str(tmp_path / "root"),
    }
    script = "\n".join(["set -e", *commands])
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, planned, last = done.stdout.split("it keeps at least 10 KiB")[1:]
    assert "nothing was truncated: no recorded stream cut has at least 10 KiB after it" in first
    assert "would be truncated: 4,000 events" in planned
    assert "was truncated: 4,000 events" in last


def test_the_format_of_values_is_kept_until_it_is_removed(root: str) -> None:
    kept = {"format": "json", "schema": "id bigint, name string"}
    given = ("--value-format", "json", "--value-schema", kept["schema"])
    assert document("stream", "update", "sc/st", *given, root=root)["values"] == kept
    assert updated(root, "--tag", "c")[2] == ["c"]
    assert document("stream", "describe", "sc/st", root=root)["stream"]["values"] == kept
    assert "json: id bigint, name string" in run("stream", "describe", "sc/st", root=root).stdout
    assert document("stream", "update", "sc/st", "--no-value-format", root=root)["values"] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--value-format", "json"), "Give --value-format and --value-schema together"),
        (("--value-format", "json", "--value-schema", "a money"), "--value-schema: the schema is wrong at 'money'"),
        (("--value-format", "json", "--value-schema", "a int", "--no-value-format"), "not both"),
    ],
)
def test_a_wrong_format_of_values_is_an_error_of_usage(root: str, given: tuple[str, ...], message: str) -> None:
    assert message in run("stream", "update", "sc/st", *given, root=root, code=2).stderr


def test_what_the_stream_refuses_of_a_format_of_values(root: str) -> None:
    schema = '{"type":"record","name":"r","fields":[{"name":"a","type":"%s"}]}'
    run("stream", "update", "sc/st", "--value-format", "avro", "--value-schema", schema % "int", root=root)
    told = run(
        "stream", "update", "sc/st", "--value-format", "avro", "--value-schema", schema % "long", root=root, code=1
    )
    assert "Stream sc/st keeps another Avro schema" in told.stderr
    named = run(
        "stream", "update", "sc/plain", "--value-format", "json", "--value-schema", "offset int", root=root, code=1
    )
    assert "Field 'offset' of the value schema has the name of a column" in named.stderr
