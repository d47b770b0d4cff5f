"""`maintain` on the command line: what it changes, what it only tells, and how it ends."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from chunkstore import open_store
from engine.root import Root
from pravega_spark import StreamManager, StreamRetentionPolicy
from pravega_spark.jobs import maintain as job
from pravega_spark.quantities import counted, moment_text, size_text
from pravega_spark.streams.maintenance import retention, scaling
from pravega_spark.streams.stream import Stream
from tests.cli.test_cli import assert_keys, document, run
from tests.clocks import set_ahead

EVENTS = 20
BYTES = EVENTS * (8 + len("event 00"))

MAINTAINED = {"dry_run": bool, "steps": int, "changed": int, "failed": int, "outcomes": list}
OUTCOME = {
    "scope": str | None,
    "stream": str | None,
    "step": str,
    "changed": bool,
    "bytes": int,
    "detail": str,
    "error": str | None,
    "events": int,
    "old_head": str | None,
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with stream one/short, of which retention lets go all but the last events, one/long and two/other."""
    url = str(tmp_path / "root")
    Root.open(url, containers=2).close()
    with StreamManager(url) as manager:
        for scope in ("one", "two"):
            manager.create_scope(scope)
        manager.create_stream_with_policy("one", "short", retention_policy=StreamRetentionPolicy.by_size(1))
        manager.create_stream("one", "long")
        manager.create_stream("two", "other")
        for key in (("one", "short"), ("one", "long"), ("two", "other")):
            write(manager, *key)
        manager.retain("one", "short")
        write(manager, "one", "short")
        retention.record(Stream(manager.root, "one", "short"), int(time.time() * 1000))
    return url


def write(manager: StreamManager, scope: str, stream: str) -> None:
    with manager.create_writer(scope, stream) as writer:
        for number in range(EVENTS):
            writer.write_event(f"event {number:02d}", "key")


def size(url: str, scope: str = "one", stream: str = "short") -> int:
    with StreamManager(url) as manager:
        return manager.stream_info(scope, stream).size


def flushed(url: str) -> bool:
    with Root.open(url) as root:
        return any(root.container(number).state.cycle.number for number in range(2))


def steps(found: Any) -> set[tuple[str | None, str | None, str]]:
    return {(row["scope"], row["stream"], row["step"]) for row in found["outcomes"]}


STREAMS = (("one", "short"), ("one", "long"), ("two", "other"))
OF_STREAMS = ("retention", "scaling", "transactions")
OF_ROOT = {(None, None, action) for action in ("flush", "compaction", "garbage")}


def test_all_that_is_needed_is_done_and_told(folder: str) -> None:
    found = document("maintain", "--period", "0", "--verify", "--yes", root=folder)["maintain"]
    assert_keys(found, MAINTAINED)
    for row in found["outcomes"]:
        assert_keys(row, OUTCOME)
    of_streams = {(*key, action) for key in STREAMS for action in OF_STREAMS}
    assert steps(found) == of_streams | OF_ROOT | {(None, None, "verify")}
    assert (found["dry_run"], found["steps"], found["failed"]) == (False, 13, 0)
    assert [row["bytes"] for row in found["outcomes"] if row["step"] == "retention" and row["changed"]] == [BYTES]
    assert found["changed"] == sum(row["changed"] for row in found["outcomes"])
    assert size(folder) == BYTES and size(folder, "one", "long") == BYTES
    assert flushed(folder)
    again = run("maintain", "--yes", root=folder)
    assert "12 steps" in again.stdout and "0 failed" in again.stdout


def test_streams_can_be_chosen(folder: str) -> None:
    of_scope = document("maintain", "--scope", "two", "--yes", root=folder)["maintain"]
    assert steps(of_scope) == {("two", "other", action) for action in OF_STREAMS} | OF_ROOT
    of_stream = document("maintain", "--scope", "one", "--stream", "long", "--yes", root=folder)["maintain"]
    assert steps(of_stream) == {("one", "long", action) for action in OF_STREAMS} | OF_ROOT
    assert size(folder) == 2 * BYTES


def test_a_dry_run_changes_nothing(folder: str) -> None:
    for more in ([], ["--yes"]):
        found = document("maintain", "--period", "0", "--dry-run", *more, root=folder)["maintain"]
        assert found["dry_run"] is True
        assert steps(found) == {(*key, action) for key in STREAMS for action in OF_STREAMS} | OF_ROOT
        of_stream = [row for row in found["outcomes"] if row["stream"] is not None]
        assert [row["bytes"] for row in of_stream if row["bytes"]] == [BYTES]
    told = run("maintain", "--period", "0", "--dry-run", root=folder).stdout
    assert re.search(r"the root +flush +[0-9.]+ KiB +would flush 2 containers", told) and all(
        len(line.rstrip()) <= 80 for line in told.splitlines()
    )
    assert re.search(rf"one/short +retention +{size_text(BYTES)} +would truncate at 0\.0 at ", told)
    assert size(folder) == 2 * BYTES and not flushed(folder)


def test_a_dry_run_names_the_steps_that_the_run_takes(folder: str) -> None:
    """Each step that changes something, for the same stream or the root, with the same size; but what the steps of
    streams log is flushed with the rest."""
    for number in range(2):
        run("container", "flush", str(number), root=folder)
    with StreamManager(folder) as manager:
        for _ in range(3):  # of small chunks
            with manager.create_writer("one", "long") as writer:
                writer.write_event("x" * 1000)
            for number in range(2):
                run("container", "flush", str(number), root=folder)

    def changing(*option: str) -> set[tuple[object, ...]]:
        found = document("maintain", "--period", "0", *option, root=folder)["maintain"]["outcomes"]
        sizes = {"flush": 0}
        return {(row["stream"], row["step"], sizes.get(row["step"], row["bytes"])) for row in found if row["changed"]}

    expected = changing("--dry-run")
    assert {step for _, step, _ in expected} == {"retention", "flush", "compaction"}
    assert changing("--yes") == expected


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_the_documented_steps_are_those_of_each_run(folder: str, option: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    listed = re.search(r"- `step`: (.*?)\n    - ", page, re.DOTALL)
    assert listed is not None
    found = document("maintain", "--verify", option, root=folder)["maintain"]["outcomes"]
    assert set(re.findall(r"`(\w+)`", listed[1])) == {row["step"] for row in found} | {"find"}


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_the_verdict_of_the_verification_is_shown(folder: str, option: str) -> None:
    told = run("maintain", "--verify", option, root=folder).stdout
    assert re.search(r"the root +verify +0 bytes +healthy", told)
    [row] = [
        row
        for row in document("maintain", "--verify", option, root=folder)["maintain"]["outcomes"]
        if row["step"] == "verify"
    ]
    assert (row["changed"], row["detail"], row["error"]) == (False, "healthy", None)


def test_the_verdict_of_the_verification_counts_warnings(folder: str) -> None:
    Path(folder, "one", "nested", "_system").mkdir(parents=True)
    Path(folder, "one", "nested", "_system", "pravega.json").write_bytes(b"{}")  # a root inside the root
    told = " ".join(run("maintain", "--verify", "--dry-run", root=folder).stdout.split())
    assert "no errors, 1 warning; run `pravega-spark verify` for all" in told


@pytest.mark.parametrize("kind", ["events", "kib"])
def test_an_overloaded_segment_that_is_too_young_is_shown(
    folder: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says until when the policy waits, and for which rate."""
    run("stream", "create", "one/busy", f"--scale-{kind}", "1", root=folder)
    with StreamManager(folder) as manager:
        with manager.create_writer("one", "busy") as writer:
            writer.write_events(["x" * 1000] * 1300)
        judged = Stream(manager.root, "one", "busy").snapshot().record.current.created + scaling.COOL_DOWN
    rate = {"events": "10.8333 events/s", "kib": "10.6641 KiB/s"}[kind]
    unit = rate.split()[1]
    for option in (["--dry-run"], ["--yes"], []):
        result = run("maintain", *option, root=folder, code=0 if option else 1)
        told = " ".join((result.stdout + result.stderr).split())
        assert (
            f"overloaded but too young to be split: segment 0.0 ({rate} in the last 2 minutes); the target is 1 "
            f"{unit}. Rates are judged when the segments are 10 min old, at {moment_text(judged)}"
        ) in told
    set_ahead(monkeypatch, 601.0)
    assert "too young" not in run("maintain", "--dry-run", root=folder).stdout


def test_a_stream_that_keeps_its_rate_is_only_counted(folder: str) -> None:
    run("stream", "create", "one/calm", "--scale-events", "1000", root=folder)
    assert "one/calm" not in run("maintain", "--dry-run", root=folder).stdout


def test_orphans_are_left_alone_for_as_long_as_it_is_told(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        run("container", "flush", str(number), root=folder)
    open_store(folder).put(f"one/long/0.#epoch.0.E-0-O-0.{uuid.UUID(int=0)}", b"orphan")
    set_ahead(monkeypatch, 1000)
    for age, found in ((None, 0), (2000, 0), (500, 1)):
        option = [] if age is None else ["--orphan-age", str(age)]
        rows = document("maintain", *option, "--dry-run", root=folder)["maintain"]["outcomes"]
        assert [row["detail"] for row in rows if row["step"] == "garbage"] == [
            f"{counted(found, 'orphan')} would be deleted"
        ]


def test_without_yes_it_tells_what_would_go_and_fails(folder: str) -> None:
    refused = run("maintain", "--period", "0", root=folder, code=1)
    assert f"retention of stream one/short, {size_text(BYTES)}" in refused.stdout
    assert "one/long" not in refused.stdout and "--yes" in refused.stderr
    nothing = run("maintain", "--scope", "two", root=folder, code=1)
    assert "flush of the root" in nothing.stdout and "retention" not in nothing.stdout
    assert size(folder) == 2 * BYTES and not flushed(folder)


def test_what_fails_does_not_keep_the_rest_from_being_done(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scaling.scale

    def failing(stream: Any, **named: Any) -> Any:
        if stream.name == "long":
            raise ValueError("it does not want to")
        return real(stream, **named)

    monkeypatch.setattr(scaling, "scale", failing)
    result = run("--json", "maintain", "--period", "0", "--yes", root=folder, code=1)
    assert result.stderr == "pravega-spark: 1 of 12 steps failed; first error: it does not want to\n"
    assert '"failed": 1' in result.stdout and size(folder) == BYTES and flushed(folder)


def test_wrong_names(folder: str) -> None:
    missing = run("maintain", "--scope", "one", "--stream", "none", "--yes", root=folder, code=1)
    assert "Stream does not exist: one/none" in missing.stderr and not flushed(folder)
    assert "Scope does not exist: none" in run("maintain", "--scope", "none", "--yes", root=folder, code=1).stderr
    for wrong in (["--stream", "long"], ["--scope", "../x"], ["--scope", "one", "--stream", "a/b"], ["--period", "-1"]):
        run("maintain", *wrong, "--yes", root=folder, code=2)
    nowhere = run("maintain", "--yes", root=f"{folder}-none", code=1)
    assert "-none" in nowhere.stderr and not Path(f"{folder}-none").exists()


def test_progress_is_told_of_each_stream_and_step(folder: str) -> None:
    heard: list[tuple[str, int, int]] = []
    with Root.open(folder) as root:
        list(job.maintain(root, progress=lambda *what: heard.append(what), period=retention.PERIOD))
    streams, rest = heard[:3], heard[3:]
    assert {what for what, _, _ in streams} == {"stream one/short", "stream one/long", "stream two/other"}
    assert [(done, total) for _, done, total in streams] == [(0, 3), (1, 3), (2, 3)]
    assert rest == [("flush", 0, 0), ("compaction", 0, 0), ("garbage", 0, 0)]
