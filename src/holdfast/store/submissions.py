"""Group commit: one statement records intents that arrive at the same time, and each gets its own answer.

1. Intents share statements as holdfast.store.sharing describes: no intent waits for others to join, and tenants take
   turns.
2. An intent that cannot be recorded does not harm the others: a batch with a refused intent is sent tenant by tenant,
   then without those that the engine refuses, and, if it does not know them beforehand, in halves.
3. An intent whose key another transaction has taken, and not committed yet, waits in a separate line.
4. If a connection is lost during the commit, it is unknown whether the jobs exist. Their ids are known, so the same
   batch is sent again, which records nothing twice. A caller that has waited too long is told that the outcome is
   unknown, and never that the job failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence

from holdfast.errors import (
    Conflict,
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    LimitExceeded,
)
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.database import Backoff, Database
from holdfast.store.jobs import Recorder
from holdfast.store.sharing import Sharing, Waiting, parts_of
from holdfast.store.tenancy import TenancyStore

__all__ = ["Submissions"]

#: How long one statement may take.
_STATEMENT_SECONDS = 10.0
#: Reasons for which a statement fails while it is unknown whether it was committed.
_UNCLEAR = frozenset({"cut", "slow", "uncertain"})

Submission = Waiting[Intent, Enqueued]


class Submissions(Sharing[Intent, Enqueued], Recorder):
    """Records jobs for the control plane."""

    def __init__(self, database: Database) -> None:
        super().__init__("submissions", late=_late)
        self._tenancy = TenancyStore(database)
        #: Keys that another transaction has taken: intents with one of them wait alone, and are tried in turn.
        self._stuck: Counter[tuple[str, str, str]] = Counter()
        self._turn = asyncio.Lock()

    async def enqueue(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record intents, each as soon as possible; answers come in their order."""
        answers: list[Enqueued] = []
        for answer in await self.enqueue_each(intents):
            if isinstance(answer, HoldfastError):
                raise answer
            answers.append(answer)
        return answers

    async def enqueue_each(self, intents: Sequence[Intent]) -> list[Enqueued | HoldfastError]:
        """Record intents; an error of one of them is its own answer."""
        asked = [self.waiting(intent, intent.tenant, len(intent.payload)) for intent in intents]
        return await self.answers(asked)

    def joins(self, waiting: Submission) -> bool:
        """Whether an intent joins its line; one whose key may be taken waits in another."""
        if self._stuck and any(key in self._stuck for key in waiting.ask.keys):
            self.start(self._wait_alone(waiting))
            return False
        return True

    async def send(self, batch: list[Submission]) -> None:
        """Send a batch, again and again while the database is away, until all are answered."""
        pause = Backoff()
        while batch:
            try:
                await self._record(batch)
                return
            except (InvalidInput, Conflict, LimitExceeded) as fault:
                await self._divide(batch, fault)
                return
            except DatabaseBusy as fault:
                if batch := self._without_keys(batch):
                    batch = await self.rest(batch, pause, fault)
            except DatabaseUnavailable as fault:
                batch = await self.rest(batch, pause, fault)
            except BaseException as fault:
                for waiting in batch:
                    waiting.refuse(_late(True) if waiting.unclear and isinstance(fault, Exception) else fault)
                if not isinstance(fault, HoldfastError):
                    raise
                return

    async def _record(self, batch: list[Submission]) -> None:
        before = [waiting.unclear for waiting in batch]
        for waiting in batch:
            waiting.unclear = True
        try:
            async with asyncio.timeout(_STATEMENT_SECONDS):
                answers = await self._tenancy.submit([waiting.ask for waiting in batch])
        except TimeoutError:
            raise _late(True) from None
        except HoldfastError as fault:
            if not isinstance(fault, DatabaseUnavailable) or fault.reason not in _UNCLEAR:
                for waiting, was in zip(batch, before, strict=True):
                    waiting.unclear = was
            raise
        for waiting, enqueued in zip(batch, answers, strict=True):
            waiting.accept(enqueued)

    async def _divide(self, batch: list[Submission], fault: HoldfastError) -> None:
        """Find the refused intents of a batch, and let the others have their answers."""
        if len(batch) == 1:
            batch[0].refuse(fault)
            return
        several = len({waiting.tenant for waiting in batch}) > 1
        for part in parts_of(batch) if several else await self._without_refused(batch):
            await self.send(part)

    async def _without_refused(self, batch: list[Submission]) -> list[list[Submission]]:
        """Refuse what the engine refuses. Returns what is to be sent again: all others, or the batch in halves."""
        with contextlib.suppress(HoldfastError, TimeoutError):  # such as a payload that cannot even be read
            async with asyncio.timeout(_STATEMENT_SECONDS):
                refused = await self._tenancy.refused([waiting.ask for waiting in batch])
            for position, fault in refused.items():
                batch[position].refuse(fault)
            if refused:
                return [[waiting for position, waiting in enumerate(batch) if position not in refused]]
        return parts_of(batch)

    def _without_keys(self, batch: list[Submission]) -> list[Submission]:
        """Those without keys, which nobody can delay; each of the others goes on by itself."""
        for waiting in batch:
            if waiting.ask.keys:
                self.start(self._wait_alone(waiting))
        return [waiting for waiting in batch if not waiting.ask.keys]

    async def _wait_alone(self, waiting: Submission) -> None:
        """Try an intent whose key may be taken, in turn with others of that kind."""
        self._stuck.update(waiting.ask.keys)
        pause, batch = Backoff(), [waiting]
        try:
            while batch:
                try:
                    async with self._turn:
                        await self._record(batch)
                    return
                except DatabaseUnavailable as fault:
                    batch = await self.rest(batch, pause, fault)
        except BaseException as fault:
            waiting.refuse(fault)
            if not isinstance(fault, HoldfastError):
                raise
        finally:
            self._stuck -= Counter(waiting.ask.keys)


def _late(unclear: bool) -> DatabaseUnavailable:
    """The error for callers whose time is over."""
    if unclear:
        told = "the database did not answer in time: it is not known whether the job was recorded"
        return DatabaseUnavailable(told, reason="uncertain")
    return DatabaseUnavailable("the database did not answer in time: nothing was recorded", reason="slow")
