"""Runs the histories of many seeds: `python -m tests.simulation` (`make sim`). Exit code 1 if one fails.

A failing seed is repeated with ever less in it. What is printed is its error, the trace of the smallest history that
still fails, and the command that repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

LONGEST = 1800
"""Seconds after which a history hangs, on a machine with other work too."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--scenario", help="containers, streams, tables, groups or jobs; by default the seed's")
    parser.add_argument("--requests", action="store_true", help="print requests to the storage too")
    parser.add_argument("--whole", action="store_true", help="do not look for a smaller history that fails")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of strings is the seed's matter too
        command = [sys.executable, "-m", "tests.simulation", *arguments]
        return subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, check=False).returncode
    if chosen.worker is not None:
        _work(chosen)
        return 0
    failed, done, operations, begun = _run_all(chosen, arguments)
    seconds = time.monotonic() - begun
    print(f"{done} seeds, {operations} operations in {seconds:.0f} s: {done / max(seconds, 1e-9):.1f} seeds/s")
    for seed, problem in failed[1:]:
        print(f"seed {seed} failed too: {problem}")
    if failed:
        _explain(failed[0][0], failed[0][1], chosen)
    return 1 if failed else 0


def _run_all(chosen: argparse.Namespace, arguments: Sequence[str]) -> tuple[list[tuple[int, str]], int, int, float]:
    """Run all seeds in processes of their own. Returns the failures, how many seeds, how many operations, and when it
    began."""
    failed: list[tuple[int, str]] = []
    counts = {"seeds": 0, "operations": 0}
    begun, jobs = time.monotonic(), max(1, min(chosen.jobs, chosen.seeds))

    def watch(job: int) -> None:
        command = [sys.executable, "-m", "tests.simulation", *arguments, "--jobs", str(jobs), "--worker", str(job)]
        following = chosen.first + job
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                heard: dict[str, Any] = json.loads(line)
                following = heard["seed"] + jobs
                counts["seeds"] += 1
                counts["operations"] += heard["operations"]
                if heard["problem"]:
                    failed.append((heard["seed"], heard["problem"]))
                    print(f"seed {heard['seed']} failed: {heard['problem']}", flush=True)
        if worker.returncode:
            failed.append((following, f"its process ended with {worker.returncode}: it hangs, or it crashed"))

    watching = [threading.Thread(target=watch, args=(job,)) for job in range(jobs)]
    for thread in watching:
        thread.start()
    for thread in watching:
        thread.join()
    return sorted(failed), counts["seeds"], counts["operations"], begun


def _work(chosen: argparse.Namespace) -> None:
    """Run this worker's seeds, and print what became of each."""
    from tests.simulation import runs

    for seed in range(chosen.first + chosen.worker, chosen.first + chosen.seeds, chosen.jobs):
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        found = runs.run(runs.plan_of(seed, chosen.scenario))
        problem = found.problem if found.error is not None else ""
        print(json.dumps({"seed": seed, "operations": found.operations, "problem": problem[:2000]}), flush=True)
    faulthandler.cancel_dump_traceback_later()
    logging.disable()  # of writers that were never closed, as their processes were killed


def _explain(seed: int, problem: str, chosen: argparse.Namespace) -> None:
    """Print the smallest history that fails as that of a seed does."""
    from tests.simulation import runs

    found = runs.run(runs.plan_of(seed, chosen.scenario))
    steps: list[str] = []
    if found.error is None:
        print(f"seed {seed} does not fail again: {problem}")
        return
    if not chosen.whole:
        found, steps = runs.shrink(found)
    print(f"\nseed {seed}, {', '.join(steps) or 'whole'}:\n{found.plan}")
    for now, who, what in found.trace:
        if chosen.requests or "_system/" not in what:
            print(f"{now:12.6f}  {who}: {what}")
    print(found.problem)
    scenario = f" SCENARIO={chosen.scenario}" if chosen.scenario else ""
    print(f"\nTo repeat it: make sim FIRST={seed} SEEDS=1{scenario}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
