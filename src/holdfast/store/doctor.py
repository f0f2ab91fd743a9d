"""What `doctor` reads: the state of the server and the schema, over one connection that assumes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from holdfast.config import Config
from holdfast.store.database import connect
from holdfast.store.faults import CONNECTION_FAULTS, translated
from holdfast.store.migrate import ROLES, missing_rights
from holdfast.store.servers import retire
from holdfast.store.statements import queries

__all__ = ["Examination", "examination"]


@asynccontextmanager
async def examination(config: Config, *, role: str | None = None) -> AsyncIterator[Examination]:
    """A connection for examinations; `role` as in `Database`."""
    conn = await connect(config, role=role, name="holdfast doctor", direct=role is not None)
    try:
        yield Examination(conn, config)
    finally:
        await retire(conn)


class Examination:
    """Named reads, each a list of plain records."""

    def __init__(self, conn: asyncpg.Connection, config: Config) -> None:
        self._conn, self._config = conn, config
        self._sql = queries(config.schema)

    async def server(self) -> dict[str, Any]:
        """Version, durability, clock, login; `skew` is how far this host's clock is ahead, in seconds."""
        before = time.time()
        (found,) = await self._rows("doctor_server")
        return found | {"skew": (before + time.time()) / 2 - found["clock"].timestamp()}

    async def overruled(self) -> list[dict[str, Any]]:
        """Settings that make commits less durable than Holdfast expects: name, value, origin."""
        return await self._rows("overruled_settings")

    async def log(self) -> list[str]:
        """Settings by which the server writes the values of statements to its log."""
        return [row["setting"] for row in await self._rows("doctor_log")]

    async def collation(self) -> dict[str, Any]:
        """The version of the collation with which indexes were built, and that of the server now."""
        (found,) = await self._rows("doctor_collation")
        return found

    async def guards(self) -> list[str]:
        """Triggers of the engine that are disabled or missing."""
        return [row["fault"] for row in await self._rows("doctor_guards", self._config.schema)]

    async def roles(self) -> list[dict[str, Any]]:
        """The engine's roles: name, exists, member."""
        return await self._rows("roles", [f"{self._config.schema}_{role}" for role in ROLES])

    async def rights(self) -> tuple[str, ...]:
        """Rights that the engine's roles lack, in words."""
        try:
            return await missing_rights(self._conn, self._config)
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            raise translated(fault) from fault

    async def names(self) -> dict[str, Any]:
        """Whether bare names lead this login to the engine's tables, and tables of others among the engine's."""
        (found,) = await self._rows("doctor_names", self._config.schema)
        return found

    async def old_snapshots(self, seconds: float) -> list[dict[str, Any]]:
        """Sessions and transactions that have kept dead rows from being vacuumed for longer than this."""
        return await self._rows("doctor_old_snapshots", seconds)

    async def dead_rows(self) -> list[dict[str, Any]]:
        """Live and dead rows of the busy tables."""
        return await self._rows("doctor_dead_rows", self._config.schema)

    async def work(self, silent_seconds: float) -> dict[str, Any]:
        """Ready jobs, live workers, whether maintenance has a leader, and what is overdue."""
        (found,) = await self._rows("doctor_work", silent_seconds)
        return found

    async def unhandled(self, silent_seconds: float) -> list[dict[str, Any]]:
        """Types and queues with ready jobs that no live worker serves."""
        return await self._rows("doctor_unhandled", silent_seconds)

    async def blocked(self, most_targets: int) -> list[dict[str, Any]]:
        """Some of the blocked targets among the first `most_targets`, each with the `count` of all of them."""
        return await self._rows("doctor_blocked", most_targets)

    async def letters(self) -> dict[str, Any]:
        """How many dead letters nobody has acknowledged, and when the oldest of them was written."""
        (found,) = await self._rows("doctor_letters")
        return found

    async def held(self, most_jobs: int) -> dict[str, Any]:
        """How many jobs are held in `error`, and since when the oldest is, among the first `most_jobs` that fail."""
        (found,) = await self._rows("doctor_held", most_jobs)
        return found

    async def schedules(self) -> list[dict[str, Any]]:
        """Some of the schedules that do not fire as they should, each with the `count` of all of them."""
        return await self._rows("doctor_schedules")

    async def pauses(self) -> list[dict[str, Any]]:
        """Some of what is paused, each with the `count` of all of them."""
        return await self._rows("doctor_pauses")

    async def repairs(self) -> list[dict[str, Any]]:
        """Repairs so far, by kind."""
        return await self._rows("doctor_repairs")

    async def testing_clock(self) -> bool:
        """Whether the testing kit created this schema."""
        (found,) = await self._rows("testing_clock", self._config.schema)
        return bool(found["present"])

    async def notify_seconds(self, patience: float) -> float | None:
        """How long a notification to this process takes; None if it does not arrive."""
        heard = asyncio.Event()
        channel = f"{self._config.schema}.doctor"
        try:
            async with asyncio.timeout(patience):
                await self._conn.add_listener(channel, lambda *_: heard.set())
            began = time.monotonic()
            await self._rows("doctor_notify", channel, "")
            async with asyncio.timeout(patience):
                await heard.wait()
        except TimeoutError:
            return None
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            raise translated(fault) from fault
        return time.monotonic() - began

    async def _rows(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        try:
            return [dict(row) for row in await self._conn.fetch(self._sql[statement], *arguments, timeout=30)]
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            raise translated(fault) from fault
