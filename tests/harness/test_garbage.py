"""The collector goes over all objects between tests, and only then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tests.harness import garbage
from tests.harness.garbage import Garbage


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("_as_it_was")
def test_what_a_test_leaves_is_collected_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_TESTS", 3)
    mine = Garbage()
    assert not gc.isenabled()
    mine.begin()
    assert gc.isenabled()
    left = weakref.ref(old := Circle())
    gc.collect(1)
    gc.collect(1)
    del old
    before = gc.get_stats()[2]["collections"]
    for _ in range(2):
        mine.after_test()
        kept = [[each] for each in range(50_000)]
        assert len(kept) == 50_000
    assert gc.get_stats()[2]["collections"] == before, "nobody went over all objects"
    assert left() is not None
    mine.after_test()
    assert left() is None
