"""How the storage layout was settled: the same drain, by a bare loop, over the candidates, interleaved.

Each cell enqueues N plain jobs and drains them in batches of 200 with the engine's own functions: types,
tenants, roles, guard and attempts are on, and so are fsync and synchronous_commit (as the server has them).
`python bench/layout.py URL [JOBS] [ROUNDS]` creates and drops its own database.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from holdfast.config import Config
from holdfast.model.hints import Hints
from holdfast.store.migrate import migrate

BATCH = 200
CANDIDATES = (
    "side tables, fillfactor 50",
    "side tables, fillfactor 70",
    "side tables, fillfactor 100",
    "one table",
)


async def side_tables(conn: asyncpg.Connection, jobs: int, hints: bool = True) -> float:
    """The engine as it is: ready, leases and jobs, driven by a bare loop."""
    for _ in range(0, jobs, 1000):
        await conn.fetch(
            "select job_id from enqueue_many($1, $2::text[]::jsonb[])", ["bench.noop"] * 1000, ['{"n": 1}'] * 1000
        )
    stream = await conn.fetchval("select id from streams where type = 'bench.noop'")
    seq, rank, done, began = 0, -1, 0, time.perf_counter()
    while done < jobs:
        if hints and seq:
            ranges = ([stream] * 2, [-1, rank], [0, seq], [rank, 2**31 - 1])
        else:
            ranges = Hints.everything([stream])
        rows = await conn.fetch("select * from claim_from('bench', $1, null, $2, $3, $4, $5)", BATCH, *ranges)
        ids, attempts = [r["job_id"] for r in rows], [r["attempt"] for r in rows]
        seq, rank = rows[-1]["seq"], rows[-1]["rank"]
        await conn.fetch("select * from complete('bench', $1, $2)", ids, attempts)
        done += len(rows)
    return jobs / (time.perf_counter() - began)


async def single_table(conn: asyncpg.Connection, jobs: int) -> float:
    """One table with partial indexes."""
    await conn.execute(
        "insert into single_jobs (id, seq, stream, state, tenant, type, queue, payload) "
        "select uuid_v7(), nextval('places'), 1, 'queued', 'default', 'bench.noop', 'default', '{\"n\": 1}' "
        "from generate_series(1, $1)",
        jobs,
    )
    done, began = 0, time.perf_counter()
    while done < jobs:
        rows = await conn.fetch("select * from single_claim('bench', '{1}', $1)", BATCH)
        await conn.fetch("select * from single_complete('bench', $1, $2)", [r[0] for r in rows], [r[1] for r in rows])
        done += len(rows)
    return jobs / (time.perf_counter() - began)


async def measure(url: str, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Jobs per second of every candidate, one round after the other."""
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in CANDIDATES:
            conn, drop = await fresh(url)
            try:
                if name == "one table":
                    await conn.execute((Path(__file__).parent / "single_table.sql").read_text())
                    await conn.execute(
                        "create trigger guard before update on single_jobs for each row "
                        "when (old.state = new.state and new.attempt <> old.attempt) execute function refuse_move()"
                    )
                    speed = await single_table(conn, jobs)
                else:
                    await conn.execute(f"alter table jobs set (fillfactor = {name.split()[-1]})")
                    speed = await side_tables(conn, jobs)
                    await conn.execute("select pg_stat_force_next_flush()")
                    share = await conn.fetchval(
                        "select n_tup_hot_upd::float / n_tup_upd from pg_stat_user_tables where relname = 'jobs'"
                    )
                    figures.setdefault(f"{name}: HOT share", []).append(share)
                figures.setdefault(name, []).append(speed)
            finally:
                await conn.close()
                await drop()
    return figures


async def fresh(url: str) -> tuple[asyncpg.Connection, Callable[[], Awaitable[None]]]:
    """A migrated database of our own, and how to drop it."""
    admin = await asyncpg.connect(url)
    await admin.execute("drop database if exists holdfast_layout with (force)")
    await admin.execute("create database holdfast_layout")
    parts = urlsplit(url)
    own = urlunsplit(parts._replace(path="/holdfast_layout"))
    await migrate(Config.load(environment={}, database_url=own))
    conn = await asyncpg.connect(own, server_settings={"search_path": "holdfast", "jit": "off"})

    async def drop() -> None:
        await admin.execute("drop database holdfast_layout with (force)")
        await admin.close()

    return conn, drop


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[2:]]
    jobs, rounds = (numbers + [40_000, 3][len(numbers) :])[:2]
    result = asyncio.run(measure(sys.argv[1], jobs, rounds))
    print(json.dumps({k: {"median": statistics.median(v), "all": v} for k, v in result.items()}, indent=2))
