"""The storage's time, as its answers carry it (W13)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Outcome, open_store, stamps
from chunkstore.testing import SimulatedStore


def test_what_was_told_is_noted_for_who_listens_in_the_thread() -> None:
    stamps.note(1.0)
    with stamps.listening() as outer:
        assert (outer.first, outer.latest) == (None, None)
        for stamp in (5.0, 7.0, 6.0):
            stamps.note(stamp)
        with stamps.listening() as inner:
            stamps.note(9.0)
        assert (inner.first, inner.latest) == (9.0, 9.0)
    stamps.note(11.0)
    assert (outer.first, outer.latest) == (5.0, 7.0)


@pytest.mark.parametrize(
    ("headers", "stamp"),
    [
        ({"Date": "Mon, 23 Nov 2026 18:00:00 GMT"}, 1795456800.0),
        ({"date": "Mon, 23 Nov 2026 18:00:00 GMT"}, 1795456800.0),
        ({"Date": "yesterday"}, None),
        ({}, None),
    ],
)
def test_the_date_of_a_response(headers: dict[str, str], stamp: float | None) -> None:
    assert stamps.date_of(headers) == stamp


def test_a_file_is_stamped_when_it_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is stopped between writing and linking made the object after that."""
    store, link = open_store(str(tmp_path)), os.link

    def slowly(*arguments: Any, **options: Any) -> None:
        time.sleep(0.1)
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", slowly)
    begun = store.clock()
    with stamps.listening() as noted:
        assert store.put_if_absent("a", bytes(24)) is Outcome.MINE
    assert noted.latest is not None and noted.latest >= begun + 0.05
    with stamps.listening() as noted:
        store.read("a")
    assert noted.latest is not None and begun + 0.05 <= noted.latest <= store.clock()


def test_what_is_absent_is_an_answer_too() -> None:
    store = SimulatedStore(now=5.0)
    with stamps.listening() as noted:
        assert store.read_ranges([]) == [] and noted.latest is None
        with pytest.raises(Exception, match="no object"):
            store.read("a")
    assert noted.latest == 5.0
