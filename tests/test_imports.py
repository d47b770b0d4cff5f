"""What importing costs and who may import whom."""

import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

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

WINGS = {
    "chunkstore": (
        "errors port key_locks wrapping measured_store chunk_names checksums boot_clock decoding optional_fields "
        "metrics tracing numbered paths room bounded_set selftest similarity stamps schemes urls",
        "backends",
        "metadata",
        "segments",
        "compaction garbage_collector",
        "pravega",
        "log_segment metadata_log segment_store",
        "testing",
    ),
    "engine": (
        "errors ownership identity clocks interrupts waiting task_runner settings signatures signed_store",
        "tables",
        "state",
        "logs",
        "storage",
        "reading",
        "writer",
        "containers",
        "foreign_data root_placement root",
        "admin",
    ),
    "pravega_spark": (
        "errors segment_ids quantities parameters storage_options settings",
        "streams.model",
        "streams.values",
        "streams.reading",
        "streams.writing",
        "streams",
        "streams.maintenance",
        "streams.pravega_lts",
        "roots",
        "client",
        "source",
        "console",
        "picture_layout picture checks status status_texts status_document status_page status_metrics query_metrics",
        "serve",
        "jobs cli demo",
    ),
}
"""What each package is made of, from the bottom (docs/decisions/wings.md): modules import from their own wing and from
wings below it. The face of a package, its own `__init__`, stands above them all. `streams` itself is what lies in none
of its folders: the stream, and what sits directly with it."""

UPWARD = {
    ("pravega_spark.client.manager", "pravega_spark.serve.inline"): "StreamManager.page shows views, in a notebook",
}
"""Imports, inside of functions, from a wing above."""

LTS = "pravega_spark.streams.pravega_lts"
LTS_DOORS = {
    "pravega_spark": "exports the values of an import",
    "pravega_spark.roots": "opens one as a root that is only read",
    "pravega_spark.client.manager": "imports",
    "pravega_spark.cli.header": "segments in the old layout",
    "pravega_spark.cli.import_streams": "the command that imports",
    "pravega_spark.jobs.imports": "the job that imports",
}
"""The modules that know the long-term storage of a Pravega. All others work on streams wherever they are stored."""


FOR_ADAPTERS = {"contracts", "counting", "faults", "file_contracts", "folding", "latency", "simulated"}
"""The modules of `chunkstore.testing`, for users who test a storage adapter of their own."""


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


def in_new_python(code: str) -> Any:
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
    source = "def f():\n    from pyspark.sql import Row\n    import engine.logs.log as log"
    assert imported_names(source) == {"pyspark", "engine"}


# --- wings ---------------------------------------------------------------------------------------------------------


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(source: str, modules: set[str]) -> set[str]:
    """Those of `modules` that a module imports anywhere, also inside functions and for type checking only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports name the whole module"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(members & modules)
            if not members <= modules:  # something else of it than modules
                found.add(node.module)
    return found & modules


def wing_of(module: str) -> int:
    """The height of a module's wing in its package; the face of the package is above all."""
    package, _, place = module.partition(".")
    heights = {name: height for height, names in enumerate(WINGS[package]) for name in names.split()}
    while place and place not in heights:
        place = place.rpartition(".")[0]
    assert place or module == package, f"{module} is in no wing"
    return heights[place] if place else len(WINGS[package])


def imports_within(package: str) -> dict[str, set[str]]:
    """By module of a package, the modules of the same package that it imports."""
    files = {module_name(file): file for file in modules_of(package)}
    return {name: imported_modules(file.read_text("utf-8"), set(files)) for name, file in files.items()}


@pytest.mark.parametrize("package", WINGS)
def test_no_module_imports_from_a_wing_above_its_own(package: str) -> None:
    upward = {
        (module, other)
        for module, others in imports_within(package).items()
        for other in others
        if wing_of(other) > wing_of(module)
    }
    assert upward == {(module, other) for module, other in UPWARD if module.startswith(f"{package}.")}


def test_the_long_term_storage_of_a_pravega_is_imported_by_its_doors_only() -> None:
    modules = {module_name(file): file for package in PACKAGES for file in modules_of(package)}
    importing = {
        name
        for name, file in modules.items()
        if not name.startswith(LTS)
        and any(found.startswith(LTS) for found in imported_modules(file.read_text("utf-8"), set(modules)))
    }
    assert importing == LTS_DOORS.keys()


@pytest.mark.processes
def test_a_root_of_this_project_never_loads_the_long_term_storage_of_a_pravega(tmp_path: Path) -> None:
    loaded = in_new_python(
        "import json, sys\n"
        "from pravega_spark import Root, StreamManager\n"
        "from pravega_spark.checks import verify_root\n"
        f"with StreamManager({str(tmp_path / 'root')!r}) as manager:\n"
        "    manager.create_scope('s')\n"
        "    manager.create_stream('s', 't', 1)\n"
        "    with manager.create_writer('s', 't') as writer:\n"
        "        writer.write_event('event')\n"
        "    assert len(list(manager.read_events('s', 't'))) == 1\n"
        "    manager.create_reader_group('g', 's', 't')\n"
        "    assert manager.reader_group_cuts('g', 's') and not manager.list_key_value_table('s')\n"
        f"with Root.open({str(tmp_path / 'root')!r}) as root:\n"
        "    assert verify_root(root, deep=True).errors == 0\n"
        f"print(json.dumps([name for name in sys.modules if name.startswith({LTS!r})]))"
    )
    assert loaded == []


def test_the_model_of_streams_reads_and_writes_nothing() -> None:
    """It imports nothing of the engine from its logs up, and takes no container."""
    engine = {module_name(file) for file in modules_of("engine")}
    beyond, taking = {}, set()
    for file in modules_of("pravega_spark/streams/model"):
        source, name = file.read_text("utf-8"), file.name
        beyond[name] = {each for each in imported_modules(source, engine) if wing_of(each) >= wing_of("engine.logs")}
        if takes_a_container(source):
            taking.add(name)
    assert beyond, "no modules"
    assert {name: found for name, found in beyond.items() if found} == {}
    assert taking == set()


@pytest.mark.parametrize("module", ["pravega_spark.streams", "pravega_spark.streams.stream", "pravega_spark.streams.x"])
def test_what_lies_in_no_folder_of_streams_is_with_the_stream(module: str) -> None:
    assert wing_of("pravega_spark.streams.writing.x") < wing_of(module) < wing_of("pravega_spark.streams.maintenance.x")


@pytest.mark.parametrize("package", WINGS)
def test_no_modules_import_each_other(package: str) -> None:
    """In however many steps: whoever reads a module can read what it builds on first."""
    imports = {
        module: {other for other in others if other != module and (module, other) not in UPWARD}
        for module, others in imports_within(package).items()
    }
    circles = {module for module in imports if any(module in reached(other, imports) for other in imports[module])}
    assert circles == set()


def reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    """What a module imports in however many steps, itself included."""
    found, new = set(), {module}
    while new:
        found |= new
        new = set(itertools.chain.from_iterable(imports.get(name, ()) for name in new)) - found
    return found


def test_imports_for_types_and_of_members_count() -> None:
    modules = {"engine.logs.log", "engine.root", "engine.logs", "engine.clocks"}
    source = "from engine.logs import log\nimport engine.root\nif TYPE_CHECKING:\n    from engine.clocks import Clock\n"
    assert imported_modules(source, modules) == {"engine.logs.log", "engine.root", "engine.clocks"}
    assert imported_modules("from engine.logs import Something", modules) == {"engine.logs"}


def functions(source: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def takes_a_container(source: str) -> bool:
    """Whether a function has a parameter whose annotation says Container."""
    arguments = [
        argument
        for function in functions(source)
        for argument in ast.walk(function.args)
        if isinstance(argument, ast.arg) and argument.annotation is not None
    ]
    return any(re.search(r"\bContainer\b", ast.unparse(argument.annotation or argument)) for argument in arguments)


def test_nothing_below_the_containers_takes_one() -> None:
    containers = wing_of("engine.containers")
    below = [file for file in modules_of("engine") if wing_of(module_name(file)) < containers]
    taking = {str(file.relative_to(ROOT)) for file in below if takes_a_container(file.read_text("utf-8"))}
    assert taking == set()


def hands_itself_out(source: str) -> bool:
    """Whether a constructor gives the object that it makes to another one, which sees it half built."""
    calls = [
        call
        for function in functions(source)
        if function.name == "__init__"
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
    ]
    given = [value for call in calls for value in (*call.args, *(keyword.value for keyword in call.keywords))]
    return any(isinstance(value, ast.Name) and value.id == "self" for value in given)


def test_no_constructor_of_the_engine_hands_out_what_is_half_built() -> None:
    files = modules_of("engine")
    assert {str(file.relative_to(ROOT)) for file in files if hands_itself_out(file.read_text("utf-8"))} == set()


NOTED_BY_THREAD = {
    "chunkstore/stamps.py": "the time in a response is noted for who made the request; no request depends on it",
    "chunkstore/backends/bucket.py": "dates of responses get from the hooks of a client's library to the request",
}
"""Modules that keep a context variable, and why: each hands out what was observed, and changes nothing that is done."""


def uses_thread_locals(source: str) -> bool:
    """Whether a module keeps anything that only one thread sees, so that a call does not say what it depends on."""
    return imports_member(source, "threading", "local")


def imports_member(source: str, module: str, name: str) -> bool:
    """Whether a member of a module is used, by whichever kind of import."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node) == f"{module}.{name}")
        or (isinstance(node, ast.ImportFrom) and node.module == module and name in {a.name for a in node.names})
        for node in ast.walk(ast.parse(source))
    )


def test_there_are_no_thread_locals() -> None:
    files = [file for package in PACKAGES for file in modules_of(package)]
    assert {str(file.relative_to(ROOT)) for file in files if uses_thread_locals(file.read_text("utf-8"))} == set()


def test_context_variables_are_for_what_is_noted_only() -> None:
    """Else they hide what a call depends on as well as thread locals do."""
    sources = {str(file.relative_to(ROOT)): file.read_text("utf-8") for each in PACKAGES for file in modules_of(each)}
    found = {name for name, source in sources.items() if imports_member(source, "contextvars", "ContextVar")}
    assert found == NOTED_BY_THREAD.keys()


def test_the_public_names_cost_nothing_before_one_is_used() -> None:
    loaded, names = in_new_python(
        "import json, sys\n"
        "before = set(sys.modules)  # a tracer of coverage loads modules of its own\n"
        "import pravega_spark\n"
        "new = set(sys.modules) - before\n"
        "loaded = [name for name in new if name.split('.')[0] in ('ast', 'pkgutil', 'engine', 'chunkstore')]\n"
        "print(json.dumps([loaded, pravega_spark.__all__]))"
    )
    assert loaded == []
    assert {"StreamManager", "StreamWriter", "TxnFailedException", "UNBOUNDED"} <= set(names)


def test_the_engine_package_exports_nothing() -> None:
    """Names are imported from the modules that define them, so no list of them can go out of date."""
    [docstring] = ast.parse((ROOT / "engine" / "__init__.py").read_text("utf-8")).body
    assert isinstance(docstring, ast.Expr)


def test_the_face_of_the_chunk_layer_is_what_is_imported_from_it_or_documented() -> None:
    """A name that no package above takes from it belongs to the segment store used by itself, and is on its page."""
    exported, code = in_new_python(
        "import json, chunkstore\n"
        "print(json.dumps([chunkstore.__all__, [getattr(chunkstore, name).__module__ for name in chunkstore.__all__]]))"
    )
    assert all(module.startswith("chunkstore.") for module in code)
    taken = {
        alias.name
        for package in ("engine", "pravega_spark")
        for file in modules_of(package)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "chunkstore"
        for alias in node.names
    }
    modules = {file.stem for file in (ROOT / "chunkstore").iterdir()}
    page = (ROOT / "docs/segment-store.md").read_text("utf-8")
    documented = {name for name in exported if re.search(rf"`{name}\b", page)}
    assert set(exported) == (taken - modules) | documented


def test_the_segment_store_costs_nothing_before_it_is_used() -> None:
    loaded = in_new_python(
        "import json, sys, chunkstore\nprint(json.dumps([name for name in sys.modules if 'segment' in name]))"
    )
    assert loaded == []


# --- cost ----------------------------------------------------------------------------------------------------------


@pytest.mark.processes
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


_OF_EACH = """
import json, pickle, sys
from pathlib import Path
from pyspark.sql.types import StructType
from pyspark_pravega import DefaultSource
folder = Path({folder!r})
source = DefaultSource({{"controller": str(folder / "root"), "scope": "s", "stream": "t"}})
columns = StructType().add("event", "binary").add("routing_key", "string")
def keep(name, value):
    (folder / name).write_bytes(pickle.dumps(value))
def kept(name):
    return pickle.loads((folder / name).read_bytes())
{work}
print(json.dumps(sorted(sys.modules)))
"""
_ROWS = (
    "import pyarrow as pa\n"
    "texts = [pa.Array.from_buffers(kind, 6000, [None, pa.py_buffer(bytes(24004)), pa.py_buffer(b'')])"
    " for kind in (pa.binary(), pa.string())]\n"
    "rows = pa.RecordBatch.from_arrays(texts, names=['event', 'routing_key'])\n"
)
_PROCESSES = {
    "plan a write": "keep('writer', source.writer(columns, False))",
    "write": f"{_ROWS}keep('message', kept('writer').write(iter([rows, rows])))",
    "commit": "kept('writer').commit([kept('message')])",
    "make a source": "keep('schema', source.schema())",
    "plan a read": "import pyspark.sql.types as t\n"
    "kinds = {'binary': t.BinaryType(), 'string': t.StringType(), 'bigint': t.LongType()}\n"
    "pairs = (column.split() for column in kept('schema').split(', '))\n"
    "reader = source.reader(StructType([t.StructField(name, kinds[kind]) for name, kind in pairs]))\n"
    "keep('reader', reader)\n"
    "keep('partitions', reader.partitions())",
    "read": "assert sum(batch.num_rows for part in kept('partitions') for batch in kept('reader').read(part)) == 12000",
}
_CONTAINERS = {"engine.containers.container", "engine.writer.storage_writer", "engine.logs.processor"}
_NOT_TO_BE_LOADED = {
    "plan a write": {"pandas", "pyarrow", "s3fs", "fsspec"},
    "write": {"pandas", "fsspec", "pravega_spark.streams.stream", *_CONTAINERS},
    "commit": {"pandas", "pyarrow", "fsspec"},
    "make a source": {"pandas", "numpy", "pyarrow", "fsspec", "crc32c", "engine.root", *_CONTAINERS},
    "plan a read": {"pandas", "fsspec"},
    "read": {"pandas", "fsspec", "pravega_spark.streams.stream", *_CONTAINERS},
}


@pytest.mark.processes
def test_what_each_process_of_spark_loads(tmp_path: Path) -> None:
    """Spark starts a new process for each step of a job, if none is idle: what it loads, every small job waits for."""
    for step, work in _PROCESSES.items():
        loaded = in_new_python(_OF_EACH.format(folder=str(tmp_path), work=work))
        assert isinstance(loaded, list)
        assert _NOT_TO_BE_LOADED[step].isdisjoint(loaded), step


@pytest.mark.processes
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


@pytest.mark.processes
def test_wheel_from_sdist_holds_every_module(tmp_path: Path) -> None:
    """What pip installs, from the sdist as from the tree, is all of our modules and nothing else."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for folder in (*PACKAGES, "tests", "docs", "examples"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def build(kind: str, source: Path) -> Path:
        out = tmp_path / kind
        done = subprocess.run(
            [sys.executable, "-c", f"import setuptools.build_meta as b; b.build_{kind}({str(out)!r})"],
            cwd=source,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        (built,) = out.iterdir()
        return built

    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", build("sdist", tree), "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build("wheel", unpacked)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {str(file.relative_to(ROOT)) for package in PACKAGES for file in modules_of(package)}
    testing = {Path(name).stem for name in packed if "/testing/" in name} - {"__init__"}
    assert testing == FOR_ADAPTERS, "what only tests of this project need belongs into tests/support"
    pages = {
        str(file.relative_to(ROOT))
        for folder in ("templates", "static")
        for file in (ROOT / "pravega_spark/serve" / folder).iterdir()
    }
    assert packed == modules | pages | {f"{package}/py.typed" for package in PACKAGES}


@pytest.mark.processes
@pytest.mark.parametrize("name", ["pravega_spark", "pyspark_pravega", "engine.root", "chunkstore"])
def test_on_windows_an_import_says_that_it_does_not_run_there_and_what_to_do(name: str) -> None:
    """Whatever is imported first. Nothing else that is missing there is met before."""
    said = in_new_python(
        "import importlib, json, sys\n"
        "sys.platform = 'win32'\n"
        "try:\n"
        f"    importlib.import_module({name!r})\n"
        "except ImportError as error:\n"
        "    print(json.dumps(str(error)))\n"
    )
    assert "does not run on Windows" in said and "WSL 2" in said
