"""Whether the objects that containers name are there, and which there are that none names (G1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from chunkstore import ObjectInfo, ObjectNotFound, Store
from chunkstore.decoding import InvalidData
from chunkstore.metadata.metadata_records import ChunkRecord, decode
from chunkstore.paths import SYSTEM, SystemPlace, container_folder, is_earlier, nested_folder, place_of
from engine.admin.checks.content import missing
from engine.admin.checks.findings import Problem, Severity
from engine.admin.checks.inventory import Inventory, Missing, ObjectKind
from engine.admin.checks.survey import newest_recovery_point
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.logs.log import frame_path
from engine.state.segments import FrameRef
from engine.state.state import State
from engine.state.tables import STORAGE, Entry

PAGE = 10_000
"""Objects that are listed together."""


def list_objects(
    stores: Sequence[Store], containers: Sequence[int], inventory: Inventory, told: Callable[[int], None]
) -> Iterator[Problem]:
    """Take all objects of a root into the inventory; `stores`: the root of the chunks, and that of the log if it is
    another. `told` is called with the number of objects so far. Folders that are roots or backups by themselves are
    reported, and what is in them is left out (P1); so are logs and recovery points of earlier generations (P4)."""
    count, nested = 0, []
    earlier: Counter[int] = Counter()
    for number, store in enumerate(stores):
        last = ""
        while page := store.list("", last, PAGE):
            last = page[-1].path
            count += len(page)
            ours = [info for info in page if _is_ours(store, info.path)]
            earlier += _take(ours, containers, inventory, is_log=number > 0)
            if number == 0:
                nested += [folder for info in page if (folder := nested_folder(info.path)) is not None]
            told(count)
    own = stores[-1].root.removeprefix(f"{stores[0].root}/") + "/"
    for folder in nested:
        inventory.leave_out(folder)
        if folder != own:
            problem = "another root or a backup lies here; it was not looked at, and is not swept"
            yield Problem(folder, problem, "move it out of this root", Severity.WARNING)
    for container, objects in sorted(earlier.items()):
        problem = f"{objects} objects belong to an earlier log of this container, from before a recovery or restore"
        remedy = "run `gc`, which deletes them once they are a day old; in a log's root of its own, delete them by hand"
        yield Problem(f"{container_folder(container)}/", problem, remedy, Severity.WARNING)


def _is_ours(store: Store, path: str) -> bool:
    """Whether an object may be one of ours. Below `_system/` all others are foreign; elsewhere are users' chunks."""
    if path.startswith(SYSTEM) and place_of(path) is None:
        store.pass_over(path, "nothing of ours has such a name")
        return False
    return True


def _take(page: Sequence[ObjectInfo], containers: Sequence[int], inventory: Inventory, is_log: bool) -> Counter[int]:
    """Take objects into the inventory; how many belong to an earlier generation of each container."""
    frames, chunks = [], []
    earlier: Counter[int] = Counter()
    for info in page:
        place, number = place_of(info.path) or (None, 0)
        if number < len(containers) and is_earlier(info.path, containers[number]):
            inventory.count(number, "log", info.size)
            earlier[number] += 1
        elif place is SystemPlace.LOG and number < len(containers):
            inventory.count(number, "log", info.size)
            frames.append(info)
        elif place is SystemPlace.RECOVERY_POINT and number < len(containers) and not is_log:
            inventory.count(number, "recovery_points", info.size)
        elif place is not SystemPlace.ROOT and not is_log:
            chunks.append(info)
    inventory.met(True, frames)
    inventory.met(False, chunks)
    return earlier


def foreign_problems(stores: Sequence[Store]) -> Iterator[Problem]:
    """What is not ours, of all that was listed so far."""
    for store in stores:
        for name, what in sorted(store.passed_over().items()):
            yield Problem(name, f"it is not ours: {what}", "nothing; remove it if nobody needs it", Severity.FOREIGN)


def missing_problems(container: Container, inventory: Inventory, cycle: int) -> Iterator[Problem]:
    """The objects that a container still names, after they were not found. cycle: whose recovery point was surveyed."""
    for batch in inventory.missing(container.number):
        state = container.refresh()
        lengths = _needed(container, state, batch, cycle)
        for found in batch:
            path = found.expected.path
            if path not in lengths:
                continue  # it was let go meanwhile
            length = min(lengths[path], found.expected.length)
            store = container.stores.log if found.expected.logged else container.stores.chunks
            try:
                size = store.stat(path).size
            except ObjectNotFound:
                yield Problem(path, missing(found.expected.owner), "restore the object from a copy")
                continue
            if size < length:
                problem = f"the object has {size} bytes; {found.expected.owner!r} needs {length}"
                yield Problem(path, problem, "restore the object from a copy")


def _needed(container: Container, state: State, batch: Sequence[Missing], cycle: int) -> Mapping[str, int]:
    """Those of the objects that the state names, and the bytes that it needs of them."""
    lengths = {}
    frames = _frames_of(container, state) if any(found.expected.logged for found in batch) else {}
    paths = [found.expected.path for found in batch if not found.expected.logged]
    entries = _records_of(container, state, paths)
    recovery_point = _recovery_point_of(container) if paths else 0
    for found in batch:
        path, length = found.expected.path, found.expected.length
        if found.expected.logged:
            if path in frames:
                lengths[path] = frames[path]
        elif found.expected.kind in (ObjectKind.GARBAGE, ObjectKind.DELETED, ObjectKind.RECOVERY):
            if recovery_point == cycle:
                lengths[path] = length
        elif path in state.chunks or entries is None:
            lengths[path] = length
        elif (entry := entries[path]) is not None and entry.value is not None:
            lengths[path] = _recorded_length(entry.value, length)
    return lengths


def _recorded_length(data: bytes, length: int) -> int:
    """The bytes of a chunk that count, by its record; `length` if that is none, or cannot be read, which is told."""
    try:
        record = decode(data)
    except InvalidData:
        return length
    return record.length if isinstance(record, ChunkRecord) else length


def _recovery_point_of(container: Container) -> int:
    """The number of the newest recovery point, 0 if there is none that can be read."""
    try:
        recovery_point = newest_recovery_point(container)
    except DataCorruption:
        return 0
    return recovery_point.number if recovery_point is not None else 0


def _records_of(container: Container, state: State, paths: Sequence[str]) -> Mapping[str, Entry | None] | None:
    """The entries of chunks in the table of records; None if that is damaged, so that what was read before counts."""
    try:
        return container.entries(STORAGE, paths, state) if paths else {}
    except DataCorruption:
        return None


def _frames_of(container: Container, state: State) -> dict[str, int]:
    """The frames that segments need, and how many bytes of each object."""
    needed: dict[str, int] = {}
    for segment in state.logged():
        for _, extent in segment.extents:
            if isinstance(extent.source, FrameRef):
                path = frame_path(container.number, extent.source.address)
                end = extent.source.start + extent.position + extent.length
                needed[path] = max(needed.get(path, 0), end)
    return needed


def settle_others(containers: Sequence[Container], inventory: Inventory) -> None:
    """Of the objects that nothing named, take those for known that were made, or became garbage, meanwhile."""
    for paths in inventory.others():
        left = set(paths)
        for container in containers:
            state = container.refresh()
            entries = container.entries(STORAGE, list(left), state) if left else {}
            for path in list(left):
                if path in state.chunks:
                    kind = ObjectKind.TABLE if path.startswith(SYSTEM) else ObjectKind.ATTACHED
                elif path in state.garbage:
                    kind = ObjectKind.GARBAGE
                elif entries[path] is not None:
                    kind = ObjectKind.CHUNK
                else:
                    continue
                inventory.known(path, container.number, kind)
                left.discard(path)
        for path in left:
            try:
                containers[0].stores.chunks.stat(path)
            except ObjectNotFound:
                inventory.not_there(path)
