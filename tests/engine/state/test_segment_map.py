"""The map of active segments: a dict with versions, whose values are built at their first use."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from engine.state.segment_map import Fields, SegmentMap
from engine.state.segments import Segment
from tests.engine.state.writer import with_segments

NAMES = "abcd"
SEGMENT = with_segments("a").state.segments["a"]


def segment(name: str, length: int) -> Segment:
    return SEGMENT._replace(name=name, length=length)


def pack(segment: Segment) -> Fields:
    return [segment.name, segment.length]


class Builder:
    """Builds segments from their values, and counts for which names it did."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def __call__(self, fields: Fields) -> Segment:
        self.built.append(fields[0])
        return segment(*fields)


def assert_is(found: SegmentMap, expected: dict[str, Segment]) -> None:
    assert len(found) == len(expected)
    assert sorted(found) == sorted(expected)
    assert {name for name in (*NAMES, "none") if name in found} == set(expected)
    assert found.packed(pack) == {name: pack(each) for name, each in expected.items()}


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_versions_of_a_map_are_dicts_that_do_not_disturb_each_other(data: st.DataObject) -> None:
    packed: dict[str, Fields | Segment] = {name: [name, 1] for name in data.draw(st.sets(st.sampled_from(NAMES)))}
    builder = Builder()
    versions = [(SegmentMap(dict(packed), builder), {name: segment(name, 1) for name in packed})]
    for length in range(2, data.draw(st.integers(2, 8))):
        origin, before = data.draw(st.sampled_from(versions))
        mutation, after = origin.mutate(), dict(before)
        for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=4)):
            if data.draw(st.booleans()):
                assert mutation.put(name, segment(name, length)) == after.get(name)
                after[name] = segment(name, length)
            elif name in after:
                del mutation[name]
                del after[name]
            else:
                with pytest.raises(KeyError):
                    del mutation[name]
            assert (name in mutation, mutation.get(name)) == (name in after, after.get(name))
        versions.append((mutation.finish(), after))
    for version, expected in versions:
        assert_is(version, expected)
    for version, expected in versions:
        for name in (*NAMES, "none"):
            assert version.get(name) == expected.get(name)
            assert version.get(name, 7) == expected.get(name, 7)
        assert_is(version, expected)
        for other, others in versions:
            assert (version == other) == (expected == others)
        assert version != expected
    assert len(builder.built) == len(set(builder.built)), "all versions share a segment that was built"


def test_segments_that_are_not_used_are_not_built() -> None:
    builder = Builder()
    values: dict[str, Fields | Segment] = {name: [name, 1] for name in NAMES}
    found = SegmentMap(dict(values), builder)
    mutation = found.mutate()
    del mutation["a"]
    mutation.put("new", segment("new", 2))
    mutation.put("gone", segment("gone", 2))
    del mutation["gone"]
    assert "gone" not in mutation and mutation.get("gone") is None
    later = mutation.finish()
    assert "b" in mutation and "b" in later and len(later) == 4 and sorted(later) == ["b", "c", "d", "new"]
    assert later.packed(pack)["b"] is values["b"], "what was not used is stored as it was read"
    assert not builder.built
    assert found["b"] is later["b"] and builder.built == ["b"]
    with pytest.raises(KeyError, match="'a'"):
        later["a"]


def test_a_map_without_segments_is_empty() -> None:
    assert len(SegmentMap()) == 0 and not list(SegmentMap()) and SegmentMap() == SegmentMap({})
