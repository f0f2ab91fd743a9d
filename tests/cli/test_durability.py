"""What processes say at their start about a server that would forget."""

from __future__ import annotations

import asyncpg
import pytest

from tests.cli.conftest import TASKS, Start


@pytest.mark.parametrize("command", [("worker", "--app", TASKS), ("serve", "--port", "0")])
async def test_processes_report_durability_settings_that_they_override(
    start: Start, conn: asyncpg.Connection, command: tuple[str, ...]
) -> None:
    name = await conn.fetchval("select current_database()")
    await conn.execute(f"alter database {name} set synchronous_commit = local")
    try:
        await start(*command).wrote(f"overrides synchronous_commit = local from database {name}")
    finally:
        await conn.execute(f"alter database {name} reset all")


@pytest.mark.parametrize("command", [("worker", "--app", TASKS), ("serve", "--port", "0"), ("up", "--port", "0")])
async def test_a_server_without_fsync_is_refused(
    start: Start, conn: asyncpg.Connection, database_url: str, command: tuple[str, ...]
) -> None:
    if await conn.fetchval("show fsync") == "on":
        pytest.skip("this server waits for its disk")
    url = f"{database_url}{'&' if '?' in database_url else '?'}options=-choldfast.allow_fsync_off%3Doff"
    process = start(*command, HOLDFAST_DATABASE_URL=url)
    assert await process.ended() == 2
    assert "fsync = off" in process.text
