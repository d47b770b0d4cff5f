"""The report of a run, as a text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(folder: Path, report: dict[str, Any]) -> str:
    """Write `report.json` and `report.txt`; returns the text."""
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    text = "\n".join(lines(report)) + "\n"
    (folder / "report.txt").write_text(text)
    return text


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    found = [f"seed {report['seed']}, {report['minutes']:g} minutes, {report['place']}", "", "faults"]
    found += [f"  {kind:10} {number}" for kind, number in sorted(report["faults"].items())]
    found += ["", "streams"]
    found += [f"  {name:4} {each['events']} events were checked" for name, each in report["streams"].items()]
    found += ["", "counts"]
    found += [f"  {number:8} {name}" for name, number in sorted(report["counts"].items())]
    found += ["", "space after collections of garbage: seconds, objects, MiB, MiB of events kept"]
    for at, objects, size, kept in _thinned(report["space"]):
        found.append(f"  {at:7.0f} {objects:7} {size / (1 << 20):9.1f} {kept / (1 << 20):9.1f}")
    found += ["", "memory of processes: minutes, MiB, growth in the second half as MiB an hour"]
    for row in report["memory"]:
        found.append(f"  {row['process']:12} {row['minutes']:7} {row['mib']:8} {row['mib_an_hour']:8}")
    if report["problems"]:
        found += ["", f"FAILED: {len(report['problems'])} problems", *(f"  - {each}" for each in report["problems"])]
    else:
        found += ["", "passed"]
    return found


def _thinned(rows: list[Any], most: int = 30) -> list[Any]:
    step = max(1, -(-len(rows) // most))
    return rows[::step] + (rows[-1:] if rows and (len(rows) - 1) % step else [])
