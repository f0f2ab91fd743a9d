"""A kept session cannot be told from a new one, and no session is kept that may not be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import asyncpg
import pytest

from tests.harness.databases import Databases, with_database
from tests.harness.sessions import Sessions, looks_at_sessions
from tests.harness.waiting import until

ROLE = {"role": "holdfast_api", "search_path": "holdfast"}


@pytest.fixture
def mine(server_url: str, databases: Databases, kept_sessions: Sessions) -> Iterator[str]:
    """A database of the test's own, whose sessions are kept."""
    name = databases.take(fresh=True)
    with kept_sessions.kept():
        yield with_database(server_url, name)
    databases.drop(name)


async def connect(url: str, **options: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings=options or None)


async def close(conn: asyncpg.Connection, sessions: Sessions) -> None:
    """Close it, and wait until its session has been reset."""
    database = await conn.fetchval("select current_database()")
    await conn.close()
    sessions.idle(database)


async def test_a_closed_session_serves_the_next_one_that_begins_alike(mine: str, kept_sessions: Sessions) -> None:
    conn = await connect(mine)
    pid = conn.get_server_pid()
    other = await connect(mine, **ROLE)
    assert other.get_server_pid() != pid
    await close(conn, kept_sessions)
    again, another = await connect(mine), await connect(mine)
    assert again.get_server_pid() == pid
    assert another.get_server_pid() not in {pid, other.get_server_pid()}
    for each in (other, again, another):
        await each.close()


async def test_nothing_of_its_past_is_left(mine: str, kept_sessions: Sessions) -> None:
    conn = await connect(mine, **ROLE)
    pid = conn.get_server_pid()
    await conn.add_listener("channel", lambda *_: None)
    await conn.execute("set role none; set search_path = public; set statement_timeout = '1s'")
    await conn.execute("create temporary table notes (text text); prepare mine as select 1; set own.value = 'x'")
    await conn.execute("select pg_advisory_lock(1); set session_replication_role = replica")
    await conn.execute("begin; lock table holdfast.jobs; select 1/1")
    await close(conn, kept_sessions)
    conn = await connect(mine, **ROLE)
    assert conn.get_server_pid() == pid
    row = await conn.fetchrow(
        "select current_user, current_setting('search_path') as path, current_setting('statement_timeout') as timeout,"
        " current_setting('session_replication_role') as replica,"
        " coalesce(current_setting('own.value', true), '') as own,"
        " to_regclass('pg_temp.notes') as notes, (select count(*) from pg_listening_channels()) as channels,"
        " (select count(*) from pg_prepared_statements where name = 'mine') as prepared,"
        " (select count(*) from pg_locks where pid = pg_backend_pid()"
        "  and (locktype = 'advisory' or mode = 'AccessExclusiveLock')) as locks"
    )
    assert row is not None
    assert dict(row) == {
        "current_user": "holdfast_api",
        "path": "holdfast",
        "timeout": "0",
        "replica": "origin",
        "own": "",
        "notes": None,
        "channels": 0,
        "prepared": 0,
        "locks": 0,
    }
    await conn.close()


async def test_a_session_that_was_cut_or_ended_is_not_handed_out(mine: str, conn: asyncpg.Connection) -> None:
    first, second = await connect(mine), await connect(mine)
    pids = {first.get_server_pid(), second.get_server_pid()}
    first.terminate()
    await second.close()
    await conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid = any ($1)", list(pids))

    async def gone() -> bool:
        return not await conn.fetchval("select count(*) from pg_stat_activity where pid = any ($1)", list(pids))

    await until(gone, what="both have ended")
    third = await connect(mine)
    assert third.get_server_pid() not in pids
    await third.close()


def test_it_goes_from_one_event_loop_to_the_next(mine: str, kept_sessions: Sessions) -> None:
    async def use() -> int:
        conn = await connect(mine)
        assert await conn.fetchval("select 1") == 1
        await close(conn, kept_sessions)
        return int(conn.get_server_pid())

    assert asyncio.run(use()) == asyncio.run(use())


async def test_whoever_does_not_begin_as_the_superuser_is_asked_for_a_password(mine: str) -> None:
    admin = await connect(mine)
    await admin.execute("create role sessions_visitor login password 'right'")
    try:
        visitor = await asyncpg.connect(mine, user="sessions_visitor", password="right")
        await visitor.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(mine, user="sessions_visitor", password="wrong")
    finally:
        await admin.execute("drop role sessions_visitor")
        await admin.close()


MODULE = """
ACTIVITY = 'select * from pg_stat_activity'

@pytest.fixture
def seen(conn):
    return count(conn)

def count(conn):
    return conn.fetch(ACTIVITY)

async def test_by_fixture(seen): ...

@pytest.mark.parametrize('lock', ['pg_locks'])
async def test_by_parameter(lock): ...

async def test_by_text(conn):
    conn.get_server_pid()

async def test_none(conn): ...
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"fixture", "parameter", "text"}),
        ("pytestmark = pytest.mark.usefixtures('seen')", {"fixture", "parameter", "text", "none"}),
        ("@pytest.fixture(autouse=True)\ndef always(): count(1)", {"fixture", "parameter", "text", "none"}),
    ],
)
def test_a_test_looks_at_sessions_if_what_it_uses_does(tmp_path: Path, more: str, expected: set[str]) -> None:
    path = tmp_path / "looking.py"
    path.write_text(f"import pytest\n{MODULE}{more}\n")
    spec = spec_from_file_location("looking", path)
    assert spec is not None
    module = module_from_spec(spec)
    names = ("fixture", "parameter", "text", "none")
    assert {name for name in names if looks_at_sessions(module, f"test_{'by_' * (name != 'none')}{name}")} == expected
