"""What the command line says of what is missing: its own commands, and no option of Spark."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.errors import RootNotFound
from pravega_spark import StreamManager, StreamReaderGroupConfig
from pravega_spark.cli.main import cli
from pravega_spark.console.advice import ROOT_VARIABLE, user_message
from pravega_spark.errors import ScopeNotFound, StreamNotFound, TruncatedData
from pravega_spark.jobs import maintain, retention, truncate
from tests.cli.test_cli import document, run


@pytest.fixture
def root(tmp_path: Path) -> str:
    with StreamManager(str(tmp_path / "streams")) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "clicks")
    return str(tmp_path / "streams")


def test_a_stream_that_does_not_exist(root: str) -> None:
    told = run("stream", "describe", "examples/clcks", code=1, **{ROOT_VARIABLE: root}).stderr
    assert told == (
        "pravega-spark: Stream does not exist: examples/clcks. Did you mean 'examples/clicks'? "
        "`pravega-spark stream list` shows what there is, and `pravega-spark stream create examples/clcks` makes it.\n"
    )


def test_a_scope_that_does_not_exist(root: str) -> None:
    wanted = (
        "pravega-spark: Scope does not exist: exmples. Did you mean 'examples'? `pravega-spark scope list` shows what "
        "there is, and `pravega-spark scope create exmples` makes it.\n"
    )
    for command in (("stream", "list", "exmples"), ("stream", "create", "exmples/a"), ("scope", "delete", "exmples")):
        assert run(*command, code=1, **{ROOT_VARIABLE: root}).stderr == wanted


@pytest.mark.parametrize(
    "words",
    [["stream", "list", "exmples"], ["stream", "read", "examples/clcks"], ["stream", "delete", "examples/clicks"]],
    ids=" ".join,
)
def test_commands_that_are_advised_go_to_the_root_that_was_given(tmp_path: Path, root: str, words: list[str]) -> None:
    """Before the command or after it; the environment may name another. What is advised does what it says."""
    spaced = str(tmp_path / "with a space")
    Path(root).rename(spaced)
    for given in (["--root", spaced, *words], [*words, "--root", spaced]):
        for environment in ({}, {ROOT_VARIABLE: root}):
            told = run(*given, code=1, **environment).stderr
            advised = re.findall("`(.*?)`", told)
            assert advised and all(each.startswith(f"pravega-spark --root '{spaced}' ") for each in advised)
            run(*shlex.split(advised[0])[1:], *(["--dry-run"] if " seal " in advised[0] else []))


def test_what_was_not_applied_is_done_by_the_command_that_is_advised(root: str) -> None:
    (line,) = document("stream", "create", "examples/clicks", "--segments", "3", root=root)["not_applied"]
    (advised,) = re.findall("`(.*?)`", line)
    run(*shlex.split(advised)[1:])
    assert len(document("stream", "describe", "examples/clicks", root=root)["stream"]["current"]) == 3


def test_a_log_of_its_own_is_in_what_is_advised(tmp_path: Path, root: str) -> None:
    told = run("scope", "list", "--wal", "/mnt/log", root=tmp_path / "new", code=1).stderr
    assert f"`pravega-spark --root file://{tmp_path}/new --wal /mnt/log root create`" in told


def test_a_root_that_does_not_exist(root: str) -> None:
    told = run("scope", "list", root=root[:-1], code=1).stderr
    assert f"Did you mean '{root}'?" in told and f"`pravega-spark --root file://{root[:-1]} root create`" in told
    assert "StreamManager" not in told


@pytest.mark.parametrize("command", [("segment", "describe"), ("segment", "chunks"), ("header", "export")])
def test_a_segment_that_does_not_exist(root: str, command: tuple[str, ...]) -> None:
    there = "examples/clicks/0.#epoch.0"
    for slip in ("examples/clcks/0.0", "examples/clicks/0.1"):
        told = run(*command, slip, root=root, code=1).stderr
        assert "does not exist" in told and f"Did you mean '{there}'?" in told and "#index" not in told


def test_a_prefix_that_no_segment_has(root: str) -> None:
    told = run("defrag", "examples/clcks/", root=root, code=1).stderr
    assert told == ("pravega-spark: no segment's name starts with 'examples/clcks/'. Did you mean 'examples/clicks'?\n")
    for prefix in ("examples/", "examples/clicks/0.#epoch.0.7"):
        assert "merged 0 chunks" in run("defrag", prefix, root=root).stdout


def test_a_segment_of_old_code_that_does_not_exist(root: str) -> None:
    Path(root, "old").mkdir()
    Path(root, "old", "segment$header").write_bytes(b"")
    told = run("header", "import", "old/segmnt", "examples/new", root=root, code=1).stderr
    assert "segment 'old/segmnt' does not exist. Did you mean 'old/segment'?" in told


def test_a_stream_that_a_job_does_not_find(root: str) -> None:
    for program in (retention.main, truncate.main, maintain.main):
        given = ["--root", root, "--scope", "examples", "--stream", "clcks", "--yes"]
        given += ["--at", "tail"] if program is truncate.main else []
        result = CliRunner().invoke(program, given)
        assert result.exit_code == 1 and "Did you mean 'examples/clicks'?" in result.stderr


def test_a_name_that_no_stream_can_have(root: str) -> None:
    assert (
        "The stream name 'My Stream' has the character ' '"
        in run("stream", "describe", "examples/My Stream", root=root, code=2).stderr
    )


def test_the_minimum_of_a_scaling_policy_is_lowered_before_segments_are_merged(root: str) -> None:
    run("stream", "create", "examples/wide", "--scale-events", "10", "--segments", "3", root=root)
    refused = run("stream", "scale", "examples/wide", "--segments", "1", root=root, code=1).stderr
    assert "1 segment would remain, but its scaling policy requires at least 3. Lower the minimum first: " in refused
    (command,) = re.findall(r"`pravega-spark (?:--root \S+ )?(stream update [^`]*)`", refused)
    run(*command.split(), root=root)
    assert "from 3 to 1 segment" in run("stream", "scale", "examples/wide", "--segments", "1", root=root).stdout


def test_no_option_of_spark_is_named() -> None:
    for error in (ScopeNotFound("s"), StreamNotFound("s/t"), TruncatedData("s/t", 0, 0, 1), RootNotFound("file:///x")):
        for text in (user_message(error), str(error)):
            assert "option" not in text and "allow_create" not in text and "fail_on_data_loss" not in text


_NO_CREDENTIALS = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"), None),
}
"""An environment in which no request to S3 can be signed, and none is sent."""


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["stream", "lag", "examples/clicks", "--checkpoint", "s3a://bucket/place"], "--elsewhere"),
        (["backup", "s3://bucket/place"], "--elsewhere"),
        (["import", "s3://bucket/place", "--copy", "--dry-run"], "--elsewhere"),
        (["--root", "s3://bucket/new", "restore", "s3://bucket/place"], "--storage"),
        (["--root", "s3://bucket/place", "stream", "list"], "--storage"),
        (["backup", "s3://a:b@bucket/place"], "--elsewhere"),
        (["--root", "s3://a:b@bucket/place", "stream", "list"], "--storage"),
    ],
)
def test_an_error_about_credentials_names_the_option_of_that_place(root: str, command: list[str], option: str) -> None:
    pytest.importorskip("s3fs")
    result = CliRunner(env={**_NO_CREDENTIALS, ROOT_VARIABLE: None}).invoke(cli, ["--root", root, *command])
    assert result.exit_code == 1
    other = {"--elsewhere": "--storage", "--storage": "--elsewhere"}[option]
    assert f"{option} " in result.stderr and other not in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (["group", "describe", "examples/dashbxard"], "examples/dashboard"),
        (["group", "describe", "other/dashboard"], "examples/dashboard"),
        (["group", "delete", "examples/dashbxard", "--yes"], "examples/dashboard"),
        (["stream", "lag", "examples/clicks", "--group", "dashbxard"], "examples/dashboard"),
        (["stream", "lag", "examples/clicks", "--group", "examples/dashbxard"], "examples/dashboard"),
        (["stream", "lag", "examples/clicks", "--group", "exmples/dashboard"], "examples"),
    ],
)
def test_a_group_that_does_not_exist_has_suggestions(root: str, command: list[str], meant: str) -> None:
    with StreamManager(root) as manager:
        manager.create_scope("other")
        manager.create_reader_group("dashboard", "examples", "clicks")
    assert f"Did you mean {meant!r}?" in run(*command, root=root, code=1).stderr


def test_a_group_of_another_scope_has_a_lag(root: str) -> None:
    with StreamManager(root) as manager:
        manager.create_scope("other")
        manager.create_stream("examples", "more")
        config = StreamReaderGroupConfig(False, "examples", "clicks")
        manager.create_reader_group_with_config("remote", "other", config)
    assert document("stream", "lag", "examples/clicks", "--group", "other/remote", root=root)["lag"]["events"] == 0
    told = run("stream", "lag", "examples/more", "--group", "other/remote", root=root, code=1).stderr
    assert "reader group other/remote does not read stream examples/more, but examples/clicks" in told


@pytest.mark.parametrize(
    ("command", "listed"),
    [("stream describe clicks", "stream list"), ("group describe dashboard", "group list"), ("kvt read t", "kvt list")],
)
def test_a_name_without_its_scope_is_refused_with_the_command_that_lists_them(
    root: str, command: str, listed: str
) -> None:
    told = run(*command.split(), root=root, code=2).stderr
    assert re.search(rf"is not SCOPE/\w+: its scope is missing; `pravega-spark {listed}` shows what there is", told)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("_delta_log/00000000000000000000.json", "it is a Delta table"),
        ("table/metadata/00000-6e3f.metadata.json", "it contains an Iceberg table, in 'table'"),
        ("part-0.parquet", "there is no _system/pravega.json, only other data, such as 'part-0.parquet'"),
    ],
)
def test_a_folder_with_other_data_is_no_place_to_create_a_root(tmp_path: Path, path: str, content: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("not ours")
    for command in ("stream list", "stream read examples/clicks", "verify", "root describe"):
        told = run(*command.split(), root=tmp_path, code=1).stderr
        assert f"holds no streams: {content}" in told and "create" not in told
