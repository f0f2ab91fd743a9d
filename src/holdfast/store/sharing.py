"""Requests that arrive at the same time share a statement, and each gets its own answer.

1. No request waits for others to join: the first one is sent at once, and those that arrive meanwhile are sent
   together, in their order. Tenants take turns, and none waits for a statement that has only requests of others
   (holdfast.store.lines).
2. Every caller is answered when its time is over, whatever the statement under way still waits for.
3. The work runs in nobody's name (holdfast.lifecycle.shared).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.answers import accept, refuse
from holdfast.lifecycle.shared import start_shared
from holdfast.store.database import Backoff
from holdfast.store.lines import Lines

__all__ = ["PATIENCE_SECONDS", "Sharing", "Waiting", "parts_of", "patience_seconds", "spend_patience"]

#: How many statements may be under way at a time; a tenant has at most one of them.
_AT_ONCE = 2
#: How long a caller waits for the database.
PATIENCE_SECONDS = 5.0
#: How many requests one statement has.
_BATCH = 256

#: How long this caller waits; only the caller's own task reads it.
patience_seconds: ContextVar[float] = ContextVar("patience_seconds", default=PATIENCE_SECONDS)

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


def spend_patience(seconds: float) -> None:
    """Note that the caller has already waited this long for something else."""
    patience_seconds.set(max(0.001, patience_seconds.get() - seconds))


@dataclass(slots=True, eq=False)
class Waiting(Generic[Ask, Answer]):
    """A caller that waits for an answer."""

    ask: Ask
    tenant: str
    size: int
    answer: asyncio.Future[Answer]
    deadline: float
    #: Whether it was sent, and it is unknown whether it counted.
    unclear: bool = False

    def accept(self, answer: Answer) -> None:
        """Answer."""
        accept(self.answer, answer)

    def refuse(self, fault: BaseException) -> None:
        """Answer with an error."""
        refuse(self.answer, fault)


class Sharing(ABC, Generic[Ask, Answer]):
    """The requests of one kind, of one process."""

    def __init__(self, name: str, *, late: Callable[[bool], DatabaseUnavailable], batch: int = _BATCH) -> None:
        """`late` makes the error for callers whose time is over: was the request sent, so that it may have counted?"""
        self._name, self._late = name, late
        self._lines = Lines[Waiting[Ask, Answer]](batch=batch)
        #: The tenants of each statement under way.
        self._under_way: list[set[str]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def send(self, batch: list[Waiting[Ask, Answer]]) -> None:
        """Send a batch, again and again if that may help, until all are answered."""

    def joins(self, waiting: Waiting[Ask, Answer]) -> bool:  # noqa: ARG002 - subclasses look
        """Whether a request joins the line of its tenant, or was started otherwise."""
        return True

    def waiting(self, ask: Ask, tenant: str, size: int) -> Waiting[Ask, Answer]:
        """A request of the caller, who waits as long as its patience lasts."""
        loop = asyncio.get_running_loop()
        return Waiting(ask, tenant, size, loop.create_future(), time.monotonic() + patience_seconds.get())

    async def answers(self, asked: Sequence[Waiting[Ask, Answer]]) -> list[Answer | HoldfastError]:
        """The answers to requests of one tenant, in their order; an error of one of them is its own answer."""
        if not asked:
            return []
        if not self._lines.have_room_for(asked):
            raise DatabaseUnavailable("too many requests wait for the database")
        for waiting in asked:
            if self.joins(waiting):
                self._lines.add(waiting)
        self._send_on()
        try:
            async with asyncio.timeout(asked[0].deadline - time.monotonic()):
                for waiting in asked:
                    with contextlib.suppress(HoldfastError):
                        await waiting.answer
        except TimeoutError:
            pass  # the answers say which of them are late
        finally:
            for waiting in asked:
                waiting.answer.cancel()
        return [self._answered(waiting) for waiting in asked]

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task for all."""
        task = start_shared(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def rest(
        self, batch: list[Waiting[Ask, Answer]], pause: Backoff, fault: DatabaseUnavailable
    ) -> list[Waiting[Ask, Answer]]:
        """Pause, after answering callers that have no time left. Returns the others."""
        seconds = pause.after_cut() if fault.reason == "cut" else pause.seconds()
        for waiting in batch:
            if waiting.deadline < time.monotonic() + seconds:
                waiting.refuse(self._late(True) if waiting.unclear else fault)
        left = [waiting for waiting in batch if not waiting.answer.done()]
        if left:
            await asyncio.sleep(seconds)
        return left

    def _answered(self, waiting: Waiting[Ask, Answer]) -> Answer | HoldfastError:
        """The answer for a caller that does not wait any longer."""
        if waiting.answer.cancelled():
            return self._late(waiting.unclear)
        try:
            return waiting.answer.result()
        except HoldfastError as fault:
            return fault

    def _send_on(self) -> None:
        while len(self._under_way) < _AT_ONCE and (batch := self._next_batch()):
            tenants = {waiting.tenant for waiting in batch}
            self._under_way.append(tenants)
            self.start(self._send_batch(batch, tenants))

    async def _send_batch(self, batch: list[Waiting[Ask, Answer]], tenants: set[str]) -> None:
        try:
            await self.send(batch)
        finally:
            self._under_way.remove(tenants)
            self._send_on()

    def _next_batch(self) -> list[Waiting[Ask, Answer]]:
        """The next requests whose callers still wait."""
        busy = set[str]().union(*self._under_way)
        while batch := self._lines.next_batch(busy):
            now = time.monotonic()
            for waiting in batch:
                if waiting.deadline < now:
                    waiting.refuse(self._late(waiting.unclear))
            if left := [waiting for waiting in batch if not waiting.answer.done()]:
                return left
        return []


def parts_of(batch: list[Waiting[Ask, Answer]]) -> list[list[Waiting[Ask, Answer]]]:
    """The parts of a batch that is refused as a whole: by tenant, the shortest first, or halves."""
    parts: dict[str, list[Waiting[Ask, Answer]]] = {}
    for waiting in batch:
        parts.setdefault(waiting.tenant, []).append(waiting)
    if len(parts) > 1:
        return sorted(parts.values(), key=len)
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
