"""Hashes of columns of routing keys, computed with NumPy, or cached from earlier columns.

They equal `routing.hash_key` of each key. ASCII keys never become Python objects.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.model.arrays import TEXTS, arrow_array, numpy_values
from pravega_spark.streams.model.routing import SEED, hash_key

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_ROWS_AT_ONCE = 4096  # keeps temporary arrays in the cache, and below what malloc gives back to the system at once
_SAMPLE = 4096
_UNSAMPLED = 15  # a sample costs a fifth of hashing a column of Spark's
_LONGEST_VECTORISED = 512  # bytes; a rare very long key would cost one pass over the arrays per 8 bytes


def hash_keys(keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """`hash_key` of every key of a string column, as float64; NaN where the key is null. TypeError if not strings."""
    if isinstance(keys, pa.ChunkedArray):
        return np.concatenate([hash_keys(chunk) for chunk in keys.chunks]) if keys.num_chunks else np.empty(0)
    column = _large(keys)
    return _hash_distinct(column) if _repeats(column, _sampled(column)) else _hash_each(column)


def _large(keys: pa.Array) -> pa.Array:
    if keys.type not in TEXTS:
        raise TypeError(f"column routing_key must hold strings, not {keys.type}: cast it to string")
    return keys.cast(pa.large_string())


def _sampled(keys: pa.Array) -> pa.Array:
    """The distinct keys among the first ones."""
    return pc.unique(keys[:_SAMPLE]).drop_null()


def _repeats(keys: pa.Array, sampled: pa.Array) -> bool:
    """Whether keys repeat, by a sample: then each distinct key is hashed once."""
    return len(keys) >= _SAMPLE and len(sampled) * 3 < _SAMPLE


def _hash_each(keys: pa.Array) -> np.ndarray:
    """`hash_keys` of a column of large_string, key by key."""
    if keys.null_count == len(keys):
        return np.full(len(keys), np.nan)
    starts, lengths, text = _string_parts(keys)
    ascii = text.max() < 0x80
    if ascii and not keys.null_count and lengths.max() <= _LONGEST_VECTORISED:
        return _hash_ascii(text, starts, lengths)  # nearly always
    known = numpy_values(pc.is_valid(keys))
    vectorised = known & (lengths <= _LONGEST_VECTORISED)
    if not ascii:
        vectorised &= numpy_values(pc.string_is_ascii(keys))
    fractions = np.full(len(keys), np.nan)
    fractions[vectorised] = _hash_ascii(text, starts[vectorised], lengths[vectorised])
    others = np.flatnonzero(known & ~vectorised)
    fractions[others] = [hash_key(key) for key in keys.take(arrow_array(others)).to_pylist()]
    return fractions


def _hash_ascii(text: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    fractions = np.empty(len(starts))
    for first in range(0, len(starts), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        fractions[some] = (_murmur64_ascii(text, starts[some], lengths[some]) >> np.uint64(12)) * 2.0**-52
    return fractions


def _hash_distinct(keys: pa.Array) -> np.ndarray:
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary
    fractions = np.append(_hash_each(distinct), np.nan)
    indices = numpy_values(encoded.indices)
    if encoded.null_count:
        indices = np.where(numpy_values(pc.is_null(encoded.indices)), len(distinct), indices)
    found: np.ndarray = fractions[indices]
    return found


class KeyHashes:
    """Hashes of routing keys, for a writer whose columns repeat the same keys.

    kept: maximum number of cached keys; looking up in many more costs as much as hashing.
    """

    def __init__(self, kept: int = 4096) -> None:
        self._kept = kept
        self._known = pa.nulls(0, pa.large_string()), np.empty(0)
        self._unsampled = 0  # columns that are hashed without sampling whether keys repeat

    def __len__(self) -> int:
        """Number of cached keys."""
        return len(self._known[0])

    def find(self, keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """As `hash_keys`, faster for cached keys."""
        known, places_of = self._known
        if not len(known) or isinstance(keys, pa.ChunkedArray):
            return self._hash(keys)
        keys = _large(keys)
        found = pc.index_in(keys, value_set=known)
        places: np.ndarray
        if not found.null_count:
            places = places_of[numpy_values(found)]
            return places
        new = pc.is_null(found)
        missing = numpy_values(new)
        places = places_of[np.where(missing, 0, numpy_values(found))]
        places[missing] = self._hash(keys.filter(new))
        return places

    def _hash(self, keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
        if isinstance(keys, pa.ChunkedArray):
            return np.concatenate([self.find(chunk) for chunk in keys.chunks]) if keys.num_chunks else np.empty(0)
        keys = _large(keys)
        if self._unsampled > 0:
            self._unsampled -= 1
            return _hash_each(keys)
        sampled = _sampled(keys)
        known, places_of = self._known
        if len(sampled) * 3 >= _SAMPLE:
            self._unsampled = _UNSAMPLED
        elif len(known) + len(sampled) <= self._kept:
            # In one step, as several threads may use a writer.
            self._known = pa.concat_arrays([known, sampled]), np.append(places_of, _hash_each(sampled))
        return _hash_distinct(keys) if _repeats(keys, sampled) else _hash_each(keys)


def _string_parts(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and byte lengths of a large_string array's values, and its text, padded for reads of 8 bytes anywhere."""
    _, offset_buffer, text_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    used = int(offsets[-1] - offsets[0])
    text = np.zeros(used + 16, np.uint8)
    if used:
        text[:used] = np.frombuffer(text_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return offsets[:-1] - offsets[0], np.diff(offsets), text


def _murmur64_ascii(text: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """First half of Murmur3 x64-128 over ASCII strings widened to UTF-16LE.

    Eight characters make one 16-byte block of the hash. The keys are put in descending order of whole blocks, so that
    the keys that still have a block are always a prefix of the arrays.
    """
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))
    blocks = lengths >> 3
    order = np.argsort((-blocks).astype(np.int8), kind="stable")
    starts, lengths, blocks = starts[order], lengths[order], blocks[order]
    h1 = np.full(len(starts), SEED, np.uint64)
    h2 = h1.copy()
    for block in range(int(blocks[0])):
        active = int(np.searchsorted(-blocks, -block, side="left"))
        _mix_block(h1[:active], h2[:active], words[starts[:active] + 8 * block])
    rest = (lengths & 7).astype(np.uint64)
    tail = words[starts + 8 * blocks] & ((np.uint64(1) << (rest << np.uint64(3))) - np.uint64(1))
    first, second = _widened(tail).T
    h1 ^= _scrambled(first, _C1, 31, _C2)
    h2 ^= _scrambled(second, _C2, 33, _C1)
    hashes = np.empty_like(h1)
    hashes[order] = _finished(h1, h2, (lengths * 2).astype(np.uint64))
    return hashes


def _mix_block(h1: np.ndarray, h2: np.ndarray, characters: np.ndarray) -> None:
    """Mixes eight characters of each key into the two halves, in place."""
    first, second = _widened(characters).T
    h1 ^= _scrambled(first, _C1, 31, _C2)
    _rotate(h1, 27)
    h1 += h2
    h1 *= np.uint64(5)
    h1 += np.uint64(0x52DCE729)
    h2 ^= _scrambled(second, _C2, 33, _C1)
    _rotate(h2, 31)
    h2 += h1
    h2 *= np.uint64(5)
    h2 += np.uint64(0x38495AB5)


def _finished(h1: np.ndarray, h2: np.ndarray, length: np.ndarray) -> np.ndarray:
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    for half in (h1, h2):
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xFF51AFD7ED558CCD)
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xC4CEB9FE1A85EC53)
        half ^= half >> np.uint64(33)
    h1 += h2
    return h1


def _widened(characters: np.ndarray) -> np.ndarray:
    """Eight ASCII characters in each 64-bit word, as UTF-16LE: two columns of 64-bit words, four characters each."""
    return characters.view(np.uint8).astype("<u2").view("<u8").reshape(-1, 2)


def _scrambled(key: np.ndarray, first: np.uint64, distance: int, second: np.uint64) -> np.ndarray:
    scrambled: np.ndarray = key * first
    _rotate(scrambled, distance)
    scrambled *= second
    return scrambled


def _rotate(values: np.ndarray, distance: int) -> None:
    """Rotates 64-bit words to the left, in place."""
    low = values >> np.uint64(64 - distance)
    values <<= np.uint64(distance)
    values |= low
