"""Keeps a worker's leases, from a thread with its own event loop, which no busy handler can starve.

1. It renews all leases in one statement, once the first of them has less than half of its time left.
2. Between renewals it looks for interrupts, every heartbeat. The lease of a job that it is notified of is renewed at
   once: perhaps somebody has ended it.
3. Every heartbeat it records that the worker lives, and how many slots of each lane it uses, and learns the settings,
   and whether somebody told the worker to claim no more.
4. It listens for wake-ups and interrupts, and passes them to the worker's event loop.
5. It watches whether the worker's event loop answers, and sends no heartbeat for one that was given up (`blockage`).
6. It reconnects for ever: at once if a connection was cut, with growing pauses if the database refuses. If the database
   answers that it cannot at the moment, the connection is kept. A lease is lost only when the database says so.
7. Every second it has a pulse, which says that this thread is alive.
8. It calls no foreign code, which may not return: it emits events through `Aside`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import cast
from uuid import UUID

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.lifecycle.loops import run_alike
from holdfast.lifecycle.service import NO_MEMORY, Outage
from holdfast.store.lifeline import Lifeline
from holdfast.telemetry.aside import Aside
from holdfast.worker.blockage import Blockage
from holdfast.worker.claimed import Claimed, ClaimedAttempts, Interrupt
from holdfast.worker.slots import Slots

__all__ = ["LeaseKeeper"]

#: How long the last renewal before a replacement may take.
_PROLONG_SECONDS = 2.0
_PULSE_SECONDS = 1.0
#: Reasons for which a statement fails on a connection that still works.
_PASSING = frozenset({"locked", "disk-full", "short"})


class LeaseKeeper:
    """The thread that keeps leases. Its callbacks run in the worker's event loop."""

    def __init__(
        self,
        config: Config,
        worker: str,
        claimed: ClaimedAttempts,
        slots: Slots,
        aside: Aside,
        *,
        blockage: Blockage,
        on_wake: Callable[[str, str], None],
        on_lost: Callable[[Claimed], None],
        on_unknown: Callable[[], None],
        on_settings: Callable[[dict[str, str]], None],
        on_quiet: Callable[[], None],
        on_stopped: Callable[[str | None], None],
        on_pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._worker, self._claimed, self._slots = config, worker, claimed, slots
        self._on_wake, self._on_lost, self._on_unknown = on_wake, on_lost, on_unknown
        self._on_settings, self._on_quiet, self._on_stopped = on_settings, on_quiet, on_stopped
        #: Called in this thread.
        self._on_pulse = on_pulse
        self._blockage = blockage
        self._outage = Outage("lease keeper", aside)
        #: Held by the task that uses the connection.
        self._turn = asyncio.Lock()
        self._main = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-leases", daemon=True)
        self._own: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stopping = False
        self._next_look = 0.0
        #: Jobs that were named in notifications since the last look.
        self._named: set[UUID] = set()
        #: Those of the last heartbeat.
        self._settings: dict[str, str] | None = None
        self._quiet = False
        self._stopped: str | None = None
        self.draining = False
        #: The connection in use. Others may read it, and listen through it.
        self.lifeline: Lifeline | None = None

    def start(self) -> None:
        """Start to keep leases."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; leases are no longer kept."""
        self._stopping = True
        self._poke()
        self._thread.join(5)

    @property
    def connected(self) -> bool:
        """Whether the database can be reached, as far as this thread knows."""
        return self.lifeline is not None and not self.lifeline.closed

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def look(self) -> None:
        """Look for interruptions now."""
        self._poke()

    def expect(self, lease_seconds: float) -> None:
        """Note a new lease of this length, and look in time to renew it."""
        if self._next_look > time.monotonic() + lease_seconds / 3:
            self._poke()

    async def prolong(self) -> None:
        """Renew all leases once more, in the keeper's own thread, before an operation that takes a while."""
        with contextlib.suppress(HoldfastError, TimeoutError, MemoryError):
            async with asyncio.timeout(_PROLONG_SECONDS), self._turn:
                if (claimed := self._kept()) and self.lifeline is not None:
                    await self._renew(self.lifeline, claimed)

    def give_up(self, claimed: Claimed) -> None:
        """Stop keeping this lease: the attempt counts as lost, and its handler is told to stop."""
        claimed.lost = True
        claimed.lease_end = -math.inf
        self._tell(self._on_lost, claimed)

    def _poke(self) -> None:
        if self._own is not None and self._wake is not None and not self._own.is_closed():
            self._own.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        run_alike(self._keep_and_watch(), self._main)

    async def _keep_and_watch(self) -> None:
        # A database that is away must not prevent the check for a blocked loop.
        beside = [
            asyncio.create_task(self._blockage.watch(), name="blockage"),
            asyncio.create_task(self._pulse(), name="pulse"),
        ]
        try:
            await self._keep()
        finally:
            for task in beside:
                task.cancel()

    async def _pulse(self) -> None:
        while True:
            with contextlib.suppress(MemoryError, OSError):  # there may be memory, or room on the disk, a second later
                self._on_pulse()
            await asyncio.sleep(_PULSE_SECONDS)

    async def _keep(self) -> None:
        self._own, self._wake = asyncio.get_running_loop(), asyncio.Event()
        while not self._stopping:
            try:
                lifeline = await Lifeline.open(self._config, self._worker)
            except (HoldfastError, MemoryError) as fault:
                await self._rest(self._outage.lost(_told(fault)))
                continue
            try:
                await lifeline.listen(("ready", "interrupt", "duty"), self._heard)
                self.lifeline = lifeline
                # Without it, no notification arrives; waiting for the next heartbeat to notice would be too late.
                lifeline.when_cut(self._wake.set)
                self._tell(self._on_wake, "ready", "")
                self._tell(self._on_wake, "duty", "")
                while not self._stopping and not lifeline.closed:
                    await self._rounds(lifeline)
            except (HoldfastError, MemoryError) as fault:
                pause = self._outage.lost(_told(fault))
                await lifeline.close()
                await self._rest(pause)
            finally:
                await lifeline.close()

    async def _rounds(self, lifeline: Lifeline) -> None:
        """Do one round and the pause after it. Raises if the connection does not work any more."""
        try:
            async with self._turn:
                await self._round(lifeline)
        except DatabaseUnavailable as fault:
            if fault.reason not in _PASSING:
                raise
            await self._rest(self._outage.lost(fault))
        else:
            self._outage.over()
            await self._pause(self._tick())

    async def _round(self, lifeline: Lifeline) -> None:
        claimed = self._kept()
        now = elapsed()
        named, self._named = self._named, set()
        if any(h.lease_end - now < h.claim.lease_seconds / 2 for h in claimed):
            await self._renew(lifeline, claimed)
        elif claimed:
            wishes = await lifeline.interrupted([h.job_id for h in claimed], [h.attempt for h in claimed])
            for h in claimed:
                self._interrupt(h, wishes.get((h.claim.job_id, h.claim.attempt)))
            doubtful = [h for h in claimed if h.job_id in named and (h.job_id, h.attempt) not in wishes]
            if doubtful:
                await self._renew(lifeline, doubtful)
        if not self._blockage.given_up:
            answer = await lifeline.beat(draining=self.draining, used=self._slots.used_per_lane)
            if not answer.known:
                self._tell(self._on_unknown)
            if answer.settings != self._settings:
                self._settings = answer.settings
                self._tell(self._on_settings, answer.settings)
            if answer.quiet and not self._quiet:
                self._quiet = True
                self._tell(self._on_quiet)
            if answer.stopped != self._stopped:
                self._stopped = answer.stopped
                self._tell(self._on_stopped, answer.stopped)

    def _kept(self) -> list[Claimed]:
        return [h for h in self._claimed.all() if not h.lost and not h.completed]

    async def _renew(self, lifeline: Lifeline, claimed: list[Claimed]) -> None:
        asked_at = elapsed()
        ending = {h.job_id for h in claimed if h.ending}
        kept = await lifeline.renew([h.job_id for h in claimed], [h.attempt for h in claimed])
        for h in claimed:
            if h.lost:
                continue  # given up meanwhile
            found = kept.get((h.claim.job_id, h.claim.attempt))
            if found is None:
                if h.ending or h.completed or h.job_id in ending:
                    continue  # perhaps ended by its own transaction; if it is lost, the next look says so
                h.lost = True
                self._tell(self._on_lost, h)
                continue
            # A lease that somebody had locked was not prolonged. Its end is better known here: if the clock was set
            # back meanwhile, its expiry lies far ahead, until the leader brings it nearer.
            if math.isclose(found[0], h.claim.lease_seconds, rel_tol=1e-6, abs_tol=1e-3):
                h.lease_end = asked_at + found[0]
                if (tell := h.renewed) is not None:
                    tell(h.lease_end)
            self._interrupt(h, found[1])

    def _interrupt(self, claimed: Claimed, wish: str | None) -> None:
        if wish is not None and claimed.interrupt != wish:
            self._tell(claimed.stop, cast("Interrupt", wish))

    def _heard(self, topic: str, payload: str) -> None:
        if topic == "interrupt":
            if self._claimed.get(job_id := UUID(payload)) is not None:
                self._named.add(job_id)
                self._poke()
        else:
            self._tell(self._on_wake, topic, payload)

    def _tick(self) -> float:
        """A heartbeat interval, or less if leases are short."""
        shortest = min((h.claim.lease_seconds for h in self._claimed.all()), default=self._config.heartbeat_seconds * 6)
        return min(self._config.heartbeat_seconds, shortest / 6)

    async def _rest(self, seconds: float) -> None:
        """Wait after a failure; only `stop` ends it early."""
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            await self._pause(left)

    async def _pause(self, seconds: float) -> None:
        assert self._wake is not None  # noqa: S101 - set before the first pause
        self._next_look = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        if not self._main.is_closed():
            self._main.call_soon_threadsafe(callback, *arguments)


def _told(fault: HoldfastError | MemoryError) -> HoldfastError:
    return NO_MEMORY if isinstance(fault, MemoryError) else fault
