"""The table in docs/backends.md: which suite passed on which backend, collected while the tests run.

A suite is a class with the mark `suite`; its module says in BACKEND and SERVER what it runs on. With the option
--backend-table the session writes the table, or fails if the table is not what has happened.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "backends.md"
BEGIN, END = "<!-- begin: made by make backend-table -->\n", "<!-- end -->\n"
SUITES = (
    "storage port",
    "self-test at the first opening",
    "race of processes",
    "write-ahead log",
    "Spark, batch and streaming",
)

Row = tuple[str, str]
Outcomes = dict[Row, dict[str, set[str]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "write the table of docs/backends.md from what happens, or check it"
    parser.addoption("--backend-table", choices=("write", "check"), help=help)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "suite(name): runs on every backend; its outcome is in the table of the docs")
    wanted = config.getoption("--backend-table")
    if wanted and not hasattr(config, "workerinput"):
        config.pluginmanager.register(BackendTable(wanted))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if mark := item.get_closest_marker("suite"):
            assert mark.args[0] in SUITES, mark.args
            module = item.getparent(pytest.Module)
            assert module is not None
            item.user_properties.append(("suite", [module.obj.BACKEND, module.obj.SERVER, mark.args[0]]))


class BackendTable:
    """Collects the outcomes of a session, those of its worker processes included."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.outcomes: Outcomes = defaultdict(lambda: defaultdict(set))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for name, value in report.user_properties:
                if name == "suite":
                    assert isinstance(value, list)
                    backend, server, suite = value
                    self.outcomes[backend, server][suite].add(report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        page = PAGE.read_text("utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        renewed = before + BEGIN + table(self.outcomes) + END + after
        if self.wanted == "write" and (left_out := rows(page) - {*self.outcomes}):
            names = ", ".join(" on ".join(row) for row in sorted(left_out))
            print(f"\n{PAGE.name} is unchanged, as these did not run: {names}. Run all: make backend-table")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self.wanted == "write":
            PAGE.write_text(renewed, "utf-8")
        elif renewed != page:
            print(f"\nThe table of {PAGE.name} is not what has run here, which is:\n\n{table(self.outcomes)}")
            print("If that is as it should be: make backend-table")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def table(outcomes: Outcomes) -> str:
    """The outcomes in Markdown."""
    lines = [["backend", "server", *SUITES], ["---"] * (2 + len(SUITES))]
    for row, suites in sorted(outcomes.items()):
        lines.append([*row, *(_cell(suites.get(suite, set())) for suite in SUITES)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows(page: str) -> set[Row]:
    """The rows of the table on a page."""
    lines = page.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    return {(backend, server) for backend, server, *_ in (line.strip("| ").split(" | ") for line in lines)}


def _cell(outcomes: set[str]) -> str:
    """One word for a suite: the worst of its tests."""
    return next((word for word in ("failed", "skipped", "passed") if word in outcomes), "–")
