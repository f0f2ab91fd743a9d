"""Acknowledged jobs survive a crash and a failover, whatever the settings are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.embedded_binaries import find_binaries
from tests.faults.clusters import Cluster, clusters
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.waiting import until

JOBS = 20 if CHAOS_SECONDS else 4
ROUNDS = 5 if CHAOS_SECONDS else 1

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Enqueue = Callable[[Cluster], Awaitable[list[UUID]]]


@pytest.fixture
def servers() -> Iterator[list[Cluster]]:
    with clusters(2) as made:
        yield made


async def migrated(cluster: Cluster) -> Cluster:
    """A new server with the engine in it."""
    cluster.create()
    await cluster.start()
    return cluster


async def session(cluster: Cluster, *statements: str, role: str | None = "api") -> asyncpg.Connection:
    """A session of a client that does as it likes."""
    conn = await asyncpg.connect(cluster.url)
    for statement in (*statements, "set search_path = holdfast", f"set role holdfast_{role}" if role else "select 1"):
        await conn.execute(statement)
    return conn


async def by_sql(cluster: Cluster, *statements: str) -> list[UUID]:
    conn = await session(cluster, *statements)
    ids = [await conn.fetchval("select job_id from enqueue('work')") for _ in range(JOBS)]
    assert await conn.fetchval("show synchronous_commit") == "off"
    await conn.close()
    return ids


async def by_setting(cluster: Cluster, whose: str) -> list[UUID]:
    """The setting of a database, a role or the whole server."""
    conn = await session(cluster, role=None)
    await conn.execute(f"{whose} set synchronous_commit = off")
    await conn.execute("select pg_reload_conf()")
    await conn.close()
    await until(lambda: says_off(cluster), what="the setting is in force")
    found = await by_sql(cluster)
    cluster.undo = f"{whose} reset synchronous_commit"
    return found


async def says_off(cluster: Cluster) -> bool:
    conn = await asyncpg.connect(cluster.url)
    try:
        return bool(await conn.fetchval("show synchronous_commit") == "off")
    finally:
        await conn.close()


async def by_app(cluster: Cluster) -> list[UUID]:
    """The library's own connections, with an option in the URL."""
    async with Holdfast(f"{cluster.url}&options=-csynchronous_commit%3Doff") as hf:
        return [(await hf.enqueue("work", priority=n)).id for n in range(JOBS)]


async def by_lent_connection(cluster: Cluster) -> list[UUID]:
    hf = Holdfast(cluster.url)
    ids = []
    with psycopg.connect(cluster.url, options="-c synchronous_commit=off") as conn:
        for number in range(JOBS):
            conn.execute("select 1")
            ids.append(hf.sync.enqueue("work", {"n": number}, conn=conn).id)
            conn.commit()
    return ids


async def by_function(cluster: Cluster) -> list[UUID]:
    """A function of the caller, whose own setting ends with it, ahead of the commit."""
    conn = await session(cluster, "set synchronous_commit = off", role=None)
    await conn.execute(
        "create or replace function public.record() returns uuid language sql set synchronous_commit = off"
        " as 'select job_id from holdfast.enqueue(''work'')'"
    )
    ids = [await conn.fetchval("select public.record()") for _ in range(JOBS)]
    await conn.close()
    return ids


async def by_lowering_afterwards(cluster: Cluster) -> list[UUID]:
    conn = await session(cluster)
    ids = []
    for _ in range(JOBS):
        async with conn.transaction():
            ids.append(await conn.fetchval("select job_id from enqueue('work')"))
            await conn.execute("set local synchronous_commit = off")
    await conn.close()
    return ids


async def by_psql(cluster: Cluster) -> list[UUID]:
    psql = await asyncio.create_subprocess_exec(
        str(find_binaries() / "psql"), cluster.url, "-qAt", "-c", "set synchronous_commit = off",
        *(["-c", "select job_id from holdfast.enqueue('work')"] * JOBS),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PGOPTIONS": "-c synchronous_commit=off"},
    )  # fmt: skip
    output, _ = await psql.communicate()
    return [UUID(line) for line in output.decode().split()]


PLACES: dict[str, Enqueue] = {
    "server": lambda cluster: by_setting(cluster, "alter system"),
    "database": lambda cluster: by_setting(cluster, "alter database postgres"),
    "role": lambda cluster: by_setting(cluster, "alter role tester"),
    "session": lambda cluster: by_sql(cluster, "set synchronous_commit = off"),
    "app": by_app,
    "conn=": by_lent_connection,
    "function": by_function,
    "afterwards": by_lowering_afterwards,
    "psql": by_psql,
}


async def test_nothing_that_was_acknowledged_is_lost_by_a_crash(servers: list[Cluster], deeds: Deeds) -> None:
    """It was 20 of 20, wherever synchronous_commit was off."""
    cluster = await migrated(servers[0])
    lost: dict[str, int] = {}
    for place, enqueue in PLACES.items():
        for _ in range(ROUNDS):
            ids = await enqueue(cluster)
            assert len(ids) == JOBS
            cluster.kill()
            await cluster.start()
            conn = await session(cluster, role=None)
            kept = await conn.fetchval("select count(*) from jobs where id = any ($1)", ids)
            lost[place] = lost.get(place, 0) + JOBS - kept
            if cluster.undo is not None:
                await conn.execute(cluster.undo)
                await conn.execute("select pg_reload_conf()")
                cluster.undo = None
            await conn.close()
    deeds.say(f"{len(PLACES) * ROUNDS} crashes, {JOBS} jobs before each, lost: {lost}")
    assert set(lost.values()) == {0}


async def test_a_settlement_that_was_acknowledged_is_not_lost_by_a_crash(servers: list[Cluster]) -> None:
    cluster = await migrated(servers[0])
    conn = await session(cluster, "set synchronous_commit = off", role="worker")
    await conn.execute("select enqueue('work')")
    claimed = await conn.fetchrow("select job_id, attempt from claim('w1', array['work'])")
    assert claimed is not None
    cluster.kill()
    await cluster.start()
    conn = await session(cluster, "set synchronous_commit = off", role="worker")
    assert await conn.fetchval("select attempt from renew('w1', array[$1::uuid], array[$2::int])", *claimed) == 1
    await conn.fetch("select * from complete('w1', array[$1::uuid], array[$2::int])", *claimed)
    cluster.kill()
    await cluster.start()
    conn = await session(cluster, role=None)
    assert await conn.fetchval("select state from jobs") == "success"
    await conn.close()


#: What repeats an earlier request, and finds that it was done.
REPEATS = {
    "enqueue": "select * from enqueue('work', idempotency_key => 'k')",
    "enqueue by id": "select * from enqueue_plain('work', array['{}']::jsonb[], array[(select id from jobs"
    " where idempotency_key = 'k')])",
    "submit": "select * from submit(array['default'], array['me'], array['work'], array['{}'::jsonb],"
    """ array['{"idempotency_key": "k"}'::jsonb], array[uuid_v7()])""",
    "complete": "select complete('w1', array_agg(job_id), array_agg(attempt)) from job_attempts",
    "release_held": "select release_held(array_agg(id)) from jobs where type = 'held'",
    "request": "select request('cancel', array_agg(id)) from jobs where state = 'success'",
}


async def test_a_repeat_is_acknowledged_only_when_a_standby_has_what_it_repeats(servers: list[Cluster]) -> None:
    """With the standby away it was answered in 0.03 s, and after the failover there was no such job."""
    primary = await migrated(servers[0])
    conn = await session(primary, role=None)
    await conn.execute("select enqueue('held', hold => true)")
    await conn.execute("select release_held(array_agg(id)) from jobs")
    await conn.execute("select enqueue('done')")
    done = "select * from claim('w1', array['done'])"
    await conn.execute(f"select complete('w1', array_agg(job_id), array_agg(attempt)) from ({done}) c")
    await conn.close()
    primary.stop()
    standby = servers[1]
    primary.copy_to(standby)
    await primary.start(synchronous_standby_names="*")
    follow = {"primary_conninfo": f"host={primary.socket_folder} port=5432 user=tester application_name=s1"}
    await standby.start(**follow)
    conn = await session(primary, role=None)
    acknowledged = [await conn.fetchval("select job_id from enqueue('work', idempotency_key => 'before')")]

    standby.kill()
    await cut_off(primary, conn, "select enqueue('work', idempotency_key => 'k')")
    assert await conn.fetchval("select count(*) from jobs where idempotency_key = 'k'") == 1
    for repeat, statement in REPEATS.items():
        assert await waits(primary, statement), repeat
    assert not await waits(primary, "select * from get_jobs(array(select id from jobs))"), "a read is only a read"
    for level in ("off", "local"):
        assert await waits(primary, REPEATS["enqueue"], f"set synchronous_commit = {level}"), level

    await standby.start(**follow)
    for repeat, statement in REPEATS.items():
        assert not await waits(primary, statement, patience=20), repeat
    acknowledged.append(await conn.fetchval("select job_id from enqueue('work', idempotency_key => 'k')"))

    standby.kill()
    await cut_off(primary, conn, "select enqueue('work', idempotency_key => 'lost')")
    assert await waits(primary, "select * from enqueue('work', idempotency_key => 'lost')")
    await conn.close()
    primary.kill()
    await standby.start()
    conn = await session(standby, role=None)
    await conn.execute("select pg_promote()")
    kept = await conn.fetch("select id from jobs where id = any ($1)", acknowledged)
    assert {row["id"] for row in kept} == set(acknowledged)
    again = await conn.fetchrow("select outcome from enqueue('work', idempotency_key => 'lost')")
    assert tuple(again or ()) == ("created",)
    assert await conn.fetch("select * from verify()") == []
    await conn.close()


async def cut_off(cluster: Cluster, conn: asyncpg.Connection, statement: str) -> None:
    """Lose the connection while its commit waits for the standby: the client cannot know what became of it."""
    lost = await session(cluster, role=None)
    pid = lost.get_server_pid()
    asked = asyncio.create_task(lost.execute(statement))

    async def commits() -> bool:
        return bool(await conn.fetchval("select wait_event = 'SyncRep' from pg_stat_activity where pid = $1", pid))

    await until(commits, what="the commit waits for the standby")
    await conn.execute("select pg_terminate_backend($1, 5000)", pid)
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await asked


async def waits(cluster: Cluster, statement: str, *settings: Any, patience: float = 0.7) -> bool:
    """Whether a statement is not answered, because its commit waits for the standby."""
    conn = await session(cluster, *settings, role=None)
    try:
        async with asyncio.timeout(patience):
            await conn.execute(statement)
        return False
    except TimeoutError:
        return True
    finally:
        conn.terminate()
