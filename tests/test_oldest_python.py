"""What Python 3.10 refuses, and newer ones do not. The tests run with one of these."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from tests.support.modules import PACKAGES, product_modules


def test_no_default_of_a_dataclass_is_mutable_to_python_3_10() -> None:
    """There a default that is a list, a dict or a set is one, whether it has a hash or not."""
    classes = {each for module in product_modules() for each in vars(module).values() if isinstance(each, type)}
    found = [
        f"{each.__module__}.{each.__qualname__}.{field.name}"
        for each in classes
        if is_dataclass(each) and each.__module__.startswith(PACKAGES)
        for field in fields(each)
        if isinstance(field.default, list | dict | set)
    ]
    assert not found
