"""Limits and rates, as they may be written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, InvalidInput, Limit, Rate


@pytest.mark.parametrize(
    ("text", "count", "per"),
    [("10/s", 10, 1.0), ("100/min", 100, 60.0), ("5/30 s", 5, 30.0), ("1 / hour", 1, 3600.0), ("3/0.5s", 3, 0.5),
     ("7/60", 7, 60.0)],
)  # fmt: skip
def test_a_rate_may_be_text(text: str, count: int, per: float) -> None:
    assert Rate.of(text) == Rate(count, per)


#: How rates are written, whoever writes them; tests of the engine use it, too.
WRITTEN = [
    (Rate(10), "10/s"), (Rate(100, per=60), "100/min"), (Rate(1, per=3600), "1/h"), (Rate(2, per=86_400), "2/d"),
    (Rate(5, per=30), "5/30s"), (Rate(5, per=90), "5/90s"), (Rate(3, per=0.5), "3/0.5s"), (Rate(9, per=7200), "9/2h"),
    (Rate(1, per=604_800), "1/7d"), (Rate(4, per=60.25), "4/60.25s"),
]  # fmt: skip


@pytest.mark.parametrize(("rate", "text"), WRITTEN)
def test_a_rate_is_written_in_one_way_which_is_read_back(rate: Rate, text: str) -> None:
    assert (str(rate), Rate.of(text)) == (text, rate)


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


class Customer(BaseModel):
    id: int
    name: str | None = None


class Order(BaseModel):
    customer: Customer | None = None
    lines: dict[str, Any] = {}


@pytest.mark.parametrize("key", ["customer", "customer.id", "customer.name", "lines.anything.at.all"])
def test_a_key_that_names_a_field_is_taken(key: str) -> None:
    @Holdfast().job("ship", limit=Limit(1, key=key), rate=Rate(1, key=key))
    async def ship(ctx: Context, order: Order) -> None: ...


@pytest.mark.parametrize("key", ["custommer", "customer.idd", "customer.id.part", "customer.name.part"])
def test_a_key_that_names_no_field_is_refused_where_it_is_declared(key: str) -> None:
    """It would have become one limit for all."""
    for rule in ({"limit": Limit(1, key=key)}, {"rate": Rate(1, key=key)}):
        with pytest.raises(InvalidInput, match=rf"'ship': the key of its (limit|rate) is not a field .*{key}"):

            @Holdfast().job("ship", **rule)
            async def ship(ctx: Context, order: Order) -> None: ...

    with pytest.raises(InvalidInput, match="it has left, right"):

        @Holdfast().job("add", limit=Limit(1, key="sum"))
        async def add(ctx: Context, left: int, right: int) -> None: ...


def test_where_any_field_may_come_every_key_is_taken() -> None:
    @Holdfast().job("any", limit=Limit(1, key="customer.id"))
    async def anything(ctx: Context, payload: dict[str, Any]) -> None: ...

    @Holdfast().job("more", limit=Limit(1, key="customer.id"))
    async def more(ctx: Context, /, first: int, **others: Any) -> None: ...
