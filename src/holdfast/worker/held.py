"""The attempts that a worker holds, from claim to settlement.

Shared between the event loop, which adds, interrupts and removes, and the thread that keeps the leases,
which reads a copy and writes `lease_end`. Each of these is one atomic step of the interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.job import Claim
from holdfast.model.outcome import EXCERPT_LIMIT, clean

__all__ = ["Held", "HeldAttempts", "Interrupt", "whole_ms"]

#: Why a handler is to stop: asked by somebody, the worker drains, or its lease is over.
Interrupt = Literal["cancel", "pause", "drain", "lease"]

_LINES_KEPT = 50


def whole_ms(seconds: float) -> int:
    """As the database counts: up to 24 days."""
    return min(int(seconds * 1000), 2**31 - 1)


class Held:
    """One attempt in this worker's hands."""

    #: Told of every renewal: who ends the handler with its lease where the event loop cannot.
    renewed: Callable[[float], None] | None = None
    started: float | None = None
    duration = 0.0
    #: How long it had a slot before its handler could begin (see holdfast.worker.starts).
    waited = 0.0
    #: The task that its handler runs in, which may run others after it.
    task: asyncio.Task[None] | None = None
    shares_task = False
    #: Its handler is over, and its outcome is on the way, or settled.
    ended = False
    #: Its outcome was given to those who settle.
    settling = False
    interrupt: Interrupt | None = None
    #: The handler is to stop.
    stopped = False
    #: When its time is over, and that it was before anybody told it to stop (see holdfast.worker.deadlines).
    deadline: float | None = None
    timer: asyncio.TimerHandle | None = None
    late = False
    stuck = False
    #: When what ignores its cancellation in the event loop is called stuck: an async handler, or middleware.
    stuck_at: float | None = None
    #: The handler has seen that it should stop.
    noticed = False
    #: The last lines that the handler logged through its context.
    log: deque[str] | None = None
    #: The database has said that the lease is gone.
    lost = False
    #: How many reports the handler has sent.
    reports = 0
    #: What the handler has set as its result, apart from what it returns.
    result: Any = None
    #: A result or an error with what its own thread has made of it (see holdfast.worker.execution).
    written: tuple[Any, Any] | None = None
    #: It has returned one as well.
    returned = False
    #: The handler's own transaction is open, is about to end the job, and has (see holdfast.worker.transaction).
    transacting = False
    cut_transaction: Callable[[], None] | None = None
    #: The handler has returned or raised; whatever it left behind has no part in the attempt.
    over = False
    _ending = False
    completed = False
    #: What the handler was told to stop for while its job was ending.
    _later: Interrupt | None = None

    def __init__(self, claim: Claim, lane: str, asked_at: float) -> None:
        self.claim = claim
        self.lane = lane
        #: By the clock for leases, counted from before the claim was sent: never later than the database's.
        self.lease_end = asked_at + claim.lease_seconds

    @property
    def job_id(self) -> UUID:
        """The job."""
        return self.claim.job_id

    @property
    def type(self) -> str:
        """The job's type."""
        return self.claim.stream.type

    @property
    def attempt(self) -> int:
        """The number of this attempt."""
        return self.claim.attempt

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.claim.stream.tenant

    @property
    def correlation_id(self) -> str:
        """What ties the job to others."""
        return self.claim.correlation_id

    @property
    def cursor(self) -> str | None:
        """Where the attempts before it had come to, as JSON text."""
        return self.claim.cursor

    @property
    def failures(self) -> int:
        """How many of the attempts before it counted as failures."""
        return self.claim.failures

    @property
    def max_attempts(self) -> int:
        """How many failures end the job."""
        return self.claim.max_attempts

    @property
    def traceparent(self) -> str | None:
        """The trace that the job belongs to."""
        return self.claim.traceparent

    @property
    def excerpt(self) -> str | None:
        """What is kept of the handler's log."""
        return clean("\n".join(self.log), EXCERPT_LIMIT) if self.log else None

    @property
    def told_to_stop(self) -> bool:
        """Whether the handler is to stop. Whoever asks, and hears that it is, has noticed.

        With a target it is once the lease is over, though nobody is left who would say so.
        """
        if self.claim.target is not None and not self.stopped and not self.completed and self.lease_end < elapsed():
            self.lapsed()
        self.noticed = self.stopped
        return self.noticed

    def kept(self, line: str) -> None:
        """Keep a line that the handler logged."""
        if self.log is None:
            self.log = deque(maxlen=_LINES_KEPT)
        self.log.append(line)

    @property
    def running(self) -> bool:
        """Whether its handler has begun and is not over."""
        return self.task is not None and not self.ended

    @property
    def running_ms(self) -> int:
        """How long its handler has run so far."""
        return 0 if self.started is None else whole_ms(time.monotonic() - self.started)

    @property
    def ending(self) -> bool:
        """Whether the handler's own transaction is about to end the job: a success that is committed first wins."""
        return self._ending

    @ending.setter
    def ending(self, value: bool) -> None:
        self._ending = value
        if not value and self._later is not None and self.task is not None:
            # Perhaps from the handler's thread; tasks are cancelled in their own.
            self.task.get_loop().call_soon_threadsafe(self.stop, self._later)

    def stop(self, why: Interrupt) -> None:
        """Ask the handler to end. Only the first reason counts, but a cancel outranks a pause."""
        if self.ending and not self.completed:
            self._later = why
            return
        if self.interrupt is None or (self.interrupt == "pause" and why == "cancel"):
            self.interrupt = why
            self.stopped = True
            # A task that is cancelled before its first step never runs, and would never be settled.
            if self.running and self.started is not None:
                self.task.cancel()  # type: ignore[union-attr]

    def time_out(self) -> None:
        """Its time is over. A handler that was told to stop before that is cleaning up, and is not late."""
        self.late = self.late or self.interrupt is None

    @property
    def timed_out(self) -> bool:
        """Whether it has timed out, whatever stops it afterwards; what somebody asked for goes first all the same."""
        return (self.late or self.stuck) and self.interrupt not in ("cancel", "pause")

    def leave(self) -> None:
        """The handler has returned or raised: its transaction ends with it."""
        self.over = True
        if self.cut_transaction is not None:
            self.cut_transaction()

    def lapsed(self) -> Interrupt:
        """The lease is over, and the handler has been, or is being, ended for it: why, if nothing else was before."""
        self.interrupt = self.interrupt or "lease"
        self.stopped = True
        return self.interrupt


class HeldAttempts:
    """All attempts held, by job."""

    def __init__(self) -> None:
        self._held: dict[UUID, Held] = {}
        self._per_lane: Counter[str] = Counter()

    def add(self, held: Held) -> None:
        """A claim was given to us."""
        replaced = self._held.get(held.claim.job_id)
        if replaced is not None:
            self._per_lane[replaced.lane] -= 1
        self._held[held.claim.job_id] = held
        self._per_lane[held.lane] += 1

    def remove(self, held: Held) -> None:
        """It was settled, or lost."""
        if self._held.get(held.claim.job_id) is held:
            del self._held[held.claim.job_id]
            self._per_lane[held.lane] -= 1

    def in_lane(self, lane: str) -> int:
        """How many were claimed for a lane and are not settled."""
        return self._per_lane[lane]

    def get(self, job_id: UUID) -> Held | None:
        """The attempt held of that job."""
        return self._held.get(job_id)

    def all(self) -> list[Held]:
        """A copy, safe to walk in any thread."""
        return list(self._held.values())

    def adrift(self) -> set[Held]:
        """Those whose handler is over, or whose task is, and whose outcome nobody was given."""
        return {h for h in self.all() if not h.settling and (h.ended or (h.task is not None and h.task.done()))}

    def overdue(self) -> list[Held]:
        """Running attempts of jobs with a target whose lease is over by our own clock.

        Where a guard ends the handler at that very moment, a little earlier: it may clean up.
        """
        now = elapsed()
        return [
            h
            for h in self.all()
            if h.claim.target is not None
            and h.running
            and not h.completed
            and h.lease_end - (0 if h.renewed is None else h.claim.lease_seconds / 6) < now
        ]

    def __len__(self) -> int:
        return len(self._held)
