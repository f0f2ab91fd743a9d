"""Records that jobs at their last chance are about to begin: each of them right before its handler runs.

One more lost lease would end or hold such a job, so a loss in which its handler did not run must not count. Its lease
says that it has not begun (`sql/functions/beginnings.sql`), until this has recorded, durably, that it has.

1. One at a time: the next beginning is recorded once the handler before it runs. A handler that kills its process as
   soon as it begins therefore finds no other job recorded and not begun. At any other death there is one at most.
2. Handlers in threads and processes begin beside the event loop: the next one waits for their first moments as well.
3. A lease that somebody has locked keeps its own job waiting, and no other. When the database is out of reach, all
   wait, each until its lease is over. They try in turn, so that a fault that only one of them meets stops no other.
4. A job whose beginning the database refuses to record is handed back: its handler has not run.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.lifecycle.service import Outage
from holdfast.store.leases import LeaseStore
from holdfast.telemetry.bus import Bus
from holdfast.worker.endings import NotBegun
from holdfast.worker.held import Held

__all__ = ["Starts"]

#: How long a handler in a thread or a process runs, if it does not end before, until the next beginning is recorded.
_FIRST_MOMENTS_SECONDS = 0.001
_LOCKED_SECONDS = 0.02


class Starts:
    """Lets jobs at their last chance begin, one after the other."""

    def __init__(self, store: LeaseStore, bus: Bus) -> None:
        self._store = store
        self._outage = Outage("beginnings", bus)
        self._turn = asyncio.Lock()
        #: Whose turn it is: it is recorded, or about to be, and its handler does not run yet.
        self._current: Held | None = None
        #: When the database may be asked again after it was out of reach.
        self._next_try = 0.0

    async def begin(self, held: Held) -> None:
        """Return once the handler may run. It does so at once, and then passes the turn on. NotBegun if it may not."""
        asked_at = time.monotonic()
        try:
            while not await self._recorded(held):
                self.pass_on(held)
                await asyncio.sleep(_LOCKED_SECONDS)
        except BaseException:
            self.pass_on(held)
            raise
        finally:
            held.waited += time.monotonic() - asked_at

    def pass_on(self, held: Held) -> None:
        """The handler runs, or will not. Called again, it does nothing."""
        if self._current is held:
            self._current = None
            self._turn.release()

    def pass_on_soon(self, held: Held) -> None:
        """The handler is about to run in a thread or a process."""
        asyncio.get_running_loop().call_later(_FIRST_MOMENTS_SECONDS, self.pass_on, held)

    async def _recorded(self, held: Held) -> bool:
        """Wait for the turn and record the beginning; False if somebody has locked the lease."""
        while True:
            await self._take_turn(held)
            await asyncio.sleep(self._next_try - time.monotonic())
            if held.interrupt is not None or held.lost or held.lease_end <= elapsed():
                break
            try:
                recorded = await self._store.record_beginning(held.job_id, held.attempt)
            except DatabaseUnavailable as fault:
                self._next_try = time.monotonic() + self._outage.lost(fault)
                self.pass_on(held)
                continue
            except HoldfastError as fault:
                self.pass_on(held)
                # A fault that lasts must not have jobs claimed and handed back at full speed.
                await asyncio.sleep(self._outage.lost(fault))
                raise NotBegun(f"its beginning could not be recorded: {fault}") from fault
            self._outage.over()
            if recorded is None:
                break
            return recorded
        raise NotBegun("the lease was over before the handler began")

    async def _take_turn(self, held: Held) -> None:
        if self._current is not held:
            await self._turn.acquire()
            self._current = held
