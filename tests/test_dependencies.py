"""Every dependency has a lower bound, and the pinned versions are within what setup.cfg allows."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def requirements() -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    return [Requirement(line) for text in listed for line in text.splitlines() if line and not line.startswith("#")]


def pinned(name: str) -> dict[str, list[Requirement]]:
    """The lines of a file of constraints by the package's name; some have one for each range of Python versions."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_pinned_versions_are_within_the_bounds(file: str) -> None:
    lines = pinned(file)
    for requirement in requirements():
        for line in lines[canonicalize_name(requirement.name)]:
            (version,) = (specifier.version for specifier in line.specifier)
            assert version in requirement.specifier, f"{file} pins {line}, setup.cfg asks for {requirement}"


@pytest.mark.processes
def test_the_lowest_versions_are_the_lower_bounds() -> None:
    told = subprocess.run([sys.executable, ".ci/lowest"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert (ROOT / "constraints-lowest.txt").read_text() == told.stdout, "make constraints-lowest.txt"
