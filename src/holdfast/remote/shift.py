"""What a remote worker does from its start to its end: pulls, attempts, and the drain.

Handlers run in the caller's event loop, or in threads; all that talks to the server runs in another loop (`link`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.definitions.job_type import JobType
from holdfast.errors import LimitExceeded, ServerUnavailable
from holdfast.lifecycle.portal import Portal
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import COSTS_ATTEMPT, Outcome
from holdfast.model.progress import Report, Reported
from holdfast.remote.client import HttpClient
from holdfast.remote.held import Directive, Held
from holdfast.remote.link import Link, new_request_id
from holdfast.remote.running import RemoteExecution
from holdfast.telemetry.events import AttemptEnded, LeaseLost
from holdfast.worker.claimed import Claimed

__all__ = ["MOST_JOBS", "Shift", "Terms"]

T = TypeVar("T")

#: How many jobs one pull may ask for.
MOST_JOBS = 100
#: How long a pull waits for a job, and how long a worker rests whose pull was answered with nothing new.
_WAIT_SECONDS, _REST_SECONDS = 20, 1.0
#: How long a request id stands for the same jobs, with some time to spare.
_REPEATABLE_SECONDS = 240.0
#: How long a pull may take to be answered once another one has taken its place.
_WITHDRAWAL_SECONDS = 1.0
#: How long a server that refuses pulls is left alone at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: How long interrupted handlers may take to clean up, and a thread to return after its timeout.
_CLEAN_UP_SECONDS, _STUCK_SECONDS = 10.0, 30.0

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a worker was made with."""

    url: str
    key: str | None
    worker_id: str
    app: Holdfast
    types: dict[str, JobType]
    slots: int
    queues: list[str] | None
    lease_seconds: float | None
    grace_seconds: float
    timeout: float
    patience: float


class Shift:
    """A running worker."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self.draining, self.hurried = asyncio.Event(), asyncio.Event()
        self._freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], Held] = {}
        self._portal: Portal
        self._link: Link
        self._execution: RemoteExecution

    def drain(self) -> None:
        """Stop pulling; asked again, interrupt handlers."""
        if self.draining.is_set():
            self.hurried.set()
        self.draining.set()

    async def work(self, resources: Any, *, burst: bool) -> None:
        """Run jobs until told to stop, or until there are none."""
        terms = self._terms
        self._portal = Portal("holdfast-remote")
        http, http_there = (HttpClient(terms.url, terms.key, timeout=terms.timeout) for _ in range(2))
        try:
            self._link = await self._there(self._linked())
            self._execution = RemoteExecution(
                terms.app,
                terms.worker_id,
                resources,
                threads=terms.slots,
                stuck_after_seconds=_STUCK_SECONDS,
                on_stuck=_tell_stuck,
                send=self._report,
                send_there=self._link.report,
                there=self._portal.loop,
                http=http,
                http_there=http_there,
            )
            try:
                await self._pull_until_told(burst=burst)
            finally:
                await self._end()
                await self._there(self._link.close())
        finally:
            await http.close()
            await self._there(http_there.close())
            self._portal.stop()

    async def _linked(self) -> Link:
        terms = self._terms
        return Link(
            terms.url,
            terms.key,
            terms.worker_id,
            timeout=terms.timeout,
            patience=terms.patience,
            tell=lambda held, directive: self._soon(lambda: _tell(held, directive)),
            drain=lambda: self._soon(self.draining.set),
        )

    async def _pull_until_told(self, *, burst: bool) -> None:
        told = self._loop.create_task(self.draining.wait())
        try:
            while not told.done():
                free = self._terms.slots - len(self._running)
                if free <= 0:
                    await self._one_ends(told)
                    continue
                jobs = await self._pulled(told, free, 0 if burst else _WAIT_SECONDS)
                for held in jobs:
                    self._start(held)
                if burst and not jobs and not told.done():
                    if not self._running:
                        return
                    await self._one_ends(told)
        finally:
            told.cancel()

    async def _pulled(self, told: asyncio.Task[Any], free: int, wait: float) -> list[Held]:
        """Jobs from one pull, which is repeated as itself until it is answered."""
        pause, began = _FIRST_PAUSE, time.monotonic()
        asked: dict[str, Any] = {
            "types": list(self._terms.types),
            "queues": self._terms.queues,
            "lease_sec": self._terms.lease_seconds,
            "request_id": new_request_id(),
        }
        while time.monotonic() - began < _REPEATABLE_SECONDS:
            sent = time.monotonic()
            pull = self._loop.create_task(self._there(self._link.pull(**asked, max=free, wait_sec=wait)))
            await asyncio.wait({told, pull}, return_when=asyncio.FIRST_COMPLETED)
            if not pull.done():
                await self._withdraw(pull, asked)
                return []
            try:
                jobs, news = pull.result()
            except (ServerUnavailable, LimitExceeded) as fault:
                _log.warning("no jobs can be pulled: %s", fault)
                await asyncio.wait({told}, timeout=pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter is no secret
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            if wait and not news and time.monotonic() - sent < _REST_SECONDS:
                await asyncio.wait({told}, timeout=_REST_SECONDS)
            return jobs
        return []

    async def _withdraw(self, pull: asyncio.Task[tuple[list[Held], bool]], asked: dict[str, Any]) -> None:
        """Give up a pull that waits. Its answer may be on the way, or it may reach the server only now."""
        for _ in range(2):
            await self._there(self._link.withdraw(**asked))
            await asyncio.wait({pull}, timeout=_WITHDRAWAL_SECONDS)
            if pull.done():
                break
            pull.cancel()  # the server notices that nobody waits any more
        if pull.done() and not pull.cancelled() and pull.exception() is None:
            for held in pull.result()[0]:
                await self._there(self._link.settle(held, Outcome.handed_back("the worker drained")))

    async def _one_ends(self, told: asyncio.Task[Any]) -> None:
        """Wait until a job has ended, or the worker is told to stop."""
        self._freed.clear()
        freed = self._loop.create_task(self._freed.wait())
        await asyncio.wait({told, freed}, return_when=asyncio.FIRST_COMPLETED)
        freed.cancel()

    def _start(self, held: Held) -> None:
        held.task = task = self._loop.create_task(self._attempt(held), name=f"{held.type} {held.job_id}")
        self._running[task] = held
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._freed.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("an attempt could not be settled: %s", fault, exc_info=fault)

    async def _attempt(self, held: Held) -> None:
        """Run one attempt, and tell how it ended."""
        job_type = self._terms.types[held.type]
        timeouts = [seconds for seconds in (held.timeout, job_type.timeout_seconds) if seconds is not None]
        try:
            outcome = await self._execution.run(held, job_type, min(timeouts, default=None))
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            outcome = Outcome.failed(error)
        held.stuck_at, held.ended = None, True
        state = await self._there(self._link.settle(held, outcome))
        self._narrate(held, outcome, state)

    def _narrate(self, held: Held, outcome: Outcome, state: str | None) -> None:
        claim, emit = held.claim, self._terms.app.events.emit
        worker = self._terms.worker_id
        if held.lost:
            emit(LeaseLost(job_id=claim.job_id, type=held.type, attempt=claim.attempt, worker=worker))
            return
        if held.has_enough:
            if outcome.kind != "success":
                _log.warning("%s: after its job had ended with enough items: %s", held.type, outcome.message)
            outcome, state = Outcome.success(None), "success"
        if state is None:
            return
        emit(
            AttemptEnded(
                job_id=claim.job_id,
                type=held.type,
                tenant=claim.stream.tenant,
                queue=claim.stream.queue,
                attempt=claim.attempt,
                outcome=outcome.kind,
                state=state,
                failures=claim.failures + (outcome.kind in COSTS_ATTEMPT),
                duration_seconds=held.duration,
                queue_seconds=0.0,
                correlation_id=claim.correlation_id,
                worker=worker,
                error_type=outcome.error_type,
                error=outcome.message,
            )
        )

    async def _end(self) -> None:
        """Let handlers finish within the grace, interrupt the rest, and hand back what does not end."""
        if self._running:
            _log.info("worker drains: %s jobs are running", len(self._running))
        hurried = self._loop.create_task(self.hurried.wait())
        end = time.monotonic() + self._terms.grace_seconds
        while self._running and not self.hurried.is_set() and (left := end - time.monotonic()) > 0:
            await asyncio.wait({hurried, *self._running}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        for held in list(self._running.values()):
            held.stop("drain")
        if self._running:
            await asyncio.wait(set(self._running), timeout=_CLEAN_UP_SECONDS)
        for held in list(self._running.values()):
            _log.warning("%s does not end; its job is handed back", held.type)
            await self._there(self._link.settle(held, Outcome.handed_back("the worker drained")))
        self._execution.shutdown()

    async def _report(self, job_id: UUID, attempt: int, number: int, report: Report) -> Reported:
        return await self._there(self._link.report(job_id, attempt, number, report))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop that talks to the server."""
        return await asyncio.wrap_future(self._portal.start(work))

    def _soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(callback)


def _tell(held: Held, directive: Directive) -> None:
    """A job is told to stop."""
    if held.running:
        held.stop("lease" if directive in ("lost", "lapsed") else "pause" if directive == "pause" else "cancel")


def _tell_stuck(claimed: Claimed) -> None:
    _log.warning("%s ran for too long, and does not return; it keeps its slot", claimed.type)
