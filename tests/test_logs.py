"""What is logged is text: who keeps records keeps no errors, with the frames and states that they were raised in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
LEVELS = {"debug", "info", "warning", "error", "critical", "log"}
OBJECTS = {"self", "error", "problem", "failure", "cause", "gone", "changed", "exception"}
"""Names of errors and of other things that are more than their text."""


def kept(source: str) -> Iterator[str]:
    """The arguments of calls of loggers that are no text: what an except clause binds, and what is named like it."""
    tree = ast.parse(source)
    bound = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name} | OBJECTS
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("log", "logger", "_log")
        ):
            for argument in node.args:
                if isinstance(argument, ast.Name) and argument.id in bound:
                    yield f"line {node.lineno}: {argument.id}"


@pytest.mark.parametrize("package", ["chunkstore", "engine", "pravega_spark", "pyspark_pravega"])
def test_logs_keep_no_objects(package: str) -> None:
    found = [f"{path}: {each}" for path in (PROJECT / package).rglob("*.py") for each in kept(path.read_text("utf-8"))]
    assert not found, "log str() or repr() of it"


def test_what_is_kept_is_found() -> None:
    source = (
        "try:\n    f()\nexcept OSError as broken:\n    logger.info('%s %s', name, broken)\n    log.error('%r', self)\n"
    )
    assert list(kept(source)) == ["line 4: broken", "line 5: self"]
