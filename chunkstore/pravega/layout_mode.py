"""Whether a root is in the old layout (headers, see `rolling`) or the new one, and the way between them.

| mode | layout | segments are |
|---|---|---|
| NO_UPGRADE | old | left to old code; nothing here opens them |
| CODE_ONLY_UPGRADE | old | adopted when they are met; headers are kept up to date, so old code can come back |
| LAYOUT_UPGRADE | new | adopted when they are met; their headers go |
| INSTALL_NEW | new | all new; nothing is adopted |

The mode is kept with the root, in numbered objects; the one with the highest number counts. Each is created by
`put_if_absent` under the next number: of two processes that change the mode at once, one fails, reads what the other
chose, and decides again. The invariant: behind a mode of the new layout there is never one of the old.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator
from typing import NamedTuple

from chunkstore.errors import ObjectNotFound, PutUnknown, StorageRefused
from chunkstore.metadata.garbage_queue import GarbageQueue
from chunkstore.metadata.metadata_records import RecordStatus
from chunkstore.metadata.store import MetadataStore, MetadataTransaction, WithOperations
from chunkstore.numbered import list_numbered
from chunkstore.paths import LAYOUTS
from chunkstore.port import TOKEN, Outcome, Store
from chunkstore.pravega.rolling import LegacySegments
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig

_ATTEMPTS = 100


class LayoutMode(enum.Enum):
    """How the segments of a root are laid out; see the table above."""

    NO_UPGRADE = "no_upgrade"
    CODE_ONLY_UPGRADE = "code_only_upgrade"
    LAYOUT_UPGRADE = "layout_upgrade"
    INSTALL_NEW = "install_new"

    @property
    def is_new_layout(self) -> bool:
        """Whether segments are written in the new layout only, which cannot be undone."""
        return self in (LayoutMode.LAYOUT_UPGRADE, LayoutMode.INSTALL_NEW)


_NEXT: dict[LayoutMode | None, frozenset[LayoutMode]] = {
    None: frozenset(LayoutMode),
    LayoutMode.NO_UPGRADE: frozenset({LayoutMode.CODE_ONLY_UPGRADE}),
    LayoutMode.CODE_ONLY_UPGRADE: frozenset({LayoutMode.NO_UPGRADE, LayoutMode.LAYOUT_UPGRADE}),
    LayoutMode.LAYOUT_UPGRADE: frozenset(),
    LayoutMode.INSTALL_NEW: frozenset(),
}


def layout_mode(store: Store) -> LayoutMode | None:
    """The mode of the root, None if none was ever set. Raises StorageRefused for one that a newer version set."""
    return _newest(store)[1]


def set_layout_mode(store: Store, mode: LayoutMode) -> None:
    """Set the mode of the root; nothing happens if it is that already.

    Raises StorageRefused for a way that does not exist: back from the new layout, or past CODE_ONLY_UPGRADE; and
    PutUnknown, after which it may be set again.
    """
    data = os.urandom(TOKEN) + mode.value.encode()
    for _ in range(_ATTEMPTS):
        number, current = _newest(store)
        if current is mode:
            return
        if mode not in _NEXT[current]:
            raise StorageRefused(f"{store.root}: {_refusal(current, mode)}")
        if store.put_if_absent(f"{LAYOUTS}{number + 1:020d}", data) is Outcome.MINE:
            return
    raise PutUnknown(f"{store.root}: others keep changing the layout mode: try again")


def _newest(store: Store) -> tuple[int, LayoutMode | None]:
    found = list_numbered(store, LAYOUTS)
    if not found:
        return 0, None
    path = found[-1].path
    try:
        value = store.read(path)[TOKEN:].decode()
        return int(path.removeprefix(LAYOUTS)), LayoutMode(value)
    except ObjectNotFound:
        raise StorageRefused(f"{store.root}: the layout mode {path!r} is listed but absent: restore it") from None
    except ValueError:
        raise StorageRefused(f"{store.root}: {path!r} holds no layout mode known here: use a newer version") from None


def _refusal(current: LayoutMode | None, mode: LayoutMode) -> str:
    assert current is not None
    if current.is_new_layout:
        why = "the new layout cannot be left" if not mode.is_new_layout else "it is in the new layout already"
        return f"layout mode {current.name} cannot become {mode.name}: {why}"
    steps = ", ".join(step.name for step in LayoutMode if step in _NEXT[current])
    return f"layout mode {current.name} cannot become {mode.name}: only {steps}"


def open_segments(
    chunks: Store,
    metadata: MetadataStore,
    garbage: GarbageQueue,
    epoch: int,
    config: SegmentStorageConfig | None = None,
) -> ChunkedSegmentStorage:
    """The segments of a root as its mode wants them; without one it is new. Raises StorageRefused for NO_UPGRADE."""
    mode = layout_mode(chunks) or LayoutMode.INSTALL_NEW
    match mode:
        case LayoutMode.NO_UPGRADE:
            raise StorageRefused(
                f"{chunks.root}: its segments are left to old code by layout mode NO_UPGRADE: "
                "stop that, and set CODE_ONLY_UPGRADE"
            )
        case LayoutMode.CODE_ONLY_UPGRADE:
            return OldLayoutStorage(chunks, metadata, garbage, epoch, config)
        case LayoutMode.LAYOUT_UPGRADE:
            legacy = LegacySegments(chunks, metadata, keep_headers=False)
            return ChunkedSegmentStorage(chunks, metadata, garbage, epoch, config, adopter=legacy.adopt)
        case LayoutMode.INSTALL_NEW:
            return ChunkedSegmentStorage(chunks, metadata, garbage, epoch, config)


class OldLayoutStorage(ChunkedSegmentStorage):
    """Segments whose headers are kept as old code writes them (CODE_ONLY_UPGRADE).

    A header is written after the commit that changed its segment, and before the change is acknowledged; the next
    change makes good what a crash in between left undone.
    """

    def __init__(
        self,
        chunks: Store,
        metadata: MetadataStore,
        garbage: GarbageQueue,
        epoch: int,
        config: SegmentStorageConfig | None = None,
    ) -> None:
        self._legacy = LegacySegments(chunks, metadata, keep_headers=True)
        self._written: dict[str, _Written] = {}
        super().__init__(chunks, metadata, garbage, epoch, config, adopter=self._legacy.adopt)

    @contextlib.contextmanager
    def _changing(self, *segments: str, with_operations: WithOperations = ()) -> Iterator[MetadataTransaction]:
        with super()._changing(*segments, with_operations=with_operations) as transaction:
            yield transaction
            for segment in segments:
                self._keep_header(segment)

    def _keep_header(self, segment: str) -> None:
        with self._metadata.begin(read_only=True) as transaction:
            record = transaction.segment(segment)
        if record is None or not record.status & RecordStatus.ACTIVE:
            self._written.pop(segment, None)
            self._legacy.delete_header(segment)
        else:
            sealed = bool(record.status & RecordStatus.SEALED)
            now = _Written(record.first_chunk, record.last_chunk, record.chunk_count, sealed)
            if self._written.get(segment) != now:
                self._written.pop(segment, None)
                self._legacy.export_header(segment)
                self._written[segment] = now


class _Written(NamedTuple):
    """What a header depends on, as it was when it was written."""

    first_chunk: str | None
    last_chunk: str | None
    chunk_count: int
    sealed: bool
