"""Time can be moved, and jobs deleted, in databases of the kit and nowhere else."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast import Config, Context, DatabaseUnavailable, Holdfast, HoldfastError, SchemaError
from holdfast.store.migrate import ROLES, migrate
from holdfast.store.statements import kit_queries, script
from holdfast.testing import Jobs
from holdfast.testing.kit import Sandboxes, jobs_of, new_database, server
from holdfast.testing.sandbox import Sandbox
from tests.testing.app import hf


async def test_a_schema_that_others_made_is_refused_and_left_alone(config: Config, conn: asyncpg.Connection) -> None:
    async with Holdfast(config.database_url) as production:
        await production.enqueue("kept")
    with pytest.raises(SchemaError, match="not made by the testing kit"):
        Sandbox(config)
    assert await conn.fetchval("select count(*) from holdfast.jobs") == 1
    for statement in ("testing_freeze", "testing_advance", "testing_reset", "testing_clear"):
        arguments = {"testing_freeze": (None,), "testing_advance": (1.0,)}.get(statement, ())
        with pytest.raises((asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)):
            await conn.execute(kit_queries("holdfast")[statement], *arguments)


async def test_a_schema_that_was_migrated_gets_no_clock(conn: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.PostgresError, match="was migrated without the testing clock"):
        await conn.execute(script("testing/clock", "holdfast"))


async def test_a_login_that_is_no_superuser_will_do(conn: asyncpg.Connection, holdfast_server_url: str) -> None:
    name = f"plain_{secrets.token_hex(4)}"
    await conn.execute(f"create role {name} login password 'secret' createdb createrole")
    parts = urlsplit(holdfast_server_url)
    url = urlunsplit(parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}"))
    app = Holdfast(schema=f"{name}_jobs")

    @app.job("sum")
    async def add_up(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    with server(url, Path("unused")) as server_url, new_database(server_url) as database_url:
        with closing(Sandboxes(database_url)) as sandboxes, jobs_of(app, sandboxes.of(app)) as plain:
            plain.freeze()
            await add_up.options(delay=60).enqueue(numbers=[1, 2])
            with plain.database_down(), pytest.raises(DatabaseUnavailable):
                await add_up.enqueue(numbers=[])
            plain.advance(60)
            assert [run.result for run in await plain.run_due()] == [3]
            plain._sandbox.reset()
            plain.assert_not_enqueued(ended=True)
    for role in (*(f"{name}_jobs_{role}" for role in ROLES), name):
        await conn.execute(f"drop role {role}")


async def test_no_migration_makes_the_clock(conn: asyncpg.Connection) -> None:
    found = await conn.fetch(
        "select p.proname from pg_proc p where p.pronamespace = 'holdfast'::regnamespace"
        " and (p.proname like 'testing%' or exists (select from pg_proc o"
        " where o.pronamespace = 'pg_catalog'::regnamespace and o.proname = p.proname"
        " and o.pronargs = 0 and p.pronargs = 0))"
    )
    assert found == []
    assert not await conn.fetchval(kit_queries("holdfast")["has_clock"], "holdfast")


async def test_every_table_is_emptied_between_tests(jobs: Jobs) -> None:
    conn = await asyncpg.connect(jobs.database_url, server_settings={"search_path": "holdfast"})
    try:
        await _leave_something_everywhere(jobs, conn)
        filled = await _counts(conn)
        assert [table for table, count in filled.items() if not count] == []
        jobs._sandbox.reset()
        left = await _counts(conn)
        assert {t for t, n in left.items() if n} == {"schema_functions", "schema_steps", "settings", "testing_clock"}
        assert await conn.fetchval("select count(*) from settings where value is not null") == 0
    finally:
        await conn.close()


async def test_the_guard_stays_in_force(jobs: Jobs) -> None:
    ref = await hf.enqueue("email.send", {"to": "ada"})
    conn = await asyncpg.connect(jobs.database_url)
    try:
        with pytest.raises(asyncpg.PostgresError, match="cannot be deleted before it has ended"):
            await conn.execute("delete from holdfast.jobs where id = $1", ref.id)
    finally:
        await conn.close()


async def test_a_transaction_left_open_is_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    await hf.enqueue("email.send", {"to": "ada"})
    conn = await asyncpg.connect(jobs.database_url)
    try:
        await jobs._sandbox.kit.now()
        await conn.execute("alter function holdfast.testing_clear() set lock_timeout = '50ms'")
        async with conn.transaction():
            await conn.execute("select from holdfast.jobs for update")
            with pytest.raises(HoldfastError, match="left a transaction open"):
                jobs._sandbox.reset()
    finally:
        await conn.execute("alter function holdfast.testing_clear() set lock_timeout = '5s'")
        await conn.close()


async def test_the_app_is_bound_for_the_test_alone(jobs: Jobs, holdfast_sandboxes: Sandboxes) -> None:
    app = Holdfast("postgresql://nobody@nowhere.invalid/production")
    sandbox = holdfast_sandboxes.of(app)
    before = app.config, app.client
    with sandbox.bound(app):
        assert app.config.database_url == app.sync.config.database_url == jobs.database_url
        await app.enqueue("anything")
        assert jobs.assert_enqueued("anything").state == "queued"
    assert (app.config, app.client) == before
    assert app.sync.config.database_url == "postgresql://nobody@nowhere.invalid/production"


async def test_an_app_that_is_open_is_not_bound_and_not_left_open(jobs: Jobs) -> None:
    sandbox = jobs._sandbox
    app = Holdfast(jobs.database_url)
    app.config = sandbox.config
    async with app:
        with pytest.raises(HoldfastError, match="is open already"), sandbox.bound(app):
            pass
    database = app._database
    with pytest.raises(HoldfastError, match="not closed"), sandbox.bound(app):
        await app.open()
    await database.close()
    with sandbox.bound(app):
        await app.enqueue("anything")


async def test_nothing_real_uses_a_schema_that_tests_empty(jobs: Jobs) -> None:
    app = Holdfast(jobs.database_url)
    with pytest.raises(SchemaError, match="made by the testing kit"):
        await app.open()
    with pytest.raises(SchemaError, match="made by the testing kit"):
        await migrate(app.config)


def test_an_app_that_keeps_its_own_database_is_refused(jobs: Jobs) -> None:
    """Or its jobs would go there, from a test that believes otherwise."""

    class Stubborn(Holdfast):
        @property
        def config(self) -> Config:
            return Config.load(environment={}, database_url="postgresql://real@127.0.0.1:1/real")

        @config.setter
        def config(self, _config: Config) -> None: ...

    with pytest.raises(HoldfastError, match="cannot be bound to a test database"), jobs._sandbox.bound(Stubborn()):
        pass


async def test_the_app_may_be_opened_in_the_test(jobs: Jobs) -> None:
    async with hf:
        await hf.check()
        ref = await hf.enqueue("email.send", {"to": "ada"})
        assert [run.job_id for run in await jobs.run_due()] == [ref.id]
    assert (await hf.get(ref.id)).state == "success"


async def test_a_separate_database_is_another_one(jobs: Jobs, holdfast_server_url: str) -> None:
    with new_database(holdfast_server_url) as url:
        sandboxes = Sandboxes(url)
        app = Holdfast(schema="acme")
        with jobs_of(app, sandboxes.of(app)) as separate:
            assert separate.database_url != jobs.database_url
            app.sync.enqueue("over there")
            separate.assert_enqueued("over there")
            jobs.assert_not_enqueued()
            assert separate.advance(3600) > jobs.now()
        sandboxes.close()


async def _leave_something_everywhere(jobs: Jobs, conn: asyncpg.Connection) -> None:
    hf.sync.enqueue("email.send", {"to": "nobody"}, max_attempts=1)
    held = hf.sync.enqueue("email.send", {"to": "a"}, delay=60)
    hf.sync.pause(held.id)
    hf.sync.enqueue("crawl")
    await jobs.run_due()
    hf.sync.enqueue("email.send", {"to": "b"})
    hf.sync.enqueue("email.send", {"to": "c"}, delay=60)
    for _ in range(2):
        hf.sync.enqueue("email.send", {"to": "d"}, target="t")
    jobs.crash_next("email.send")
    await jobs.run_due(limit=1)
    hf.sync.enqueue("email.send", {"to": "e"}, target="t")
    hf.sync.enqueue("email.send", {"to": "f"}, idempotency_key="k")
    await conn.execute("insert into heads (tenant, target) values ('default', 'u')")
    await conn.execute("update settings set value = '1' where name = 'AGEING_SECONDS'")
    await conn.execute("insert into leaders values ('maintenance', 'me', 1, now())")
    await conn.execute("insert into remote_pulls (tenant, worker, request_id) values ('default', 'remote:open:w', 'r')")
    await conn.execute("insert into repairs values ('some', 1)")
    await conn.execute("insert into failing values (gen_random_uuid(), 'default', 'f', 1)")
    await conn.execute(
        "insert into fingerprints values ('default', 'f', 'work', null, null, 1, now(), now(), gen_random_uuid())"
    )
    await conn.execute(
        "with one as (insert into bulks (id, action, query, tree, by, state, sources)"
        " values (gen_random_uuid(), 'ack', '', '{}', 'me', 'running', '{}') returning id)"
        " insert into bulk_jobs (bulk_id, place, job_id) select id, 1, gen_random_uuid() from one"
    )
    await conn.execute("insert into bulk_found select id, 1, '{}' from bulks")
    await conn.execute("insert into walks values ('held', null)")
    await conn.execute("insert into erasures values (gen_random_uuid(), 1, 1)")
    await conn.execute("insert into pending_decisions values (gen_random_uuid(), gen_random_uuid(), default, 'cancel')")
    await conn.execute("select close_type('closed', 'me')")
    await conn.execute("select note_clock_step(100.0)")
    await conn.execute("insert into beginnings values ('w', 0, 1)")
    await conn.execute("insert into controls (kind, name, weight) values ('tenant', 'default', 2)")
    await conn.execute("insert into permits (gate, slot) values ('type:work', 1)")
    await conn.execute("insert into parked values (1, 1, 1, 'type:work')")
    await conn.execute("select open_circuit('mail', '', null, 'me')")
    await conn.execute("insert into circuit_counts values ('', 'mail', 'w', 1, 1, 1)")
    await conn.execute(
        "with one as (insert into schedules (tenant, name, every_seconds, type, catch_up, created_by, updated_by)"
        " values ('default', 's', 60, 'work', 0, 'me', 'me') returning id)"
        " insert into schedule_fires (schedule_id, fire_at, outcome) select id, now(), 'skipped' from one"
    )
    digest = "sha256('a')"
    await conn.execute(
        f"select create_key(uuid_v7(), 'default', 'n', 'hf_', {digest}, array['read'], null, null, null, 'me')"
    )
    await conn.execute(
        "insert into workers (id, host, pid, version, lanes, types) values ('w', 'h', 1, '1', '{}', '{}')"
    )


async def _counts(conn: asyncpg.Connection) -> dict[str, int]:
    tables = await conn.fetch("select tablename as name from pg_tables where schemaname = 'holdfast' order by 1")
    return {t["name"]: await conn.fetchval(f"select count(*) from {t['name']}") for t in tables}
