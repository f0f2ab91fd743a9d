"""What the service itself knows of its targets, in a table of its own beside Holdfast's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import asyncpg
from pydantic import BaseModel, Field

__all__ = ["Target", "Targets", "opened"]

_TABLE = """
select pg_advisory_xact_lock(hashtext('examples.targets'));  -- processes that start together take turns
create table if not exists targets (
    tenant text, name text, tokens int not null, seconds_per_call float8 not null, primary key (tenant, name)
)
"""


class Target(BaseModel):
    """The tokens that are left for a target's runs, and how long its API takes for a call."""

    tokens: Annotated[int, Field(le=10**9)] = 1000
    seconds_per_call: Annotated[float, Field(ge=0, le=3600)] = 0.5


class Targets:
    """The table. Every tenant has its own."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def put(self, tenant: str, name: str, target: Target) -> None:
        """Make a target, or change it."""
        await self._pool.execute(
            "insert into targets values ($1, $2, $3, $4) on conflict (tenant, name)"
            " do update set tokens = excluded.tokens, seconds_per_call = excluded.seconds_per_call",
            *(tenant, name, target.tokens, target.seconds_per_call),
        )

    async def get(self, tenant: str, name: str) -> Target | None:
        """The target, if there is one."""
        row = await self._pool.fetchrow(
            "select tokens, seconds_per_call from targets where tenant = $1 and name = $2", tenant, name
        )
        return None if row is None else Target(**row)

    async def pay(self, tenant: str, name: str, tokens: int) -> int:
        """Take tokens away, and tell what is left; less than nothing means that they did not suffice."""
        return int(
            await self._pool.fetchval(
                "update targets set tokens = tokens - $3 where tenant = $1 and name = $2 returning tokens",
                *(tenant, name, tokens),
            )
        )


@asynccontextmanager
async def opened(url: str | None) -> AsyncIterator[Targets]:
    """The table, made if need be."""
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        await pool.execute(_TABLE)
        yield Targets(pool)
