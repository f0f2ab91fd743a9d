"""Dead letters: found without a walk over jobs, acknowledged once, and run again as one new job, whoever asks."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.model.query import parse_query
from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    blocked,
    claim,
    enqueue,
    execute,
    job_in,
    job_row,
    offences,
    request,
    run_one,
    settle,
    state_of,
)
from tests.sql.meter import leave_alone, totals

Place = tuple[datetime, UUID]


@pytest.fixture
async def other(connect_as: ConnectAs) -> asyncpg.Connection:
    """An operator at the same time."""
    return await connect_as("operator")


async def died(conn: asyncpg.Connection, job_type: str = "work", message: str = "boom", **options: Any) -> UUID:
    """A dead job."""
    lease = await run_one(conn, job_type, **options)
    await settle(conn, "fail", [lease], kinds=["fatal"], error_types=["Boom"], error_messages=[message])
    return lease.job_id


async def page(
    conn: asyncpg.Connection, query: str = "", before: Place | None = None, limit: int = 50, **more: Any
) -> tuple[list[UUID], Place | None]:
    """The jobs of one page, and where it ended."""
    row = await conn.fetchrow(
        "select * from search_letters($1::text::jsonb, $2, $3, $4, $5, $6, $7, $8)",
        json.dumps(parse_query(query)), more.get("tenant"), more.get("acknowledged", False), more.get("fingerprint"),
        *(before or (None, None)), limit, more.get("visit", 100_000),
    )  # fmt: skip
    assert row is not None
    return row["ids"], None if row["reached_id"] is None else (row["reached_at"], row["reached_id"])


async def acknowledge(conn: asyncpg.Connection, job_id: UUID, by: str = "ada", **more: Any) -> str:
    """Acknowledge a letter; the outcome."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 3))
    sql = f"select outcome from acknowledge_letters(array[$1::uuid], $2{names})"
    return str(await conn.fetchval(sql, job_id, by, *more.values()))


async def requeue(conn: asyncpg.Connection, job_id: UUID, by: str = "ada", **more: Any) -> tuple[str, UUID | None]:
    """Requeue a dead job; the outcome and the new job."""
    more = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in more.items()}
    casts = {"payload": "::text::jsonb", "options": "::text::jsonb"}
    names = "".join(f", {name} => ${i}{casts.get(name, '')}" for i, name in enumerate(more, 3))
    sql = f"select outcome, runs_as from requeue_letters(array[$1::uuid], $2{names})"
    row = await conn.fetchrow(sql, job_id, by, *more.values())
    assert row is not None
    return row["outcome"], row["runs_as"]


async def letter(conn: asyncpg.Connection, job_id: UUID) -> dict[str, Any]:
    row = await conn.fetchrow("select * from get_letters(array[$1::uuid])", job_id)
    assert row is not None
    return dict(row)


async def test_letters_are_found_newest_first_by_what_their_jobs_are(conn: asyncpg.Connection) -> None:
    first = await died(conn, payload={"n": 1})
    second = await died(conn, "mail", "cannot connect", queue="post", payload={"n": 2})
    third = await died(conn, tenant="acme")
    await job_in(conn, State.SUCCESS)
    assert (await page(conn))[0] == [third, second, first]
    for query, expected in {
        "type:mail": [second],
        "queue:post": [second],
        "queue:post OR tenant:acme": [third, second],
        "error:connect": [second],
        "payload.n=1": [first],
        "state:dead": [third, second, first],
        "state:success": [],
        f"id:{first}": [first],
        "finished<2020-01-01": [],
        "-type:mail attempt=1": [third, first],
    }.items():
        for tenant in (None, "acme"):
            wanted = [job for job in expected if tenant is None or job == third]
            assert (await page(conn, query, tenant=tenant))[0] == wanted, query


async def test_pages_are_walked_to_the_end_whoever_has_most_letters(conn: asyncpg.Connection) -> None:
    ids = [await died(conn, tenant=("acme", "other")[n % 2]) for n in range(7)]
    await conn.execute("update dead_letters set died_at = '2026-01-01' where job_id = any ($1)", ids[:4])
    newest = sorted(ids[4:], reverse=True) + sorted(ids[:4], reverse=True)
    for tenant in (None, "acme"):
        expected = [job for job in newest if tenant is None or ids.index(job) % 2 == 0]
        for query in ("", "queue:default", "payload.n=1 OR queue:default"):
            found: list[UUID] = []
            before: Place | None = None
            for _ in range(20):
                ids_here, before = await page(conn, query, before, 2, tenant=tenant)
                found += ids_here
                if before is None:
                    break
            assert found == expected, (tenant, query)


async def test_a_page_ends_after_the_letters_that_it_may_look_at(conn: asyncpg.Connection) -> None:
    ids = [await died(conn) for _ in range(5)]
    found, reached = await page(conn, "type:none", visit=3)
    assert found == []
    assert reached is not None
    assert reached[1] == ids[2]
    assert await page(conn, "type:none", reached, visit=3) == ([], None)


async def test_large_payloads_end_a_page_early(conn: asyncpg.Connection) -> None:
    ids = [await died(conn, payload={"n": n}) for n in range(4)]
    await conn.execute("set holdfast.search_bytes = 1")
    found, reached = await page(conn, "payload.n<9")
    assert found == [ids[3]]
    assert reached is not None
    assert reached[1] == ids[3]
    assert (await page(conn, "payload.n<9", reached))[0] == [ids[2]]


async def test_a_job_is_found_by_whether_its_letter_is_acknowledged(conn: asyncpg.Connection) -> None:
    open_one, known = await died(conn), await died(conn)
    alive = await enqueue(conn)
    await acknowledge(conn, known)
    assert (await page(conn))[0] == [open_one]
    assert (await page(conn, acknowledged=True))[0] == [known]
    assert (await page(conn, acknowledged=None))[0] == [known, open_one]
    for query, expected in {
        "acknowledged:true": [known],
        "acknowledged:false": [open_one],
        "-acknowledged:true": [alive, open_one],
        "acknowledged:false OR state:queued": [alive, open_one],
    }.items():
        tree = json.dumps(parse_query(query))
        assert await conn.fetchval("select ids from search_jobs($1::text::jsonb)", tree) == expected, query
        assert (await page(conn, query, acknowledged=None))[0] == [job for job in expected if job != alive]
    with pytest.raises(asyncpg.PostgresError, match="acknowledged must be true or false"):
        await conn.execute("""select search_jobs('{"field": "acknowledged", "op": "=", "value": ["true"]}')""")


async def test_a_fingerprint_is_compared(conn: asyncpg.Connection) -> None:
    first, second = await died(conn), await died(conn)
    await conn.execute("update dead_letters set fingerprint = 'abc' where job_id = $1", first)
    assert (await page(conn, fingerprint="abc"))[0] == [first]
    assert (await page(conn, "queue:default", fingerprint="abc"))[0] == [first]
    assert (await page(conn))[0] == [second, first]


async def test_the_first_acknowledgement_stays_and_is_written_down(conn: asyncpg.Connection) -> None:
    job_id = await died(conn, tenant="acme")
    assert await acknowledge(conn, job_id, note="no", only_tenant="other") == "not-found"
    assert await acknowledge(conn, job_id, note="a known bug", only_tenant="acme") == "acknowledged"
    first = await letter(conn, job_id)
    assert (first["acknowledged"], first["acknowledged_by"], first["note"]) == (True, "ada", "a known bug")
    assert await acknowledge(conn, job_id, "bob", note="me too") == "unchanged"
    assert await letter(conn, job_id) == first
    log = await conn.fetch("select actor, tenant, action, subject, detail ->> 'note' as note from audit_log")
    assert [tuple(row) for row in log] == [("ada", "acme", "letter.ack", str(job_id), "a known bug")]
    assert await acknowledge(conn, uuid4()) == "not-found"
    with pytest.raises(asyncpg.PostgresError, match="`by` is required"):
        await conn.execute("select acknowledge_letters(array[$1::uuid], null)", job_id)


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
async def test_only_dead_jobs_are_acknowledged_and_requeued(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    assert await acknowledge(conn, job_id) == "not-dead"
    assert await requeue(conn, job_id) == ("not-dead", None)
    assert await state_of(conn, job_id) == state
    assert await conn.fetchval("select count(*) from jobs where retry_of is not null") == 0
    assert await conn.fetchval("select count(*) from audit_log") == 0


async def test_a_requeue_is_a_new_job_with_the_same_intent(conn: asyncpg.Connection) -> None:
    parent = await enqueue(conn, tenant="acme")
    job_id = await died(
        conn, "mail", payload={"to": "ada"}, tenant="acme", queue="post", target="t", priority=7, max_attempts=4,
        correlation_id="order-1", parent_id=parent, target_count=3,
    )  # fmt: skip
    outcome, created = await requeue(conn, job_id, note="repaired")
    assert outcome == "requeued"
    assert created is not None
    old, new = await job_row(conn, job_id), await job_row(conn, created)
    kept = (
        "type", "payload", "tenant", "queue", "target", "priority", "max_attempts", "correlation_id", "parent_id",
        "target_count",
    )  # fmt: skip
    assert {name: new[name] for name in kept} == {name: old[name] for name in kept}
    assert (new["state"], new["retry_of"], new["attempt"], new["created_by"]) == ("queued", job_id, 0, "ada")
    told = await letter(conn, job_id)
    assert (told["requeued_as"], told["acknowledged_by"], told["note"]) == (created, "ada", "repaired")
    log = await conn.fetchrow("select action, subject, detail from audit_log")
    assert log is not None
    assert (log["action"], log["subject"]) == ("letter.requeue", str(job_id))
    assert json.loads(log["detail"]) == {"note": "repaired", "runs_as": str(created)}
    assert await offences(conn) == []


async def test_payload_and_options_of_a_requeue_are_checked_as_in_an_enqueue(conn: asyncpg.Connection) -> None:
    job_id = await died(conn, payload={"to": "adda"}, target="t", priority=7, max_attempts=4)
    for wrong, told in {
        '{"priority": -1}': "priority must be 0 or more",
        '{"colour": 1}': "unknown option colour",
        '{"queue": "holdfast"}': "reserved",
        '{"correlation_id": "x"}': "keeps its correlation_id",
        '{"idempotency_key": "x"}': "answers the same job",
    }.items():
        with pytest.raises(asyncpg.PostgresError, match=told):
            await requeue(conn, job_id, options=wrong)
    with pytest.raises(asyncpg.PostgresError, match="must be a JSON object"):
        await requeue(conn, job_id, payload="[]")
    await enqueue(conn, dedup_key="taken")
    with pytest.raises(asyncpg.PostgresError, match="the dedup_key 'taken' belongs to the open job"):
        await requeue(conn, job_id, options={"dedup_key": "taken"})
    assert not (await letter(conn, job_id))["acknowledged"]
    options = {"priority": 1, "target": None, "delay": 60}
    _, created = await requeue(conn, job_id, payload={"to": "ada"}, options=options)
    assert created is not None
    new = await job_row(conn, created)
    assert json.loads(new["payload"]) == {"to": "ada"}
    assert (new["priority"], new["target"], new["state"], new["max_attempts"]) == (1, None, "scheduled", 4)
    detail = json.loads(await conn.fetchval("select detail from audit_log"))
    assert (detail["payload"], sorted(detail["options"])) == ("changed", ["delay", "priority", "target"])


async def test_repeated_or_asked_as_a_retry_it_is_the_same_new_job(conn: asyncpg.Connection) -> None:
    job_id = await died(conn)
    created = await conn.fetchval("select request_id from request('retry', array[$1::uuid], 'ada', 'why')", job_id)
    told = await letter(conn, job_id)
    assert (told["requeued_as"], told["acknowledged_by"], told["note"]) == (created, "ada", "why")
    assert await requeue(conn, job_id, "bob", payload={"other": 1}) == ("repeated", created)
    row = await conn.fetchrow("select * from request('retry', array[$1::uuid])", job_id)
    assert row is not None
    assert (row["outcome"], row["request_id"]) == ("new-job", created)
    asked = "select * from operator_request_as('retry', $1, 'eve', null, null, null, false)"
    assert tuple(await conn.fetchrow(asked, job_id) or ()) == ("new-job", created)
    assert await letter(conn, job_id) == told
    # Until the new one dies, which has a letter of its own.
    (again,) = await claim(conn)
    await settle(conn, "fail", [again], kinds=["fatal"])
    assert (await page(conn))[0] == [created]
    outcome, third = await requeue(conn, created)
    assert (outcome, await conn.fetchval("select count(*) from jobs")) == ("requeued", 3)
    assert third not in (created, job_id)


async def test_an_acknowledgement_is_kept_by_a_later_requeue(conn: asyncpg.Connection) -> None:
    job_id = await died(conn)
    await acknowledge(conn, job_id, "ada", note="seen")
    await requeue(conn, job_id, "bob", note="repaired")
    told = await letter(conn, job_id)
    assert (told["acknowledged_by"], told["note"]) == ("ada", "seen")
    assert told["requeued_as"] is not None


@pytest.mark.parametrize("verb", ["requeue", "retry"])
async def test_two_at_once_get_the_same_job(conn: asyncpg.Connection, other: asyncpg.Connection, verb: str) -> None:
    job_id = await died(conn)
    async with conn.transaction():
        _, created = await requeue(conn, job_id)
        calls = {
            "requeue": "select runs_as from requeue_letters(array[$1::uuid], 'bob')",
            "retry": "select request_id from request('retry', array[$1::uuid], 'bob')",
        }
        second = asyncio.create_task(other.fetchval(calls[verb], job_id))
        await blocked(conn, other)
    assert await second == created
    assert await conn.fetchval("select count(*) from jobs where retry_of = $1", job_id) == 1
    assert (await letter(conn, job_id))["acknowledged_by"] == "ada"


async def test_who_holds_a_letter_for_long_is_not_waited_for(conn: asyncpg.Connection) -> None:
    """A client may retry in a long transaction of its own, which holds the letter until it ends."""
    sql = "select 'lock_timeout=2s' = any (proconfig) from pg_proc where proname = $1"
    for name in ("requeue_letters", "acknowledge_letters"):
        assert await conn.fetchval(sql, name)


async def test_what_was_erased_is_not_in_the_letter_and_cannot_run_again(conn: asyncpg.Connection) -> None:
    job_id = await died(conn, message="cannot mail ada@example.com", payload={"to": "ada@example.com"})
    await acknowledge(conn, job_id, note="asked ada@example.com")
    await execute(conn, "delete", job_id)
    told = await letter(conn, job_id)
    assert (told["error_message"], told["note"], told["acknowledged_by"]) == (None, None, "ada")
    row = await conn.fetchrow("select v::text from dead_letter_jobs v")
    assert row is not None
    assert "ada@" not in row[0]
    assert await requeue(conn, job_id) == ("erased", None)
    assert await request(conn, "retry", job_id) == "not-possible"
    assert await acknowledge(conn, job_id) == "unchanged"


async def test_a_request_that_died_is_told_and_made_again_by_hand(conn: asyncpg.Connection) -> None:
    """It counts among the letters that wait, so it must be possible to see it and to be done with it."""
    job_id = await enqueue(conn)
    asked = await conn.fetchval("select request_id from request('cancel', array[$1::uuid])", job_id)
    await conn.execute("""update jobs set payload = '{"job_id": "nonsense"}' where id = $1""", asked)
    await conn.execute("select execute_requests()")
    assert (await page(conn))[0] == [asked]
    assert await requeue(conn, asked) == ("request", None)
    assert await acknowledge(conn, asked) == "acknowledged"
    assert (await page(conn))[0] == []


async def test_retention_waits_for_somebody_to_acknowledge(conn: asyncpg.Connection) -> None:
    waiting, known = await died(conn), await died(conn)
    await conn.execute(
        "update jobs set created_at = created_at - interval '999 days', finished_at = now() - interval '999 days';"
        "update dead_letters set died_at = died_at - interval '999 days'"
    )
    await acknowledge(conn, known)
    await conn.execute("update dead_letters set acknowledged_at = acknowledged_at - interval '998 days'")
    await conn.execute("select * from retire_known(null)")
    assert [await state_of(conn, job) for job in (waiting, known)] == ["dead", "gone"]
    assert await conn.fetchval("select dead from job_totals()") == 1
    # A requeue acknowledges, too.
    await requeue(conn, waiting)
    assert await conn.fetchval("select dead from job_totals()") == 0
    await conn.execute("update dead_letters set acknowledged_at = acknowledged_at - interval '998 days'")
    await conn.execute("select * from retire_known(null)")
    assert await state_of(conn, waiting) == "gone"
    assert await offences(conn) == []


SEED = (
    """
SELECT * FROM dead_letter_jobs
WHERE acknowledged = false
ORDER BY died_at DESC;
""",
    """
SELECT id, original_job->>'type' as job_type, error_message, died_at
FROM dead_letter_jobs
WHERE acknowledged = false
ORDER BY died_at DESC;
""",
)


@pytest.mark.parametrize("place", ["holdfast", "holdfast_views"])
async def test_dead_letters_are_read_with_psql(conn: asyncpg.Connection, other: asyncpg.Connection, place: str) -> None:
    older = await died(conn)
    newer = await died(conn, "mail", payload={"to": "ada"}, correlation_id="order-1", max_attempts=4)
    await acknowledge(conn, await died(conn))
    await other.execute(f"set search_path = {place}")
    everything, few = [await other.fetch(query) for query in SEED]
    assert list(everything[0].keys()) == [
        "id", "original_job", "error_message", "error_details", "died_at", "acknowledged", "acknowledged_by",
        "acknowledged_at",
    ]  # fmt: skip
    assert [(row["id"], row["job_type"], row["error_message"]) for row in few] == [
        (newer, "mail", "boom"),
        (older, "work", "boom"),
    ]
    job, details = (json.loads(everything[0][name]) for name in ("original_job", "error_details"))
    assert (job["payload"], job["correlation_id"], job["max_attempts"]) == ({"to": "ada"}, "order-1", 4)
    assert (details["attempt"], details["error_type"], details["outcome"]) == (1, "Boom", "failed")
    assert json.loads(everything[1]["original_job"])["max_attempts"] == 3
    for statement in ("delete from dead_letter_jobs", "update dead_letter_jobs set acknowledged_by = 'me'"):
        with pytest.raises(asyncpg.PostgresError):
            await other.execute(statement)


_MANY = 20_000


@pytest.mark.fresh_database
async def test_many_letters_are_listed_by_indexes_that_have_them_in_order(conn: asyncpg.Connection) -> None:
    """What is read does not grow with the letters, nor with the jobs, whether the server has statistics or not."""
    await leave_alone(conn)
    model = await died(conn)
    await died(conn, tenant="acme")
    await _copy(conn, model, _MANY)
    for analyzed in (False, True):
        if analyzed:
            await conn.execute("analyze dead_letters; analyze jobs")
        for tenant in (None, "default", "acme"):
            for acknowledged in (False, None, True):
                for query in ("", "type:work", "queue:default", "payload.n=1 OR queue:default", "acknowledged:false"):
                    case = (query, tenant, acknowledged, analyzed)
                    (found, reached), rows = await _measured(conn, query, tenant, acknowledged, 1_000)
                    few = tenant == "acme"
                    assert len(found) == (0 if acknowledged else 1 if few else 50), case
                    assert (reached is None) == few, case
                    assert rows < (20 if few else 5_000 if acknowledged else 1_000), case


async def _measured(
    conn: asyncpg.Connection, query: str, tenant: str | None, acknowledged: bool | None, visit: int
) -> tuple[tuple[list[UUID], Place | None], float]:
    """A page, and how many rows were read for it."""
    before = await totals(conn)
    found = await page(conn, query, tenant=tenant, acknowledged=acknowledged, visit=visit)
    await conn.fetch("select * from get_letters($1)", found[0])
    return found, (await totals(conn) - before).rows


async def _copy(conn: asyncpg.Connection, model: UUID, count: int) -> None:
    """As many more dead jobs like this one."""
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        await conn.execute(
            "insert into jobs select (copy).* from (select jsonb_populate_record(null::jobs, to_jsonb(j)"
            " || jsonb_build_object('id', uuid_v7(), 'seq', j.seq + n)) as copy"
            " from jobs j, generate_series(1, $2::integer) as n where j.id = $1) copies",
            model, count,
        )  # fmt: skip
        await conn.execute(
            "insert into dead_letters (job_id, tenant, type, died_at, error_type, error_message)"
            " select id, tenant, type, finished_at, 'Boom', 'boom' from jobs on conflict do nothing"
        )
