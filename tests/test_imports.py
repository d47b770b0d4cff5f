"""What importing costs and who may import whom."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")
MAY_IMPORT = {
    "chunkstore": {"chunkstore"},
    "engine": {"engine", "chunkstore"},
    "pravega_spark": {"pravega_spark", "engine", "chunkstore", "pyspark"},
    "pyspark_pravega": {"pyspark_pravega", "pravega_spark", "pyspark"},
}
LAYERED = {*PACKAGES, "pyspark"}


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_names(source: str) -> set[str]:
    """Top-level names that a module imports anywhere, also inside functions and for type checking only."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def in_new_python(code: str) -> object:
    """The JSON that `code` prints in an interpreter that has imported nothing of ours."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    files = modules_of(package)
    assert files, f"no modules in {package}"
    upward = {
        str(file.relative_to(ROOT)): sorted(found)
        for file in files
        if (found := imported_names(file.read_text("utf-8")) & LAYERED - MAY_IMPORT[package])
    }
    assert upward == {}


def test_imports_inside_functions_count() -> None:
    source = "def f():\n    from pyspark.sql import Row\n    import engine.log as log"
    assert imported_names(source) == {"pyspark", "engine"}


def test_format_module_loads_nothing_heavy() -> None:
    """Every Spark session of every user who has us installed imports this module: it may cost next to nothing."""
    loaded = in_new_python(
        "import json, sys, pyspark.sql.datasource, pyspark.sql.worker.lookup_data_sources\n"
        "before = set(sys.modules)\n"
        "import pyspark_pravega\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert isinstance(loaded, list)
    ours = {name for name in loaded if name.split(".")[0] in PACKAGES}
    assert "pyspark_pravega" in ours
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names} - ours
    assert foreign == set()
    assert len(loaded) <= 40, loaded


@pytest.mark.parametrize("package", PACKAGES)
def test_import_starts_no_thread_or_event_loop(package: str) -> None:
    threads, loop = in_new_python(
        "import json, sys, threading, importlib, pkgutil\n"
        f"package = importlib.import_module({package!r})\n"
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "events = sys.modules.get('asyncio.events')\n"
        "loop = events is not None and events._get_running_loop() is not None\n"
        "print(json.dumps([[t.name for t in threading.enumerate()], loop]))"
    )
    assert threads == ["MainThread"]
    assert loop is False


def test_wheel_from_sdist_holds_every_module(tmp_path: Path) -> None:
    """What pip installs, from the sdist as from the tree, is all of our modules and nothing else."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))

    def build(kind: str, source: Path) -> Path:
        out = tmp_path / kind
        done = subprocess.run(
            [sys.executable, "-c", f"import setuptools.build_meta as b; b.build_{kind}({str(out)!r})"],
            cwd=source, capture_output=True, text=True, timeout=100,
        )
        assert done.returncode == 0, done.stderr
        (built,) = out.iterdir()
        return built

    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", build("sdist", tree), "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build("wheel", unpacked)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == {str(file.relative_to(ROOT)) for package in PACKAGES for file in modules_of(package)}
