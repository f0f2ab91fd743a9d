"""The step that gathers the jobs of bulk operations lets those begin anew that were looking for theirs."""

from __future__ import annotations

import asyncpg

from holdfast.config import Config
from holdfast.store.migrate import migrate

BULK = """
    insert into bulks (id, action, query, tree, by, state, sources, reached, matched, last_place)
    select gen_random_uuid(), 'delete', 'state:x', '{"and": []}', 'ada', state,
      array['letters', 'due', 'waiting', 'ready', 'leases', 'due'], '{3,1}', 1, 1
    from unnest(array['fixing', 'running']) as s (state)"""
JOB = """
    insert into jobs (id, seq, stream, state, tenant, type, queue, payload)
    values (gen_random_uuid(), nextval('places'), 1, 'error', 'default', 'work', 'default', '{}')"""


async def test_operations_that_were_looking_for_their_jobs_begin_anew(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config, up_to=32)
    conn = await asyncpg.connect(empty_database_url, server_settings={"search_path": "holdfast"})
    try:
        for statement in (BULK, JOB):
            await conn.execute(statement)
        await migrate(config)
        rows = await conn.fetch("select state, sources, reached, matched from bulks order by state")
        assert [tuple(row) for row in rows] == [
            ("fixing", ["due", "waiting", "ready", "leases", "letters"], None, 1),
            ("running", ["letters", "due", "waiting", "ready", "leases", "due"], ["3", "1"], 1),
        ]
        walks = await conn.fetch("select * from walks order by name")
        assert [tuple(row) for row in walks] == [("dormant", None), ("held", None)]
        # What was held before the table of dormant jobs is noted by its walk.
        assert await conn.fetchval("select count(*) from dormant") == 0
        assert await conn.fetchval("select mended from note_dormant()") == 1
        assert await conn.fetchval("select job_id from dormant") == await conn.fetchval("select id from jobs")
    finally:
        await conn.close()
