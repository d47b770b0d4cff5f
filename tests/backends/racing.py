"""Writers in several processes, or threads, race for the same objects while readers look on."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
import zlib
from collections.abc import Mapping
from typing import Any

from chunkstore import ObjectNotFound, Outcome, open_store
from chunkstore.port import TOKEN

Report = tuple[str, list[Any]]


def complete_body() -> bytes:
    """A token, and random bytes of a random length that say how many they are and how they sum up."""
    content = os.urandom(2_000 + int.from_bytes(os.urandom(2), "big"))
    return os.urandom(TOKEN) + len(content).to_bytes(4, "big") + zlib.crc32(content).to_bytes(4, "big") + content


def is_complete(seen: bytes) -> bool:
    length, checksum, content = seen[TOKEN : TOKEN + 4], seen[TOKEN + 4 : TOKEN + 8], seen[TOKEN + 8 :]
    return len(content) == int.from_bytes(length, "big") and zlib.crc32(content) == int.from_bytes(checksum, "big")


def write(url: str, options: Mapping[str, Any], names: list[str], together: Any) -> list[tuple[bool, bytes]]:
    """For each name whether this writer was told that it won, and the token of its object."""
    store = open_store(url, options)
    told = []
    for name in names:
        mine = complete_body()
        together.wait()
        told.append((store.put_if_absent(name, mine) is Outcome.MINE, mine[:TOKEN]))
    store.close()
    return told


def look_on(url: str, options: Mapping[str, Any], names: list[str]) -> list[int]:
    """How many objects were complete, and how many partial, when they were first seen."""
    store = open_store(url, options)
    seen = [0, 0]
    for name in names:
        body = None
        while body is None:
            try:
                body = store.read(name)
            except ObjectNotFound:
                time.sleep(0.0002)  # leave the writers some time
        seen[not is_complete(body)] += 1
    store.close()
    return seen


def report(reports: Any, role: str, function: Any, *arguments: Any) -> None:
    reports.put((role, function(*arguments)))


def race_processes(
    url: str, options: Mapping[str, Any], names: list[str], writers: int, readers: int
) -> tuple[list[Any], list[Any]]:
    """What the writers and the readers report."""
    context = multiprocessing.get_context("spawn")
    reports, together = context.Queue(), context.Barrier(writers)
    processes = [
        context.Process(target=report, args=(reports, "writer", write, url, options, names, together), daemon=True)
        for _ in range(writers)
    ]
    processes += [
        context.Process(target=report, args=(reports, "reader", look_on, url, options, names), daemon=True)
        for _ in range(readers)
    ]
    for process in processes:
        process.start()
    collected: list[Report] = []
    while len(collected) < len(processes):
        try:
            collected.append(reports.get(timeout=1))
        except queue.Empty:
            assert not any(process.exitcode for process in processes), "a racer died"
    for process in processes:
        process.join()
    return [told for role, told in collected if role == "writer"], [
        told for role, told in collected if role == "reader"
    ]


def check(url: str, options: Mapping[str, Any], names: list[str], writers: list[Any], readers: list[Any]) -> None:
    store = open_store(url, options)
    for at, name in enumerate(names):
        winners = [token for won, token in (told[at] for told in writers) if won]
        assert len(winners) == 1, f"{name} has {len(winners)} winners"
        stored = store.read(name)
        assert stored[:TOKEN] == winners[0]
        assert is_complete(stored)
    assert [info.path for info in store.list("race/")] == names
    store.delete(names)
    store.close()
    assert readers == [[len(names), 0]] * len(readers)
    winners_of_some = [any(won for won, _ in told) for told in writers]
    assert sum(winners_of_some) > 1, "one writer was first everywhere: that was no race"


def names_of(number: int) -> list[str]:
    """Objects to race for."""
    return [f"race/{name:03d}" for name in range(number)]
