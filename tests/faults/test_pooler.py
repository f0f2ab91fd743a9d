"""Behind PgBouncer in transaction mode, and on a server that is set up against us: nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from holdfast import Config, Context, Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore
from tests.faults.clusters import Cluster, clusters
from tests.faults.test_durability import migrated
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until

BOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path(BOUNCER).exists(), reason="PgBouncer is not installed"),
]

HOSTILE = {"default_transaction_isolation": "'serializable'", "synchronous_commit": "off", "lock_timeout": "0"}


@pytest.fixture
def server() -> Iterator[Cluster]:
    with clusters(1) as (made,):
        yield made


@pytest.fixture
async def pooled(server: Cluster) -> AsyncIterator[Config]:
    """How to connect through the pooler, and past it."""
    await migrated(server)
    conn = await asyncpg.connect(server.url)
    for name, value in HOSTILE.items():
        await conn.execute(f"alter database postgres set {name} = {value}")
    await conn.close()
    folder = server.socket_folder
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\npostgres = host={folder} port=5432 user=tester\n[pgbouncer]\nlisten_port = 6432\n"
        f"unix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    (folder / "pgbouncer.ini").chmod(0o644)
    process = server.start_beside([BOUNCER, "-q", str(folder / "pgbouncer.ini")])
    url = server.url.replace("port=5432", "port=6432")
    try:
        await until(lambda: answers(url), what="the pooler takes connections")
        yield Config.load(environment={}, database_url=url, direct_url=server.url)
    finally:
        process.terminate()
        process.wait(10)


async def answers(url: str) -> bool:
    try:
        conn = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
    except (OSError, asyncpg.PostgresError):
        return False
    await conn.close()
    return True


async def test_all_kinds_of_work_run_through_a_pooler(
    pooled: Config, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many at once, so that statements change places in the pooler, and snapshots meet each other."""
    monkeypatch.setenv("HOLDFAST_DIRECT_URL", str(pooled.direct_url))
    async with Holdfast(pooled.database_url) as hf:

        @hf.job("work")
        async def work(_ctx: Context, number: int) -> int:
            return number

        @hf.job("write")
        async def write(ctx: Context) -> None:
            async with ctx.transaction() as mine:
                assert await mine.fetchval("show transaction_isolation") == "read committed"

        async with working(hf, poll_interval=0.2):
            keyed = [
                hf.enqueue("work", {"number": n % 40}, idempotency_key=f"k{n % 40}", target=f"t{n % 3}")
                for n in range(80)
            ]
            refs = await asyncio.gather(*keyed, *(hf.enqueue("write") for _ in range(10)))
            refs += await hf.enqueue_many([("work", {"number": n}) for n in range(100)])
            jobs = {ref.id for ref in refs}
            assert len(jobs) == 40 + 10 + 100
            for job in jobs:
                await reached(hf, job, "success")
    conn = await asyncpg.connect(server.url)
    assert await conn.fetch("select * from holdfast.verify()") == []
    assert await conn.fetchval("select max(attempt) from holdfast.job_attempts") == 1
    await conn.close()


async def test_a_statement_that_is_given_up_ends_in_the_server(pooled: Config, server: Cluster) -> None:
    """Closing the connection to the pooler would leave it there, waiting for its lock."""
    conn = await asyncpg.connect(server.url)
    database = Database(pooled, role=None, seconds=1.0)
    await database.open()
    async with conn.transaction():
        await conn.execute("lock table holdfast.jobs")
        with pytest.raises(DatabaseUnavailable):
            await JobStore(database).enqueue_alike("work", ["{}"], queue=None)
        await until(lambda: nobody_waits(conn), seconds=5, what="the statement has ended")
    await JobStore(database).enqueue_alike("work", ["{}"], queue=None)
    await database.close()
    assert await conn.fetchval("select count(*) from holdfast.jobs") == 1
    await conn.close()


async def nobody_waits(conn: asyncpg.Connection) -> bool:
    return not await conn.fetchval("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
