"""Damaged objects: never a wrong or missing event delivered as if all were well (W8).

Thousands of times one object of a root is damaged, and a fresh process opens the root and reads everything. It either
gets exactly what was written, as the damage is in what nobody needs any more, or an error that names the object.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest

from chunkstore.paths import is_log
from engine.containers.container import Container
from engine.errors import ContainerOffline, DataCorruption, FrameDamaged
from engine.logs.log import checkpoint_path, frame_path
from engine.settings import Settings
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    MergeSegment,
    Payload,
    PutEntry,
    SealSegment,
    UpdateKind,
)
from engine.state.tables import METADATA_TABLES
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from tests.support.container_model import Contents, Model, contents_of, known_to, names_of
from tests.support.simulation import Simulation, small_sizes
from tests.support.transactions import chunk_writer

MUTATIONS = 10_000
PARTS = 20
USUAL_PARTS = 1
RECOVERIES = 500


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


class Root:
    """A root with everything in it, and what it holds.

    After the first checkpoint all is flushed, so that the frames before it are of no use to anybody. Between it and the
    second one lie frames whose payload is needed; behind that, frames that every opening applies. Tables, those of the
    metadata included, lie in LTS only, and so do most segments and their attributes.
    """

    def __init__(self, active_segments: int = 1) -> None:
        self.simulation = Simulation(active_segments=active_segments)
        container = self.simulation.open()
        extents = chunk_writer(Model(), self.simulation.store)([b"attached-" * 9, b"to both"])
        alone = chunk_writer(Model(), self.simulation.store)([b"alone-" * 20])
        container.create_segment("s/a")
        container.create_segment("s/b", [AttributeUpdate(bytes(15) + b"x", UpdateKind.REPLACE, 7)])
        container.append("s/a", b"flushed" * 20)
        container.commit([Append("s/b", (extents[0],)), Append("s/a", (extents[1],))])
        container.put_entries("t", {"k": b"value" * 20})
        container.commit([CreateSegment("s/d"), Append("s/d", tuple(alone)), PutEntry("t", "l", b"another" * 20)])
        container.commit([CreateSegment("s/e"), Append("s/e", Payload(b"at rest" * 30))])
        container.flush()
        self.recoverable = contents_of(container)
        container.checkpoint()
        container.append("s/a", b"in a frame" * 5)
        container.commit([Append("s/a", Payload(b"spanning" * 50)), Append("s/b", Payload(b"frames" * 20))])
        container.commit([SealSegment("s/d"), MergeSegment("s/b", "s/d", Payload(b"header"))])
        container.checkpoint()
        self.tail = container.head.address + 1
        container.append("s/b", b"behind" * 3)
        container.create_segment("s/c")
        container.commit([Append("s/c", Payload(b"c")), Append("s/b", Payload(b"last")), PutEntry("t", "l", b"w")])
        self.contents = contents_of(container)
        store = self.simulation.store
        self.objects = {info.path: store.read(info.path) for info in store.list("")}
        self.paths = sorted(self.objects)
        self.pieces = [
            piece for name in names_of(container) for piece in container.plan(name, 0, container.info(name).length)
        ]
        tables = container.state.tables.values()
        self.tables = {str(e.source) for table in tables for space in (table.entries, table.pages) for _, e in space}
        self.recovery_point = max(path for path in self.paths if "/recovery-points/" in path)
        newest = max(path for path in self.paths if "/checkpoints/" in path)
        self.indispensable = {newest, *(frame_path(0, address) for address in range(self.tail, self.tail + 3))}
        self.needed = sorted(self.indispensable | {piece.path for piece in self.pieces} | self.tables)
        self.log = [path for path in self.paths if is_log(path)]

    def restored(self, *paths: str) -> None:
        for path in paths:
            self.simulation.store.put(path, self.objects[path])


def flip_a_bit(dice: random.Random, data: bytes) -> bytes:
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def cut_off(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(len(data))]


def zero(dice: random.Random, data: bytes) -> bytes:
    start = dice.randrange(len(data))
    end = dice.randrange(start, len(data)) + 1
    return data[:start] + bytes(end - start) + data[end:]


def overwrite(dice: random.Random, data: bytes) -> bytes:
    """As a torn write leaves it: a piece of it stands at another place."""
    length = dice.randrange(1, len(data))
    source, target = dice.randrange(len(data) - length + 1), dice.randrange(len(data) - length + 1)
    return data[:target] + data[source : source + length] + data[target + length :]


def extend(dice: random.Random, data: bytes) -> bytes:
    return data + dice.randbytes(dice.randrange(1, 40))


DAMAGES: list[Callable[[random.Random, bytes], bytes]] = [flip_a_bit, flip_a_bit, cut_off, zero, overwrite, extend]


def damages(
    root: Root, dice: random.Random, needed: Sequence[str], paths: Sequence[str]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Without end: what was done, most often to what is needed, and the objects that have other contents now."""
    while True:
        path = dice.choice(needed if dice.random() < 0.8 else paths)
        other = dice.choice([other for other in paths if other != path])
        choice = dice.randrange(len(DAMAGES) + 1)
        if choice == len(DAMAGES):
            changed = {path: root.objects[other], other: root.objects[path]}
            if dice.random() < 0.3:
                del changed[other]
            name = "swap"
        else:
            name = DAMAGES[choice].__name__
            changed = {path: DAMAGES[choice](dice, root.objects[path])}
        if any(root.objects[path] != data for path, data in changed.items()):
            yield name, changed


def outcome(read: Callable[[], Contents], contents: Contents, changed: dict[str, bytes]) -> str:
    """What a process got: an error that names one of the damaged objects, or exactly what was written."""
    try:
        found = read()
    except DataCorruption as error:
        assert any(path in str(error) for path in changed), f"{error} does not name any of {list(changed)}"
        return "error"
    assert found == contents, f"wrong data after damage to {list(changed)}"
    return "unharmed"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed >= USUAL_PARTS else []) for seed in range(PARTS)]
)
def test_no_damage_goes_unnoticed(seed: int, record_property: Callable[[str, object], None]) -> None:
    root, dice = Root(), random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    unharmed: Counter[str] = Counter()
    for name, changed in islice(damages(root, dice, root.needed, root.paths), MUTATIONS // PARTS):
        for path, data in changed.items():
            root.simulation.store.put(path, data)
        result = outcome(lambda: contents_of(root.simulation.open()), root.contents, changed)
        outcomes[name, result] += 1
        if result == "unharmed":
            unharmed.update(list(changed))
        root.restored(*changed)
    assert contents_of(root.simulation.open()) == root.contents
    assert sum(outcomes.values()) == MUTATIONS // PARTS
    record_property("outcomes", dict(outcomes))
    print(dict(outcomes))
    errors = sum(count for (_, result), count in outcomes.items() if result == "error")
    assert errors > MUTATIONS // PARTS / 2
    assert not unharmed.keys() & root.indispensable


def test_the_damaged_root_has_everything() -> None:
    root = Root()
    kinds = Counter(path.split("/")[-2] for path in root.paths)
    assert root.indispensable <= set(root.paths)
    assert kinds["wal"] > 8 and kinds["checkpoints"] == 2 and kinds["attached"] == 2 and kinds["s"] == 3
    assert kinds["0"] == len(root.tables) > 1 and kinds["recovery-points"] == 1
    kinds = Counter(path.split("/")[-2] for path in root.needed)
    assert 5 < kinds["wal"] < len(root.paths) / 2 and kinds["attached"] == 1 and kinds["s"] == 3
    assert kinds["0"] == len(root.tables)
    container = root.simulation.open()
    assert {*METADATA_TABLES, "t"} == {name for name, table in container.state.tables.items() if table.dropped}
    assert names_of(container) - set(container.state.segments), "some segments are in the metadata table only"
    assert all(piece.checksums for piece in root.pieces)


@pytest.mark.parametrize("seed", range(RECOVERIES // 250))
def test_no_damage_goes_unnoticed_by_a_recovery(seed: int) -> None:
    """Nor when the log is gone: then the recovery point and the tables that it names are all there is (F3)."""
    root, dice = Root(), random.Random(seed)
    store = root.simulation.store
    store.delete(root.log)
    kept = [path for path in root.paths if path not in root.log]
    needed = sorted({root.recovery_point, *root.tables, *(piece.path for piece in root.pieces if not piece.logged)})
    outcomes: Counter[str] = Counter()

    def recovered() -> Contents:
        recover(Stores(store, store), 0)
        return contents_of(root.simulation.open())

    for _, changed in islice(damages(root, dice, needed, kept), 250):
        for path, data in changed.items():
            store.put(path, data)
        result = outcome(recovered, root.recoverable, changed)
        outcomes[result] += 1
        assert result == "error" or root.recovery_point not in changed
        root.restored(*changed)
        store.delete([info.path for info in store.list("") if is_log(info.path)])
    assert recovered() == root.recoverable
    print(dict(outcomes))
    assert outcomes["error"] > 125


@pytest.mark.parametrize("looks", ["entry", "info", "attributes", "scan"])
def test_damage_of_tables_is_noticed_by_every_look(looks: str) -> None:
    """What one process has in its cache, another one reads anew."""
    root, dice = Root(), random.Random(8)
    store = root.simulation.store
    acts: dict[str, Callable[[Container], object]] = {
        "entry": lambda container: container.entry("t", "k"),
        "info": lambda container: container.info("s/e"),
        "attributes": lambda container: container.attributes("s/b"),
        "scan": lambda container: dict(container.scan_entries("t")),
    }
    expected = acts[looks](root.simulation.open())
    noticed = 0
    for number in range(150):
        path = sorted(root.tables)[number % len(root.tables)]
        store.put(path, zero(dice, root.objects[path]))
        container = root.simulation.open()
        try:
            assert acts[looks](container) == expected
        except DataCorruption as error:
            assert path in str(error)
            noticed += 1
        root.restored(path)
        assert acts[looks](container) == expected, "damage that was mended is no damage any more"
    assert noticed


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.long)])
def test_damage_is_noticed_by_who_follows_the_log(count: int) -> None:
    """The damaged frame appears before the eyes of a process that is up: it is not applied, and nothing after it is."""
    root, dice = Root(active_segments=9), random.Random(5)
    store = root.simulation.store
    tail = [frame_path(0, address) for address in range(root.tail, root.tail + 3)]
    for _ in range(count):
        store.delete(tail)
        follower = root.simulation.open()
        before = contents_of(follower)
        path = dice.choice(tail)
        root.restored(*tail)
        store.put(path, flip_a_bit(dice, cut_off(dice, root.objects[path]) or b"x"))
        with pytest.raises(DataCorruption, match=path):
            contents_of(follower)
        assert follower.head.address < int(path[-20:])
        assert not follower.offline
        if path == tail[0]:
            assert known_to(follower) == before


# --- writers and repair ---------------------------------------------------------------------------------------


def damaged_tail(threaded: bool = False) -> tuple[Root, Container, int]:
    """A root whose newest frame is damaged, a process that had not read that frame yet, and its address."""
    root = Root()
    behind, writer = root.simulation.open(), root.simulation.open()
    if threaded:
        behind = Container(behind.stores, 0, Settings(maintenance=False))
    writer.append("s/a", b"to be damaged")
    path = frame_path(0, writer.head.address)
    root.simulation.store.put(path, cut_off(random.Random(1), root.simulation.store.read(path)))
    return root, behind, writer.head.address


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(
    ("segment", "size"), [("s/a", 1), ("s/a", 1000), ("s/none", 1)], ids=["small", "spanning", "refused"]
)
def test_no_writer_goes_past_damage(segment: str, size: int, threaded: bool) -> None:
    """Not with a frame of its own, nor with a refusal: it would be one by a state that is not the log's."""
    root, behind, address = damaged_tail(threaded)
    paths = [info.path for info in root.simulation.store.list("")]
    with pytest.raises(FrameDamaged, match=frame_path(0, address)) as error:
        behind.append(segment, b"x" * size)
    assert error.value.address == address and f"repair(container, {address})" in str(error.value)
    late = {info.path for info in root.simulation.store.list("")} - set(paths)
    assert late <= {frame_path(0, address + ahead) for ahead in range(1, 5)}  # void: what they hang on is not ours
    with pytest.raises(FrameDamaged, match=frame_path(0, address)):
        root.simulation.open()
    with pytest.raises(ContainerOffline, match="open it again") as offline:
        behind.append("s/a", b"x")
    assert offline.value.__cause__ is error.value
    behind.close()


def test_a_damaged_frame_is_passed_over_by_repair_only() -> None:
    root, behind, address = damaged_tail()
    with pytest.raises(ValueError, match="not a damaged frame"):
        behind.repair(address - 1)
    behind.repair(address)
    for container in (behind, root.simulation.open()):
        assert contents_of(container) == root.contents
    offset = behind.append("s/a", b"after the repair")
    behind.flush()
    for container in (behind, root.simulation.open()):
        assert container.read("s/a", offset, container.info("s/a").length) == b"after the repair"
    with pytest.raises(ValueError, match="not a damaged frame"):
        behind.repair(address)


# --- objects in the wrong place, or in none -------------------------------------------------------------------


@pytest.mark.parametrize("path", [frame_path, checkpoint_path])
def test_another_containers_objects_are_not_taken_for_ours(path: Callable[[int, int], str]) -> None:
    simulation = Simulation()
    containers = [Container(simulation.open().stores, number, Settings(threaded=False)) for number in (0, 1)]
    for container in containers:
        container.create_segment("s/a")
        container.checkpoint()
    simulation.store.put(path(0, 1), simulation.store.read(path(1, 1)))
    if path is frame_path:
        simulation.store.delete([checkpoint_path(0, 1)])
    with pytest.raises(DataCorruption, match=f"{path(0, 1)}.*of container 1"):
        simulation.open()


def test_what_vanished_is_an_error_that_names_it() -> None:
    root = Root()
    for path in root.needed:
        if path in root.indispensable:
            continue  # the log ends where a frame is absent
        root.simulation.store.delete([path])
        with pytest.raises(DataCorruption, match=path):
            contents_of(root.simulation.open())
        root.restored(path)
    assert contents_of(root.simulation.open()) == root.contents


@pytest.mark.parametrize("kind", ["frame", "chunk of a merged segment", "table"])
def test_a_flush_does_not_spread_damage(kind: str) -> None:
    """Flushing copies bytes: those that fail their checks are not given new checksums."""
    root = Root()
    container = root.simulation.open()
    if kind == "frame":
        piece = next(piece for piece in root.pieces if piece.logged and piece.length > 100)
        path, place = piece.path, piece.position + 70
    elif kind == "table":
        extent = next(extent for _, extent in container.state.tables["t"].entries)
        path, place = str(extent.source), extent.position + 30
    else:  # a part of it is truncated, so that the rest has to be copied
        piece = next(piece for piece in root.pieces if piece.path.startswith("attached/"))
        path, place = piece.path, piece.position + 100
        at = container.info("s/b").length - 4 - 18 - 120
        assert container.plan("s/b", at, at + 1)[0].path == path
        container.truncate("s/b", at + 10)
    data = bytearray(root.objects[path])
    data[place] ^= 1
    root.simulation.store.put(path, bytes(data))
    container = root.simulation.open()
    if kind == "table":
        container.put_entries("t", {f"k{number}": b"%d" % number for number in range(3)})
        container.flush()
        container.put_entries("t", {"k9": b"9"})
    with pytest.raises(DataCorruption, match=path):
        container.flush()
        container.flush()
        contents_of(container)
    with pytest.raises(DataCorruption, match=path):
        contents_of(root.simulation.open())


def test_a_frame_that_was_deleted_and_made_again_is_not_read() -> None:
    """A reader with an old plan finds other bytes at the address (S1, W7): it looks the range up again."""
    root = Root()
    reader, other = root.simulation.open(), root.simulation.open()
    other.flush()
    for piece in root.pieces:
        if piece.logged:
            root.simulation.store.put(piece.path, bytes(len(root.objects[piece.path])))
    for name, content in root.contents[0].items():
        assert reader.read(name, content.start, content.length) == content.data
