"""What all errors of this project have in common."""

from __future__ import annotations

import inspect
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from chunkstore.errors import DeclaredError
from pravega_spark.errors import AdvisedError, LargeEventError
from pravega_spark.streams.pravega_lts.imports import ImportedStream, ImportReport
from tests.support.modules import product_modules

VALUES: dict[str, Any] = {
    "str": "a text",
    "bytes": b"some bytes",
    "int": 7,
    "int | None": 7,
    "str | int": 7,
    "bool": True,
    "float": 7.5,
    "uuid.UUID": uuid.UUID(int=7),
    "Sequence[str]": ("one", "two"),
    "tuple[str, ...]": ("one", "two"),
    "tuple[bytes, bytes]": (b"one", b"two"),
    "ImportReport": ImportReport("a place", (ImportedStream("s", "t", "refused", problem="a text"),), (), ()),
}
"""An argument for each annotation that their constructors have."""


def below(kind: type[DeclaredError]) -> Iterator[type[DeclaredError]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def kinds() -> list[type[DeclaredError]]:
    """All of them, whichever module declares them."""
    list(product_modules())
    return sorted({*below(DeclaredError)} - {AdvisedError}, key=lambda kind: (kind.__module__, kind.__name__))


def made(kind: type[DeclaredError]) -> DeclaredError:
    if issubclass(kind, LargeEventError):
        return kind("s/t", "an event", 7, 8)
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    named = {each.name: VALUES[each.annotation] for each in parameters if each.annotation in VALUES}
    plain = all(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)
    return kind("a text") if plain else kind(**named)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_pickling(kind: type[DeclaredError]) -> None:
    """Tasks, and processes of a pool, raise them where somebody else hears of them."""
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and (str(again), again.args) == (str(error), error.args)
    assert vars(again) == vars(error)
