"""Idle streams are forgotten, whatever comes back finds its own again, and a tenant has a limited number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg
import pytest

from holdfast.model.hints import Hints
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    blocked,
    claim,
    claim_by_id,
    elect,
    enqueue,
    enqueue_copies,
    enqueue_many,
    execute,
    job_in,
    make_due,
    offences,
    promote,
    publish,
    request,
    run_one,
    settle,
    state_of,
    walk,
)
from tests.sql.meter import totals


async def forget(conn: asyncpg.Connection, walks: int = 3) -> int:
    """Let everything that is not in use be idle, and walk this many times: forgetting a stream takes three walks."""
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    return sum([await walk(conn, "forget_streams") for _ in range(walks)])


async def streams(conn: asyncpg.Connection) -> dict[int, str]:
    """Those that there are, as open, closed or unseen."""
    rows = await conn.fetch(
        "select id, case when unseen_in is not null then 'unseen' when closed_in is not null then 'closed' "
        "else 'open' end as state from streams order by id"
    )
    return {row["id"]: row["state"] for row in rows}


async def stream_of(conn: asyncpg.Connection, job_id: UUID) -> int:
    return int(await conn.fetchval("select stream from jobs where id = $1", job_id))


async def test_an_idle_stream_is_closed_then_marked_then_removed(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    stream = await stream_of(conn, lease.job_id)
    await settle(conn, "complete", [lease])
    for expected in ({stream: "closed"}, {stream: "unseen"}, {}):
        await forget(conn, 1)
        assert await streams(conn) == expected
    again = await enqueue(conn)
    assert await stream_of(conn, again) > stream
    assert [found.job_id for found in await claim(conn)] == [again]
    assert await offences(conn) == []


async def test_a_stream_is_idle_after_a_day_that_is_by_the_clock_of_the_database(conn: asyncpg.Connection) -> None:
    await settle(conn, "complete", [await run_one(conn)])
    for age, expected in (("23 hours", ["open"]), ("25 hours", ["closed"])):
        await conn.execute("update streams set used_at = now() - $1::text::interval", age)
        await walk(conn, "forget_streams")
        assert list((await streams(conn)).values()) == expected
    # A clock that was set back must not keep one for ever.
    await conn.execute("update streams set used_at = now() + interval '1 year', closed_in = null, closed_at = null")
    await walk(conn, "forget_streams")
    assert await conn.fetchval("select used_at <= now() from streams")


async def test_a_stream_that_workers_claim_from_is_in_use_even_if_always_empty(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    worker = await connect_as("worker")
    await settle(conn, "complete", [await run_one(conn)])
    (stream,) = await streams(conn)
    await conn.execute("update streams set used_at = now() - interval '2 days'")
    offered = "select id from offer(array['work'], null, null, $1)"
    assert [row["id"] for row in await worker.fetch(offered, [])] == [stream]
    assert [row["id"] for row in await worker.fetch(offered, [stream])] == [stream]
    await walk(conn, "forget_streams")
    assert await streams(conn) == {stream: "open"}
    # That is written down now and then, not each time.
    before = await conn.fetchval("select ctid::text from streams")
    await worker.fetch(offered, [stream])
    assert await conn.fetchval("select ctid::text from streams") == before


async def test_ready_and_running_jobs_keep_their_stream(conn: asyncpg.Connection) -> None:
    await publish(conn, "keyed", limit_count=1, limit_key="k")
    await enqueue(conn, "waits")
    await run_one(conn, "runs")
    for _ in range(3):
        await enqueue(conn, "keyed", {"k": 1})
    first = await claim(conn, "keyed", limit=3)
    assert await conn.fetchval("select count(*) from parked") == 2
    await settle(conn, "complete", first)
    await conn.execute(
        "update ready set stream = -stream where stream > 0 and job_id in (select id from jobs where type = 'keyed')"
    )
    await conn.execute("update streams set used_at = now() - interval '2 days'")
    kept = await streams(conn)
    assert await forget(conn) == 0
    assert await streams(conn) == kept
    assert set(kept.values()) == {"open"}
    # They count as used again, or they would be closed at the first look that finds them empty.
    await conn.execute("update settings set value = null where name = 'STREAM_IDLE_SECONDS'")
    await walk(conn, "serve_ready")
    assert not await conn.fetchval("select exists (select from streams where used_at < now() - interval '1 day')")


async def test_a_walk_in_small_steps_comes_to_every_stream(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 5, "runs")
    assert len(await claim(conn, "runs", limit=5)) == 5
    await conn.execute(
        "insert into streams (tenant, queue, type, used_at) "
        "select 'default', 'q' || n, 'work', now() - interval '2 days' from generate_series(1, 30) n"
    )
    assert sum([await walk(conn, "forget_streams", rows=4) for _ in range(2)]) == 0
    await conn.execute("update streams set closed_at = now() - interval '1 hour' where closed_at is not null")
    assert await walk(conn, "forget_streams", rows=4) == 30
    assert list((await streams(conn)).values()) == ["open"]


# What comes back

Return = Callable[[asyncpg.Connection], Awaitable[UUID]]


async def retried(conn: asyncpg.Connection) -> UUID:
    job = await job_in(conn, "retry")
    assert await forget(conn) == 1
    await make_due(conn, job)
    assert await promote(conn) == 1
    return job


async def scheduled(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn, delay=3600.0)
    assert await forget(conn) == 1
    await make_due(conn, job)
    assert await promote(conn) == 1
    return job


async def snoozed(conn: asyncpg.Connection) -> UUID:
    lease = await run_one(conn)
    await settle(conn, "snooze", [lease], delays=[3600.0])
    assert await forget(conn) == 1
    await make_due(conn, lease.job_id)
    assert await promote(conn) == 1
    return lease.job_id


async def released(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn, hold=True)
    assert await forget(conn) == 1
    await conn.execute("select release_held(array[$1::uuid])", job)
    assert await walk(conn, "serve_ready") == 1
    return job


async def resumed(conn: asyncpg.Connection) -> UUID:
    job = await job_in(conn, "paused")
    assert await forget(conn) == 1
    assert await execute(conn, "resume", job) == "accepted"
    return job


async def resumed_after_an_error(conn: asyncpg.Connection) -> UUID:
    job = await job_in(conn, "error")
    assert await forget(conn) == 1
    assert await execute(conn, "resume", job) == "accepted"
    return job


async def next_of_its_target(conn: asyncpg.Connection) -> UUID:
    head = await run_one(conn, "other", target="t")
    job = await enqueue(conn, target="t")
    await elect(conn)
    assert await forget(conn) == 1
    await settle(conn, "complete", [head])
    return job


async def called_to_its_target(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn, target="t")
    assert await forget(conn) == 1
    await elect(conn)
    return job


async def reconciled(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn)
    await conn.execute("delete from ready")
    assert await forget(conn) == 1
    await conn.execute("select reconcile()")
    return job


async def handed_back(conn: asyncpg.Connection) -> UUID:
    lease = await run_one(conn)
    await taken_away_by_hand(conn)
    assert await settle(conn, "hand_back", [lease]) == ["queued"]
    return lease.job_id


async def swept(conn: asyncpg.Connection) -> UUID:
    lease = await run_one(conn)
    await taken_away_by_hand(conn)
    await conn.execute("update leases set expires_at = now() - interval '1 second', lease_seconds = 0")
    await conn.execute("select sweep(1e9)")
    return lease.job_id


async def parked(conn: asyncpg.Connection) -> UUID:
    await publish(conn, "work", limit_count=1, limit_key="k")
    jobs = [await enqueue(conn, payload={"k": 1}) for _ in range(2)]
    (lease,) = await claim(conn, limit=2)
    await taken_away_by_hand(conn)
    assert await walk(conn, "serve_ready") == 1
    await settle(conn, "complete", [lease])
    return next(job for job in jobs if job != lease.job_id)


async def written_by_hand(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn)
    await taken_away_by_hand(conn)
    assert await walk(conn, "serve_ready") == 1
    return job


async def seen_by_a_leader_of_an_older_release(conn: asyncpg.Connection) -> UUID:
    job = await enqueue(conn)
    await taken_away_by_hand(conn)
    await conn.execute("select drop_strays()")
    return job


async def taken_away_by_hand(conn: asyncpg.Connection) -> None:
    """What the guard refuses, and the engine never does."""
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        await conn.execute("delete from streams")


@pytest.mark.parametrize(
    "comes_back",
    [
        retried, scheduled, snoozed, released, resumed, resumed_after_an_error, next_of_its_target,
        called_to_its_target, reconciled, handed_back, swept, parked, written_by_hand,
        seen_by_a_leader_of_an_older_release,
    ],
)  # fmt: skip
async def test_a_job_that_returns_brings_its_stream_back(conn: asyncpg.Connection, comes_back: Return) -> None:
    job = await comes_back(conn)
    stream = await stream_of(conn, job)
    assert (await streams(conn))[stream] == "open"
    assert await conn.fetchval("select (tenant, queue, type)::text from streams where id = $1", stream) == (
        "(default,default,work)"
    )
    assert [lease.job_id for lease in await claim(conn)] == [job]
    assert await offences(conn) == []


async def test_a_request_is_executed_after_its_stream_was_forgotten(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, delay=60.0)
    assert await execute(conn, "pause", job) == "accepted"
    assert await forget(conn) == 2
    assert await request(conn, "resume", job) == "accepted"
    await conn.execute("select execute_requests()")
    assert await state_of(conn, job) == "scheduled"
    # One that waits for its next try.
    lease = await run_one(conn)
    assert await request(conn, "delete", lease.job_id) == "accepted"
    await conn.execute("select execute_requests()")
    await forget(conn)
    await settle(conn, "stop", [lease], outcomes=["canceled"])
    asked = await conn.fetchval("select id from jobs where type = 'holdfast.delete'")
    assert await stream_of(conn, asked) not in await streams(conn)
    await make_due(conn, asked)
    await promote(conn)
    await conn.execute("select execute_requests()")
    assert await state_of(conn, asked) == "success"


async def test_a_claim_by_id_sees_the_pause_of_a_queue_whose_stream_was_forgotten(conn: asyncpg.Connection) -> None:
    job = await job_in(conn, "retry")
    assert await forget(conn) == 1
    await make_due(conn, job)
    await conn.execute("select pause_subject('queue', 'default', 'ada')")
    assert await claim_by_id(conn, job) is None
    await conn.execute("select resume_subject('queue', 'default', 'ada')")
    assert await claim_by_id(conn, job) == Lease(job, 2)


async def test_a_claim_by_id_brings_a_stream_back_before_it_looks_for_pauses(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn)
    await taken_away_by_hand(conn)
    await conn.execute("select pause_subject('queue', 'default', 'ada')")
    assert await claim_by_id(conn, job) is None
    assert len(await streams(conn)) == 1


async def test_an_entry_in_a_closed_stream_keeps_its_row(conn: asyncpg.Connection) -> None:
    await settle(conn, "complete", [await run_one(conn)])
    (stream,) = await streams(conn)
    await forget(conn, 2)
    job = await job_in(conn, "retry")
    # As a promotion does that has not brought it back yet.
    await conn.execute("insert into ready (stream, rank, seq, job_id) values ($1, 202, 1, $2)", stream, job)
    assert await forget(conn, 2) == 0
    assert (await streams(conn))[stream] == "unseen"


async def test_an_entry_without_a_job_creates_no_stream(conn: asyncpg.Connection) -> None:
    await conn.execute("insert into ready (stream, rank, seq, job_id) values (7, 202, 1, gen_random_uuid())")
    assert await walk(conn, "serve_ready") == 0
    assert await streams(conn) == {}


# Who may still use it


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_a_job_recorded_in_a_transaction_that_stays_open_runs_in_the_stream_it_was_given(
    conn: asyncpg.Connection, connect_as: ConnectAs, isolation: str
) -> None:
    worker, client = await connect_as("worker"), await connect_as("api")
    await settle(conn, "complete", [await run_one(conn)])
    (stream,) = await streams(conn)
    transaction = client.transaction(isolation=isolation)  # type: ignore[arg-type]
    await transaction.start()
    job = await enqueue(client)
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    for _ in range(4):
        assert await walk(worker, "forget_streams") == 0
    assert stream in await streams(conn)
    assert (await streams(conn))[stream] != "open"
    await transaction.commit()
    assert await stream_of(conn, job) == stream
    assert await walk(worker, "serve_ready") == 1
    assert [lease.job_id for lease in await claim(worker)] == [job]


async def test_a_snapshot_older_than_the_closing_keeps_the_stream(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """It sees the stream as open for as long as it lives, though it has written nothing so far."""
    worker, client = await connect_as("worker"), await connect_as("api")
    await settle(conn, "complete", [await run_one(conn)])
    (stream,) = await streams(conn)
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    async with client.transaction(isolation="repeatable_read"):
        await client.fetch("select from get_jobs('{}')")
        for _ in range(4):
            assert await walk(worker, "forget_streams") == 0
        job = await enqueue(client)
        assert await walk(worker, "forget_streams") == 0
    assert await stream_of(conn, job) == stream
    assert await walk(worker, "serve_ready") == 1
    assert [lease.job_id for lease in await claim(worker)] == [job]


async def test_a_transaction_that_saw_the_stream_open_keeps_it(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    """Its number is larger than that of the closing, and between two statements it has no snapshot."""
    leader, client, worker = await connect_as("superuser"), await connect_as("api"), await connect_as("worker")
    await settle(conn, "complete", [await run_one(conn)])
    (stream,) = await streams(conn)
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    closing = leader.transaction()
    await closing.start()
    await walk(leader, "forget_streams")
    recording = client.transaction()
    await recording.start()
    job = await enqueue(client)
    await client.execute("select 1")
    await closing.commit()
    for _ in range(4):
        assert await walk(worker, "forget_streams") == 0
    assert (await streams(conn))[stream] == "unseen"
    await recording.commit()
    assert await stream_of(conn, job) == stream
    assert await walk(worker, "serve_ready") == 1
    assert [lease.job_id for lease in await claim(worker)] == [job]


async def test_enqueueing_after_the_closing_creates_another_stream(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    client = await connect_as("api")
    await settle(conn, "complete", [await run_one(conn)])
    assert await forget(conn, 1) == 0
    plain = "select enqueue_plain('work', array['{}'::jsonb], array[gen_random_uuid()])"
    await client.execute(plain)
    assert await forget(conn, 1) == 0
    async with client.transaction():
        await client.execute(plain)
        assert await forget(conn, 1) == 1, "nobody keeps what nobody can have been given"
    assert len(await streams(conn)) == 1
    assert len(await claim(conn, limit=5)) == 2


async def test_a_walk_in_a_transaction_with_one_snapshot_forgets_nothing(conn: asyncpg.Connection) -> None:
    await settle(conn, "complete", [await run_one(conn)])
    async with conn.transaction(isolation="repeatable_read"):
        await forget(conn, 4)
    assert list((await streams(conn)).values()) == ["open"]


async def test_a_copied_database_forgets_streams_closed_on_another_server(conn: asyncpg.Connection) -> None:
    await settle(conn, "complete", [await run_one(conn)])
    await forget(conn, 1)
    await conn.execute("update streams set closed_in = '9000000000'")
    assert await forget(conn, 3) == 1
    await settle(conn, "complete", [await run_one(conn)])
    await forget(conn, 2)
    await conn.execute("update streams set unseen_in = '9000000000'")
    assert await forget(conn, 3) == 1


async def test_a_stream_that_somebody_has_locked_holds_up_no_walk(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    await conn.execute("set lock_timeout = '1s'")
    for job_type in ("work", "other"):
        await settle(conn, "complete", [await run_one(conn, job_type)])
    async with other.transaction():
        await other.execute("select from streams where type = 'other' for update")
        await forget(conn, 2)
        assert list((await streams(conn)).values()) == ["closed", "open"]
        await enqueue(conn, "other")
        assert await walk(conn, "serve_ready") == 0
    assert len(await claim(conn, "other")) == 1


async def test_only_one_session_creates_a_stream_again_and_others_skip(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    await conn.execute("set lock_timeout = '1s'")
    job = await job_in(conn, "retry")
    stream = await stream_of(conn, job)
    assert await forget(conn) == 1
    await make_due(conn, job)
    async with other.transaction():
        assert await other.fetchval("select serve_streams(array[$1::integer], array[$2::uuid])", stream, job) == 1
        assert await promote(conn) == 1
        assert await walk(conn, "serve_ready") == 0
        assert await claim_by_id(conn, job) is None
    assert [lease.job_id for lease in await claim(conn)] == [job]


async def test_a_client_that_releases_a_job_in_a_long_transaction_keeps_no_stream_from_others(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    client = await connect_as("api")
    await conn.execute("set lock_timeout = '1s'")
    retrying, held = await job_in(conn, "retry"), await enqueue(conn, hold=True)
    assert await forget(conn) == 1
    async with client.transaction():
        await client.execute("select release_held(array[$1::uuid])", held)
        await make_due(conn, retrying)
        assert await promote(conn) == 1
        assert [lease.job_id for lease in await claim(conn)] == [retrying]
    assert [lease.job_id for lease in await claim(conn)] == [held]


async def test_a_worker_with_an_old_list_of_streams_claims_what_came_back_there(conn: asyncpg.Connection) -> None:
    job = await job_in(conn, "retry")
    known = list(await streams(conn))
    assert await forget(conn) == 1
    rows = await conn.fetch("select job_id from claim_from('w1', 5, null, $1, $2, $3, $4)", *Hints.everything(known))
    assert rows == []
    await make_due(conn, job)
    await promote(conn)
    rows = await conn.fetch("select job_id from claim_from('w1', 5, null, $1, $2, $3, $4)", *Hints.everything(known))
    assert [row["job_id"] for row in rows] == [job]


async def test_a_stream_that_is_closed_while_a_batch_is_recorded_takes_its_jobs(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """The batch has found one stream, and cannot make another yet, when the first one is closed."""
    await settle(conn, "complete", [await run_one(conn)])
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    client = await connect_as("api")
    async with conn.transaction():
        await conn.execute("lock table streams in share mode")
        recording = asyncio.create_task(enqueue_many(client, [("work", {}, None), ("fresh", {}, None)]))
        await blocked(conn, client)
        await walk(conn, "forget_streams")
        assert list((await streams(conn)).values()) == ["closed"]
    rows = await recording
    assert [row["outcome"] for row in rows] == ["created", "created"]
    for _ in range(3):
        await walk(conn, "forget_streams")
        await walk(conn, "serve_ready")
    assert {lease.job_id for lease in await claim(conn, "work", "fresh", limit=5)} == {row["job_id"] for row in rows}
    assert await offences(conn) == []


async def test_a_worker_has_a_minute_to_learn_that_a_stream_was_closed(conn: asyncpg.Connection) -> None:
    await settle(conn, "complete", [await run_one(conn)])
    await conn.execute("update streams set used_at = now() - interval '2 days'")
    for _ in range(4):
        assert await walk(conn, "forget_streams") == 0
    await conn.execute("update streams set closed_at = now() - interval '61 seconds'")
    assert await walk(conn, "forget_streams") == 1


async def test_clients_and_maintenance_at_once_lose_nothing(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    """Streams come and go under jobs that are recorded, run, retried and released by several sessions."""
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
    done: set[UUID] = set()
    recorded: set[UUID] = set()
    forgotten = 0
    stopping = asyncio.Event()

    async def record(role: str) -> None:
        client = await connect_as(role)
        for number in range(40):
            before = forgotten
            async with client.transaction():
                job = await enqueue(client, hold=number % 4 == 0, delay=0.01 if number % 4 == 1 else None)
                await asyncio.sleep(0.001)
                await client.execute("select release_held(array[$1::uuid])", job)
            recorded.add(job)
            # A breath now and then: once all take theirs, nothing is in use, and the stream goes.
            while number % 10 == 9 and forgotten == before:
                await asyncio.sleep(0.001)

    async def work(name: str) -> None:
        worker = await connect_as("worker")
        while not stopping.is_set():
            for lease in await claim(worker, limit=3, worker=name):
                if lease.attempt == 1 and lease.job_id.int % 3 == 0:
                    await settle(worker, "fail", [lease], worker=name, kinds=["retry"], delays=[0.01])
                elif lease.attempt == 1 and lease.job_id.int % 3 == 1:
                    await settle(worker, "hand_back", [lease], worker=name)
                else:
                    assert await settle(worker, "complete", [lease], worker=name) == ["success"]
                    done.add(lease.job_id)
            await asyncio.sleep(0)

    async def maintain() -> None:
        nonlocal forgotten
        leader = await connect_as("worker")
        while not stopping.is_set():
            await leader.execute("select from promote_due()")
            await walk(leader, "serve_ready")
            gone = await walk(leader, "forget_streams")
            forgotten += gone

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for name in ("w1", "w2"):
            group.create_task(work(name))
        for _ in range(2):
            group.create_task(maintain())
        clients = [group.create_task(record("api")) for _ in range(3)]
        await asyncio.wait(clients)
        while done != recorded:
            await asyncio.sleep(0.01)
        stopping.set()
    assert len(recorded) == 120
    assert forgotten >= 4
    assert await offences(conn) == []


# What people see of it


async def test_a_paused_queue_is_listed_as_paused_and_stays_so_though_its_stream_was_forgotten(
    conn: asyncpg.Connection,
) -> None:
    job = await enqueue(conn, queue="slow", delay=60.0)
    await conn.execute("select pause_subject('queue', 'slow', 'ada'), set_limit('queue', 'slow', 1, null, null, 'ada')")
    assert await forget(conn) == 1
    (row,) = await conn.fetch("select * from list_queues(only_name => 'slow')")
    assert (row["paused_by"], row["limit_count"], row["waiting"]) == ("ada", 1, 0)
    assert "slow" in [row["name"] for row in await conn.fetch("select * from list_queues()")]
    await make_due(conn, job, await enqueue(conn, queue="slow", delay=60.0))
    assert await promote(conn) == 2
    assert await claim(conn, limit=5) == []
    await conn.execute("select resume_subject('queue', 'slow', 'ada')")
    assert len(await claim(conn, limit=5)) == 1, "its limit holds"
    (row,) = await conn.fetch("select * from list_queues(only_name => 'slow')")
    assert (row["waiting"], row["running"]) == (1, 1)
    (row,) = await conn.fetch("select * from list_tenants(only_name => 'default')")
    assert (row["waiting"], row["running"]) == (1, 1)


async def test_explain_and_verify_report_a_job_in_a_forgotten_stream(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn)
    await taken_away_by_hand(conn)
    code = "select code from explain($1)"
    assert await conn.fetchval(code, job) == "reopening"
    assert await offences(conn) == [], "maintenance has had no time yet"
    await conn.execute("update ready set ready_at = now() - interval '2 minutes'")
    assert await offences(conn) == [], "there is no maintenance"
    await conn.execute("select lead('maintenance', 'me', 60)")
    assert await offences(conn) == [("what stands in line is offered to workers", job)]
    await walk(conn, "serve_ready")
    assert await offences(conn) == []
    assert await conn.fetchval(code, job) == "no-worker"


async def test_streams_with_names_that_are_no_longer_valid_are_kept(conn: asyncpg.Connection) -> None:
    """They are from before such names were refused."""
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        await conn.execute("insert into streams (tenant, queue, type) values ('default', e'a\tb', 'work')")
    await forget(conn)
    assert list((await streams(conn)).values()) == ["open"]


async def test_an_open_stream_in_use_cannot_be_deleted_by_hand(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    with pytest.raises(asyncpg.PostgresError, match="has open jobs"):
        await conn.execute("delete from streams")
    await settle(conn, "fail", [lease])
    await conn.execute("delete from streams")
    await make_due(conn, lease.job_id)
    await promote(conn)
    assert [found.job_id for found in await claim(conn)] == [lease.job_id]


@pytest.mark.fresh_database
@pytest.mark.usefixtures("one_at_a_time")
async def test_streams_that_are_closed_cost_a_worker_nothing_though_a_snapshot_keeps_them(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    look = "select count(*) from open_streams(array['work'])"
    await enqueue(conn)
    await conn.execute("set plan_cache_mode = force_generic_plan")
    await conn.fetchval(look)
    before = await totals(conn)
    await conn.fetchval(look)
    calm = (await totals(conn) - before).buffers
    await conn.execute(
        "insert into streams (tenant, queue, type, used_at) "
        "select 'default', 'q' || n, 'work', now() - interval '2 days' from generate_series(1, 20000) n"
    )
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval("select count(*) from jobs")
        await walk(conn, "forget_streams")
        assert len(await streams(conn)) == 20_001
        assert await conn.fetchval(look) == 1
        before = await totals(conn)
        assert await conn.fetchval(look) == 1
        cost = (await totals(conn) - before).buffers
    # Until they are vacuumed, the index has entries of when they were open; a scan marks them as dead once it can.
    print(f"{calm} → {cost} buffers")
    await conn.execute("vacuum streams")
    before = await totals(conn)
    assert await conn.fetchval(look) == 1
    assert (await totals(conn) - before).buffers <= calm + 10


# How many there may be


async def limit(conn: asyncpg.Connection, most: int) -> None:
    await conn.execute("update settings set value = $1 where name = 'STREAMS_PER_TENANT'", str(most))


async def test_a_tenant_has_a_limited_number_of_streams(conn: asyncpg.Connection) -> None:
    await limit(conn, 3)
    for queue in ("a", "b"):
        await enqueue(conn, queue=queue)
    job = await enqueue(conn, "other", queue="a")
    for statement in (
        "select enqueue('work', queue => 'c')",
        "select enqueue_plain('third', array['{}'::jsonb], array[gen_random_uuid()])",
        """select submit(
          '{default}', '{x}', '{third}', array['{}'::jsonb], array['{}'::jsonb], array[gen_random_uuid()])""",
    ):
        with pytest.raises(asyncpg.PostgresError, match=r"has 3 .* may have 3 \(STREAMS_PER_TENANT\)") as refusal:
            await conn.execute(statement)
        assert (refusal.value.sqlstate, refusal.value.constraint_name) == ("HF002", "streams_per_tenant")
    # What is known goes on, others do, and everything can be asked for.
    await enqueue(conn, queue="b")
    await enqueue(conn, queue="c", tenant="other")
    assert await execute(conn, "cancel", job) == "accepted"
    assert await state_of(conn, job) == "canceled"
    assert await conn.fetchval("select count(*) from jobs where tenant = 'default' and queue <> 'holdfast'") == 4
    # What comes back is let in, and what was forgotten leaves room.
    await settle(conn, "complete", await claim(conn, "work", "other", limit=9))
    retrying = await job_in(conn, "retry", queue="a")
    assert await forget(conn) >= 3
    for queue in ("d", "e", "f"):
        await enqueue(conn, queue=queue)
    await make_due(conn, retrying)
    await promote(conn)
    assert retrying in [lease.job_id for lease in await claim(conn, limit=9)]
    assert await offences(conn) == []


async def test_a_batch_is_counted_as_a_whole_and_a_transaction_sees_its_own_streams(conn: asyncpg.Connection) -> None:
    await limit(conn, 5)
    batch = """
        select enqueue_many(
          array_agg('work'::text), array_agg('{}'::jsonb), array_agg(jsonb_build_object('queue', 'q' || n)))
        from generate_series(1, $1::integer) n"""
    with pytest.raises(asyncpg.PostgresError, match="STREAMS_PER_TENANT"):
        await conn.execute(batch, 6)
    assert await streams(conn) == {}
    async with conn.transaction():
        await conn.execute(batch, 5)
        with pytest.raises(asyncpg.PostgresError, match="STREAMS_PER_TENANT"):
            async with conn.transaction():
                await enqueue(conn, queue="more")
    assert len(await streams(conn)) == 5
