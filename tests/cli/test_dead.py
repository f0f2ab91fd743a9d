"""Dead letters from the command line."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import asyncpg

from holdfast import Holdfast
from tests.cli.conftest import Cli
from tests.cli.test_doctor import diagnosis
from tests.sql.factories import enqueue, portion
from tests.sql.test_letters import acknowledge, died, letter


async def test_letters_are_listed_and_shown(cli: Cli, conn: asyncpg.Connection) -> None:
    assert "no dead letters" in (await cli("dead", "list")).stderr
    first, second = await died(conn, payload={"to": "ada"}), await died(conn, "mail", "cannot connect")
    table = (await cli("dead", "list")).stdout
    assert table.index(str(second)) < table.index(str(first))
    assert "Boom: cannot connect" in table
    listed = json.loads((await cli("dead", "list", "-o", "json")).stdout)
    assert [item["job_id"] for item in listed] == [str(second), str(first)]
    lines = (await cli("dead", "list", "-o", "ndjson", "--filter", "type:mail")).stdout.splitlines()
    assert [json.loads(line)["error_message"] for line in lines] == ["cannot connect"]
    assert "there are more" in (await cli("dead", "list", "--limit", 1)).stderr
    await conn.execute("update dead_letters set fingerprint = 'abc' where job_id = $1", first)
    found = json.loads((await cli("dead", "list", "--fingerprint", "abc", "-o", "json")).stdout)
    assert [item["job_id"] for item in found] == [str(first)]

    shown = json.loads((await cli("dead", "show", first, "-o", "json")).stdout)
    assert shown["original_job"]["payload"] == {"to": "ada"}
    assert shown["error_details"]["error_type"] == "Boom"
    assert "original job" in (await cli("dead", "show", first)).stdout
    await cli("dead", "show", uuid4(), code=3)
    assert "only dead jobs" in (await cli("dead", "show", await enqueue(conn), code=3)).stderr


async def test_letters_are_acknowledged_by_id_and_by_filter(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    ids = [await died(conn, ("mail", "work")[n % 2]) for n in range(4)]
    assert "acknowledged" in (await cli("dead", "ack", ids[0], "--note", "a known bug")).stdout
    told = (await cli("dead", "ack", ids[0], "--note", "me too")).stdout
    assert "was acknowledged" in told
    assert "ago by cli:" in told
    assert "a known bug" in (await cli("dead", "list", "--acknowledged", "true")).stdout
    async with hf.maintaining():
        done = await cli("dead", "ack", "--filter", "type:work", "--yes", "--note", "known")
    assert "done: 2 done, 0 skipped, 0 failed of 2" in done.stdout
    # One act, however many letters.
    audit = await conn.fetch("select action, detail::jsonb ->> 'q' as query from list_audit()")
    assert sorted(tuple(row) for row in audit) == [("bulk.start", "type:work"), ("letter.ack", None)]
    assert "no dead letters match" in (await cli("dead", "ack", "--filter", "type:work")).stderr
    assert [item["job_id"] for item in json.loads((await cli("dead", "list", "-o", "json")).stdout)] == [str(ids[2])]


async def test_many_are_requeued_only_when_confirmed(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    ids = [await died(conn, payload={"n": n}) for n in range(5)]
    assert "5 dead jobs match: add --yes" in (await cli("dead", "requeue", "--filter", "type:work", code=2)).stderr
    assert "add --yes" in (await cli("dead", "requeue", *ids[:2], code=2)).stderr
    for wrong in (
        (),
        (ids[0], "--filter", "type:work"),
        ("--filter", "x", "--payload", "{}"),
        (ids[0], "--payload", "["),
        (ids[0], "--no-wait"),
        ("--filter", "type:a) OR (type:work", "--fingerprint", "x", "--yes"),
    ):
        await cli("dead", "requeue", *wrong, code=2)
    assert await conn.fetchval("select count(*) from jobs") == 5
    one = await cli("dead", "requeue", ids[0], "--payload", '{"n": 7}', "--priority", 3, "--delay", "5m")
    job = await hf.get(one.stdout.split()[-1])
    assert (job.payload, job.priority, job.state, job.retry_of) == ({"n": 7}, 3, "scheduled", ids[0])
    assert (await cli("dead", "requeue", ids[0])).stdout == f"{ids[0]}  already requeued as {job.id}\n"
    for more, unused in (
        (("--payload", "{}"), "payload given now was"),
        (("--queue", "slow"), "options given now were"),
        (("--payload", "{}", "--queue", "slow"), "payload and the options given now were"),
    ):
        told = (await cli("dead", "requeue", ids[0], *more)).stdout
        assert told == f"{ids[0]}  already requeued as {job.id}; the {unused} not used\n"
    async with hf.maintaining():
        done = await cli("dead", "requeue", "--filter", "type:work", "--yes", "--priority", 4)
    assert "done: 4 done, 0 skipped, 0 failed of 4" in done.stdout
    assert await conn.fetchval(
        "select array_agg(distinct priority order by priority) from jobs where retry_of is not null"
    ) == [3, 4]
    assert await conn.fetchval("select count(*) from jobs where retry_of is not null") == 5
    retried = UUID((await cli("jobs", "retry", ids[1])).stdout.split()[-1])
    assert retried == (await letter(conn, ids[1]))["requeued_as"]


async def test_failures_of_one_kind_are_requeued_by_their_fingerprint(cli: Cli, conn: asyncpg.Connection) -> None:
    ids = [await died(conn, kind) for kind in ("mail", "work", "work")]
    prints = [(await letter(conn, job_id))["fingerprint"] for job_id in ids]
    asked = ("dead", "requeue", "--fingerprint", prints[1], "--yes", "--no-wait")
    for more, query in (((), f'fingerprint:"{prints[1]}"'), (("--filter", "type:mail OR type:work"), None)):
        bulk_id = UUID((await cli(*asked, *more)).stdout.strip())
        found = await conn.fetchrow("select query from list_bulks(only_id => $1)", bulk_id)
        assert found is not None
        assert found["query"] == (query or f'(type:mail OR type:work) fingerprint:"{prints[1]}"')
        while await portion(conn):
            pass
        ids.append(await died(conn, "work"))
    assert [(await letter(conn, job_id))["requeued_as"] is not None for job_id in ids] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert await conn.fetchval("select array_agg(matched order by id) from list_bulks()") == [2, 1]


async def test_what_cannot_be_requeued_is_told_and_the_others_are(cli: Cli, conn: asyncpg.Connection) -> None:
    waiting, job_id = await enqueue(conn), await died(conn)
    # Not the code of the first failure, 3, but the highest.
    done = await cli("dead", "requeue", uuid4(), waiting, job_id, "--yes", code=4)
    assert "is queued, and only dead jobs can be requeued" in done.stderr
    assert done.stdout.startswith(str(job_id))


async def test_doctor_counts_letters_that_wait_for_somebody(cli: Cli, conn: asyncpg.Connection) -> None:
    job_id = await died(conn)
    found = (await diagnosis(cli))["dead letters"]
    assert (found["level"], found["detail"].partition(",")[0]) == ("warn", "1 not acknowledged")
    assert "holdfast failures" in found["advice"]
    await acknowledge(conn, job_id)
    assert (await diagnosis(cli))["dead letters"]["level"] == "ok"
