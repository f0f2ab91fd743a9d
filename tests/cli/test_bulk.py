"""Bulk operations from the command line."""

from __future__ import annotations

import json

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.client.bulk import Bulks
from holdfast.model.bulk import BulkPreview
from tests.cli.conftest import Cli, Start
from tests.sql.factories import enqueue, request, state_of
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
    assert (listed["state"], listed["note"], listed["q"]) == ("done", "mended", "state:dead")
    assert "requeue" in (await cli("bulk", "list")).stdout
    assert json.loads((await cli("bulk", "show", listed["id"], "-o", "json")).stdout) == listed
    await cli("bulk", "stop", listed["id"], code=4)


async def test_who_waits_is_told_that_nobody_does_maintenance(
    start: Start, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    await died(conn)
    waiting = start("bulk", "requeue", "--filter", "state:dead", "--yes")
    await waiting.wrote("bulk show")
    bulk_id = await conn.fetchval("select id from list_bulks()")
    assert f"holdfast bulk show {bulk_id}" in waiting.text
    assert "no leader of maintenance is alive" in waiting.text
    assert "holdfast worker" in waiting.text
    async with hf.maintaining():
        assert await waiting.ended() == 0
    assert waiting.text.count("no leader") == 1
    assert waiting.text.rstrip().endswith("done: 1 done, 0 skipped, 0 failed of 1")


async def test_one_is_started_and_stopped(cli: Cli, conn: asyncpg.Connection) -> None:
    assert "no bulk operations" in (await cli("bulk", "list")).stderr
    job_id = await enqueue(conn)
    bulk_id = (await cli("bulk", "cancel", "--filter", "state:queued", "--yes", "--no-wait")).stdout.strip()
    assert "stopping" in (await cli("bulk", "stop", bulk_id, "--note", "a mistake")).stdout
    assert await state_of(conn, job_id) == "queued"
    assert "a filter is required" in (await cli("bulk", "cancel", "--filter", "", "--yes", code=2)).stderr
    assert "--to" in (await cli("bulk", "reprioritize", "--filter", "x", "-y", code=2)).stderr


async def test_with_nothing_to_do_nothing_is_started(cli: Cli, conn: asyncpg.Connection) -> None:
    await died(conn)
    asked = ("bulk", "cancel", "--filter", "type:work")
    for more in ((), ("--yes",), ("--yes", "--no-wait")):
        result = await cli(*asked, *more)
        assert (result.stdout, result.stderr) == ("", "there are no jobs to cancel: none match that it can change\n")
    assert json.loads((await cli(*asked, "--yes", "-o", "json")).stdout) == {"matches": 0, "exact": True, "sample": []}
    assert "no dead letters match" in (await cli("dead", "ack", "--filter", "type:other", "--yes")).stderr
    assert await conn.fetchval("select count(*) from bulks") == 0
    assert await conn.fetchval("select count(*) from list_audit()") == 0


async def test_one_job_matches_and_two_match(cli: Cli, conn: asyncpg.Connection) -> None:
    for words in ("1 job matches", "2 jobs match"):
        await enqueue(conn)
        assert words in (await cli("bulk", "cancel", "--filter", "type:work", code=2)).stderr
        assert words in (await cli("bulk", "cancel", "--filter", "type:work", "--dry-run")).stdout


async def test_resuming_by_filter_is_confirmed_and_one_operation(
    cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    ids = [await enqueue(conn) for _ in range(2)]
    for job_id in ids:
        await request(conn, "pause", job_id, by="ada")
    await conn.execute("select execute_requests()")
    before = await conn.fetchval("select count(*) from list_audit()")
    asked = ("jobs", "resume", "--filter", "state:paused")
    assert "2 jobs match: add --yes to resume them" in (await cli(*asked, code=2)).stderr
    assert [await state_of(conn, job_id) for job_id in ids] == ["paused"] * 2
    async with hf.maintaining():
        done = await cli(*asked, "--yes", "--reason", "the address is right")
    assert "done: 2 done, 0 skipped, 0 failed of 2" in done.stdout
    assert [await state_of(conn, job_id) for job_id in ids] == ["queued"] * 2
    assert await conn.fetchval("select count(*) from list_audit()") == before + 1
    assert "the address is right" in [event.note for event in await hf.history(ids[0])]
    assert "no paused or held jobs match" in (await cli(*asked)).stderr
    assert "a filter is required" in (await cli("jobs", "resume", "--filter", "", "--yes", code=2)).stderr


async def test_a_count_that_gave_up_does_not_say_that_nothing_matches(
    cli: Cli, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await died(conn)

    async def gave_up(*_: object, **__: object) -> BulkPreview:
        return BulkPreview(0, exact=False, sample=[])

    monkeypatch.setattr(Bulks, "preview", gave_up)
    for asked in (("jobs", "resume"), ("dead", "ack")):
        assert "at least 0" in (await cli(*asked, "--filter", "type:work", code=2)).stderr
