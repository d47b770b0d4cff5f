"""What is checked when all processes have ended: their logs, the delivery to the group, memory and space.

Errors are to be expected when something is done to a process or to the storage. `ALLOWED` says which, and after which
faults; whatever else a log has is a failure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.soak.faults import Fault
from tests.soak.place import ALL
from tests.soak.supervisor import Process

AFTERWARDS = 90.0
"""Seconds for which a fault explains errors after its end: the retries of an unknown outcome, and the grace period."""

STORAGE = ("restart", "reset-all", "reset", "silence")
LATE = ("stop", "pause", *STORAGE)
ANY = ("kill", "clock", "full", *LATE)


class Allowed(NamedTuple):
    """An error or a warning that is no failure: a pattern of its type or logger and text, and the faults that explain
    it; those of the same actor and of the storage, or of any actor with `others`. None: it needs no fault."""

    pattern: str
    faults: tuple[str, ...] | None
    others: bool = False


ALLOWED = (
    Allowed(r"StorageUnavailable|PutUnknown|did not answer|Connection|connect", STORAGE),
    Allowed(r"StorageFull|No space left|filesystem is full|bytes free", ("full",)),
    Allowed(r"OutcomeUnknown", (*LATE, "full")),
    Allowed(r"it was submitted to another process, and may be done", ANY, others=True),  # which died, or slept
    Allowed(r"ClocksDisagree|clock", ("clock",), others=True),
    Allowed(r"FlushIncomplete|flush cycle", ANY, others=True),
    Allowed(r"ChunksExpired", LATE),
    # Requests may take as long as a lease. It is counted.
    Allowed(r"ReaderOffline|reader .* is offline|lost its segments|ReaderOnline", None),
    # OutcomeUnknown, as a request took a third of the grace period, which is short here. It is counted.
    Allowed(r"address \d+ was used when", None),
    Allowed(r"engine.task_runner: .* will be retried", None),
    Allowed(r"TransactionClosed|TransactionNotFound|EventTaken|EventExpired", LATE),
    Allowed(r"TruncatedData", None),  # of a stream whose retention waits for no reader
    Allowed(r"BadKeyVersion", ("kill", *STORAGE)),
    Allowed(r"Throttled", ("full", *STORAGE)),
    Allowed(r"was not flushed or closed", ANY),
    Allowed(r"StreamingQueryException", ANY),
    Allowed(r"Python worker failed to connect back", None),  # Spark's own time limit, on a machine that is too busy
)


def read_logs(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of all logs. A line that was torn by a kill is left out."""
    for path in sorted((folder / "logs").glob("*.jsonl")):
        with path.open() as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def check_logs(folder: Path, faults: Sequence[Fault], counts: Counter[str]) -> list[str]:
    """Problems that actors noted, and errors that nothing explains; all are counted by kind."""
    found: Counter[str] = Counter()
    faults = [*faults, *starvations(folder)]
    for line in read_logs(folder):
        kind = line["kind"]
        if kind == "problem":
            found[f"{line['actor']}: {line['reason']}"] += 1
        elif kind in ("error", "warning"):
            text = _text(line)
            name = "/".join(line.get("error", [line.get("logger", "")]))
            counts[f"{kind} {line['actor']} {line.get('call', '')} {name}"] += 1
            if not any(_explains(each, text, line, faults) for each in ALLOWED):
                found[f"{line['actor']}: {kind} that no fault explains: {text}"] += 1
        elif kind == "late":
            counts[f"times that {line['actor']} was not run for seconds"] += 1
        elif kind == "command":
            counts[f"command {' '.join(line['command'][:2])}"] += 1
    return [f"{text} ({number} times)" if number > 1 else text for text, number in found.items()]


def starvations(folder: Path) -> list[Fault]:
    """When processes were not run for some seconds, whatever the reason: as pauses, which explain errors too."""
    late = [line for line in read_logs(folder) if line["kind"] == "late"]
    return [
        Fault(0, "pause", each["actor"], each["seconds"], began=each["t"] - each["seconds"], ended=each["t"])
        for each in late
    ]


def _text(line: dict[str, Any]) -> str:
    name = " < ".join(line["error"]) if "error" in line else f"{line['level']} {line['logger']}"
    return f"{line.get('call', '')} {name}: {line['reason']} {line.get('at', '')}"


def _explains(allowed: Allowed, text: str, line: dict[str, Any], faults: Iterable[Fault]) -> bool:
    if not re.search(allowed.pattern, text):
        return False
    if allowed.faults is None:
        return True
    return any(
        fault.kind in allowed.faults
        and (allowed.others or fault.target in (ALL, line["actor"]))
        and fault.began - 1 <= line["t"] <= (fault.ended or fault.began) + AFTERWARDS
        for fault in faults
    )


def check_group(folder: Path, faults: Sequence[Fault], counts: Counter[str], written: int) -> list[str]:
    """All bytes that were written were delivered, and none twice unless a reader died or slept."""
    slices: dict[int, list[tuple[int, int, float, str]]] = {}
    for line in read_logs(folder):
        if line["kind"] == "slice":
            slices.setdefault(line["segment"], []).append((line["first"], line["end"], line["t"], line["actor"]))
            counts["events delivered to the group"] += line["events"]
    readers = {each[3] for parts in slices.values() for each in parts}
    offline = [
        Fault(0, "offline", line["actor"], 0, began=line["t"] - AFTERWARDS, ended=line["t"])
        for line in read_logs(folder)
        if line["kind"] == "error" and "ReaderOffline" in line["error"]
    ]
    disturbances = [each for each in (*faults, *starvations(folder), *offline) if each.target in (*readers, ALL)]
    problems: list[str] = []
    delivered = 0
    for segment, parts in sorted(slices.items()):
        reached, before = 0, (0, 0, 0.0, "")
        for part in sorted(parts):
            if part[0] > reached:
                problems.append(f"group: segment {segment}: bytes {reached} to {part[0]} were not delivered")
            if part[0] < reached:
                counts["slices delivered again"] += 1
                first, last = sorted((part[2], before[2]))
                if not any(each.began - 1 <= last and first <= each.ended + AFTERWARDS for each in disturbances):
                    problems.append(f"group: segment {segment}: {part} after {before}, and no reader died")
            if part[1] > reached:
                reached, before = part[1], part
        delivered += reached
    if delivered != written:
        problems.append(f"group: {delivered} bytes were delivered, and {written} were written")
    return problems


def check_memory(processes: Iterable[Process], shortest: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The growth of each process in its longest life: a line through the second half of it, MiB an hour. One that lived
    for `shortest` seconds may grow by a tenth, and a little, in that half."""
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for process in processes:
        lives: dict[int, list[tuple[float, int]]] = {}
        for pid, t, size in process.samples:
            lives.setdefault(pid, []).append((t, size))
        times, sizes = np.array(max(lives.values(), key=len, default=[(0.0, 0)])).T
        second = times >= (times[0] + times[-1]) / 2
        if second.sum() < 4:
            continue
        slope, _ = np.polyfit(times[second] - times[0], sizes[second], 1)
        grown, mean = slope * float(np.ptp(times[second])), float(sizes[second].mean())
        row = {"process": process.name, "minutes": round(float(times[-1] - times[0]) / 60, 1)}
        row |= {"mib": round(mean / (1 << 20), 1), "mib_an_hour": round(float(slope) * 3600 / (1 << 20), 1)}
        rows.append(row)
        if times[-1] - times[0] >= shortest and grown > 0.1 * mean + (8 << 20):
            problems.append(f"memory: {row} grows")
    return rows, problems


SPACE_FACTOR = 4.0
SPACE_ALLOWANCE = 64 << 20
OBJECTS = 2000


def check_space(result: dict[str, Any]) -> list[str]:
    """At the end the root takes no more than a multiple of what its streams keep, and verifies."""
    space, verify = result["space"], result["verify"]
    found = []
    if result["code"] != 0:
        found.append(f"verify --deep fails: {verify.get('findings')}")
    if space["bytes"] > SPACE_FACTOR * space["kept"] + SPACE_ALLOWANCE or space["objects"] > OBJECTS:
        found.append(f"space: {space}: more than {SPACE_FACTOR:g} times what is kept, or {OBJECTS} objects")
    return found
