"""What a claim visits, exactly: buffers and rows per claimed job, where noise drowns the times.

A few batches of jobs are claimed and completed by the engine's functions, on one connection, in the database
as it is; whatever the state of the machine, these numbers do not change.
"""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from bench.limits import loop
from bench.results import Figures
from holdfast.model.hints import Hints

__all__ = ["visits"]

_CLAIMS, _JOBS = 5, 100


async def visits(url: str) -> Figures:
    """`claim_buffers` and `claim_rows` per job, of claims that look at everything."""
    await loop.enqueue_bulk(url, _CLAIMS * _JOBS, 100)
    conn = await asyncpg.connect(url, server_settings={"search_path": "holdfast", "jit": "off"})
    try:
        stream = await conn.fetchval("select id from streams where type = 'bench.noop'")
        buffers = rows = 0
        for _ in range(_CLAIMS):
            async with conn.transaction():
                before = await _rows(conn)
                printed = await conn.fetchval(
                    f"explain (analyze, buffers, format json) {loop.CLAIM}",
                    _JOBS,
                    *Hints.everything([stream]),
                )
                rows += await _rows(conn) - before
            plan: dict[str, Any] = json.loads(printed)[0]["Plan"]
            buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            await _complete(conn)
        return {"claim_buffers": buffers / (_CLAIMS * _JOBS), "claim_rows": rows / (_CLAIMS * _JOBS)}
    finally:
        await conn.close()


async def _rows(conn: asyncpg.Connection) -> int:
    return int(
        await conn.fetchval(
            "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint "
            "from pg_stat_xact_user_tables where schemaname = 'holdfast'"
        )
    )


async def _complete(conn: asyncpg.Connection) -> None:
    held = await conn.fetch("select job_id, attempt from leases where worker = 'bench'")
    await conn.fetch(
        "select * from complete('bench', $1, $2)", [row["job_id"] for row in held], [row["attempt"] for row in held]
    )
