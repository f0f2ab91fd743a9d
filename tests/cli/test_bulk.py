"""Bulk operations from the command line."""

from __future__ import annotations

import json

import asyncpg

from holdfast import Holdfast
from tests.cli.conftest import Cli
from tests.sql.factories import enqueue, state_of
from tests.sql.test_letters import died, letter


async def test_a_bulk_operation_is_looked_at_confirmed_and_followed(
    cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    ids = [await died(conn, payload={"n": n}) for n in range(3)]
    asked = ("bulk", "requeue", "--filter", "state:dead")
    told = (await cli(*asked, "--dry-run")).stdout
    assert "3 jobs match" in told
    assert str(ids[0]) in told
    assert json.loads((await cli(*asked, "--dry-run", "-o", "json")).stdout)["matches"] == 3
    assert "3 jobs match: add --yes" in (await cli(*asked, code=2)).stderr
    assert (await letter(conn, ids[0]))["requeued_as"] is None
    async with hf.maintaining():
        done = await cli(*asked, "--yes", "--note", "mended", "--priority", 3)
    assert "done: 3 done, 0 skipped, 0 failed of 3" in done.stdout
    assert await conn.fetchval("select array_agg(distinct priority) from jobs where retry_of is not null") == [3]
    (listed,) = json.loads((await cli("bulk", "list", "-o", "json")).stdout)
    assert (listed["state"], listed["note"], listed["query"]) == ("done", "mended", "state:dead")
    assert "requeue" in (await cli("bulk", "list")).stdout
    assert json.loads((await cli("bulk", "show", listed["id"], "-o", "json")).stdout) == listed
    await cli("bulk", "stop", listed["id"], code=4)


async def test_one_is_started_and_stopped(cli: Cli, conn: asyncpg.Connection) -> None:
    assert "no bulk operations" in (await cli("bulk", "list")).stderr
    job_id = await enqueue(conn)
    bulk_id = (await cli("bulk", "cancel", "--filter", "state:queued", "--yes", "--no-wait")).stdout.strip()
    assert "stopping" in (await cli("bulk", "stop", bulk_id, "--note", "a mistake")).stdout
    assert await state_of(conn, job_id) == "queued"
    assert "a filter is missing" in (await cli("bulk", "cancel", "--filter", "", "--yes", code=2)).stderr
    assert "--to" in (await cli("bulk", "reprioritize", "--filter", "x", "-y", code=2)).stderr
