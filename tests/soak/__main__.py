"""Runs the soak: `python -m tests.soak` (`make soak`). Exit code 1 if a check failed."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.soak import SCOPE, checks, faults, ledger, report
from tests.soak.faults import Fault
from tests.soak.place import FolderPlace, Place, S3Place
from tests.soak.supervisor import Process

GRACE = 20
LEASE = 20
SETTINGS = "timeout=20s, flush_seconds=30s, flush_bytes=8MiB, cache_bytes=16MiB"
SPARED = ("checker", "operators")
"""Actors to which nothing happens: they watch, and kill commands themselves."""

LASTING = ("plain-2", "follower", "reader-3")
"""Actors that are not killed before the end, so that their memory is seen for the whole run."""

Actors = dict[str, tuple[str, str, dict[str, Any]]]


def actors_of(spark: bool) -> Actors:
    """The family, the role and more of each actor."""
    found: Actors = {
        "producer-1": ("writers", "producer", {"stream": "a"}),
        "producer-2": ("writers", "producer", {"stream": "a", "batch": 200, "pause": 1.0}),
        "plain-1": ("writers", "plain", {"stream": "a"}),
        "plain-2": ("writers", "plain", {"stream": "a", "batch": 5, "pause": 0.05}),
        "noise": ("writers", "plain", {"stream": "n", "batch": 100, "padding": 2000, "pause": 0.3}),
        "large": ("writers", "large", {"stream": "l"}),
        "transact-1": ("transactions", "", {"stream": "t"}),
        "transact-2": ("transactions", "", {"stream": "t"}),
        "updater": ("tables", "updater", {}),
        "table-reader": ("tables", "reader", {}),
        "follower": ("readers", "follower", {"stream": "n"}),
        "range": ("readers", "range", {"stream": "n"}),
        "reader-1": ("readers", "group", {}),
        "reader-2": ("readers", "group", {}),
        "reader-3": ("readers", "group", {}),
    }
    if spark:
        found["query"] = ("query", "", {"source": "a", "target": "b"})
    writers = {
        name: more["stream"]
        for name, (_, _, more) in found.items()
        if name not in ("follower", "range", "query") and "stream" in more
    }
    streams = [("a", "sequences", False), ("t", "transactions", False), ("n", "sequences", True), ("l", "large", True)]
    streams += [("b", "sequences", False)] * spark
    producers = {name: more["stream"] for name, (_, role, more) in found.items() if role == "producer"}
    found["checker"] = ("checker", "", {"streams": streams, "writers": writers})
    more = {"streams": [name for name, _, _ in streams], "producers": producers, "delay": GRACE}
    found["operators"] = ("operators", "", more)
    return found


class Run:
    """A run: the root, its processes, and what happens to them."""

    def __init__(self, chosen: argparse.Namespace, folder: Path, place: Place, actors: Actors) -> None:
        self.chosen, self.folder, self.place = chosen, folder, place
        self.began = time.time()
        self.problems: list[str] = []
        environment = {"MALLOC_ARENA_MAX": "2", "PRAVEGA_SETTINGS": SETTINGS, "PRAVEGA_INDEX_CACHE": ""}
        environment |= {"PYSPARK_PYTHON": sys.executable}
        self.processes = {
            name: Process(family, self._specification(name, role, more), environment)
            for name, (family, role, more) in actors.items()
        }
        seconds = chosen.minutes * 60
        targets = [name for name in actors if name not in SPARED]
        every = chosen.every or max(4.0, min(15.0, seconds / 12))
        self.faults = faults.plan(chosen.seed, seconds, targets, GRACE, place.kinds, place.line_kinds, every, LASTING)

    def _specification(self, name: str, role: str, more: dict[str, Any]) -> dict[str, Any]:
        common = {"root": self.place.root, "storage": self.place.options(name), "folder": str(self.folder)}
        return {"name": name, "role": role, "more": more, "seed": self.chosen.seed, **common}

    def create(self, spark: bool) -> None:
        """Make the root and what is in it."""
        from pravega_spark import (
            KeyValueTableConfiguration,
            StreamManager,
            StreamReaderGroupConfig,
            StreamRetentionPolicy,
            StreamScalingPolicy,
        )

        settings = {"containers": 3, "grace_seconds": GRACE, "garbage_delay_seconds": GRACE}
        options = self.place.options("operators")
        with StreamManager(self.place.root, create=True, settings=settings, **options) as manager:
            manager.create_scope(SCOPE)
            keep = {"n": 8 << 20, "l": 40 << 20}
            for name in ["a", "n", "t", "l"] + ["b"] * spark:
                retention = StreamRetentionPolicy.by_size(keep.get(name, 0))
                scaling = StreamScalingPolicy.fixed_scaling_policy(1 if name == "l" else 2)
                manager.create_stream_with_policy(SCOPE, name, scaling, retention)
            manager.create_key_value_table(SCOPE, "table", KeyValueTableConfiguration(1, 8, 0))
            config = StreamReaderGroupConfig(
                False, SCOPE, "a", retention="automatic", lease=LEASE, checkpoint_interval="30s"
            )
            manager.create_reader_group_with_config("group", SCOPE, config)
            for name in ["a", "t"] + ["b"] * spark:
                config = StreamReaderGroupConfig(False, SCOPE, name, retention="manual")
                manager.create_reader_group_with_config(f"checked-{name}", SCOPE, config)

    def disturb(self) -> None:
        """Let the plan happen."""
        for process in self.processes.values():
            process.start()
        self.began = time.time()
        seconds = self.chosen.minutes * 60
        begins = sorted(self.faults, key=lambda fault: fault.at)
        active: list[Fault] = []
        sampled, every = 0.0, min(30.0, seconds / 20)
        while (now := time.time() - self.began) < seconds:
            while begins and begins[0].at <= now:
                active.append(fault := begins.pop(0))
                fault.began = time.time()
                print(f"{now:7.1f} s: {fault}", flush=True)
                faults.begin(fault, self.processes, self.place)
            for fault in [each for each in active if each.at + each.seconds <= now]:
                self._end(fault)
                active.remove(fault)
            if now - sampled >= every:
                sampled = now
                for process in self.processes.values():
                    process.sample()
            for name, process in self.processes.items():
                if not any(fault.target == name for fault in active):
                    process.watch()
            time.sleep(0.1)
        for fault in active:
            self._end(fault)

    def _end(self, fault: Fault) -> None:
        faults.end(fault, self.processes, self.place)
        fault.ended = time.time()

    def settle(self) -> None:
        """Start all processes again once, leave them in peace, then let them end: first those that write, then those
        that read what is left."""
        print("all processes are restarted once, and left in peace", flush=True)
        for name, process in self.processes.items():
            if name not in SPARED:
                last = Fault(0, "kill", name, 0, began=time.time())
                process.kill()
                process.start()
                last.ended = time.time()
                self.faults.append(last)
        time.sleep(self.chosen.rest)
        for process in self.processes.values():
            process.watch()
            process.sample()
        readers = [name for name in self.processes if name.startswith(("reader-", "query"))]
        writers = [name for name in self.processes if name not in (*readers, *SPARED)]
        for names, seconds in ((writers, 180), (readers, 600), (["checker"], 600), (["operators"], 1800)):
            for name in names:
                self.processes[name].end()
            self.problems += filter(None, [self.processes[name].wait(seconds) for name in names])

    def kill(self) -> None:
        """Leave no process."""
        for process in self.processes.values():
            process.kill()

    def result(self) -> dict[str, Any]:
        """All checks at the end."""
        counts: Counter[str] = Counter()
        result = _document(self.folder / "result.json")
        left = _document(self.folder / "space.json")
        problems = self.problems + [each for process in self.processes.values() for each in process.unexpected]
        problems += result.get("problems", ["the checker left no result"])
        problems += checks.check_logs(self.folder, self.faults, counts)
        problems += checks.check_group(
            self.folder, self.faults, counts, result.get("streams", {}).get("a", {}).get("bytes", 0)
        )
        memory, grown = checks.check_memory(self.processes.values(), max(600.0, self.chosen.minutes * 15))
        problems += grown
        problems += checks.check_space(left) if left else ["the operators left no result"]
        for name, path in ledger.ledgers(self.folder).items():
            for kind, numbers in ledger.entries(path):
                counts["writes of unknown outcome (events)"] += numbers[1] if kind == "U" else 0
                counts["acknowledged appends, transactions and updates"] += kind in "AK"
                counts[f"lives of the writer objects of {name}"] += kind == "B" and name.startswith(("plain", "noise"))
        space = [
            (line["t"] - self.began, line["objects"], line["bytes"], line["kept"])
            for line in checks.read_logs(self.folder)
            if line["kind"] == "space"
        ]
        return {
            "seed": self.chosen.seed,
            "minutes": self.chosen.minutes,
            "seconds": round(time.time() - self.began),
            "place": self.place.notes,
            "faults": dict(Counter(fault.kind for fault in self.faults if fault.began)),
            "plan": [fault.to_json() for fault in self.faults],
            "starts": {name: process.starts for name, process in self.processes.items()},
            "streams": result.get("streams", {}),
            "counts": dict(+counts),
            "space": space,
            "memory": memory,
            "problems": list(dict.fromkeys(problems)),
        }


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120, help="how long processes and storage are disturbed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="of the faults and of the actors")
    parser.add_argument("--place", choices=["folder", "s3"], default="folder", help="where the root is")
    parser.add_argument("--no-spark", action="store_true", help="without the streaming query")
    parser.add_argument("--folder", type=Path, help="for ledgers, logs and the report; by default a new one")
    parser.add_argument("--every", type=float, help="mean seconds between two faults")
    parser.add_argument("--rest", type=float, default=60, help="seconds of peace at the end")
    parser.add_argument("--plan", action="store_true", help="print the plan, and do nothing")
    chosen = parser.parse_args(arguments)
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    for name in ("logs", "ledgers"):
        (folder / name).mkdir(parents=True, exist_ok=False)
    actors = actors_of(not chosen.no_spark)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave no process and no disk
    with ExitStack() as stack:
        place: Place = FolderPlace(folder.absolute()) if chosen.place == "folder" else S3Place(list(actors))
        stack.enter_context(place)
        run = Run(chosen, folder.absolute(), place, actors)
        print(f"seed {chosen.seed}, {folder}, {place.notes}")
        print("\n".join(map(str, run.faults)), flush=True)
        if chosen.plan:
            return 0
        run.create(not chosen.no_spark)
        stack.callback(run.kill)
        run.disturb()
        run.settle()
        document = run.result()
    print(report.write(folder, document))
    return 1 if document["problems"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
