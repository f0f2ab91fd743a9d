from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.store.doctor import examination
from tests.cli.conftest import Cli, invoke
from tests.conftest import ConnectAs
from tests.sql.factories import claim, enqueue_many, publish, run_one, settle
from tests.sql.test_bulk import start


async def diagnosis(cli: Cli, **options: Any) -> dict[str, dict[str, Any]]:
    """Findings by check. The server of the tests may have fsync off, and then doctor is never content with it."""
    result = await cli("doctor", "-o", "json", code=None, **options)
    found = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert result.exit_code == any(finding["level"] == "fail" for finding in found.values())
    return found


async def test_a_healthy_schema_on_a_server_that_may_forget(cli: Cli, conn: asyncpg.Connection) -> None:
    durable = await conn.fetchval("show fsync") == "on"
    found = await diagnosis(cli)
    failed = {check for check, finding in found.items() if finding["level"] != "ok"}
    assert failed == (set() if durable else {"fsync", "full_page_writes"})
    assert {"version", "clock", "roles", "schema", "notifications", "repairs", "dead rows"} <= set(found)
    assert all(finding["advice"] for finding in found.values() if finding["level"] != "ok")


async def test_an_empty_database_needs_a_migration(cli: Cli, empty_database_url: str) -> None:
    found = await diagnosis(cli, url=empty_database_url)
    assert found["schema"]["level"] == "fail"
    assert "holdfast migrate" in found["schema"]["advice"]


async def test_ready_jobs_without_worker_or_handler_are_named(cli: Cli, hf: Holdfast, connect_as: ConnectAs) -> None:
    assert (await diagnosis(cli))["job types"]["detail"] == "nothing is ready"
    await hf.enqueue("lonely", {})
    found = await diagnosis(cli)
    assert found["workers"]["level"] == "fail"
    assert found["job types"]["detail"] == "none has a worker"
    worker = await connect_as("worker")
    await worker.execute("select register_worker('w', 'host', 1, '1', '{}', array['other'], null)")
    found = await diagnosis(cli)
    assert found["workers"]["level"] == "ok"
    assert found["job types"]["level"] == "warn"
    assert "lonely in default" in found["job types"]["detail"]
    assert found["maintenance"]["level"] == "fail"


async def test_jobs_without_a_worker_are_named_with_their_tenants(
    cli: Cli, hf: Holdfast, connect_as: ConnectAs
) -> None:
    for tenant in ("default", "acme", "beta"):
        await hf.enqueue("mail", {}, tenant=tenant)
    worker = await connect_as("worker")
    await worker.execute("select enlist_worker('w', 'host', 1, '1', '{}', array['mail'], null, array['beta'])")
    found = (await diagnosis(cli))["job types"]
    assert found["detail"] == "no worker for mail in default of tenant acme, mail in default of tenant default"


async def test_jobs_that_wait_for_a_permit_of_their_key_are_seen(cli: Cli, conn: asyncpg.Connection) -> None:
    await publish(conn, "keyed", limit_count=1, limit_key="who")
    await enqueue_many(conn, [("keyed", {"who": 1}, None)] * 3)
    await claim(conn, "keyed", limit=3)
    found = await diagnosis(cli)
    assert found["workers"]["level"] == "fail"
    assert found["workers"]["detail"] == "0 alive, 2 jobs ready, 2 of them parked until their key has a permit"
    await conn.execute("select register_worker('w', 'host', 1, '1', '{}', array['other'], null)")
    assert "keyed in default" in (await diagnosis(cli))["job types"]["detail"]


async def test_a_server_that_logs_values_is_told(cli: Cli, conn: asyncpg.Connection) -> None:
    assert (await diagnosis(cli))["server log"]["level"] == "ok"
    name = await conn.fetchval("select current_database()")
    await conn.execute(f'alter database "{name}" set log_min_duration_statement = 100')
    try:
        found = (await diagnosis(cli))["server log"]
        assert (found["level"], "log_min_duration_statement = 100" in found["detail"]) == ("warn", True)
        await conn.execute(f'alter database "{name}" set log_parameter_max_length = 0')
        assert (await diagnosis(cli))["server log"]["level"] == "ok"
    finally:
        await conn.execute(f'alter database "{name}" reset all')


async def test_doctor_reports_repairs(cli: Cli, conn: asyncpg.Connection) -> None:
    await conn.execute("select note_repair('stray', 3)")
    found = await diagnosis(cli)
    assert found["repairs"]["level"] == "warn"
    assert "stray 3 times" in found["repairs"]["detail"]


async def test_jobs_that_are_held_are_counted_before_and_after_they_were_added_up(
    cli: Cli, conn: asyncpg.Connection
) -> None:
    assert (await diagnosis(cli))["held jobs"]["level"] == "ok"
    held = await run_one(conn)
    await settle(conn, "fail", [held], kinds=["hold"], error_messages=["out of tokens"])
    for _ in range(2):
        found = (await diagnosis(cli))["held jobs"]
        assert (found["level"], found["detail"][:10]) == ("warn", "1 in error")
        assert "holdfast jobs list --state error" in found["advice"]
        await conn.execute("select from add_failures(0, 100)")
    assert await conn.fetchval("select count(*) from failing") == 1


async def test_bulk_operations_that_nobody_works_on_are_told(cli: Cli, conn: asyncpg.Connection) -> None:
    assert (await diagnosis(cli))["maintenance"]["level"] == "ok"
    await start(conn, "cancel", "type:work")
    found = (await diagnosis(cli))["maintenance"]
    assert (found["level"], found["detail"]) == ("fail", "no leader; 0 jobs overdue, bulk operations wait: 1")


async def test_a_guard_that_is_off_or_missing_is_named(cli: Cli, conn: asyncpg.Connection) -> None:
    assert (await diagnosis(cli))["guards"]["level"] == "ok"
    await conn.execute("alter table jobs disable trigger guard_update; drop trigger durable on leases")
    await conn.execute("alter table controls enable replica trigger durable")
    found = (await diagnosis(cli))["guards"]
    assert found["level"] == "fail"
    assert found["detail"] == "durable on controls is off; durable on leases is missing; guard_update on jobs is off"


async def test_every_guard_of_a_fresh_schema_would_be_missed(cli: Cli, conn: asyncpg.Connection) -> None:
    triggers = await conn.fetch(
        "select t.tgname as name, c.relname as owner from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        " where c.relnamespace = 'holdfast'::regnamespace and not t.tgisinternal"
    )
    for trigger in triggers:
        await conn.execute(f"drop trigger {trigger['name']} on {trigger['owner']}")
    missed = (await diagnosis(cli))["guards"]["detail"].split("; ")
    assert missed == sorted(f"{trigger['name']} on {trigger['owner']} is missing" for trigger in triggers)


async def test_another_version_of_the_collation_is_worth_a_look(
    cli: Cli, database_url: str, conn: asyncpg.Connection
) -> None:
    name = f"collated_{uuid4().hex[:8]}"
    await conn.execute(f"create database {name} template template0 locale_provider builtin builtin_locale 'C.UTF-8'")
    try:
        url = urlunsplit(urlsplit(database_url)._replace(path=f"/{name}"))
        assert (await diagnosis(cli, url=url))["collation"]["level"] == "ok"
        await conn.execute("update pg_database set datcollversion = '0' where datname = $1", name)
        found = (await diagnosis(cli, url=url))["collation"]
        assert found["level"] == "warn"
        assert found["detail"] == "version 0 when indexes were built, 1 now"
    finally:
        await conn.execute(f"drop database {name} with (force)")


async def test_time_that_can_be_moved_is_not_for_real_work(cli: Cli, conn: asyncpg.Connection) -> None:
    assert (await diagnosis(cli))["engine time"]["level"] == "ok"
    await conn.execute("create table testing_clock ()")
    assert (await diagnosis(cli))["engine time"]["level"] == "fail"


async def test_an_old_transaction_is_found(config: Config, conn: asyncpg.Connection) -> None:
    async with conn.transaction(), examination(config) as look:
        await conn.execute("select pg_current_xact_id()")
        holders = [old["holder"] for old in await look.old_snapshots(0)]
    assert f"connection {conn.get_server_pid()}" in holders


def test_a_database_that_is_away_is_a_finding() -> None:
    result = invoke("doctor", environment={"HOLDFAST_DATABASE_URL": "postgresql://127.0.0.1:1/nothing"})
    assert result.exit_code == 1
    assert "cannot be reached" in result.stdout
    assert "HOLDFAST_DATABASE_URL" in result.stdout


async def test_a_login_named_like_the_schema_is_warned_of(conn: asyncpg.Connection, database_url: str) -> None:
    """For it, a bare `settings` is the engine's table, and its own tables land among the engine's."""
    login = f"engine_{uuid4().hex[:8]}"
    await conn.execute(f"create role {login} superuser login password 'secret'")
    parts = urlsplit(database_url)
    url = urlunsplit(parts._replace(netloc=f"{login}:secret@{parts.netloc.rpartition('@')[2]}"))
    environment = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_SCHEMA": login}
    try:
        migrated = await asyncio.to_thread(invoke, "migrate", environment=environment)
        assert "the login has the schema's name" in migrated.stderr, migrated.output
        own = await asyncpg.connect(url)
        await own.execute("create table ledger ()")
        await own.close()
        result = await asyncio.to_thread(invoke, "doctor", "-o", "json", environment=environment)
        found = {finding["check"]: finding for finding in json.loads(result.stdout)}
        assert found["own tables"]["level"] == "warn"
        assert f'alter role "{login}" set search_path = public' in found["own tables"]["advice"]
        assert found["foreign tables"]["detail"].endswith(": ledger")
        await conn.execute(f'alter role "{login}" set search_path = public')
        result = await asyncio.to_thread(invoke, "migrate", environment=environment)
        assert "own tables" not in result.stderr
        assert "foreign tables" in result.stderr
    finally:
        roles = [f"{login}_{role}" for role in ("owner", "api", "worker", "operator", "client")]
        await conn.execute(f"drop schema if exists {login} cascade")
        await conn.execute(f"drop owned by {', '.join([login, *roles])} cascade")
        await conn.execute(f"drop role {', '.join([login, *roles])}")


async def test_what_holdfast_overrules_is_named_with_its_origin(cli: Cli, conn: asyncpg.Connection) -> None:
    database = await conn.fetchval("select current_database()")
    try:
        await conn.execute(f"alter database {database} set default_transaction_isolation = 'serializable'")
        await conn.execute(f"alter role holdfast_api in database {database} set synchronous_commit = local")
        found = await diagnosis(cli)
        detail = found["durability"]["detail"]
        assert f"default_transaction_isolation = serializable from database {database}" in detail
        assert f"synchronous_commit = local from role holdfast_api in database {database}" in detail
    finally:
        await conn.execute(f"alter database {database} reset all")
        await conn.execute(f"alter role holdfast_api in database {database} reset all")


async def test_rights_that_a_restore_lost_are_named_and_mended_by_migrate(cli: Cli, conn: asyncpg.Connection) -> None:
    await conn.execute("revoke execute on function claim_jobs from holdfast_worker")
    found = (await diagnosis(cli))["rights"]
    assert (found["level"], found["detail"]) == ("fail", "holdfast_worker may not call claim_jobs")
    assert "holdfast migrate" in found["advice"]
    assert "holdfast_worker may not call claim_jobs" in (await cli("migrate", "--check", code=1)).stderr
    assert "rights that were missing" in (await cli("migrate")).stdout
    assert (await diagnosis(cli))["rights"]["level"] == "ok"


async def test_what_operators_have_paused_is_named(cli: Cli) -> None:
    assert (await diagnosis(cli))["pauses"]["detail"] == "nothing is paused"
    await cli("queues", "pause", "post", "--reason", "the provider is down")
    found = (await diagnosis(cli))["pauses"]
    assert (found["level"], found["detail"].partition(" since ")[0]) == ("warn", "1 paused: queue post")
    assert found["detail"].endswith("(the provider is down)")
    assert "queues|types|lanes|tenants resume NAME" in found["advice"]
    await cli("drain", "--yes", "--reason", "the disk is full")
    found = (await diagnosis(cli))["pauses"]
    assert found["detail"].startswith("2 paused: all claims since ")
    assert "(the disk is full); queue post since " in found["detail"]
    assert found["advice"] == "`holdfast drain --resume` lets work go on"
