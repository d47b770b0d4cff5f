"""Rebuilt indexes: those of segments that were stored without one, as all in the long-term storage of a Pravega are.

An index is built from the events themselves, by the first reader that reads a segment from its head to its end, and
kept in a cache: a folder of its own, which may be deleted at any time and is never in the storage that is read. One
that is not whole, or that was built from other objects, is not used. Times are not known: all records have
UNKNOWN_TIME.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import immutables

from chunkstore import ObjectNotFound, StorageError, Store, open_store
from chunkstore.checksums import crc32c
from engine.state.segments import EVENT_COUNT, Extents, Segment
from pravega_spark.streams.model.index import SPACING, InvalidIndex, decode_records

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "PRAVEGA_INDEX_CACHE"
"""The environment variable that says where indexes are kept: a folder or a URL, or "" for nowhere."""

_FORMAT = 1
_CHECKSUM = 4


class RebuiltIndex(Segment):
    """The segment with the index of another one, which is made when its `length` or its content is first asked for.

    Made by `of`. key: under which the cache has it.
    """

    key: str
    _known: Callable[[], bytes | None]
    _made: Callable[[], bytes]

    @classmethod
    def of(
        cls,
        name: str,
        key: str,
        known: Callable[[], bytes | None],
        made: Callable[[], bytes],
        attributes: Mapping[bytes, int] = MappingProxyType({}),
    ) -> RebuiltIndex:
        """The index called `name`. known: gives its content if nothing has to be read for it; made: in any case."""
        index = cls(name, 0, 0, 0, False, 0, 0, immutables.Map(attributes), Extents())
        index.key, index._known, index._made = key, known, made
        return index

    @property
    def is_built(self) -> bool:
        """Whether it is made already."""
        return self._known() is not None

    @property
    def length(self) -> int:
        return len(self._made())

    def content(self, start: int, end: int) -> bytes:
        """Its bytes [start, end)."""
        return self._made()[start:end]


class CountedSegment(Segment):
    """A segment of which the number of events is known when its index is made."""

    _count: Callable[[], int]

    @classmethod
    def of(cls, segment: Segment, count: Callable[[], int]) -> CountedSegment:
        """The segment, with as many events as `count` says; -1: it has none, but bytes."""
        counted = cls(*segment)
        counted._count = count
        return counted

    @property
    def attributes(self) -> immutables.Map[bytes, int]:
        return immutables.Map({EVENT_COUNT: self._count()})


class IndexCache:
    """Where made indexes are kept. What goes wrong with it is logged once, and costs time only."""

    def __init__(self, place: str | None = None) -> None:
        """place: a folder or a URL; "" keeps nothing; None: what CACHE_VARIABLE says, else the user's cache folder."""
        self._place = cache_location() if place is None else place
        self._store: Store | None = None
        self._warned = False

    def load(self, key: str) -> bytes | None:
        """The records that were saved under a key; None if there are none, or not as they were."""
        if not self._place:
            return None
        try:
            data = self._opened().read(_path(key))
        except ObjectNotFound:
            return None
        except StorageError as error:
            self._warn_once(error)
            return None
        try:
            return decode_cached(data)
        except InvalidIndex:
            return None

    def save(self, key: str, records: bytes) -> None:
        """Keep records under a key."""
        if not self._place:
            return
        try:
            self._opened().put(_path(key), encode_cached(records))
        except StorageError as error:
            self._warn_once(error)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._place)
        return self._store

    def _warn_once(self, error: StorageError) -> None:
        if not self._warned:
            logger.warning("indexes of segments are not kept in %s: %s", self._place, str(error))
            self._warned = True


def encode_cached(records: bytes) -> bytes:
    """An object of the cache: the records behind their checksum."""
    return crc32c(records).to_bytes(_CHECKSUM, "big") + records


def decode_cached(data: bytes) -> bytes:
    """The records in an object of the cache. Raises InvalidIndex unless they are as they were, and can be searched."""
    records = data[_CHECKSUM:]
    if len(data) < _CHECKSUM or data != encode_cached(records):
        raise InvalidIndex("its checksum is another")
    found = decode_records(records)
    if (found < 0).any() or (found[1:, :2] <= found[:-1, :2]).any():
        raise InvalidIndex("its offsets or counts do not ascend")
    return records


def cache_location() -> str:
    """Where indexes are kept: "" for nowhere."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return given
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return str(Path(home) / "pravega-spark" / "indexes") if os.path.isabs(home) else ""


def key_of(place: str, segment: str, bounds: tuple[int, int], objects: Iterable[tuple[str, int, int, float]]) -> str:
    """The key of a segment's index: it is another one if anything of the objects is, as far as a listing tells."""
    told = repr((_FORMAT, SPACING, place, segment, bounds, *objects))
    return hashlib.sha256(told.encode()).hexdigest()


def _path(key: str) -> str:
    return f"{key[:2]}/{key}"
