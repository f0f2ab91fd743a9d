"""What programs of the release before ask of the schema is answered alike after the migration, and while it goes on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.store import migrate as module
from holdfast.store.migrate import ROLES, migrate
from holdfast.store.statements import script
from tests.harness.before import environment_of, queries_before, release_before
from tests.harness.waiting import until

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

#: Every function that a role may call, with arguments and result.
CALLABLE = """
    select r.rolname, p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
    from pg_proc p
    cross join pg_roles r
    where p.pronamespace = 'holdfast'::regnamespace
      and r.rolname = any ($1)
      and has_function_privilege(r.oid, p.oid, 'execute')"""


@pytest.fixture
async def before(empty_database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A database that the release before has made."""
    environment = environment_of(release_before(), {**os.environ, "HOLDFAST_DATABASE_URL": empty_database_url})
    command = [sys.executable, "-m", "holdfast", "migrate"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    conn = await asyncpg.connect(empty_database_url)
    yield conn
    await conn.close()


async def test_every_function_and_statement_of_the_release_before_is_still_there(
    before: asyncpg.Connection, empty_database_url: str, database_url: str
) -> None:
    """Also in a database that this release has made: a migration leaves what no file defines."""
    calls, statements = await _calls(before), await _statements(before)
    assert len(statements) > 100
    await migrate(Config.load(environment={}, database_url=empty_database_url))
    fresh = await asyncpg.connect(database_url)
    for now in (before, fresh):
        lost = sorted(calls - await _calls(now))
        assert not lost, "roles may no longer call these with the same arguments and result: see docs/extending.md"
        after = await _statements(now)
        assert {name: (was, after[name]) for name, was in statements.items() if after[name] != was} == {}
    await fresh.close()


async def _calls(conn: asyncpg.Connection) -> set[tuple[str, ...]]:
    roles = [f"holdfast_{role}" for role in ROLES if role != "owner"]
    return {tuple(row) for row in await conn.fetch(CALLABLE, roles)}


async def _statements(conn: asyncpg.Connection) -> dict[str, object]:
    """What every named statement takes and answers, or why it cannot be prepared."""
    found: dict[str, object] = {}
    for text in queries_before().values():
        parts = _NAME.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            try:
                statement = await conn.prepare(body)
            except asyncpg.PostgresError as error:
                found[name] = str(error)
            else:
                takes = [kind.name for kind in statement.get_parameters()]
                found[name] = takes, [(a.name, a.type.name) for a in statement.get_attributes()]
    return found


#: Two tenants with jobs that have limits, and a job that is parked because another one of its key runs.
BUSY = """
    set search_path = holdfast;
    insert into job_types (name, limit_count, limit_key) values ('keyed', 1, 'customer');
    select enqueue('work', queue => 'slow'), enqueue('work', tenant => 'red');
    select set_limit('queue', 'slow', 1, null, null, 'ada');
    select pause_scope_as('queue', 'paused', 'ada', null, null, null, false);
    select enqueue('keyed', '{"customer": "ada"}'), enqueue('keyed', '{"customer": "ada"}');
    select from claim('w', '{keyed}', 2)"""

#: What a worker, a leader or a server of the release before may have under way.
CLAIM = "select job_id from claim_jobs('w', 5, 30, $1, $2, $3, $4, 5, null, false)"
UNDER_WAY = {
    "pause": "select pause_scope_as('queue', 'slow', 'ada', null, null, null, false)",
    "resumption": "select resume_scope_as('queue', 'paused', 'ada', null, null, null)",
    "limit": "select change_limits('queue', 'slow', '{limit}', 3, null, null, null, 'ada', null)",
    "closing": "select close_type('never', 'ada')",
    "look for room": "select looked from admit()",
    "list": "select name from list_queues(null, null, null, 5)",
}


async def test_what_waits_while_the_schema_is_migrated_is_done_or_asked_to_be_repeated(
    before: asyncpg.Connection, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its function began as the release before has it, and goes on so. Functions that it calls were dropped."""
    await before.execute(BUSY)
    streams = [row["id"] for row in await before.fetch("select id from streams order by tenant = 'red' desc")]
    asked: dict[str, tuple[str, tuple[object, ...]]] = {name: (sql, ()) for name, sql in UNDER_WAY.items()}
    for name, ids in {"claim with limits": streams[:1], "claim of several tenants": streams}.items():
        number = len(ids)
        asked[name] = CLAIM, (ids, [-1] * number, [0] * number, [2147483647] * number)

    monkeypatch.setattr(module, "LOCK_TIMEOUTS", ("60s",))
    monkeypatch.setattr(module, "script", lambda name, schema: script(name, schema) + WAIT * (name == "locks"))
    await before.execute("select pg_advisory_lock(15)")
    migration = asyncio.create_task(migrate(Config.load(environment={}, database_url=empty_database_url)))
    await until(lambda: _waiting(before, "advisory", 1), what="the migration has the tables")
    conns = [await asyncpg.connect(empty_database_url, server_settings={"search_path": "holdfast"}) for _ in asked]
    calls = [asyncio.create_task(_done(conn, *call)) for conn, call in zip(conns, asked.values(), strict=True)]
    await until(lambda: _waiting(before, "relation", len(asked)), what="they wait for it")
    await before.execute("select pg_advisory_unlock(15)")
    await migration
    answers = dict(zip(asked, await asyncio.gather(*calls, return_exceptions=True), strict=True))
    assert {name: answer for name, answer in answers.items() if isinstance(answer, BaseException)} == {}
    for conn in conns:
        await conn.close()


#: At the end of a script: until the test lets it go on.
WAIT = ";\nselect pg_advisory_xact_lock(15);"


async def _waiting(conn: asyncpg.Connection, kind: str, number: int) -> bool:
    sql = """
        select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and wait_event = $1"""
    return bool(await conn.fetchval(sql, kind) >= number)


async def _done(conn: asyncpg.Connection, sql: str, arguments: tuple[object, ...]) -> object:
    """As the store does it: what PostgreSQL asks to repeat is repeated."""
    while True:
        try:
            return await conn.fetch(sql, *arguments)
        except (asyncpg.SerializationError, asyncpg.LockNotAvailableError):
            continue
