"""The transition table holds for every writer: every pair of states is tried by hand-written SQL."""

from __future__ import annotations

from itertools import product
from uuid import uuid4

import asyncpg
import pytest

from holdfast.model.states import INITIAL, TERMINAL, TRANSITIONS, State
from tests.conftest import ConnectAs
from tests.sql.factories import expire, job_in, job_row, offences, run_one, state_of

REFUSED = "HF001"
MOVE = "update jobs set state = $2, attempt = attempt + case when $2 = 'running' then 1 else 0 end where id = $1"


async def refused(conn: asyncpg.Connection, statement: str, *arguments: object) -> bool:
    """Whether the guard refuses a statement; any other fault is raised."""
    savepoint = conn.transaction()
    await savepoint.start()
    try:
        await conn.execute(statement, *arguments)
    except asyncpg.PostgresError as fault:
        if fault.sqlstate != REFUSED:
            raise
        return True
    finally:
        await savepoint.rollback()
    return False


@pytest.mark.parametrize("state", State)
async def test_only_the_moves_of_the_table_are_allowed_to_a_superuser(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    await expire(conn, job_id)
    allowed = {
        goal
        for goal in State
        if goal != state or state == State.RUNNING
        if not await refused(conn, MOVE, job_id, goal.value)
    }
    assert allowed == TRANSITIONS[state]
    assert await state_of(conn, job_id) == state
    assert await offences(conn) == []


@pytest.mark.parametrize("state", State)
async def test_attempt_grows_by_one_and_only_with_a_claim(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    for goal, step in product(State, (-1, 0, 1, 2)):
        becomes_running = goal == State.RUNNING
        if step == (1 if becomes_running else 0):
            continue
        if state == goal == State.RUNNING and step == 0:
            continue
        statement = "update jobs set state = $2, attempt = attempt + $3 where id = $1"
        assert await refused(conn, statement, job_id, goal.value, step), (goal, step)


async def test_new_attempt_over_a_live_lease_is_refused(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, State.RUNNING)
    assert await refused(conn, MOVE, job_id, "running")
    await expire(conn, job_id)
    assert not await refused(conn, MOVE, job_id, "running")


async def test_an_old_snapshot_does_not_see_a_renewed_lease_as_lapsed(connect_as: ConnectAs) -> None:
    keeper, writer = await connect_as("superuser"), await connect_as("superuser")
    lease = await run_one(keeper)
    await expire(keeper, lease.job_id)
    async with writer.transaction(isolation="repeatable_read"):
        await writer.fetch("select from leases")
        await keeper.execute("update leases set lease_seconds = 30 where job_id = $1", lease.job_id)
        await keeper.fetch("select * from renew('w1', array[$1::uuid], array[$2::integer])", *lease)
        with pytest.raises(asyncpg.SerializationError):
            await writer.execute(MOVE, lease.job_id, "running")


@pytest.mark.parametrize("state", State)
async def test_jobs_are_inserted_only_in_initial_states(conn: asyncpg.Connection, state: State) -> None:
    insert = """
        insert into jobs (id, seq, stream, state, attempt, tenant, type, queue, payload)
        values ($1, 1, 1, $2, $3, 'default', 'work', 'default', '{}')"""
    assert await refused(conn, insert, uuid4(), state.value, 0) == (state not in INITIAL)
    assert await refused(conn, insert, uuid4(), state.value, 1)


@pytest.mark.parametrize("state", State)
async def test_only_ended_jobs_are_deleted(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    assert await refused(conn, "delete from jobs where id = $1", job_id) == (state not in TERMINAL)


@pytest.mark.parametrize("state", State)
async def test_sql_and_python_know_the_same_ends(conn: asyncpg.Connection, state: State) -> None:
    assert await conn.fetchval("select has_ended($1)", state.value) == (state in TERMINAL)


async def test_truncate_is_refused(conn: asyncpg.Connection) -> None:
    await job_in(conn, State.SUCCESS)
    assert await refused(conn, "truncate jobs")
    assert await refused(conn, "truncate jobs cascade")


@pytest.mark.parametrize("state", State)
async def test_the_id_of_a_job_is_fixed(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    assert await refused(conn, "update jobs set id = $2 where id = $1", job_id, uuid4())


async def test_unknown_states_are_refused(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, State.QUEUED)
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute("update jobs set state = 'finished' where id = $1", job_id)
    with pytest.raises(asyncpg.NotNullViolationError):
        await conn.execute("update jobs set state = null where id = $1", job_id)
    with pytest.raises(asyncpg.NotNullViolationError):
        await conn.execute(
            "insert into jobs (id, seq, stream, state, tenant, type, queue, payload) "
            "values (gen_random_uuid(), 1, 1, null, 'default', 'work', 'default', '{}')"
        )


async def test_refusal_says_what_and_what_to_use(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, State.SUCCESS)
    with pytest.raises(asyncpg.PostgresError, match=f"job {job_id} cannot go from success to queued") as refusal:
        await conn.execute("update jobs set state = 'queued' where id = $1", job_id)
    assert "functions of this schema" in str(refusal.value.as_dict()["hint"])


async def test_every_state_can_be_reached_by_the_engine(conn: asyncpg.Connection) -> None:
    for state in State:
        job = await job_row(conn, await job_in(conn, state, str(state)))
        assert job["state"] == state
    assert await offences(conn) == []


async def test_tenant_queue_type_and_stream_are_fixed(conn: asyncpg.Connection) -> None:
    """Side tables know them by the stream: a job that was renamed by hand stayed queued for ever."""
    job = await job_in(conn, State.QUEUED)
    for change in ("type = 'other'", "queue = 'other'", "tenant = 'other'", "stream = stream + 1"):
        with pytest.raises(asyncpg.PostgresError, match="cannot be changed"):
            await conn.execute(f"update jobs set {change} where id = $1", job)
    await conn.execute("update jobs set type = type, stream = stream where id = $1", job)
    for statement in ("update streams set type = 'other'", "delete from streams"):
        with pytest.raises(asyncpg.PostgresError, match=r"cannot be changed|has open jobs"):
            await conn.execute(statement)
