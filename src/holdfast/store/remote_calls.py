"""The calls of remote workers, which share statements (holdfast.store.sharing).

1. A call that meets a row which somebody else has locked is sent again by itself, so that it delays no other.
2. While the database is away, a call is sent again until its caller has no time left: the engine knows a repeat. A pull
   without a request id is the exception: what it was given would be unknown.
3. What a pull was given after its caller has gone is handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError
from holdfast.model.remote import LeaseAsk, LeaseTold, PullAsk, PullTold, ReleaseAsk, ReportAsk, ReportTold
from holdfast.store.database import Backoff
from holdfast.store.remote import RemoteStore
from holdfast.store.sharing import Sharing, Waiting, parts_of

__all__ = ["Handed", "SharedCalls", "remote_calls"]

#: How many calls one statement has: more than 64 subtransactions would slow all other sessions down.
_BATCH = 48
#: Leases are prolonged without subtransactions.
_LEASES = 1000
#: How many statements may wait for locks of others.
_STUCK = 2
#: Reasons for which a statement fails while it is unknown whether it was committed.
_UNCLEAR = frozenset({"cut", "slow", "uncertain"})


class _Tenants(Protocol):
    @property
    def tenant(self) -> str: ...


Ask = TypeVar("Ask", bound=_Tenants)
Answer = TypeVar("Answer")


class Handed(NamedTuple):
    """The state of a job that was handed back; None if its lease was lost before."""

    state: str | None


class SharedCalls(Sharing[Ask, Answer]):
    """The calls of one kind."""

    def __init__(
        self,
        name: str,
        statement: Callable[[Sequence[Ask]], Awaitable[Sequence[Answer | HoldfastError]]],
        *,
        size: Callable[[Ask], int] = lambda _: 100,
        batch: int = _BATCH,
        repeats: Callable[[Ask], bool] = lambda _: True,
        unwanted: Callable[[Ask, Answer], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        super().__init__(name, late=_late, batch=batch)
        self._statement = statement
        self._size, self._repeats, self._unwanted = size, repeats, unwanted
        self._stuck = asyncio.Semaphore(_STUCK)

    async def ask(self, asks: Sequence[Ask]) -> list[Answer | HoldfastError]:
        """The answers to calls of one tenant."""
        return await self.answers([self.waiting(ask, ask.tenant, self._size(ask)) for ask in asks])

    async def send(self, batch: list[Waiting[Ask, Answer]]) -> None:
        """Send a batch until all are answered."""
        pause = Backoff()
        while batch:
            try:
                told = await self._told(batch)
            except DatabaseUnavailable as fault:
                batch = await self.rest(self._again(batch, fault), pause, fault)
            except BaseException as fault:
                if len(batch) > 1 and isinstance(fault, HoldfastError):
                    for part in parts_of(batch):
                        await self.send(part)
                    return
                for waiting in batch:
                    waiting.refuse(fault)
                if not isinstance(fault, HoldfastError):
                    raise
                return
            else:
                for waiting, answer in zip(batch, told, strict=True):
                    self._answer(waiting, answer)
                return

    async def _told(self, batch: list[Waiting[Ask, Answer]]) -> Sequence[Answer | HoldfastError]:
        before = [waiting.unclear for waiting in batch]
        for waiting in batch:
            waiting.unclear = True
        try:
            return await self._statement([waiting.ask for waiting in batch])
        except HoldfastError as fault:
            if not isinstance(fault, DatabaseUnavailable) or fault.reason not in _UNCLEAR:
                for waiting, was in zip(batch, before, strict=True):
                    waiting.unclear = was
            raise

    def _again(self, batch: list[Waiting[Ask, Answer]], fault: DatabaseUnavailable) -> list[Waiting[Ask, Answer]]:
        """Those that may be sent again; the others are refused."""
        for waiting in batch:
            if waiting.unclear and not self._repeats(waiting.ask):
                waiting.refuse(fault)
        return [waiting for waiting in batch if not waiting.unclear or self._repeats(waiting.ask)]

    def _answer(self, waiting: Waiting[Ask, Answer], answer: Answer | HoldfastError) -> None:
        if isinstance(answer, DatabaseBusy):
            waiting.unclear = False
            self.start(self._send_alone(waiting, answer))
        elif isinstance(answer, HoldfastError):
            waiting.refuse(answer)
        elif waiting.answer.done() and self._unwanted is not None:
            self.start(self._unwanted(waiting.ask, answer))
        else:
            waiting.accept(answer)

    async def _send_alone(self, waiting: Waiting[Ask, Answer], fault: DatabaseBusy) -> None:
        """Send a call again that waits for somebody's lock, beside the others."""
        async with self._stuck:
            if await self.rest([waiting], Backoff(), fault):
                await self.send([waiting])


class RemoteCalls(NamedTuple):
    """The calls of all kinds."""

    pulls: SharedCalls[PullAsk, PullTold]
    reports: SharedCalls[ReportAsk, ReportTold]
    extensions: SharedCalls[LeaseAsk, LeaseTold]
    releases: SharedCalls[ReleaseAsk, Handed]


def remote_calls(store: RemoteStore) -> RemoteCalls:
    """The calls of all kinds, over one store."""

    async def release(asks: Sequence[ReleaseAsk]) -> list[Handed | HoldfastError]:
        told = await store.release(asks)
        return [one if isinstance(one, HoldfastError) else Handed(one) for one in told]

    releases = SharedCalls[ReleaseAsk, Handed]("releases", release)

    async def hand_back(ask: PullAsk, told: PullTold) -> None:
        if told.jobs and not told.repeated:
            reason = "whoever pulled it had gone"
            await releases.ask(
                [ReleaseAsk(ask.tenant, ask.worker, job.job_id, job.attempt, reason) for job in told.jobs]
            )

    return RemoteCalls(
        SharedCalls[PullAsk, PullTold](
            "pulls", store.pull, repeats=lambda ask: ask.request_id is not None, unwanted=hand_back
        ),
        SharedCalls[ReportAsk, ReportTold]("reports", store.report, size=lambda ask: len(ask.report)),
        SharedCalls[LeaseAsk, LeaseTold]("extensions", store.extend, batch=_LEASES),
        releases,
    )


def _late(unclear: bool) -> DatabaseUnavailable:
    """The error for callers whose time is over."""
    return DatabaseUnavailable("the database did not answer in time", reason="uncertain" if unclear else "slow")
