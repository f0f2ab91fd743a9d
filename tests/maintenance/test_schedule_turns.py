"""Schedules of many tenants: those of one do not keep those of others waiting, and a tenant may have so many."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.definitions.schedule import schedule_definition
from tests.maintenance.schedules import Clockwork, at, clockwork

NOON = at("2026-05-04 12:00")
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def world(clockwork_config: Config) -> AsyncIterator[Clockwork]:
    async with clockwork(clockwork_config) as made:
        await made.set(NOON)
        yield made


async def flood(world: Clockwork, tenant: str, count: int, minutes_ago: float = 0.0) -> None:
    """So many hourly schedules, which are due since then."""
    await world.conn.execute(
        "insert into schedules (tenant, name, every_seconds, anchor, type, overlap, catch_up, created_by, updated_by,"
        "   next_fire_at, look_at)"
        " select $1, 's' || n, 3600, d.due, 'report', 'allow', 86400, 'x', 'x', d.due, d.due"
        " from generate_series(1, $2) n cross join (select $3::timestamptz as due) d",
        tenant,
        count,
        NOON - minutes_ago * MINUTE,
    )


async def bound(world: Clockwork, most: int) -> None:
    await world.conn.execute("update settings set value = $1 where name = 'SCHEDULES_PER_TENANT'", str(most))


async def test_a_tenants_schedule_is_decided_in_the_first_batch_behind_a_flood_of_another(world: Clockwork) -> None:
    await flood(world, "flood", 3 * world.duty.most, minutes_ago=30)
    await flood(world, "other", 1)
    await world.duty.work(world.store)  # has nothing to compute again
    assert (await world.duty.work(world.store)).more
    fired = await world.conn.fetch("select tenant, count(*) from jobs group by 1 order by 1")
    assert [tuple(row) for row in fired] == [("flood", world.duty.most - 1), ("other", 1)]
    await world.work()
    assert await world.jobs() == 3 * world.duty.most + 1, "nothing is left out"


async def test_more_tenants_than_a_batch_has_room_for_have_their_turns(world: Clockwork) -> None:
    for tenant in "abcde":
        await flood(world, tenant, 4, minutes_ago=30)
    await flood(world, "idle", 1, minutes_ago=-30)
    await flood(world, "z", 1)
    seen, turned = [], None
    for _ in range(4):
        due, _, turned = await world.store.due_schedules(3, turned)
        seen.append("".join(sorted(schedule.tenant for schedule in due)))
    assert seen == ["abc", "dez", "abc", "dez"]
    # Few tenants share what there is.
    await world.conn.execute("delete from schedules where tenant in ('a', 'b', 'c', 'd')")
    due, *_ = await world.store.due_schedules(4)
    assert [schedule.tenant for schedule in due] == ["e", "z", "e", "e"]


async def test_a_tenant_may_have_so_many_schedules_and_keeps_those_that_are_there(world: Clockwork) -> None:
    await bound(world, 2)
    await world.put("a", every=60)
    await world.put("b", every=60)
    with pytest.raises(asyncpg.PostgresError, match=r"has 2 .* may have 2 \(SCHEDULES_PER_TENANT\)") as fault:
        await world.put("c", every=60)
    assert (fault.value.sqlstate, fault.value.constraint_name) == ("HF002", "schedules_per_tenant")
    await world.put("c", every=60, options={"tenant": "other"})
    await bound(world, 1)
    await world.put("a", every=90)
    assert await world.conn.fetchval("select count(*) from schedules where tenant = 'default'") == 2
    await bound(world, 2)
    await world.conn.execute("select delete_schedule('a', 'default', 'tester')")
    await world.put("d", every=60)


async def test_declared_schedules_count_and_the_one_too_many_is_told(world: Clockwork) -> None:
    await bound(world, 2)
    await world.put("a", every=60)
    await world.worker("w")
    declared = [json.loads(json.dumps(schedule_definition(name, job="report", every=60))) for name in ("b", "c")]
    (refused,) = await world.declare("w", *declared)
    assert refused["name"] == "c"
    assert "SCHEDULES_PER_TENANT" in refused["fault"]
    # One that was retired comes back only if there is room.
    await world.conn.execute("update schedules set retired_at = now(), look_at = null where name = 'b'")
    assert await world.declare("w", declared[1]) == []
    (refused,) = await world.declare("w", declared[0])
    assert "SCHEDULES_PER_TENANT" in refused["fault"]
