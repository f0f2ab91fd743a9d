"""Group commit: one statement records intents that arrive at the same time, and each gets its own answer.

1. No intent waits for others to join: the first one is sent at once, and those that arrive meanwhile are sent together,
   in their order. Tenants take turns, and none waits for a statement that records only intents of others
   (holdfast.store.lines).
2. An intent that cannot be recorded does not harm the others: a batch with a refused intent is sent tenant by tenant,
   then without those that the engine refuses, and, if it does not know them beforehand, in halves.
3. An intent whose key another transaction has taken, and not committed yet, waits in a separate line.
4. If a connection is lost during the commit, it is unknown whether the jobs exist. Their ids are known, so the same
   batch is sent again, which records nothing twice. A caller that has waited too long is told that the outcome is
   unknown, and never that the job failed.
5. Every caller is answered when its time is over, whatever the statement under way still waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from holdfast.errors import (
    Conflict,
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    LimitExceeded,
)
from holdfast.lifecycle.answers import accept, refuse
from holdfast.lifecycle.shared import start_shared
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.database import Backoff, Database
from holdfast.store.jobs import Recorder
from holdfast.store.lines import Lines
from holdfast.store.tenancy import TenancyStore

__all__ = ["PATIENCE_SECONDS", "Submissions", "patience_seconds", "spend_patience"]

#: How many statements may be under way at a time; a tenant has at most one of them.
_AT_ONCE = 2
#: How long a caller waits for the database, and how long one statement may take.
PATIENCE_SECONDS, _STATEMENT_SECONDS = 5.0, 10.0
#: Reasons for which a statement fails while it is unknown whether it was committed.
_UNCLEAR = frozenset({"cut", "slow", "uncertain"})

#: How long this caller waits; only the caller's own task reads it.
patience_seconds: ContextVar[float] = ContextVar("patience_seconds", default=PATIENCE_SECONDS)


def spend_patience(seconds: float) -> None:
    """Note that the caller has already waited this long for something else."""
    patience_seconds.set(max(0.001, patience_seconds.get() - seconds))


@dataclass(slots=True, eq=False)
class _Waiting:
    """A caller that waits for an answer."""

    intent: Intent
    answer: asyncio.Future[Enqueued]
    deadline: float
    #: Whether it was sent, and it is unknown whether it was recorded.
    unclear: bool = False

    def answered(self) -> Enqueued | HoldfastError:
        """The answer for a caller that does not wait any longer."""
        if self.answer.cancelled():
            return _late(self.unclear)
        try:
            return self.answer.result()
        except HoldfastError as fault:
            return fault

    def accept(self, enqueued: Enqueued) -> None:
        accept(self.answer, enqueued)

    def refuse(self, fault: BaseException) -> None:
        refuse(self.answer, fault)


class Submissions(Recorder):
    """Records jobs for the control plane."""

    def __init__(self, database: Database) -> None:
        self._tenancy = TenancyStore(database)
        self._lines = Lines[_Waiting]()
        #: The tenants of each statement under way.
        self._under_way: list[set[str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
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
        if not intents:
            return []
        if not self._lines.have_room_for(intents):
            raise DatabaseUnavailable("too many jobs wait to be recorded")
        loop = asyncio.get_running_loop()
        seconds = patience_seconds.get()
        deadline = time.monotonic() + seconds
        asked = [_Waiting(intent, loop.create_future(), deadline) for intent in intents]
        for waiting in asked:
            if self._stuck and any(key in self._stuck for key in waiting.intent.keys):
                self._start(self._wait_alone(waiting))
            else:
                self._lines.add(waiting)
        self._send_on()
        try:
            async with asyncio.timeout(seconds):
                for waiting in asked:
                    with contextlib.suppress(HoldfastError):
                        await waiting.answer
        except TimeoutError:
            pass  # the answers say which of them are late
        finally:
            for waiting in asked:
                waiting.answer.cancel()
        return [waiting.answered() for waiting in asked]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = start_shared(work, name="submissions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_on(self) -> None:
        while len(self._under_way) < _AT_ONCE and (batch := self._next_batch()):
            tenants = {waiting.intent.tenant for waiting in batch}
            self._under_way.append(tenants)
            self._start(self._send_batch(batch, tenants))

    async def _send_batch(self, batch: list[_Waiting], tenants: set[str]) -> None:
        try:
            await self._send(batch)
        finally:
            self._under_way.remove(tenants)
            self._send_on()

    def _next_batch(self) -> list[_Waiting]:
        """The next intents whose callers still wait."""
        busy = set[str]().union(*self._under_way)
        while batch := self._lines.next_batch(busy):
            now = time.monotonic()
            for waiting in batch:
                if waiting.deadline < now:
                    waiting.refuse(_late(waiting.unclear))
            if left := [waiting for waiting in batch if not waiting.answer.done()]:
                return left
        return []

    async def _send(self, batch: list[_Waiting]) -> None:
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
                    batch = await _rest(batch, pause, fault)
            except DatabaseUnavailable as fault:
                batch = await _rest(batch, pause, fault)
            except BaseException as fault:
                for waiting in batch:
                    waiting.refuse(_late(True) if waiting.unclear and isinstance(fault, Exception) else fault)
                if not isinstance(fault, HoldfastError):
                    raise
                return

    async def _record(self, batch: list[_Waiting]) -> None:
        before = [waiting.unclear for waiting in batch]
        for waiting in batch:
            waiting.unclear = True
        try:
            async with asyncio.timeout(_STATEMENT_SECONDS):
                answers = await self._tenancy.submit([waiting.intent for waiting in batch])
        except TimeoutError:
            raise _late(True) from None
        except HoldfastError as fault:
            if not isinstance(fault, DatabaseUnavailable) or fault.reason not in _UNCLEAR:
                for waiting, was in zip(batch, before, strict=True):
                    waiting.unclear = was
            raise
        for waiting, enqueued in zip(batch, answers, strict=True):
            waiting.accept(enqueued)

    async def _divide(self, batch: list[_Waiting], fault: HoldfastError) -> None:
        """Find the refused intents of a batch, and let the others have their answers."""
        if len(batch) == 1:
            batch[0].refuse(fault)
            return
        parts = _by_tenant(batch)
        if len(parts) == 1:
            parts = await self._without_refused(batch)
        for part in parts:
            await self._send(part)

    async def _without_refused(self, batch: list[_Waiting]) -> list[list[_Waiting]]:
        """Refuse what the engine refuses. Returns what is to be sent again: all others, or the batch in halves."""
        with contextlib.suppress(HoldfastError, TimeoutError):  # such as a payload that cannot even be read
            async with asyncio.timeout(_STATEMENT_SECONDS):
                refused = await self._tenancy.refused([waiting.intent for waiting in batch])
            for position, fault in refused.items():
                batch[position].refuse(fault)
            if refused:
                return [[waiting for position, waiting in enumerate(batch) if position not in refused]]
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]

    def _without_keys(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Those without keys, which nobody can delay; each of the others goes on by itself."""
        for waiting in batch:
            if waiting.intent.keys:
                self._start(self._wait_alone(waiting))
        return [waiting for waiting in batch if not waiting.intent.keys]

    async def _wait_alone(self, waiting: _Waiting) -> None:
        """Try an intent whose key may be taken, in turn with others of that kind."""
        self._stuck.update(waiting.intent.keys)
        pause, batch = Backoff(), [waiting]
        try:
            while batch:
                try:
                    async with self._turn:
                        await self._record(batch)
                    return
                except DatabaseUnavailable as fault:
                    batch = await _rest(batch, pause, fault)
        except BaseException as fault:
            waiting.refuse(fault)
            if not isinstance(fault, HoldfastError):
                raise
        finally:
            self._stuck -= Counter(waiting.intent.keys)


def _by_tenant(batch: list[_Waiting]) -> list[list[_Waiting]]:
    """The parts of a batch by tenant, the shortest first."""
    parts: dict[str, list[_Waiting]] = {}
    for waiting in batch:
        parts.setdefault(waiting.intent.tenant, []).append(waiting)
    return sorted(parts.values(), key=len)


async def _rest(batch: list[_Waiting], pause: Backoff, fault: DatabaseUnavailable) -> list[_Waiting]:
    """Pause, after answering callers that have no time left. Returns the others."""
    seconds = pause.after_cut() if fault.reason == "cut" else pause.seconds()
    for waiting in batch:
        if waiting.deadline < time.monotonic() + seconds:
            waiting.refuse(_late(True) if waiting.unclear else fault)
    left = [waiting for waiting in batch if not waiting.answer.done()]
    if left:
        await asyncio.sleep(seconds)
    return left


def _late(unclear: bool) -> DatabaseUnavailable:
    """The error for callers whose time is over."""
    if unclear:
        told = "the database did not answer in time: it is not known whether the job was recorded"
        return DatabaseUnavailable(told, reason="uncertain")
    return DatabaseUnavailable("the database did not answer in time: nothing was recorded", reason="slow")
