from __future__ import annotations

import json

import asyncpg

from holdfast import Holdfast
from tests.cli.conftest import Cli


async def test_migrate_brings_an_empty_database_to_this_release(cli: Cli, empty_database_url: str) -> None:
    check = await cli("migrate", "--check", url=empty_database_url, code=1)
    assert "run `holdfast migrate`" in check.stderr
    status = json.loads((await cli("migrate", "--status", "-o", "json", url=empty_database_url)).stdout)
    assert {entry["state"] for entry in status} == {"pending", "changed"}
    assert "applied 0001_engine" in (await cli("migrate", url=empty_database_url)).stdout
    assert "nothing to do" in (await cli("migrate", url=empty_database_url)).stdout
    assert "current" in (await cli("migrate", "--check", url=empty_database_url)).stdout
    status = json.loads((await cli("migrate", "--status", "-o", "json", url=empty_database_url)).stdout)
    assert {entry["state"] for entry in status} == {"applied"}


async def test_other_commands_do_not_migrate(cli: Cli, empty_database_url: str) -> None:
    for command in (["jobs", "list"], ["enqueue", "add"], ["verify"]):
        result = await cli(*command, url=empty_database_url, code=1)
        assert "run `holdfast migrate`" in result.stderr
    await cli("migrate", "--check", url=empty_database_url, code=1)


async def test_the_printed_script_is_a_whole_migration(cli: Cli, empty_database_url: str) -> None:
    script = (await cli("migrate", "--sql", url=empty_database_url)).stdout
    conn = await asyncpg.connect(empty_database_url)
    await conn.execute(script)
    await conn.close()
    await cli("migrate", "--check", url=empty_database_url)


async def test_verify_is_quiet_when_all_is_well_and_names_the_jobs_when_not(
    cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    job = await hf.enqueue("add", {})
    assert "all invariants hold" in (await cli("verify")).stdout
    await conn.execute("delete from ready")
    assert str(job.id) in (await cli("verify", code=1)).stdout
    offences = json.loads((await cli("verify", "-o", "json", code=1)).stdout)
    assert [offence["job_id"] for offence in offences] == [str(job.id)]


async def test_db_url_is_the_one_that_is_set(cli: Cli, database_url: str) -> None:
    assert (await cli("db", "url")).stdout.strip() == database_url
