"""Keeps a worker's leases, from a thread with an event loop of its own, which no busy handler can starve.

1. renews all leases in one statement, once the first of them has less than half left;
2. between renewals looks for wishes to interrupt, every heartbeat;
3. says every heartbeat that the worker lives, and how many slots of each lane it uses;
4. listens for wake-ups and interruptions, and hands them to the worker's event loop;
5. watches whether the worker's event loop answers, and does not beat for one that was given up (`blockage`);
6. reconnects for ever: at once where a connection was cut, with growing pauses where the database refuses. Where it
   answers that it cannot at the moment, the connection is kept. A lease is lost only when the database says so;
7. calls no foreign code, for that may not return: what it has to tell, it tells aside.
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
from holdfast.worker.held import Held, HeldAttempts, Interrupt
from holdfast.worker.slots import Slots

__all__ = ["LeaseKeeper"]

#: How long the last renewal before a replacement may take.
_PROLONG_SECONDS = 2.0
#: Why a statement failed on a connection that is as good as any other.
_PASSING = frozenset({"locked", "disk-full", "short"})


class LeaseKeeper:
    """The thread that keeps leases. `loop` is the worker's event loop, where its callbacks run."""

    def __init__(
        self,
        config: Config,
        worker: str,
        held: HeldAttempts,
        slots: Slots,
        aside: Aside,
        *,
        blockage: Blockage,
        on_wake: Callable[[str, str], None],
        on_lost: Callable[[Held], None],
        on_unknown: Callable[[], None],
    ) -> None:
        self._config, self._worker, self._held, self._slots = config, worker, held, slots
        self._on_wake, self._on_lost, self._on_unknown = on_wake, on_lost, on_unknown
        self._blockage = blockage
        self._outage = Outage("lease keeper", aside)
        #: Whose turn it is to use the connection.
        self._turn = asyncio.Lock()
        self._main = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-leases", daemon=True)
        self._own: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stopping = False
        self._next_look = 0.0
        self.draining = False
        #: The connection in use; others may look at it, and hear through it.
        self.lifeline: Lifeline | None = None

    def start(self) -> None:
        """Begin to keep leases."""
        self._thread.start()

    def stop(self) -> None:
        """End; leases are not kept any more."""
        self._stopping = True
        self._poke()
        self._thread.join(5)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def look(self) -> None:
        """Look for interruptions now."""
        self._poke()

    def expect(self, lease_seconds: float) -> None:
        """A lease of this length is to be kept from now on: look in time."""
        if self._next_look > time.monotonic() + lease_seconds / 3:
            self._poke()

    async def prolong(self) -> None:
        """Renew all leases once more, in the keeper's own thread, before something that takes a while."""
        with contextlib.suppress(HoldfastError, TimeoutError, MemoryError):
            async with asyncio.timeout(_PROLONG_SECONDS), self._turn:
                if (held := self._kept()) and self.lifeline is not None:
                    await self._renew(self.lifeline, held)

    def give_up(self, held: Held) -> None:
        """Keep this lease no longer: the attempt counts as lost, and does not go on if it has a target."""
        held.lost = True
        held.lease_end = -math.inf
        self._tell(self._on_lost, held)

    def _poke(self) -> None:
        if self._own is not None and self._wake is not None and not self._own.is_closed():
            self._own.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        run_alike(self._keep_and_watch(), self._main)

    async def _keep_and_watch(self) -> None:
        # A database that is away must not keep anybody from judging a blocked loop.
        watch = asyncio.create_task(self._blockage.watch(), name="blockage")
        try:
            await self._keep()
        finally:
            watch.cancel()

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
                # Until it is replaced, nobody hears anything: the next heartbeat would be too late to notice.
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
        """One round and the pause after it; raises where the connection is of no use any more."""
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
        held = self._kept()
        now = elapsed()
        if any(h.lease_end - now < h.claim.lease_seconds / 2 for h in held):
            await self._renew(lifeline, held)
        elif held:
            wishes = await lifeline.interrupted([h.job_id for h in held], [h.attempt for h in held])
            for h in held:
                self._interrupt(h, wishes.get((h.claim.job_id, h.claim.attempt)))
        if not self._blockage.given_up:
            known = await lifeline.beat(draining=self.draining, used=self._slots.used_per_lane)
            if not known:
                self._tell(self._on_unknown)

    def _kept(self) -> list[Held]:
        return [h for h in self._held.all() if not h.lost and not h.completed]

    async def _renew(self, lifeline: Lifeline, held: list[Held]) -> None:
        asked_at = elapsed()
        ending = {h.job_id for h in held if h.ending}
        kept = await lifeline.renew([h.job_id for h in held], [h.attempt for h in held])
        for h in held:
            if h.lost:
                continue  # given up meanwhile
            found = kept.get((h.claim.job_id, h.claim.attempt))
            if found is None:
                if h.ending or h.completed or h.job_id in ending:
                    continue  # by its own transaction, perhaps; if it is lost, the next look tells
                h.lost = True
                self._tell(self._on_lost, h)
                continue
            # What somebody had locked was not prolonged. How long it lasts is better known here: if the clock was set
            # back meanwhile, its expiry lies far ahead, until the leader brings it nearer.
            if math.isclose(found[0], h.claim.lease_seconds, rel_tol=1e-6, abs_tol=1e-3):
                h.lease_end = asked_at + found[0]
                if (tell := h.renewed) is not None:
                    tell(h.lease_end)
            self._interrupt(h, found[1])

    def _interrupt(self, held: Held, wish: str | None) -> None:
        if wish is not None and held.interrupt != wish:
            self._tell(held.stop, cast("Interrupt", wish))

    def _heard(self, topic: str, payload: str) -> None:
        if topic == "interrupt":
            if self._held.get(UUID(payload)) is not None:
                self._poke()
        else:
            self._tell(self._on_wake, topic, payload)

    def _tick(self) -> float:
        """A heartbeat, or less where leases are short."""
        shortest = min((h.claim.lease_seconds for h in self._held.all()), default=self._config.heartbeat_seconds * 6)
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
