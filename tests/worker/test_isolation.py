"""Whatever level of isolation the database has as its default, everything works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast import Context, Holdfast


@pytest.fixture(params=["repeatable read", "serializable"])
async def strict_url(request: pytest.FixtureRequest, database_url: str, conn: asyncpg.Connection) -> AsyncIterator[str]:
    """A database whose sessions keep one snapshot per transaction, unless they ask for another."""
    name = await conn.fetchval("select current_database()")
    await conn.execute(f"alter database {name} set default_transaction_isolation = '{request.param}'")
    yield database_url
    await conn.execute(f"alter database {name} reset all")


async def test_jobs_are_recorded_once_and_run(strict_url: str, conn: asyncpg.Connection) -> None:
    hf = Holdfast(strict_url)

    @hf.job("tick")
    async def tick(ctx: Context, number: int) -> int:
        return number

    @hf.job("record", lease=3.0)
    async def record(ctx: Context) -> None:
        async with ctx.transaction() as ours:
            await ours.fetchval("select count(*) from pg_class")
            expires = await conn.fetchval("select expires_at from leases where job_id = $1", ctx.job_id)
            while await conn.fetchval("select expires_at from leases where job_id = $1", ctx.job_id) == expires:
                await asyncio.sleep(0.02)  # until the lease is renewed under the open transaction

    async with hf:
        keyed = await asyncio.gather(
            *(hf.enqueue("tick", {"number": n % 5}, idempotency_key=f"k{n % 5}") for n in range(40))
        )
        assert len({ref.id for ref in keyed}) == 5
        plain = await hf.enqueue_many([("tick", {"number": n}) for n in range(200)])
        canceled = await hf.enqueue("tick", {"number": 1}, delay=60)
        await hf.cancel(canceled.id)
        written = await record.enqueue()
        await asyncio.gather(*(hf.run_worker(burst=True) for _ in range(3)))
        assert (await hf.get(written.id)).state == "success"
        assert (await hf.get(canceled.id)).state == "canceled"
        assert {(await hf.get(ref.id)).state for ref in (*keyed, plain[-1])} == {"success"}
    assert await conn.fetchval("select count(*) from jobs where state = 'success'") == 207
    # On a busy machine, some of what was claimed ahead is handed back.
    assert await conn.fetchval("select count(*) from job_attempts where outcome not in ('success', 'released')") == 0
