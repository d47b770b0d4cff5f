"""Orphans: chunks, journals and deleted segments that no metadata and no queue names, found by looking at everything.

Normally there are few: chunks that tasks wrote and nobody attached, requests that arrived after their sender gave up.
The sweep deletes nothing itself. It queues what it finds, and the collector looks again before it deletes (G1). As it
would find everything if it looked at the wrong metadata, it stops when it finds implausibly much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from chunkstore.chunk_names import made_for
from chunkstore.chunks import ChunkInfo, ChunkStorage
from chunkstore.errors import StorageError
from chunkstore.garbage import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata_store import MetadataStore
from chunkstore.records import ChunkRecord, SegmentRecord, Status

_PAGE = 1000
_JOURNALS = "_system/containers/"
_JOURNAL_NAME = "_system/containers/_sysjournal."


class ImplausibleSweep(StorageError):
    """A sweep found a share of orphans that is hardly true. It queued nothing."""


@dataclass(frozen=True)
class SweepReport:
    """What a sweep found: how many chunks and journals it looked at, orphans among them, leftover deleted segments."""

    examined: int
    orphans: tuple[str, ...]
    orphan_bytes: int
    deleted_segments: tuple[str, ...]


class OrphanSweep:
    """Looks through the folder `prefix` ("a/b/", "" = all) of a storage for what belongs to nothing in `metadata`.

    `metadata` must be of *all* containers that have chunks there. `is_needed` tells of a journal or snapshot whether a
    boot may read it; without it these are left alone. Nothing younger than `age` seconds is touched, which must be
    longer than a task may take from its first chunk to its commit.
    """

    def __init__(
        self,
        chunks: ChunkStorage,
        metadata: Sequence[MetadataStore],
        queue: GarbageQueue,
        *,
        prefix: str = "",
        age: float = 86_400.0,
        is_needed: Callable[[str], bool] | None = None,
    ) -> None:
        self._chunks = chunks
        self._metadata = metadata
        self._queue = queue
        self._prefix = prefix
        self._age = age
        self._is_needed = is_needed

    def run(self, now: float | None = None, *, plausible_share: float = 0.2) -> SweepReport:
        """Queue all orphans for the collector. `now` is by the storage's clock (epoch s).

        Raises ImplausibleSweep if more than `plausible_share` (0 to 1) of what was looked at would go.
        """
        now = time.time() if now is None else now
        report = self.find(now)
        if report.examined and len(report.orphans) > plausible_share * report.examined:
            raise ImplausibleSweep(
                f"{self._chunks.store.root}: {len(report.orphans)} of {report.examined} chunks and journals belong to "
                f"nothing, such as {report.orphans[0]!r}; at most {plausible_share:.0%} are plausible: make sure that "
                "the metadata of all containers is there, and run again with a higher plausible_share"
            )
        self._queue.add([_task(name, now) for name in report.orphans])
        self._queue.add([GarbageTask(name, now, kind=GarbageKind.SEGMENT) for name in report.deleted_segments])
        return report

    def find(self, now: float | None = None) -> SweepReport:
        """What there is to collect, without queueing it."""
        now = time.time() if now is None else now
        # What is stored first and the metadata after: a chunk that is committed in between is not taken for an orphan.
        found = list(self._candidates())
        live: set[str] = set()
        deleted = []
        for metadata in self._metadata:
            for key, record in metadata.records():
                if isinstance(record, ChunkRecord):
                    live.add(key)
                elif isinstance(record, SegmentRecord) and not record.status & Status.ACTIVE:
                    deleted.append(record.name)
        orphans = [info for info in found if info.modified < now - self._age and not self._is_live(info.name, live)]
        total = sum(info.length for info in orphans)
        return SweepReport(len(found), tuple(info.name for info in orphans), total, tuple(deleted))

    def _candidates(self) -> Iterator[ChunkInfo]:
        """Everything that is a chunk or a journal by its name."""
        for info in self._listed(self._prefix):
            if made_for(info.name) is not None or self._is_journal(info.name):
                yield info
        if self._prefix and self._is_needed is not None:
            yield from (info for info in self._listed(_JOURNALS) if self._is_journal(info.name))

    def _listed(self, prefix: str) -> Iterable[ChunkInfo]:
        last = ""
        while page := self._chunks.list(prefix, last, _PAGE):
            yield from page
            last = page[-1].name

    def _is_journal(self, name: str) -> bool:
        return self._is_needed is not None and name.startswith(_JOURNAL_NAME)

    def _is_live(self, name: str, live: set[str]) -> bool:
        if self._is_needed is not None and name.startswith(_JOURNAL_NAME):
            return self._is_needed(name)
        return name in live


def _task(name: str, now: float) -> GarbageTask:
    segment = made_for(name)
    if segment is None:
        return GarbageTask(name, now, kind=GarbageKind.JOURNAL)
    return GarbageTask(name, now, kind=GarbageKind.NEW_CHUNK, segment=segment)
