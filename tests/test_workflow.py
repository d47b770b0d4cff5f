"""The workflow of the public host checks what .ci/run checks, by targets that the Makefile has.

Its form is checked by `make lint`, against the host's schema.
"""

import re
from pathlib import Path

import pytest

from tests.conftest import LONGEST, SLOW

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = (ROOT / ".github/workflows/checks.yml").read_text("utf-8")
LOCAL = (ROOT / ".ci/run").read_text("utf-8")


@pytest.mark.parametrize("place", sorted({*LONGEST, *SLOW}))
def test_each_place_in_the_order_of_the_tests_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    found = list(ROOT.glob(f"{file}*"))
    assert found and (not name or f"def {name}" in found[0].read_text("utf-8"))


def targets_of_the_workflow() -> set[str]:
    """The make targets that it names, in steps and in the list of those that run at night."""
    (nightly,) = re.findall(r"target: \[(.*)\]", WORKFLOW)
    return {*re.findall(r"run: make ([a-z-]+)", WORKFLOW), *(entry.split()[0] for entry in nightly.split(", "))}


def test_each_target_is_in_the_makefile() -> None:
    known = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert targets_of_the_workflow() <= known


def test_it_runs_every_target_of_the_local_check() -> None:
    (local,) = re.findall(r"for target in (.*); do", LOCAL)
    assert set(local.split()) - {"venv"} <= targets_of_the_workflow()


def test_it_runs_every_version_of_spark_of_the_local_check() -> None:
    (local,) = re.findall(r"for version in (.*); do", LOCAL)
    (matrix,) = re.findall(r"spark: \[(.*)\]", WORKFLOW)
    assert set(local.split()) <= set(re.findall(r'"(.*?)"', matrix))
