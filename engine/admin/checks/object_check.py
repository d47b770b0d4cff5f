"""Whether the objects that containers name exist, and which objects no container names (G1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from chunkstore import ObjectInfo, ObjectNotFound, Store
from chunkstore.decoding import InvalidData
from chunkstore.metadata.metadata_records import ChunkRecord, decode
from chunkstore.paths import SYSTEM, SystemPlace, container_folder, is_earlier, nested_folder, place_of
from engine.admin.checks.container_scan import newest_recovery_point
from engine.admin.checks.findings import Problem, Severity
from engine.admin.checks.object_index import Missing, ObjectIndex, ObjectKind
from engine.admin.checks.segment_content import missing
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.logs.log import frame_path
from engine.state.segments import FrameRef
from engine.state.state import State
from engine.state.tables import STORAGE, Entry

PAGE = 10_000
"""Objects in one page of a listing."""


def list_objects(
    stores: Sequence[Store], containers: Sequence[int], index: ObjectIndex, progress: Callable[[int], None]
) -> Iterator[Problem]:
    """Add all objects of a root to the index.

    stores: the root of the chunks, and that of the log if it is another one. progress: is called with the number of
    objects so far. Folders that are roots or backups themselves (P1), and logs and recovery points of earlier
    generations (P4), are reported as problems and left out.
    """
    count, nested = 0, []
    earlier: Counter[int] = Counter()
    for number, store in enumerate(stores):
        last = ""
        while page := store.list("", last, PAGE):
            last = page[-1].path
            count += len(page)
            ours = [info for info in page if _is_ours(store, info.path)]
            earlier += _take(ours, containers, index, is_log=number > 0)
            if number == 0:
                nested += [folder for info in page if (folder := nested_folder(info.path)) is not None]
            progress(count)
    own = stores[-1].root.removeprefix(f"{stores[0].root}/") + "/"
    for folder in nested:
        index.leave_out(folder)
        if folder != own:
            problem = "this folder is another root or a backup; it was not verified, and no sweep enters it"
            yield Problem(folder, problem, "move it out of this root", Severity.WARNING)
    for container, objects in sorted(earlier.items()):
        problem = f"{objects} objects belong to an earlier log of this container, from before a recovery or restore"
        remedy = (
            "run `gc`, which deletes them once they are a day old; in a separate root of the log, delete them by hand"
        )
        yield Problem(f"{container_folder(container)}/", problem, remedy, Severity.WARNING)


def _is_ours(store: Store, path: str) -> bool:
    """Whether this project may have created an object. Below `_system/` unknown names are foreign; elsewhere are
    chunks."""
    if path.startswith(SYSTEM) and place_of(path) is None:
        store.pass_over(path, "this project creates no object of such a name")
        return False
    return True


def _take(page: Sequence[ObjectInfo], containers: Sequence[int], index: ObjectIndex, is_log: bool) -> Counter[int]:
    """Add objects to the index. Returns how many belong to an earlier generation of each container."""
    frames, chunks = [], []
    earlier: Counter[int] = Counter()
    for info in page:
        place, number = place_of(info.path) or (None, 0)
        if number < len(containers) and is_earlier(info.path, containers[number]):
            index.count(number, "log", info.size)
            earlier[number] += 1
        elif place is SystemPlace.LOG and number < len(containers):
            index.count(number, "log", info.size)
            frames.append(info)
        elif place is SystemPlace.RECOVERY_POINT and number < len(containers) and not is_log:
            index.count(number, "recovery_points", info.size)
        elif place is not SystemPlace.ROOT and not is_log:
            chunks.append(info)
    index.met(True, frames)
    index.met(False, chunks)
    return earlier


def foreign_problems(stores: Sequence[Store]) -> Iterator[Problem]:
    """The foreign objects among all that were listed so far."""
    for store in stores:
        for name, what in sorted(store.passed_over().items()):
            yield Problem(
                name,
                f"it is a foreign object: {what}",
                "none needed; remove it if you do not need it",
                Severity.FOREIGN,
            )


def missing_problems(container: Container, index: ObjectIndex, cycle: int) -> Iterator[Problem]:
    """The missing objects that a container still names. cycle: the one whose recovery point was scanned."""
    for batch in index.missing(container.number):
        state = container.refresh()
        lengths = _needed(container, state, batch, cycle)
        for found in batch:
            path = found.expected.path
            if path not in lengths:
                continue  # no longer named
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
    """The objects that the state names, and how many bytes it needs of each."""
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
    """The length of a chunk by its record; `length` if the record cannot be read, which is reported elsewhere."""
    try:
        record = decode(data)
    except InvalidData:
        return length
    return record.length if isinstance(record, ChunkRecord) else length


def _recovery_point_of(container: Container) -> int:
    """The number of the newest recovery point, 0 if there is no readable one."""
    try:
        recovery_point = newest_recovery_point(container)
    except DataCorruption:
        return 0
    return recovery_point.number if recovery_point is not None else 0


def _records_of(container: Container, state: State, paths: Sequence[str]) -> Mapping[str, Entry | None] | None:
    """The entries of chunks in the table of records; None if that table is damaged."""
    try:
        return container.entries(STORAGE, paths, state) if paths else {}
    except DataCorruption:
        return None


def _frames_of(container: Container, state: State) -> dict[str, int]:
    """The frames that segments need, and how many bytes of each."""
    needed: dict[str, int] = {}
    for segment in state.logged():
        for _, extent in segment.extents:
            if isinstance(extent.source, FrameRef):
                path = frame_path(container.number, extent.source.address)
                end = extent.source.start + extent.position + extent.length
                needed[path] = max(needed.get(path, 0), end)
    return needed


def settle_others(containers: Sequence[Container], index: ObjectIndex) -> None:
    """Assign objects to containers that were created, or became garbage, after the scan."""
    for paths in index.others():
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
                index.known(path, container.number, kind)
                left.discard(path)
        for path in left:
            try:
                containers[0].stores.chunks.stat(path)
            except ObjectNotFound:
                index.not_there(path)
