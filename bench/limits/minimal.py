"""The same bytes into a table with nothing but a key: one INSERT per commit, and in batches."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import asyncpg
import asyncpg.pool
import psycopg

from bench.tally import stamped

__all__ = [
    "copy_bulk", "create", "insert_bulk", "insert_one", "insert_paced", "insert_tasks", "insert_threads",
]  # fmt: skip

_BATCH = 1000
_POOL = 10
_INSERT = "insert into minimal (payload) values ($1)"
_TABLE = "create table minimal (id bigint generated always as identity primary key, payload jsonb not null)"


async def create(conn: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) -> None:
    """The minimal table."""
    await conn.execute(f"drop table if exists minimal; {_TABLE}")


async def insert_one(url: str, count: int, size: int) -> tuple[float, float]:
    """One row and one commit at a time: how many a second, and the median seconds of one."""
    conn = await asyncpg.connect(url)
    try:
        await create(conn)
        statement = await conn.prepare(_INSERT)
        seconds = []
        began = last = time.monotonic()
        for _ in range(count):
            await statement.fetch(_payload(size))
            now = time.monotonic()
            seconds.append(now - last)
            last = now
        return count / (last - began), statistics.median(seconds)
    finally:
        await conn.close()


async def insert_paced(url: str, count: int, size: int, rate: float) -> list[float]:
    """One row and one commit at even distances, the machine at rest between them: the seconds that each took."""
    conn = await asyncpg.connect(url)
    try:
        await create(conn)
        statement = await conn.prepare(_INSERT)
        seconds, start = [], time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            began = time.monotonic()
            await statement.fetch(_payload(size))
            seconds.append(time.monotonic() - began)
        return seconds
    finally:
        await conn.close()


async def insert_tasks(tasks: int, url: str, count: int, size: int) -> float:
    """One row and one commit per call, from so many tasks over a pool of ten; how many a second."""
    pool = await asyncpg.create_pool(url, min_size=_POOL, max_size=_POOL, reset=_leave_as_is)
    left = iter(range(count))

    async def call() -> None:
        for _ in left:
            await pool.execute(_INSERT, _payload(size))

    try:
        async with pool.acquire() as conn:
            await create(conn)
        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(tasks)))
        return count / (time.monotonic() - began)
    finally:
        await pool.close()


async def insert_threads(threads: int, url: str, count: int, size: int) -> float:
    """The same from so many threads, with psycopg."""
    conn = await asyncpg.connect(url)
    await create(conn)
    await conn.close()
    return await asyncio.to_thread(_insert_threads, threads, url, count, size)


def _insert_threads(threads: int, url: str, count: int, size: int) -> float:
    free: SimpleQueue[psycopg.Connection] = SimpleQueue()
    connections = [psycopg.connect(url, autocommit=True, prepare_threshold=0) for _ in range(min(_POOL, threads))]
    for conn in connections:
        free.put(conn)
    left = iter(range(count))

    def call(_number: int) -> None:
        for _ in left:
            conn = free.get()
            conn.execute("insert into minimal (payload) values (%s)", (_payload(size),))
            free.put(conn)

    with ThreadPoolExecutor(threads) as pool:
        began = time.monotonic()
        list(pool.map(call, range(threads)))
        seconds = time.monotonic() - began
    for conn in connections:
        conn.close()
    return count / seconds


async def _leave_as_is(conn: asyncpg.Connection) -> None:
    """In place of the queries by which a pool resets a connection, which would cost each call a round trip."""


async def insert_bulk(url: str, count: int, size: int) -> float:
    """By unnest, a thousand rows at a time; how many a second."""

    async def batch(conn: asyncpg.Connection, payloads: list[str]) -> None:
        await conn.execute("insert into minimal (payload) select unnest($1::text[])::jsonb", payloads)

    return await _batches(url, count, size, batch)


async def copy_bulk(url: str, count: int, size: int) -> float:
    """By COPY, a thousand rows at a time; how many a second."""

    async def batch(conn: asyncpg.Connection, payloads: list[str]) -> None:
        await conn.copy_records_to_table("minimal", records=[(p,) for p in payloads], columns=["payload"])

    return await _batches(url, count, size, batch)


async def _batches(
    url: str, count: int, size: int, batch: Callable[[asyncpg.Connection, list[str]], Awaitable[None]]
) -> float:
    conn = await asyncpg.connect(url)
    try:
        await create(conn)
        batches = [[_payload(size) for _ in range(min(_BATCH, count - start))] for start in range(0, count, _BATCH)]
        began = time.monotonic()
        for payloads in batches:
            await batch(conn, payloads)
        return count / (time.monotonic() - began)
    finally:
        await conn.close()


def _payload(size: int) -> str:
    return json.dumps({"text": stamped(size)})
