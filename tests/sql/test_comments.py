"""In psql, `\\df+` and `\\d+` say what everything is for."""

from __future__ import annotations

import asyncpg

_COMMENTS = """
    select proname::text as name, obj_description(oid, 'pg_proc') as comment
    from pg_proc
    where pronamespace = 'holdfast'::regnamespace
    union all
    select relname::text, obj_description(oid, 'pg_class')
    from pg_class
    where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p', 'v')
    order by 1"""


async def test_everything_that_can_be_called_or_read_has_one_sentence(conn: asyncpg.Connection) -> None:
    told = {row["name"]: row["comment"] or "" for row in await conn.fetch(_COMMENTS)}
    assert {"claim", "explain", "jobs", "job_details"} <= told.keys()
    assert [name for name, comment in told.items() if not comment] == []
    # A sentence that stands alone, and not a note for readers of the file.
    assert [c for c in told.values() if not c.endswith(".") or c.startswith(("The same", "Moves:", "Roles:"))] == []
    assert [comment for comment in told.values() if len(comment) > 250] == []
