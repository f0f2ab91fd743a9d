"""Fetches payloads that are too large to come with a claim, right before their handlers run.

A worker may claim hundreds of jobs ahead of its slots. What came with all of them could be hundreds of megabytes; so a
claim brings small payloads only, and no more large ones are in memory than handlers run.

1. Those who ask while a statement is under way are served by the next one, some at a time.
2. A payload that cannot be fetched fails its own job, and no other that was asked for with it.
3. While the database is out of reach, jobs are handed back after a pause: their handlers have not run.
"""

from __future__ import annotations

import asyncio

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.service import Outage
from holdfast.store.leases import LeaseStore
from holdfast.telemetry.bus import Bus
from holdfast.worker.endings import NotBegun
from holdfast.worker.held import Held

__all__ = ["Payloads"]

#: How many payloads one statement fetches.
_TOGETHER = 8


class Payloads:
    """The large payloads, and cursors, of one worker's jobs."""

    def __init__(self, store: LeaseStore, bus: Bus) -> None:
        self._store = store
        self._outage = Outage("payloads", bus)
        self._turn = asyncio.Lock()
        self._waiting: list[Held] = []

    async def fetch(self, held: Held) -> None:
        """Return once the claim has its payload and cursor; NotBegun if its lease is gone or the database is away."""
        self._waiting.append(held)
        try:
            async with self._turn:
                if held in self._waiting:
                    await self._fetch_with_others(held)
        except DatabaseUnavailable as fault:
            await asyncio.sleep(self._outage.lost(fault))
            raise NotBegun(f"its payload could not be fetched: {fault}") from fault
        finally:
            if held in self._waiting:
                self._waiting.remove(held)
        if held.claim.payload is None:
            raise NotBegun("the lease was over before the handler began")

    async def _fetch_with_others(self, held: Held) -> None:
        others = [other for other in self._waiting if other is not held][: _TOGETHER - 1]
        try:
            await self._fetch([held, *others])
        except DatabaseUnavailable:
            raise
        except HoldfastError:
            if not others:
                raise
            await self._fetch([held])
        self._outage.over()

    async def _fetch(self, batch: list[Held]) -> None:
        found = await self._store.payloads([(held.job_id, held.attempt) for held in batch])
        for held in batch:
            held.claim.payload, held.claim.cursor = found.get(held.job_id, (None, None))
            if held in self._waiting:
                self._waiting.remove(held)
