"""What the routes of one app share: authentication, metrics, limits, and whether the server is about to stop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

from fastapi import Request

from holdfast.app import Holdfast
from holdfast.client.control import ControlPlane, PublicJob
from holdfast.client.operations import Operations
from holdfast.lifecycle.service import Outage
from holdfast.model.key import Caller, EventsToken
from holdfast.web.answers import Answers
from holdfast.web.auth import Auth
from holdfast.web.backlog import Backlog
from holdfast.web.bodies import unhurried
from holdfast.web.health import Readiness
from holdfast.web.metrics import Metrics
from holdfast.web.problems import Problem

__all__ = ["AppState", "gone"]

T = TypeVar("T")
#: How many callers may wait at a time, in streams and long polls, in one process: in all, and with one key. A tenant
#: may have half of them, and only as many as are still free, so that even ten greedy tenants leave room for others.
#: A stream takes 40 KB of memory. The tokens that a key has issued have as many as the key, beside those, and one token
#: has a few: so the visitor of a page takes them neither from the key nor from other pages.
_WAITING, _WAITING_PER_KEY, _WAITING_PER_TOKEN = 4000, 500, 8
#: How many calls of remote workers may wait; a tenant may have half of them, with one key or with many.
_WORKERS = 5000


class AppState:
    """One app's."""

    def __init__(self, hf: Holdfast, auth: Auth, metrics: Metrics, outage: Outage) -> None:
        self.hf, self.auth, self.metrics, self.outage = hf, auth, metrics, outage
        self.answers, self.readiness, self.backlog = Answers(), Readiness(self), Backlog(hf)
        self._stop = asyncio.Event()
        self._waiting: Counter[tuple[UUID | None, bool]] = Counter()  # with a key, or (True) with its tokens
        self._waiting_with_token: Counter[EventsToken] = Counter()
        self._waiting_of_tenant: Counter[str] = Counter()
        self._workers_of_tenant: Counter[str] = Counter()  # whose calls wait
        #: Whether a load balancer should choose another server.
        self.leaving = False

    @property
    def draining(self) -> bool:
        """Whether the server is about to stop."""
        return self._stop.is_set()

    def leave(self) -> None:
        """The server stops soon: `/readyz` says so, and everything else continues."""
        self.leaving = True

    def drain(self) -> None:
        """The server is about to stop: callers that wait are answered now."""
        self.leaving = True
        self._stop.set()

    async def control(self) -> ControlPlane:
        """The verbs of the control plane."""
        return await self.hf.control()

    async def operations(self) -> Operations:
        """The verbs of operators."""
        return await self.hf.operations()

    def begin_to_wait(self, caller: Caller) -> None:
        """Somebody is going to wait; a problem if too many do. `end_to_wait` must follow."""
        own, of_tenant = self._waiting[_whose(caller)], self._waiting_of_tenant[caller.tenant]
        if caller.token is not None and self._waiting_with_token[caller.token] >= _WAITING_PER_TOKEN:
            raise _too_many_open("This token", _WAITING_PER_TOKEN)
        if caller.key_id is not None and own >= _WAITING_PER_KEY:
            raise _too_many_open("This key" if caller.token is None else "The tokens of a key", _WAITING_PER_KEY)
        if of_tenant >= _WAITING // 2 > 0:
            raise _too_many_open("This tenant", _WAITING // 2)
        if of_tenant >= _WAITING - self._waiting_of_tenant.total():
            raise Problem(503, "unavailable", "Too many callers already wait for jobs.")
        self._waiting[_whose(caller)] += 1
        if caller.token is not None:
            self._waiting_with_token[caller.token] += 1
        self._waiting_of_tenant[caller.tenant] += 1

    def end_to_wait(self, caller: Caller) -> None:
        """They do not any more."""
        _count_down(self._waiting, _whose(caller))
        if caller.token is not None:
            _count_down(self._waiting_with_token, caller.token)
        _count_down(self._waiting_of_tenant, caller.tenant)

    async def unless_in_vain(self, request: Request, caller: Caller, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work that waits; None if the caller has gone meanwhile, or the server is about to stop.

        The work is canceled then. A problem as soon as the caller would not be let in any more.
        """
        if self._workers_of_tenant[caller.tenant] >= _WORKERS // 2:
            work.close()
            raise _too_many_open("The workers of this tenant", _WORKERS // 2)
        if self._workers_of_tenant.total() >= _WORKERS:
            work.close()
            raise Problem(503, "unavailable", "Too many workers already wait for jobs.")
        self._workers_of_tenant[caller.tenant] += 1
        task = asyncio.ensure_future(work)
        others = [
            asyncio.ensure_future(other)
            for other in (self._stop.wait(), gone(request), self.auth.until_refused(request, caller))
        ]
        try:
            await asyncio.wait({task, *others}, return_when=asyncio.FIRST_COMPLETED)
            if others[2].done():
                await self.auth.look_again(request)
            return task.result() if task.done() else None
        finally:
            _count_down(self._workers_of_tenant, caller.tenant)
            for one in (task, *others):
                one.cancel()

    async def changed(
        self,
        request: Request,
        caller: Caller,
        job: PublicJob,
        seconds: float,
        *,
        unless: asyncio.Future[None] | None = None,
    ) -> PublicJob:
        """The job once it has changed, or as it was when the time is over, or the server is about to stop.

        Or when `unless` is done: the caller is gone. A problem as soon as the caller would not be let in any more.
        """
        control = await self.control()
        watch = asyncio.ensure_future(control.changed(job, seconds))
        stop = asyncio.ensure_future(self._stop.wait())
        refused = asyncio.ensure_future(self.auth.until_refused(request, caller))
        try:
            ends = {watch, stop, refused} | ({unless} if unless else set())
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            changed = watch.result() if watch.done() else job
            if watch.done() or refused.done():
                await self.auth.look_again(request)  # no news for a key that has ended, however late that is noticed
            return changed
        except TimeoutError:
            return job
        finally:
            for task in (watch, stop, refused):
                task.cancel()

    async def ended(self, request: Request, caller: Caller, job: PublicJob, seconds: float) -> PublicJob:
        """The job when it has ended, or as it stands when the time is over or nobody waits for it any more."""
        end = time.monotonic() + seconds
        self.begin_to_wait(caller)
        left_us = asyncio.ensure_future(gone(request))
        try:
            while not (job.state.terminal or self.draining or left_us.done()) and (left := end - time.monotonic()) > 0:
                job = await self.changed(request, caller, job, left, unless=left_us)
        finally:
            left_us.cancel()
            self.end_to_wait(caller)
        return job


def _whose(caller: Caller) -> tuple[UUID | None, bool]:
    return caller.key_id, caller.token is not None


def _count_down(counted: Counter[T], who: T) -> None:
    counted[who] -= 1
    if not counted[who]:
        del counted[who]


def _too_many_open(whose: str, most: int) -> Problem:
    detail = f"{whose} may have at most {most} streams and waits open."
    return Problem(429, "streams-limit", detail, headers={"Retry-After": "5"})


async def gone(request: Request) -> None:
    """Returns when the caller has closed the connection; whatever is still sent is dropped."""
    receive = unhurried(request.receive)
    while (await receive())["type"] != "http.disconnect":
        pass
