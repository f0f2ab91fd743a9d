"""What becomes of the attempts that a worker holds when its event loop is given up (see `blockage`).

All of it happens in the lease keeper's thread, while the loop stands still.

1. The attempt that blocks the loop has timed out. Those beside it are handed back, which costs them nothing. What has
   ended, and waits in the blocked loop to be settled, is settled as it ended.
2. Where the process can be replaced, that is done at once, and its next program settles all this: by then nothing of
   the old one runs any more.
3. Inside somebody's own program nothing can be ended. Handlers that stand still in the loop are marked as lost, so
   that those with a target do not go on, and are handed back from here. The handler that blocks still runs, and so do
   handlers in threads and processes: their leases lapse, at once or when their own time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.errors import HoldfastError
from holdfast.model.outcome import Outcome
from holdfast.store.database import Database
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.telemetry.aside import Aside
from holdfast.worker.execution import Execution
from holdfast.worker.held import Held, HeldAttempts
from holdfast.worker.leases import LeaseKeeper
from holdfast.worker.settlement import SettlementService

__all__ = ["Surrender"]

_BLOCKED = "another handler blocked the event loop of its worker"
#: How long handing back may take before it is tried again.
_SETTLE_SECONDS = 10.0

_log = logging.getLogger("holdfast")


class Surrender:
    """Says how the attempts of a worker end that its event loop cannot end, and hands them back."""

    def __init__(
        self,
        config: Config,
        worker: str,
        held: HeldAttempts,
        *,
        execution: Execution,
        settlement: SettlementService,
        keeper: LeaseKeeper,
        aside: Aside,
        types: Mapping[str, JobType],
        timeouts: Mapping[str, float],
        time_over: Callable[[Held], float],
    ) -> None:
        self._config, self._worker, self._held = config, worker, held
        self._execution, self._settlement, self._keeper, self._aside = execution, settlement, keeper, aside
        self._types, self._timeouts, self._time_over = types, timeouts, time_over
        #: What is to be handed back and has not been yet.
        self._owed: list[Settlement] = []

    def outcomes(self, blocker: Held | None, *, drained: bool) -> list[tuple[Held, Settlement]]:
        """How all attempts end that are held."""
        ended = self._settlement.unsettled()
        return [
            (
                h,
                ended.get(h.job_id)
                or (h.job_id, h.attempt, self._outcome(h, blocker, drained), h.running_ms, h.excerpt),
            )
            for h in self._held.all()
            if not h.lost and not h.completed
        ]

    def _outcome(self, held: Held, blocker: Held | None, drained: bool) -> Outcome:
        if not held.running:
            return Outcome.released(_BLOCKED)
        if drained:
            held.interrupt = held.interrupt or "drain"
        elif held is blocker or (blocker is None and time.monotonic() > self._time_over(held)):
            held.stuck = True
        elif held.interrupt is None:
            return Outcome.released(_BLOCKED)
        return self._execution.given_up(held, self._timeouts[held.type])

    async def hand_back(self, blocker: Held | None, *, drained: bool) -> None:
        """Give up what stands still in the loop; called again, also what has run out of time since then."""
        for held, settlement in self.outcomes(blocker, drained=drained):
            if held is not blocker and self._may_run(held, blocker) and time.monotonic() < self._time_over(held):
                continue
            self._keeper.give_up(held)
            # What may still run is not handed back, nor what its own transaction may have ended: the lease lapses.
            if held is not blocker and not self._may_run(held, blocker) and not held.ending:
                self._owed.append(settlement)
        if self._owed:
            with contextlib.suppress(TimeoutError, HoldfastError):  # tried again at the next look
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._settle()

    def _may_run(self, held: Held, blocker: Held | None) -> bool:
        """Whether its handler may be at work although the loop stands still."""
        return held.running and (blocker is None or self._types[held.type].executor != "async")

    async def _settle(self) -> None:
        database = Database(self._config, role="worker", size=1)
        await database.open()
        try:
            states = await LeaseStore(database, self._worker).settle_singly(self._owed)
        finally:
            await database.close()
        for (job_id, attempt, outcome, *_), state in zip(self._owed, states, strict=True):
            level = logging.INFO if outcome.kind == "released" else logging.WARNING
            said = "left its blocked worker: %s attempt %s %s → %s", job_id, attempt, outcome.kind, state
            self._aside.call(partial(_log.log, level, *said))
        self._owed = [owed for owed, state in zip(self._owed, states, strict=True) if state is None]
