"""Failures by fingerprint: what settlements append, what the leader makes of it, and what operators read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    blocked,
    claim,
    claim_by_id,
    enqueue_many,
    execute,
    expire,
    job_in,
    make_due,
    promote,
    request,
    run_one,
    settle,
    state_of,
    sweep,
    walk,
)


async def failed(
    conn: asyncpg.Connection, message: str | None = "disk full", *, kind: str = "retryable", tenant: str = "default",
    job_type: str = "work",
) -> UUID:  # fmt: skip
    """A job whose first attempt failed so."""
    lease = await run_one(conn, job_type, tenant=tenant)
    await settle(conn, "fail", [lease], kinds=[kind], error_types=["Fault"], error_messages=[message])
    return lease.job_id


async def again(conn: asyncpg.Connection, job_id: UUID) -> Lease:
    """The next attempt of a job that waits for it."""
    await make_due(conn, job_id)
    await promote(conn)
    lease = await claim_by_id(conn, job_id)
    assert lease is not None
    return lease


async def add(conn: asyncpg.Connection, portion: int = 1000) -> int:
    """Let the leader add up everything."""
    total = 0
    while added := await conn.fetchval("select added from add_failures(0, $1)", portion):
        total += int(added)
    return total


async def listed(conn: asyncpg.Connection, *arguments: Any) -> list[asyncpg.Record]:
    places = ", ".join(f"${n}" for n in range(1, len(arguments) + 1))
    return await conn.fetch(f"select * from list_failures({places})", *arguments)


async def counts(conn: asyncpg.Connection, *arguments: Any) -> dict[str, tuple[int, int]]:
    return {row["message"]: (row["count"], row["open_count"]) for row in await listed(conn, *arguments)}


async def appended(conn: asyncpg.Connection) -> list[tuple[UUID, int, str]]:
    return [tuple(row) for row in await conn.fetch("select job_id, attempt, fingerprint from failures order by id")]


# What settlements append


async def test_every_attempt_that_counts_as_a_failure_leaves_one_row(conn: asyncpg.Connection) -> None:
    ways: list[dict[str, Any]] = [{}, {"outcomes": ["timeout"]}, {"kinds": ["hold"]}, {"kinds": ["fatal"]}]
    leases = []
    for way in ways:
        leases.append(await run_one(conn))
        await settle(conn, "fail", leases[-1:], **way)
    lost = await run_one(conn)
    await expire(conn, lost.job_id)
    await sweep(conn)
    assert [row[:2] for row in await appended(conn)] == [*leases, lost]
    others: list[tuple[str, dict[str, Any]]] = [
        ("complete", {}),
        ("snooze", {"delays": [60.0]}),
        ("hand_back", {}),
        ("stop", {"outcomes": ["paused"]}),
        ("stop", {"outcomes": ["canceled"]}),
    ]
    for verb, more in others:
        await settle(conn, verb, [await run_one(conn)], **more)
    assert len(await appended(conn)) == 5


async def test_a_settlement_that_is_sent_again_appends_nothing(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    for _ in range(2):
        assert await settle(conn, "fail", [lease], error_messages=["disk full"]) == ["retry"]
    assert len(await appended(conn)) == 1


async def test_a_letter_has_the_fingerprint_of_what_its_job_died_of(conn: asyncpg.Connection) -> None:
    for message in ("no user 1", "no user 2", None):
        await failed(conn, message, kind="fatal")
    letters = await conn.fetch("select fingerprint from dead_letters order by died_at")
    assert letters[0] == letters[1]
    assert [row["fingerprint"] for row in letters] == [row[2] for row in await appended(conn)]
    expected = "select fingerprint_of('work', 'Fault', 'failed')"  # the outcome, where there is no message
    assert letters[2]["fingerprint"] == await conn.fetchval(expected)


# What the leader adds up


async def test_failures_are_added_up_in_portions(conn: asyncpg.Connection) -> None:
    for n in range(5):
        await failed(conn, f"no user {n}")
    twice = await failed(conn, "disk full")
    await settle(conn, "fail", [await again(conn, twice)], error_types=["Fault"], error_messages=["disk full"])
    before = await counts(conn)
    assert before == {"no user ?": (5, 5), "disk full": (2, 1)}
    assert await add(conn, portion=2) == 7
    assert await counts(conn) == before
    assert await appended(conn) == []
    rows = await conn.fetch("select * from fingerprints order by count")
    assert rows[0]["sample_job_id"] == twice
    assert all(row["first_seen"] <= row["last_seen"] for row in rows)
    assert await add(conn) == 0


async def test_a_portion_goes_on_behind_the_last_and_a_full_look_finds_what_came_late(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    lease = await run_one(conn)
    async with other.transaction():
        await settle(other, "fail", [lease], error_messages=["late"])
        await failed(conn, "early")
        row = await conn.fetchrow("select * from add_failures(0, 10)")
        assert row is not None
        assert row["added"] == 1
        assert await conn.fetchval("select added from add_failures($1, 10)", row["reached"]) == 0
    assert await conn.fetchval("select added from add_failures($1, 10)", row["reached"]) == 0
    assert await add(conn) == 1
    assert await counts(conn) == {"early": (1, 1), "late": (1, 1)}


async def test_two_leaders_count_nothing_twice(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    other = await connect_as("worker")
    for n in range(40):
        await failed(conn, f"no user {n}")
    async with other.transaction():
        assert await other.fetchval("select added from add_failures(0, 10)") == 10
        assert await conn.fetchval("select added from add_failures(0, 10)") == 0
    await asyncio.gather(add(conn, 3), add(other, 3))
    await add(conn)
    assert await counts(conn) == {"no user ?": (40, 40)}


async def test_a_portion_that_a_crash_undid_is_added_again(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    leader = await connect_as("worker")
    for _ in range(3):
        await failed(conn)
    transaction = leader.transaction()
    await transaction.start()
    assert await leader.fetchval("select added from add_failures()") == 3
    await conn.execute("select pg_terminate_backend($1, 5000)", leader.get_server_pid())
    assert await add(conn) == 3
    assert await counts(conn) == {"disk full": (3, 3)}


async def test_settlements_never_wait_for_the_leader(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    leader = await connect_as("worker")
    await failed(conn)
    await add(conn)
    await failed(conn)
    async with leader.transaction():
        assert await leader.fetchval("select added from add_failures()") == 1
        await conn.execute("set lock_timeout = '1s'")
        await failed(conn)
    assert await counts(conn) == {"disk full": (3, 3)}


async def test_open_jobs_count_until_they_end_or_fail_otherwise(conn: asyncpg.Connection) -> None:
    recovers, changes, dies, held = [await failed(conn) for _ in range(4)]
    await add(conn)
    assert await counts(conn) == {"disk full": (4, 4)}
    await settle(conn, "complete", [await again(conn, recovers)])
    await settle(conn, "fail", [await again(conn, changes)], error_types=["Fault"], error_messages=["no network"])
    fatal: dict[str, Any] = {"kinds": ["fatal"], "error_types": ["Fault"], "error_messages": ["disk full"]}
    await settle(conn, "fail", [await again(conn, dies)], **fatal)
    await settle(conn, "fail", [await again(conn, held)], **(fatal | {"kinds": ["hold"]}))
    await add(conn)
    assert await walk(conn, "drop_recovered", rows=1) == 1
    assert await counts(conn) == {"disk full": (6, 2), "no network": (1, 1)}
    assert {row["job_id"] for row in await conn.fetch("select job_id from failing")} == {changes, held}
    await conn.execute("update dead_letters set acknowledged_at = now()")
    assert await execute(conn, "cancel", held) == "accepted"
    await walk(conn, "drop_recovered")
    assert await counts(conn) == {"disk full": (6, 0), "no network": (1, 1)}


async def test_an_older_failure_that_comes_late_does_not_hide_the_last_one(conn: asyncpg.Connection) -> None:
    job_id = await failed(conn, "first")
    (first,) = await appended(conn)
    await conn.execute("delete from failures")
    await settle(conn, "fail", [await again(conn, job_id)], error_types=["Fault"], error_messages=["second"])
    await add(conn)
    await conn.execute("insert into failures (job_id, attempt, fingerprint) values ($1, $2, $3)", *first)
    await add(conn)
    assert await counts(conn) == {"second": (1, 1), "first": (1, 0)}


async def test_failures_of_jobs_that_are_gone_are_dropped(conn: asyncpg.Connection) -> None:
    gone, stays = await failed(conn, kind="fatal"), await failed(conn, "stays")
    await conn.execute("delete from dead_letters where job_id = $1", gone)
    await conn.execute("delete from job_attempts where job_id = $1", gone)
    await conn.execute("delete from jobs where id = $1", gone)
    assert await add(conn) == 2
    assert await counts(conn) == {"stays": (1, 1)}
    assert await state_of(conn, stays) == "retry"


# Erased jobs


async def test_the_message_of_an_erased_job_goes_if_it_was_the_only_one(conn: asyncpg.Connection) -> None:
    job_id = await failed(conn, "patient Smith is ill", kind="fatal")
    await add(conn)
    await execute(conn, "delete", job_id)
    (row,) = await listed(conn)
    assert (row["message"], row["count"], row["sample_job_id"]) == (None, 1, job_id)
    found = await conn.fetchval("select string_agg(f::text, '') from fingerprints f")
    assert "Smith" not in found
    await failed(conn, "patient Smith is ill")
    (row,) = await listed(conn)
    assert (row["message"], row["count"]) == ("patient Smith is ill", 2)


async def test_a_job_that_was_erased_before_it_was_added_leaves_no_message(conn: asyncpg.Connection) -> None:
    await execute(conn, "delete", await failed(conn, "patient Smith is ill", kind="fatal"))
    assert [row["message"] for row in await listed(conn)] == [None]
    await add(conn)
    (row,) = await listed(conn)
    assert (row["message"], row["count"], row["type"]) == (None, 1, "work")


async def test_another_job_with_the_same_message_becomes_the_sample(conn: asyncpg.Connection) -> None:
    dead, last = await failed(conn, kind="fatal"), await failed(conn, kind="fatal")
    await add(conn)
    await execute(conn, "delete", last)
    (row,) = await listed(conn)
    assert (row["message"], row["sample_job_id"]) == ("disk full", dead)
    await execute(conn, "delete", dead)
    (row,) = await listed(conn)
    assert row["message"] is None


async def test_an_erasure_beside_the_leader_leaves_no_message(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    """The leader has read the message, and writes it after the erasure has looked."""
    leader = await connect_as("worker")
    job_id = await failed(conn, "patient Smith is ill", kind="fatal")
    assert await request(conn, "delete", job_id) == "accepted"
    async with leader.transaction():
        await leader.execute("select add_failures()")
        erasing = asyncio.ensure_future(conn.execute("select forgotten($1, 'me')", job_id))
        await blocked(leader, conn)
    await erasing
    assert [row["message"] for row in await listed(conn)] == [None]


# Letters from before, and forgetting


async def test_letters_from_before_are_read_in_portions(conn: asyncpg.Connection) -> None:
    ids = [await failed(conn, f"no user {n}", kind="fatal") for n in range(5)]
    erased = await failed(conn, "patient Smith is ill", kind="fatal")
    await execute(conn, "delete", erased)
    await conn.execute("delete from failures; update dead_letters set fingerprint = null")
    await conn.execute("update dead_letters set died_at = now() - interval '3 days' where job_id = $1", ids[0])
    assert await listed(conn) == []
    assert await search(conn, "no-such-print") == []
    assert await walk(conn, "read_letters", rows=2) == 6
    assert await walk(conn, "read_letters") == 0
    await add(conn)
    rows = {row["message"]: row for row in await listed(conn)}
    assert {message: (row["count"], row["open_count"]) for message, row in rows.items()} == {
        "no user ?": (5, 5),
        None: (1, 1),
    }
    age = await conn.fetchval("select now() - first_seen from fingerprints where message is not null")
    assert age.days == 3


async def test_jobs_that_were_held_before_there_were_fingerprints_are_counted_once(conn: asyncpg.Connection) -> None:
    old = [await failed(conn, f"no user {n}", kind="hold") for n in range(3)]
    old.append(await failed(conn, "no user 4"))  # waits for its retry
    await failed(conn, "no user 5", kind="fatal")
    await job_in(conn, State.SUCCESS)
    await conn.execute("delete from failures")
    await conn.execute("update job_attempts set finished_at = '2020-01-01' where job_id = any ($1)", old)
    new = await failed(conn, "no user 6", kind="hold")  # has told of itself
    await conn.execute("insert into walks values ('held')")
    # A leader that dies takes back both, what it noted and that it did.
    for ended in (False, True):
        step = conn.transaction()
        await step.start()
        mended, reached = await conn.fetchrow("select * from note_held(null, 2)") or (None, None)
        assert (mended, reached) == (2, [str(old[1])])
        await (step.commit() if ended else step.rollback())
    assert await walk(conn, "note_held", rows=2) == 2
    assert await conn.fetchval("select count(*) from walks") == 0
    assert await walk(conn, "note_held") == 0
    await add(conn)
    (row,) = await listed(conn)
    assert (row["message"], row["count"], row["open_count"]) == ("no user ?", 5, 6)
    assert row["first_seen"].year == 2020
    assert {row["job_id"] for row in await conn.fetch("select job_id from failing")} == {*old, new}


async def test_counting_what_is_open_ends_and_says_that_there_is_more(conn: asyncpg.Connection) -> None:
    for kind in ("fatal", "retryable", "fatal", "retryable"):
        await failed(conn, "disk full", kind=kind)
    for added in (False, True):
        if added:
            await add(conn)
        for most, expected in ((5, (4, False)), (4, (4, False)), (3, (3, True)), (1, (1, True))):
            await conn.execute("select set_config('holdfast.search_open', $1, false)", str(most))
            (row,) = await listed(conn)
            assert (row["open_count"], row["open_more"]) == expected, (added, most)


async def test_old_fingerprints_with_nothing_open_are_forgotten(conn: asyncpg.Connection) -> None:
    for message in ("open", "acknowledged", "recovered", "recent"):
        await failed(conn, message, kind="retryable" if message == "recovered" else "fatal")
    await add(conn)
    await conn.execute("update dead_letters set acknowledged_at = now() where error_message <> 'open'")
    await conn.execute("delete from failing")
    assert await walk(conn, "forget_fingerprints", rows=2) == 0
    old = "update fingerprints set last_seen = now() - retention_of(true) - interval '1 day' where message <> 'recent'"
    await conn.execute(old)
    await conn.execute("insert into clock_steps (seconds) values (86400 * 7)")  # set ahead, so they are not that old
    assert await walk(conn, "forget_fingerprints", rows=2) == 0
    await conn.execute("delete from clock_steps")
    assert await walk(conn, "forget_fingerprints", rows=2) == 2
    assert set(await counts(conn)) == {"open", "recent"}


async def test_moments_of_a_clock_that_was_set_back_come_back(conn: asyncpg.Connection) -> None:
    await failed(conn, "then")
    await failed(conn, "again")
    await conn.execute("update failures set at = now() + interval '1 year'")
    await add(conn)
    assert await conn.fetchval("select max(last_seen) <= now() from fingerprints")
    await conn.execute("update fingerprints set last_seen = now() + interval '1 year'")
    await failed(conn, "again")
    await add(conn)
    assert await conn.fetchval("select last_seen <= now() from fingerprints where message = 'again'")
    await walk(conn, "forget_fingerprints")
    assert await conn.fetchval("select max(last_seen) <= now() from fingerprints")
    assert await conn.fetchval("select bool_and(first_seen <= last_seen) from fingerprints")


async def crowded(conn: asyncpg.Connection, count: int, tenant: str = "default") -> None:
    """So many fingerprints, the oldest first."""
    await conn.execute(
        "insert into fingerprints select $1, lpad(to_hex(n), 16, '0'), 'work', 'Fault', 'disk ' || n, 1,"
        " now() - interval '20 days', now() - make_interval(secs => 600000 - n), gen_random_uuid()"
        " from generate_series(1, $2::integer) n",
        tenant,
        count,
    )


async def test_a_tenant_has_a_bounded_number_of_fingerprints(conn: asyncpg.Connection) -> None:
    await crowded(conn, 10_000)
    await crowded(conn, 20, "acme")
    open_job = await failed(conn, "unusual")  # open, so it stays though it will be the oldest
    await add(conn)
    await conn.execute("update fingerprints set last_seen = '2020-01-01' where message = 'unusual'")
    for n in range(3):
        await failed(conn, "other " + "x" * n)
    await add(conn)
    sizes = {row[0]: row[1] for row in await conn.fetch("select tenant, count(*) from fingerprints group by 1")}
    assert sizes == {"default": 10_000, "acme": 20}
    assert await conn.fetchval("select count(*) from fingerprints where sample_job_id = $1", open_job) == 1
    assert not await conn.fetchval(
        "select exists (select from fingerprints where tenant = 'default' and message in ('disk 1', 'disk 4'))"
    )
    await conn.execute(
        "insert into failing (job_id, tenant, fingerprint, attempt)"
        " select gen_random_uuid(), tenant, fingerprint, 1 from fingerprints"
        " where tenant = 'default' and message like 'disk%' order by last_seen limit 3000"
    )
    await failed(conn, "one more")
    await add(conn)
    kept = "select count(*) from fingerprints join failing using (tenant, fingerprint) where message like 'disk%'"
    assert await conn.fetchval(kept) == 3000
    assert await conn.fetchval("select count(*) from fingerprints where sample_job_id = $1", open_job) == 1
    await conn.execute(
        "insert into fingerprints select 'acme', md5(n::text), 'work', null, null, 1, now(), now(), gen_random_uuid()"
        " from generate_series(1, 10500) n"
    )
    assert await walk(conn, "forget_fingerprints", rows=500) == 520
    assert await conn.fetchval("select count(*) from fingerprints where tenant = 'acme'") == 10_000


# What operators read


async def test_failures_are_listed_newest_first_page_by_page(conn: asyncpg.Connection) -> None:
    messages = [f"{chr(97 + n) * 3} failed" for n in range(7)]
    for n, message in enumerate(messages):
        await failed(conn, message, tenant="acme" if n % 2 else "default")
        if n == 3:
            await add(conn)
    await failed(conn, messages[1], tenant="acme")  # stored, and again since
    found, place = [], (None, None, None)
    for _ in range(10):
        rows = await listed(conn, None, None, *place, 2)
        found += [row["message"] for row in rows]
        if not rows:
            break
        place = (rows[-1]["last_seen"], rows[-1]["fingerprint"], rows[-1]["tenant"])
    assert found == [messages[1], *reversed(messages[2:]), messages[0]]
    assert [row["message"] for row in await listed(conn, "acme")] == [messages[1], messages[5], messages[3]]


async def test_tenants_see_their_own_and_types_are_apart(conn: asyncpg.Connection) -> None:
    for tenant in ("acme", "globex"):
        for job_type in ("mail", "report"):
            await failed(conn, tenant=tenant, job_type=job_type)
            await failed(conn, tenant=tenant, job_type=job_type, kind="fatal")
    for _ in range(2):
        rows = await listed(conn, "acme")
        assert [(row["tenant"], row["type"], row["count"], row["open_count"]) for row in rows] == [
            ("acme", "report", 2, 2),
            ("acme", "mail", 2, 2),
        ]
        assert [(row["tenant"], row["type"]) for row in await listed(conn, None, "mail")] == [
            ("globex", "mail"),
            ("acme", "mail"),
        ]
        assert len(await listed(conn)) == 4
        assert await listed(conn, "initech") == []
        await add(conn)


async def test_one_batch_over_several_tenants_is_paged_without_loss(conn: asyncpg.Connection) -> None:
    """Its rows have the same moment and the same fingerprint."""
    for n in range(6):
        await enqueue_many(conn, [("work", {}, None)], tenant=f"t{n}")
    await settle(conn, "fail", await claim(conn, limit=10), error_messages=["boom"] * 6)
    for _ in range(2):
        found, place = [], (None, None, None)
        while rows := await listed(conn, None, None, *place, 1):
            found.append(rows[0]["tenant"])
            place = (rows[0]["last_seen"], rows[0]["fingerprint"], rows[0]["tenant"])
        assert sorted(found) == [f"t{n}" for n in range(6)]
        await add(conn)


async def test_a_sample_that_is_gone_is_replaced(conn: asyncpg.Connection) -> None:
    stays, gone = await failed(conn), await failed(conn)
    await settle(conn, "complete", [await again(conn, gone)])
    await add(conn)
    await conn.execute("update fingerprints set sample_job_id = $1", gone)
    await conn.execute("delete from jobs where id = $1", gone)
    assert [row["sample_job_id"] for row in await listed(conn)] == [stays]


async def test_what_is_not_added_up_yet_is_bounded(conn: asyncpg.Connection) -> None:
    for n in range(4):
        await failed(conn, "a" * n)
    assert len(await listed(conn, None, None, None, None, None, 50, 2)) == 2


async def search(
    conn: asyncpg.Connection, fingerprint: str, *, tenant: str | None = None, also: Sequence[Any] = ()
) -> Sequence[UUID]:
    tree = {"and": [{"field": "fingerprint", "op": "=", "value": [fingerprint]}, *also]}
    ids: Sequence[UUID] = await conn.fetchval(
        "select ids from search_jobs($1::text::jsonb, $2)", json.dumps(tree), tenant
    )
    return ids


async def test_a_search_finds_the_jobs_with_a_fingerprint(conn: asyncpg.Connection) -> None:
    dead, retries = await failed(conn, kind="fatal"), await failed(conn)
    foreign = await failed(conn, kind="fatal", tenant="acme")
    await failed(conn, "otherwise")
    recovered = await failed(conn)
    await add(conn)
    await settle(conn, "complete", [await again(conn, recovered)])
    fingerprint = await conn.fetchval("select fingerprint_of('work', 'Fault', 'disk full')")
    assert await search(conn, fingerprint) == [foreign, retries, dead]
    assert await search(conn, fingerprint, tenant="default") == [retries, dead]
    assert await search(conn, fingerprint, tenant="acme") == [foreign]
    assert await search(conn, fingerprint, also=[{"field": "state", "op": "=", "value": ["dead"]}]) == [foreign, dead]
    assert await search(conn, fingerprint[:8] + "*") == [foreign, retries, dead]
    await job_in(conn, "queued")
    without = await conn.fetchval(
        "select ids from search_jobs(jsonb_build_object('not', jsonb_build_object("
        "'field', 'fingerprint', 'op', '=', 'value', jsonb_build_array($1::text))))",
        fingerprint,
    )
    assert not {dead, retries, foreign} & set(without)
    assert len(without) == 3


async def test_a_search_for_a_fingerprint_is_paged(conn: asyncpg.Connection) -> None:
    ids = [await failed(conn, kind="fatal") for _ in range(5)]
    await add(conn)
    query = (
        "select ids, reached from search_jobs(jsonb_build_object('field', 'fingerprint', 'op', '=',"
        " 'value', jsonb_build_array(fingerprint_of('work', 'Fault', 'disk full'))), null, $1, $2, $3)"
    )
    for most, visited in ((2, 1000), (50, 2)):
        found, before = [], None
        for _ in range(5):
            row = await conn.fetchrow(query, before, most, visited)
            assert row is not None
            found += row["ids"]
            before = row["reached"]
            if before is None:
                break
        assert found == ids[::-1]
