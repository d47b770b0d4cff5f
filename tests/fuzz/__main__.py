"""One parser in a process of its own: what it refused, and the most memory that the process had, in MiB."""

from __future__ import annotations

import resource
import sys

from tests.fuzz.harness import fuzz
from tests.fuzz.parsers import PARSERS


def main() -> None:
    name, *numbers = sys.argv[1:]
    count, seed = [*map(int, numbers), *(1_000_000, 0)[len(numbers) :]]
    refused = fuzz(PARSERS[name], count, seed)
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20
    print(f"{name}: {count} executions, {refused} refused, {memory} MiB")


if __name__ == "__main__":
    main()
