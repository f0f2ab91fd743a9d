"""Leases taken from a living worker, as if it had been silent."""

from __future__ import annotations

import asyncpg

from tests.harness.waiting import until

__all__ = ["lapse"]


async def lapse(conn: asyncpg.Connection, leases: int = 1) -> None:
    """Sweep all leases, this many at once. The engine refuses while the server has been up for less than a lease."""

    async def swept() -> bool:
        async with conn.transaction():
            await conn.execute("update leases set expires_at = now() - interval '1 minute'")
            count: int = await conn.fetchval("select count(*) from sweep(1e9)")
            return count == leases

    await until(swept, what="the leases are swept")
