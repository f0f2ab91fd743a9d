"""What the testing kit does with its own databases: move the clock, claim by hand, let a lease lapse, empty them.

Only databases that the kit created (see holdfast.store.kit_databases) support these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.config import Config
from holdfast.lifecycle.portal import Portal
from holdfast.store.database import Database
from holdfast.store.statements import kit_queries

__all__ = ["ClaimedByHand", "KitDatabase", "KitStore"]


class KitDatabase(Database):
    """A database whose connections live in a portal, for callers in any event loop."""

    def __init__(self, config: Config, portal: Portal, *, role: str, size: int) -> None:
        super().__init__(config, role=role, size=size)
        self._portal = portal
        self._sql = {**self._sql, **kit_queries(config.schema)}

    async def _run(self, method: str, statement: str, arguments: Sequence[Any], seconds: float | None) -> Any:
        call = super()._run(method, statement, arguments, seconds)
        if asyncio.get_running_loop() is self._portal.loop:
            return await call
        return await asyncio.wrap_future(self._portal.start(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedByHand:
    """A job that was claimed by its id. `payload` and `cursor` are JSON text."""

    attempt: int
    tenant: str
    queue: str
    type: str
    payload: str
    target: str | None
    lease_expires_at: datetime
    cursor: str | None


class KitStore:
    """The statements of the kit, in the role of the owner."""

    def __init__(self, database: KitDatabase) -> None:
        self._database = database

    async def reset(self) -> None:
        """Forget every job, settings that were changed, and the time."""
        await self._database.value("testing_reset")

    async def clear(self) -> None:
        """Forget every job."""
        await self._database.value("testing_clear")

    async def now(self) -> datetime:
        """The engine's current time."""
        moment: datetime = await self._database.value("testing_now")
        return moment

    async def freeze(self, at: datetime | None) -> None:
        """Stop the engine's time, now or at a given moment."""
        await self._database.value("testing_freeze", at)

    async def advance(self, seconds: float) -> None:
        """Move the engine's time on, whether it is stopped or not."""
        await self._database.value("testing_advance", seconds)

    async def unfreeze(self) -> None:
        """Let the engine's time go on from its current moment."""
        await self._database.value("testing_unfreeze")

    async def claim(self, worker: str, job_id: UUID) -> ClaimedByHand | None:
        """Lease one job by its id; None if it cannot be claimed."""
        row = await self._database.row("testing_claim", worker, job_id)
        if row is None:
            return None
        return ClaimedByHand(**{name: row[name] for name in ClaimedByHand.__slots__})

    async def lapse(self, job_id: UUID, attempt: int) -> None:
        """Let the lease of one attempt lapse, and take it back."""
        await self._database.value("testing_lapse", job_id, attempt)
        await self._database.rows("testing_sweep")
