"""Plans that a session made while the tables were empty, and keeps, stay good when the tables have grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from tests.sql.factories import claim, enqueue, enqueue_copies, run_one, settle
from tests.sql.meter import leave_alone, totals

_MANY = 20_000
#: A job is looked up by its id, its key or its target, and nothing else is touched. Arguments: the ids of an
#: ended job, of a held one and of a running one, by their names.
LOOK_UPS: dict[str, tuple[str, Sequence[str]]] = {
    "its standing": ("select * from visible_jobs(array['default'], array[$1::uuid])", ["ended"]),
    "its public fields": ("select * from public_jobs(array['default'], array[$1::uuid])", ["ended"]),
    "its result": ("select * from job_result('default', $1)", ["ended"]),
    "all of it": ("select * from get_jobs(array[$1::uuid])", ["ended"]),
    "its attempts": ("select * from attempts_page($1, null, null, 10)", ["ended"]),
    "its events": ("select * from events_page($1, null, null, 10)", ["ended"]),
    "its items": ("select * from tenant_items_page('default', $1, null, 10)", ["ended"]),
    "why it waits": ("select * from explain($1)", ["held"]),
    "what its key answers": ("select * from answered_key('default', 'the-key', 'work', '{}')", []),
    "a repeated key": ("select * from enqueue('work', idempotency_key => 'the-key')", []),
    "a child": ("select * from enqueue('work', parent_id => $1, hold => true)", ["ended"]),
    "a dedup key": ("select * from enqueue('work', dedup_key => 'the-key', hold => true)", []),
    "a target": ("select * from enqueue('work', target => 'the target', hold => true)", []),
    "a request": ("select * from request('cancel', array[$1::uuid])", ["ended"]),
    "a tenant's request": ("select tenant_request('default', 'cancel', $1, 'a test', null)", ["ended"]),
    "a request in vain": ("select * from request('resume', array[$1::uuid])", ["held"]),
    "a claim by id": ("select * from claim_by_id('w1', $1)", ["held"]),
    "a settlement too late": ("select * from complete('w2', array[$1::uuid], array[1])", ["running"]),
    "its family": ("select * from job_family($1, null)", ["ended"]),
    "its correlation": ("select correlated_ids('the correlation', null, null, 50)", []),
    "its correlation of one tenant": ("select correlated_ids(($1::uuid)::text, 'default', null, 50)", ["ended"]),
    "a report": ("select * from report('w1', $1, 1, 1, progress => 1)", ["running"]),
}


@pytest.mark.fresh_database
async def test_a_look_up_stays_cheap_though_its_plan_is_of_the_first_day(conn: asyncpg.Connection) -> None:
    await leave_alone(conn)
    await settle(conn, "complete", [lease := await run_one(conn, idempotency_key="the-key")])
    named = {
        "ended": lease.job_id,
        "held": await enqueue(conn, hold=True),
        "running": (await run_one(conn)).job_id,
    }
    prepared: dict[str, tuple[Any, list[Any]]] = {}
    for name, (sql, wanted) in LOOK_UPS.items():
        prepared[name] = await conn.prepare(sql), [named[one] for one in wanted]
        for _ in range(8):
            await _call(*prepared[name])
    for _ in range(_MANY // 1000):
        await enqueue_copies(conn, 1000)
        await settle(conn, "complete", await claim(conn, limit=1000))
    await conn.execute(
        "insert into job_events (job_id, event) select id, 'paused' from jobs;"
        "insert into job_items (job_id, id, tenant, collection, key, data)"
        " select id, 1, 'default', 'c', id::text, '1' from jobs;"
        "insert into idempotency_keys select (k).* from (select jsonb_populate_record(null::idempotency_keys,"
        " to_jsonb(one) || jsonb_build_object('key', j.id::text, 'job_id', j.id)) as k"
        " from idempotency_keys one, jobs j where one.key = 'the-key') found"
    )
    dear = {}
    for name in LOOK_UPS:
        before = await totals(conn)
        await _call(*prepared[name])
        cost = await totals(conn) - before
        if cost.rows > 1_000:
            dear[name] = cost.rows
    assert dear == {}


async def _call(statement: Any, arguments: list[Any]) -> None:
    await statement.fetch(*arguments)
