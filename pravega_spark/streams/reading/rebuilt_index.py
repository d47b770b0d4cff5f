"""Rebuilt indexes, for segments that were stored without one, as in the long-term storage of a Pravega.

The first reader that reads a whole segment builds its index from the events, and saves it in a cache. The cache is a
separate folder that may be deleted at any time, never part of the storage that is read. An incomplete index, or one
of other objects, is not used. Times are not known: all records have UNKNOWN_TIME.
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
"""The environment variable with the location of the cache: a folder or a URL, or "" for none."""

_FORMAT = 1
_CHECKSUM = 4


class RebuiltIndex(Segment):
    """An index segment that is built when its `length` or its content is first used.

    Made by `of`. key: of the cache entry.
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
        """The index called `name`. known: returns its content if that needs no reading; made: builds it if needed."""
        index = cls(name, 0, 0, 0, False, 0, 0, immutables.Map(attributes), Extents())
        index.key, index._known, index._made = key, known, made
        return index

    @property
    def is_built(self) -> bool:
        """Whether it is built already."""
        return self._known() is not None

    @property
    def length(self) -> int:
        return len(self._made())

    def content(self, start: int, end: int) -> bytes:
        """Its bytes [start, end)."""
        return self._made()[start:end]


class CountedSegment(Segment):
    """A segment whose event count is known once its index is built."""

    _count: Callable[[], int]

    @classmethod
    def of(cls, segment: Segment, count: Callable[[], int]) -> CountedSegment:
        """The segment with this event count; -1: a byte stream without events."""
        counted = cls(*segment)
        counted._count = count
        return counted

    @property
    def attributes(self) -> immutables.Map[bytes, int]:
        return immutables.Map({EVENT_COUNT: self._count()})


class IndexCache:
    """The cache of rebuilt indexes. Its errors are logged once, and cost only time."""

    def __init__(self, place: str | None = None) -> None:
        """place: a folder or a URL; "" for none; None: by CACHE_VARIABLE, else the user's cache folder."""
        self._place = cache_location() if place is None else place
        self._store: Store | None = None
        self._warned = False

    def load(self, key: str) -> bytes | None:
        """The records saved under a key; None if there are none, or they are damaged."""
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
        """Save records under a key."""
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
    """A cache object: a checksum, then the records."""
    return crc32c(records).to_bytes(_CHECKSUM, "big") + records


def decode_cached(data: bytes) -> bytes:
    """The records of a cache object. Raises InvalidIndex if they are damaged."""
    records = data[_CHECKSUM:]
    if len(data) < _CHECKSUM or data != encode_cached(records):
        raise InvalidIndex("its checksum is another")
    found = decode_records(records)
    if (found < 0).any() or (found[1:, :2] <= found[:-1, :2]).any():
        raise InvalidIndex("its offsets or counts do not ascend")
    return records


def cache_location() -> str:
    """The location of the cache: "" for none."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return given
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return str(Path(home) / "pravega-spark" / "indexes") if os.path.isabs(home) else ""


def key_of(place: str, segment: str, bounds: tuple[int, int], objects: Iterable[tuple[str, int, int, float]]) -> str:
    """The cache key of a segment's index. It changes if a listing shows any change of the objects."""
    told = repr((_FORMAT, SPACING, place, segment, bounds, *objects))
    return hashlib.sha256(told.encode()).hexdigest()


def _path(key: str) -> str:
    return f"{key[:2]}/{key}"
