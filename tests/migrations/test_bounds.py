"""The step that bounds numbers and moments mends rows that are out of bounds."""

from __future__ import annotations

import asyncpg

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.store.migrate import migrate

JOB = """
    insert into jobs (id, seq, stream, state, tenant, type, queue, payload, run_at, updated_at)
    values (gen_random_uuid(), nextval('places'), 1, 'scheduled', 'default', 'work', 'default', '{}', $1, $2)
    returning id"""


async def test_rows_out_of_bounds_are_mended(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config, up_to=11)
    conn = await asyncpg.connect(empty_database_url, server_settings={"search_path": "holdfast"})
    try:
        for moment in ("10240-01-01", "infinity", "-infinity"):
            job_id = await conn.fetchval(
                JOB.replace("$1", f"'{moment}'").replace("$2", "now()" if moment != "infinity" else "'infinity'")
            )
            await conn.execute(f"insert into due (run_at, job_id) values ('{moment}', $1)", job_id)
            await conn.execute(
                "insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker)"
                " values ($1, 1, 1, 'infinity', now(), now(), 'infinity', 'w')",
                job_id,
            )
        # A finite moment that no client can read: the year 4000 BC, and the year 20000.
        await conn.execute(
            "update leases set lease_seconds = 30, expires_at = '20000-01-01' where job_id in (select job_id from due"
            " where run_at = 'infinity');"
            "update leases set lease_seconds = 30, expires_at = '4000-01-01 BC' where job_id in (select job_id from due"
            " where run_at = '-infinity');"
            "update jobs set started_at = '20000-01-01', last_error_at = '4000-01-01 BC' where run_at = 'infinity'"
        )
        await conn.execute(
            "insert into job_types (name, lease_seconds, timeout_seconds, backoff_max, max_attempts)"
            " values ('work', '1e30', 'infinity', 'nan', null)"
        )
        await migrate(config)
        rows = await conn.fetch("select j.run_at = d.run_at as same from jobs j join due d on d.job_id = j.id")
        assert [row["same"] for row in rows] == [True] * 3
        assert await conn.fetchval("select max(lease_seconds) from leases") == 30
        assert await conn.fetchval("select bool_and(expires_at - now() < interval '31 s') from leases")
        assert await conn.fetchval("select max(started_at) is not null and max(last_error_at) is not null from jobs")
        await conn.execute("alter table jobs validate constraint jobs_moments_check")
        row = await conn.fetchrow("select lease_seconds, timeout_seconds, backoff_max, max_attempts from job_types")
        assert row is not None
        assert tuple(row) == (604800, 31536000, 2592000, None)
        await conn.execute("select * from renew('w', array(select job_id from leases), '{1,1,1}')")
    finally:
        await conn.close()
    async with Holdfast(empty_database_url) as hf:
        assert len(await hf.find(limit=10)) == 3
