"""Checks the arguments of public calls against their annotations, before the call does anything.

So the error for an invalid argument names the call, the parameter, the given value and the allowed ones. If an
annotation is an alias with a parser (`quantities.TimeLike`), the parser decides what is allowed.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import numbers
import re
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

Kind = TypeVar("Kind", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])

_ELEMENTS = (Sequence, Collection)
"""Annotations whose elements are checked, if a list, a tuple or a set is given. A string is not accepted."""


def checks_parameters(*, but: Collection[str] = (), hints: Mapping[str, str] | None = None) -> Callable[[Kind], Kind]:
    """Decorate a class so that its public methods, and `__init__`, check their arguments.

    but: methods without checks: those that are called for each event, which check by themselves, and those that are not
    for users. hints: advice for the errors of some parameters, by their names.
    """

    def decorated(kind: Kind) -> Kind:
        for name, found in list(vars(kind).items()):
            if name in but or (name.startswith("_") and name != "__init__"):
                continue
            called = kind.__name__ if name == "__init__" else name
            if isinstance(found, classmethod | staticmethod):
                checking = type(found)(checks(found.__func__, called, hints))
                setattr(kind, name, checking)
            elif inspect.isfunction(found):
                setattr(kind, name, checks(found, called, hints))
        return kind

    return decorated


def checks(function: Function, called: str = "", hints: Mapping[str, str] | None = None) -> Function:
    """Decorate a function so that it checks its arguments. called: its name in errors."""
    signature = inspect.signature(function)
    if set(signature.parameters) <= {"self", "cls"}:
        return function

    @functools.cache
    def tests() -> dict[str, _Test]:
        """The test of each parameter. The first call makes them, as annotations may name types that are defined
        later."""
        scope = vars(builtins) | function.__globals__
        return {
            each.name: _Test(each, tuple(_alternatives(str(each.annotation), scope)))
            for each in signature.parameters.values()
            if each.annotation is not each.empty
        }

    @functools.wraps(function)
    def checking(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"{called or function.__name__}: {error}") from None
        given = bound.arguments
        for name, value in given.items():
            test = tests().get(name)
            problem = test.problem(value) if test is not None else None
            if problem is not None:
                hint = f": {hints[name]}" if hints and name in hints else ""
                raise problem.error(f"{called or function.__name__}: {name} {problem.text}{hint}")
            given[name] = as_number(value)
        try:
            return function(*bound.args, **bound.kwargs)
        except (TypeError, ValueError) as error:
            _name_call(error, called or function.__name__, given)
            raise

    return checking  # type: ignore[return-value]


def _name_call(error: TypeError | ValueError, called: str, given: Mapping[str, Any]) -> None:
    """Add the call to an error that this project's code raised for an argument, and the parameter whose value it shows.

    Errors of this project's own classes, and those raised by callables of the user, are not changed.
    """
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    raised_in = "" if place is None else str(place.tb_frame.f_globals.get("__name__", ""))
    if type(error) not in (TypeError, ValueError) or raised_in.partition(".")[0] not in _OURS:
        return
    text = getattr(error, "of_call", str(error))  # for nested calls, the outermost one, which the user made
    vars(error)["of_call"] = text
    shown = {name: repr(value) for name, value in given.items() if isinstance(value, str | int | float)}
    held = [name for name, value in shown.items() if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text)]
    named = len(held) != 1 or re.search(rf"\b{held[0]}\b", text)
    if not text.startswith(f"{called}: "):
        error.args = (f"{called}: {text}" if named else f"{called}: {held[0]}: {text}",)


_OURS = ("chunkstore", "engine", "pravega_spark")


def as_number(value: Any) -> Any:
    """A number of NumPy as one of Python; anything else unchanged."""
    if type(value) in _PLAIN or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return value if isinstance(value, int) else int(value)
    return float(value) if type(value).__module__ == "numpy" else value


_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def whole_number(parameter: str, value: Any) -> int:
    """The whole number given for a parameter, also one of NumPy. Raises TypeError, which names the parameter, for
    anything else, also for a float or a bool."""
    number = as_number(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{parameter} must be a whole number, not {reprlib.repr(value)} ({type(value).__name__})")
    return number


def buffer_of(parameter: str, value: Any) -> memoryview:
    """The bytes or buffer given for a parameter, as bytes. Raises TypeError, which names the parameter, otherwise."""
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"{parameter} must be bytes, or another buffer, not {reprlib.repr(value)} ({type(value).__name__})"
        ) from None
    return view.cast("B") if view.contiguous else memoryview(view.tobytes())


class _Problem(NamedTuple):
    """What is wrong with a value, as the rest of a sentence after its parameter's name, and the error to raise."""

    text: str
    error: type[Exception] = TypeError


class _Test(NamedTuple):
    """The allowed values of one parameter: any of some alternatives, or its default."""

    parameter: inspect.Parameter
    alternatives: tuple[_Alternative, ...]

    def problem(self, value: Any) -> _Problem | None:
        """What is wrong with a value, None if it is valid."""
        kind = self.parameter.kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            return None
        values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
        return next((found for each in values if (found := self._problem_of(each)) is not None), None)

    def _problem_of(self, value: Any) -> _Problem | None:
        if value is self.parameter.default or any(each.takes(value) for each in self.alternatives):
            return None
        for each in self.alternatives:
            if each.parser is not None:
                try:
                    each.parser(value)
                except ValueError as error:
                    return _Problem(f"is wrong: {error}", type(error))
        kind = ValueError if isinstance(value, str) and any(each.values for each in self.alternatives) else TypeError
        wanted = " or ".join(dict.fromkeys(each.name for each in self.alternatives))
        return _Problem(f"must be {wanted}, not {reprlib.repr(value)} ({type(value).__name__})", kind)


class _Alternative(NamedTuple):
    """One of the types that an annotation allows. base: None for any. values: of a Literal. of: of its elements."""

    name: str
    base: Any = None
    values: tuple[Any, ...] = ()
    parser: Callable[[Any], Any] | None = None
    of: tuple[_Alternative, ...] = ()

    def takes(self, value: Any) -> bool:
        """Whether a value is of this type."""
        if self.values:
            return any(value == each and type(value) is type(each) for each in self.values)
        if self.parser is not None:
            try:
                self.parser(value)
            except ValueError:
                return False
            return True
        if self.base is None:
            return True
        if self.base in (int, float):
            number = as_number(value)
            return isinstance(number, int | self.base) and not isinstance(number, bool)
        if self.base in _ELEMENTS:
            if isinstance(value, str | bytes) or not isinstance(value, self.base):
                return False
            looked_at = value if self.of and isinstance(value, list | tuple | set | frozenset) else ()
            return all(any(each.takes(one) for each in self.of) for one in looked_at)
        return isinstance(value, self.base)


_ANY = _Alternative("anything")


def _alternatives(annotation: str, scope: Mapping[str, Any]) -> Iterator[_Alternative]:
    yield from _of_node(ast.parse(annotation, mode="eval").body, scope)


def _of_node(node: ast.expr, scope: Mapping[str, Any]) -> Iterator[_Alternative]:
    if isinstance(node, ast.BinOp):
        yield from _of_node(node.left, scope)
        yield from _of_node(node.right, scope)
    elif isinstance(node, ast.Constant) and node.value is None:
        yield _Alternative("None", type(None))
    elif isinstance(node, ast.Subscript):
        found = _named(node.value, scope)
        of = tuple(_of_node(node.slice, scope)) if found in _ELEMENTS else ()
        elements = f" of {' or '.join(each.name.partition(' ')[2] for each in of)}" if of and _ANY not in of else ""
        yield from (each._replace(of=of, name=each.name + elements) for each in _of_value(found, scope))
    else:
        yield from _of_value(_named(node, scope), scope)


def _named(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """The object of a dotted name; None if only type checkers know it."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, scope), node.attr, None)
    return scope.get(node.id) if isinstance(node, ast.Name) else None


def _of_value(found: Any, scope: Mapping[str, Any]) -> Iterator[_Alternative]:
    if get_origin(found) is Annotated:
        _, parser = get_args(found)
        yield _Alternative("", parser=parser)
    elif get_origin(found) is Literal:
        yield _Alternative(" or ".join(map(repr, get_args(found))), values=get_args(found))
    elif isinstance(found, str):
        yield from _alternatives(found, scope)
    elif isinstance(found, UnionType):
        for each in get_args(found):
            yield from _of_value(each, scope)
    elif isinstance(found, type) and get_origin(found) is None:  # in Python 3.10 generic types are types too
        name = _NAMES.get(found.__name__, found.__name__)
        yield _Alternative(f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}", found)
    else:
        base = get_origin(found)
        yield _Alternative(f"a {base.__name__}", base) if isinstance(base, type) else _ANY


_NAMES = {"float": "number", "RetentionPolicy": "StreamRetentionPolicy", "ScalingPolicy": "StreamScalingPolicy"}
"""The names of types that are public under another name."""
