"""Time passes: due jobs are promoted on time, one process leads at a time, and expired jobs are deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    Wish,
    claim,
    elect,
    enqueue,
    enqueue_copies,
    enqueue_many,
    job_in,
    make_due,
    offences,
    promote,
    state_of,
)

LEAD = "select lead('maintenance'::text, $1::text, $2::double precision)"


async def test_promote_tells_when_the_next_job_is_due(conn: asyncpg.Connection) -> None:
    row = await conn.fetchrow("select * from promote()")
    assert row is not None
    assert (row["promoted"], row["next_in_seconds"]) == (0, None)
    soon = await enqueue(conn, delay=5.0)
    later = await enqueue(conn, delay=900.0)
    row = await conn.fetchrow("select * from promote()")
    assert row is not None
    assert row["promoted"] == 0
    assert 0 < row["next_in_seconds"] <= 5.0
    await make_due(conn, soon)
    row = await conn.fetchrow("select * from promote()")
    assert row is not None
    assert row["promoted"] == 1
    assert 600 < row["next_in_seconds"] <= 900
    assert (await state_of(conn, soon), await state_of(conn, later)) == ("queued", "scheduled")


async def test_promote_takes_a_bounded_number_in_order_of_time_and_can_go_on_from_there(
    conn: asyncpg.Connection,
) -> None:
    jobs = [await enqueue(conn, delay=1000.0 - n) for n in range(10)]
    for table in ("due", "jobs"):
        await conn.execute(f"update {table} set run_at = run_at - interval '1 hour'")
    row = await conn.fetchrow("select * from promote(4)")
    assert row is not None
    assert row["promoted"] == 4
    assert row["next_in_seconds"] < 0
    rest = await conn.fetchrow("select * from promote(100, $1)", row["reached"])
    assert rest is not None
    assert (rest["promoted"], rest["next_in_seconds"]) == (6, None)
    assert await conn.fetchval("select promoted from promote(100, $1)", rest["reached"] + timedelta(seconds=1)) == 0
    assert [lease.job_id for lease in await claim(conn, limit=10)] == jobs[::-1]


async def overdue(conn: asyncpg.Connection, tenant: str, *minutes: int) -> list[UUID]:
    """Jobs that became due this many minutes ago."""
    wishes: list[Wish] = [("work", {}, {"delay": 3600 - 60.0 * ago}) for ago in minutes]
    jobs = [row["job_id"] for row in await enqueue_many(conn, wishes, tenant=tenant)]
    for table, name in (("due", "job_id"), ("jobs", "id")):
        await conn.execute(f"update {table} set run_at = run_at - interval '1 hour' where {name} = any ($1)", jobs)
    return jobs


async def queued(conn: asyncpg.Connection) -> list[UUID]:
    """In the order of their places."""
    return [row["id"] for row in await conn.fetch("select id from jobs where state = 'queued' order by seq")]


async def test_promotion_is_dealt_to_tenants_in_turns_and_within_one_in_the_order_of_time(
    conn: asyncpg.Connection,
) -> None:
    a, b = await overdue(conn, "a", *range(30, 20, -1)), await overdue(conn, "b", 3, 2)
    c = await overdue(conn, "c", *range(19, 10, -1))
    row = await conn.fetchrow("select * from promote_behind(max_jobs => 8)")
    assert row is not None
    assert (row["promoted"], row["ended"]) == (8, True)
    assert await queued(conn) == [*a[:3], *c[:3], *b]
    assert list(zip(row["left_tenants"], row["left_job_ids"], strict=True)) == [("a", a[3]), ("c", c[3])]
    row = await conn.fetchrow(
        "select * from promote_behind($1, $2, passed => array['a'], max_jobs => 8)",
        row["left_run_at"][0],
        row["left_job_ids"][0],
    )
    assert row is not None
    assert (row["promoted"], row["left_tenants"]) == (6, None)
    assert await queued(conn) == [*a[:3], *c[:3], *b, *c[3:]]
    assert await offences(conn) == []


async def test_a_look_behind_a_backlog_is_bounded_and_goes_on_from_where_it_ended(conn: asyncpg.Connection) -> None:
    await overdue(conn, "a", *range(50, 20, -1))
    (small,) = await overdue(conn, "b", 1)
    look = "select * from promote_behind(coalesce($1, '-infinity'::timestamptz), $2, array['a'], 5, 10)"
    run_at, job_id, looks = None, UUID(int=0), 0
    while await queued(conn) == []:
        (row,) = await conn.fetch(look, run_at, job_id)
        run_at, job_id, looks = row["reached_run_at"], row["reached_job_id"], looks + 1
    assert looks == 4
    assert row["ended"]
    assert await queued(conn) == [small]


async def test_a_look_behind_a_backlog_skips_locked_jobs_and_stray_entries(connect_as: ConnectAs) -> None:
    conn, other = await connect_as("superuser"), await connect_as("superuser")
    locked, taken, free, held = await overdue(conn, "a", 4, 3, 2, 1)
    await conn.execute("insert into due values (now() - interval '1 day', $1)", uuid4())
    await conn.execute("insert into due values (now() - interval '1 day', $1)", held)
    await conn.execute("delete from due where job_id = $1 and run_at > now() - interval '1 hour'", held)
    async with other.transaction():
        await other.execute("select from jobs where id = $1 for update", locked)
        await other.execute("select from due where job_id = $1 for update", taken)
        await conn.execute("set lock_timeout = '2s'")
        assert await conn.fetchval("select promoted from promote_behind()") == 1
        assert await queued(conn) == [free]
    assert await conn.fetchval("select promoted from promote_behind()") == 2


async def test_two_promotions_at_once_take_nothing_twice_and_wait_for_nobody(connect_as: ConnectAs) -> None:
    one, two, admin = await connect_as("worker"), await connect_as("worker"), await connect_as("superuser")
    jobs = await enqueue_copies(one, 6, delay=60)
    await make_due(admin, *jobs)
    await two.execute("set lock_timeout = '1s'")
    async with one.transaction():
        assert await one.fetchval("select promoted from promote(4)") == 4
        assert await promote(two) == 2
    assert await promote(two) == 0
    assert await offences(admin) == []


async def test_elect_seats_each_called_target_once(conn: asyncpg.Connection) -> None:
    for n in range(5):
        await enqueue_copies(conn, 3, target=f"t{n}")
    assert await conn.fetchval("select elect(2)") == 2
    assert await conn.fetchval("select count(*) from ready") == 2
    assert await conn.fetchval("select elect()") == 3
    assert await conn.fetchval("select elect()") == 0
    assert await conn.fetchval("select count(*) from ready") == 5
    assert await offences(conn) == []


async def test_one_leads_until_it_resigns_or_its_term_ends(conn: asyncpg.Connection) -> None:
    async def lead(candidate: str, seconds: float = 60) -> bool:
        return bool(await conn.fetchval(LEAD, candidate, seconds))

    async def term() -> int:
        return int(await conn.fetchval("select term from leaders"))

    assert await lead("a")
    assert not await lead("b")
    assert await lead("a", 0.05)
    assert await term() == 1
    await asyncio.sleep(0.06)
    assert await lead("b")
    assert await term() == 2
    assert not await lead("a")
    await conn.execute("select resign('maintenance', 'a')")
    assert not await lead("a")
    await conn.execute("select resign('maintenance', 'b')")
    assert await lead("a")
    assert await term() == 3


async def test_a_term_without_renewal_is_over_by_the_candidates_own_clock(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """The expiry is an hour ahead, as after a step of the database's clock."""

    async def preside(candidate: str, seen: int | None, seconds: float) -> tuple[bool, int]:
        row = await conn.fetchrow(
            "select leads, renewals from preside('maintenance', $1, 5, seen_renewals => $2, seen_seconds => $3)",
            candidate, seen, seconds,
        )  # fmt: skip
        assert row is not None
        return row["leads"], row["renewals"]

    leads, first = await preside("a", None, 0)
    assert leads
    await conn.execute("update leaders set expires_at = now() + interval '1 hour'")
    assert await preside("b", first, 4.9) == (False, first)
    leads, second = await preside("a", first, 2)
    assert (leads, second > first) == (True, True)
    await conn.execute("update leaders set expires_at = now() + interval '1 hour'")
    assert await preside("b", first, 5) == (False, second), "there was a renewal that it has not seen"
    other = await connect_as("superuser")
    async with other.transaction():
        await other.execute("select from leaders for update")
        assert await preside("b", second, 15) == (False, second)
        assert await preside("b", second, 15.1) == (True, second), "nobody can write, but somebody has to lead"
    leads, third = await preside("b", second, 5)
    assert (leads, third > second) == (True, True)
    assert await preside("a", second, 100) == (False, third)


async def test_of_many_candidates_one_leads(connect_as: ConnectAs) -> None:
    conns = [await connect_as("worker") for _ in range(8)]
    won = await asyncio.gather(*(conn.fetchval(LEAD, f"c{n}", 60) for n, conn in enumerate(conns)))
    assert sum(won) == 1


async def long_ago(conn: asyncpg.Connection, job_id: UUID, days: float) -> None:
    await conn.execute(
        "update jobs set created_at = created_at - $2::interval, finished_at = finished_at - $2::interval "
        "where id = $1",
        job_id,
        timedelta(days=days),
    )


async def retired(conn: asyncpg.Connection) -> int:
    """Walk over all jobs in small steps; how many went."""
    after: UUID | None = None
    total = 0
    for _ in range(100):
        row = await conn.fetchrow("select * from retire($1, 3)", after)
        assert row is not None
        total += int(row["deleted"])
        after = row["reached"]
        if after is None:
            return total
    raise AssertionError("the walk does not end")


@pytest.mark.parametrize("state", ["success", "canceled"])
async def test_ended_jobs_go_after_seven_days_with_all_that_belongs_to_them(
    conn: asyncpg.Connection, state: str
) -> None:
    young, old = await job_in(conn, state), await job_in(conn, state)
    await long_ago(conn, young, 6.9)
    await long_ago(conn, old, 7.1)
    assert await retired(conn) == 1
    assert (await state_of(conn, young), await state_of(conn, old)) == (state, "gone")
    for table in ("job_attempts", "job_events", "dead_letters"):
        assert await conn.fetchval(f"select count(*) from {table} where job_id = $1", old) == 0
    assert await retired(conn) == 0


async def test_dead_jobs_go_thirty_days_after_they_were_acknowledged(conn: asyncpg.Connection) -> None:
    unseen, fresh, old = [await job_in(conn, "dead") for _ in range(3)]
    for job_id in (unseen, fresh, old):
        await long_ago(conn, job_id, 100)
    acknowledge = "update dead_letters set acknowledged_at = now() - $2::interval where job_id = $1"
    await conn.execute(acknowledge, fresh, timedelta(days=29))
    await conn.execute(acknowledge, old, timedelta(days=31))
    assert await retired(conn) == 1
    assert [await state_of(conn, job_id) for job_id in (unseen, fresh, old)] == ["dead", "dead", "gone"]


async def test_open_jobs_never_go(conn: asyncpg.Connection) -> None:
    for state in ("created", "scheduled", "queued", "running", "retry", "paused", "error"):
        await long_ago(conn, await job_in(conn, state), 1000)
    assert await retired(conn) == 0


async def test_old_jobs_with_ids_of_another_kind_go_too_and_young_ones_are_not_walked(conn: asyncpg.Connection) -> None:
    foreign = UUID("ff" + uuid4().hex[2:])
    await conn.execute("select enqueue_many(array['work'], array['{}'::jsonb], ids => array[$1::uuid])", foreign)
    await conn.execute("select from claim('w1', array['work'])")
    await conn.execute("select from complete('w1', array[$1::uuid], array[1])", foreign)
    await long_ago(conn, foreign, 8)
    await enqueue_copies(conn, 100)
    reached, steps, deleted = None, 0, 0
    while True:
        row = await conn.fetchrow("select * from retire($1, 5)", reached)
        assert row is not None
        steps, deleted, reached = steps + 1, deleted + row["deleted"], row["reached"]
        if reached is None:
            break
    assert (deleted, steps) == (1, 3)


async def test_silent_workers_are_forgotten_after_a_day(conn: asyncpg.Connection) -> None:
    for name in ("alive", "silent"):
        await conn.execute("select register_worker($1, 'host', 1, '0', '{}', array['work'], null)", name)
    assert await conn.fetchval("select beat('alive', false)")
    await conn.execute("update workers set heartbeat_at = now() - interval '25 hours' where id = 'silent'")
    assert await conn.fetchval("select forget_workers()") == 1
    assert await conn.fetchval("select beat('silent', false)") is None
    await conn.execute("select unregister_worker('alive')")
    assert await conn.fetchval("select count(*) from workers") == 0


async def test_an_older_version_of_a_type_does_not_overwrite_a_newer_one(conn: asyncpg.Connection) -> None:
    publish = "select publish_types(jsonb_build_array(jsonb_build_object('name', 'work', 'queue', $1::text, 'lane', \
'general', 'backoff_base', 1, 'backoff_factor', 2, 'backoff_max', 300, 'backoff_jitter', 0, 'on_failure', 'retry', \
'version', $2::integer)))"
    for queue, version in (("a", 1), ("b", 3), ("c", 2)):
        await conn.execute(publish, queue, version)
    assert await conn.fetchval("select queue from job_types") == "b"


async def test_work_left_and_backlog_count_ready_running_and_waiting_jobs(conn: asyncpg.Connection) -> None:
    await enqueue(conn, "other")
    stream = await conn.fetchval("select id from streams")
    await conn.execute("select from claim('w1', array['other'])")
    assert await conn.fetchval("select work_left($1)", [stream])
    assert not await conn.fetchval("select work_left($1)", [stream + 1])
    await enqueue(conn, target="t")
    await elect(conn)
    await enqueue(conn, target="t")
    await enqueue(conn, delay=60.0)
    await job_in(conn, "dead", "mortal")
    rows = {row["measure"]: row["count"] for row in await conn.fetch("select * from backlog()")}
    assert rows == {"ready": 1, "running": 1, "due": 1, "waiting": 1, "dead": 1, "repairs": 0}


async def test_a_locked_job_that_is_due_holds_up_no_other(connect_as: ConnectAs) -> None:
    conn, other = await connect_as("superuser"), await connect_as("superuser")
    locked, free = await enqueue(conn, delay=60.0), await enqueue(conn, delay=60.0)
    await make_due(conn, locked, free)
    async with other.transaction():
        await other.execute("select from jobs where id = $1 for update", locked)
        await conn.execute("set lock_timeout = '2s'")
        assert await conn.fetchval("select promoted from promote_due()") == 1
        assert [await state_of(conn, job_id) for job_id in (locked, free)] == ["scheduled", "queued"]
    assert await conn.fetchval("select promoted from promote_due()") == 1
