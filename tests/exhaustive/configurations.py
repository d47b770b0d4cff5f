"""What is explored: which processes, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tests.exhaustive.actors import Script, committer, founder, pipeliner, reader, truncator
from tests.exhaustive.explorer import Configuration, Left

FOUNDED: Mapping[str, Script] = {"founder": founder}
CHECKPOINTED: Mapping[str, Script] = {"founder": partial(founder, checkpoint=True)}


def _writers(count: int, script: Script = committer) -> dict[str, Script]:
    return {f"writer {number}": script for number in range(1, count + 1)}


def _combiners(count: int, script: Script) -> dict[str, Script]:
    return {f"combiner {number}": script for number in range(1, count + 1)}


def _configuration(name: str, about: str, processes: Mapping[str, Script], **bounds: object) -> Configuration:
    before = bounds.pop("before", None) or list(processes)
    return Configuration(name, about, processes, before=before, **bounds)  # type: ignore[arg-type]


QUEUE = partial(committer, company=True, reads=True)
PIPELINES = {f"pipeline {number}": pipeliner for number in (1, 2)}
ASLEEP = ["founder", "zombie", 5]
"""A process opened the log, and has been stopped since; the checkpoint is older than the grace period."""

CONFIGURATIONS = [
    _configuration(
        "races",
        "3 writers, each of which appends a record; a request has no answer, and takes effect at any later moment or never",
        {**FOUNDED, **_writers(3)},
        left=Left(late=1),
    ),
    _configuration(
        "settled",
        "2 writers that settle unknown outcomes by the same bytes; a request has no answer, another one arrives twice",
        {**FOUNDED, **_writers(2, partial(committer, timeout=1.0))},
        left=Left(late=1, doubled=1),
    ),
    _configuration(
        "queue",
        "2 combiners: processes that know of each other, append 2 records each, and hand them to each other",
        {**FOUNDED, **_combiners(2, partial(committer, company=True, appends=2))},
    ),
    _configuration(
        "queue-losses",
        "a maker and an owner; a request has no answer, and takes effect at any later moment or never",
        {
            **FOUNDED,
            "maker": partial(committer, company=True, appends=2),
            "owner": partial(committer, company=True, reads=True),
        },
        left=Left(late=1),
    ),
    _configuration(
        "pipelines",
        "2 writers with 2 frames in flight each, whose requests take effect in any order, and a reader",
        {**FOUNDED, **PIPELINES, "reader": partial(reader, looks=1)},
    ),
    _configuration(
        "sleepers",
        "a process that was stopped for longer than the grace period, a writer, a truncator, and a reader that opens the log",
        {
            **CHECKPOINTED,
            "zombie": committer,
            "writer": committer,
            "truncator": truncator,
            "reader": partial(reader, looks=1, late=True),
        },
        before=[*ASLEEP, "writer", "truncator", "reader"],
    ),
    _configuration(
        "clocks",
        "a writer that may be stopped at any request, and a truncator that makes a checkpoint and deletes what it covers",
        {**FOUNDED, "writer": committer, "truncator": partial(truncator, checkpoint=True)},
        left=Left(passing=2),
    ),
    _configuration(
        "everyone",
        "3 writers, 2 combiners, a truncator, a reader and a zombie",
        {
            **CHECKPOINTED,
            "zombie": committer,
            **_writers(3),
            **_combiners(2, partial(committer, company=True)),
            "truncator": truncator,
            "reader": partial(reader, looks=1),
        },
        before=[*ASLEEP, *_writers(3), *_combiners(2, QUEUE), "truncator", "reader"],
        quick=False,
    ),
]
