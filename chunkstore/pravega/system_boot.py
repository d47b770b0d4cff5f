"""Where the system segments of an archive are, by the newest epoch's snapshot and journals of each container (PDP-34).

It is the boot of `journal.SystemJournal` for an archive that no process writes to any more: no record is skipped. Of
the journals that follow the snapshot none may be missing, and each record must continue what is there. Pravega's
snapshots have no checksum, and which one counts is mostly in the log that is gone; so the newest one counts, which is
right because it is written whole before anything builds on it.

A server that was killed leaves more, and its own boot accepts that (Pravega: SystemJournal.bootstrap), so it is no
damage here:

- A snapshot or a batch at the end of a journal of which only a part was written. The part is passed over.
- A system segment whose chunks have more than the journal knows: they are written first. Where a segment is written
  atomically, what the journal knows is its end. In older segments the last chunk's size is.

Pravega changes the system segments of a container one after the other. So at most one of them is ahead of the journal;
if several are, journals are lost, and only salvaging goes by those that are left.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.decoding import InvalidData, decoding
from chunkstore.errors import InvalidRecord, fact_of
from chunkstore.metadata.metadata_records import ChunkRecord, RecordStatus, StoredSegmentRecord
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
from chunkstore.pravega.made_chunks import MadeChunk, made_chunk
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.segments.system_changes import Appended

_JOURNALS = f"{CONTAINERS}_sysjournal."


class _Files(NamedTuple):
    """The snapshots and journals of a container, from old to new."""

    snapshots: list[JournalFile]
    journals: list[JournalFile]


def boot(source: Source, findings: list[str], *, salvage: bool = False) -> dict[int, dict[str, SegmentSnapshot]]:
    """The system segments of each container, by their names. Empty where there is no system journal.

    findings: gets, in words, what is not used because no journal knows it. salvage: go by the journals that are there
    if the end of one seems to be lost. Raises ArchiveDamaged, and what the store raises.
    """
    files = _files(source)
    return {
        container: _Boot(source, container, files[container], findings, salvage).segments()
        for container in sorted(files)
    }


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

    def __init__(self, source: Source, container: int, files: _Files, findings: list[str], salvage: bool) -> None:
        self._source = source
        self._findings = findings
        self._salvage = salvage
        self._container = container
        self._files = files
        self._layouts = SystemLayouts()
        self._atomic: set[str] = set()  # segments whose ends the journal knows
        self._passed_over: ArchiveDamaged | None = None  # why the newest snapshot cannot be read

    def segments(self) -> dict[str, SegmentSnapshot]:
        """The records of its system segments."""
        try:
            return self._replayed()
        except ArchiveDamaged:
            if self._passed_over is not None:  # it counted, as nothing leads here without it
                raise self._passed_over from None
            raise

    def _replayed(self) -> dict[str, SegmentSnapshot]:
        epoch, number = self._begin()
        for file in self._following(epoch, number):
            for record in self._records(file):
                self._apply(file, record)
        for name in system_segments(self._container):
            self._adjust(name)
        self._layouts.drop_empty_chunks()
        try:
            found = {each.segment.name: each for each in self._layouts.snapshots(epoch)}
        except InvalidRecord as error:
            raise self._source.damaged(self._last_name(), error) from error
        for name in system_segments(self._container):
            if name not in found:
                raise self._source.damaged(self._last_name(), f"it knows nothing of {name!r}")
        self._check_chunks(found)
        if self._passed_over is not None:
            self._findings.append(f"{fact_of(self._passed_over)}: not used, as the journals lead on without it")
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
        for file in reversed(self._files.snapshots):
            try:
                with decoding(functools.partial(self._source.damaged, file.name)):
                    snapshot, _ = decode_snapshot(self._source.read(file.name))
                    if snapshot.epoch != file.epoch:
                        raise InvalidData(f"it says that it is of epoch {snapshot.epoch}")
            except ArchiveDamaged as error:
                self._passed_over = self._passed_over or error
                if file is self._files.snapshots[0]:
                    raise
                continue
            self._check_info(file)
            self._apply(file, snapshot)
            return snapshot.epoch, snapshot.file_index
        raise self._source.damaged(self._last_name(), "there is no snapshot before it to begin with")

    def _first_of_newest_epoch(self) -> JournalFile | None:
        if not self._files.journals:
            return None
        name = journal_name(self._container, self._files.journals[-1].epoch, 1)
        return next((file for file in self._files.journals if file.name == name), None)

    def _apply(self, file: JournalFile, record: JournalRecord) -> None:
        with decoding(functools.partial(self._source.damaged, file.name)):
            if not self._layouts.apply(record, 0):
                raise InvalidData(f"{record} does not continue what is there: a journal before it is missing")
        match record:
            case Appended():
                self._atomic.add(record.segment)
            case SegmentSnapshot() if record.segment.status & RecordStatus.ATOMIC_WRITES:
                self._atomic.add(record.segment.name)
            case JournalSnapshot():
                for each in record.segments:
                    if each.segment.status & RecordStatus.ATOMIC_WRITES:
                        self._atomic.add(each.segment.name)

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
        with decoding(functools.partial(self._source.damaged, file.name)):
            for batch in decode_batches(data):
                yield from batch

    def _last_name(self) -> str:
        last = self._files.journals or self._files.snapshots
        return last[-1].name

    def _adjust(self, name: str) -> None:
        """Make the last chunk as long as its object, as Pravega's boot does, if the journal does not know its end.

        (Pravega: SystemJournal.adjustLastChunkLengths)
        """
        chunk = self._layouts.last_chunk(name)
        size = self._source.size(chunk.name) if chunk is not None and name not in self._atomic else None
        if chunk is not None and size is not None and size > chunk.length:
            self._layouts.apply(Appended(name, chunk.name, chunk.length, size - chunk.length), 0)

    def _check_chunks(self, found: dict[str, SegmentSnapshot]) -> None:
        """Check that no chunk is behind the journal, and that one segment at most is ahead of it."""
        ahead: dict[str, list[tuple[MadeChunk | None, str]]] = {}
        for name, (segment, chunks) in found.items():
            for chunk in chunks:
                size = self._source.size(chunk.name)
                if size is None or size < chunk.length:
                    has = "is missing" if size is None else f"has {size} bytes"
                    raise self._source.damaged(chunk.name, f"it {has}; {chunk.length} are due by the system journal")
            ahead[name] = list(self._unknown(segment, chunks))
        texts = [text for unknown in ahead.values() for _, text in unknown]
        newest = (self._files.journals or self._files.snapshots)[-1].epoch
        # What an older owner left is no concern of the journal of a later one.
        under_way = [
            name for name, unknown in ahead.items() if any(made is None or made.epoch >= newest for made, _ in unknown)
        ]
        if len(under_way) > 1 and not self._salvage:
            raise self._source.damaged(
                self._last_name(),
                f"its end or a journal after it is missing, as it does not know what is in {len(under_way)} system "
                f"segments, and a server writes one at a time: {'; '.join(texts)}",
            )
        self._findings += texts

    def _unknown(
        self, segment: StoredSegmentRecord, chunks: Sequence[ChunkRecord]
    ) -> Iterator[tuple[MadeChunk | None, str]]:
        """What a system segment has that no journal knows: chunks, and in words how much of them."""
        left_out = "the server was stopped before it recorded the rest, which is not used"
        last = made_chunk(chunks[-1].name) if chunks else None
        if chunks and (size := self._source.size(chunks[-1].name) or 0) > chunks[-1].length:
            known = chunks[-1].length
            yield last, f"{chunks[-1].name!r}: it has {size} bytes, and the system journal knows {known}: {left_out}"
        known_names = {chunk.name for chunk in chunks}
        for name in self._source.names(f"{segment.name}.E-"):
            made = made_chunk(name)
            if made is None or name in known_names or made.segment != segment.name or not self._source.size(name):
                continue
            if made.offset >= segment.length and made.epoch >= (last.epoch if last is not None else 0):
                yield made, f"{name!r}: the system journal does not know it: {left_out}"
