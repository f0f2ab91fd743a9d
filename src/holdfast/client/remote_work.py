"""What workers over HTTP may do, within their tenant: pull jobs, report about them, keep and hand back their leases."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast.client.bulletin import JobNews
from holdfast.client.desk import Desk, Waiter
from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.model.remote import LeaseAsk, LeaseTold, PullAsk, PullTold, PullWish, ReleaseAsk, ReportAsk, ReportTold
from holdfast.store.database import Database
from holdfast.store.remote import News, RemoteStore
from holdfast.store.remote_calls import Handed, remote_calls

__all__ = ["PullAnswer", "RemoteWork", "worker_name"]

#: For how long what a worker pulls is known, and of how many workers.
_KNOWN_SECONDS, _KNOWN = 60.0, 20_000
_STOPS = frozenset({"cancel", "pause"})


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The answer to a pull: jobs, and what the worker should know about those that it has already."""

    told: PullTold
    interrupts: list[JobNews]


def worker_name(caller: Caller, worker_id: str) -> str:
    """How a worker is stored: under its key, so that no worker can use another's name."""
    return f"remote:{caller.key_id or 'open'}:{worker_id}"


class RemoteWork:
    """The verbs of remote workers, over a database in the role `remote`."""

    def __init__(self, database: Database) -> None:
        store = RemoteStore(database)
        self._pulls, self._reports, self._extensions, self._releases = remote_calls(store)
        self._desk = Desk(store, database.config)
        #: The hash of what workers have pulled lately: they are registered with it.
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        #: Pulls with a request id that wait, by worker and request id.
        self._pending: dict[tuple[str, str], Waiter] = {}

    async def close(self) -> None:
        """Stop waiting for anything."""
        await self._desk.close()

    async def pull(
        self, caller: Caller, worker_id: str, wish: PullWish, *, request_id: str | None, seconds: float
    ) -> PullAnswer:
        """Claim jobs for a worker; wait for some if there are none."""
        worker = worker_name(caller, worker_id)
        ask = PullAsk(caller.tenant, worker, request_id, wish.text())
        self._desk.call(worker)
        if request_id is not None and (earlier := self._pending.get((worker, request_id))) is not None:
            earlier.wake("replaced")
        told = await self._pulled(ask, wish, seconds)
        drains = not told.jobs and self._desk.bulletin.is_quiet(worker)
        return PullAnswer(
            PullTold(jobs=told.jobs, directive="drain" if drains else "continue", repeated=told.repeated),
            self._desk.bulletin.tell(worker),
        )

    async def hand_back(self, caller: Caller, worker_id: str, told: PullTold) -> None:
        """Hand back the jobs of a pull whose caller has gone; not if another of its pulls was given them, too."""
        if told.jobs and not told.repeated:
            leases = [(job.job_id, job.attempt) for job in told.jobs]
            await self.release(caller, worker_id, leases, reason="whoever pulled it had gone")

    async def report(
        self, caller: Caller, worker_id: str, reports: Sequence[tuple[UUID, int, str]]
    ) -> list[ReportTold | HoldfastError]:
        """Record reports of a worker (job, attempt, JSON text); an error of one of them is its own answer."""
        worker = worker_name(caller, worker_id)
        self._desk.call(worker)
        return await self._reports.ask([ReportAsk(caller.tenant, worker, *report) for report in reports])

    async def extend(
        self, caller: Caller, worker_id: str, leases: Sequence[tuple[UUID, int, float | None]], *, seconds: float = 0
    ) -> list[LeaseTold]:
        """Prolong leases of a worker (job, attempt, seconds). Waits until one of its jobs is to stop, or is lost.

        It waits for half of the shortest lease at most: only calls of the worker keep its leases.
        """
        worker = worker_name(caller, worker_id)
        self._desk.call(worker)
        asks = [LeaseAsk(caller.tenant, worker, *lease) for lease in leases]
        told = await self._extended(asks)
        seconds = min(seconds, *map(_patience, told))
        if seconds > 0 and not self._is_new(asks, told):
            if await self._desk.wait(self._desk.join(worker, None, 0), seconds) == "replaced":
                return told
            told = await self._extended([ask._replace(seconds=None) for ask in asks])
        for ask, one in zip(asks, told, strict=True):
            self._desk.bulletin.note(worker, ask.job_id, ask.attempt, one.directive if one.owned else "lost")
        return told

    async def release(
        self, caller: Caller, worker_id: str, leases: Sequence[tuple[UUID, int]], *, reason: str | None
    ) -> list[Handed | HoldfastError]:
        """Hand back jobs of a worker. Answers each job's state; none for a lease that is lost."""
        worker = worker_name(caller, worker_id)
        self._desk.call(worker)
        return await self._releases.ask([ReleaseAsk(caller.tenant, worker, *lease, reason) for lease in leases])

    async def _pulled(self, ask: PullAsk, wish: PullWish, seconds: float) -> PullTold:
        end = time.monotonic() + seconds
        claims = seconds <= 0 or not self._is_hopeless(ask, wish)
        if not claims and ask.request_id is not None:
            claims = await self._desk.is_repeat(ask)
        waiter: Waiter | None = None
        nothing = PullTold(jobs=[], directive="continue", repeated=False)
        try:
            while True:
                if claims:
                    told = await self._claimed(ask, wish)
                    if waiter is not None:
                        self._desk.claimed(waiter)
                    if told.directive == "drain":
                        self._desk.bulletin.add([News(ask.worker, None, None, "drain")])
                    if told.jobs:
                        return told
                left = end - time.monotonic()
                if left <= 0 or self._desk.bulletin.is_new(ask.worker):
                    return nothing
                waiter = self._join(ask, wish, None if waiter is None else waiter.place)
                why = await self._desk.wait(waiter, left)
                if why is None or why == "replaced":
                    return nothing
                claims = why == "turn"
        finally:
            if waiter is not None:
                self._desk.claimed(waiter, given_up=True)
                self._forget(ask, waiter)

    def _join(self, ask: PullAsk, wish: PullWish, place: int | None) -> Waiter:
        group = (
            None if self._desk.bulletin.is_quiet(ask.worker) else self._desk.group(ask.tenant, wish.types, wish.queues)
        )
        waiter = self._desk.join(ask.worker, group, wish.most, place)
        if ask.request_id is not None:
            self._pending[ask.worker, ask.request_id] = waiter
        return waiter

    def _forget(self, ask: PullAsk, waiter: Waiter) -> None:
        key = (ask.worker, ask.request_id or "")
        if self._pending.get(key) is waiter:
            del self._pending[key]

    def _is_hopeless(self, ask: PullAsk, wish: PullWish) -> bool:
        """Whether there is certainly nothing for a worker that is registered with what it wants."""
        known = self._known.get(ask.worker)
        return (
            known is not None
            and known[0] == hash(wish)
            and time.monotonic() - known[1] < _KNOWN_SECONDS
            and self._desk.is_empty(self._desk.group(ask.tenant, wish.types, wish.queues))
        )

    async def _claimed(self, ask: PullAsk, wish: PullWish) -> PullTold:
        (told,) = await self._pulls.ask([ask])
        if isinstance(told, HoldfastError):
            raise told
        self._known[ask.worker] = hash(wish), time.monotonic()
        self._known.move_to_end(ask.worker)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return told

    async def _extended(self, asks: Sequence[LeaseAsk]) -> list[LeaseTold]:
        told: list[LeaseTold] = []
        for one in await self._extensions.ask(asks):
            if isinstance(one, HoldfastError):
                raise one
            told.append(one)
        return told

    def _is_new(self, asks: Sequence[LeaseAsk], told: Sequence[LeaseTold]) -> bool:
        """Whether a worker hears something that it has not been told lately."""
        bulletin = self._desk.bulletin
        return any(
            bulletin.new(ask.worker, ask.job_id, ask.attempt, one.directive if one.owned else "lost")
            for ask, one in zip(asks, told, strict=True)
            if not one.owned or one.directive in _STOPS
        )


def _patience(told: LeaseTold) -> float:
    """For how long nothing has to be done about a lease."""
    if not told.owned or told.lease_remaining is None or told.timeout_remaining is None:
        return 60.0
    waits = told.lease_remaining / 2
    return min(waits, told.timeout_remaining + 0.01) if told.timeout_remaining > 0 else waits
