"""How the storage layout was settled: the same drain, by a bare loop, over the candidates, interleaved.

Each cell enqueues N plain jobs and drains them in batches of 200 with the engine's own functions: types,
tenants, roles, guard and attempts are on, and so are fsync and synchronous_commit (as the server has them).
CPU time and WAL per job are the figures to judge by; jobs per second swing with whatever else the machine does.
`python bench/layout.py [URL] [JOBS] [ROUNDS]` creates and drops its own database, on the embedded server by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from holdfast.config import Config
from holdfast.model.hints import Hints
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.migrate import migrate

BATCH = 200
CLAIM = "select * from claim_jobs('bench', $1, null, $2, $3, $4, $5, $1, null, true)"
CANDIDATES = (
    "side tables, fillfactor 50",
    "side tables, fillfactor 70",
    "side tables, fillfactor 100",
    "one table",
    "side tables, behind an open transaction",
    "one table, behind an open transaction",
    "side tables, jobs with keys",
    "one table, jobs with keys",
)


async def side_tables(conn: asyncpg.Connection, jobs: int, keys: bool = False) -> dict[str, float]:
    """The engine as it is: ready, leases and jobs, driven by a bare loop."""
    for _ in range(0, jobs, 1000):
        options = None
        if keys:
            options = [f'{{"idempotency_key": "{uuid4()}", "correlation_id": "{uuid4()}"}}' for _ in range(1000)]
        await conn.fetch(
            "select job_id from enqueue_many($1, $2::text[]::jsonb[], $3::text[]::jsonb[])",
            ["bench.noop"] * 1000,
            ['{"n": 1}'] * 1000,
            options,
        )
    stream = await conn.fetchval("select id from streams where type = 'bench.noop'")
    seq, rank, done, meter = 0, -1, 0, Meter(conn)
    await meter.begin()
    while done < jobs:
        behind = ([stream] * 2, [-1, rank], [0, seq], [rank, 2**31 - 1])
        ranges = behind if seq else Hints.everything([stream])
        rows = await conn.fetch(CLAIM, BATCH, *ranges)
        ids, attempts = [r["job_id"] for r in rows], [r["attempt"] for r in rows]
        seq, rank = rows[-1]["seq"], rows[-1]["rank"]
        await conn.fetch("select * from complete('bench', $1, $2)", ids, attempts)
        done += len(rows)
    return await meter.end(jobs)


async def single_table(conn: asyncpg.Connection, jobs: int, keys: bool = False) -> dict[str, float]:
    """One table with partial indexes."""
    await conn.execute(
        "insert into single_jobs "
        "(id, seq, stream, state, tenant, type, queue, payload, idempotency_key, correlation_id) "
        "select uuid_v7(), nextval('places'), 1, 'queued', 'default', 'bench.noop', 'default', '{\"n\": 1}', "
        "case when $2 then gen_random_uuid()::text end, case when $2 then gen_random_uuid()::text end "
        "from generate_series(1, $1)",
        jobs,
        keys,
    )
    done, meter = 0, Meter(conn)
    await meter.begin()
    while done < jobs:
        rows = await conn.fetch("select * from single_claim('bench', '{1}', $1)", BATCH)
        await conn.fetch("select * from single_complete('bench', $1, $2)", [r[0] for r in rows], [r[1] for r in rows])
        done += len(rows)
    return await meter.end(jobs)


class Meter:
    """What the drain cost the server: CPU time of the backend (local servers only) and WAL."""

    def __init__(self, conn: asyncpg.Connection) -> None:
        self._conn = conn

    async def begin(self) -> None:
        self._pid = await self._conn.fetchval("select pg_backend_pid()")
        self._wal = await self._conn.fetchval("select pg_current_wal_insert_lsn()")
        self._ticks = self._cpu()
        self._clock = time.perf_counter()

    async def end(self, jobs: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._clock
        ticks = self._cpu() - self._ticks
        wal = await self._conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)", self._wal)
        return {
            "jobs/s": jobs / seconds,
            "server CPU µs/job": ticks / os.sysconf("SC_CLK_TCK") / jobs * 1e6,
            "WAL bytes/job": float(wal) / jobs,
        }

    def _cpu(self) -> int:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


async def measure(url: str, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Jobs per second of every candidate, one round after the other."""
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in CANDIDATES:
            conn, drop = await fresh(url)
            pin = await asyncpg.connect(database_of(url))
            try:
                if "open transaction" in name:
                    await pin.execute("begin isolation level repeatable read")
                    await pin.fetchval("select count(*) from holdfast.jobs")
                if name.startswith("one table"):
                    await conn.execute((Path(__file__).parent / "single_table.sql").read_text())
                    await conn.execute(
                        "create trigger guard before update on single_jobs for each row "
                        "when (old.state = new.state and new.attempt <> old.attempt) execute function refuse_move()"
                    )
                    cell = await single_table(conn, jobs, keys="keys" in name)
                else:
                    if "fillfactor" in name:
                        await conn.execute(f"alter table jobs set (fillfactor = {name.split()[-1]})")
                    cell = await side_tables(conn, jobs, keys="keys" in name)
                    await conn.execute("select pg_stat_force_next_flush()")
                    cell["HOT share"] = await conn.fetchval(
                        "select n_tup_hot_upd::float / n_tup_upd from pg_stat_user_tables where relname = 'jobs'"
                    )
                for measure, value in cell.items():
                    figures.setdefault(f"{name}: {measure}", []).append(value)
            finally:
                await pin.close()
                await conn.close()
                await drop()
    return figures


async def fresh(url: str) -> tuple[asyncpg.Connection, Callable[[], Awaitable[None]]]:
    """A migrated database of our own, and how to drop it."""
    admin = await asyncpg.connect(url)
    await admin.execute("drop database if exists holdfast_layout with (force)")
    await admin.execute("create database holdfast_layout")
    await migrate(Config.load(environment={}, database_url=database_of(url)))
    conn = await asyncpg.connect(database_of(url), server_settings={"search_path": "holdfast", "jit": "off"})

    async def drop() -> None:
        await admin.execute("drop database holdfast_layout with (force)")
        await admin.close()

    return conn, drop


def database_of(url: str) -> str:
    """The URL of our own database on that server."""
    return urlunsplit(urlsplit(url)._replace(path="/holdfast_layout"))


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[2:]]
    jobs, rounds = (numbers + [40_000, 3][len(numbers) :])[:2]
    with tempfile.TemporaryDirectory(prefix="hf") as home, contextlib.ExitStack() as stack:
        url = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(EmbeddedPostgres(Path(home))).url
        result = asyncio.run(measure(url, jobs, rounds))
    for name, values in result.items():
        print(f"{name:45} {statistics.median(values):12.2f}   of {[round(v, 2) for v in values]}")
