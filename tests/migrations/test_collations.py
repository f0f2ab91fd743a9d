"""Step 11: names and keys are compared by their bytes, so that another C library changes no index."""

from __future__ import annotations

import asyncpg

from holdfast.config import Config
from holdfast.store.migrate import migrate

INDEXED = """
    select c.relname || '.' || a.attname as name, l.collname
    from pg_index i
    join pg_class c on c.oid = i.indrelid
    join unnest(i.indkey::smallint[], i.indcollation::oid[]) as k (attribute, language) on k.language <> 0
    join pg_collation l on l.oid = k.language
    left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attribute
    where c.relnamespace = 'holdfast'::regnamespace"""


async def test_no_index_depends_on_a_language(conn: asyncpg.Connection) -> None:
    found = await conn.fetch(INDEXED)
    assert {"jobs.dedup_key", "idempotency_keys.key", "heads.target"} <= {row["name"] for row in found}
    assert {row["name"] for row in found if row["collname"] != "C"} == set()


async def test_keys_recorded_before_are_found_after(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config, up_to=10)
    conn = await asyncpg.connect(empty_database_url)
    try:
        await conn.execute(
            "insert into holdfast.streams (tenant, queue, type) values ('default', 'default', 'work');"
            "insert into holdfast.jobs (id, seq, stream, state, tenant, type, queue, payload, dedup_key)"
            " select gen_random_uuid(), n, 1, 'queued', 'default', 'work', 'default', '{}', k"
            " from unnest(array['b', 'A', 'a', 'é', 'B', '-a', '_']) with ordinality as keys (k, n)"
        )
        await migrate(config)
        outcomes = await conn.fetch(
            "select e.outcome from unnest(array['A', 'é', '_', 'b', 'new']) as k"
            " cross join lateral holdfast.enqueue('work', '{}', dedup_key => k) e"
        )
        assert [row["outcome"] for row in outcomes] == ["existing"] * 4 + ["created"]
    finally:
        await conn.close()
