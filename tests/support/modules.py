"""All modules of the product."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")


def product_modules() -> Iterator[ModuleType]:
    """All of them, imported; without programs, and without what is there for the tests of a storage."""
    for package in map(importlib.import_module, PACKAGES):
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not {"testing", "__main__"} & set(module.name.split(".")):
                yield importlib.import_module(module.name)
