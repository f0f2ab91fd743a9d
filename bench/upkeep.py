"""What autovacuum would do before long, done at once, so that no run depends on when it comes by."""

from __future__ import annotations

import asyncpg

__all__ = ["analyze"]


async def analyze(url: str, *, vacuum: bool = False) -> None:
    """Let the planner know what is there; `vacuum` is for what was there long ago."""
    conn = await asyncpg.connect(url)
    try:
        await conn.execute("vacuum (analyze)" if vacuum else "analyze")
    finally:
        await conn.close()
