"""Actors that read: a follower, the readers of a group, and a reader of ranges of time.

All check the order of each key on the way. A group's reader also notes in its ledger which bytes of which segments it
was given and when, for the check at the end that everything was delivered, and what only deaths may deliver twice.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

from pravega_spark import (
    StreamManager,
    StreamReader,
    StreamReaderGroup,
    TooManyCheckpoints,
    TruncatedData,
)
from tests.soak import SCOPE
from tests.soak.actor import Actor
from tests.soak.events import Sequences, decoded

GROUP = "group"
HEADER = 8
"""Bytes of an event before its payload."""

EMPTY = 8
"""After so many empty slices, and nothing unread, a group is at the end."""


def run(actor: Actor) -> None:
    """Read until the end."""
    manager = actor.manager()
    work = {"follower": follow, "group": read_in_group, "range": read_ranges}[actor.role]
    while not actor.ended.is_set():
        with actor.surviving("read"):
            work(actor, manager)
    if actor.role == "group":
        with actor.surviving("drain"):
            _drain(actor, manager)
    with actor.surviving("close"):
        manager.close()


def follow(actor: Actor, manager: StreamManager) -> None:
    """Follow a stream from its tail on."""
    sequences = Sequences(suffix=True)
    reported = time.monotonic()
    try:
        for event in manager.tail(SCOPE, actor.more["stream"], stop=actor.ended):
            sequences.add(decoded(event.data))
            _report(actor, sequences)
            if time.monotonic() - reported > 30:
                reported = time.monotonic()
                actor.log("progress", events=sequences.events)
    except TruncatedData as error:  # it was stopped for longer than retention waits
        actor.log_error("follow", error)
    finally:
        actor.log("followed", events=sequences.events)


def read_ranges(actor: Actor, manager: StreamManager) -> None:
    """Read the last seconds of a stream."""
    sequences = Sequences(suffix=True)
    stream, seconds = actor.more["stream"], actor.chance.randrange(5, 60)
    for event in manager.read_events(SCOPE, stream, f"{seconds} seconds ago"):
        sequences.add(decoded(event.data))
    _report(actor, sequences)
    actor.log("range", events=sequences.events, seconds=seconds)
    actor.ended.wait(actor.chance.uniform(2, 8))


def _report(actor: Actor, sequences: Sequences) -> None:
    for problem in sequences.problems:
        actor.problem(problem)
    sequences.problems.clear()


def read_in_group(actor: Actor, manager: StreamManager) -> None:
    """Be a reader of the group, under the actor's own name, which a dead process of it may still have."""
    with closing(manager.get_reader_group(GROUP, SCOPE)) as group:
        group.reader_offline(actor.name)
        actor.log("joined")
        reader = group.create_reader(actor.name, slice_events=2000, slice_time="5s")
        while not actor.ended.is_set():
            _take(actor, group, reader)


def _drain(actor: Actor, manager: StreamManager) -> None:
    with closing(manager.get_reader_group(GROUP, SCOPE)) as group:
        group.reader_offline(actor.name)
        reader, empty = group.create_reader(actor.name), 0
        while empty < EMPTY or group.unread_bytes():
            empty = 0 if _take(actor, group, reader) else empty + 1


def _take(actor: Actor, group: StreamReaderGroup, reader: StreamReader) -> int:
    """Take a slice, note its bytes and release it; how many events it had."""
    if actor.chance.random() < 0.01:
        with suppress(TooManyCheckpoints):  # a reader that was stopped holds them back
            group.initiate_checkpoint(f"{actor.name}-{time.time_ns()}")
    piece = reader.get_segment_slice()
    if piece.is_checkpoint:
        actor.log("checkpoint", name=piece.checkpoint_name)
        return 1
    sequences, first, end, events = Sequences(suffix=True), -1, -1, 0
    try:
        for event in piece:
            sequences.add(decoded(event.data))
            events += 1
            first = int(event.offset) if first < 0 else first
            end = int(event.offset) + HEADER + event.size
    finally:
        if events and piece.segment is not None:
            actor.log("slice", segment=event.segment_id, first=first, end=end, events=events)
    _report(actor, sequences)
    reader.release_segment(piece)
    return events
