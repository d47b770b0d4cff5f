"""Plants each breakage into a copy of the tree and runs the tests that must catch it.

`python -m tests.planted [NAME …]`: all, or those whose names or areas are given. Exit code 1 when one survives.
"""

from __future__ import annotations

import compileall
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tests.planted
from tests.planted import Breakage

TREE = Path(__file__).resolve().parents[2]
COPIED = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega", "tests", "notebooks", "docs")
SECONDS = 600
"""A run that takes longer hangs because of the breakage, which is as good as a failure."""

FAILED = 1
"""The exit code of pytest when a test failed; a module that cannot even be imported gives another one."""


def areas() -> Iterator[tuple[str, list[Breakage]]]:
    """The modules of this package with what they list."""
    for module in pkgutil.iter_modules(tests.planted.__path__):
        if not module.name.startswith("_"):
            yield module.name, importlib.import_module(f"tests.planted.{module.name}").BREAKAGES


def chosen(names: Iterable[str]) -> list[Breakage]:
    """The breakages of these names or areas; all, without any. Exits when a name is unknown or used twice."""
    listed = [(area, breakage) for area, breakages in areas() for breakage in breakages]
    known = [breakage.name for _, breakage in listed]
    if doubled := sorted({name for name in known if known.count(name) > 1}):
        sys.exit(f"breakages with the same name: {', '.join(doubled)}; give each a name of its own")
    wanted = set(names)
    if unknown := wanted - set(known) - {area for area, _ in listed}:
        sys.exit(f"no breakage or area is called {', '.join(sorted(unknown))}")
    return [breakage for area, breakage in listed if not wanted or wanted & {area, breakage.name}]


def plant(breakage: Breakage, tree: Path) -> None:
    """Break the copy of the product in `tree`. Raises ValueError when the place is not there exactly once."""
    path = tree / breakage.file
    text = path.read_text()
    if text.count(breakage.old) != 1:
        raise ValueError(f"{breakage.file} has the text to be replaced {text.count(breakage.old)} times, not once")
    path.write_text(text.replace(breakage.old, breakage.new))


def caught_by(breakage: Breakage) -> str:
    """The first test that catches a breakage, or what is wrong, which begins with SURVIVED or UNUSABLE."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(TREE / name, tree / name)  # with the bytecode, which is valid as times are copied too
        for name in ("pyproject.toml", "setup.cfg"):
            shutil.copy(TREE / name, tree / name)
        try:
            plant(breakage, tree)
        except ValueError as error:
            return f"UNUSABLE: {error}"
        return _outcome(breakage, tree)


def _outcome(breakage: Breakage, tree: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *breakage.tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{breakage.tests[0]} (hung)"
    if run.returncode == 0 and " passed" not in run.stdout:
        return f"UNUSABLE: its tests were skipped, maybe as a server is missing: {run.stdout[-300:]}"
    if run.returncode == 0:
        return f"SURVIVED {' '.join(breakage.tests)}"
    failed = [
        line.split(" ", 1)[1] for line in run.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))
    ]
    if run.returncode != FAILED or not failed:
        return f"UNUSABLE: pytest exited with {run.returncode}: {(run.stdout + run.stderr)[-500:]}"
    return failed[0].split(" - ")[0]


def main() -> None:
    """Run what was asked for, two at a time, and tell of each by what it was caught."""
    breakages = chosen(sys.argv[1:])
    for name in COPIED:
        compileall.compile_dir(TREE / name, quiet=2)  # or each run compiles all of it
    escaped = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for breakage, outcome in zip(breakages, pool.map(caught_by, breakages), strict=True):
            escaped += outcome.startswith(("SURVIVED", "UNUSABLE"))
            print(f"{breakage.name}: {outcome}", flush=True)
    print(f"{len(breakages)} breakages, {escaped} not caught")
    sys.exit(bool(escaped))


if __name__ == "__main__":
    main()
