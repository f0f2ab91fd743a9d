"""Nothing that was claimed ahead begins before the database knows that it is about to."""

from __future__ import annotations

import asyncio

import asyncpg

from holdfast import Context, Holdfast
from holdfast.testing.harness import until
from holdfast.testing.inprocess import working
from tests.conftest import ConnectAs


async def test_no_job_claimed_ahead_begins_before_the_database_knows(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    begun: set[str] = set()

    @hf.job("short")
    async def short(ctx: Context) -> None:
        begun.add(str(ctx.job_id))
        await asyncio.sleep(0.001)

    owner = await connect_as("superuser")
    async with working(hf, lanes="general=4"):
        # While the row is locked, no number can be cleared. What was cleared before, and has no number, may run.
        await hf.enqueue_many([("short", {})] * 200)
        await until(lambda: conn.fetchval("select count(*) > 0 from beginnings"), what="numbers were given")
        async with owner.transaction():
            await owner.execute("select from beginnings for update")
            await hf.enqueue_many([("short", {})] * 3000)
            await until(lambda: _blocked(conn), what="a number waits to be cleared")
            # Leases whose number lies above the row: none of them has begun, nor will it while the row stays as it is.
            unbegun = await conn.fetch(
                "select job_id from leases l join beginnings b on b.worker = l.worker and l.number > b.number"
            )
            assert unbegun
            assert not {str(row["job_id"]) for row in unbegun} & begun
        await until(lambda: len(begun) == 3200, what="all begin once it can be cleared")


async def _blocked(conn: asyncpg.Connection) -> bool:
    return bool(
        await conn.fetchval(
            "select count(*) > 0 from pg_stat_activity"
            " where datname = current_database() and query like '%may_begin%' and wait_event_type = 'Lock'"
        )
    )
