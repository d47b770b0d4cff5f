"""The reference pages, made from the code: Spark options, commands, errors, metrics, the Python API, and examples."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click

import pravega_spark
from docs.hooks.remedies import REMEDIES
from engine import root as engine_root, settings as engine_settings
from engine.state import operations as state_operations
from pravega_spark import settings as user_settings
from pravega_spark.cli.main import cli
from pravega_spark.jobs import imports, maintain, retention, truncate
from pravega_spark.quantities import duration_text, size_text
from pravega_spark.source import options as source_options

PACKAGES = ("pravega_spark", "engine", "chunkstore")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *([_cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- Spark options ------------------------------------------------------------------------------------------------

_OPTIONS_HEAD = """# Spark options

Options of `format("pravega")`, for `spark.read`, `spark.readStream`, `df.write`, `df.writeStream` and SQL. Names may be
written in any case and without underscores: `start_stream_cut` and `startStreamCut` are one option. Unknown options are
ignored with a warning. It suggests the option with a similar name, or the one that replaces an option of another
source. A typo in an option that says where a read begins or ends is an error, as other events would be read. Options of
other sources that limit the range of a read, like `versionAsOf` and `timestampAsOf`, are refused if
no option here means exactly the same. [The Spark guide](spark.md) shows how to use the options.

"""


def options() -> str:
    """Every option of the data source, from the registry that the parser uses."""
    listed = source_options.OPTIONS
    rows = [[f"`{one.name}`", one.type, _default(one), _uses(one.uses), _meaning(one)] for one in listed]
    return _OPTIONS_HEAD + table(["option", "type", "default", "used in", "meaning"], rows)


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None:
        return "–"
    if not isinstance(option.default, Mapping):
        return f"`{option.default}`"
    by_value: dict[str, list[str]] = {}
    for use, value in option.default.items():
        by_value.setdefault(value, []).append(use)
    return "; ".join(f"`{value}` ({', '.join(uses)})" for value, uses in by_value.items())


def _uses(uses: Sequence[str]) -> str:
    short = {
        ("batch read", "stream read"): "read, readStream",
        ("batch write", "stream write"): "write, writeStream",
        ("batch read", "stream read", "batch write", "stream write", "metadata"): "all",
    }
    words = {"batch read": "read", "stream read": "readStream", "batch write": "write", "stream write": "writeStream"}
    return short.get(tuple(uses)) or ", ".join(words.get(use, use) for use in uses)


def _meaning(option: Any) -> str:
    choices = f" One of {', '.join(f'`{choice}`' for choice in option.choices)}." if option.type == "choice" else ""
    return _escaped(option.meaning) + choices


# --- settings -----------------------------------------------------------------------------------------------------

_SETTINGS_HEAD = """# Settings

All settings of a root and of the processes that use it. Sizes may have a unit (`64MiB`), and so may durations (`90s`).
A name that does not exist, and a value out of its range, are errors. They can be given:

| where | as |
| --- | --- |
| Python | `StreamManager(root, settings={"cache_bytes": "256MiB"})`, or a text as in the environment |
| Spark | `.option("settings", "cache_bytes=256MiB, flush_seconds=60s")`, for the driver and the tasks |
| command line | `--setting cache_bytes=256MiB`, repeatable |
| environment | `PRAVEGA_SETTINGS="cache_bytes=256MiB, flush_seconds=60s"`; what a program gives itself counts first |

"""
_ROOT_SETTINGS = """## Of a root

They count when a root is created, are stored in it, and are the same for all its processes. A root that exists keeps
its own. `root describe` shows them. Those that can be changed are changed by `pravega-spark root set`; programs that
are running keep the earlier value until they open the root again.

"""
_PROCESS_SETTINGS = """
## Of a process

They may differ between the processes of a root, and between two openings. [Tuning](tuning.md) says when to change
them.

"""


def settings() -> str:
    """Every setting, from the classes that have them."""
    told, config = field_texts(engine_settings), {each.name: each.default for each in fields(engine_root.RootConfig)}
    told |= {**field_texts(engine_root), "containers": "The number of containers, each with a log of its own."}
    told |= {f"{name}_seconds": told[name] for name in ("grace", "garbage_delay", "transient_idle")}
    of_root = [
        [f"`{name}`", _amount(config[name], unit), _changed(name), told[name]]
        for name, unit in engine_settings.OF_ROOT.items()
    ]
    of_process = [
        [f"`{name}`", _amount(getattr(engine_settings.Settings, name), unit), told[name]]
        for name, unit in user_settings.known_settings().items()
        if name not in engine_settings.OF_ROOT
    ]
    return (
        _SETTINGS_HEAD
        + _ROOT_SETTINGS
        + table(["setting", "default", "can be changed", "meaning"], of_root)
        + _PROCESS_SETTINGS
        + table(["setting", "default", "meaning"], of_process)
    )


def field_texts(module: ModuleType) -> dict[str, str]:
    """The texts below the fields of a module's classes, by their names."""
    found = {}
    for kind in (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)):
        for each, after in itertools.pairwise(kind.body):
            match each, after:
                case ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    found[ast.unparse(each.target)] = text
    return found


def _changed(name: str) -> str:
    return "yes" if name in engine_settings.CHANGEABLE else "no"


def _amount(value: Any, unit: engine_settings.Unit | None) -> str:
    if unit is None:
        return str(value).lower()
    if unit.name == "bytes":
        return size_text(value)
    if unit.name == "path":
        return f"`{value}`" if value else "–"
    return duration_text(value) if unit.name == "seconds" else f"{value:,}"


# --- commands -----------------------------------------------------------------------------------------------------

_COMMANDS_HEAD = """# Commands

Every command of `pravega-spark`, its arguments and options, from the program's help. [Command output](cli.md) has
conventions, exit codes and the documents that `--json` prints. [Operations](operations.md) describes when to use which
command.

"""
_JOBS_HEAD = """## Jobs

The jobs of `pravega_spark.jobs` are programs of their own: `python -m pravega_spark.jobs.<name>`, also for
`spark-submit`. [Retention and jobs](retention.md) explains them.

"""


def commands() -> str:
    """Every command of the program and every job, from click."""
    pages = [_COMMANDS_HEAD, "## pravega-spark\n\n", _command("pravega-spark", cli)]
    for path, command in sorted(walk_commands(cli), key=lambda found: found[0]):
        pages += [f"## {path}\n\n", _command(f"pravega-spark {path}", command)]
    pages.append(_JOBS_HEAD)
    jobs = {"retention": retention, "truncate": truncate, "maintain": maintain, "imports": imports}
    for name, job in ((name, module.main) for name, module in jobs.items()):
        pages += [f"### jobs.{name}\n\n", _command(f"python -m pravega_spark.jobs.{name}", job)]
    return "".join(pages)


def walk_commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from walk_commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def _command(words: str, command: click.Command) -> str:
    # With the settings of its own: click keeps the help option that is made first, and its names with it.
    context = click.Context(command, info_name=words, **command.context_settings)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "")
    rows = [
        [f"`{', '.join([*found.opts, *found.secondary_opts])}`", _kind(found, context), _option_help(found, context)]
        for found in command.get_params(context)
        if isinstance(found, click.Option) and "--help" not in found.opts and not found.hidden
    ]
    listed = table(["option", "value", "meaning"], rows) + "\n" if rows else ""
    return f"```text\n{usage}\n```\n\n{text}\n\n{listed}"


def _kind(option: click.Option, context: click.Context) -> str:
    return "flag" if option.is_flag else f"`{option.make_metavar(context)}`"


def _option_help(option: click.Option, context: click.Context) -> str:
    extra = option.get_help_extra(context)
    default = f" Default: `{extra['default']}`." if "default" in extra else ""
    limits = f" Range: `{extra['range']}`." if "range" in extra else ""
    variable = f" Environment: `{option.envvar}`." if isinstance(option.envvar, str) else ""
    return f"{option.help or ''}{default}{limits}{variable}" + (" Required." if option.required else "")


# --- errors -------------------------------------------------------------------------------------------------------

_ERRORS_HEAD = """# Errors

Every error that the packages declare, by its module. *Message* is the text in the code, with `‹…›` for values. Catch
`StreamError`, `EngineError` and `StorageError` of `pravega_spark` to handle all errors of streams, of the engine and of
the storage. Wrong options and arguments are `ValueError`s.

"""


def errors() -> str:
    """Every declared error: what it means, its message, and what to do."""
    page = [_ERRORS_HEAD]
    for package in PACKAGES:
        page.append(f"## {package}\n\n")
        kinds = sorted(declared_errors(package), key=lambda kind: (kind.__module__, kind.__name__))
        page.extend(_error(kind) for kind in kinds)
    return "".join(page)


def declared_errors(package: str) -> list[type[BaseException]]:
    """The exception classes that a package declares, those of its tests' helpers left out."""
    found = {
        value
        for module in _modules(package)
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    return list(found)


def _modules(package: str) -> Iterator[ModuleType]:
    root = importlib.import_module(package)
    yield root
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        if ".testing" not in found.name and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _error(kind: type[BaseException]) -> str:
    message, remedy = error_message(kind), REMEDIES.get(kind.__name__)
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    lines = [f"### {kind.__name__} {{ #{anchor(kind)} }}\n", f"`{kind.__module__}`, derived from {bases}.\n"]
    lines.append(inspect.getdoc(kind) or "")
    if message:
        lines.append(f"\n*Message:* {message}")
    if remedy:
        lines.append(f"\n*What to do:* {remedy}")
    return "\n".join(lines) + "\n\n"


def anchor(kind: type[BaseException]) -> str:
    """The anchor of an error on its page; two packages may have errors of one name."""
    return f"{kind.__module__}.{kind.__name__}".replace(".", "-").lower()


def error_message(kind: type[BaseException]) -> str | None:
    """The message that the class itself gives to its instances; None where whoever raises it says what is wrong."""
    if isinstance(problem := vars(kind).get("problem"), str) and problem != "{0}":
        remedy = getattr(kind, "remedy", "")
        return _escaped(re.sub(r"\{(\w*)[^}]*\}", _place, f"{problem} {remedy}".strip()))
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__" and call.args:
            return _template(call.args[0])
    return None


def _place(found: re.Match[str]) -> str:
    """Where a value goes, by its name if it has one."""
    return "‹…›" if found[1].isdigit() else f"‹{found[1]}›"


def _template(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _escaped(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [
            _escaped(str(part.value)) if isinstance(part, ast.Constant) else f"‹{_spoken(part)}›"
            for part in node.values
        ]
        return "".join(parts)
    return None


def _spoken(value: ast.expr) -> str:
    """What is put into a message, by the first name in it."""
    names = [
        node.id for node in ast.walk(value) if isinstance(node, ast.Name) and node.id not in ("self", "repr", "str")
    ]
    return _escaped(names[0].replace("_", " ")) if names else "…"


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_`\[\]])", r"\\\1", text)


# --- metrics ------------------------------------------------------------------------------------------------------

METRICS: dict[str, dict[str, str]] = {
    "log": {
        "put_frame": "One frame is created; its time is what an append waits for the storage. Failures are lost races "
        "(`Overtaken`) and storage errors.",
        "follow": "The process reads new frames of other processes and applies them.",
        "submit": "The process submits transactions to the maker as an object (see [many writers](many-writers.md)).",
        "submit_message": "The same, as a message to a maker on this host. Only counted: the time is 0.",
        "carried": "A submitted transaction, from its submission until a frame of another process has its outcome.",
        "void_submission": "A submission is void, because a frame of a higher epoch came without all of it. This "
        "process commits the rest itself, or submits it again.",
        "carry": "A transaction that another process submitted to this one, from reading it until the frame with its "
        "outcome is durable.",
        "carrying_frame": "A frame of this process carries transactions of other processes. Only counted, as for "
        "`submit_message`.",
        "begin_epoch": "A frame of this process begins an epoch. This is frequent if writers race for the log.",
    },
    "container": {
        "commit": "A submitted transaction, from its submission until its outcome is known.",
        "read": "A program reads a segment; bytes are the delivered ones.",
        "flush": "A flush cycle; bytes are the ones moved to LTS.",
    },
    "maintenance": {
        "look": "After an opening, the process determines which tasks are due.",
        "checkpoint": "A checkpoint object is written.",
        "flush": "A flush cycle that maintenance began.",
        "truncate_log": "Frames and checkpoints before the truncation point are deleted.",
        "collect_garbage": "Garbage whose delay is over is deleted.",
        "expire_transients": "Idle uploads of large events are deleted.",
    },
    "storage": {
        "read": "A range of an object is read into new memory.",
        "read_into": "A range of an object is read into existing memory.",
        "read_ranges": "Ranges of one or more objects are read together.",
        "put": "An object is created or overwritten.",
        "post": "The same, for a message to another process, which need not survive a crash of the machine.",
        "put_if_absent": "An object is created unless one exists; a lost race counts as done.",
        "append": "Bytes are added to an object.",
        "link": "An object is made of one of another root, without moving its bytes.",
        "set_read_only": "An object is made read-only, or writable.",
        "list": "Objects are listed.",
        "stat": "An object's size and time are read.",
        "delete": "Objects are deleted, many by as few requests as the backend allows.",
        "clock": "The storage's time is determined.",
    },
}
"""The meaning of each operation of each layer. tests/docs compares it with the code."""

_METRICS_HEAD = """# Metrics

Each layer has three metrics, in the form of Prometheus:

| metric | type | labels | meaning |
| --- | --- | --- | --- |
| `pravega_<layer>_seconds` | histogram | `operation` | duration in seconds; the count includes failures |
| `pravega_<layer>_bytes_total` | counter | `operation` | bytes moved; only operations that move bytes have it |
| `pravega_<layer>_failures_total` | counter | `operation`, `error` | failures, by the name of the error's class |

Numbers are those of one process, since its start. [Monitoring](monitoring.md) shows how to scrape them, and which to
watch.

"""


def metrics() -> str:
    """Every layer and its operations."""
    page = [_METRICS_HEAD]
    for layer, operations in METRICS.items():
        page.append(f"## Layer `{layer}`: `pravega_{layer}_…`\n\n")
        page.append(
            table(["operation", "what is measured"], [[f"`{name}`", text] for name, text in operations.items()])
        )
        page.append("\n")
    return "".join(page)


# --- operations of the log ----------------------------------------------------------------------------------------

_OPERATIONS_HEAD = """# Operations in the log

The operations that frames carry, by their numbers in the format, with their fields in the order in which they are
stored. [On-disk format](format.md#frames) describes how a frame holds them, and extents.

"""


def operations() -> str:
    """Every operation of the log with its number and fields, from the classes that are stored."""
    rows = []
    for number, kind in sorted(numbered_operations().items()):
        fields = ", ".join(f"`{name}`" for name in kind._fields) or "–"
        rows.append([str(number), kind.__name__, fields, (inspect.getdoc(kind) or "").partition("\n\n")[0]])
    return _OPERATIONS_HEAD + table(["number", "operation", "fields", "effect"], rows)


def numbered_operations() -> dict[int, Any]:
    """The classes of operations by their numbers in the format."""
    kinds = set(get_args(state_operations.Operation))
    for module in _modules("engine.state"):
        for value in vars(module).values():
            if isinstance(value, dict) and all(map(inspect.isclass, value.values())) and kinds == {*value.values()}:
                return value
    raise LookupError("no module of engine.state numbers the operations")


# --- Python API ---------------------------------------------------------------------------------------------------

_API_HEAD = """# Python API

The public names of `pravega_spark`. Errors have [a page of their own](errors.md). Importing the package loads
only the package itself; each name is loaded when it is first used.

"""


def api() -> str:
    """Every public name: for mkdocstrings, which writes down its signature and docstring."""
    page, seen = [_API_HEAD], set()
    for name in sorted(pravega_spark.__all__, key=str.lower):
        value = getattr(pravega_spark, name)
        if inspect.isclass(value) and issubclass(value, BaseException):
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            path = f"{value.__module__}.{value.__qualname__}"
            if path in seen or (name != value.__name__ and value.__name__ in pravega_spark.__all__):
                page.append(f"## {name}\n\nAnother name of `{value.__name__}`.\n\n")
                continue
            seen.add(path)
            page.append(f"## {name}\n\n::: {path}\n    options:\n      heading_level: 3\n\n")
        else:
            page.append(f"## {name}\n\n`{value!r}`\n\n")
    return "".join(page)


# --- examples -----------------------------------------------------------------------------------------------------

_EXAMPLES_HEAD = """# Examples

Short programs, each run by the tests. They lie in the folder `examples/` of the repository; run one with
`python examples/NAME.py`. Without arguments they work in a temporary folder.

"""


def examples(folder: Path) -> str:
    """Every example with what it shows."""
    page = [_EXAMPLES_HEAD]
    for path in sorted(folder.glob("*.py")):
        source = path.read_text("utf-8")
        what, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        page.append(f"## {path.name}\n\n{what}\n{rest}\n\n```python\n{_without_docstring(source)}```\n\n")
    return "".join(page)


def _without_docstring(source: str) -> str:
    body = ast.parse(source).body
    return "".join(source.splitlines(keepends=True)[body[0].end_lineno or 0 :]).lstrip("\n")
