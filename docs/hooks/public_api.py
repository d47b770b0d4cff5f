"""The public API as text, one fact a line, and what has changed against the recorded one (docs/versioning.md).

`python -m docs.hooks.public_api` records additions in tests/data/public_api.txt. It refuses if anything
was removed or changed, unless `--incompatible` is given. A test compares the code with the file, so that no change of
the API goes unnoticed. The text is made of signatures as they stand in the code, so it is the same on every Python.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from docs.hooks import reference
from engine import root as engine_root, settings as engine_settings
from pravega_spark import settings as user_settings
from pravega_spark.cli.main import cli
from pravega_spark.jobs import imports, maintain, retention, truncate
from pravega_spark.query_metrics import Queries
from pravega_spark.serve.operations import OPERATIONS
from pravega_spark.serve.schemas import DEFINITIONS
from pravega_spark.source import columns as source_columns, option_table
from pravega_spark.source.tables import table_schema
from pravega_spark.status import RootStatus
from pravega_spark.status_metrics import StatusMetrics

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "data" / "public_api.txt"

PACKAGES = ("pravega_spark", "engine", "chunkstore", "pyspark_pravega")

NAMES: Mapping[str, Sequence[str] | None] = {
    "pravega_spark": None,
    "pravega_spark.jobs.imports": ("run",),
    "pravega_spark.jobs.maintain": ("run",),
    "pravega_spark.jobs.outcome": ("JobOutcome", "failures"),
    "pravega_spark.jobs.retention": ("run",),
    "pravega_spark.jobs.spread": ("Target",),
    "pravega_spark.jobs.truncate": ("run",),
    "pyspark_pravega": ("DefaultSource",),
    "chunkstore": None,
}
"""The modules that users import, and the names in them; None: its `__all__`. `chunkstore` is provisional."""

CONSTRUCTED = {
    "EventPointer",
    "Insert",
    "KeyValueTableConfiguration",
    "Position",
    "Put",
    "QueryMetrics",
    "Remove",
    "Revision",
    "Serializer",
    "Settings",
    "StatusMetrics",
    "StreamCut",
    "StreamCuts",
    "StreamManager",
    "StreamReaderGroupConfig",
    "TableKey",
    "Target",
    "TimeWindow",
    "ValueFormat",
    "Version",
    "RetentionPolicy",
    "ScalingPolicy",
}
"""The classes that users construct. Instances of all others come from a call, and their constructors are internal."""

PARTLY: Mapping[str, Sequence[str]] = {
    "Root": ("close", "losses", "open", "read_only", "recover", "recovered", "repair", "restart"),
    "ContainerStatus": (),
    "Metrics": ("collect", "registry"),
    "Store": (),
    "DefaultSource": ("name",),
    "PravegaDataSource": ("name",),
}
"""Classes that have members for other code than users', and what of them is for users. Spark calls a data source.
`Store` is the port that an adapter implements; chunkstore.testing.contracts has its rules."""

TYPES_OF_DEFAULTS = {"Unchanged", "Unit"}
"""Classes that annotations name and users do not need: of a default, and of the limits of a setting."""

ENVIRONMENT = ("PRAVEGA_CONTROLLER_URI", "PRAVEGA_INDEX_CACHE", "PRAVEGA_SERVE_TOKEN", "PRAVEGA_SETTINGS")
"""The variables that programs read."""

_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

_PROTOCOLS = {
    *("__aenter__", "__aexit__", "__aiter__", "__anext__", "__arrow_c_stream__", "__await__", "__call__"),
    *("__contains__", "__enter__", "__eq__", "__exit__", "__getitem__", "__iter__", "__len__", "__lt__", "__next__"),
    *("_repr_html_", "_repr_svg_"),
}
"""Special methods that are part of what a class can do."""


def facts() -> Iterator[str]:
    """The lines of the description, in order."""
    for name in NAMES:
        yield f"== Python: {name}"
        yield from _module(name)
    yield "== Spark: options"
    yield from _options()
    yield "== Spark: columns"
    yield from _columns()
    yield "== Settings"
    yield from _settings()
    yield "== Environment"
    yield from ENVIRONMENT
    yield "== Commands"
    yield from _commands()
    yield "== REST"
    yield from _rest()
    yield "== Metrics"
    yield from (f"{layer} {name}" for layer, names in sorted(reference.METRICS.items()) for name in sorted(names))
    yield from sorted(_metric_families())


# --- Python -------------------------------------------------------------------------------------------------------


def public_objects(module: str) -> dict[str, Any]:
    """The public names of a module, with what they stand for."""
    found = importlib.import_module(module)
    names = NAMES[module]
    return {name: getattr(found, name) for name in sorted(found.__all__ if names is None else names)}


def _module(module: str) -> Iterator[str]:
    objects = public_objects(module)
    for name, value in objects.items():
        if inspect.isclass(value) and value.__module__.partition(".")[0] not in PACKAGES:
            yield f"class {name}"
        elif inspect.isclass(value):
            if name != value.__name__ and module.startswith("pravega_spark") and value.__name__ in objects:
                yield f"{name}: another name of {value.__name__}"
            else:
                yield from _class(name, value)
        elif callable(value):
            yield from _call(f"{name}", value)
        else:
            yield f"{name}: {type(value).__name__}"


def _class(name: str, kind: type) -> Iterator[str]:
    yield f"class {name}"
    yield from (f"class {name}, a {base.__name__}" for base in kind.__mro__[1:] if _is_told(base))
    if kind.__name__ in CONSTRUCTED:
        yield f"{name}()"
        yield from _parameters(name, inspect.signature(kind))
    yield from (f"{name}{line}" for line in fields_of(kind))
    for member, found in sorted(members(kind).items()):
        if isinstance(found, property) or type(found).__name__ == "cached_property":
            get = found.fget if isinstance(found, property) else found.func
            yield f"{name}.{member} -> {_annotation(get.__annotations__.get('return'))}"
        elif inspect.isfunction(plain := getattr(found, "__func__", found)):
            yield from _call(f"{name}.{member}", plain)
        elif member in _PROTOCOLS:
            yield f"{name}.{member}()"
        else:
            yield f"{name}.{member}: {type(found).__name__}"


def _is_told(base: type) -> bool:
    """Whether it matters that a class is derived from this one."""
    if base in (object, Exception, BaseException) or base.__name__.startswith("_"):
        return False
    return base.__module__.partition(".")[0] not in ("typing", "abc", "pyspark")


def fields_of(kind: type) -> Iterator[str]:
    """The fields of a named tuple, by position, those of a dataclass, and the attributes that its code sets."""
    fielded = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    if kind.__name__ in PARTLY or (fielded and kind.__name__ in CONSTRUCTED):  # the constructor has them
        return
    order: tuple[str, ...] = getattr(kind, "_fields", ())
    told: dict[str, str] = {}
    for base in reversed([each for each in kind.__mro__ if each.__module__.partition(".")[0] in PACKAGES]):
        told |= {name: _annotation(value) for name, value in vars(base).get("__annotations__", {}).items()}
    for number, name in enumerate(order):
        yield f".{name}, field {number}: {told.get(name, '')}"
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield f".{field.name}: {told[field.name]}"
        return
    methods = members(kind)
    for name in sorted(_attributes(kind) - set(order) - set(methods)):
        yield f".{name}: attribute"


def members(kind: type) -> dict[str, Any]:
    """The public members of a class, and of its bases in these packages: methods, properties and constants."""
    found: dict[str, Any] = {}
    fields = {*getattr(kind, "_fields", ()), *(getattr(kind, "__dataclass_fields__", ()))}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in PACKAGES:
            for name, value in vars(base).items():
                slot = type(value).__name__ in ("member_descriptor", "_tuplegetter")
                if (not name.startswith("_") or name in _PROTOCOLS) and not slot and value is not None:
                    found[name] = value
    if issubclass(kind, BaseException):  # their methods are those of errors
        found = {name: value for name, value in found.items() if name not in ("__eq__",)}
    kept = PARTLY.get(kind.__name__)
    if kept is not None:
        found = {name: value for name, value in found.items() if name in kept or name in _PROTOCOLS}
    is_value = bool(fields)  # __eq__ of dataclasses is made by them
    return {
        name: value
        for name, value in found.items()
        if not (is_value and (name == "__eq__" or (name in fields and not isinstance(value, property))))
    }


def _attributes(kind: type) -> set[str]:
    """The public attributes that the methods of a class set."""
    found = set[str]()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in PACKAGES:
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                found.add(node.attr)
    return {name for name in found if not name.startswith("_")}


def _call(name: str, function: Any) -> Iterator[str]:
    """A call: its result, and a line for each parameter."""
    plain = inspect.unwrap(function)
    result = _annotation(plain.__annotations__.get("return"))
    yield f"{name}()" + (f" -> {result}" if result not in ("", "None") else "")
    yield from _parameters(name, inspect.signature(plain))


def _parameters(name: str, signature: inspect.Signature) -> Iterator[str]:
    found = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    for number, each in enumerate(found):
        by_name = each.kind is inspect.Parameter.KEYWORD_ONLY
        star = _STARS.get(each.kind, "")
        place = "by name" if by_name or star == "**" else f"{number}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        yield f"{name}({place}: {star}{each.name}: {_annotation(each.annotation)}{default})"


def _default(value: Any) -> str:
    """A default, without the address of an object."""
    return getattr(value, "__name__", None) or re.sub(r" at 0x\w+", "", repr(value))


def _annotation(value: Any) -> str:
    if value is None or value is inspect.Parameter.empty:
        return ""
    return (
        value if isinstance(value, str) else getattr(value, "__forward_arg__", None) or inspect.formatannotation(value)
    )


def unexported() -> dict[str, list[str]]:
    """The classes of this project that public calls take or return without being public, with these calls."""
    public = {value for module in NAMES for value in public_objects(module).values() if inspect.isclass(value)}
    found: dict[str, list[str]] = {}
    for module in NAMES:
        if module == "chunkstore":
            continue
        for name, value in public_objects(module).items():
            for place, scope, texts in _annotated(name, value):
                for word in re.findall(r"[A-Za-z_]\w*", " ".join(texts)):
                    kind = _resolved(scope, word)
                    ours = inspect.isclass(kind) and kind.__module__.partition(".")[0] in PACKAGES
                    if ours and kind not in public and word not in TYPES_OF_DEFAULTS:
                        found.setdefault(kind.__name__, []).append(place)
    return found


def _annotated(name: str, value: Any) -> Iterator[tuple[str, ModuleType, list[str]]]:
    """Where a public object has annotations: a name for the place, the module, and the annotations."""
    if not inspect.isclass(value):
        if inspect.isfunction(value):
            plain = inspect.unwrap(value)
            yield name, sys.modules[plain.__module__], list(map(_annotation, plain.__annotations__.values()))
        return
    if value.__module__.partition(".")[0] not in PACKAGES or value.__name__ in PARTLY:
        return
    for member, found in members(value).items():
        get = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if inspect.isfunction(get):
            plain = inspect.unwrap(get)
            scope = sys.modules[plain.__module__]
            yield f"{name}.{member}", scope, list(map(_annotation, plain.__annotations__.values()))
    if value.__name__ in CONSTRUCTED:
        parameters = inspect.signature(value).parameters.values()
        yield name, sys.modules[value.__module__], [_annotation(each.annotation) for each in parameters]
    fields = {*getattr(value, "_fields", ()), *getattr(value, "__dataclass_fields__", ())}
    for base in value.__mro__:
        if base.__module__.partition(".")[0] in PACKAGES:
            told = vars(base).get("__annotations__", {})
            texts = [_annotation(text) for field, text in told.items() if field in fields and not field.startswith("_")]
            yield f"{name}'s fields", sys.modules[base.__module__], texts


def _resolved(module: ModuleType, name: str) -> Any:
    """What a name in an annotation stands for, also if it is imported for type checking only."""
    if hasattr(module, name):
        return getattr(module, name)
    source, original = _imports(module).get(name, ("", ""))
    return getattr(importlib.import_module(source), original, None) if source else None


@functools.cache
def _imports(module: ModuleType) -> dict[str, tuple[str, str]]:
    """What a module imports of these packages anywhere: by its name there, the module and the name in it."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES
        for alias in node.names
    }


# --- the other faces ----------------------------------------------------------------------------------------------


def _options() -> Iterator[str]:
    for option in sorted(option_table.OPTIONS, key=lambda each: each.name):
        yield f"{option.name}: {option.type}{', required' if option.required else ''}"
        yield from (f"{option.name} = {choice}" for choice in option.choices)
        default = option.default
        for use in option.uses:
            value = default.get(use) if isinstance(default, Mapping) else default
            yield f"{option.name} in {use}" + ("" if value is None else f", default {value}")


def _columns() -> Iterator[str]:
    for name, kind in source_columns.ALL_COLUMNS.items():
        yield f"read {name}: {kind}"
    for table in option_table.METADATA_TABLES:
        for column in table_schema(table):
            yield f"{table}.{column.name}: {column.dataType.simpleString()}"


def _settings() -> Iterator[str]:
    config = {each.name: each.default for each in dataclasses.fields(engine_root.RootConfig)}
    for name, unit in user_settings.known_settings().items():
        of_root = name in engine_settings.OF_ROOT
        value = config[name] if of_root else getattr(engine_settings.Settings, name)
        changeable = ", changeable" if name in engine_settings.CHANGEABLE else ""
        kind = "switch" if unit is None else unit.name
        yield f"{name}: {kind}, of a {'root' if of_root else 'process'}{changeable}, default {value}"


def _commands() -> Iterator[str]:
    jobs = {"retention": retention, "truncate": truncate, "maintain": maintain, "imports": imports}
    found = [("pravega-spark", cli), *((f"pravega-spark {path}", each) for path, each in reference.walk_commands(cli))]
    found += [(f"python -m pravega_spark.jobs.{name}", module.main) for name, module in jobs.items()]
    for words, command in sorted(found, key=lambda each: each[0]):
        yield words
        context = click.Context(command, info_name=words, **command.context_settings)
        for place, each in enumerate(
            each for each in command.get_params(context) if not isinstance(each, click.Option)
        ):
            yield f"{words} argument {place}: {each.make_metavar(context)}"
        for each in command.get_params(context):
            if isinstance(each, click.Option) and not each.hidden and "--help" not in each.opts:
                yield f"{words} {' '.join([*each.opts, *each.secondary_opts])}{_option(each, context)}"


def _option(option: click.Option, context: click.Context) -> str:
    kind = "" if option.is_flag else f" {option.make_metavar(context)}"
    default = option.get_help_extra(context).get("default")
    return (
        kind
        + (", repeatable" if option.multiple else "")
        + (", required" if option.required else "")
        + (f", default {default}" if default is not None else "")
    )


def _rest() -> Iterator[str]:
    for each in OPERATIONS:
        call = f"{each.method} {each.path}"
        yield f"{call} -> {each.schema or each.media}"
        yield f"{call}: operation {each.name}" + (f", body {each.body}" if each.body else "")
        yield from (f"{call} answers {status}" for status in each.answers)
        for parameter in each.query:
            needed = "required" if parameter.required else f"default {parameter.default}"
            yield f"{call} ?{parameter.name}, {needed}"
    for name, schema in sorted(DEFINITIONS.items()):
        for field in schema.get("properties", {}):
            yield f"{name}.{field}" + (", required" if field in schema.get("required", ()) else "")


def _metric_families() -> set[str]:
    """The metrics outside of the layers: those of a root's status and of queries."""
    status = StatusMetrics(RootStatus("", 0.0, (), (), (), ()))
    return {f"{family.name}: {family.type}" for family in (*status.collect(), *Queries().collect())}


# --- comparing ----------------------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """How the API differs from the recorded one, in lines."""

    removed: list[str]
    added: list[str]
    demanded: list[str]
    """Those added that callers have to give: they break calls that were right."""

    @property
    def compatible(self) -> bool:
        """Whether what used the recorded API still works, as far as the lines say."""
        return not self.removed and not self.demanded


def described(lines: Iterator[str] | Sequence[str]) -> dict[str, list[str]]:
    """Lines by section."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in lines:
        if line.startswith("== "):
            section = found[line] = []
        elif line and not line.startswith("#"):
            section.append(line)
    return found


def compared(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> Changes:
    """What has changed between two descriptions."""
    removed, added, demanded = [], [], []
    for section in {**before, **now}:
        title, old, new = section.removeprefix("== "), before.get(section, ()), now.get(section, ())
        removed += [f"{title}: {line}" for line in old if line not in set(new)]
        more = [line for line in new if line not in set(old)]
        added += [f"{title}: {line}" for line in more]
        demanded += [f"{title}: {line}" for line in more if _is_demanded(line, set(old))]
    return Changes(removed, added, demanded)


def _is_demanded(line: str, old: set[str]) -> bool:
    """Whether an added line is something that callers of what was there have to give."""
    if found := re.match(r"([\w.]+)\((?:by name|\d+): (\*?)", line):
        known = any(each == f"{found[1]}()" or each.startswith(f"{found[1]}() ") for each in old)
        return known and not found[2] and " = " not in line
    if found := re.match(
        r"((?:pravega-spark|python -m \S+)(?: [a-z-]+)*?) (?:-|argument \d+: (?P<argument>\[?))", line
    ):
        optional = found["argument"] == "[" or (found["argument"] is None and ", required" not in line)
        return found[1] in old and not optional
    if found := re.match(r"(\S+ \S+|\w+)(?: \?|\.)\w+, required$", line):
        return any(each.startswith(found[1]) for each in old)
    return False


_HEAD = """# The public API, one fact a line: docs/versioning.md says what may change in which version.
# Written by `python -m docs.hooks.public_api`, which adds what is new, and refuses what is removed or changed.
"""


def main(arguments: Sequence[str] = sys.argv[1:]) -> int:
    """Record the API. Returns 1 if it is not compatible with the recorded one and that was not asked for."""
    lines = list(facts())
    if RECORDED.exists() and "--incompatible" not in arguments:
        found = compared(described(RECORDED.read_text("utf-8").splitlines()), described(lines))
        if not found.compatible:
            print(report(found), file=sys.stderr)
            return 1
    RECORDED.write_text(_HEAD + "\n".join(lines).replace("\n== ", "\n\n== ") + "\n", "utf-8")
    return 0


def report(found: Changes) -> str:
    """What has changed, for people, with what to do."""
    parts = []
    if found.removed:
        parts += ["Removed from the public API, or changed:", *(f"  - {line}" for line in found.removed)]
    if found.demanded:
        parts += ["New, and callers have to give it:", *(f"  + {line}" for line in found.demanded)]
    rest = [line for line in found.added if line not in found.demanded]
    if rest:
        parts += ["Added:", *(f"  + {line}" for line in rest)]
    if found.compatible:
        parts.append("Make it private (a leading underscore), or record it: python -m docs.hooks.public_api")
    else:
        parts.append(
            "Users of the last release would break. Keep the old form, deprecated (docs/versioning.md). For a new "
            "major version, or a change that breaks nobody, as of a wider type: "
            "python -m docs.hooks.public_api --incompatible"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
