"""The role of the control plane sees one tenant at a time, and nothing without one."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import enqueue
from tests.sql.meter import totals

#: Everything the role may call, with arguments that name a tenant ($1) and a job of another one ($2).
CALLS = {
    "submit": "submit(array[$1], array['me'], array['x'], array['{}'::jsonb], array[null::jsonb], array[$2::uuid])",
    "submit_free": "submit_free(array[$1], array['me'], array['x'], array['{}'::jsonb], array[null::jsonb],"
    " array[$2::uuid])",
    "refused_intents": "refused_intents(array[$1], array[$2::uuid::text], array['x'], array['{}'::jsonb],"
    " array[null::jsonb])",
    "public_jobs": "public_jobs(array[$1], array[$2::uuid])",
    "job_standings": "job_standings(array[$1], array[$2::uuid])",
    "visible_jobs": "visible_jobs(array[$1], array[$2::uuid])",
    "job_result": "job_result($1, $2)",
    "tenant_items": "tenant_items($1, $2, null, 10)",
    "tenant_items_page": "tenant_items_page($1, $2, null, 10)",
    "tenant_request": "tenant_request($1, 'cancel', $2, 'me', null)",
    "waiting_jobs": "waiting_jobs($1, 10)",
    "count_repeats": "count_repeats($1, '{x}', array[$2::uuid::text], '{k}')",
    "answered_key": "answered_key($1, $2::uuid::text, 'x', '{}'::jsonb)",
}
#: Those that are about keys, and know no tenant before they have found one.
ABOUT_KEYS = {"find_key", "touch_keys", "issue_events_token", "find_events_token"}
#: Tell whether the server takes writes, how large a payload may be and what workers take, or look at their argument.
ABOUT_THE_SERVER = {"probe", "payload_limit", "accepted_payloads", "readable"}
#: Says from where the caller speaks, and does nothing else.
ABOUT_THE_CALLER = {"as_caller"}


async def test_the_role_may_call_just_what_asks_for_a_tenant(connect_as: ConnectAs) -> None:
    conn = await connect_as("superuser")
    rows = await conn.fetch(
        "select p.proname, p.proargnames[1] as first from pg_proc p"
        " where p.pronamespace = 'holdfast'::regnamespace"
        " and has_function_privilege('holdfast_client', p.oid, 'execute')"
    )
    assert {row["proname"] for row in rows} == CALLS.keys() | ABOUT_KEYS | ABOUT_THE_SERVER | ABOUT_THE_CALLER
    assert {row["first"] for row in rows if row["proname"] in CALLS} == {"tenant", "tenants"}


async def test_the_role_has_no_right_on_any_table(conn: asyncpg.Connection) -> None:
    rights = await conn.fetch(
        "select c.relname, r.name from pg_class c"
        " cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger'])"
        "   as r (name)"
        " where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'v', 'p', 'm')"
        "   and has_table_privilege('holdfast_client', c.oid, r.name)"
    )
    assert {(row["relname"], row["name"]) for row in rights} == {("schema_steps", "select")}


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("tenant", [None, ""])
async def test_without_a_tenant_nothing_is_seen(connect_as: ConnectAs, name: str, tenant: str | None) -> None:
    client = await connect_as("client")
    if name in ("public_jobs", "job_standings", "visible_jobs") and tenant == "":
        assert await client.fetch(f"select * from {CALLS[name]}", tenant, uuid4()) == []
        return
    arguments: list[Any] = [tenant] if name == "waiting_jobs" else [tenant, uuid4()]
    with pytest.raises(asyncpg.PostgresError) as raised:
        await client.fetch(f"select * from {CALLS[name]}", *arguments)
    assert raised.value.sqlstate == "HF003"


async def test_jobs_and_ids_of_another_tenant_are_out_of_reach(connect_as: ConnectAs, conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, "x", tenant="theirs")
    before = await conn.fetchrow("select * from jobs where id = $1", job)
    client = await connect_as("client")
    for name in ("public_jobs", "job_standings", "job_result", "tenant_items", "tenant_items_page"):
        assert await client.fetch(f"select * from {CALLS[name]}", "mine", job) == []
    assert await client.fetchval(f"select {CALLS['tenant_request']}", "mine", job) == "not-found"
    assert await client.fetchval("select waiting_jobs('mine', 10)") == 0
    with pytest.raises(asyncpg.PostgresError, match="belongs to another job"):
        await client.fetch(f"select * from {CALLS['submit']}", "mine", job)
    named = (
        "select enqueue_many('{x}', array['{}'::jsonb], array['{\"idempotency_key\": \"k\"}'::jsonb], 'mine',"
        " ids => array[$1::uuid])"
    )
    with pytest.raises(asyncpg.PostgresError, match="belongs to another job"):
        await conn.fetch(named, job)
    assert await conn.fetchval("select count(*) from idempotency_keys") == 0
    assert await conn.fetchrow("select * from jobs where id = $1", job) == before
    assert await client.fetchval("select waiting_jobs('theirs', 10)") == 1


async def test_a_batch_of_many_callers_mixes_nothing_up(connect_as: ConnectAs, conn: asyncpg.Connection) -> None:
    client = await connect_as("client")
    count = 60
    tenants = [f"t{n % 7}" for n in range(count)]
    creators = [f"c{n % 3}" for n in range(count)]
    ids = [await conn.fetchval("select uuid_v7()") for _ in range(count)]
    options = [f'{{"idempotency_key": "k{n % 5}"}}' if n % 2 else None for n in range(count)]
    rows = await client.fetch(
        "select * from submit($1, $2, $3, $4::text[]::jsonb[], $5::text[]::jsonb[], $6)",
        tenants,
        creators,
        [f"type{n % 4}" for n in range(count)],
        [f'{{"n": {n}}}' for n in range(count)],
        options,
        ids,
    )
    answered = {row["item"]: row for row in rows}
    assert sorted(answered) == list(range(1, count + 1))
    stored = {row["id"]: row for row in await conn.fetch("select * from jobs")}
    for n in range(count):
        answer = answered[n + 1]
        job = stored[answer["job_id"]]
        assert job["tenant"] == tenants[n]
        if answer["outcome"] == "created":
            assert (job["id"], job["created_by"], job["payload"]) == (ids[n], creators[n], f'{{"n": {n}}}')
        else:
            assert job["idempotency_key"] == f"k{n % 5}"


async def test_the_audit_log_is_only_added_to(conn: asyncpg.Connection) -> None:
    await conn.execute("select note_audit('me', null, 'default', 'something', null)")
    for statement in ("update audit_log set actor = 'you'", "delete from audit_log", "truncate audit_log"):
        with pytest.raises(asyncpg.PostgresError, match="cannot be changed or deleted"):
            await conn.execute(statement)


async def test_keys_are_stored_as_hashes_alone(conn: asyncpg.Connection) -> None:
    columns = await conn.fetch("select column_name from information_schema.columns where table_name = 'api_keys'")
    assert "secret" not in {row["column_name"] for row in columns}


async def test_a_page_of_ones_own_jobs_does_not_walk_past_those_of_others(conn: asyncpg.Connection) -> None:
    """Even if the last statistics are of a time when there were no others."""
    await conn.execute("select enqueue('x', tenant => 'beta') from generate_series(1, 5)")
    await conn.execute("analyze jobs")
    await conn.execute("select enqueue('x', tenant => 'acme') from generate_series(1, 1000)")
    before = await totals(conn)
    for tree in ('{"and": []}', '{"text": "nothing"}'):
        await conn.fetch("select * from search_jobs($1::jsonb, 'beta')", tree)
    assert (await totals(conn) - before).rows < 500  # without an index it is 8000
