"""Records that jobs at their last chance are about to begin: each of them right before its handler runs.

One more lost lease would end or hold such a job, so a loss without a run of its handler must not count. Its lease says
that it has not begun (`sql/functions/beginnings.sql`), until this module has durably recorded that it has.

1. One job at a time: the next beginning is recorded once the handler before it runs. So if a handler kills its process
   as soon as it begins, no other job is recorded and not begun. In any other crash there is at most one.
2. Handlers in threads and processes begin beside the event loop: the next job waits for their first moments as well.
3. A lease that somebody has locked delays only its own job. If the database is out of reach, all jobs wait, each until
   its lease is over. They try in turn, so that a fault of one of them does not stop the others.
4. A job whose beginning the database refuses to record is handed back: its handler has not run.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol
from uuid import UUID

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.lifecycle.service import Outage
from holdfast.telemetry.bus import Bus
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import NotBegun

__all__ = ["Starts"]

#: How long a handler in a thread or process must run, unless it ends before, until the next beginning is recorded.
_FIRST_MOMENTS_SECONDS = 0.001
_LOCKED_SECONDS = 0.02


class BeginningStore(Protocol):
    """Where beginnings are recorded."""

    async def record_beginning(self, job_id: UUID, attempt: int, /) -> bool | None:
        """Record that this job is about to begin; False if its lease is locked, None if it is lost."""
        ...


class Starts:
    """Lets jobs at their last chance begin, one after the other."""

    def __init__(self, store: BeginningStore, bus: Bus) -> None:
        self._store = store
        self._outage = Outage("beginnings", bus)
        self._turn = asyncio.Lock()
        #: The job whose turn it is: it is recorded, or about to be, and its handler does not run yet.
        self._current: Claimed | None = None
        #: When the database may be asked again after it was out of reach.
        self._next_try = 0.0

    async def begin(self, claimed: Claimed) -> None:
        """Return once the handler may run, else raise NotBegun. The caller runs it at once, then passes the turn on."""
        asked_at = time.monotonic()
        try:
            while not await self._recorded(claimed):
                self.pass_on(claimed)
                await asyncio.sleep(_LOCKED_SECONDS)
        except BaseException:
            self.pass_on(claimed)
            raise
        finally:
            claimed.waited += time.monotonic() - asked_at

    def pass_on(self, claimed: Claimed) -> None:
        """Pass the turn on: the handler runs, or will not. Repeating the call does nothing."""
        if self._current is claimed:
            self._current = None
            self._turn.release()

    def pass_on_soon(self, claimed: Claimed) -> None:
        """Pass the turn on soon: the handler is about to run in a thread or a process."""
        asyncio.get_running_loop().call_later(_FIRST_MOMENTS_SECONDS, self.pass_on, claimed)

    async def _recorded(self, claimed: Claimed) -> bool:
        """Wait for the turn and record the beginning. False if somebody has locked the lease."""
        while True:
            await self._take_turn(claimed)
            await asyncio.sleep(self._next_try - time.monotonic())
            if claimed.interrupt is not None or claimed.lost or claimed.lease_end <= elapsed():
                break
            try:
                recorded = await self._store.record_beginning(claimed.job_id, claimed.attempt)
            except DatabaseUnavailable as fault:
                self._next_try = time.monotonic() + self._outage.lost(fault)
                self.pass_on(claimed)
                continue
            except HoldfastError as fault:
                self.pass_on(claimed)
                # A permanent fault must not cause jobs to be claimed and handed back at full speed.
                await asyncio.sleep(self._outage.lost(fault))
                raise NotBegun(f"its beginning could not be recorded: {fault}") from fault
            self._outage.over()
            if recorded is None:
                break
            return recorded
        raise NotBegun("the lease was over before the handler began")

    async def _take_turn(self, claimed: Claimed) -> None:
        if self._current is not claimed:
            await self._turn.acquire()
            self._current = claimed
