"""Outcomes go to the database in batches, as many as came up while the last batch was under way.

Nothing that finished is lost: while the database is away, outcomes wait here and their leases are kept.
What waits here is still held, and intake holds only so much. A settlement that is refused for what it
contains is sent alone, and then as a failure, so that one bad result cannot hold up the others; whatever
else goes wrong is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import Conflict, InvalidInput
from holdfast.lifecycle.service import Service
from holdfast.model.outcome import Outcome
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptEnded, LeaseLost
from holdfast.worker.held import Held, HeldAttempts

__all__ = ["SettlementService"]

_BATCH = 500


class SettlementService(Service):
    """Settles outcomes in the order they came, in batches."""

    name = "settlement"

    def __init__(
        self,
        store: LeaseStore,
        held: HeldAttempts,
        bus: Bus,
        worker: str,
        *,
        on_settled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(bus)
        self._store, self._held, self._worker = store, held, worker
        self._on_settled = on_settled
        self._waiting: list[tuple[Held, Outcome]] = []
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, held: Held, outcome: Outcome) -> None:
        """An attempt has ended; one whose own transaction completed it is settled already."""
        if held.completed:
            self._settled(held, outcome, "success")
            return
        self._waiting.append((held, outcome))
        self.empty.clear()
        self.wake()

    async def round(self) -> float:
        """Settle what waits."""
        while self._waiting:
            batch = self._waiting[:_BATCH]
            await self._settle(batch)
            del self._waiting[: len(batch)]
            self._on_settled()
        self.empty.set()
        return 3600

    async def _settle(self, batch: list[tuple[Held, Outcome]]) -> None:
        try:
            states = await self._store.settle([_settlement(held, outcome) for held, outcome in batch])
        except (InvalidInput, Conflict) as fault:
            if len(batch) > 1:
                for entry in batch:
                    await self._settle([entry])
                return
            held, refused = batch[0]
            if refused.error_type == "SettlementRefused":
                self._lost(held)
                return
            failure = Outcome(kind="failed", failure="fatal", error_type="SettlementRefused", message=str(fault))
            await self._settle([(held, failure)])
            return
        told = self._bus.hears(AttemptEnded)
        for held, outcome in batch:
            state = states.get((held.claim.job_id, held.claim.attempt), "lease-lost")
            if state == "success" and not told:
                self._held.remove(held)
            else:
                self._settled(held, outcome, state)

    def _settled(self, held: Held, outcome: Outcome, state: str) -> None:
        if state == "lease-lost":
            self._lost(held)
            return
        self._held.remove(held)
        claim = held.claim
        self._bus.emit(
            AttemptEnded(
                job_id=claim.job_id,
                type=claim.stream.type,
                tenant=claim.stream.tenant,
                queue=claim.stream.queue,
                attempt=claim.attempt,
                outcome=outcome.kind,
                state=state,
                failures=claim.failures + (1 if outcome.kind in ("failed", "timeout") else 0),
                duration_seconds=held.duration,
                queue_seconds=(claim.claimed_at - claim.ready_at).total_seconds(),
                correlation_id=claim.correlation_id,
                worker=self._worker,
                error_type=outcome.error_type,
                error=outcome.message if outcome.error_type else None,
            )
        )

    def _lost(self, held: Held) -> None:
        self._held.remove(held)
        self._bus.emit(
            LeaseLost(
                job_id=held.claim.job_id,
                type=held.claim.stream.type,
                attempt=held.claim.attempt,
                worker=self._worker,
            )
        )


def _settlement(held: Held, outcome: Outcome) -> Settlement:
    return held.claim.job_id, held.claim.attempt, outcome, int(held.duration * 1000), held.excerpt
