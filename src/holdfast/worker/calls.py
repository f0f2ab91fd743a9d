"""The calls of `call_next` within one attempt: one at a time, in the worker's event loop, none beyond its end.

1. Middleware may run `call_next()` in a task of its own, and end before that task does, or before it has even begun.
   Such calls are canceled and waited for before the attempt is settled: otherwise the handler would run beside the next
   attempt of its job, without a timeout. A call that is made or begun later is refused.
2. Only the call is waited for, not its task. That may be a task of the app that goes on, such as a consumer of a queue:
   its call raises an error, as if the handler had failed, and the task does not count as canceled.
3. A call that is made while another one runs is refused: the handler would run twice within one attempt.
4. So is a call in another event loop: timeouts, locks and connections belong to the worker's own.
5. A thread runs on when middleware gives up its call by hand (`close()`, `throw()`). Until it has ended, the handler is
   not called again, and the attempt is not settled.
6. Once the handler's own transaction has ended the job, or may have, the next job of its target may run: no call begins
   any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.worker.claimed import Claimed

__all__ = ["Calls", "StoppedBefore"]

_ENDED = "the attempt has ended; its handler cannot be called any more"
_CUT = "the attempt ended while its handler was running; the handler was canceled"
_TWICE = "`call_next()` was called while an earlier call was running; await that one first"
_ELSEWHERE = "`call_next()` must be awaited in the worker's own event loop"
_COMPLETED = "the job was or may have been completed by its own transaction; its handler cannot be called any more"
_LEFT = "middleware ended while the handler was running; it was canceled"
_FORGOTTEN = "middleware called `call_next()` without awaiting it: the handler did not run"


class StoppedBefore(asyncio.CancelledError):
    """The attempt has timed out or was told to stop before this call."""


class _Call:
    """One call, and the task in which it runs, once it has begun."""

    __slots__ = ("coroutine", "end", "in_foreign_task", "task")
    coroutine: Coroutine[Any, Any, Any]

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        #: Done when the call has ended, if the attempt has ended before it.
        self.end: asyncio.Future[None] | None = None
        #: Its caller is a task that has more to do than this call.
        self.in_foreign_task = False

    def cut(self) -> asyncio.Future[None]:
        """Announce that the call is being canceled."""
        self.end = asyncio.get_running_loop().create_future()
        return self.end


class Calls:
    """All calls of one attempt that have not ended, in the order in which they were made."""

    def __init__(self, loop: asyncio.AbstractEventLoop, claimed: Claimed) -> None:
        self._loop, self._claimed = loop, claimed
        self._open: dict[_Call, None] = {}
        self._over = False

    def within(self, inner: Callable[[], Awaitable[Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """The same function, whose calls are known here."""
        running: list[_Call] = []

        def call_next() -> Coroutine[Any, Any, Any]:
            call = _Call()
            call.coroutine = self._run(call, inner, running)
            self._open[call] = None
            return call.coroutine

        return call_next

    async def end(self) -> str | None:
        """Refuse further calls, and cancel and await those that were left. Returns what was wrong."""
        self._over = True
        if not self._open and self._thread() is None:
            return None
        left, current = list(self._open), asyncio.current_task()
        unbegun = {call.coroutine for call in left if call.task is None}
        ends = _canceled([call for call in left if call.task is not None and call.task is not current])
        if unbegun:
            ends |= {task for task in asyncio.all_tasks() if task.get_coro() in unbegun and task.cancel()}
        await _ended(ends)
        ends |= {_closed(call) for call in left if call.task is current}
        if (thread := self._thread()) is not None:
            self._claimed.call_canceled = True
            await _ended({thread})
            ends.add(thread)
        if ends:
            return _LEFT
        return _FORGOTTEN if unbegun else None

    async def _run(self, call: _Call, inner: Callable[[], Awaitable[Any]], running: list[_Call]) -> Any:
        try:
            self._check(running)
            call.task = asyncio.current_task()
            running.append(call)
            try:
                return await inner()
            finally:
                running.remove(call)
        except asyncio.CancelledError as error:
            if call.in_foreign_task or (isinstance(error, StoppedBefore) and self._is_foreign(call)):
                raise HoldfastError(_CUT) from None
            raise
        finally:
            self._open.pop(call, None)
            if call.end is not None:
                if call.in_foreign_task and call.task is not None:
                    call.task.uncancel()
                call.end.set_result(None)

    def _check(self, running: list[_Call]) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise HoldfastError(_ELSEWHERE)
        if self._over:
            raise HoldfastError(_ENDED)
        if running or self._thread() is not None:
            raise HoldfastError(_TWICE)
        if self._claimed.may_be_completed:
            raise HoldfastError(_COMPLETED)

    def _thread(self) -> asyncio.Future[None] | None:
        """The thread of the handler, if it runs."""
        thread = self._claimed.thread
        return None if thread is None or thread.done() else thread

    def _is_foreign(self, call: _Call) -> bool:
        return call.task is not None and call.task is not self._claimed.task and call.task.get_coro() != call.coroutine


def _canceled(calls: list[_Call]) -> set[asyncio.Future[Any]]:
    """Cancel these calls, each task once. Returns what is done when they have ended."""
    outermost = dict[asyncio.Task[Any], _Call]()
    for call in calls:
        if call.task is not None:
            outermost.setdefault(call.task, call)
    for task, call in outermost.items():
        call.in_foreign_task = task.get_coro() is not call.coroutine
        task.cancel()
    return {call.cut() for call in calls}


def _closed(call: _Call) -> asyncio.Future[Any]:
    """End a call that middleware has begun by hand, as a generator, and left."""
    end = call.cut()
    with contextlib.suppress(RuntimeError):  # it goes on regardless
        call.coroutine.close()
    return end


async def _ended(ends: set[asyncio.Future[Any]]) -> None:
    """Wait for all of these, however often the current task is canceled: a handler runs there."""
    while left := {end for end in ends if not end.done()}:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(left)
    for end in ends:
        if not end.cancelled():
            end.exception()
