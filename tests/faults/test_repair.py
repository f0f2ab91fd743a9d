"""Rows left inconsistent on purpose wedge nothing, and are mended while workers run."""

from __future__ import annotations

from uuid import uuid4

import asyncpg

from holdfast import Context, Holdfast
from tests.harness.deeds import Deeds
from tests.harness.inprocess import working
from tests.harness.waiting import until


async def test_inconsistent_rows_wedge_nothing_and_are_mended(
    hf: Holdfast, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    @hf.job("work", lease=1)
    async def work(ctx: Context) -> int:
        return ctx.attempt

    refs = await hf.enqueue_many([("work", {}, {"target": f"target {n}" if n % 2 else None}) for n in range(8)])
    later = await hf.enqueue("work", delay=0.5)
    plain, aimed = refs[0].id, refs[1].id
    async with conn.transaction():
        await conn.execute("delete from ready where job_id = $1", plain)
        await conn.execute("delete from waiting where job_id = $1", aimed)
        await conn.execute("delete from calls")
        await conn.execute("delete from due")
        await conn.execute(
            "insert into ready (stream, rank, seq, job_id) select id, 0, -1, $1 from streams where type = 'work'",
            uuid4(),
        )
        await conn.execute("insert into due (run_at, job_id) values (now() - interval '1 hour', $1)", uuid4())
        await conn.execute("insert into heads (tenant, target, job_id) values ('default', 'target 3', $1)", uuid4())
        await conn.execute("delete from ready where job_id = $1", refs[2].id)
        await conn.execute(
            "update jobs set state = 'running', attempt = 1, started_at = now() where id = $1", refs[2].id
        )
        await conn.execute(
            "insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker) "
            "select $1, 7, 1, 1, now(), now(), now(), 'nobody'",
            refs[4].id,
        )
    found = await conn.fetch("select * from verify()")
    deeds.say(f"{len(found)} offences planted and mended")
    assert found

    async with working(hf):
        for ref in (*refs, later):
            done = await hf.wait(ref.id, timeout=60)
            assert done.state == "success"
        await until(lambda: conn.fetch("select 1 where not exists (select from verify())"), what="all is mended")
    assert (await hf.client.backlog())["repairs"] > 0
    assert [attempt.outcome for attempt in await hf.attempts(refs[2].id)] == ["lost", "success"]
