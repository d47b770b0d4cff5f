"""Everything of ours lies below `_system` (P1), where no name that a user may give leads."""

from __future__ import annotations

import pytest

from chunkstore.paths import BACKUP, RESTORING, ROOT, SELF_TESTS, SYSTEM, TEMPORARY, SystemPlace, place_of, tables_path
from engine.logs.log import checkpoint_path, frame_path
from engine.storage import recovery_points

UNIQUE = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (frame_path(3, 7), (SystemPlace.LOG, 3)),
        (checkpoint_path(12, 7), (SystemPlace.LOG, 12)),
        (f"{recovery_points.folder(2)}{1:020d}", (SystemPlace.RECOVERY_POINT, 2)),
        (tables_path(1, 4, 17, UNIQUE), (SystemPlace.TABLES, 1)),
        (ROOT, (SystemPlace.ROOT, -1)),
        (BACKUP, (SystemPlace.ROOT, -1)),
        (RESTORING, (SystemPlace.ROOT, -1)),
        (f"{SELF_TESTS}x/y", (SystemPlace.ROOT, -1)),
        (f"{TEMPORARY}/1-2-3", (SystemPlace.ROOT, -1)),
    ],
)
def test_what_is_ours_lies_in_one_folder_and_is_known_by_its_place(path: str, place: tuple[SystemPlace, int]) -> None:
    assert path.startswith(SYSTEM)
    assert place_of(path) == place
    assert place_of(f"scope/{path}") is None


@pytest.mark.parametrize(
    "path",
    [
        "containers/0/wal/00000000000000000001",  # a stream of scope "containers"
        "pravega.json/s/0.#epoch.0",
        ".tmp/s/0.#epoch.0",
        f"scope/stream/0.#epoch.0.E-1-O-0.{UNIQUE}",
        "_system/notes",
        "_system/containers/0/wal/1",
        "_system/containers/0/wal/0000000000000000000١",
        "_system/containers/٣/wal/00000000000000000001",
        f"{frame_path(0, 1)} (conflicted copy)",
        f"{tables_path(0, 1, 1, UNIQUE)}.bak",
    ],
)
def test_what_is_not_ours_is_not_taken_for_it(path: str) -> None:
    assert place_of(path) is None
