"""Routing keys: the hash of single keys and of columns, and the key ranges."""

from collections.abc import Sequence

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.streams.model import key_columns, routing
from pravega_spark.streams.model.hashing import murmur64

SEED = 1741865571

# key, hash as a signed 64-bit number, fraction, segment of 3, segment of 5
GOLDEN = [
    ("", 4448956735870400463, 0.24117842791623523, 0, 1),
    ("0", -3585388799065149159, 0.8056356837424186, 2, 4),
    ("1", 6780761970558655926, 0.36758584297933905, 1, 1),
    ("2", 5165676903417540123, 0.2800319060521743, 0, 1),
    ("3", -8109050405264150118, 0.5604074966909074, 1, 2),
    ("4", -663225475707822240, 0.9640464749194921, 2, 4),
    ("key", -2860917593966022649, 0.8449093464660018, 2, 4),
    ("routingKey", -1631035938723704051, 0.9115813645916913, 2, 4),
    ("sensor-42", 5898156360592441033, 0.31973969699067584, 0, 1),
    ("é漢😀", -5167235121368799006, 0.7198836227834273, 2, 3),
]
KEY_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
ASCII = st.text(st.characters(max_codepoint=0x7F), max_size=100)
KEYS = st.lists(st.none() | ASCII | st.text(max_size=40), max_size=60)


def plain_fractions(keys: Sequence[str | None]) -> np.ndarray:
    """The hash of each key by itself, straight from the library."""
    fractions = []
    for key in keys:
        if key is None:
            fractions.append(np.nan)
        else:
            digest = mmh3.hash_bytes(key.encode("utf-16-le"), SEED, x64arch=True)
            fractions.append((int.from_bytes(digest[:8], "little") >> 12) / 2**52)
    return np.array(fractions, dtype=np.float64)


@pytest.mark.parametrize(("key", "number", "fraction", "of_three", "of_five"), GOLDEN)
def test_hashes_are_the_originals(key: str, number: int, fraction: float, of_three: int, of_five: int) -> None:
    assert murmur64(key, SEED) == number % 2**64
    assert routing.hash_key(key) == fraction
    fractions = key_columns.hash_keys(pa.array([key]))
    assert fractions.tolist() == [fraction]
    for count, segment in ((3, of_three), (5, of_five)):
        bounds = [high for _, high in routing.even_ranges(count)]
        assert routing.segment_for(fractions, bounds).tolist() == [segment]


@pytest.mark.parametrize("key_type", KEY_TYPES, ids=str)
@settings(deadline=None)
@given(keys=KEYS)
def test_a_column_hashes_as_its_keys(key_type: pa.DataType, keys: list[str | None]) -> None:
    np.testing.assert_array_equal(key_columns.hash_keys(pa.array(keys, key_type)), plain_fractions(keys))


@settings(deadline=None)
@given(keys=KEYS, start=st.integers(0, 20), length=st.integers(0, 20))
def test_a_slice_hashes_as_its_keys(keys: list[str | None], start: int, length: int) -> None:
    column = pa.array(keys, pa.string()).slice(min(start, len(keys)), length)
    np.testing.assert_array_equal(key_columns.hash_keys(column), plain_fractions(column.to_pylist()))


@pytest.mark.parametrize("length", [*range(67), 511, 512, 513, 5000])
def test_every_length_hashes_as_the_library(length: int) -> None:
    keys = ["".join(chr(33 + (place * 7 + other) % 90) for place in range(length)) for other in range(3)]
    np.testing.assert_array_equal(key_columns.hash_keys(pa.array(keys)), plain_fractions(keys))


def test_a_column_larger_than_one_batch() -> None:
    keys = [f"key-{number}" * (number % 5) for number in range(40_000)]
    keys[20_000] = "schlüssel"
    np.testing.assert_array_equal(key_columns.hash_keys(pa.array(keys)), plain_fractions(keys))


def test_chunks_are_hashed_one_after_the_other() -> None:
    column = pa.chunked_array([["a", None], [], ["é", "b"]], pa.string())
    np.testing.assert_array_equal(key_columns.hash_keys(column), plain_fractions(["a", None, "é", "b"]))
    assert key_columns.hash_keys(pa.chunked_array([], pa.string())).tolist() == []


def test_bytes_below_a_null_do_not_matter() -> None:
    hidden = pa.array(["a" * 600, "é", "b"])
    validity = pa.py_buffer(bytes([0b100]))
    column = pa.Array.from_buffers(pa.string(), 3, [validity, *hidden.buffers()[1:]])
    np.testing.assert_array_equal(key_columns.hash_keys(column), plain_fractions([None, None, "b"]))


def test_a_lone_surrogate_hashes_as_in_java() -> None:
    digest = mmh3.hash_bytes(b"\x00\xd8", SEED, x64arch=True)
    assert routing.hash_key("\ud800") == (int.from_bytes(digest[:8], "little") >> 12) / 2**52


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="column routing_key must hold strings, not int64"):
        key_columns.hash_keys(pa.array([1]))


@settings(deadline=None)
@given(st.integers(1, 2000))
def test_even_ranges_join_and_cover_everything(count: int) -> None:
    ranges = routing.even_ranges(count)
    assert len(ranges) == count
    assert ranges[0][0] == 0.0
    assert ranges[-1][1] == 1.0
    assert all(low < high for low, high in ranges)
    assert all(ranges[place][1] == ranges[place + 1][0] == (place + 1) * (1.0 / count) for place in range(count - 1))


@pytest.mark.parametrize("count", [49, 98, 103, 107, 161, 187, 196])
def test_the_last_bound_is_one_where_the_product_is_not(count: int) -> None:
    assert count * (1.0 / count) < 1.0
    assert routing.even_ranges(count)[-1][1] == 1.0


def test_no_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one segment"):
        routing.even_ranges(0)


def test_an_upper_bound_belongs_to_its_range() -> None:
    below, above = np.nextafter(0.5, 0), np.nextafter(0.5, 1)
    places = np.array([0.0, below, 0.5, above, 1.0])
    assert routing.segment_for(places, [0.5, 1.0]).tolist() == [0, 0, 0, 1, 1]


def test_an_upper_bound_belongs_to_its_range_however_many_there_are() -> None:
    bounds = [high for _, high in routing.even_ranges(64)]
    assert routing.segment_for(np.array(bounds), bounds).tolist() == list(range(64))


@settings(deadline=None)
@given(
    st.lists(st.floats(0.001, 0.999), unique=True, max_size=20).map(lambda bounds: [*sorted(bounds), 1.0]),
    st.lists(st.floats(0, 1, exclude_max=True), max_size=50),
)
def test_segments_are_those_whose_range_has_the_key(bounds: list[float], places: list[float]) -> None:
    expected = [next(segment for segment, high in enumerate(bounds) if place <= high) for place in places]
    assert routing.segment_for(np.array(places, dtype=np.float64), bounds).tolist() == expected


def test_rows_without_a_key_are_spread_over_the_key_space() -> None:
    fractions = key_columns.hash_keys(pa.array([None, "0"] * 4000))
    found = routing.segment_for(fractions, [0.25, 0.5, 1.0], np.random.default_rng(1))
    assert set(found[1::2]) == {2}
    shares = np.bincount(found[0::2], minlength=3) / 4000
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.05)


def test_rows_without_a_key_need_a_generator() -> None:
    with pytest.raises(ValueError, match="no routing key"):
        routing.segment_for(np.array([0.5, np.nan]), [1.0])


@pytest.mark.parametrize("bounds", [[], [0.5], [float("nan")]])
def test_ranges_that_end_early_are_refused(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^Last segment missing\."):
        routing.segment_for(np.array([0.1]), bounds)


@pytest.mark.parametrize("bounds", [[0.0, 1.0], [0.5, 0.5, 1.0], [0.7, 0.5, 1.0], [1.1], [float("nan"), 1.0]])
def test_ranges_that_do_not_ascend_are_refused(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        routing.segment_for(np.array([0.1]), bounds)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_keys_that_repeat_are_hashed_as_others_are(kind: pa.DataType) -> None:
    """They are hashed once each."""
    keys = [f"ключ {number % 90}" if number % 7 else None for number in range(20_000)]
    found = key_columns.hash_keys(pa.array(keys, kind))
    for place in (*range(200), 19_999):
        key = keys[place]
        assert np.isnan(found[place]) if key is None else found[place] == routing.hash_key(key)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("kept", [4096, 3])
def test_places_of_keys_are_the_same_however_often_they_are_met(kind: pa.DataType, kept: int) -> None:
    places = key_columns.KeyHashes(kept)
    for keys in (["a", "b", None, "é"], ["b", "a"], ["c", None, "a", "d"], [], ["d", "c", "e", None], ["x"] * 5000):
        np.testing.assert_array_equal(places.find(pa.array(keys, kind)), plain_fractions(keys))
    chunks = pa.chunked_array([["a"], ["new", None]], kind)
    np.testing.assert_array_equal(places.find(chunks), plain_fractions(["a", "new", None]))


def test_places_of_keys_that_do_not_repeat_are_not_kept() -> None:
    places = key_columns.KeyHashes()
    for first in range(0, 20_000, 5000):
        keys = [f"key {number}" for number in range(first, first + 5000)]
        np.testing.assert_array_equal(places.find(pa.array(keys)), plain_fractions(keys))
    assert not len(places)


def test_places_are_found_whether_columns_are_sampled_or_not() -> None:
    """Columns whose keys hardly repeat are sampled now and then; once keys repeat, it is noticed."""
    places, few = key_columns.KeyHashes(), [f"key {number % 50}" for number in range(5000)]
    many = [f"key {number}" for number in range(5000)]
    np.testing.assert_array_equal(places.find(pa.array(many)), plain_fractions(many))
    expected = plain_fractions([*few, None, "é"])
    for _ in range(40):
        np.testing.assert_array_equal(places.find(pa.array([*few, None, "é"])), expected)
    assert 50 <= len(places) < 60


def test_keys_in_chunks_are_found_as_others_are() -> None:
    places, keys = key_columns.KeyHashes(), [f"key {number}" for number in range(9000)]
    chunks = pa.chunked_array([keys[:6000], [], keys[6000:]], pa.string())
    for _ in range(2):
        np.testing.assert_array_equal(places.find(chunks), plain_fractions(keys))
    assert places.find(pa.chunked_array([], pa.string())).tolist() == []
