"""Schedules on a database whose clock stands still until it is moved, and leaders that work when they are told to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import asyncpg

from holdfast.config import Config
from holdfast.definitions.schedule import schedule_definition
from holdfast.maintenance.duties.schedules import FireSchedules
from holdfast.maintenance.patience import LeaseJudge
from holdfast.store.database import Database
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.bus import Bus

__all__ = ["Clockwork", "at", "clockwork"]


def at(text: str) -> datetime:
    """A moment in UTC: `2026-03-29 01:30`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Clockwork:
    """The database, its clock, and a leader."""

    def __init__(self, config: Config, database: Database, conn: asyncpg.Connection) -> None:
        self.config, self.database, self.conn = config, database, conn
        self.store = MaintenanceStore(database)
        self.bus = Bus()
        self.duty = self.leader()

    def leader(self) -> FireSchedules:
        """Another leader, who knows nothing yet."""
        return FireSchedules(self.bus, cast("LeaseJudge", None))

    async def set(self, moment: datetime) -> None:
        """Stop the clock at this moment."""
        await self.conn.execute("update testing_clock set frozen_at = $1", moment)

    async def put(self, name: str, **definition: Any) -> int:
        """Make or change an operator's schedule; its id."""
        definition = {"job": "report", **definition}
        written = schedule_definition(name, **definition)
        await self.conn.execute(
            "select put_schedule($1::text::jsonb, $2, true, 'tester')", json.dumps(written), written["tenant"]
        )
        return int(await self.conn.fetchval("select id from schedules where name = $1", name))

    async def declare(self, worker: str, *definitions: dict[str, Any]) -> list[asyncpg.Record]:
        """What a worker declares."""
        return list(
            await self.conn.fetch(
                "select * from declare_schedules($1, $2::text::jsonb)", worker, json.dumps(definitions)
            )
        )

    async def worker(self, worker: str, *, started_at: datetime | None = None) -> None:
        """Let a worker live."""
        await self.conn.execute("select register_worker($1, 'host', 1, '1', '{}', '{}', null)", worker)
        await self.conn.execute(
            "update workers set started_at = coalesce($2, started_at) where id = $1", worker, started_at
        )

    async def work(self, duty: FireSchedules | None = None) -> float:
        """Let the leader do all that is due; when it wants to look again."""
        duty = duty or self.duty
        while True:
            following = await duty.work(self.store)
            if not following.more:
                return following.seconds

    async def fires(self, schedule_id: int) -> list[tuple[datetime, str]]:
        """What became of fire times, in order."""
        rows = await self.conn.fetch(
            "select fire_at, outcome from schedule_fires where schedule_id = $1 order by fire_at", schedule_id
        )
        return [(row["fire_at"], row["outcome"]) for row in rows]

    async def schedule(self, schedule_id: int) -> asyncpg.Record:
        """The row of a schedule."""
        return await self.row("select * from schedules where id = $1", schedule_id)

    async def row(self, query: str, *arguments: Any) -> asyncpg.Record:
        """The row of a query that has one."""
        row = await self.conn.fetchrow(query, *arguments)
        assert row is not None
        return row

    async def jobs(self) -> int:
        """How many jobs there are."""
        return int(await self.conn.fetchval("select count(*) from jobs where created_by like 'schedule:%'"))

    async def end_jobs(self) -> None:
        """End all jobs, by a legal move."""
        await self.conn.execute("update jobs set state = 'canceled' where state not in ('success', 'dead', 'canceled')")


@asynccontextmanager
async def clockwork(config: Config) -> AsyncIterator[Clockwork]:
    """All of it, over a database whose time can be moved."""
    database = Database(config, role="worker", size=2)
    await database.open()
    settings = {"search_path": "holdfast, pg_catalog", "jit": "off"}
    conn = await asyncpg.connect(config.database_url, server_settings=settings)
    try:
        yield Clockwork(config, database, conn)
    finally:
        await conn.close()
        await database.close()
