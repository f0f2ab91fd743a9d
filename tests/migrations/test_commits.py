"""The step that secures commits is taken while clients and workers of the release before go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from holdfast import Context, Holdfast
from holdfast.config import Config
from holdfast.store.migrate import migrate
from tests.harness.waiting import until

#: Back to the release before: its functions are the same, and its tables have no triggers that wait for the commit.
BEFORE = """
    do $$
    declare
      trigger record;
    begin
      for trigger in
        select tgname, tgrelid::regclass as owner from pg_trigger
        where tgname like 'secured%' and tgrelid = any (
          select oid from pg_class where relnamespace = 'holdfast'::regnamespace)
      loop
        execute format('drop trigger %I on %s', trigger.tgname, trigger.owner);
      end loop;
    end
    $$;
    drop function holdfast.secure_commit;
    delete from holdfast.schema_steps where name like '%_commits';
    update holdfast.schema_functions set checksum = '' where name = 'durability'"""


async def test_the_step_is_applied_while_jobs_are_recorded_and_run(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config)
    admin = await asyncpg.connect(empty_database_url)
    ran: set[int] = set()
    async with Holdfast(empty_database_url) as hf:

        @hf.job("count")
        async def count(ctx: Context, n: int) -> None:
            ran.add(n)

        worker = asyncio.create_task(hf.run_worker())
        await hf.enqueue("count", {"n": -1})
        await until(lambda: happened(-1 in ran), what="the worker runs jobs")
        await admin.execute(BEFORE)

        open_one = admin.transaction()
        await open_one.start()
        await admin.execute("select holdfast.enqueue('count', '{\"n\": -2}')")
        migration = asyncio.create_task(migrate(config))
        await until(lambda: waiting(admin, 1), what="the migration waits for a job that is being recorded")
        more = asyncio.create_task(hf.enqueue_many([("count", {"n": n}) for n in range(50)]))
        await until(lambda: waiting(admin, 2), what="whoever comes now waits for the migration")
        await open_one.commit()
        await asyncio.gather(migration, more)
        await until(lambda: happened(ran == {*range(-2, 50)}), seconds=30, what="all jobs have run")
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    assert await admin.fetch("select * from holdfast.verify()") == []
    await admin.execute("set synchronous_commit = off")
    async with admin.transaction():
        await admin.execute("select holdfast.enqueue('count', '{}')")
        await admin.execute("set local synchronous_commit = off")
        await admin.execute("set constraints all immediate")
        assert await admin.fetchval("show synchronous_commit") == "on"
    await admin.close()


async def waiting(conn: asyncpg.Connection, sessions: int) -> bool:
    return bool(
        await conn.fetchval(
            "select count(*) >= $1 from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'",
            sessions,
        )
    )


async def happened(what: bool) -> bool:
    return what
