"""What is demanded of each parser: quickly in the usual run, a million times in the long one."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.fuzz.harness import Parser, fuzz

USUAL = 600
LONG = 1_000_000
MOST_MEMORY = 300  # MiB


def understands_or_refuses(parser: Parser) -> None:
    """Some mutations, of which a fair share has to be refused."""
    count = USUAL // parser.cost
    refused = fuzz(parser, count)
    assert refused > count // 20 or not parser.declared, "the mutations hardly reach what the parser checks"


def holds_at_length(parser: Parser) -> None:
    """A million mutations, in a process of its own, so that its memory can be told."""
    count = LONG // parser.cost
    command = [sys.executable, "-m", "tests.fuzz", parser.name, str(count), "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-4000:]
    told = re.fullmatch(rf"{parser.name}: {count} executions, \d+ refused, (\d+) MiB\n", done.stdout)
    assert told is not None, done.stdout
    assert int(told[1]) < MOST_MEMORY
