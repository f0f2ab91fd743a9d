"""What an app declares, its workers publish; and the leader fires it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, InvalidInput, InvalidPayload
from holdfast.telemetry.events import ScheduleRefused
from tests.harness.inprocess import working
from tests.harness.waiting import until


async def test_a_declared_schedule_fires_while_a_worker_runs(hf: Holdfast, conn: asyncpg.Connection) -> None:
    ran: list[str] = []

    @hf.job("tick", schedule={"every": 1, "payload": {"word": "tock"}, "queue": "clocks"})
    async def tick(ctx: Context, word: str) -> None:
        ran.append(word)

    async with working(hf):
        await until(lambda: len(ran) >= 2, what="it ran twice")
    assert set(ran) == {"tock"}
    rows = await conn.fetch("select run_at, queue, created_by from jobs order by run_at")
    assert {(row["queue"], row["created_by"]) for row in rows} == {("clocks", "schedule:tick")}
    gaps = {later["run_at"] - sooner["run_at"] for sooner, later in pairwise(rows)}
    assert all(gap % timedelta(seconds=1) == timedelta(0) for gap in gaps)
    assert await conn.fetchval("select count(*) from schedule_fires where outcome = 'fired'") == len(rows)


async def test_a_schedule_that_the_engine_refuses_is_told_once_and_the_worker_works(hf: Holdfast) -> None:
    told: list[ScheduleRefused] = []
    hf.events.subscribe(told.append, ScheduleRefused)
    operations = await hf.operations()
    await operations.schedules.put("mine", every=60, job="other", by="ada")
    done = asyncio.Event()

    @hf.job("work")
    async def work(ctx: Context) -> None:
        done.set()

    hf.schedule("mine", every=60, job=work)
    hf.schedule("also", cron="@daily", job=work)
    async with working(hf):
        await hf.enqueue("work", {})
        await asyncio.wait_for(done.wait(), 20)
        await until(lambda: told, what="it was told")
    assert [event.name for event in told] == ["mine"]
    assert (await operations.schedules.get("mine")).job == "other"
    assert (await operations.schedules.get("also")).declared


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "cron or every"), ({"cron": "@daily", "every": 60}, "cron or every"), ({"cron": "x"}, "five fields"),
        ({"cron": "@daily", "tz": "Berlin"}, "time zone"), ({"every": 0.1}, "every must be"),
        ({"every": "1m"}, "every"),
        ({"every": 60, "overlap": "wait"}, "overlap must be"), ({"every": 60, "catch_up": -5}, "catch_up must be"),
        ({"every": 60, "jitter": timedelta(days=2)}, "jitter must be"), ({"every": 60, "delay": 5}, "delay cannot"),
        ({"every": 60, "idempotency_key": "k"}, "idempotency_key cannot"), ({"every": 60, "prioritty": 5}, "priority"),
        ({"every": 60, "tz": "Europe/Berlin"}, "tz does not"), ({"every": 60, "priority": -1}, "priority must be"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused_where_it_stands(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Holdfast("postgresql://127.0.0.1:1/nothing").schedule("s", job="x", **wrong)


def test_a_payload_that_the_handler_does_not_take_is_refused_where_it_stands() -> None:
    hf = Holdfast("postgresql://127.0.0.1:1/nothing")

    @hf.job("count")
    async def count(ctx: Context, number: int) -> None: ...

    with pytest.raises(InvalidPayload, match="number"):
        hf.schedule("s", every=60, job=count, payload={"number": "many"})
    hf.schedule("s", every=60, job=count, payload={"number": 3})
    hf.schedule("s", every=60, job=count, payload={"number": 3})
    with pytest.raises(InvalidInput, match="declared twice"):
        hf.schedule("s", every=61, job=count, payload={"number": 3})
