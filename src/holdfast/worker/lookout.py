"""Looks several times a second for attempts that nothing else would end.

1. Handlers with a target end when their lease is over by our own clock, because it could not be renewed.
2. A handler that runs long after its timeout is stuck, wherever it runs.
3. An attempt without a handler and without an outcome would stay claimed for ever: it is handed back.
4. Without its lease keeper, a worker can only drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from holdfast.model.outcome import Outcome
from holdfast.worker.blockage import Blockage
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.leases import LeaseKeeper

__all__ = ["Lookout"]

_BUSY_SECONDS, _IDLE_SECONDS = 0.25, 0.5
_ADRIFT = Outcome.handed_back("the worker lost track of it")


class Lookout:
    """Watches the claimed attempts of a worker, in its event loop."""

    def __init__(
        self,
        claimed: ClaimedAttempts,
        keeper: LeaseKeeper,
        blockage: Blockage,
        *,
        on_stuck: Callable[[Claimed], None],
        on_adrift: Callable[[Claimed, Outcome], None],
        on_keeper_lost: Callable[[], None],
    ) -> None:
        self._claimed, self._keeper, self._blockage = claimed, keeper, blockage
        self._on_stuck, self._on_adrift, self._on_keeper_lost = on_stuck, on_adrift, on_keeper_lost

    async def run(self) -> None:
        """Look until canceled."""
        adrift: set[Claimed] = set()
        while True:
            await asyncio.sleep(_BUSY_SECONDS if len(self._claimed) else _IDLE_SECONDS)
            self._blockage.answer()
            with contextlib.suppress(MemoryError):  # a handler may use all of it for the moment
                adrift = self._look(adrift)

    def _look(self, adrift_before: set[Claimed]) -> set[Claimed]:
        for claimed in self._claimed.overdue():
            claimed.stop("lease")
        for claimed in self._claimed.all():
            if claimed.stuck_at is not None and time.monotonic() > claimed.stuck_at and not claimed.stuck:
                claimed.stuck = True
                self._on_stuck(claimed)
        adrift = self._claimed.adrift()
        for claimed in adrift & adrift_before:
            self._on_adrift(claimed, _ADRIFT)
        if not self._keeper.alive:
            self._on_keeper_lost()
        return adrift
