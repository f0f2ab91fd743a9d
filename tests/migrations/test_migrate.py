"""Migrations: once, however many start at the same time, the same by every way, and never by an older release."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.errors import SchemaError
from holdfast.store import migrate as module
from holdfast.store.database import check_schema
from holdfast.store.migrate import migrate, migration_sql, plan
from holdfast.store.statements import functions, migrations
from tests.harness import warm
from tests.migrations.catalog import listing


def config_of(url: str, schema: str = "holdfast") -> Config:
    return Config.load(environment={}, database_url=url, schema=schema)


@pytest.fixture
async def admin(empty_database_url: str) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(empty_database_url)
    yield conn
    await conn.close()


async def test_ten_processes_may_migrate_at_once(empty_database_url: str, database_url: str, tmp_path: Path) -> None:
    script = tmp_path / "migrating.py"
    script.write_text(
        "import asyncio, sys; from holdfast.config import Config; from holdfast.store.migrate import migrate;"
        "print(len(asyncio.run(migrate(Config.load(environment={}, database_url=sys.argv[1]))).pending))"
    )
    arguments = [str(script), empty_database_url]
    with ThreadPoolExecutor(10) as threads:
        runs = [threads.submit(warm.run, arguments, env=os.environ, cwd=tmp_path, timeout=60) for _ in range(10)]
        ends = [await asyncio.wrap_future(run) for run in runs]
    assert [(end.returncode, end.stderr) for end in ends] == [(0, "")] * 10
    pending = sorted(int(end.stdout) for end in ends)
    assert pending == [0] * 9 + [len(migrations())]
    assert await listing(empty_database_url) == await listing(database_url)


async def test_stepwise_is_the_same_as_at_once(empty_database_url: str, database_url: str) -> None:
    for step, _, _ in migrations():
        await migrate(config_of(empty_database_url), up_to=step)
    assert await listing(empty_database_url) == await listing(database_url)


async def test_the_printed_script_gives_the_same_schema(
    empty_database_url: str, database_url: str, admin: asyncpg.Connection
) -> None:
    await admin.execute(migration_sql(config_of(empty_database_url)))
    assert await listing(empty_database_url) == await listing(database_url)
    assert (await plan(config_of(empty_database_url))).current


async def test_a_current_schema_is_left_alone(database_url: str) -> None:
    before = await listing(database_url)
    done = await migrate(config_of(database_url))
    assert done.current
    assert await listing(database_url) == before
    await check_schema(config_of(database_url))


async def test_a_function_file_is_applied_again_when_its_checksum_differs(
    database_url: str, conn: asyncpg.Connection
) -> None:
    before = await listing(database_url)
    await conn.execute(
        "create or replace function next_state(outcome text, kind text, interrupt text, on_failure text, "
        "failures integer, max_attempts integer, delay_seconds double precision) returns text language sql "
        "as $$ select 'success' $$; update schema_functions set checksum = 'old' where name = 'basics'"
    )
    assert (await plan(config_of(database_url))).changed_functions == ("basics",)
    assert (await migrate(config_of(database_url))).changed_functions == ("basics",)
    assert await listing(database_url) == before


async def test_an_older_release_changes_nothing(
    database_url: str, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute("update schema_functions set release = '99.1.0', checksum = 'newer'")
    before = await listing(database_url)
    with pytest.raises(SchemaError, match=r"newer release 99\.1\.0"):
        await migrate(config_of(database_url))
    assert await listing(database_url) == before
    await check_schema(config_of(database_url))
    monkeypatch.setattr(module, "__version__", "99.2.0")
    assert (await migrate(config_of(database_url))).changed_functions == tuple(functions())


async def test_a_missing_schema_is_named_with_advice(empty_database_url: str) -> None:
    with pytest.raises(SchemaError, match="run `holdfast migrate`"):
        await check_schema(config_of(empty_database_url))
    waiting = await plan(config_of(empty_database_url))
    assert [name for _, name in waiting.pending] == [name for _, name, _ in migrations()]
    assert not waiting.current


async def test_a_failure_leaves_nothing_half_done(
    empty_database_url: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "functions", lambda: functions() | {"zz_broken": "select 1 / 0"})
    with pytest.raises(Exception, match="division by zero"):
        await migrate(config_of(empty_database_url))
    assert await admin.fetchval("select to_regnamespace('holdfast')") is None


async def test_waiting_for_another_migration_is_not_cut_short(
    empty_database_url: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUTS", ("300ms",))
    async with admin.transaction():
        await admin.execute("select pg_advisory_xact_lock(hashtext('holdfast migrations'), hashtext('holdfast'))")
        waiting = asyncio.create_task(migrate(config_of(empty_database_url)))
        assert not (await asyncio.wait([waiting], timeout=0.5))[0]
    assert not (await waiting).current
    assert (await plan(config_of(empty_database_url))).current


def test_every_function_file_is_packaged() -> None:
    folder = Path(module.__file__).parents[1] / "sql" / "functions"
    assert set(functions()) == {path.stem for path in folder.glob("*.sql")}


async def test_a_database_that_takes_any_bytes_for_text_is_refused(
    empty_database_url: str, conn: asyncpg.Connection
) -> None:
    """A text that was no UTF-8 stopped every worker that met it."""
    name = f"ascii_{uuid4().hex[:8]}"
    await conn.execute(f"create database {name} template template0 encoding 'SQL_ASCII' locale 'C'")
    try:
        config = Config.load(environment={}, database_url=_named(empty_database_url, name))
        with pytest.raises(SchemaError, match=r"encoding SQL_ASCII, and Holdfast needs UTF8"):
            await migrate(config)
    finally:
        await conn.execute(f"drop database {name} with (force)")


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


async def test_rights_and_owners_that_a_restore_lost_are_named_and_given_again(database_url: str) -> None:
    conn = await asyncpg.connect(database_url)
    before = await shown(database_url)
    try:
        # As pg_restore --no-privileges leaves it: nothing was granted, and everybody may call every function.
        roles = ", ".join(f"holdfast_{role}" for role in module.ROLES if role != "owner")
        functions_and_tables = ("all functions in schema holdfast", "holdfast.schema_steps")
        views = ("schema holdfast_views", "holdfast_views.dead_letter_jobs")
        for what in (*functions_and_tables, "schema holdfast", *views):
            await conn.execute(f"revoke all on {what} from {roles}")
        await conn.execute("grant execute on all functions in schema holdfast to public")
        found = await plan(config_of(database_url))
        assert not found.current
        assert "holdfast_worker may not read schema_steps" in found.missing_rights
        assert "holdfast_client may not use the schema" in found.missing_rights
        assert "holdfast_operator may not use the schema, the schema holdfast_views" in found.missing_rights
        assert "holdfast_operator may not read holdfast_views.dead_letter_jobs, schema_steps" in found.missing_rights
        assert any(told.startswith("holdfast_worker may not call ") for told in found.missing_rights)
        assert any(told.startswith("everybody may call ") for told in found.missing_rights)
        done = await migrate(config_of(database_url))
        assert done.missing_rights == found.missing_rights
        assert await shown(database_url) == before

        # As pg_restore --no-owner leaves it.
        login = await conn.fetchval("select current_user")
        await conn.execute(f'reassign owned by holdfast_owner to "{login}"')
        found = await plan(config_of(database_url))
        assert any(told.startswith(f"{login} owns ") for told in found.missing_rights)
        await migrate(config_of(database_url))
        assert await shown(database_url) == before
        assert (await plan(config_of(database_url))).current
    finally:
        await conn.close()


async def shown(url: str) -> list[dict[str, list[str]]]:
    """The engine's schema, and the one with operators' views."""
    theirs = ("relations", "views", "schema")
    return [await listing(url), await listing(url, "holdfast_views", theirs)]
