"""The files in examples/serve: the metrics in their expressions are really there, and the commands are really taken."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client import generate_latest

from chunkstore.metrics import default_metrics
from pravega_spark import StatusMetrics, StreamManager, root_status
from pravega_spark.cli.main import cli
from pravega_spark.serve.operations import OPEN
from pravega_spark.streams.model.policies import RetentionPolicy

FILES = Path(__file__).resolve().parents[2] / "examples/serve"
DASHBOARD = json.loads((FILES / "grafana-dashboard.json").read_text("utf-8"))
ALERTS = yaml.safe_load((FILES / "alerts.yaml").read_text("utf-8"))
OBJECTS = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text("utf-8")))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics of a server by their names, with their labels; those of a histogram by the names of its series."""
    with StreamManager(str(tmp_path_factory.mktemp("root") / "root"), create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("event", "k")
        manager.create_reader_group("rg", "sc", "one")
        manager.set_retention("sc", "one", RetentionPolicy.by_size(10))
        manager.retain("sc", "one")
        text = StatusMetrics(root_status(manager.root)).text() + generate_latest(default_metrics().registry).decode()
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    # Of a process in which nothing has failed, and a root in which nothing is overdue: by their declarations.
    for name in re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", text, re.MULTILINE):
        found.setdefault(name, {"operation", "error", "container", "maintenance"})
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """All expressions of PromQL, and where they are."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_the_metrics_of_an_expression_are_there_with_its_labels(
    exported: dict[str, set[str]], where: str, expression: str
) -> None:
    names = re.findall(r"pravega_\w+", expression)
    assert names and set(names) <= exported.keys(), where
    labels = set().union(*(exported[name] for name in names))
    used = re.findall(r"(\w+)=~?\"", expression)
    used += [each for group in re.findall(r"by \(([^)]*)\)", expression) for each in re.split(r",\s*", group)]
    assert set(used) <= labels, where
    assert expression.count("(") == expression.count(")")


def test_the_labels_in_texts_are_those_of_the_metrics(exported: dict[str, set[str]]) -> None:
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            (name, *_) = re.findall(r"pravega_\w+", rule["expr"])
            used = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
            assert set(used) <= exported[name], rule["alert"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name, *_) = re.findall(r"pravega_\w+", target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= exported[name], panel["title"]


def test_every_metric_of_the_status_is_on_the_dashboard_or_in_an_alert(exported: dict[str, set[str]]) -> None:
    used = {name for _, expression in expressions() for name in re.findall(r"pravega_\w+", expression)}
    status = {name for name in exported if re.match(r"pravega_(stream|consumer|status|container_[a-z]+$)", name)}
    layers = {f"pravega_container_{kind}" for kind in ("seconds", "bytes_total", "failures_total")}
    assert {each for each in status - layers if not each.endswith(("_total", "_created"))} - used <= {
        "pravega_consumer_lag_bytes"
    }


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


def commands() -> Iterator[tuple[str, list[str]]]:
    """The command lines in the files, and where they are."""
    unit = (FILES / "pravega-spark-serve.service").read_text("utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    yield "service", shlex.split(line)[1:]
    container = (FILES / "Containerfile").read_text("utf-8")
    (line,) = re.findall(r"^CMD (.*)$", container, re.MULTILINE)
    yield "Containerfile", json.loads(line)
    for found in OBJECTS:
        if found["kind"] in ("Deployment", "CronJob"):
            spec: Any = found["spec"]["template" if found["kind"] == "Deployment" else "jobTemplate"]["spec"]
            for each in spec.get("template", {"spec": spec})["spec"]["containers"]:
                yield found["kind"], each["args"]


@pytest.mark.parametrize(("where", "arguments"), list(commands()))
def test_the_commands_are_taken(where: str, arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, [*arguments, "--help"])  # an option that is not known fails before help is shown
    assert done.exit_code == 0, f"{where}: {done.output}"
    assert {"serve", "maintain"} & set(arguments) and "Usage:" in done.output
    assert CliRunner().invoke(cli, [*arguments, "--nonsense", "--help"]).exit_code == 2


def test_probes_need_no_token_and_no_storage() -> None:
    (deployment,) = (each for each in OBJECTS if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for kind in ("livenessProbe", "readinessProbe"):
        probe = container[kind]["httpGet"]
        assert probe["path"] in OPEN and {"name": "Host", "value": "localhost"} in probe["httpHeaders"]
