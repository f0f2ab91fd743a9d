"""Long tests stand apart from each other, and early."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.harness.order import spread


@pytest.mark.parametrize("shares", [1, 2, 4, 7])
def test_nothing_is_lost_and_no_share_ends_with_a_long_one(shares: int) -> None:
    items = [f"short {n}" for n in range(500)]
    items[300:300] = [f"long {n}" for n in range(60)]
    ordered = spread(items, shares, lambda item: item.startswith("long"))
    assert Counter(ordered) == Counter(items)
    size = len(items) // shares
    for number in range(shares):
        share = ordered[number * size : (number + 1) * size]
        long = [position for position, item in enumerate(share) if item.startswith("long")]
        assert len(long) in range(60 // shares - 1, 60 // shares + 3)
        assert max(long[:-1]) < 0.9 * size
        assert max(later - earlier for earlier, later in pairwise(long)) < 3 * size / len(long)


def test_only_long_ones_and_none_at_all() -> None:
    assert spread(["a", "b", "c"], 2, lambda _: True) == ["a", "c", "b"]
    assert spread(["a", "b", "c"], 2, lambda _: False) == ["a", "b", "c"]
    assert spread([], 2, lambda _: True) == []
