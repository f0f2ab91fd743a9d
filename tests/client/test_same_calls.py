"""An idempotency key recognizes the same call, however a release before has written it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, KeyConflict
from holdfast.definitions.same_call import is_same


@asynccontextmanager
async def released(url: str, handler: Any) -> AsyncIterator[Holdfast]:
    """An app with one job type."""
    async with Holdfast(url) as app:
        app.job("work")(handler)
        yield app


async def before(ctx: Context, a: int) -> None: ...


async def after(ctx: Context, a: int, b: int = 2, tags: set[str] | None = None) -> None: ...


async def test_an_argument_that_was_added_with_a_default_makes_no_conflict(database_url: str) -> None:
    async with released(database_url, before) as old, released(database_url, after) as new:
        first = await old.enqueue("work", {"a": 1}, idempotency_key="k")
        again = await new.enqueue("work", {"a": 1}, idempotency_key="k")
        assert (again.id, again.outcome) == (first.id, "existing")
        (also,) = await new.enqueue_many([("work", {"a": 1, "b": 2}, {"idempotency_key": "k"})])
        assert (also.id, also.outcome) == (first.id, "existing")
        for other in ({"a": 2}, {"a": 1, "b": 3}, {"a": 1, "tags": ["x"]}):
            with pytest.raises(KeyConflict):
                await new.enqueue("work", other, idempotency_key="k")
        with pytest.raises(KeyConflict):
            await new.enqueue("other", {"a": 1}, idempotency_key="k")


async def test_a_set_in_another_order_makes_no_conflict(database_url: str) -> None:
    async with released(database_url, after) as app:
        for key, tags in (("one", ["x", "y"]), ("two", ["y", "x"])):  # a set is written in one of these orders
            async with Holdfast(database_url) as stranger:
                first = await stranger.enqueue("work", {"a": 1, "b": 2, "tags": tags}, idempotency_key=key)
            again = await app.enqueue("work", {"a": 1, "tags": {"x", "y"}}, idempotency_key=key)
            assert (again.id, again.outcome) == (first.id, "existing")


class Model(BaseModel):
    value: Any


@dataclasses.dataclass
class Data:
    value: Any


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({1}, {True}), ({(1,)}, {(True,)}),
     ({"a": 1}, {"a": True}), ([1, 2], [2, 1]),
     ({"a": 1}, {"b": 1}), ([1], [1, 2]), (object(), object())],
)  # fmt: skip
def test_what_json_can_show_is_never_the_same(one: Any, other: Any) -> None:
    for wrap in (lambda value: value, lambda value: {"k": [value]}, lambda value: Model(value=value), Data):
        assert not is_same(wrap(one), wrap(other))


def test_the_order_of_keys_and_sets_does_not_matter() -> None:
    one, other = {"a": {"x", "y"}, "b": Model(value=None)}, {"b": Model(value=None), "a": {"y", "x"}}
    assert is_same(one, other)
    assert is_same(Data(one), Data(other))
