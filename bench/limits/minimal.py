"""The same bytes into a table with nothing but a key: one INSERT per commit, and in batches."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

import asyncpg

from bench.tally import stamped

__all__ = ["copy_bulk", "create", "insert_bulk", "insert_one", "insert_paced"]

_BATCH = 1000
_TABLE = "create table minimal (id bigint generated always as identity primary key, payload jsonb not null)"


async def create(conn: asyncpg.Connection) -> None:
    """The minimal table."""
    await conn.execute(f"drop table if exists minimal; {_TABLE}")


async def insert_one(url: str, count: int, size: int) -> tuple[float, float]:
    """One row and one commit at a time: how many a second, and the median seconds of one."""
    conn = await asyncpg.connect(url)
    try:
        await create(conn)
        statement = await conn.prepare("insert into minimal (payload) values ($1)")
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
        statement = await conn.prepare("insert into minimal (payload) values ($1)")
        seconds, start = [], time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            began = time.monotonic()
            await statement.fetch(_payload(size))
            seconds.append(time.monotonic() - began)
        return seconds
    finally:
        await conn.close()


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
