"""Actors that write events: with a producer id, plain, and large ones.

A producer goes on where its last durable number says; what its ledger has must be no more than that. A plain writer
begins a new run with each writer object, as it cannot know what became of the rest of the last one.
"""

from __future__ import annotations

import random
import zlib

from pravega_spark import EventExists, StreamManager
from tests.soak import SCOPE
from tests.soak.actor import Actor
from tests.soak.events import Written
from tests.soak.ledger import Ledger

LARGE = (9 << 20, 12 << 20)
"""Bytes of a large event."""


def run(actor: Actor) -> None:
    """Write until the end."""
    ledger, manager = Ledger(actor.folder, actor.name), actor.manager()
    write = {"producer": produce, "plain": write_plain, "large": write_large}[actor.role]
    while not actor.ended.is_set():
        with actor.surviving("write"):
            write(actor, manager, ledger)
    with actor.surviving("close"):
        manager.close()


def produce(actor: Actor, manager: StreamManager, ledger: Ledger) -> None:
    """Write with a producer id, from the number on that the stream does not have."""
    with manager.create_writer(SCOPE, actor.more["stream"], producer=actor.name) as writer:
        last = -1 if writer.last_number is None else writer.last_number
        if last < ledger.last(0):
            actor.problem(f"number {ledger.last(0)} was acknowledged, but the stream has {last} as the last one")
        _write(actor, writer, ledger, 0, last + 1)


def write_plain(actor: Actor, manager: StreamManager, ledger: Ledger) -> None:
    """Write without an id, in a run of its own."""
    with manager.create_writer(SCOPE, actor.more["stream"]) as writer:
        run = ledger.next_run()
        try:
            _write(actor, writer, ledger, run, 0)
        except Exception:
            ledger.note("U", run, writer.unconfirmed)
            raise


def _write(actor: Actor, writer: object, ledger: Ledger, run: int, number: int) -> None:
    from pravega_spark import EventWriter

    assert isinstance(writer, EventWriter)
    chance, padding, batch = actor.chance, actor.more.get("padding", 100), actor.more.get("batch", 20)
    while not actor.ended.is_set():
        for _ in range(chance.randrange(1, batch)):
            written = Written(actor.name, run, number)
            writer.write_event_bytes(written.encoded(chance.randrange(padding)), written.key)
            number += 1
        writer.flush()
        ledger.note("A", run, number - 1)
        actor.ended.wait(chance.expovariate(1 / actor.more.get("pause", 0.1)))


def write_large(actor: Actor, manager: StreamManager, ledger: Ledger) -> None:
    """Write large events with names, each from where its upload was interrupted."""
    number = ledger.last(0) + 1
    while not actor.ended.is_set():
        content = large_content(actor.name, number)
        try:
            event = manager.begin_event(SCOPE, actor.more["stream"], actor.name, name=f"{actor.name}/{number}")
        except EventExists:  # committed by a process that did not learn of it
            ledger.note("A", 0, number)
            number += 1
            continue
        with event:
            event.write(content[event.tell() :])
            event.commit(move=True)
        ledger.note("A", 0, number)
        number += 1
        actor.ended.wait(actor.chance.expovariate(1 / actor.more.get("pause", 20.0)))


def large_content(name: str, number: int) -> bytes:
    """A large event: its name and number, its checksum, and bytes that follow from these."""
    chance = random.Random(f"{name} {number}")
    body = chance.randbytes(chance.randrange(*LARGE))
    return f"{name} {number} {zlib.crc32(body)} ".encode() + body


def check_large(content: bytes) -> tuple[str, int]:
    """The name and number of a large event. Raises ValueError if it is not as it was written."""
    name, number, checksum, body = content.split(b" ", 3)
    if zlib.crc32(body) != int(checksum):
        raise ValueError(f"large event {name!r} {number!r} has other bytes than were written")
    return name.decode(), int(number)
