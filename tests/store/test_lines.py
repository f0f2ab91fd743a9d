"""Tenants whose intents wait to be recorded take turns, and none of them takes all the room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.model.ids import new_job_id
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.lines import Lines
from holdfast.store.submissions import Submissions
from tests.store.test_submissions import database, intent, submissions  # noqa: F401 - fixtures


@dataclass
class Bearer:
    intent: Intent

    @property
    def tenant(self) -> str:
        return self.intent.tenant

    @property
    def size(self) -> int:
        return len(self.intent.payload)


def bearer(tenant: str, size: int = 2) -> Bearer:
    return Bearer(Intent(new_job_id(), "x", "x" * size, {}, tenant, "me"))


def tenants(batch: Sequence[Bearer]) -> list[str]:
    return [one.intent.tenant for one in batch]


def filled(**counts: int) -> Lines[Bearer]:
    lines = Lines[Bearer]()
    for tenant, count in counts.items():
        for _ in range(count):
            lines.add(bearer(tenant))
    return lines


def test_tenants_take_turns() -> None:
    lines = filled(a=1000, b=2, c=1)
    assert tenants(lines.next_batch(())) == ["a", "b", "c", "a", "b", *["a"] * 251]


def test_the_next_batch_goes_on_with_the_tenant_whose_turn_it_is() -> None:
    lines = filled(**{f"t{number}": 3 for number in range(200)})
    assert tenants(lines.next_batch(()))[-1] == "t55"
    assert tenants(lines.next_batch(()))[0] == "t56"


def test_a_busy_tenant_waits() -> None:
    lines = filled(a=3, b=1)
    assert tenants(lines.next_batch({"a"})) == ["b"]
    assert lines.next_batch({"a"}) == []
    assert tenants(lines.next_batch(())) == ["a", "a", "a"]


def test_a_batch_is_bounded_in_bytes() -> None:
    lines = Lines[Bearer]()
    for _ in range(10):
        lines.add(bearer("a", 1024 * 1024))
    lines.add(bearer("b"))
    assert tenants(lines.next_batch(())) == ["a", "b", "a", "a", "a"]


@pytest.mark.parametrize(("room", "size"), [(10_000, 1), (16, 1024 * 1024)])
def test_one_tenant_takes_half_of_the_room_and_others_find_their_share(room: int, size: int) -> None:
    lines = Lines[Bearer]()

    def added(tenant: str, most: int) -> int:
        for number in range(most):
            if not lines.have_room_for([bearer(tenant, size)]):
                return number
            lines.add(bearer(tenant, size))
        return most

    assert added("a", room) == room // 2
    assert added("b", room) == room // 2
    assert added("c", room) == room // 3
    assert added("a", 1) == 0


async def test_a_tenant_whose_statement_hangs_holds_up_nobody_else(
    submissions: Submissions,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit, hanging, go_on = submissions._tenancy.submit, asyncio.Event(), asyncio.Event()

    async def slow(intents: Sequence[Intent]) -> list[Enqueued]:
        if any(one.tenant == "greedy" for one in intents):
            hanging.set()
            await go_on.wait()
        return await submit(intents)

    monkeypatch.setattr(submissions._tenancy, "submit", slow)
    flood = [asyncio.create_task(submissions.enqueue([intent(tenant="greedy")])) for _ in range(600)]
    await hanging.wait()
    async with asyncio.timeout(4):
        for _ in range(20):
            (answer,) = await submissions.enqueue([intent(tenant="modest")])
            assert answer.outcome == "created"
    assert not any(task.done() for task in flood)
    go_on.set()
    await asyncio.gather(*flood)


async def test_a_tenant_whose_jobs_are_refused_does_not_delay_others(
    submissions: Submissions,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch with refused intents is sent tenant by tenant before it is halved again and again."""
    submit, batches = submissions._tenancy.submit, list[list[str]]()

    async def noted(intents: Sequence[Intent]) -> list[Enqueued]:
        batches.append([one.tenant for one in intents])
        return await submit(intents)

    monkeypatch.setattr(submissions._tenancy, "submit", noted)
    holders = [asyncio.create_task(submissions.enqueue([intent(tenant=name)])) for name in ("x", "y")]
    await asyncio.sleep(0)  # both statements are under way: what comes now goes together
    bad = [asyncio.create_task(submissions.enqueue([intent(queue="holdfast", tenant="bad")])) for _ in range(40)]
    good = asyncio.create_task(submissions.enqueue([intent(tenant="good")]))
    await good
    mixed = next(number for number, batch in enumerate(batches) if {"bad", "good"} <= set(batch))
    assert batches[mixed + 1] == ["good"]
    await asyncio.gather(*holders)
    assert all(isinstance(fault, Exception) for fault in await asyncio.gather(*bad, return_exceptions=True))


async def test_a_flood_is_refused_with_the_advice_to_come_again(submissions: Submissions) -> None:  # noqa: F811
    with pytest.raises(DatabaseUnavailable, match="too many"):
        await submissions.enqueue([intent() for _ in range(6000)])
    (answer,) = await submissions.enqueue([intent()])
    assert answer.outcome == "created"
