"""Fetches payloads that are too large to come with a claim, right before their handlers run.

A worker may claim hundreds of jobs ahead of its slots, and the payloads of all of them could take hundreds of
megabytes. So a claim brings only small payloads, and there are never more large ones in memory than running handlers.

1. Requests that arrive while a statement is under way are served by the next one, several at a time.
2. A payload that cannot be fetched fails only its own job, not the others of the same statement.
3. While the database is out of reach, jobs are handed back after a pause: their handlers have not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.service import Outage
from holdfast.telemetry.bus import Bus
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import NotBegun

__all__ = ["Payloads"]

#: How many payloads one statement fetches.
_TOGETHER = 8


class PayloadStore(Protocol):
    """The source of payloads."""

    async def payloads(self, claimed: Sequence[tuple[UUID, int]], /) -> dict[UUID, tuple[str, str | None]]:
        """Payload and cursor, as JSON text, of those (job, attempt) that are still claimed."""
        ...


class Payloads:
    """The large payloads, and cursors, of one worker's jobs."""

    def __init__(self, store: PayloadStore, bus: Bus) -> None:
        self._store = store
        self._outage = Outage("payloads", bus)
        self._turn = asyncio.Lock()
        self._waiting: list[Claimed] = []

    async def fetch(self, claimed: Claimed) -> None:
        """Return once the claim has its payload and cursor. Raises NotBegun if the lease or the database is gone."""
        self._waiting.append(claimed)
        try:
            async with self._turn:
                if claimed in self._waiting:
                    await self._fetch_with_others(claimed)
        except DatabaseUnavailable as fault:
            await asyncio.sleep(self._outage.lost(fault))
            raise NotBegun(f"its payload could not be fetched: {fault}") from fault
        finally:
            if claimed in self._waiting:
                self._waiting.remove(claimed)
        if claimed.claim.payload is None:
            raise NotBegun("the lease was over before the handler began")

    async def _fetch_with_others(self, claimed: Claimed) -> None:
        others = [other for other in self._waiting if other is not claimed][: _TOGETHER - 1]
        try:
            await self._fetch([claimed, *others])
        except DatabaseUnavailable:
            raise
        except HoldfastError:
            if not others:
                raise
            await self._fetch([claimed])
        self._outage.over()

    async def _fetch(self, batch: list[Claimed]) -> None:
        found = await self._store.payloads([(claimed.job_id, claimed.attempt) for claimed in batch])
        for claimed in batch:
            claimed.claim.payload, claimed.claim.cursor = found.get(claimed.job_id, (None, None))
            if claimed in self._waiting:
                self._waiting.remove(claimed)
