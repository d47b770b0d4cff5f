"""Every option of a command that a page or a message advises is one of that command's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from docs.hooks import reference
from pravega_spark.cli.main import cli
from pravega_spark.jobs import imports, maintain, retention, truncate

PROJECT = Path(__file__).resolve().parents[2]
JOBS: dict[str, click.Command] = {
    str(job.name): job for job in (imports.main, maintain.main, retention.main, truncate.main)
}
COMMANDS = dict(reference.walk_commands(cli))

_PROGRAM = re.compile(r"(?:pravega-spark|python3? -m pravega_spark\.(?P<module>cli|jobs\.\w+)) (?P<words>[^`\n]*)")
_QUOTED = re.compile(r"`(?P<words>[a-z]+(?: [a-z]+)? [^`\n]*--[^`\n]*)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


class Advice(NamedTuple):
    """A command as a text has it: its own name, as `stream read` or `jobs.truncate`, and the options beside it."""

    command: str
    options: frozenset[str]


def known(command: str) -> set[str]:
    """The options of a command or job, the global ones included; none for what is no command."""
    name = command.removeprefix("jobs.")
    owners = [JOBS[name]] if command in {f"jobs.{job}" for job in JOBS} else [COMMANDS[command], cli]
    return {text for each in owners for option in each.params for text in option.opts} | {"--help"}


def named(words: str) -> str:
    """The command that some words begin with, behind options of the program; "" for none."""
    plain = re.sub(r"^(--(json|wide|salvage|unrecorded|traceback) |--\w+ \S+ )*", "", words.replace("\\", ""))
    first = plain.split(" ")
    return next((name for name in (" ".join(first[:2]), first[0]) if name in COMMANDS), "")


def advised(text: str) -> Iterator[Advice]:
    """The commands that a text shows, by the program's name or, between backticks, by their own."""
    for found in _PROGRAM.finditer(text):
        module, words = found["module"] or "cli", re.split(r"[|;]| && |(?<!-)\$ ", found["words"])[0]
        command = named(words) if module == "cli" else module
        if command:
            yield Advice(command, frozenset(_OPTION.findall(words)))
    for found in _QUOTED.finditer(text):
        if command := named(found["words"]):
            yield Advice(command, frozenset(_OPTION.findall(found["words"])))


def wrong(advice: Advice) -> set[str]:
    """Options that the command does not have, nor a job of its name."""
    jobs = known(f"jobs.{advice.command}") if advice.command in JOBS else set()
    return set(advice.options) - known(advice.command) - jobs


def sources() -> list[Path]:
    """Pages, and the code that messages are in."""
    found = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "docs" / "hooks").glob("*.py")]
    for package in (*reference.PACKAGES, "examples", "notebooks"):
        found += [path for path in (PROJECT / package).rglob("*") if path.suffix in (".py", ".ipynb", ".md")]
    return found


def test_the_check_finds_what_is_wrong() -> None:
    text = "Run `pravega-spark --root X stream read a/b --form head`, or `verify --deeep`, then "
    text += "python -m pravega_spark.jobs.truncate --att 7d"
    assert [wrong(advice) for advice in advised(text)] == [{"--form"}, {"--att"}, {"--deeep"}]
    good = "`pravega-spark --root X stream read a/b --from head --json`, `maintain --spark`, `gc --dry-run`"
    assert [(advice.command, wrong(advice)) for advice in advised(good)] == [
        ("stream read", set()),
        ("maintain", set()),
        ("gc", set()),
    ]


def test_every_option_that_is_advised_is_one_of_the_commands() -> None:
    found = {path: [*advised(path.read_text("utf-8"))] for path in sources()}
    unknown = {
        (str(path.relative_to(PROJECT)), each.command, *sorted(wrong(each)))
        for path, all_of_it in found.items()
        for each in all_of_it
        if wrong(each)
    }
    assert unknown == set()
    checked = [each for all_of_it in found.values() for each in all_of_it]
    assert len(checked) > 150 and sum(bool(each.options) for each in checked) > 60
