"""What a run measured: shown as it comes, kept in a JSON file with machine, versions and commit.

`python -m tests.bench.page FILE` makes the tables of docs/performance.md from such a file.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

VERSIONS = ("pyspark", "pyarrow", "numpy")


class Figures:
    """The figures of a run, in its order."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []

    def compare(self, part: str, what: str, times: Mapping[str, Sequence[float]], ceiling: str) -> None:
        """Keep and show seconds of the rounds of each competitor, beside the one that is the `ceiling`."""
        print(f"\n{part}, {what}")
        for name, found in times.items():
            best, median = min(found), statistics.median(found)
            shares = [min(times[ceiling]) / best, statistics.median(times[ceiling]) / median]
            self._found.append(
                {"part": part, "what": what, "of": name, "best": best, "median": median, "shares": shares}
            )
            print(
                f"  {name:26s} best {best * 1000:9.2f} ms  median {median * 1000:9.2f} ms   "
                f"{shares[0]:5.2f} and {shares[1]:5.2f} of the ceiling",
                flush=True,
            )

    def tell(self, part: str, what: str, **figures: object) -> None:
        """Keep and show some figures that go together."""
        found = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in figures.items()}
        self._found.append({"part": part, "what": what, **found})
        print(json.dumps({"what": f"{part}: {what}", **found}), flush=True)

    def save(self, file: str) -> None:
        """Write them with what they depend on."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "commit": commit.stdout.strip(),
            "machine": f"{os.cpu_count()} CPUs ({platform.machine()}), {memory >> 30} GiB, {platform.system()}",
            "python": platform.python_version(),
            "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
        }
        with open(file, "w", encoding="utf-8") as out:
            json.dump({**about, "figures": self._found}, out, indent=1)
            out.write("\n")
