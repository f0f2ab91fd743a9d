"""`operations().cleanup()` and `holdfast cleanup`: what the leader deletes sooner or later, now; or only counted."""

from __future__ import annotations

import asyncio
import os
import sys

import asyncpg
import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.client.operations import Cleanup
from tests.cli.conftest import Cli
from tests.sql.factories import claim, enqueue, run_one, settle

LONG_AGO = "now() - interval '40 days'"


@pytest.fixture
async def old(conn: asyncpg.Connection) -> dict[str, int]:
    """Of long ago: one that succeeded, one that was canceled, one dead and acknowledged. Beside them, newer ones."""
    for _ in range(2):
        await enqueue(conn)
    await settle(conn, "complete", await claim(conn, limit=2))
    await settle(conn, "stop", [await run_one(conn)], outcomes=["canceled"])
    for _ in range(2):
        await enqueue(conn)
    await settle(conn, "fail", await claim(conn, limit=2), kinds=["fatal", "fatal"])
    await conn.execute(f"update jobs set created_at = {LONG_AGO}")
    done = await conn.fetch("select id from jobs where state = 'success' order by id limit 1")
    await conn.execute(
        f"update jobs set finished_at = {LONG_AGO} where id = any ($1) or state = 'canceled'",
        [row["id"] for row in done],
    )
    await conn.execute(f"""
        update dead_letters set acknowledged_at = {LONG_AGO}, acknowledged_by = 'ada'
        where job_id = (select max(job_id::text)::uuid from dead_letters)""")
    return {"success": 1, "canceled": 1, "dead": 1}


async def count(conn: asyncpg.Connection) -> int:
    return int(await conn.fetchval("select count(*) from jobs"))


async def lead(conn: asyncpg.Connection) -> None:
    await conn.execute("""
        insert into leaders (name, holder, term, expires_at, renewed_at)
        values ('maintenance', 'somebody', 1, now() + interval '1 minute', now())
        on conflict (name) do update set renewed_at = now()""")


async def test_a_dry_run_counts_and_deletes_nothing(
    hf: Holdfast, conn: asyncpg.Connection, old: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = await count(conn), list[Cleanup]()
    monkeypatch.setattr("holdfast.client.operations._CLEANED", 2)
    operations = await hf.operations()
    assert (await operations.cleanup(by="ada", dry_run=True, progress=told.append))._asdict() == old
    assert len(told) >= 2
    assert told == sorted(told, key=sum)
    assert told[-1]._asdict() == old
    assert await count(conn) == before


async def test_what_was_counted_is_deleted_and_nothing_else(
    hf: Holdfast, conn: asyncpg.Connection, old: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(conn)
    monkeypatch.setattr("holdfast.client.operations._CLEANED", 2)  # in portions
    before = await count(conn)
    assert (await (await hf.operations()).cleanup(by="ada"))._asdict() == old
    assert before - await count(conn) == 3
    assert (await (await hf.operations()).cleanup(by="ada"))._asdict() == {"success": 0, "canceled": 0, "dead": 0}
    assert await conn.fetchval("select count(*) from dead_letters where acknowledged_at is null") == 1


async def test_a_locked_job_stays_and_is_not_counted(
    hf: Holdfast, conn: asyncpg.Connection, old: dict[str, int]
) -> None:
    await lead(conn)
    operations = await hf.operations()
    async with conn.transaction():
        await conn.execute("select from jobs where id = (select min(id::text)::uuid from jobs) for update")
        assert (await operations.cleanup(by="ada"))._asdict() == {"success": 0, "canceled": 1, "dead": 1}
    assert (await operations.cleanup(by="ada"))._asdict() == {"success": 1, "canceled": 0, "dead": 0}


async def test_the_audit_log_names_who_deleted_once(
    hf: Holdfast, conn: asyncpg.Connection, old: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(conn)
    monkeypatch.setattr("holdfast.client.operations._CLEANED", 2)
    operations = await hf.operations()
    await operations.cleanup(by="ada", dry_run=True)
    assert await conn.fetchval("select count(*) from audit_log") == 0
    await operations.cleanup(by="ada")
    log = await conn.fetch("select actor, action, subject, detail::jsonb ? 'ended_before' as until from audit_log")
    assert [tuple(row) for row in log] == [("ada", "jobs.cleanup", "everything", True)]


async def test_without_a_leader_nothing_is_deleted(hf: Holdfast, conn: asyncpg.Connection, old: dict[str, int]) -> None:
    before = await count(conn)
    with pytest.raises(HoldfastError, match="no process does maintenance"):
        await (await hf.operations()).cleanup(by="ada")
    await lead(conn)
    await conn.execute("update leaders set renewed_at = now() - interval '1 minute'")  # or the clock was set ahead
    with pytest.raises(HoldfastError, match="no process does maintenance"):
        await (await hf.operations()).cleanup(by="ada")
    assert await count(conn) == before


async def test_the_command_asks_or_wants_a_flag(cli: Cli, conn: asyncpg.Connection, old: dict[str, int]) -> None:
    assert (await cli("cleanup", "--dry-run")).stdout == "1 succeeded, 1 canceled and 1 dead jobs would be deleted\n"
    assert "add --yes, or look with --dry-run" in (await cli("cleanup", code=2)).stderr
    assert "start a worker" in (await cli("cleanup", "--yes", code=4)).stderr
    await lead(conn)
    assert (await cli("cleanup", "--yes", "-o", "json")).stdout == (
        '{"success": 1, "canceled": 1, "dead": 1, "dry_run": false}\n'
    )


async def test_on_a_terminal_it_shows_how_far_it_is(database_url: str, old: dict[str, int]) -> None:
    terminal, end = os.openpty()
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "cleanup", "--dry-run",
        env={**os.environ, "HOLDFAST_DATABASE_URL": database_url, "TERM": "xterm"},
        stdout=asyncio.subprocess.PIPE, stderr=end,
    )  # fmt: skip
    os.close(end)
    written, _ = await command.communicate()
    assert written == b"1 succeeded, 1 canceled and 1 dead jobs would be deleted\n"
    assert b"3 jobs would be deleted" in os.read(terminal, 65536)
    os.close(terminal)
