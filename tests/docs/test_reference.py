"""The reference has everything that the code has, and nothing that it has not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import pravega_spark
from docs.hooks import kept, reference
from docs.hooks.remedies import REMEDIES
from pravega_spark.cli.main import cli
from pravega_spark.source.options import SourceOptions

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", kept.PAGES)
def test_the_pages_that_are_kept_are_as_the_code_makes_them(name: str) -> None:
    assert (kept.DOCS / name).read_text("utf-8") == kept.content(name), "make reference"


def rows(page: str) -> list[str]:
    """The first cells of all tables of a page, without the marks of code."""
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def test_every_spark_option_is_there() -> None:
    listed = rows(reference.options())
    assert len(listed) == len(set(listed))
    # Fields that are made of several options, or that say how one was given, have other names.
    derived = {"root", "storage", "scaling", "retention"}
    fields = {name for name in SourceOptions.__dataclass_fields__ if not re.search("_to_create_", name)}
    assert fields - derived <= set(listed)
    assert {"controller", "path", "default_num_segments", "default_retention_size_bytes"} <= set(listed)


def test_every_command_and_each_of_its_options_is_there() -> None:
    page = reference.commands()
    sections = dict(re.findall(r"^## (.+)\n\n((?:.|\n)*?)(?=^## |\Z)", page, re.MULTILINE))
    found = dict(reference.walk_commands(cli))
    assert len(found) > 30 and set(found) <= set(sections)
    for words, command in found.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and "--help" not in parameter.opts and not parameter.hidden:
                assert set(parameter.opts) <= set(re.findall(r"--?[\w-]+", sections[words])), words


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_every_error_is_there_with_a_remedy(package: str) -> None:
    page = reference.errors()
    for kind in reference.declared_errors(package):
        assert f"{{ #{reference.anchor(kind)} }}" in page
        told = reference.error_message(kind) or REMEDIES.get(kind.__name__)
        assert told, f"{kind.__name__} has no message of its own: say in docs/hooks/remedies.py what to do"
        assert kind.__doc__, kind


def test_no_remedy_is_for_an_error_that_is_not_there() -> None:
    names = {kind.__name__ for package in reference.PACKAGES for kind in reference.declared_errors(package)}
    assert set(REMEDIES) <= names


def told_commands() -> set[tuple[str, str]]:
    """Where a command of the program stands between backticks, and what follows its name there."""
    sources = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "docs" / "hooks").glob("*.py")]
    for package in reference.PACKAGES:
        sources += (PROJECT / package).rglob("*.py")
    return {
        (path.relative_to(PROJECT).as_posix(), words)
        for path in sources
        for words in re.findall(r"`(?:\S+/)?pravega-(?!admin|spark/|spark\[)([\w -]*[^`\n]*)`", path.read_text("utf-8"))
        if "(?:" not in words  # a pattern, in console/advice.py
    }


def test_every_command_that_is_advised_is_one_of_the_programs() -> None:
    """What is copied from an error or a page has to be a command."""
    found, commands = told_commands(), dict(reference.walk_commands(cli))
    assert len(found) > 20
    for place, told in found:
        name, *words = told.replace("\\", "").split(" ")
        assert name == "spark", (place, told)
        while words and words[0].startswith("--"):  # of the program itself, most with a value
            words = words[1 if words[0] in ("--json", "--help", "--version") else 2 :]
        if words and words[0] != "COMMAND":
            assert words[0] in commands or " ".join(words[:2]) in commands, (place, told)


def test_a_message_shows_where_values_go() -> None:
    message = reference.error_message(pravega_spark.StreamNotFound)
    assert message is not None and message.startswith("Stream does not exist: ‹stream›.‹similar› Create it first")


def measured_in_code() -> set[str]:
    """The names of operations that the source hands to a layer, or to what measures in its name; requests are all."""
    found: set[str] = set()
    for package in ("chunkstore", "engine", "pravega_spark"):
        for path in (PROJECT / package).rglob("*.py"):
            found |= set(re.findall(r"\b(?:_?measured?|_METRICS\.add|Request)\(\"(\w+)\"", path.read_text("utf-8")))
    return found


ONE_OF_EACH = """
import json, sys
from chunkstore.metrics import default_metrics
from pravega_spark import StreamManager
with StreamManager(sys.argv[1]) as manager:
    manager.create_scope("s")
    manager.create_stream("s", "s")
    with manager.create_writer("s", "s") as writer:
        writer.write_event("event")
    list(manager.read_events("s", "s"))
families = default_metrics().collect()
print(json.dumps([[family.name, [sample.labels["operation"] for sample in family.samples]] for family in families]))
"""


def test_every_metric_in_the_code_is_there() -> None:
    known = {operation for operations in reference.METRICS.values() for operation in operations}
    # Upkeep is measured under the names of its duties, which no call has as a literal.
    assert measured_in_code() <= known
    assert known - measured_in_code() <= set(reference.METRICS["maintenance"])


@pytest.mark.processes
def test_every_metric_that_a_process_collects_is_there(tmp_path: Path) -> None:
    """A process of its own: other tests make layers of their own in this one."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_OF_EACH, str(tmp_path)], cwd=PROJECT, capture_output=True, check=True
    )
    families = json.loads(done.stdout)
    assert families
    for name, operations in families:
        layer = re.fullmatch(r"pravega_([a-z]+)_(seconds|bytes|failures)", name)
        assert layer is not None and layer[1] in reference.METRICS, name
        assert set(operations) <= set(reference.METRICS[layer[1]]), name


def test_every_public_name_is_there() -> None:
    page, errors = reference.api(), reference.errors()
    for name in pravega_spark.__all__:
        value = getattr(pravega_spark, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            assert f"### {value.__name__} " in errors
        else:
            assert f"## {name}\n" in page


def test_every_operation_of_the_log_is_there() -> None:
    numbered = reference.numbered_operations()
    assert sorted(numbered) == list(range(1, len(numbered) + 1))
    assert reference.operations().count("\n| ") == len(numbered) + 2
