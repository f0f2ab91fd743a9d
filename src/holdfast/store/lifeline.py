"""A worker's connection for statements that must not wait: renewals, heartbeats and notifications.

It is a single connection outside the pool, past any pooler, used from only one event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from holdfast.config import Config
from holdfast.store.database import connect
from holdfast.store.faults import CONNECTION_FAULTS, translated
from holdfast.store.servers import retire
from holdfast.store.statements import queries

__all__ = ["BeatAnswer", "Lifeline"]

#: How long a statement may take, and how long it may wait for a lock: renewals wait behind a heartbeat that waits.
_STATEMENT_SECONDS, _LOCK_SECONDS = 10.0, 2.0


class BeatAnswer(NamedTuple):
    """What the database answers to a heartbeat.

    `known`: it has a row for the worker. `settings`: those that it has values for. `quiet`: the worker is to
    claim no more. `stopped`: who stopped claims everywhere, in words.
    """

    known: bool
    settings: dict[str, str]
    quiet: bool
    stopped: str | None


class Lifeline:
    """Renew, beat and listen on one connection."""

    def __init__(self, conn: asyncpg.Connection, config: Config, worker: str | None) -> None:
        self._conn, self._worker = conn, worker
        self._sql = queries(config.schema)
        self._schema = config.schema

    @classmethod
    async def open(cls, config: Config, worker: str | None = None, *, role: str = "worker") -> Lifeline:
        """Connect. Raises DatabaseUnavailable if that fails."""
        conn = await connect(
            config,
            role=role,
            name="holdfast lifeline",
            direct=True,
            seconds=_STATEMENT_SECONDS,
            lock_seconds=_LOCK_SECONDS,
        )
        return cls(conn, config, worker)

    async def listen(self, topics: Sequence[str], heard: Callable[[str, str], None]) -> None:
        """Call `heard(topic, payload)` for every notification."""
        for topic in topics:

            def callback(_conn: object, _pid: int, channel: str, payload: object) -> None:
                heard(channel.rpartition(".")[2], str(payload))

            try:
                await self._conn.add_listener(f"{self._schema}.{topic}", callback)
            except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
                raise translated(fault) from fault

    @property
    def closed(self) -> bool:
        """Whether the connection has gone."""
        return self._conn.is_closed()

    def when_cut(self, callback: Callable[[], None]) -> None:
        """Call back as soon as the connection has gone."""
        self._conn.add_termination_listener(lambda _conn: callback())

    async def cut(self) -> None:
        """Wait until the connection has gone."""
        gone = asyncio.Event()
        self.when_cut(gone.set)
        if not self._conn.is_closed():
            await gone.wait()

    async def renew(
        self, job_ids: Sequence[UUID], attempts: Sequence[int]
    ) -> dict[tuple[UUID, int], tuple[float, str | None]]:
        """Prolong leases. Returns remaining seconds and an interrupt, for each lease that the worker still has."""
        rows = await self._rows("renew", self._worker, list(job_ids), list(attempts))
        return {(row[0], row[1]): (row[2], row[3]) for row in rows}

    async def interrupted(self, job_ids: Sequence[UUID], attempts: Sequence[int]) -> dict[tuple[UUID, int], str]:
        """Which of these attempts somebody wants to interrupt."""
        rows = await self._rows("interrupted", self._worker, list(job_ids), list(attempts))
        return {(row[0], row[1]): row[2] for row in rows}

    async def beat(self, *, draining: bool, used: Mapping[str, int]) -> BeatAnswer:
        """Record that the worker lives, and its used slots per lane."""
        ((known, settings, quiet, stopped),) = await self._rows("beat", self._worker, draining, json.dumps(used))
        return BeatAnswer(known is True, dict(json.loads(settings)), quiet, stopped)

    async def close(self) -> None:
        """Close, without waiting long."""
        await retire(self._conn)

    async def _rows(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        try:
            return await self._conn.fetch(self._sql[statement], *arguments, timeout=_STATEMENT_SECONDS)
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            raise translated(fault) from fault
