"""What schedules cost the leader: it sleeps until the next fire time."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from holdfast import Holdfast
from tests.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.waiting import until

SCHEDULES = 10_000
AT_ONCE = SCHEDULES if CHAOS_SECONDS else 1_000
SECONDS = 60.0 if CHAOS_SECONDS else 10.0

pytestmark = [pytest.mark.calm, pytest.mark.timeout(240)]


async def make(conn: asyncpg.Connection, minutes_apart: float, count: int = SCHEDULES) -> None:
    """Daily schedules; the first ones fire now, and one more after each of these lengths."""
    await conn.execute(
        "insert into schedules"
        " (tenant, name, cron, type, catch_up, created_by, updated_by, next_fire_at, look_at)"
        " select 'default', 's' || n, format('%s %s * * *', n % 60, n / 60 % 24), 'report', 86400, 'x', 'x',"
        "   now() + make_interval(secs => n * 60 * $2::float8), now() + make_interval(secs => n * 60 * $2::float8)"
        " from generate_series(1, $1) n",
        count,
        minutes_apart,
    )


async def busy_share(hf: Holdfast) -> float:
    """The share of a core that this process takes while it leads."""
    async with hf.maintaining():
        await asyncio.sleep(3.0)  # until the duties have begun
        began, busy = time.monotonic(), time.process_time()
        await asyncio.sleep(SECONDS)
        return (time.process_time() - busy) / (time.monotonic() - began)


async def test_ten_thousand_schedules_cost_under_a_hundredth_of_a_core(
    hf: Holdfast, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    without = await busy_share(hf)
    await make(conn, 24 * 60 / SCHEDULES)  # spread over the day
    spread = await busy_share(hf)
    fired = await conn.fetchval("select count(*) from schedule_fires")
    deeds.say(f"idle {without:.2%} of a core, with {SCHEDULES} schedules {spread:.2%}, {fired} fired")
    assert fired > 0
    assert spread - without < 0.01


async def test_all_at_once_are_recorded_soon(hf: Holdfast, conn: asyncpg.Connection, deeds: Deeds) -> None:
    await make(conn, 0.0, AT_ONCE)
    began = time.monotonic()
    async with hf.maintaining():

        async def done() -> bool:
            return bool(await conn.fetchval("select count(*) = $1 from schedule_fires", AT_ONCE))

        await until(done, what="all have fired", seconds=120)
    deeds.say(f"{AT_ONCE} fire times of one moment within {time.monotonic() - began:.1f} s")
