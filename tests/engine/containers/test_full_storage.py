"""A storage without room: what is refused for it says so, what was acknowledged stays, and with room all goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from chunkstore.errors import StorageError, StorageFull
from chunkstore.port import Store
from chunkstore.testing import Request, SimulatedStore, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores

SETTINGS = Settings(maintenance=False, threaded=False, grace=0.0, garbage_delay=0.0, cache_bytes=0)
WRITES = ("put", "put_if_absent", "append")


class FullStore(WrappingStore):
    """Has room for the first so many requests that write, and for so many again after some were refused."""

    def __init__(self, inner: Store, room: int, refused: int) -> None:
        super().__init__(inner)
        self._room = room
        self._refused = refused
        self.passed = 0
        self.checkpoints = 0  # that were refused: nobody hears of the first one, as a second try follows it

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb in WRITES:
            self.passed += 1
            if self._room < self.passed <= self._room + self._refused:
                self.checkpoints += "/checkpoints/" in request.paths[0]
                raise StorageFull(f"{request.paths[0]}: the filesystem is full")
        return call()


def life(container: Container) -> tuple[bytes, int]:
    """What was acknowledged of a segment, and how many calls were refused."""
    content, start, refused = b"", 0, 0

    def append(data: bytes) -> None:
        nonlocal content
        container.append("s/a", data)
        content += data

    def truncate() -> None:
        nonlocal start
        aim = len(content) // 2
        container.truncate("s/a", aim)
        start = aim

    steps: list[Callable[[], object]] = [lambda: container.create_segment("s/a")]
    for number in range(2):
        steps += [partial(append, bytes([number]) * 700), partial(append, b"more" * number)]
        steps += [container.flush, lambda: append(b"behind"), truncate, container.flush, container.checkpoint]
        steps += [container.truncate_log, container.collect_garbage]
    for step in steps:
        for _ in range(12):  # who was refused tries again, as programs do
            try:
                step()
                break
            except StorageError as error:
                assert isinstance(error, StorageFull) or step == container.checkpoint, repr(error)
                assert "the filesystem is full" in str(error)
                refused += 1
    return content[start:], refused


@pytest.mark.parametrize("times", [1, 7], ids=lambda times: f"{times} refused")
def test_what_is_refused_for_want_of_room_says_so_and_nothing_is_lost(times: int) -> None:
    """At every request that writes; nothing of it is taken for damage."""
    room, reached, noticed = 0, True, 0
    while reached:
        inner = SimulatedStore()
        store = FullStore(inner, room, times)
        with Container(Stores(store, store), 0, SETTINGS, now=inner.clock) as container:
            expected, refused = life(container)
        reached, noticed, room = store.passed > room, noticed + bool(refused or store.checkpoints), room + 1
        with Container(Stores(inner, inner), 0, SETTINGS, now=inner.clock) as container:
            info = container.info("s/a")
            assert container.read("s/a", info.start_offset, info.length) == expected
            container.flush()
            assert container.read("s/a", info.start_offset, info.length) == expected
    assert room > 30 and noticed >= room - 2, "each of them was refused once"
