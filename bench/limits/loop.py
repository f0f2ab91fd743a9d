"""The same SQL functions that Holdfast calls, driven by a bare asyncpg loop: one connection, nothing else."""

from __future__ import annotations

import json
import time

import asyncpg

from bench.tally import stamped
from holdfast.model.hints import Hints

__all__ = ["BATCH", "CLAIM", "drain", "enqueue_bulk", "enqueue_one"]

BATCH = 200
#: The statement of a worker that claims only for free slots.
CLAIM = "select * from claim_jobs('bench', $1, null, $2, $3, $4, $5, $1, null, true)"
_BULK = 1000
_TYPE = "bench.noop"
_ENQUEUE = "select job_id from enqueue_many($1, $2::text[]::jsonb[])"


async def enqueue_one(url: str, count: int, size: int) -> float:
    """One after the other; how many a second."""
    conn = await _connect(url)
    try:
        began = time.monotonic()
        for _ in range(count):
            await conn.fetch(_ENQUEUE, [_TYPE], [_payload(size)])
        return count / (time.monotonic() - began)
    finally:
        await conn.close()


async def enqueue_bulk(url: str, count: int, size: int) -> float:
    """A thousand at a time; how many a second."""
    conn = await _connect(url)
    try:
        batches = [[_payload(size) for _ in range(min(_BULK, count - start))] for start in range(0, count, _BULK)]
        began = time.monotonic()
        for payloads in batches:
            await conn.fetch(_ENQUEUE, [_TYPE] * len(payloads), payloads)
        return count / (time.monotonic() - began)
    finally:
        await conn.close()


async def drain(url: str, count: int) -> float:
    """Claim and complete until so many are done; how many a second."""
    conn = await _connect(url)
    try:
        stream = await conn.fetchval("select id from streams where type = $1", _TYPE)
        seq, rank, done = 0, -1, 0
        began = time.monotonic()
        while done < count:
            behind = ([stream] * 2, [-1, rank], [0, seq], [rank, 2**31 - 1])
            ranges = behind if seq else Hints.everything([stream])
            rows = await conn.fetch(CLAIM, BATCH, *ranges)
            if not rows:
                raise RuntimeError(f"nothing left to claim after {done} of {count}")
            ids, attempts = [row["job_id"] for row in rows], [row["attempt"] for row in rows]
            seq, rank = rows[-1]["seq"], rows[-1]["rank"]
            await conn.fetch("select * from complete('bench', $1, $2)", ids, attempts)
            done += len(rows)
        return done / (time.monotonic() - began)
    finally:
        await conn.close()


def _payload(size: int) -> str:
    return json.dumps({"text": stamped(size)})


async def _connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings={"search_path": "holdfast", "jit": "off"})
