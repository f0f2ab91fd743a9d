"""Limits and rates, as they may be written."""

from __future__ import annotations

import pytest

from holdfast import Context, Holdfast, InvalidInput, Limit, Rate


@pytest.mark.parametrize(
    ("text", "count", "per"),
    [("10/s", 10, 1.0), ("100/min", 100, 60.0), ("5/30 s", 5, 30.0), ("1 / hour", 1, 3600.0), ("3/0.5s", 3, 0.5)],
)
def test_a_rate_may_be_text(text: str, count: int, per: float) -> None:
    assert Rate.of(text) == Rate(count, per)


@pytest.mark.parametrize("wrong", ["10", "10/fortnight", "ten/s", "0/s", "-1/s", "1/0s", "1/40 day", 10, ("1", "s")])
def test_a_wrong_rate_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        Holdfast().job("work", rate=wrong)(_handler)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, 10_001, 1.5, True, "3"])
def test_a_wrong_limit_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        Holdfast().job("work", limit=wrong)(_handler)  # type: ignore[arg-type]


def test_a_key_is_the_name_of_a_field() -> None:
    assert Limit(3, key="customer.id").key == "customer.id"
    for wrong in ("", 5):
        with pytest.raises(InvalidInput, match="key"):
            Limit(3, key=wrong)  # type: ignore[arg-type]


async def _handler(_ctx: Context) -> None: ...
