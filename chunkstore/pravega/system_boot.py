"""Where the system segments of an archive are, by the newest epoch's snapshot and journals of each container (PDP-34).

It is the boot of `journal.SystemJournal` for an archive that no process writes to any more: no record is skipped. Of
the journals that follow the snapshot none may be missing, none may end within a batch, each record must continue what
is there, and at the end the chunks must be as long as the journal says. A server that was killed may have left chunks
that are longer, or a batch that is not whole: that looks as if the end of the journal were missing, so only
salvaging goes by what the journal says. Pravega's snapshots have no checksum, and which one counts is mostly in the log
that is gone; so the newest one counts, which is right because it is written whole before anything builds on it.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.decoding import InvalidData, decoding
from chunkstore.errors import InvalidRecord
from chunkstore.metadata.metadata_records import ChunkRecord
from chunkstore.paths import CONTAINERS
from chunkstore.pravega.journal import SystemLayouts, system_segments
from chunkstore.pravega.journal_records import (
    JournalFile,
    JournalRecord,
    JournalSnapshot,
    SegmentSnapshot,
    decode_batches,
    decode_info,
    decode_snapshot,
    journal_name,
    parse_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.pravega.source import Source

_JOURNALS = f"{CONTAINERS}_sysjournal."
_CHUNK = re.compile(r"(.+)\.E-(\d+)-O-(\d+)\.[0-9a-f-]{36}")


class _Files(NamedTuple):
    """The snapshots and journals of a container, from old to new."""

    snapshots: list[JournalFile]
    journals: list[JournalFile]


def boot(source: Source, salvaged: list[str] | None = None) -> dict[int, dict[str, SegmentSnapshot]]:
    """The system segments of each container, by their names. Empty where there is no system journal.

    salvaged: gets, in words, what lies beyond the end of a journal; without it that is an error. Raises ArchiveDamaged,
    and what the store raises.
    """
    files = _files(source)
    return {container: _Boot(source, container, files[container], salvaged).segments() for container in sorted(files)}


def _files(source: Source) -> dict[int, _Files]:
    found: dict[int, _Files] = defaultdict(lambda: _Files([], []))
    for name in source.names(_JOURNALS):
        parsed = parse_name(name)
        if parsed is not None:
            container, is_snapshot, file = parsed
            (found[container].snapshots if is_snapshot else found[container].journals).append(file)
    for container, files in found.items():
        files.snapshots.sort()
        files.journals.sort()
        if not 0 <= container < len(found):
            missing = next(number for number in range(len(found)) if number not in found)
            raise source.damaged(
                snapshot_name(missing, 1, 1), f"of container {missing} no snapshot or journal is there"
            )
    return dict(found)


class _Boot:
    """The boot of one container."""

    def __init__(self, source: Source, container: int, files: _Files, salvaged: list[str] | None) -> None:
        self._source = source
        self._salvaged = salvaged
        self._container = container
        self._files = files
        self._layouts = SystemLayouts()

    def segments(self) -> dict[str, SegmentSnapshot]:
        """The records of its system segments."""
        epoch, number = self._begin()
        for file in self._following(epoch, number):
            for record in self._records(file):
                with decoding(functools.partial(self._source.damaged, file.name)):
                    if not self._layouts.apply(record, 0):
                        raise InvalidData(f"{record} does not continue what is there: a journal before it is missing")
        self._layouts.drop_empty_chunks()
        try:
            found = {each.segment.name: each for each in self._layouts.snapshots(epoch)}
        except InvalidRecord as error:
            raise self._source.damaged(self._last_name(), error) from error
        for name in system_segments(self._container):
            if name not in found:
                raise self._source.damaged(self._last_name(), f"it knows nothing of {name!r}")
        self._check_chunks(found)
        return found

    def _begin(self) -> tuple[int, int]:
        """Apply the newest snapshot. Returns the epoch and number of the last journal file that it covers.

        A new owner writes its first snapshot into its first journal.
        """
        first = self._first_of_newest_epoch()
        newest = self._files.snapshots[-1] if self._files.snapshots else None
        if first is not None and (newest is None or newest.epoch < first.epoch):
            record = next(self._records(first), None)
            if isinstance(record, JournalSnapshot):
                self._apply(first, record)
                return first.epoch, 0  # its other records follow, and the snapshot is applied again before them
        if newest is None:
            raise self._source.damaged(self._last_name(), "there is no snapshot before it to begin with")
        with decoding(functools.partial(self._source.damaged, newest.name)):
            snapshot, _ = decode_snapshot(self._source.read(newest.name))
            if snapshot.epoch != newest.epoch:
                raise InvalidData(f"it says that it is of epoch {snapshot.epoch}")
        self._check_info(newest)
        self._apply(newest, snapshot)
        return snapshot.epoch, snapshot.file_index

    def _first_of_newest_epoch(self) -> JournalFile | None:
        if not self._files.journals:
            return None
        name = journal_name(self._container, self._files.journals[-1].epoch, 1)
        return next((file for file in self._files.journals if file.name == name), None)

    def _apply(self, file: JournalFile, snapshot: JournalSnapshot) -> None:
        with decoding(functools.partial(self._source.damaged, file.name)):
            self._layouts.apply(snapshot, 0)

    def _check_info(self, newest: JournalFile) -> None:
        """Later servers say in a file which snapshot counts: then at least that one must be there."""
        name = snapshot_info_name(self._container)
        if self._source.size(name) is None:
            return
        with decoding(functools.partial(self._source.damaged, name)):
            info = decode_info(self._source.read(name))
        if (newest.epoch, newest.number) < info:
            raise self._source.damaged(snapshot_name(self._container, *info), "it counts, but is missing")

    def _following(self, epoch: int, number: int) -> Sequence[JournalFile]:
        """The journals behind the snapshot. There is one at least, and their numbers have no gap."""
        following = [file for file in self._files.journals if (file.epoch, file.number) > (epoch, number)]
        due = epoch, number + 1
        if not following:
            raise self._source.damaged(
                journal_name(self._container, *due), "it is missing: a journal must follow the snapshot"
            )
        for file in following:
            if file.epoch > due[0]:
                due = file.epoch, 1
            if (file.epoch, file.number) != due:
                raise self._source.damaged(
                    journal_name(self._container, *due), f"it is missing, but {file.name!r}, which follows it, is there"
                )
            due = file.epoch, file.number + 1
        return following

    def _records(self, file: JournalFile) -> Iterator[JournalRecord]:
        data = self._source.read(file.name)
        is_last = file.name == self._files.journals[-1].name
        with decoding(functools.partial(self._source.damaged, file.name)):
            for batch in decode_batches(data, whole=not is_last or self._salvaged is None):
                yield from batch

    def _last_name(self) -> str:
        last = self._files.journals or self._files.snapshots
        return last[-1].name

    def _check_chunks(self, found: dict[str, SegmentSnapshot]) -> None:
        """What lies there beyond the journal's end was written after it: then some of the journal is missing."""
        for name, (segment, chunks) in found.items():
            known = {chunk.name for chunk in chunks}
            for chunk in chunks:
                size = self._source.size(chunk.name)
                if size is None or size < chunk.length:
                    has = "is missing" if size is None else f"has {size} bytes"
                    raise self._source.damaged(chunk.name, f"it {has}; {chunk.length} are due by the system journal")
            if chunks and (size := self._source.size(chunks[-1].name) or 0) > chunks[-1].length:
                self._beyond(
                    chunks[-1].name, f"it has {size} bytes, of which the system journal knows {chunks[-1].length}"
                )
            for other in self._source.names(f"{name}.E-"):
                match = _CHUNK.fullmatch(other)
                if match is None or other in known or match[1] != name or not self._source.size(other):
                    continue
                if int(match[3]) >= segment.length and int(match[2]) >= self._epoch_of(chunks):
                    self._beyond(other, "the system journal does not know it")

    def _beyond(self, name: str, problem: str) -> None:
        if self._salvaged is None:
            raise self._source.damaged(
                name,
                f"{problem}: the end of {self._last_name()!r}, or a journal behind it, is missing; or the server was "
                "stopped before it wrote it: then salvage what the journal knows",
            )
        self._salvaged.append(f"{name!r}: {problem}; left out")

    @staticmethod
    def _epoch_of(chunks: Sequence[ChunkRecord]) -> int:
        match = _CHUNK.fullmatch(chunks[-1].name) if chunks else None
        return int(match[2]) if match else 0
