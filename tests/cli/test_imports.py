"""`import`, and the job that does the same: what they show, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pravega_spark import StreamManager
from pravega_spark.cli.main import cli
from pravega_spark.jobs import imports
from tests.archives import CHUNKED, case


@pytest.fixture
def source(tmp_path: Path) -> str:
    for name, data in case(CHUNKED).objects.items():
        file = tmp_path / "lts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return str(tmp_path / "lts")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def test_a_dry_run_shows_what_would_come_and_what_not(tmp_path: Path, source: str) -> None:
    root = str(tmp_path / "root")
    result = run("--root", root, "import", source, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "demo/rides" in result.output and "7 of 7 streams would be imported" in result.output
    assert "demo/txns: open transactions are not imported: 00000000-0000-0000-0000-000000000003" in result.output
    assert "key-value table demo/kvt: new" in result.output
    assert not Path(root).exists()
    report = json.loads(run("--root", root, "--json", "import", source, "demo/rides", "--dry-run").stdout)["import"]
    [stream] = report["streams"]
    assert (stream["stream"], stream["outcome"], stream["segments"], stream["bytes"]) == ("rides", "new", 3, 2090613)


def test_nothing_is_changed_without_yes(tmp_path: Path, source: str) -> None:
    root = str(tmp_path / "root")
    result = run("--root", root, "import", source)
    assert result.exit_code == 1
    assert f"7 streams would be imported into {root}" in result.output
    assert "nothing was changed: give --yes to apply the change" in result.output
    assert not Path(root).exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["demo/rieds"], "demo/rides"), (["deom"], "demo"), (["--byte-stream", "demo/rieds"], "demo/rides")],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_the_source_has_not_is_told_with_names_like_it(
    tmp_path: Path, source: str, words: list[str], meant: str
) -> None:
    """It cannot be created in a source, and no command that would make it in the root is named."""
    result = run("--root", str(tmp_path / "root"), "import", source, *words, "--yes")
    assert result.exit_code == 1 and f"{source} has not what is named." in result.stderr
    assert f"Did you mean '{meant}'?" in result.stderr and "create" not in result.stderr


@pytest.mark.parametrize("way", [["--copy"], []], ids=["copied", "linked"])
def test_streams_are_imported_once(tmp_path: Path, source: str, way: list[str]) -> None:
    root = str(tmp_path / "root")
    result = run("--root", root, "import", source, "demo/rides", *way, "--yes")
    assert result.exit_code == 0, result.output
    assert "1 of 1 stream imported" in result.output
    result = run("--root", root, "--json", "import", source, *way, "--yes")
    assert result.exit_code == 0, result.output
    outcomes = {row["stream"]: row["outcome"] for row in json.loads(result.stdout)["import"]["streams"]}
    assert outcomes.pop("rides") == "present"
    assert set(outcomes.values()) == {"imported"}
    assert run("--root", root, "verify", "--deep").exit_code == 0


def test_what_fails_is_told_in_one_line(tmp_path: Path, source: str) -> None:
    root = str(tmp_path / "root")
    with StreamManager(root, create=True) as manager:
        manager.create_scope("demo")
        manager.create_stream("demo", "rides", 1)
    result = run("--root", root, "import", source, "demo", "--yes")
    assert result.exit_code == 1
    assert "1 of 7 streams were not imported; first error: stream demo/rides exists already" in result.stderr
    assert run("--root", root, "import", source, "demo/none", "--yes").exit_code == 1
    assert run("--root", root, "import").exit_code == 2


def test_the_job_does_the_same(tmp_path: Path, source: str) -> None:
    root = str(tmp_path / "root")
    words = ["--root", root, "--source", source, "--scope", "demo", "--stream", "sealed", "--copy", "--json"]
    result = CliRunner().invoke(imports.main, words)
    assert result.exit_code == 1 and "give --yes" in result.output
    assert not Path(root).exists()
    result = CliRunner().invoke(imports.main, ["--root", root, "--source", source, "--dry-run"])
    assert result.exit_code == 0 and "8 steps: 8 would change something, 0 would not, 0 failed" in result.output
    assert "not imported: reader group demo/rg1: begin a new one where it stood" in " ".join(result.output.split())
    assert not Path(root).exists()
    result = CliRunner().invoke(imports.main, [*words, "--yes"])
    assert result.exit_code == 0, result.output
    [outcome] = json.loads(result.stdout)["outcomes"]
    assert (outcome["stream"], outcome["changed"], outcome["bytes"]) == ("sealed", True, 42611)
    with StreamManager(root, create=False) as manager:
        assert sum(1 for _ in manager.read_events("demo", "sealed")) == 200
