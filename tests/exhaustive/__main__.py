"""Explores configurations: `python -m tests.exhaustive` (`make exhaustive`). Exit code 1 if a violation is found.

What is printed of each: how many states and transitions there are, how many different schedules, in how many states all
processes have ended, and whether that is all within its bounds. A violation is printed with a shortest schedule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.exhaustive.configurations import CONFIGURATIONS
from tests.exhaustive.explorer import Explorer


def main(arguments: Sequence[str]) -> int:
    """Explore what the arguments say. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m tests.exhaustive", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="configurations; by default all")
    parser.add_argument("--list", action="store_true", help="list the configurations")
    parser.add_argument("--quick", action="store_true", help="those that the tests explore")
    parser.add_argument("--most", type=int, default=1 << 62, help="states of each at most")
    parser.add_argument("--progress", action="store_true", help="print how far it is")
    chosen = parser.parse_args(arguments)
    known = {each.name: each for each in CONFIGURATIONS}
    for name in chosen.names:
        if name not in known:
            parser.error(f"there is no configuration {name!r}: choose of {', '.join(known)}")
    wanted = [known[name] for name in chosen.names] or [each for each in CONFIGURATIONS if each.quick >= chosen.quick]
    failed = False
    for each in wanted:
        if chosen.list:
            print(f"{each.name}: {each.about}{'' if each.quick else ' (not in the tests)'}")
            continue
        note = (lambda line: print(f"  {line}", file=sys.stderr)) if chosen.progress else (lambda line: None)
        found = Explorer(each).explore(chosen.most, note)
        print(found, flush=True)
        if found.problem:
            failed = True
            print(f"  {found.problem}; the shortest schedule:")
            for step in found.trace:
                print(f"    {step}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
