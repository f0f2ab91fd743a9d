"""A remote worker's connection with its server, in an event loop and a thread of its own.

1. Whatever a handler does to the worker's event loop, leases are renewed here, and reports are sent.
2. A lease is renewed when less than half of it is left, several in one request.
3. Somebody always listens: while jobs run and no pull waits, a waiting `extend` hears of a cancel or pause.
4. A handler with a target is stopped when its lease is over by our own clock: the next job of the target may run.
5. A directive is obeyed once. Told jobs are left out of what waits, so that an answer that says it again is not waited
   for in a circle; their leases are renewed until their handlers have ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.outcome import Outcome
from holdfast.model.progress import Report, Reported
from holdfast.remote.held import Directive, Held
from holdfast.remote.protocol import WorkerCalls
from holdfast.remote.settling import ENOUGH, reported, running, settle
from holdfast.remote.transport import Transport

__all__ = ["Link", "new_request_id"]

#: How often leases are looked at, and for how long a waiting request lasts.
_LOOK_SECONDS, _WAIT_SECONDS = 0.25, 20
#: How long nothing must change before a waiting `extend` begins: a worker with short jobs needs none. And how long to
#: rest after one that did not wait.
_CALM_SECONDS, _REST_SECONDS = 0.05, 1.0
#: How long one try of a renewal may take, and all tries together; then the leases are looked at again.
_RENEWAL_SECONDS, _RENEWAL_PATIENCE = 5.0, 2.0
#: How long a pull is repeated before somebody is told that the server is away.
_PULL_PATIENCE = 5.0

_log = logging.getLogger("holdfast")


class Link:
    """Pulls, reports and renewals of one worker. `tell` gets what a job is told; `drain` is for the worker itself."""

    def __init__(
        self,
        url: str,
        key: str | None,
        worker_id: str,
        *,
        timeout: float,
        patience: float,
        tell: Callable[[Held, Directive], None],
        drain: Callable[[], None],
    ) -> None:
        self._transports = [
            Transport(url, key, timeout=timeout, patience=patience),
            Transport(url, key, timeout=min(timeout, _RENEWAL_SECONDS), patience=_RENEWAL_PATIENCE),
            Transport(url, key, timeout=timeout, patience=min(patience, _PULL_PATIENCE)),
        ]
        self._calls, self._leases, self._pulls = (
            WorkerCalls(transport, worker_id, patience=patience) for transport in self._transports
        )
        self._tell, self._drain = tell, drain
        self._held: dict[tuple[str, int], Held] = {}
        self._loop = asyncio.get_running_loop()
        self._pulling = False
        self._changed = asyncio.Event()
        self._tasks = [self._loop.create_task(self._keep()), self._loop.create_task(self._listen())]

    async def close(self) -> None:
        """End what runs here, and give the connections back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self._transports:
            await transport.close()

    @property
    def held(self) -> list[Held]:
        """The jobs that this worker holds; a copy, for any thread."""
        return list(self._held.values())

    async def pull(self, *, wait_sec: float, request_id: str, **asked: Any) -> tuple[list[Held], bool]:
        """New jobs, and whether the answer said anything at all."""
        self._pulling = wait_sec > 0
        self._notice()
        try:
            answer = await self._pulls.pull(wait_sec, request_id=request_id, **asked)
        finally:
            self._pulling = False
            self._notice()
        jobs = [self._hold(job) for job in answer["jobs"] if (job["job_id"], job["attempt"]) not in self._held]
        news = self._obey(answer.get("interrupts", ()))
        if answer.get("directive") == "drain":
            self._drain()
        return jobs, bool(jobs or news)

    async def withdraw(self, request_id: str, **asked: Any) -> None:
        """Take the place of a pull that waits, and hand back what it would have got."""
        try:
            answer = await self._leases.pull(request_id=request_id, max=1, **asked)
            leases = [{"job_id": job["job_id"], "attempt": job["attempt"]} for job in answer["jobs"]]
            if leases:
                await self._leases.release(leases, "the worker drained")
        except HoldfastError as fault:
            _log.debug("a waiting pull could not be withdrawn: %s", fault)

    async def report(self, job_id: UUID, attempt: int, number: int, report: Report) -> Reported:
        """Send what a handler reports, after its earlier reports. Raises LeaseLost if another worker has the job."""
        held = self._held.get((str(job_id), attempt))
        if held is None or held.lost:
            raise LeaseLost(
                "the lease is lost, and the job somebody else's: nothing is stored for this attempt any more"
            )
        held.done_reason = report.done_reason or held.done_reason
        async with held.turn:
            if held.has_enough:
                raise HoldfastError(ENOUGH)
            try:
                answer = await self._calls.report(running(held, number, report))
            except LeaseLost:
                self._lose(held)
                raise
        held.has_enough = not answer["owned"] and answer["state"] == "success"
        self._heed(held, answer)
        return reported(held, answer)

    async def settle(self, held: Held, outcome: Outcome) -> str | None:
        """Tell how an attempt ended, and let go of it. Returns what became of the job, if it was told."""
        try:
            async with held.turn:
                return await settle(self._calls, held, outcome)
        finally:
            self._held.pop(held.names, None)
            self._notice()

    def let_go(self, held: Iterable[Held]) -> None:
        """Renew these leases no longer."""
        for one in held:
            self._held.pop(one.names, None)

    async def _keep(self) -> None:
        while True:
            due = [held for held in self._held.values() if held.open and held.is_due]
            if due:
                await self._extend(due)
            for held in list(self._held.values()):
                if held.is_over and held.obeyed == "continue":
                    self._pass_on(held, "lapsed")
            await asyncio.sleep(min([_LOOK_SECONDS, *(held.lease_seconds / 8 for held in self._held.values())]))

    async def _listen(self) -> None:
        while True:
            self._changed.clear()
            untold = [held for held in self._held.values() if held.open and held.obeyed == "continue"]
            if self._pulling or not untold:
                await self._changed.wait()
            if await self._changes_within(_CALM_SECONDS) or self._pulling or not untold:
                continue
            began = self._loop.time()
            waiting = self._loop.create_task(self._extend(untold, wait_sec=_patient(untold)))
            changed = self._loop.create_task(self._changed.wait())
            try:
                await asyncio.wait({waiting, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                changed.cancel()
            if waiting.done() and not waiting.cancelled() and self._loop.time() - began < _REST_SECONDS:
                await self._changes_within(_REST_SECONDS)  # a server that does not wait must not be asked in a circle

    async def _changes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _extend(self, held: Sequence[Held], wait_sec: float = 0) -> None:
        """Renew leases, or listen for what their jobs are told. A server that is away is tried again a little later."""
        try:
            answer = await self._leases.extend([one.key for one in held], wait_sec)
        except HoldfastError as fault:
            _log.debug("leases could not be renewed: %s", fault)
            await asyncio.sleep(_LOOK_SECONDS)
            return
        for lease in answer["leases"]:
            one = self._held.get((lease["job_id"], lease["attempt"]))
            if one is None:
                continue
            if lease["owned"]:
                self._heed(one, lease)
            elif one.open:
                self._lose(one)
        if answer.get("directive") == "drain":
            self._drain()

    def _hold(self, job: Mapping[str, Any]) -> Held:
        held = Held(job)
        self._held[held.names] = held
        self._notice()
        return held

    def _obey(self, interrupts: Iterable[Mapping[str, Any]]) -> bool:
        """Pass on what jobs are told. Returns whether any of it is new."""
        news = False
        for told in interrupts:
            held = self._held.get((told["job_id"], told["attempt"]))
            if held is not None and held.obeyed != told["directive"]:
                news = True
                self._pass_on(held, told["directive"])
        return news

    def _heed(self, held: Held, answer: Mapping[str, Any]) -> None:
        held.prolonged(answer.get("lease_remaining_ms") if answer["owned"] else None)
        if answer["directive"] == "drain":
            self._drain()
        elif answer["directive"] != held.obeyed and answer["directive"] != "continue":
            self._pass_on(held, answer["directive"])

    def _lose(self, held: Held) -> None:
        if not held.lost:
            held.lost = True
            self._pass_on(held, "lost")

    def _pass_on(self, held: Held, directive: Directive) -> None:
        held.obeyed = directive
        held.lost = held.lost or directive == "lost"
        self._notice()
        self._tell(held, directive)

    def _notice(self) -> None:
        self._changed.set()


def new_request_id() -> str:
    """A name for one pull, which all its repeats share."""
    return uuid4().hex


def _patient(held: Sequence[Held]) -> int:
    """How long a waiting request may last: no lease must be over before it is answered and renewed."""
    shortest = min(one.lease_end for one in held) - elapsed()
    return max(1, min(_WAIT_SECONDS, int(shortest / 2)))
