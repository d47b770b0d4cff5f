"""An archive with a damaged object gives an error that says so, or the right events: never others.

What the original has no checksum for cannot be told: bytes that change within an event, so contents of chunks are cut,
lost and exchanged here, and not changed. And in the rolling layout nothing says how long the last chunk of a segment
is, so there chunks are lost only. The trimmed archives have zeros where a head was truncated, which read as empty
events: such a chunk is not put in the place of another.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from chunkstore.errors import DeclaredError
from chunkstore.pravega.archive import open_archive
from chunkstore.pravega.source import ArchiveDamaged
from pravega_spark import StreamManager
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from pravega_spark.streams.pravega_lts.streams import PravegaStreams
from tests.archives import ARCHIVES, CHUNKED, ROLLING, case, live_events, stored

Found = dict[int, list[tuple[int, bytes]]]
"""Events by their segments: offset and data."""

STREAMS = ("empty", "rides", "scaled", "sealed", "truncated", "txns")
_ROLLING = "$offset."
KINDS = {
    "journals": "_system/containers/_sysjournal",
    "storage metadata": "_system/containers/storage_metadata",
    "containers' metadata": "_system/containers/metadata",
    "tables": "_system/_tables/demo/",
    "scopes": "_system/_tables/scopes",
    "streams": "demo/",
}


def events(objects: dict[str, bytes]) -> dict[str, str | None]:
    """A hash of each stream's events, with their places; None where it is damaged."""
    found: dict[str, str | None] = dict.fromkeys(STREAMS)
    try:
        streams = PravegaStreams(open_archive(stored(objects)))
        names = streams.streams("demo")
    except ArchiveDamaged:
        return found
    for name in STREAMS:
        if name not in names:
            found[name] = "is not there"
            continue
        digest = hashlib.sha256()
        try:
            for event in live_events(streams, streams.stream("demo", name)):
                digest.update(f"{event.segment} {event.offset} {len(event.data)} ".encode() + event.data)
        except ArchiveDamaged:
            continue
        found[name] = digest.hexdigest()
    return found


def is_blank(objects: dict[str, bytes], name: str) -> bool:
    """Whether a chunk begins with what trimming has left of a truncated head."""
    return name.startswith("demo/") and len(objects[name]) > 8 and not any(objects[name][:8])


def damaged(dice: random.Random, objects: dict[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """The objects, one of which (two, if they are exchanged) is damaged, and what was done."""
    kinds = {kind: [name for name in sorted(objects) if name.startswith(start)] for kind, start in KINDS.items()}
    names = dice.choice([names for names in kinds.values() if names])
    name, other = dice.choice(names), dice.choice(names)
    data = objects[name]
    ways = ["lost"]
    if not any(each.startswith("demo/") and _ROLLING in each for each in (name, other)):
        ways += ["cut"] if any(is_blank(objects, each) for each in (name, other)) else ["cut", "exchanged"]
    if data and (name.endswith("$header") or not name.startswith("demo/")):
        ways += ["flipped", "zeroed"]
    way = dice.choice(ways)
    changed = dict(objects)
    match way:
        case "lost":
            del changed[name]
        case "cut":
            changed[name] = data[: dice.randrange(len(data) + 1)]
        case "exchanged":
            changed[name], changed[other] = objects[other], data
        case "flipped":
            place = dice.randrange(len(data))
            changed[name] = data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
        case "zeroed":
            place = dice.randrange(len(data))
            count = min(dice.randrange(1, 64), len(data) - place)
            changed[name] = data[:place] + bytes(count) + data[place + count :]
    return f"{way}: {name} ({other})", changed


def read_as_root(objects: dict[str, bytes], salvage: bool) -> dict[str, Found | None]:
    """Each stream's events as our readers find them; None where it is damaged. Raises what is no declared error."""
    found: dict[str, Found | None] = dict.fromkeys(STREAMS)
    with StreamManager.over(PravegaRoot(stored(objects), salvage=salvage)) as manager:
        try:
            names = manager.list_stream("demo")
        except DeclaredError:
            return found
        for name in STREAMS:
            if name not in names:
                found[name] = {-1: []}
                continue
            events: Found = {}
            try:
                for event in manager.read_events("demo", name):
                    events.setdefault(event.segment_id, []).append((event.offset, event.data))
            except DeclaredError:
                continue
            found[name] = events
    return found


def check_root(path: Path, seed: int, count: int) -> None:
    """As a root: the right events or a declared error; salvaged, a part of them, in each segment from its head on."""
    one = case(path)
    right = {name: events or {} for name, events in read_as_root(one.objects, False).items()}
    assert sum(len(events) for events in right["rides"].values()) > 0
    dice = random.Random(seed)
    for _ in range(count):
        what, objects = damaged(dice, one.objects)
        there = read_as_root(objects, False)
        wrong = [name for name in STREAMS if there[name] not in (None, right[name])]
        assert not wrong, what
        for name, events in read_as_root(objects, True).items():
            for number, found in (events or {}).items():
                assert found == right[name].get(number, [])[: len(found)], f"salvaged {name}, {number}: {what}"


def check(path: Path, seed: int, count: int) -> None:
    one = case(path)
    right = events(one.objects)
    assert None not in right.values()
    dice = random.Random(seed)
    for _ in range(count):
        what, objects = damaged(dice, one.objects)
        there = events(objects)
        wrong = [name for name in STREAMS if there[name] is not None and there[name] != right[name]]
        assert not wrong, what


@pytest.mark.parametrize("path", [CHUNKED, ROLLING], ids=lambda path: path.name)
def test_a_damaged_object_gives_no_wrong_event(path: Path) -> None:
    check(path, 1, 6)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        pytest.param(ROLLING, 20, id=ROLLING.name),
        pytest.param(ROLLING, 60, id=f"{ROLLING.name}, often", marks=pytest.mark.long),
        pytest.param(CHUNKED, 60, id=f"{CHUNKED.name}, often", marks=pytest.mark.long),
    ],
)
def test_a_damaged_object_gives_no_wrong_event_of_a_root(path: Path, count: int) -> None:
    check_root(path, 2, count)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name)
def test_many_damaged_objects_give_no_wrong_event_of_a_root(path: Path, seed: int) -> None:
    check_root(path, 100 + seed, 250)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name)
def test_many_damaged_objects_give_no_wrong_event(path: Path, seed: int) -> None:
    check(path, seed, 250)
