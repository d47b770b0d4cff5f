"""What lives on, in a process of its own, with what happens to the root or the stream that it uses (P4): it raises an
error that says so, or it has done and read what is right. Never silence, and nothing that is there now is harmed."""

from __future__ import annotations

import multiprocessing
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.admin.backups import back_up, restore
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from tests.client.identity_actors import ACTORS, Done, act

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SPAWN = multiprocessing.get_context("spawn")

OLD = [f"old {number}" for number in range(20)]
LOST = [f"lost {number}" for number in range(20)]
NEW = [f"new {number}" for number in range(60)]


class Place:
    """A root with stream sc/st. Its first events are in a backup beside it, and more came later."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "root"
        self.copy = folder / "copy"
        self.beside = folder / "beside"
        self.create()
        self.write(OLD)
        with Root.open(str(self.folder)) as root:
            back_up(root, str(self.copy))
        self.write(LOST)
        self.expected = OLD + LOST

    def create(self) -> None:
        with StreamManager(str(self.folder), create=True) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "st")

    def write(self, events: list[str], folder: Path | None = None) -> None:
        with StreamManager(str(folder or self.folder)) as manager, manager.create_writer("sc", "st") as writer:
            writer.write_events(events, ["key"] * len(events))

    def events(self, folder: Path | None = None) -> list[str]:
        with StreamManager(str(folder or self.folder)) as manager:
            return [event.data.decode() for event in manager.read_events("sc", "st")]


def created_anew(place: Place) -> None:
    shutil.rmtree(place.folder)
    place.create()
    place.write(NEW)
    place.expected = NEW


def restored_in_place(place: Place) -> None:
    shutil.rmtree(place.folder)
    restore(str(place.copy), str(place.folder))
    place.write(NEW)
    place.expected = OLD + NEW


def restored_beside(place: Place) -> None:
    restore(str(place.copy), str(place.beside))
    place.write(NEW, place.beside)
    assert place.events(place.beside) == OLD + NEW


def stream_created_anew(place: Place) -> None:
    with StreamManager(str(place.folder)) as manager:
        manager.seal_stream("sc", "st")
        manager.delete_stream("sc", "st")
        manager.create_stream("sc", "st")
    place.write(NEW)
    place.expected = NEW


def recovered(place: Place) -> None:
    with Root.open(str(place.folder)) as root:
        for number in range(root.config.containers):
            root.recover(number, force=True)
    place.write(NEW)
    place.expected = OLD + NEW


def cloned(place: Place) -> None:
    place.write(NEW)
    place.expected = [*OLD, *LOST, *NEW]


EVENTS: dict[str, Callable[[Place], None]] = {
    each.__name__: each
    for each in (created_anew, restored_in_place, restored_beside, stream_created_anew, recovered, cloned)
}

SAYS_SO = (
    "created again, restored or recovered",  # the root
    "restored or recovered",
    "another one was created under its name",
    "was deleted",
    "is not there any more",
    "does not exist",  # the stream of an earlier generation, its transactions
    "was there before",
    "began before",
    "restore",
    "another process has this one's identity",
    "MadeBeforeFork",
    "process",  # a handle of a process that was copied
)


@pytest.mark.long
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("actor", ACTORS)
def test_what_lives_on_says_so_or_is_right(actor: str, event: str, tmp_path: Path) -> None:
    check(actor, event, tmp_path)


@pytest.mark.parametrize(
    ("actor", "event"),
    [
        ("writer", "restored_in_place"),
        ("query", "created_anew"),
    ],
)
def test_some_of_what_lives_on_says_so_or_is_right(actor: str, event: str, tmp_path: Path) -> None:
    check(actor, event, tmp_path)


def check(actor: str, event: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    (here, there), (clone_here, clone_there) = SPAWN.Pipe(), SPAWN.Pipe()
    process = SPAWN.Process(target=act, args=(actor, str(place.folder), event == "cloned", there, clone_there))
    process.start()
    try:
        assert here.recv() == "ready"
        before = place.events()[len(OLD + LOST) :]  # what the actor has written
        EVENTS[event](place)
        here.send("go on")
        outcomes = [here.recv()]
        if event == "cloned":
            assert clone_here.poll(200)
            outcomes.append(clone_here.recv())
    finally:
        process.join(60)
        process.kill()
    if event in ("restored_beside", "cloned"):
        place.expected = [*place.expected[: len(OLD + LOST)], *before, *place.expected[len(OLD + LOST) :]]
    print(actor, event, [outcome[:3] if outcome[0] == "error" else "done" for outcome in outcomes])
    acknowledged = [line for outcome in outcomes for line in judged(actor, outcome, place)]
    if actor == "transaction":  # to commit one that is committed is to have committed it
        acknowledged = [*set(acknowledged)]
    there_now = place.events()
    if actor == "job" and any(outcome[0] == "done" for outcome in outcomes):
        assert event in ("restored_beside", "cloned"), "a cut of what was lost truncated what is there now"
    else:
        assert [each for each in there_now if each in set(place.expected)] == place.expected
    assert not Counter(acknowledged) - Counter(there_now), "acknowledged, and not there"
    assert max(Counter(there_now).values(), default=1) == 1, "doubled"
    with Root.open(str(place.folder)) as root:
        report = verify_root(root, deep=True)
        assert not report.errors, list(report.findings)


def judged(actor: str, outcome: tuple[Any, ...], place: Place) -> tuple[str, ...]:
    """The events that were acknowledged. An error must say what happened; what was read must be right."""
    if outcome[0] == "error":
        _, kind, text, trace = outcome
        assert kind not in ("AssertionError", "KeyError", "IndexError", "AttributeError", "TypeError"), trace
        assert any(words in text or words in kind for words in SAYS_SO), f"{kind}: {text}\n{trace}"
        return ()
    done: Done = outcome[1]
    if done.read is not None:
        found = set(done.read)
        missing = [each for each in place.expected if each.startswith("new") and each not in found]
        assert not missing, f"{actor} passed over {len(missing)} events without a word, and read {done.read}"
        assert max(Counter(done.read).values(), default=1) == 1
    return done.acknowledged
