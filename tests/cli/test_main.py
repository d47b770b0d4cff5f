"""What all commands have in common: global options in any place, helps, and tables that fit a terminal."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pravega_spark import StreamManager
from pravega_spark.cli.commands import EXAMPLES, all_commands
from pravega_spark.cli.main import cli
from pravega_spark.cli.session import Session
from pravega_spark.jobs import retention
from tests.cli.test_cli import document, run

RIDES = "examples/rides"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("main") / "root")
    with StreamManager(place) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "rides", 2)
        with manager.create_writer("examples", "rides") as writer:
            for number in range(1200):
                writer.write_event("x" * 10, str(number))
        manager.scale_stream("examples", "rides", ["0.0", 1], [(0.0, 0.25), (0.25, 1.0)])
    return place


# --- global options -----------------------------------------------------------------------------------------------


def test_global_options_stand_before_or_after_a_command(url: str) -> None:
    told = run("--json", "stream", "list", root=url).stdout
    assert '"events": 1200' in told
    for arguments in (
        ["stream", "list", "--root", url, "--json"],
        ["stream", "--json", "list", f"--root={url}"],
        ["stream", "--root", url, "list", "examples", "--json"],
        ["--root", "/nowhere", "stream", "list", "--root", url, "--json"],
    ):
        assert run(*arguments).stdout == told
    twice = run("--storage", "a=sesame", "stream", "list", "--storage", "a=2", root=url, code=2)
    assert "'a' is given twice" in twice.stderr and "sesame" not in twice.stderr
    assert "NAME=VALUE" in run("stream", "list", "--storage", "a", root=url, code=2).stderr
    failed = CliRunner().invoke(cli, ["segment", "describe", "no", "--traceback", "--root", url])
    assert failed.exception is not None and not isinstance(failed.exception, SystemExit)


# --- helps --------------------------------------------------------------------------------------------------------


def leaves() -> Iterator[tuple[str, click.Command]]:
    return ((words, command) for words, command in all_commands(cli) if not isinstance(command, click.Group))


def test_every_help_has_an_example_that_the_program_accepts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("events.jsonl").write_text("")
    assert sorted(EXAMPLES) == sorted(words for words, _ in leaves())
    for words, command in leaves():
        example = EXAMPLES[words]
        assert example.startswith(words)
        assert f"Example:\n    pravega-spark {example}" in run(*words.split(), "--help").stdout, words
        given = shlex.split(example)[len(words.split()) :]
        with click.Context(cli, obj=Session(None, None, {}, as_json=False)) as above:
            command.make_context(words, given, parent=above).close()


@pytest.mark.parametrize(
    "group", ["", *(words for words, command in all_commands(cli) if isinstance(command, click.Group))]
)
def test_first_sentences_of_helps_are_not_cut(group: str) -> None:
    result = CliRunner().invoke(cli, [*group.split(), "--help"], terminal_width=80)
    commands = result.stdout.partition("Commands:\n")[2]
    assert commands and "..." not in commands


def test_helps_say_what_values_look_like() -> None:
    """Each kind of value that has a form of its own, with an example, wherever it is taken."""
    shown = {"POSITION": "5 minutes ago", "TIME": "2026-01-31T12:00:00Z", "DURATION": "1h30m", "SIZE": "10MiB"}
    seen = set()
    for words, command in leaves():
        told = " ".join(run(*words.split(), "--help").stdout.split())
        assert "default: (" not in told, words
        for parameter in command.params:
            kind = parameter.type.name.upper()
            if kind in shown and not getattr(parameter, "hidden", False):
                seen.add(kind)
                assert f"{kind}: " in told and shown[kind] in told.partition(f"{kind}: ")[2], f"{words}: {kind}"
    assert seen == shown.keys()
    told = " ".join(CliRunner().invoke(retention.main, ["--help"]).output.split())
    assert "DURATION: Durations are written as 500ms, 90s" in told and told.endswith("--scope trips --yes")
    assert "[default: 10 min]" in run("root", "create", "--help").stdout


# --- tables -------------------------------------------------------------------------------------------------------

TABLES = (
    "stream list",
    f"stream describe {RIDES}",
    "scope list",
    "container list",
    "container describe 0",
    "container flush",
    "verify",
    "root describe",
)


@pytest.mark.parametrize("command", TABLES)
def test_tables_fit_80_columns(url: str, command: str) -> None:
    """Whatever is not a path or a stream cut."""
    lines = run(*command.split(), root=url).stdout.splitlines()
    wide = [line for line in lines if len(line.rstrip()) > 80 and url not in line and not line.startswith("H4sI")]
    assert wide == []


def test_wide_tables_have_all_columns(url: str) -> None:
    assert "sequence number" not in run("container", "list", root=url).stdout
    assert "sequence number" in run("container", "list", "--wide", root=url).stdout
    assert "recovery points" in run("--wide", "verify", root=url).stdout


def test_people_get_grouped_digits_sizes_and_durations(url: str) -> None:
    shown = run("stream", "describe", RIDES, root=url).stdout
    assert re.search(r"^events +1,200$", shown, re.MULTILINE) and re.search(r"^size +21\.1 KiB$", shown, re.MULTILINE)
    assert re.search(r"^head: .+\nH4sI\S+\ntail: .+\nH4sI\S+$", shown, re.MULTILINE)
    assert re.search(r"2\.1 +4294967298 +0 +0\.25 +0", shown)
    assert re.search(r"^garbage delay +10 min$", run("root", "describe", root=url).stdout, re.MULTILINE)


def test_a_stream_is_described_with_its_open_transactions(url: str) -> None:
    scope, name = RIDES.split("/")
    with StreamManager(url) as manager:
        begun = manager.create_transaction_writer(scope, name).begin_txn()
        number = str(uuid.UUID(int=begun.get_txn_id()))
        assert document("stream", "describe", RIDES, root=url)["stream"]["transactions"] == [number]
        assert f"open transaction {number}\n" in run("stream", "describe", RIDES, root=url).stdout
        begun.abort()
    assert document("stream", "describe", RIDES, root=url)["stream"]["transactions"] == []


# --- segments -----------------------------------------------------------------------------------------------------


def test_segments_have_one_notation(url: str) -> None:
    by_label = document("segment", "describe", f"{RIDES}/0.0", root=url)
    assert by_label == document("segment", "describe", f"{RIDES}/0.#epoch.0", root=url)
    assert document("stream", "describe", RIDES, root=url)["stream"]["current"][0]["segment"] == "2.1"
    refused = run("stream", "scale", RIDES, "--seal", "x", "--range", "0", "1", root=url, code=2).stderr
    assert "'x' is not a segment: give 2.1 (segment 2 of epoch 1), or its id" in refused
    refused = run("stream", "scale", RIDES, "--seal", "7.0", "--range", "0", "1", root=url, code=1).stderr
    assert "segment 7.0 is not open; the open segments are 2.1, 3.1" in refused


# --- what else people ask -----------------------------------------------------------------------------------------


def test_retention_without_a_policy_says_so(url: str) -> None:
    told = run("stream", "retain", RIDES, root=url).stdout
    assert told == "nothing was truncated: the stream has no retention policy\n"
    assert document("stream", "retain", RIDES, root=url)["retention"] is None


def test_drawing(url: str, tmp_path: Path) -> None:
    for name, begin in (("a.svg", b"<svg"), ("a.html", b"<!DOCTYPE html>")):
        assert "shows stream" in run("stream", "draw", RIDES, "-o", str(tmp_path / name), root=url).stdout
        assert (tmp_path / name).read_bytes().startswith(begin)
    refused = run("stream", "draw", RIDES, "-o", str(tmp_path / "a.txt"), root=url, code=1).stderr
    assert "unsupported file extension '.txt': use .svg or .html" in refused
    refused = run("stream", "draw", RIDES, "-o", "/nowhere/a.svg", root=url, code=1).stderr
    assert "cannot write /nowhere/a.svg: folder /nowhere does not exist. Create it, or give another" in refused
    (tmp_path / "a-folder.svg").mkdir()
    refused = run("stream", "draw", RIDES, "-o", str(tmp_path / "a-folder.svg"), root=url, code=2).stderr
    assert "is a directory" in refused


def test_a_cut_of_a_time_is_named_in_the_legend(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    run("stream", "draw", RIDES, "-o", str(path), "--at", "2020-01-01", "--at", "2999-01-01", root=url)
    named = re.findall(r">([a-z]+ event since [^<]+)</text>", path.read_text())
    assert named == ["first event since 2020-01-01 00:00:00 UTC", "no event since 2999-01-01 00:00:00 UTC"]


def test_a_relative_time_is_shown_as_it_was_written(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    run("stream", "draw", RIDES, "-o", str(path), "--at", "1h", "--at", "5 minutes ago", root=url)
    named = re.findall(r">([a-z]+ event since [^<]+)</text>", path.read_text())
    pattern = r"(no|first) event since (1h|5 minutes ago) \(20[-0-9]+ [0-9:]+ UTC\)"
    assert len(named) == 2 and all(re.fullmatch(pattern, name) for name in named), named
    told = run("stream", "cuts", RIDES, "--at", "1h", "--at", "2020-01-01", root=url).stdout
    assert re.search(r"1h \(20[-0-9]+T[0-9:.]+Z\)", told) and "2020-01-01T00:00:00.000Z" in told
    assert document("stream", "cuts", RIDES, "--at", "1h", root=url)["cuts"][1]["at"].startswith("20")


def test_cuts_of_times_in_one_second_have_names_of_their_own(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    times = [part for ms in (1, 2) for part in ("--at", f"2999-01-01T00:00:00.00{ms}Z")]
    run("stream", "draw", RIDES, "-o", str(path), *times, "--at", "2020-01-01", root=url)
    named = re.findall(r">([a-z]+ event since [^<]+)</text>", path.read_text())
    assert named == [
        "no event since 2999-01-01T00:00:00.001Z",
        "no event since 2999-01-01T00:00:00.002Z",
        "first event since 2020-01-01 00:00:00 UTC",
    ]


def test_a_stream_that_exists_says_what_was_not_applied(url: str) -> None:
    same = run("stream", "create", RIDES, root=url).stdout
    assert same == f"stream {RIDES} exists already\n"
    others = ("--segments", "5", "--retain-time", "7d", "--tag", "t", "--scale-kib", "9")
    told = run("stream", "create", RIDES, *others, root=url).stdout
    here = f"pravega-spark --root {url}"
    assert f"--segments 5. It has 2: `{here} stream scale {RIDES} --segments 5` replaces them" in told
    for what in ("its retention policy is: none", "its tags are: none", "its scaling policy is: fixed"):
        assert f"not applied: {what}" in told
    assert told.count(f"`{here} stream update {RIDES}` changes it") == 2
    assert len(document("stream", "create", RIDES, *others, root=url)["not_applied"]) == 4
    assert document("stream", "create", RIDES, "--segments", "2", root=url)["not_applied"] == []


def test_a_dry_run_of_retention_tells_figures_and_why(url: str) -> None:
    name = "examples/kept"
    run("stream", "create", name, "--retain-size", "1KiB", root=url)
    with StreamManager(url) as manager, manager.create_writer("examples", "kept") as writer:
        writer.write_event("x" * 100)
    told = run("stream", "retain", name, "--period", "0", "--dry-run", root=url).stdout
    assert re.match(rf"stream {name} has 1 event, 108 bytes, the oldest [0-9]+ s old\nit keeps at least 1 KiB\n", told)
    assert "nothing would be truncated: no recorded stream cut has at least 1 KiB after it" in told
    refused = run("stream", "retain", name, "--period", "0", root=url, code=1)
    assert "108 bytes" in refused.stdout and "give --yes" in refused.stderr
    told = run("stream", "retain", name, "--period", "0", "--yes", root=url).stdout
    assert re.search(r"[12] stream cuts? recorded, (at|from) 20", told) and "nothing was truncated" in told
    assert "a stream cut was recorded: 0.0 at 108" in told
    for given in (["--dry-run"], ["--yes"], []):
        early = run("stream", "retain", name, *given, root=url).stdout
        why = "no recorded stream cut has at least 1 KiB after it"
        assert re.search(rf"nothing (was|would be) truncated: {why}\n", early), "with any period"
        assert "recorded:" not in early and "period" not in early
    for given in (["--dry-run"], ["--yes"], []):
        early = document("stream", "retain", name, *given, root=url)["retained"]
        assert early["recorded"] is None and early["why"] == why


def test_retention_that_waits_for_a_cut_answers_in_bytes_first(url: str) -> None:
    """The interval of recorded cuts is no answer to a policy of bytes: what a cut at the tail would change is."""
    name = "examples/waits"
    run("stream", "create", name, "--retain-size", "100", root=url)
    run("stream", "retain", name, "--yes", root=url)
    with StreamManager(url) as manager, manager.create_writer("examples", "waits") as writer:
        writer.write_event("x" * 100)
        writer.flush()
        assert manager.retain("examples", "waits", period=0).recorded
        writer.write_event("x" * 1000)
    for given in (["--dry-run"], ["--yes"], []):
        told = run("stream", "retain", name, *given, root=url).stdout
        assert re.search(
            r"nothing (was|would be) truncated yet: with --period 0s it would be 1 event, 108 bytes, from 0\.0 at 0, "
            r"up to 0\.0 at 108; the last recorded cut is [0-9]+ s old, and cuts are recorded every 30 min\n",
            told,
        ), told
    truncated = document("stream", "retain", name, "--period", "0s", "--yes", root=url)["retained"]
    assert truncated["bytes"] == 108
