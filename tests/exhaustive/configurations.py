"""What is explored: which processes, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.exhaustive.actors import Script, committer, flusher, founder, grower, pipeliner, reader, truncator
from tests.exhaustive.explorer import Configuration, Left

FOUNDED: Mapping[str, Script] = {"founder": founder}


def _writers(count: int, script: Script = committer) -> dict[str, Script]:
    return {f"writer {number}": script for number in range(1, count + 1)}


def _combiners(count: int, script: Script) -> dict[str, Script]:
    return {f"combiner {number}": script for number in range(1, count + 1)}


def _configuration(name: str, about: str, processes: Mapping[str, Script], **bounds: Any) -> Configuration:
    before = bounds.pop("before", None) or list(processes)
    return Configuration(name, about, processes, before=before, **bounds)


QUEUE = partial(committer, company=True)
PIPELINES: Mapping[str, Script] = {f"pipeline {number}": pipeliner for number in (1, 2)}

GROWN: Mapping[str, Script] = {**FOUNDED, "zombie": committer, "grower": grower}
ASLEEP = ("founder", "zombie", "grower", 5)
"""A process has opened the log and was stopped. Behind it the log goes on. By now a checkpoint that covers what the
process would read next is older than the grace period."""

MAINTAINED: Mapping[str, Script] = {
    **FOUNDED,
    "grower": grower,
    "later": partial(grower, count=1),
    "truncator 1": truncator,
    "truncator 2": truncator,
    "reader": partial(reader, looks=1, late=True),
}
MAINTAINED_BEFORE = ("founder", "grower", 2, "later", 5, "truncator 1", "truncator 2", "reader")
"""There are two checkpoints, both of them older than the grace period."""

EVERYONE: Mapping[str, Script] = {
    **GROWN,
    **_writers(3),
    **_combiners(2, QUEUE),
    "truncator": truncator,
    "reader": partial(reader, looks=1),
}
EVERYONE_BEFORE = (*ASLEEP, *(name for name in EVERYONE if name not in ASLEEP))

LATE = "a request has no answer, and takes effect at any later moment or never"

CONFIGURATIONS = [
    _configuration(
        "races",
        f"3 writers, each of which appends a record; {LATE}; a process is killed",
        {**FOUNDED, **_writers(3)},
        left=Left(late=1, killed=1),
    ),
    _configuration(
        "settled",
        "2 writers that settle unknown outcomes by the same bytes; a request has no answer, another one arrives twice",
        {**FOUNDED, **_writers(2, partial(committer, timeout=1.0))},
        left=Left(late=1, lost=1, doubled=1),
    ),
    _configuration(
        "queue",
        "2 combiners: processes that know of each other, append 2 records each, and hand them to each other",
        {**FOUNDED, **_combiners(2, partial(QUEUE, appends=2))},
    ),
    _configuration(
        "queue-losses",
        f"a maker that appends 2 records, and an owner that appends 1; {LATE}",
        {**FOUNDED, "maker": partial(QUEUE, appends=2), "owner": partial(QUEUE, reads=True)},
        left=Left(late=1),
    ),
    _configuration(
        "queue-served",
        "a maker that appends 3 records and closes the log, and an owner that appends 1",
        {**FOUNDED, "maker": partial(QUEUE, appends=3, close=True), "owner": partial(QUEUE, reads=True)},
        quick=False,
    ),
    _configuration(
        "pipelines",
        "2 writers with 2 frames in flight each, whose requests take effect in any order, and a reader",
        {**FOUNDED, **PIPELINES, "reader": partial(reader, looks=1)},
    ),
    _configuration(
        "sleepers",
        f"a process that was stopped for long, a writer, a truncator, and a reader that opens the log; {LATE}",
        {**GROWN, "writer": committer, "truncator": truncator, "reader": partial(reader, looks=1, late=True)},
        before=[*ASLEEP, "writer", "truncator", "reader"],
        left=Left(late=1),
    ),
    _configuration(
        "stops",
        "a writer that may be stopped at any request, with its clocks or without, and a truncator behind its back",
        {**FOUNDED, "writer": committer, "grower": partial(grower, count=1), "truncator": truncator},
        before=["founder", "writer", "grower", "truncator"],
        left=Left(passing=1),
        spans=(2, 4),
        frozen=["writer"],
    ),
    _configuration(
        "fenced",
        f"a process that claimed the log and appends 2 records, and a writer that takes it from it; {LATE}",
        {**FOUNDED, "holder": partial(committer, exclusive=True, appends=2), "writer": committer},
        left=Left(late=1, killed=1),
    ),
    _configuration(
        "maintenance",
        "2 truncators that delete the same, and a reader that opens the log",
        MAINTAINED,
        before=list(MAINTAINED_BEFORE),
    ),
    _configuration(
        "maintenance-killed",
        "2 truncators, of which one makes a checkpoint first, and a reader that opens the log; one of them is killed",
        {**MAINTAINED, "truncator 2": partial(truncator, checkpoint=True)},
        before=list(MAINTAINED_BEFORE),
        left=Left(killed=1),
        quick=False,
    ),
    _configuration(
        "flushes",
        "2 processes that flush, and a writer; a process is interrupted once",
        {**FOUNDED, "writer": partial(committer, appends=2), "flusher 1": flusher, "flusher 2": flusher},
        left=Left(switches=1),
        quick=False,
    ),
    _configuration(
        "flushes-interrupted",
        "2 processes that flush, and a writer; processes are interrupted 3 times, and one is killed",
        {**FOUNDED, "writer": partial(committer, appends=2), "flusher 1": flusher, "flusher 2": flusher},
        left=Left(switches=3, killed=1),
        quick=False,
    ),
    _configuration(
        "clocks",
        "a writer and a truncator that makes a checkpoint first, each of which may be stopped at any request",
        {**FOUNDED, "writer": committer, "truncator": partial(truncator, checkpoint=True)},
        left=Left(passing=2),
        quick=False,
    ),
    _configuration(
        "turns",
        "3 writers, 2 combiners, a truncator, a reader and a zombie, each of which is interrupted by no other one",
        EVERYONE,
        before=list(EVERYONE_BEFORE),
        left=Left(switches=0),
        quick=False,
    ),
    _configuration(
        "everyone",
        "3 writers, 2 combiners, a truncator, a reader and a zombie; a process is interrupted once",
        EVERYONE,
        before=list(EVERYONE_BEFORE),
        left=Left(switches=1),
        quick=False,
    ),
]
