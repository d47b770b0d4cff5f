"""What the page on security says of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")
UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile"}


def unsafe(source: str) -> Iterator[str]:
    """Modules and functions with which bytes could become code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from UNSAFE_MODULES & {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            yield node.func.id


def test_the_check_finds_what_is_unsafe() -> None:
    source = "import pickle, os\nfrom marshal import loads\neval('1')\nre.compile('a')"
    assert sorted(unsafe(source)) == ["eval", "marshal", "pickle"]


def test_nothing_is_unpickled_or_evaluated() -> None:
    """The product's code, without what only tests import."""
    found = {
        (str(path.relative_to(PROJECT)), name)
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
        if "testing" not in path.parts
        for name in unsafe(path.read_text("utf-8"))
    }
    assert found == set()
