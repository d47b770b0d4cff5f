"""How far tests reach into what they test: into names that begin with an underscore, and into constants of modules.

The numbers may only go down. A test that does not reach in says what the product promises, and lives as long as that.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_repr_html_", "_repr_svg_", "_current_frames"}
"""Names of Python and Jupyter that only look private."""

REACHED = {
    "chunkstore": 3,
    "chunkstore/segments": 18,
    "cli": 3,
    "client": 12,
    "client/groups": 2,
    "client/large_events": 9,
    "engine/containers": 3,
    "engine/logs": 8,
    "engine/tables": 3,
    "engine/writer": 3,
    "simulation": 1,
    "source": 6,
    "spark": 1,
    "streams": 8,
    "support": 27,
}
"""How often the tests of each folder still reach in; the others do not."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC


def is_ours(value: ast.expr) -> bool:
    """Whether an attribute is one of the test's own class, or of the one that it extends."""
    return ast.unparse(value) in {"self", "cls", "super()"}


def patched(call: ast.Call) -> str:
    """The name that a call replaces in something else; "" if it is no such call."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in {"setattr", "object", "patch"}:
        return ""
    arguments = [each.value for each in call.args if isinstance(each, ast.Constant)]
    names = [each for each in arguments[:1] if isinstance(each, str)]
    return names[0].rpartition(".")[2] if names else ""


def reached(source: str) -> Iterator[str]:
    """What of others a test module reaches into."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_ours(node.value):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call) and (name := patched(node)) and (is_private(name) or name.isupper()):
            yield ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("container._state", 1),
        ("container.log._queue.first()", 1),
        ("from engine.root import _marker, Root", 1),
        ("monkeypatch.setattr(module, 'LIMIT', 3)", 1),
        ("monkeypatch.setattr('engine.module._LIMIT', 3)", 1),
        ("mock.patch.object(module, 'LIMIT', 3)", 1),
        ("mock.patch('engine.module.LIMIT', 3)", 1),
        ("self._own, cls._own, super()._own, record._replace(a=1), module.__name__", 0),
        ("monkeypatch.setattr(store, 'page', 3)", 0),
        ("monkeypatch.setenv('HOME', 'a')", 0),
        ("module.LIMIT", 0),
    ],
)
def test_what_counts(source: str, number: int) -> None:
    assert len(list(reached(source))) == number


def test_tests_reach_in_no_further() -> None:
    found = Counter[str]()
    for file in TESTS.rglob("*.py"):
        place = file.relative_to(TESTS).parent.as_posix()
        found[place] += sum(1 for _ in reached(file.read_text("utf-8")))
    assert +found == REACHED, "use what the product offers (CONTRIBUTING.md); where there is less now, lower the number"
