"""pgbench with a minimal claim + complete on a minimal table: no types, no attempts, no history, no client.

One at a time, the row is locked and deleted in one statement: claim and completion are the same commit, which
is less than any job system can do, since a handler has to run between them. In batches they are two, as they
must be. The number of clients is the best of 1, 2, 4 and 8, tried once per kind.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path

import asyncpg

from bench.limits import minimal
from bench.runner import RunnerError
from bench.servers import program
from bench.tally import stamped

__all__ = ["best_clients", "drain"]

_ONE = """\
delete from minimal where id = (select id from minimal order by id limit 1 for update skip locked) returning payload;
"""
_BATCH = """\
with picked as materialized (
  select id from minimal where not claimed order by id limit {batch} for update skip locked
), begun as (
  update minimal m set claimed = true from picked where m.id = picked.id returning m.id, m.payload
)
select coalesce(array_agg(id), '{{}}')::text as ids, count(payload) as jobs from begun \\gset
delete from minimal where id = any (:ids::bigint[]);
"""
#: What pgbench may reach in a second, so that its table lasts.
_MOST = {1: 10_000, 100: 40_000, 4000: 15_000}


async def best_clients(url: str, size: int, batch: int) -> int:
    """The number of clients with the highest rate, each tried for a second."""
    rates = {clients: await drain(url, size, batch, clients, 1) for clients in (1, 2, 4, 8)}
    return max(rates, key=lambda clients: rates[clients])


async def drain(url: str, size: int, batch: int, clients: int, seconds: float) -> float:
    """Jobs per second over some seconds, from a table that does not run empty."""
    rows = int(_MOST[1 if batch == 1 else size] * max(1, seconds))
    while True:
        await _fill(url, rows, size)
        seconds_each, done = await _run(url, batch, clients, seconds, rows)
        left = await _left(url)
        if left:
            return (rows - left) / (seconds_each * done)
        rows *= 3


async def _run(url: str, batch: int, clients: int, seconds: float, rows: int) -> tuple[float, int]:
    """Seconds per transaction, over all clients, and how many there were."""
    binary = program("pgbench")
    if binary is None:
        raise RunnerError("pgbench is not installed")
    # Batches are counted out: an empty table would be drained at great speed.
    transactions = max(1, rows * 9 // 10 // batch // clients)
    length = f"--time={max(1, round(seconds))}" if batch == 1 else f"--transactions={transactions}"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = Path(folder) / "script.sql"
        file.write_text(_ONE if batch == 1 else _BATCH.format(batch=batch))
        process = await asyncio.create_subprocess_exec(
            *(str(binary), "--no-vacuum", "--protocol=prepared", f"--file={file}"),
            *(f"--client={clients}", f"--jobs={min(clients, 2)}", length, url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, complaint = await process.communicate()
    tps = re.search(r"tps = ([\d.]+)", printed.decode())
    done = re.search(r"actually processed: (\d+)", printed.decode())
    if process.returncode or tps is None or done is None:
        raise RunnerError(f"pgbench failed: {complaint.decode().strip()[-300:]}")
    return 1 / float(tps[1]), int(done[1])


async def _fill(url: str, rows: int, size: int) -> None:
    conn = await asyncpg.connect(url)
    try:
        await minimal.create(conn)
        await conn.execute("alter table minimal add column claimed boolean not null default false")
        await conn.execute(
            "insert into minimal (payload) select jsonb_build_object('text', $2::text) from generate_series(1, $1)",
            rows,
            stamped(size),
        )
        await conn.execute("analyze minimal")
    finally:
        await conn.close()


async def _left(url: str) -> int:
    conn = await asyncpg.connect(url)
    try:
        return int(await conn.fetchval("select count(*) from minimal"))
    finally:
        await conn.close()
