"""The attempts that a worker has claimed, from claim to settlement.

The event loop adds, interrupts and removes attempts. The thread that keeps the leases reads a copy and writes
`lease_end`. Each of these is one atomic step of the interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.job import Claim, HandlerFacts
from holdfast.model.outcome import EXCERPT_LIMIT, clean

__all__ = ["Claimed", "ClaimedAttempts", "Interrupt", "whole_ms"]

#: Why a handler must stop: somebody asked for it, the worker drains, or its lease is over.
Interrupt = Literal["cancel", "pause", "drain", "lease"]

_LINES_KEPT = 50


def whole_ms(seconds: float) -> int:
    """Milliseconds as the database stores them: at most 24 days."""
    return min(int(seconds * 1000), 2**31 - 1)


class Claimed:
    """One attempt that this worker has claimed."""

    #: Called at every renewal, for a guard that ends the handler with its lease if the event loop cannot.
    renewed: Callable[[float], None] | None = None
    started: float | None = None
    #: How long its handler may run, from when it has begun.
    timeout_seconds: float | None = None
    duration = 0.0
    #: How long it had a slot before its handler could begin (see holdfast.worker.starts).
    waited = 0.0
    #: The task in which its handler runs; it may run other handlers afterwards.
    task: asyncio.Task[None] | None = None
    shares_task = False
    #: Its handler has ended, and its outcome is being settled or is settled.
    ended = False
    #: Its outcome was passed to settlement.
    settling = False
    interrupt: Interrupt | None = None
    #: The handler must stop.
    stopped = False
    #: When its time is over, and whether it was over before anybody told it to stop (see holdfast.worker.deadlines).
    deadline: float | None = None
    timer: asyncio.TimerHandle | None = None
    #: Since when its time counts, and how often it was given back time that nobody knows who took.
    watched_from = 0.0
    lost_to_unknown = 0
    late = False
    stuck = False
    #: When an async handler or middleware that ignores its cancellation counts as stuck.
    stuck_at: float | None = None
    #: The caller of a handler in a thread has canceled the call.
    call_canceled = False
    #: The handler has seen that it should stop.
    noticed = False
    #: Done when the last thread of its handler has ended. Middleware may have given up the call before.
    thread: asyncio.Future[None] | None = None
    #: The last lines that the handler logged through its context.
    log: deque[str] | None = None
    #: The database has said that the lease is gone.
    lost = False
    #: How often the job was claimed again, and put off, while this attempt still ran.
    put_off = 0
    #: How many reports the handler has sent.
    reports = 0
    #: The result that the handler has set, besides its return value.
    result: Any = None
    #: A result with the text, and an error with the outcome, that its own thread made of it (see
    #: holdfast.worker.threads). Two fields: middleware may return an error, and raise one that a handler has returned.
    written: tuple[Any, Any] | None = None
    described: tuple[BaseException, Any] | None = None
    #: A thread runs the handler, or reads what it has returned or raised.
    in_thread = False
    #: When middleware called the handler for the first time.
    first_called: float | None = None
    #: What its thread has returned or raised, until the event loop reads it.
    ends: list[tuple[Any, BaseException | None]] | None = None
    #: The handler has returned a result.
    returned = False
    #: The handler's own transaction is open; it is about to end the job; it has (see holdfast.worker.transaction).
    transacting = False
    cut_transaction: Callable[[], None] | None = None
    #: The handler has returned or raised; tasks that it left behind no longer belong to the attempt.
    over = False
    _ending = False
    completed = False
    #: The commit that would have ended the job failed, perhaps only on its way back.
    in_doubt = False
    #: A reason to stop that arrived while the job was ending.
    _later: Interrupt | None = None

    def __init__(self, claim: Claim, lane: str, asked_at: float) -> None:
        self.claim = claim
        self.lane = lane
        #: By the lease clock, counted from before the claim was sent: never later than the database's expiry.
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
    def facts(self) -> HandlerFacts:
        """What its handler may know about the job."""
        return self.claim.facts

    @property
    def excerpt(self) -> str | None:
        """The stored part of the handler's log."""
        return clean("\n".join(self.log), EXCERPT_LIMIT) if self.log else None

    @property
    def told_to_stop(self) -> bool:
        """Whether the handler should stop. Reading True counts as noticing it.

        With a target, it also becomes True when the lease is over, without a message from anybody.
        """
        if self.claim.target is not None and not self.stopped and not self.completed and self.lease_end < elapsed():
            self.lapsed()
        self.noticed = self.stopped or self.call_canceled
        return self.noticed

    def kept(self, line: str) -> None:
        """Keep a line that the handler logged."""
        if self.log is None:
            self.log = deque(maxlen=_LINES_KEPT)
        self.log.append(line)

    @property
    def may_be_completed(self) -> bool:
        """Whether its own transaction has ended the job, or may have: nobody holds its target any more."""
        return self.completed or self.in_doubt or self.ending

    @property
    def running(self) -> bool:
        """Whether its handler has begun and not ended."""
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
            # Possibly called from the handler's thread; tasks must be canceled in their own.
            self.task.get_loop().call_soon_threadsafe(self.stop, self._later)

    def stop(self, why: Interrupt) -> None:
        """Ask the handler to end. Only the first reason counts, but a cancel overrides a pause."""
        if self.ending and not self.completed:
            self._later = why
            return
        if self.interrupt is None or (self.interrupt == "pause" and why == "cancel"):
            self.interrupt = why
            self.stopped = True
            # A task that is canceled before its first step never runs, and its attempt would never be settled.
            if self.running and self.started is not None:
                self.task.cancel()  # type: ignore[union-attr]

    def time_out(self) -> None:
        """Mark the attempt as late, unless it was told to stop before: then it is cleaning up."""
        self.late = self.late or self.interrupt is None

    @property
    def timed_out(self) -> bool:
        """Whether it has timed out, whatever stopped it afterwards; a cancel or pause takes precedence."""
        return (self.late or self.stuck) and self.interrupt not in ("cancel", "pause")

    def leave(self) -> None:
        """Note that the handler has returned or raised: its transaction ends with it."""
        self.over = True
        if self.cut_transaction is not None:
            self.cut_transaction()

    def lapsed(self) -> Interrupt:
        """Note that the handler was or is being ended because the lease is over. Returns why it was stopped first."""
        self.interrupt = self.interrupt or "lease"
        self.stopped = True
        return self.interrupt


class ClaimedAttempts:
    """All claimed attempts, by job."""

    def __init__(self) -> None:
        self._claimed: dict[UUID, Claimed] = {}
        self._per_lane: Counter[str] = Counter()

    def add(self, claimed: Claimed) -> None:
        """Add a new claim."""
        replaced = self._claimed.get(claimed.claim.job_id)
        if replaced is not None:
            self._per_lane[replaced.lane] -= 1
        self._claimed[claimed.claim.job_id] = claimed
        self._per_lane[claimed.lane] += 1

    def remove(self, claimed: Claimed) -> None:
        """Remove an attempt that was settled or lost."""
        if self._claimed.get(claimed.claim.job_id) is claimed:
            del self._claimed[claimed.claim.job_id]
            self._per_lane[claimed.lane] -= 1

    def in_lane(self, lane: str) -> int:
        """How many attempts were claimed for a lane and are not settled."""
        return self._per_lane[lane]

    def get(self, job_id: UUID) -> Claimed | None:
        """The claimed attempt of that job."""
        return self._claimed.get(job_id)

    def all(self) -> list[Claimed]:
        """A copy, safe to iterate in any thread."""
        return list(self._claimed.values())

    def adrift(self) -> set[Claimed]:
        """Attempts whose handler or task has ended, but whose outcome was never passed to settlement."""
        return {h for h in self.all() if not h.settling and (h.ended or (h.task is not None and h.task.done()))}

    def overdue(self) -> list[Claimed]:
        """Running attempts of jobs with a target whose lease is over by our own clock.

        If a guard ends the handler at that very moment, a little earlier, so that it can clean up.
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
        return len(self._claimed)
