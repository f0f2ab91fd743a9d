"""What becomes of a worker's attempts when its event loop is given up (see `blockage`).

All of this happens in the lease keeper's thread, while the loop is blocked.

1. The attempt that blocks the loop has timed out, and so have handlers that threads have called and that run past their
   time. Other handlers are handed back, which costs no attempt. An attempt that has ended, and waits in the blocked
   loop to be settled, is settled with its own outcome, also if it ended in its thread. If middleware must see first how
   it ended, it is handed back.
2. If it is unknown which handler blocks, each async handler in the blocked loop is a suspect. It is handed back as
   well. But a suspect for the third time in a row has timed out: otherwise a job could block its worker again and again
   without ever using up an attempt.
3. If the process can be replaced, that is done at once, and the new program settles all attempts: by then nothing of
   the old program runs any more.
4. In a user's own program nothing can be ended. Handlers in the blocked loop are marked as lost, so that those with a
   target do not go on, and are handed back from here. The blocking handler still runs, and so do handlers in threads
   and processes: their leases lapse, at once or when their own time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.errors import HoldfastError
from holdfast.model.outcome import Outcome
from holdfast.store.database import Database
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.telemetry.aside import Aside
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.deadlines import Timeouts
from holdfast.worker.execution import Execution
from holdfast.worker.leases import LeaseKeeper
from holdfast.worker.settlement import SettlementService
from holdfast.worker.silence import Blocker

__all__ = ["Surrender"]

_BLOCKED = "another handler blocked the event loop of its worker"
#: How often a handler may be a suspect in a row.
_SUSPICIONS = 3
#: How long handing back may take before it is tried again.
_SETTLE_SECONDS = 10.0

_log = logging.getLogger("holdfast")


class Surrender:
    """Decides how attempts end that a blocked event loop cannot end, and hands them back."""

    def __init__(
        self,
        config: Config,
        worker: str,
        claimed: ClaimedAttempts,
        *,
        execution: Execution,
        settlement: SettlementService,
        keeper: LeaseKeeper,
        aside: Aside,
        types: Mapping[str, JobType],
        timeouts: Timeouts,
        time_over: Callable[[Claimed], float],
        suspects: Mapping[UUID, int],
    ) -> None:
        self._config, self._worker, self._claimed = config, worker, claimed
        self._execution, self._settlement, self._keeper, self._aside = execution, settlement, keeper, aside
        self._types, self._timeouts, self._time_over = types, timeouts, time_over
        #: How often in a row each job was a suspect, including in earlier processes.
        self.suspects = dict(suspects)
        #: Settlements that could not be sent yet.
        self._owed: list[Settlement] = []

    def suspect(self, blocker: Blocker) -> None:
        """Count the suspects. Called once, when the process is replaced: later looks are the same blockage."""
        if not blocker.known:
            still = [h.job_id for h in self._claimed.all() if h.running and self._is_async(h)]
            self.suspects = {job_id: self.suspects.get(job_id, 0) + 1 for job_id in still}

    def outcomes(self, blocker: Blocker, *, drained: bool) -> list[tuple[Claimed, Settlement]]:
        """How all claimed attempts end."""
        ended = self._settlement.unsettled()
        return [
            (
                h,
                ended.get(h.job_id)
                or Settlement(h.job_id, h.attempt, self._outcome(h, blocker, drained), h.running_ms, h.excerpt),
            )
            for h in self._claimed.all()
            if not h.lost and not h.completed
        ]

    def _outcome(self, claimed: Claimed, blocker: Blocker, drained: bool) -> Outcome:
        if not claimed.running:
            return Outcome.handed_back(_BLOCKED)
        if (ended := self._execution.ended_in_its_thread(claimed)) is not None:
            return ended
        if drained:
            claimed.interrupt = claimed.interrupt or "drain"
        elif claimed is blocker.attempt or self._is_to_blame(claimed, blocker):
            claimed.stuck = True
        elif claimed.interrupt is None:
            return Outcome.handed_back(_BLOCKED)
        return self._execution.verdicts.given_up(claimed, self._timeouts.of(claimed))

    def _is_to_blame(self, claimed: Claimed, blocker: Blocker) -> bool:
        """Whether the attempt has used up its own time, not only the loop's."""
        if self._is_async(claimed):
            return not blocker.known and self.suspects.get(claimed.job_id, 0) >= _SUSPICIONS
        # A handler in a process may have ended long ago without anybody reading its answer. One for a thread may have
        # waited for its turn, or have ended in time: then only the middleware around it waits in the blocked loop.
        in_time = not claimed.in_thread and not (claimed.late and claimed.ends)
        return not in_time and time.monotonic() > self._time_over(claimed)

    async def hand_back(self, blocker: Blocker, *, drained: bool) -> None:
        """Give up attempts in the blocked loop; on later calls also those whose time is over since."""
        for claimed, settlement in self.outcomes(blocker, drained=drained):
            may_run = claimed is blocker.attempt or self._may_run(claimed, blocker)
            if claimed is not blocker.attempt and may_run and time.monotonic() < self._time_over(claimed):
                continue
            self._keeper.give_up(claimed)
            # An attempt that may still run, or that its own transaction may have ended, is not handed back: its lease
            # lapses.
            if (not may_run or claimed.ends) and not claimed.ending:
                self._owed.append(settlement)
        if self._owed:
            with contextlib.suppress(TimeoutError, HoldfastError):  # tried again at the next look
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._settle()

    def _may_run(self, claimed: Claimed, blocker: Blocker) -> bool:
        """Whether its handler may be running although the loop is blocked."""
        return claimed.running and not (blocker.known and self._is_async(claimed))

    def _is_async(self, claimed: Claimed) -> bool:
        return self._types[claimed.type].executor == "async"

    async def _settle(self) -> None:
        database = Database(self._config, role="worker", size=1)
        await database.open()
        try:
            states = await LeaseStore(database, self._worker).settle_singly(self._owed)
        finally:
            await database.close()
        for owed, state in zip(self._owed, states, strict=True):
            level = logging.INFO if owed.outcome.kind == "released" else logging.WARNING
            about = owed.job_id, owed.attempt, owed.outcome.kind, state
            said = "left its blocked worker: %s attempt %s %s → %s", *about
            self._aside.call(partial(_log.log, level, *said))
        self._owed = [owed for owed, state in zip(self._owed, states, strict=True) if state is None]
