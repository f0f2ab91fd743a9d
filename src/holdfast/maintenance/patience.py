"""Whether the database was in touch all along, so that a worker which did not renew a lease in that time is gone.

The leader's renewals are the probes. Breaks are
1. a silence: probes were not answered for a while, or this process stood still. A worker renews well before half of its
   lease is over, so only leases shorter than three times the silence can be affected;
2. a jump of the database's clock against our monotonic one, either way: all leases may be affected;
3. a restart of the server, and the beginning: nothing is known about the time before. After a break a lease is spared
   until it has had its full length of time since. A connection that was cut and replaced at once is not a break, and
   neither is a slow duty, because probes never wait for one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from holdfast.maintenance.watch import LeaseWatch

__all__ = ["Answer", "Break", "LeaseJudge", "Patience"]

Cause = Literal["start", "silence", "clock", "restart"]

#: A probe that was late by less than this, or answered this quickly, is not a break.
_NOTICEABLE_SECONDS = 0.5
#: How far two clocks may differ over an interval, in seconds and as a fraction of it, before one of them was set.
_JUMP_SECONDS, _DRIFT = 0.25, 0.1
_FRESH_SECONDS = 0.25
_REMEMBERED_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a probe, with when it was due, asked and answered by the monotonic clock."""

    due_at: float
    asked_at: float
    answered_at: float
    clock: datetime
    server_started: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The moment after which leases up to this length need their full time again before they may be judged."""

    at: float
    up_to_seconds: float
    cause: Cause
    what: str


class LeaseJudge(Protocol):
    """Says which leases may be judged, and watches those that may not."""

    watch: LeaseWatch

    @property
    def clock(self) -> datetime | None:
        """The database's clock at the last answer."""
        ...

    def spared(self) -> tuple[list[float], list[float]]:
        """The lengths of leases that are spared: above the first, and up to the second, of each pair."""
        ...

    def said(self, spared_leases: int) -> str | None:
        """Why leases are spared, unless that was reported already."""
        ...

    async def fresh(self) -> None:
        """Wait until the database has answered just now, so that an earlier standstill has been noticed."""
        ...


class Patience:
    """The breaks that still matter."""

    def __init__(self, probe_soon: Callable[[], None]) -> None:
        self._probe_soon = probe_soon
        self._last: Answer | None = None
        self._answer = asyncio.Event()
        #: Breaks that no later one replaces: from first to last, both their ages and their lengths fall.
        self._breaks: list[Break] = []
        self._lately: deque[Break] = deque(maxlen=200)
        self._spared = 0
        self._said_of: Break | None = None
        self.watch = LeaseWatch()

    @property
    def clock(self) -> datetime | None:
        """The database's clock at the last answer."""
        return None if self._last is None else self._last.clock

    @property
    def seconds(self) -> float:
        """How long there was no break of any kind."""
        return time.monotonic() - self._breaks[-1].at if self._breaks else 0.0

    def spared(self) -> tuple[list[float], list[float]]:
        """The lengths of leases that are spared: above the first, and up to the second, of each pair."""
        now = time.monotonic()
        self._breaks = [b for b in self._breaks if now - b.at < b.up_to_seconds]
        return [now - b.at for b in self._breaks], [b.up_to_seconds for b in self._breaks]

    def said(self, spared_leases: int) -> str | None:
        """Why leases are spared, unless that was reported already."""
        self._spared = spared_leases
        if not spared_leases or not self._breaks or self._said_of is self._breaks[-1]:
            return None
        self._said_of = self._breaks[-1]
        return self._said_of.what

    def report(self) -> dict[str, object]:
        """What an operator should know: breaks of the last ten minutes by cause, the last one, and spared leases."""
        oldest = time.monotonic() - _REMEMBERED_SECONDS
        lately = [b for b in self._lately if b.at >= oldest and b.cause != "start"]
        last = lately[-1].what if lately else None
        return {"breaks": dict(Counter(b.cause for b in lately)), "last_break": last, "spared": self._spared}

    def answered(self, answer: Answer) -> Break | None:
        """Note an answer. Returns the break that it revealed, if there was one."""
        found = self._judged(answer)
        if found is not None:
            self._breaks = [b for b in self._breaks if b.up_to_seconds > found.up_to_seconds]
            self._breaks.append(found)
            self._lately.append(found)
        if self._last is not None and (found is None or found.cause == "clock"):
            self.watch.pass_time(answer.answered_at - self._last.answered_at)
        self._last = answer
        self._answer.set()
        return found

    async def fresh(self) -> None:
        """Wait for an answer to a recent probe."""
        while self._last is None or time.monotonic() - self._last.asked_at > _FRESH_SECONDS:
            self._answer.clear()
            self._probe_soon()
            await self._answer.wait()

    def _judged(self, answer: Answer) -> Break | None:
        last, at, forever = self._last, answer.answered_at, float("inf")
        if last is None:
            return Break(at=at, up_to_seconds=forever, cause="start", what="this process has only begun to look")
        if answer.server_started != last.server_started:
            return Break(at=at, up_to_seconds=forever, cause="restart", what="the server was started anew")
        jump = _jump(last, answer)
        if jump != 0:
            way = "ahead" if jump > 0 else "back"
            what = f"the database's clock jumped {abs(jump):.1f} s {way}"
            return Break(at=at, up_to_seconds=forever, cause="clock", what=what)
        late = answer.answered_at - min(answer.due_at, answer.asked_at)
        if late > _NOTICEABLE_SECONDS:
            silence = answer.answered_at - last.answered_at
            what = f"the database did not answer for {silence:.1f} s, or this process stood still"
            return Break(at=at, up_to_seconds=3 * silence, cause="silence", what=what)
        return None


def _jump(last: Answer, answer: Answer) -> float:
    """By how many seconds the database's clock was set between two answers; 0 if it was not.

    Each clock was read between the question and the answer, so the time in between is known only up to that.
    """
    passed = (answer.clock - last.clock).total_seconds()
    least = answer.asked_at - last.answered_at
    most = answer.answered_at - last.asked_at
    tolerance = _JUMP_SECONDS + _DRIFT * most
    if passed > most + tolerance:
        return passed - most
    if passed < least - tolerance:
        return passed - least
    return 0.0
