"""Another priority for a job that was recorded: where it stands then, and that no claim is disturbed."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg

from tests.conftest import ConnectAs
from tests.sql.factories import (
    claim,
    claim_by_id,
    elect,
    enqueue,
    job_in,
    job_row,
    make_due,
    offences,
    promote,
    publish,
    request,
    run_one,
    settle,
    state_of,
)
from tests.sql.test_by_hand import act, carry_out_all, decide


async def ready(conn: asyncpg.Connection) -> list[tuple[UUID, int]]:
    """The entries and their ranks, in the order of claims."""
    rows = await conn.fetch("select job_id, rank from ready where stream > 0 order by rank, seq")
    return [(row["job_id"], row["rank"]) for row in rows]


async def sound(conn: asyncpg.Connection) -> None:
    """Nothing is wrong, and nothing had to be mended."""
    assert await conn.fetch("select from reconcile() where repair is not null") == []
    await conn.execute("select drop_strays()")
    assert await conn.fetchval("select coalesce(sum(count), 0) from repairs") == 0
    assert await offences(conn) == []


async def test_a_queued_job_moves_and_keeps_its_place_among_its_equals(conn: asyncpg.Connection) -> None:
    jobs = [await enqueue(conn, priority=priority) for priority in (100, 100, 50, 50, 100)]
    await decide(conn, "reprioritize", jobs[0], priority=50)
    await decide(conn, "reprioritize", jobs[3], priority=200)
    # The first one was recorded before the other of that priority.
    order = [jobs[0], jobs[2], jobs[1], jobs[4], jobs[3]]
    assert [job for job, _ in await ready(conn)] == order
    await sound(conn)
    assert [lease.job_id for lease in await claim(conn, limit=10)] == order


async def test_a_job_that_came_back_still_goes_before_new_ones(conn: asyncpg.Connection) -> None:
    new = await enqueue(conn, priority=10)
    lease = await run_one(conn, priority=5)
    await settle(conn, "hand_back", [lease])
    await decide(conn, "reprioritize", lease.job_id, priority=10)
    assert [job for job, _ in await ready(conn)] == [lease.job_id, new]
    await sound(conn)


async def test_an_aged_job_gives_way_only_if_it_becomes_less_urgent(conn: asyncpg.Connection) -> None:
    old, young = await enqueue(conn), await enqueue(conn, priority=5)
    await conn.execute("update ready set ready_at = now() - interval '1 hour' where job_id = $1", old)
    await conn.execute("select age()")
    assert await ready(conn) == [(old, 0), (young, 12)]
    await decide(conn, "reprioritize", old, priority=50)
    assert await ready(conn) == [(old, 0), (young, 12)], "more urgent, and so not worse off"
    await decide(conn, "reprioritize", old, priority=60)
    await conn.execute("select age()")
    assert await ready(conn) == [(young, 12), (old, 122)]
    await sound(conn)


async def test_a_parked_job_comes_back_with_its_new_rank(conn: asyncpg.Connection) -> None:
    await publish(conn, limit_count=1, limit_key="account")
    running, parked, other = [await enqueue(conn, payload={"account": 1}) for _ in range(3)]
    assert [lease.job_id for lease in await claim(conn, limit=3)] == [running]
    assert await conn.fetchval("select count(*) from parked") == 2
    await decide(conn, "reprioritize", other, priority=5)
    assert await ready(conn) == [(other, 12)]
    assert await claim(conn, limit=3) == []
    assert await conn.fetchval("select count(*) from parked") == 2
    await conn.execute("select complete('w1', array[$1::uuid], array[1])", running)
    assert [lease.job_id for lease in await claim(conn, limit=3)] == [other]
    assert await state_of(conn, parked) == "queued"
    await sound(conn)


async def test_jobs_that_wait_elsewhere_use_it_later(conn: asyncpg.Connection) -> None:
    other = await enqueue(conn, priority=10)
    for state in ("scheduled", "retry"):
        job_id = await job_in(conn, state)
        await decide(conn, "reprioritize", job_id, priority=5)
        await make_due(conn, job_id)
        await promote(conn)
        assert [job for job, _ in await ready(conn)] == [job_id, other]
        await conn.execute("select request('cancel', array[$1::uuid]), execute_requests()", job_id)
    held = await job_in(conn, "created")
    await decide(conn, "reprioritize", held, priority=5)
    await conn.execute("select release_held(array[$1::uuid])", held)
    assert [job for job, _ in await ready(conn)] == [held, other]
    (lease,) = await claim(conn)
    await decide(conn, "reprioritize", held, priority=20)
    await settle(conn, "hand_back", [lease])
    assert [job for job, _ in await ready(conn)] == [other, held], "a running job uses it for its next attempt"
    await sound(conn)


async def test_the_line_of_a_target_keeps_its_order(conn: asyncpg.Connection) -> None:
    first, second = [await enqueue(conn, target="t") for _ in range(2)]
    uncalled = await enqueue(conn, target="u")
    await decide(conn, "reprioritize", second, priority=1)
    await decide(conn, "reprioritize", uncalled, priority=300)
    await elect(conn)
    assert await ready(conn) == [(first, 202), (uncalled, 602)]
    await decide(conn, "reprioritize", first, priority=400)
    assert await ready(conn) == [(uncalled, 602), (first, 802)]
    lease = await claim_by_id(conn, first)
    assert lease is not None
    await settle(conn, "complete", [lease])
    assert await ready(conn) == [(second, 4), (uncalled, 602)]
    await sound(conn)


async def test_of_several_priorities_the_last_one_asked_for_holds(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    for priority in (5, 6, 7):
        assert (await act(conn, "reprioritize", job_id, priority=priority))["outcome"] == "accepted"
    # Carried out in any order: the first one was put off.
    first = await conn.fetchval("select id from jobs where type = 'holdfast.reprioritize' order by id limit 1")
    await conn.execute("update ready set seq = nextval('places') where job_id = $1", first)
    await conn.execute("update jobs set seq = (select seq from ready where job_id = $1) where id = $1", first)
    await conn.execute("select execute_requests(100)")
    assert (await job_row(conn, job_id))["priority"] == 7
    rows = await conn.fetch("select result ->> 'outcome' from jobs where type = 'holdfast.reprioritize' order by id")
    assert [row[0] for row in rows] == ["superseded", "superseded", "reprioritized"]
    events = await conn.fetch("select event, by, note from job_events where job_id = $1 order by id", job_id)
    assert [tuple(row) for row in events] == [("reprioritized", "ada", f"priority {n}: because") for n in (5, 6, 7)]
    await sound(conn)


async def test_a_job_that_a_claim_holds_is_looked_at_again(connect_as: ConnectAs) -> None:
    worker, admin = await connect_as("worker"), await connect_as("superuser")
    job_id = await enqueue(worker)
    async with worker.transaction():
        (lease,) = await claim(worker)
        await decide(admin, "reprioritize", job_id, priority=7)
    assert (await job_row(admin, job_id))["priority"] == 100
    await carry_out_all(admin)
    assert (await job_row(admin, job_id))["priority"] == 7
    assert await settle(worker, "hand_back", [lease]) == ["queued"]
    assert await ready(admin) == [(job_id, 15)]
    await sound(admin)


async def test_claims_and_requests_go_on_while_priorities_change(connect_as: ConnectAs) -> None:
    worker, operator, maintenance, client = [await connect_as("superuser") for _ in range(4)]
    jobs = [await enqueue(worker, target="t" if n % 5 == 0 else None) for n in range(60)]
    await elect(worker)
    done: set[UUID] = set()

    async def work() -> None:
        while not done >= set(jobs):
            leases = await claim(worker, limit=3)
            await settle(worker, "complete", leases)
            done.update(lease.job_id for lease in leases)
            await worker.execute("select elect()")

    async def ask() -> None:
        for n, job_id in enumerate(jobs * 2):
            await act(operator, "reprioritize", job_id, priority=n % 7)
            if n % 10 == 3:
                await request(client, "retry", job_id)

    async def maintain() -> None:
        while not done >= set(jobs):
            await maintenance.execute("select execute_requests(10)")
            await maintenance.execute("select promoted from promote()")

    tasks: list[Any] = [work(), ask(), maintain()]
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    await carry_out_all(maintenance)
    await sound(operator)
