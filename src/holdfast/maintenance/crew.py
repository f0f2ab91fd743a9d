"""Carries out the duties, each in its own task, while this process leads.

No duty waits for another. Urgent duties always have a connection when they need one. The others share a few slots, and
begin a moment after the urgent ones, one after the other. A duty that fails is repeated after a pause that grows up to
its interval. One that exceeds its time limit also does less at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.service import Outage
from holdfast.maintenance.duty import Duty, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.upkeep import Limited, UpkeepDatabase
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import DutyBack, DutyFailed

__all__ = ["SLOTS", "Crew"]

#: How many duties that are not urgent may run at the same time.
SLOTS = 2
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 15.0
#: How much longer than the time limit of its statement a duty may take: for a connection, for the answer to a probe.
_GRACE_SECONDS = 2.0
#: How long to wait for an urgent statement that is under way when maintenance stops.
_STOP_SECONDS = 2.0
#: A worker that lives only for a moment, as in a burst, should not mend: that would only delay its own end. And a new
#: leader has a backlog to handle: the first rounds of duties that can wait come one by one.
_SETTLING_SECONDS = 0.5
_APART_SECONDS = 0.4


class Crew:
    """One task per duty."""

    def __init__(self, duties: Iterable[Duty], database: UpkeepDatabase, bus: Bus) -> None:
        self._database, self._bus = database, bus
        self._outage = Outage("duties", bus)
        self._posts = [_Post(duty) for duty in duties]
        for place, post in enumerate(post for post in self._posts if not post.is_urgent):
            post.settling_seconds = _SETTLING_SECONDS + place * _APART_SECONDS
        self._slots = asyncio.Semaphore(SLOTS)
        self._leading = asyncio.Event()
        #: How many times this process has begun to lead.
        self._term = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks; they do nothing before `lead`."""
        self._stopping = False
        self._tasks = [asyncio.create_task(self._serve(post), name=f"duty {post.duty.name}") for post in self._posts]

    async def stop(self) -> None:
        """Stop now, except for urgent statements that the server is executing already, unless they take long.

        A statement that is given up has changed nothing: its transaction is rolled back, and the next leader does it.
        """
        self._stopping = True
        self._leading.clear()
        for post, task in zip(self._posts, self._tasks, strict=True):
            if not (post.is_urgent and post.desk is not None and post.desk.under_way):
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead(self, leading: bool) -> None:
        """Say whether this process leads, and duties must be carried out."""
        if leading and not self._leading.is_set():
            self.start_over()
            self._term += 1
            self._leading.set()
        elif not leading:
            self._leading.clear()

    def hurry(self) -> None:
        """Wake the duties that heed notifications."""
        for post in self._posts:
            if post.duty.heeds:
                post.told.set()

    def start_over(self) -> None:
        """Reset every duty because the clock was set: each forgets misleading state, and looks now."""
        for post in self._posts:
            post.duty.resume()
            post.told.set()

    @property
    def sick(self) -> dict[str, str]:
        """The duties whose last try failed, and why."""
        return {post.duty.name: post.fault for post in self._posts if post.fault is not None}

    async def _serve(self, post: _Post) -> None:
        while True:
            await self._leading.wait()
            if post.term != self._term and post.settling_seconds:
                post.term = self._term
                await asyncio.sleep(post.settling_seconds)
                continue
            post.told.clear()
            seconds = await self._do(post)
            if self._stopping:
                return
            if seconds > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await post.told.wait()

    async def _do(self, post: _Post) -> float:
        """Do one bounded part of a duty. Returns how long to wait afterwards."""
        duty = post.duty
        turn = contextlib.nullcontext() if post.is_urgent else self._slots
        async with turn:
            began = time.monotonic()
            post.desk = self._database.within(duty.limit_seconds)
            try:
                async with asyncio.timeout(duty.limit_seconds + _GRACE_SECONDS):
                    following = await duty.work(MaintenanceStore(post.desk))
            except (DatabaseBusy, TimeoutError) as fault:
                duty.batch.struck(time.monotonic() - began)
                return self._failed(post, fault)
            except HoldfastError as fault:
                return self._failed(post, fault)
            except Exception as fault:  # noqa: BLE001 - a fault of one duty must not stop the others
                return self._failed(post, fault)
            finally:
                post.desk = None
            duty.batch.ended(time.monotonic() - began)
        self._outage.over()
        if post.fault is not None:
            if post.complained:
                self._bus.emit(DutyBack(duty=duty.name, failures=post.failures))
            post.fault, post.failures, post.complained = None, 0, False
        return following.seconds

    def _failed(self, post: _Post, fault: Exception) -> float:
        post.failures += 1
        post.fault = str(fault) or f"no end within {post.duty.limit_seconds + _GRACE_SECONDS:g} s"
        if isinstance(fault, DatabaseUnavailable) and fault.away:
            self._outage.lost(fault)  # reported once, not by every duty
        elif post.failures & (post.failures - 1) == 0:  # 1, 2, 4, 8 …: a log line each time would drown the rest
            post.complained = True
            self._bus.emit(DutyFailed(duty=post.duty.name, fault=post.fault, failures=post.failures))
        longest = min(post.duty.interval_seconds, _LONGEST_PAUSE_SECONDS)
        return float(min(longest, _FIRST_PAUSE_SECONDS * 2 ** min(post.failures - 1, 10)))


class _Post:
    """A duty and its state."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.is_urgent = duty.urgency is Urgency.URGENT
        self.told = asyncio.Event()
        #: The last term of this process in which it worked, and how long it waits when a term begins.
        self.term = 0
        self.settling_seconds = 0.0
        #: The database handle that it uses right now.
        self.desk: Limited | None = None
        self.fault: str | None = None
        self.failures = 0
        #: Whether its failures were reported.
        self.complained = False
