"""The actor that holds the streams against what was promised while all goes on. No fault happens to it.

In each pass it reads each stream from where it stopped to the present tail, in bounded memory, and then lets retention
truncate what it has checked: it is a subscriber of each stream, by a group with manual retention. At the end it writes
`result.json`: what it has seen, and all problems.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pravega_spark import StreamCut, StreamManager, StreamReaderGroupConfig, TruncatedData
from tests.soak import PARTS, SCOPE
from tests.soak.actor import Actor
from tests.soak.events import Sequences, Transactions, decoded
from tests.soak.ledger import acknowledged, entries, ledgers
from tests.soak.readers import HEADER
from tests.soak.tables import TABLE, differences
from tests.soak.writers import check_large

PAUSE = 5.0
"""Seconds between two passes."""


@dataclass
class Checked:
    """A stream that is checked. kind: what is in it: sequences, transactions or large."""

    name: str
    kind: str
    truncated: bool
    """Whether it may be truncated before it is read."""

    sequences: Sequences = field(default_factory=Sequences)
    transactions: Transactions = field(default_factory=Transactions)
    large: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    cut: StreamCut | None = None
    skipped: int = 0
    events: int = 0
    size: int = 0
    """Headers of events included."""

    def __post_init__(self) -> None:
        self.sequences.suffix = self.truncated

    def take(self, manager: StreamManager) -> None:
        """Read on to the present tail."""
        tail = manager.stream_info(SCOPE, self.name).tail
        try:
            for event in manager.read_events(SCOPE, self.name, self.cut, tail):
                self.events += 1
                self.size += HEADER + event.size
                if self.kind == "sequences":
                    self.sequences.add(decoded(event.data))
                elif self.kind == "transactions":
                    self.transactions.add(event.data, PARTS)
                else:
                    self._add_large(event.data)
        except TruncatedData:
            if not self.truncated:
                raise
            self.skipped += 1
            self.sequences.forget()
            self.large.clear()
            self.cut = None
            return
        self.transactions.at_a_cut()
        self.cut = tail

    def _add_large(self, data: bytes) -> None:
        name, number = check_large(data)
        if number != self.large.get(name, number - 1) + 1:
            self.problems.append(f"large event {number} of {name} comes behind {self.large[name]}")
        self.large[name] = number

    def found(self) -> list[str]:
        """All problems so far."""
        return [*self.sequences.problems, *self.transactions.problems, *self.problems]


def run(actor: Actor) -> None:
    """Check until the end, then once more, and write the result."""
    manager = actor.manager()
    streams = [Checked(*each) for each in actor.more["streams"]]
    while not actor.ended.wait(PAUSE):
        _pass(actor, manager, streams)
    for each in streams:
        while not _taken(actor, manager, each):
            time.sleep(PAUSE)
    problems = [f"{each.name}: {problem}" for each in streams for problem in each.found()]
    problems += _incomplete(actor.folder, {each.name: each for each in streams}, actor.more["writers"])
    problems += [f"table: {each}" for each in differences(actor, manager.key_value_table(SCOPE, TABLE))]
    counts = {each.name: {"events": each.events, "bytes": each.size, "skipped": each.skipped} for each in streams}
    result: dict[str, Any] = {"problems": problems, "streams": counts}
    (actor.folder / "result.json").write_text(json.dumps(result))
    manager.close()


def _pass(actor: Actor, manager: StreamManager, streams: list[Checked]) -> None:
    begun = all(each.events for each in streams if each.name == "b")  # until then the query is no subscriber of `a`
    for each in streams:
        if _taken(actor, manager, each) and not each.truncated and (begun or each.name != "a"):
            with actor.surviving("release"):
                _release(manager, each)
        for problem in each.found():
            actor.problem(f"{each.name}: {problem}")
    actor.log("checked", events={each.name: each.events for each in streams})


def _taken(actor: Actor, manager: StreamManager, stream: Checked) -> bool:
    """Whether all of a stream could be read. A pass that fails midway is read again from its beginning, so it is
    begun with copies of what is known."""
    counted = stream.events, stream.size, stream.sequences.events
    known = stream.sequences.last.copy(), stream.large.copy()
    try:
        stream.take(manager)
        return True
    except Exception as error:
        stream.events, stream.size, stream.sequences.events = counted
        stream.sequences.last, stream.large = known
        stream.transactions.start_again()
        actor.log_error(f"check {stream.name}", error)
        return False


def _release(manager: StreamManager, stream: Checked) -> None:
    config = StreamReaderGroupConfig(False, SCOPE, stream.name, retention="manual")
    with closing(manager.create_reader_group_with_config(f"checked-{stream.name}", SCOPE, config)) as group:
        assert stream.cut is not None
        group.update_retention_stream_cut(stream.cut)


def _incomplete(folder: Path, streams: dict[str, Checked], writers: dict[str, str]) -> list[str]:
    """What was acknowledged and is not there; what was aborted and is there; what the copy does not have."""
    found: list[str] = []
    runs: dict[str, dict[tuple[str, int], int]] = {}
    for name, path in ledgers(folder).items():
        stream = streams.get(writers.get(name, ""))
        if stream is None:
            continue
        numbers = acknowledged(path)
        if stream.kind == "transactions":
            found += _transactions(stream, name, path)
        elif stream.kind == "large":
            if numbers.get(0, -1) > stream.large.get(name, -1):
                found.append(f"large event {numbers[0]} of {name} was acknowledged; {stream.large.get(name)} is there")
        else:
            runs.setdefault(stream.name, {}).update({(name, run): last for run, last in numbers.items()})
    for name, wanted in runs.items():
        if not streams[name].truncated:
            found += [f"{name}: {each}" for each in streams[name].sequences.missing(wanted)]
        else:  # what was truncated before it was read is not known
            last = {(writer, run): number for (writer, run), number in wanted.items() if number > 0}
            newest = {writer: max(run for other, run in last if other == writer) for writer, _ in last}
            seen = {place: last[place] for place in newest.items() if place in last}
            if not streams[name].skipped:
                found += [f"{name}: {each}" for each in streams[name].sequences.missing(seen)]
    if "b" in streams and streams["a"].sequences.last != streams["b"].sequences.last:
        first, second = streams["a"].sequences.last, streams["b"].sequences.last
        wrong = [place for place in {*first, *second} if first.get(place) != second.get(place)]
        found += [f"b: {place}: {second.get(place)} is the last one, {first.get(place)} in a" for place in wrong[:5]]
    return found


def _transactions(stream: Checked, name: str, path: Path) -> list[str]:
    whole = stream.transactions.whole.get(name, set())
    committed = {numbers[0] for kind, numbers in entries(path) if kind == "A"}
    aborted = {numbers[0] for kind, numbers in entries(path) if kind == "X"}
    found = [f"{name}: transaction {each} was committed and is not there" for each in sorted(committed - whole)[:5]]
    return found + [f"{name}: transaction {each} was aborted and is there" for each in sorted(aborted & whole)[:5]]
