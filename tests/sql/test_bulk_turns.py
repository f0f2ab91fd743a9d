"""Whose turn it is among bulk operations: tenants share, failed portions are remembered, and sizes follow the time."""

from __future__ import annotations

import json

import asyncpg
import pytest

from holdfast import Holdfast
from tests.sql.factories import enqueue, enqueue_copies, enqueue_many, portion, state_of
from tests.sql.test_bulk import counts, finish, look, start


async def test_a_tenant_with_many_operations_has_every_second_turn(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 300, tenant="evil")
    many = {await start(conn, "pause", "", only_tenant="evil") for _ in range(20)}
    job = await enqueue(conn, tenant="acme", delay=3600)
    lone = await start(conn, "cancel", "", only_tenant="acme")
    turns = []
    while (await look(conn, lone))["state"] != "done":
        turns.append(await portion(conn, 10))
        # As if each portion took no time: one that a busy machine holds up has its next turn later (see below).
        await conn.execute("update bulks set turned_at = clock_timestamp() where id = $1", turns[-1])
    assert await state_of(conn, job) == "canceled"
    assert turns.count(lone) >= len(turns) // 2
    assert set(turns) <= {*many, lone}


async def test_a_costly_portion_gives_others_as_much_time(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 30, tenant="evil")
    costly = await start(conn, "pause", "", only_tenant="evil")
    await conn.execute(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(2); return new; end $$"
    )
    await conn.execute(
        "create trigger slow before insert on bulk_jobs for each row when (new.place = 1) execute function slow()"
    )
    while not await conn.fetchval("select count(*) from bulk_jobs"):
        assert await portion(conn, 100) == costly
    await conn.execute("drop trigger slow on bulk_jobs")
    jobs = await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 5, tenant="acme")
    lone = await start(conn, "cancel", "", only_tenant="acme")
    while (await look(conn, lone))["state"] != "done":
        assert await portion(conn, 100) == lone, "no other turn comes between those of the quick one"
    assert {await state_of(conn, job["job_id"]) for job in jobs} == {"canceled"}


async def test_portions_that_are_cut_off_count_as_long(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 30, tenant="evil")
    many = {await start(conn, "pause", "", only_tenant="evil") for _ in range(5)}
    assert await conn.fetchval("select turn_bulk()") in many  # and its statement is cut off
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 5, tenant="acme")
    lone = await start(conn, "cancel", "", only_tenant="acme")
    while (await look(conn, lone))["state"] != "done":
        assert await portion(conn, 100) == lone, "no other turn comes between those of the quick one"


async def test_new_operations_of_a_tenant_do_not_come_before_those_of_others(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 3, tenant="evil")
    await enqueue_many(conn, [("work", {}, {"delay": 3600})] * 300, tenant="acme")
    lone = await start(conn, "pause", "", only_tenant="acme")
    turns = []
    for _ in range(12):
        if not await conn.fetchval("select count(*) from bulks where tenant = 'evil' and finished_at is null"):
            await start(conn, "reprioritize", "", args='{"priority": 7}', only_tenant="evil")
        turns.append(await portion(conn, 1))
    assert 5 <= turns.count(lone) <= 7


async def test_a_portion_that_is_never_finished_holds_up_nobody_and_ends_with_an_error(
    conn: asyncpg.Connection,
) -> None:
    await enqueue_copies(conn, 40, delay=3600)
    job = await enqueue(conn, "other", delay=3600)
    stuck, other = await start(conn, "pause", "type:work"), await start(conn, "cancel", "type:other")
    tries = 0
    for _ in range(60):
        chosen = await conn.fetchval("select turn_bulk()")
        if chosen == stuck and (await look(conn, stuck))["state"] == "fixing":
            tries += 1  # and its process dies, or the server ends the statement
        elif chosen is not None:
            await conn.execute("select advance_bulk($1, 100)", chosen)
    assert tries == 12
    assert (await look(conn, other))["state"] == "done"
    assert await state_of(conn, job) == "canceled"
    bulk = await look(conn, stuck)
    assert bulk["state"] == "stopped"
    assert "took too long" in bulk["error"]


async def test_after_an_unfinished_portion_the_next_one_is_smaller_and_misses_nothing(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 450, delay=3600)
    bulk = await start(conn, "pause", "")
    await portion(conn, 100)  # gathers
    for _ in range(4):
        assert await conn.fetchval("select turn_bulk()") == bulk
    await portion(conn, 100)
    _, matched, *_ = await counts(conn, bulk)
    assert 0 < matched < 20
    await finish(conn)
    assert await counts(conn, bulk) == ("done", len(jobs), len(jobs), 0, 0)
    assert (await look(conn, bulk))["pace"] == 1


@pytest.mark.parametrize(
    "tree",
    [
        {"or": [{"text": str(number)} for number in range(400)]},
        {"and": [{"field": "type", "op": "=", "value": ["x" * 200_000]}]},
    ],
)
async def test_a_tree_beyond_what_a_query_may_have_is_refused(conn: asyncpg.Connection, tree: object) -> None:
    dead = """'{"field": "state", "op": "=", "value": ["dead"]}'::jsonb"""
    for call in (
        "select * from search_jobs($1::text::jsonb, null, null, 10, 100)",
        "select * from search_letters($1::text::jsonb, null, null, null, null, null, 10, 100)",
        "select start_bulk('cancel', 'q', $1::text::jsonb, 'ada')",
        "select * from preview_bulk('requeue', $1::text::jsonb)",
        f"select * from preview_bulk('resume', jsonb_build_object('and', jsonb_build_array($1::text::jsonb, {dead})))",
    ):
        with pytest.raises(asyncpg.PostgresError, match="too many terms"):
            await conn.fetch(call, json.dumps(tree))
    assert not await conn.fetchval("select count(*) from bulks")


async def test_a_choice_of_nothing_fits_nothing(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    row = await conn.fetchrow("select * from search_jobs($1::text::jsonb, null, null, 10, 100)", '{"or": []}')
    assert row is not None
    assert row["ids"] == []


async def test_what_is_not_one_query_with_options_is_refused_where_it_is_started(conn: asyncpg.Connection) -> None:
    call = "select start_bulk('requeue', $1, '{\"and\": []}', 'ada', $2::text::jsonb)"
    for query, args, told in (
        ("q" * 2001, "{}", "at most 2000 characters"),
        ("q", '{"options": {"priority": ' + "9" * 5000 + "}}", "priority"),
        ("q", '{"options": {"tenant": "b"}}', "unknown option tenant"),
        ("q", '{"options": []}', "a JSON object"),
        ("q", json.dumps({"options": {"queue": "x" * 200_000}}), "at most 100000 bytes"),
    ):
        with pytest.raises(asyncpg.PostgresError, match=told):
            await conn.fetch(call, query, args)
    assert not await conn.fetchval("select count(*) from bulks")


async def test_a_planted_row_does_not_break_the_list(conn: asyncpg.Connection, database_url: str) -> None:
    bulk = await start(conn, "ack", "")
    for args in ("null", "[1]", "[" * 2000 + "]" * 2000, '{"a": ' + "9" * 5000 + "}"):
        await conn.execute("update bulks set args = $1::text::jsonb, query = repeat('q', 100000)", args)
        async with Holdfast(database_url) as hf:
            (listed,) = await (await hf.operations()).bulk.list()
        assert (listed.id, listed.args, len(listed.query)) == (bulk, {}, 2000)
