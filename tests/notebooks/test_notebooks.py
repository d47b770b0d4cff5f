"""The notebooks run from top to bottom, and show what their text says: within a limit of time and of bytes, on a busy
machine too, and nothing of them is left."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt

from tests.notebooks.runs import NOTEBOOKS, Run, load

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))

SECONDS = 550
"""Of a notebook. They start a JVM each; on a machine that does other things besides, that takes its time."""

BYTES = 200 << 20
"""Of temporary files of a notebook."""

BUSY = 8
"""Processes that compute beside a notebook, on a machine of two processors."""

pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is kept in the user's folders, and Spark is quick to start."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(params=[0, pytest.param(BUSY, marks=[pytest.mark.long, pytest.mark.timeout(3 * SECONDS + 60)])])
def ran(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Run]:
    """Runs a notebook, alone or beside a load."""

    def run(name: str) -> Run:
        with load(request.param):
            found = Run.of(name, tmp_path, 3 * SECONDS if request.param else SECONDS)
        assert 0 < found.most_bytes < BYTES
        assert found.complaints() == []
        return found

    return run


def rows(text: str) -> list[list[str]]:
    """The cells of the table that `DataFrame.show` printed."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def assert_draws(svg: str, *colours: str) -> None:
    """Each of the colours fills or strokes a part of the picture."""
    used = {each.get(name) for each in ElementTree.fromstring(svg).iter() for name in ("fill", "stroke")}
    assert {*colours} <= used


def assert_has_colours(picture: np.ndarray, *colours: str) -> None:
    """Each of them is in it, be it only as a line, whose borders are blurred."""
    height, width, _ = picture.shape
    assert height > 300 and width > 700
    for colour in colours:
        wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
        assert (picture == wanted).all(axis=2).sum() > 50, f"nothing of {colour}"


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_kept_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.parametrize("name", NAMES)
def test_no_loop_of_a_notebook_waits_for_ever(name: str) -> None:
    """A loop that waits has a deadline or a number of rounds, and a call that waits for another process a limit."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    for loop in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.While)):
        assert "deadline" in ast.unparse(loop), ast.unparse(loop)
    assert not re.search(r"(awaitTermination|\.wait|processAllAvailable)\(\)", source)
    assert all("timeout=" in call for call in re.findall(r"subprocess\.run\(.*", source))


@pytest.mark.spark
@pytest.mark.processes
def test_first_steps(ran: Callable[[str], Run]) -> None:
    run = ran("first_steps.ipynb")

    table = run.shown("info", "text/html")
    assert table.count("<table>") == 2 and "stream examples/readings" in table
    assert run.shown("info", "text/plain").startswith("StreamInfo(scope='examples'")

    lines = [line.split(" ", 1) for line in run.text("events").splitlines()]
    assert sorted(event for _, event in lines) == sorted(f"reading {number}" for number in range(10))
    for sensor in range(4):
        of_one = [int(event.split()[1]) for _, event in lines if int(event.split()[1]) % 4 == sensor]
        assert of_one == sorted(of_one)

    header, *counts = rows(run.text("batch"))
    assert header == ["segment_id", "count"] and sum(int(count) for _, count in counts) == 100
    assert run.text("copied") == "events read: 100\n"
    assert run.text("copied-again") == "events read: 5\n"
    assert run.text("restarted") == "events in the stream: 105\nthe copy is the same: True\n"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.processes
def test_cuts_scaling_and_retention(ran: Callable[[str], Run]) -> None:
    run = ran("cuts_scaling_retention.ipynb")

    table = run.shown("cut", "text/html")
    assert "cut of examples/rides" in table and table.count("<tr>") == 3
    assert run.shown("text", "text/plain") == "True"
    assert run.text("between") == "120 events, all of {'tuesday'}\n"
    assert run.text("by-time") == "since noon: {'wednesday'}\n"

    assert re.search(r"epochs</td><td[^>]*>0 to 2<", run.shown("scaled", "text/html"))
    days = re.findall(r"(\w+) 003", run.text("in-order"))
    assert days == ["monday", "tuesday", "wednesday", "thursday", "friday"]
    assert_draws(
        run.shown("picture", "image/svg+xml"), "#8CCBF0", "#D3E6F1", "#E69F00", "#009E73", "#D55E00", "#882255"
    )

    assert "has been truncated" in run.text("truncated")
    assert run.text("retained").splitlines()[1:] == ["truncated at friday's end: True", "bytes that went: 7080"]
    assert_draws(run.shown("picture-after", "image/svg+xml"), "#D3E6F1", "#EFEFEF", "#8C8C8C", "#009E73", "#D55E00")
    assert rows(run.text("spark-between")) == [["day", "count"], ["sunday", "200"]]


def test_the_chunks_are_counted_by_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: None)
    notebook = nbformat.read(NOTEBOOKS / "operating_a_stream.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if "chunks" in cell.metadata.get("tags", ())]
    with plt.rc_context({"backend": "Agg"}):
        exec(cell.source, {"plt": plt, "before": [40_000] * 7, "after": [240_000, 40_000]})
        figure = plt.gcf()
        figure.canvas.draw()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert all(tick == round(tick) for tick in axes.get_xticks() if low <= tick <= high)
        assert axes.get_xlabel() and axes.get_title()
    plt.close(figure)


@pytest.mark.processes
def test_operating_a_stream(ran: Callable[[str], Run]) -> None:
    run = ran("operating_a_stream.ipynb")
    for tag, lines in (("watched", 3), ("killed", 4), ("merged", 3)):
        told = run.text(tag).splitlines()
        assert len(told) == lines and all(line.endswith(": True") for line in told), told
    assert_has_colours(run.picture("lag"), "#0072B2", "#E69F00")
    assert_has_colours(run.picture("chunks"), "#009E73")
    assert run.text("verified").splitlines() == ["segments: 10", "healthy: True"]
    assert {line.split()[0] for line in run.text("maintained").splitlines()} >= {"retention", "flush", "garbage"}
