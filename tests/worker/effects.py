"""A table of the app's own, and what handlers have written to it."""

from __future__ import annotations

import asyncpg

from holdfast import JobRef, RetryPolicy

__all__ = ["INSERT", "ONCE", "written"]

INSERT = "insert into public.effects (job_id) values ($1)"
ONCE = RetryPolicy(max_attempts=1)


async def written(conn: asyncpg.Connection, job: JobRef) -> int:
    """How often a job has written."""
    found: int = await conn.fetchval("select count(*) from public.effects where job_id = $1", job.id)
    return found
