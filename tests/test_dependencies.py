"""Every dependency has a lower bound, and the pinned versions are within what setup.cfg allows."""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterable
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


def hashed() -> dict[str, list[Requirement]]:
    """The requirements of the file with hashes, each of which has at least one."""
    found: dict[str, list[Requirement]] = {}
    text = (ROOT / "requirements-hashed.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            text, *hashes = line.split(" --hash=")
            assert hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", each.strip()) for each in hashes), text
            requirement = Requirement(text.strip())
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def versions(lines: Iterable[Requirement], python: str) -> set[str]:
    """The versions that are pinned for a version of Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.9"}
    chosen = [each for each in lines if each.marker is None or each.marker.evaluate(environment)]
    return {specifier.version for each in chosen for specifier in each.specifier}


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_versions_with_hashes_are_the_pinned_ones(python: str) -> None:
    constraints = pinned("constraints.txt")
    for name, lines in hashed().items():
        pins = versions(constraints.get(name, []), python)  # none for what only other systems than Linux need
        assert not pins or versions(lines, python) <= pins, f"{name}: make requirements-hashed.txt"


def test_what_users_install_has_hashes() -> None:
    found = hashed()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    needed = [setup["options"]["install_requires"], *(extras[name] for name in extras if name not in ("docs", "dev"))]
    names = [Requirement(line).name for text in needed for line in text.splitlines() if line and line[0] != "#"]
    assert {canonicalize_name(name) for name in names} <= found.keys()


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt", "requirements-hashed.txt", "tools.txt"])
def test_no_list_names_a_registry(file: str) -> None:
    text = (ROOT / file).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links)\b", text, re.MULTILINE)
