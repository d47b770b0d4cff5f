"""Two lives of one memory image: a cloned machine, a snapshot that starts twice, a fork that Python does not notice.

Both have the same writer id, and would number their attempts alike. Whatever each acknowledges is in the log once
(W15).
"""

from __future__ import annotations

import itertools
import os
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from chunkstore.port import TOKEN
from chunkstore.testing import SimulatedStore
from engine.admin.verify import verify
from engine.errors import Overtaken
from engine.logs.log import Log
from engine.root import Root
from engine.settings import Settings
from tests.engine.forks import in_unseen_child
from tests.support.log_contracts import append, append_in_turn, contents, metas, open_log, raised
from tests.support.processes import ByHand


def same_numbers(seed: int) -> dict[str, Any]:
    """What a life makes its tokens of, if even the system's random numbers were cloned."""
    numbers = random.Random(seed)
    return {"new_writer": lambda: numbers.randbytes(16), "new_attempt": itertools.count(1).__next__}


class Life:
    """One of two lives, which sends frames and settles them as a container does."""

    def __init__(self, name: str, store: SimulatedStore, seed: int) -> None:
        self.executor = ByHand()
        self.log: Log = open_log(store, executor=self.executor, **same_numbers(seed))
        self.acknowledged: list[bytes] = []
        self.applied: list[bytes] = []
        self._waiting = deque(f"{name}{number}".encode() for number in range(6))
        self._landed = 0
        self._sent = 0

    @property
    def done(self) -> bool:
        return not self._waiting and not self.log.flights

    def step(self, choice: float) -> None:
        """Send, land a request, or settle."""
        if self._waiting and len(self.log.flights) < 3 and choice < 0.4:
            meta = self._waiting.popleft()
            self.log.send(meta, [], meta)
            self._sent += 1
        elif self._landed < self._sent and choice < 0.8:
            self.executor.land(int(choice * 1000) % (self._sent - self._landed))
            self._landed += 1
        elif self.log.flights and self.log.flights[0].future.done():
            self._settle()

    def _settle(self) -> None:
        try:
            self.acknowledged.append(self.log.settle().body)
            self.applied.append(self.acknowledged[-1])
        except Overtaken:
            while self._landed < self._sent:
                self.executor.land()
                self._landed += 1
            self._waiting.extendleft(flight.body for flight in reversed(self.log.drop()))
            self.applied += metas(self.log.follow())


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_what_each_life_acknowledges_is_in_the_log_once(first: int) -> None:
    for seed in range(first, first + 30):
        _live_twice(seed)


def _live_twice(seed: int) -> None:
    store, chance = SimulatedStore(), random.Random(seed)
    lives = [Life(name, store, seed) for name in "ab"]
    while not all(life.done for life in lives):
        chance.choice(lives).step(chance.random())
    live = contents(store)
    for name, life in zip("ab", lives, strict=True):
        assert life.acknowledged == [meta for meta in live if meta.startswith(name.encode())]
        life.applied += metas(life.log.follow())
        assert life.applied == live, "and it has applied what everybody else has"
    assert len(live) == 12


def test_who_meets_its_own_identity_goes_on_as_another_writer() -> None:
    store = SimulatedStore()
    one, other = (open_log(store, **same_numbers(1)) for _ in range(2))
    append(one, b"one")
    raised(Overtaken, append, other, b"two")
    other.drop()
    assert metas(other.follow()) == [b"one"]
    append(other, b"two")
    assert other.head.writer != one.head.writer and other.head.epoch == one.head.epoch + 1
    assert append_in_turn(one, b"three") == 1
    assert contents(store) == [b"one", b"two", b"three"]


def test_no_two_lives_have_the_same_token() -> None:
    """Not even where they put the same content: one of two equal events would be missing."""
    number = b"w" * 16
    one, other = (open_log(SimulatedStore(), new_writer=lambda: number) for _ in range(2))
    sent = {b"".join(map(bytes, log.send(b"same", [], None).data))[:TOKEN] for log in (one, other)}
    assert len(sent) == 2


def test_a_repair_is_no_sign_of_another_life(caplog: pytest.LogCaptureFixture) -> None:
    store = SimulatedStore()
    log = open_log(store)
    append(log, b"a", b"b")
    store.put(f"{store.list('')[1].path}", b"?" * 100)
    reader = open_log(store)
    with pytest.raises(Exception, match="cannot be read past"):
        reader.follow()
    reader.repair(1)
    reader.follow()
    append(reader, b"c")
    assert contents(store)[-1] == b"c" and "identity" not in caplog.text


def test_a_fork_that_python_does_not_see_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Real processes: each appends its own content through the same handle, and notes what was acknowledged."""
    with Root.open(str(tmp_path / "root"), containers=1, settings=Settings(threaded=False, maintenance=False)) as root:
        container = root.container(0)
        container.create_segment("s")
        container.append("s", b"-" * 8)

        def work(name: str) -> None:
            with (tmp_path / name).open("w") as told:
                for number in range(20):
                    event = f"{name}{number:07}"
                    container.append("s", event.encode())
                    told.write(f"{event}\n")
                    if number % 7 == 6:
                        container.flush()

        children = [in_unseen_child(lambda name=name: work(name)) for name in "ab"]  # type: ignore[misc]
        work("c")
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        container.refresh()
        content = container.read("s", 0, container.info("s").length)
        container.flush()
        assert not verify(root, deep=True).errors
        found = [content[place : place + 8].decode() for place in range(8, len(content), 8)]
    for name in "abc":
        told = (tmp_path / name).read_text().split()
        assert len(told) == 20 and told == [event for event in found if event.startswith(name)]
    assert len(found) == 60
