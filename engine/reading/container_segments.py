"""Reading the segments of a container: properties, attributes, and bytes (Pravega: StreamSegmentStore).

What is not in memory is looked up in LTS. Every process reads the same from a state and the storage (S1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from chunkstore import ObjectNotFound
from engine.errors import DataCorruption, ObjectLost, SegmentNotFound
from engine.logs.durable_log import DurableLog
from engine.reading.table_store import TableStore
from engine.state.segment_record import decode_segment
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import ATTRIBUTES, METADATA, Entry, attribute_key, stored_attribute
from engine.storage.cache import Cache
from engine.storage.lookups import Lookups
from engine.storage.object_reads import ObjectRange, Stores, fetch_through, measured, plan


class ContainerSegments:
    """The segments of one container. Thread-safe. cache: of blocks that were read."""

    def __init__(self, stores: Stores, log: DurableLog, lookups: Lookups, tables: TableStore, cache: Cache) -> None:
        self._stores = stores
        self._log = log
        self._lookups = lookups
        self._tables = tables
        self._cache = cache

    # --- properties ----------------------------------------------------------------------------------------------

    def infos(self, segments: Collection[str]) -> dict[str, Segment | None]:
        """The newest properties of segments; None for those that do not exist."""
        return self.activated(segments, self._log.refresh())

    def info(self, segment: str) -> Segment:
        """The newest properties of a segment. Raises SegmentNotFound."""
        return _existing(segment, self.infos([segment])[segment])

    def activated(self, segments: Collection[str], state: State | None = None) -> dict[str, Segment | None]:
        """Segments by name, as of `state` or the state that this process knows. Inactive ones are looked up."""
        return self._tables.looked_up(lambda state: self._found(segments, state), state)

    def known(self, segment: str) -> Segment:
        """The properties of a segment, as this process knows them. Raises SegmentNotFound."""
        return _existing(segment, self.activated([segment])[segment])

    def _found(self, segments: Collection[str], state: State) -> dict[str, Segment | None]:
        found: dict[str, Segment | None] = {}
        idle = []
        for name in segments:
            found[name] = state.segments.get(name)
            if found[name] is None:
                idle.append(name)
        for name, entry in self._lookups.entries(state, METADATA, idle).items() if idle else ():
            if entry is not None and entry.value is not None:
                found[name] = decode_segment(entry.value, entry.version, name)
        return found

    def attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """Attributes of a segment, as this process knows them: those of the given ones that it has, or all. Raises
        SegmentNotFound."""
        info = self.known(segment)
        found = dict(info.attributes)
        if info.spilled:
            found = self._spilled(info, attributes) | found
        return found if attributes is None else {key: found[key] for key in attributes if key in found}

    def _spilled(self, segment: Segment, attributes: Collection[bytes] | None) -> dict[bytes, int]:
        """A segment's attributes in the table of attributes."""
        prefix = attribute_key(segment.id, b"")
        entries: Iterable[tuple[str, Entry | None]] = (
            self._tables.scan(ATTRIBUTES, prefix)
            if attributes is None
            else self._tables.entries(ATTRIBUTES, [attribute_key(segment.id, key) for key in attributes]).items()
        )
        return dict(
            stored_attribute(key, entry.value)
            for key, entry in entries
            if entry is not None and entry.value is not None
        )

    # --- bytes ---------------------------------------------------------------------------------------------------

    def plan(self, segment: str, start: int, end: int) -> list[ObjectRange]:
        """The object ranges of `[start, end)`, as of the state that this process knows (see `object_reads.plan`)."""
        return self.plan_of(self.known(segment), start, end)

    def plan_of(self, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        """The object ranges of `[start, end)` of a segment with these properties."""
        return plan(segment, self._log.number, start, end, self._stored)

    def _stored(self, storage: str, start: int, end: int) -> list[ObjectRange]:
        return self._tables.looked_up(lambda state: self._lookups.pieces(state, storage, start, end))

    def read(self, segment: str, start: int, end: int) -> bytes:
        """The bytes `[start, end)` of a segment. Bytes that were moved meanwhile are read at their new place.

        Raises SegmentNotFound, SegmentTruncated, BadOffset, DataCorruption.
        """
        self._log.owner.check()
        known = self._log.state.segments.get(segment)
        if known is None or not known.start_offset <= start <= end <= known.length:
            self._log.refresh()  # a rejection must be based on a state that is no older than the call (W11)
        while True:
            pieces = self.plan(segment, start, end)
            try:
                parts = measured(partial(fetch_through, self._stores, pieces, self._cache))
                return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
            except (ObjectNotFound, DataCorruption) as error:
                self._log.refresh()
                if self.plan(segment, start, end) == pieces:
                    raise (error if isinstance(error, DataCorruption) else ObjectLost(str(error))) from error


def _existing(name: str, segment: Segment | None) -> Segment:
    if segment is None:
        raise SegmentNotFound(name)
    return segment
