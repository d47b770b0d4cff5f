"""The soak's own checks find what they are for, its plan is the seed's, and a short run of the program passes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.soak import KEYS, checks, faults
from tests.soak.events import Sequences, Transactions, Written, decoded
from tests.soak.faults import Fault
from tests.soak.ledger import Ledger, acknowledged
from tests.soak.supervisor import Process


def read(*numbers: int, suffix: bool = False) -> Sequences:
    sequences = Sequences(suffix)
    for number in numbers:
        sequences.add(Written("w", 0, number))
    return sequences


def test_events_say_who_wrote_them() -> None:
    written = Written("plain-1", 3, 17)
    assert decoded(written.encoded(5)) == written
    with pytest.raises(ValueError, match="no actor wrote"):
        decoded(b"plain-1 3 17 other")


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([0, 1, 4, 2, 3, 5], ""),
        ([0, 4, 4], "repeated"),
        ([0, 4, 0], "repeated"),
        ([0, 8], "missing"),
        ([4], "missing"),
    ],
)
def test_each_key_has_all_numbers_once_and_in_order(numbers: list[int], problem: str) -> None:
    problems = read(*numbers).problems
    assert (problem in problems[0]) if problem else not problems


def test_what_begins_midway_is_checked_from_there_on() -> None:
    assert not read(40, 44, suffix=True).problems
    assert read(40, 48, suffix=True).problems


def test_acknowledged_events_that_are_not_there_are_found() -> None:
    sequences = read(*range(6))
    assert not sequences.missing({("w", 0): 5})
    assert len(sequences.missing({("w", 0): 6})) == 1
    assert len(sequences.missing({("w", 1): KEYS - 1})) == KEYS


def test_a_part_of_a_transaction_at_a_cut_is_found() -> None:
    transactions = Transactions()
    for part in (b"0", b"1"):
        transactions.add(b"t 7 " + part + b" .", 2)
    transactions.at_a_cut()
    assert transactions.whole == {"t": {7}} and not transactions.problems
    transactions.add(b"t 8 0 .", 2)
    transactions.at_a_cut()
    transactions.add(b"t 7 0 .", 2)
    assert "only parts [0]" in transactions.problems[0] and "twice" in transactions.problems[1]


def test_a_pass_that_failed_is_read_again() -> None:
    transactions = Transactions()
    for _ in range(2):
        transactions.start_again()
        for part in (b"0", b"1"):
            transactions.add(b"t 7 " + part + b" .", 2)
    transactions.at_a_cut()
    assert not transactions.problems


def test_a_ledger_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "ledgers").mkdir()
    with closing(Ledger(tmp_path, "w")) as ledger:
        ledger.note("A", 0, 5)
    with (tmp_path / "ledgers" / "w.txt").open("a") as file:
        file.write("A 0 99")
    with closing(Ledger(tmp_path, "w")) as ledger:
        assert ledger.last(0) == 5
        assert (ledger.next_run(), ledger.next_run()) == (0, 1)
        ledger.note("A", 1, 2)
    assert acknowledged(ledger.path) == {0: 5, 1: 2}


def test_the_plan_is_the_seeds() -> None:
    def planned(seed: int) -> list[str]:
        return [str(each) for each in faults.plan(seed, 600, ["a", "b"], 20, ["full"], ["reset"], 5)]

    assert planned(1) == planned(1) != planned(2)
    assert {line.split()[2] for line in planned(1)} >= {"kill", "stop", "full", "reset"}
    lasting = faults.plan(1, 600, ["a", "b"], 20, ["full"], ["reset"], 5, ["a"])
    assert {fault.target for fault in lasting if fault.kind == "kill"} == {"b"}
    assert {fault.kind for fault in lasting if fault.target == "a"} >= {"stop", "reset"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def log(folder: Path, *lines: dict[str, Any]) -> None:
    text = "".join(json.dumps({"actor": "reader-1", "t": 100.0, **line}) + "\n" for line in lines)
    (folder / "logs" / "reader-1.jsonl").write_text(text + '{"torn')


def killed(began: float, target: str = "reader-1", kind: str = "stop") -> Fault:
    return Fault(0, kind, target, 0, began=began, ended=began)


@pytest.mark.parametrize(
    ("fault", "found"),
    [(None, 1), (killed(90), 0), (killed(90, "another"), 1), (killed(90, kind="clock"), 1), (killed(0), 1)],
)
def test_an_error_needs_a_fault_that_explains_it(folder: Path, fault: Fault | None, found: int) -> None:
    log(folder, {"kind": "error", "call": "write", "error": ["OutcomeUnknown"], "reason": "no answer"})
    counts: Counter[str] = Counter()
    assert len(checks.check_logs(folder, [fault] if fault else [], counts)) == found
    assert counts == {"error reader-1 write OutcomeUnknown": 1}


def test_a_process_that_was_not_run_counts_as_paused(folder: Path) -> None:
    late = {"kind": "late", "seconds": 8.0}
    log(folder, late, {"kind": "error", "call": "write", "error": ["OutcomeUnknown"], "reason": "no answer"})
    assert not checks.check_logs(folder, [], Counter())


def test_what_an_actor_noted_is_a_failure(folder: Path) -> None:
    log(folder, {"kind": "problem", "reason": "an event is missing"})
    assert checks.check_logs(folder, [killed(100)], Counter()) == ["reader-1: an event is missing"]


def piece(first: int, end: int, t: float = 100.0) -> dict[str, Any]:
    return {"kind": "slice", "segment": 1, "first": first, "end": end, "t": t, "events": 1}


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ([piece(0, 10), piece(10, 30)], ""),
        ([piece(10, 30), piece(0, 10)], ""),
        ([piece(0, 10), piece(20, 30)], "were not delivered"),
        ([piece(0, 20)], "20 bytes were delivered"),
        ([piece(0, 20), piece(10, 30)], "no reader died"),
        ([piece(0, 20, 899.0), piece(10, 30, 901.0)], ""),
    ],
)
def test_a_group_gets_everything_and_twice_only_after_a_death(
    folder: Path, pieces: list[dict[str, Any]], problem: str
) -> None:
    log(folder, *pieces)
    problems = checks.check_group(folder, [killed(900.0)], Counter(), 30)
    assert (problem in problems[0]) if problem else not problems


@pytest.mark.parametrize(("mib_an_hour", "grows"), [(0, False), (5, False), (100, True)])
def test_memory_that_grows_is_found(folder: Path, mib_an_hour: int, grows: bool) -> None:
    process = Process("writers", {"name": "w", "folder": str(folder)}, {})
    process.samples = [(1, 30.0 * n, (100 << 20) + int(n * mib_an_hour * (1 << 20) / 120)) for n in range(120)]
    rows, problems = checks.check_memory([process], 600)
    assert rows[0]["mib_an_hour"] == mib_an_hour and bool(problems) == grows


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(1200)
def test_a_short_run_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1.5", "--seed", "1", "--every", "5", "--rest", "10"]
    done = subprocess.run(
        [*command, "--no-spark", "--folder", str(tmp_path / "soak")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "soak" / "report.json").read_text())
    assert report["streams"]["a"]["events"] and report["streams"]["t"]["events"] and report["faults"]["kill"]
