"""Segment ids: numbers for programs, labels for people, and that both are understood."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.segment_ids import parse_segment_id, segment_epoch, segment_id, segment_label, segment_number

INT32 = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(INT32, INT32)
def test_a_segment_id_holds_number_and_epoch(number: int, epoch: int) -> None:
    segment = segment_id(number, epoch)
    assert (segment_number(segment), segment_epoch(segment)) == (number, epoch)
    assert parse_segment_id(segment_label(segment)) == parse_segment_id(str(segment)) == parse_segment_id(segment)


@pytest.mark.parametrize(("number", "epoch"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**31)])
def test_a_segment_id_out_of_range_is_refused(number: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="must be between 0 and 2147483647"):
        segment_id(number, epoch)


def test_labels_have_the_number_first_as_names_do() -> None:
    assert segment_label(1 << 32 | 2) == "2.1"
    assert parse_segment_id("2.1") == 4294967298


@pytest.mark.parametrize("text", ["", "x", "2.", ".1", "-1", "2.1.0", "2,1", "٣", "1e3", "2.#epoch.1", True, None])
def test_what_is_no_segment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a segment: give 2\.1 \(segment 2 of epoch 1\), or its id"):
        parse_segment_id(text)
