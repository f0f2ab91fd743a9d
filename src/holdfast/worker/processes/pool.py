"""The children of a worker.

1. A child is started when a job needs one and none is idle: there are never more children than jobs running at once.
2. An idle child is kept for the next job of any type, and ends when it has been idle for a while.
3. A handler that must stop is interrupted by a signal; after a grace period its process is killed. Such a child is
   never used again. Neither is one that did not answer correctly, or still sends frames about an earlier order.
4. A child in which something of an ended handler still lives answers, and is then replaced. Its successor is started at
   once, so that the next job finds one.
5. If a handler returned, or raised a signal about its job, that is its answer, even if it had been told to stop.
6. A child that dies before its handler began was not ended by its job, which runs in another one, or later, at no cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from typing import Any, Literal

from holdfast.definitions.job_type import JobType
from holdfast.errors import HandlerSignal
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import Late, NotBegun, ProcessDied, no_room
from holdfast.worker.owners import owned_by_worker
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.launch import Launch
from holdfast.worker.processes.talk import ChildService, Talk

__all__ = ["ProcessPool"]

#: How long a child is kept without work; how long a job waits for its handler to begin (several children may import
#: much at once on a busy machine); and how long an interrupted handler may clean up.
IDLE_SECONDS = 300.0
START_SECONDS = 120.0
GRACE_SECONDS = 5.0

#: How long a handler that may begin can take to say that it does. Meanwhile no other job at its last chance begins.
_BEGIN_SECONDS = 10.0
#: Into how many parts the time for a beginning is divided. A part counts as one, however long it took.
_NAPS = 50
#: How long idle children may take to leave their lifespans at the end, all together.
_LEAVE_SECONDS = 2.0
_KILLED_SECONDS = 2.0

#: There is currently no free process, descriptor or memory.
_SHORTAGES = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: A deployment has removed the interpreter; how long its jobs are left to other workers.
_GONE, _GONE_SECONDS = (errno.ENOENT, errno.EACCES), 30.0
#: How long a job is put off whose child died before the handler began, at first and at most.
_DIED_SECONDS, _DIED_MOST_SECONDS = 1.0, 60.0

_log = logging.getLogger("holdfast")
#: How a wait has ended: by what was waited for, by the clock, or by this cancellation of the waiting task.
_Wait = Literal["done", "over"] | asyncio.CancelledError


class ProcessPool:
    """Runs attempts in child processes."""

    def __init__(
        self,
        *,
        idle_seconds: float | None = None,
        start_seconds: float | None = None,
        grace_seconds: float | None = None,
    ) -> None:
        self._idle_seconds = IDLE_SECONDS if idle_seconds is None else idle_seconds
        self._start_seconds = START_SECONDS if start_seconds is None else start_seconds
        self._grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
        self._launch = Launch()
        #: Job types about whose leftovers the log has been told.
        self._told: set[str] = set()
        self._idle: dict[Child, asyncio.TimerHandle] = {}
        self._busy: set[Child] = set()
        self._children: set[Child] = set()

    async def run(self, claimed: Claimed, job_type: JobType, timeout: float | None, service: ChildService) -> Any:
        """Run the handler and return its value; raises its exception, CancelledError, or one of `worker.endings`."""
        while True:
            child = self._take_or_not_begun()
            used = child.warm
            try:
                return await self._run_in(child, Talk(child, claimed, job_type, service), claimed, timeout)
            except _Unserved as unserved:
                if not used:
                    raise unserved.instead(claimed) from None
                # Something that an earlier job left in this child may be to blame, so another one takes the job.
                _log.warning("%s runs in another process: %s, after other jobs", job_type.name, unserved)

    async def _run_in(self, child: Child, talk: Talk, claimed: Claimed, timeout: float | None) -> Any:
        """Run the handler in this child. Raises _Unserved if the child failed before the handler began."""
        self._busy.add(child)
        task = asyncio.create_task(talk.run(), name=f"child {child.pid}")
        fit = answered = False
        try:
            wait = await self._beginning(talk, task)
            if wait == "over":
                await self._stop(child, task, grace_seconds=0)
                raise self._too_slow(talk)
            if wait == "done":
                wait = await _first({task}, timeout)
            if wait == "over":
                claimed.time_out()
            if wait != "done":
                await self._stop(child, task, grace_seconds=self._grace_seconds)
                return _despite(wait, task)
            fit, answered, child.warm = talk.in_order, talk.answered, True
            fault = task.exception()
            if isinstance(fault, ProcessDied) and not talk.began.done():
                raise _Unserved(str(fault), died=True)
            return task.result()
        finally:
            self._busy.discard(child)
            self._give_back(child, fit=fit)
            if answered and not fit:
                self._replace(claimed.type)
            task = fault = wait = None  # type: ignore[assignment] # an error's traceback refers to this frame, they to it

    async def _beginning(self, talk: Talk, task: asyncio.Task[Any]) -> _Wait:
        """Wait until the handler has begun or the conversation is over; "over" if that takes too long."""
        wait = await _first_awake({task, talk.ready}, self._start_seconds)
        if wait == "done":
            # At its last chance, the handler waits until its beginning is recorded, or its lease is over.
            wait = await _first({task, talk.cleared}, None)
        return await _first_awake({task, talk.began}, _BEGIN_SECONDS) if wait == "done" else wait

    def _too_slow(self, talk: Talk) -> Exception:
        if not talk.cleared.done():
            return _Unserved(f"the handler's process did not begin within {self._start_seconds:g} s", died=False)
        if not talk.began.done():
            return NotBegun(f"the handler's process did not respond for {_BEGIN_SECONDS:g} s")
        return ProcessDied(f"the handler's process did not say within {_BEGIN_SECONDS:g} s that it began")

    def shutdown(self) -> None:
        """End all children: idle ones in good order if they are quick, busy ones at once."""
        end = time.monotonic() + _LEAVE_SECONDS
        for child, timer in self._idle.items():
            timer.cancel()
            self._dismiss(child)
        for child in self._children - self._idle.keys():
            child.kill()
        for child in self._children:
            if not child.join(max(0.0, end - time.monotonic())):
                child.kill()
        for child in self._children:
            child.join(_KILLED_SECONDS)
            child.close()
        self._idle.clear()

    def _take_or_not_begun(self) -> Child:
        try:
            return self._take()
        except (RuntimeError, MemoryError) as fault:  # the system has no thread
            raise no_room(fault) from fault
        except OSError as fault:
            if fault.errno in _SHORTAGES:
                raise no_room(fault) from fault
            if fault.errno in _GONE:
                told = f"its handler could not be started, because the worker's Python is gone: {fault}"
                raise NotBegun(told, delay_seconds=_GONE_SECONDS) from fault
            raise

    def _take(self) -> Child:
        while self._idle:
            child, timer = self._idle.popitem()
            timer.cancel()
            if not child.ended.done():
                return child
        return self._started()

    def _started(self) -> Child:
        child = Child(self._launch)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._forget(child))
        return child

    def _replace(self, job_type: str) -> None:
        """Start a child in place of one that is not used again. If there is no room, the next job starts its own."""
        if job_type not in self._told:
            self._told.add(job_type)
            _log.warning(
                "a process is not used again because a handler of %s left something behind in it, such as a thread, "
                "a program or a changed environment; each time costs the start of a process",
                job_type,
            )
        with contextlib.suppress(OSError, RuntimeError, MemoryError), owned_by_worker():
            child = self._started()
            child.greeting()
            self._keep(child)

    def _keep(self, child: Child) -> None:
        self._idle[child] = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire, child)

    def _give_back(self, child: Child, *, fit: bool) -> None:
        if fit and not child.ended.done():
            self._keep(child)
        else:
            child.kill()
            child.close()

    def _retire(self, child: Child) -> None:
        """End a child that has been idle for long."""
        self._idle.pop(child, None)
        self._dismiss(child)
        asyncio.get_running_loop().call_later(self._grace_seconds, child.kill)

    @staticmethod
    def _dismiss(child: Child) -> None:
        """Let a child end in good order. One that has not run anything has nothing to put in order."""
        if child.warm:
            child.leave()
        else:
            child.kill()

    def _forget(self, child: Child) -> None:
        self._children.discard(child)
        timer = self._idle.pop(child, None)
        if timer is not None:
            timer.cancel()
        if child not in self._busy:
            child.close()

    async def _stop(self, child: Child, task: asyncio.Task[Any], *, grace_seconds: float) -> None:
        """Interrupt the handler, and kill its process if it does not end. Afterwards the conversation is over."""
        child.interrupt()
        await _patiently(task, grace_seconds)
        child.kill()
        await _patiently(task, _KILLED_SECONDS)
        if not task.done():
            # The process is gone, but something that it asked for is still under way.
            task.cancel()
            await _patiently(task, _KILLED_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # mark it as retrieved


class _Unserved(Exception):
    """A child ended, or did not respond, before its handler began."""

    def __init__(self, message: str, *, died: bool) -> None:
        super().__init__(message)
        self._died = died

    def instead(self, claimed: Claimed) -> Exception:
        """What becomes of the job if the child was new: nothing that the job did can have ended it."""
        if not self._died:
            return ProcessDied(str(self))
        free = max(0, claimed.claim.attempt - claimed.claim.failures - 1)
        delay = min(_DIED_MOST_SECONDS, _DIED_SECONDS * 2 ** min(free, 10))
        _log.warning("%s is put off by %g s: %s before the handler began", claimed.type, delay, self)
        return NotBegun(f"its handler could not be started: {self}", delay_seconds=delay)


async def _first(what: set[asyncio.Future[Any]], seconds: float | None) -> _Wait:
    """Wait until one of these is done, the time is over, or this task is canceled."""
    try:
        done, _ = await asyncio.wait(what, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:
        return error
    return "done" if done else "over"


async def _first_awake(what: set[asyncio.Future[Any]], seconds: float) -> _Wait:
    """Wait in the same way, by a clock that stands still while the worker is stopped: its children may be, too."""
    for _ in range(_NAPS):
        wait = await _first(what, seconds / _NAPS)
        if wait != "over":
            return wait
    return "over"


async def _patiently(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait for a task for `seconds`, however often the current task is canceled meanwhile."""
    end = time.monotonic() + seconds
    while not task.done() and (left := end - time.monotonic()) > 0:
        await _first({task}, left)


def _despite(wait: _Wait, task: asyncio.Task[Any]) -> Any:
    """The result of a handler that was told to stop: its own, if it reached one."""
    fault = None if task.cancelled() else task.exception()
    if task.cancelled() or (fault is not None and not isinstance(fault, HandlerSignal)):
        if wait == "over":
            raise Late("the handler ran for too long") from fault
        try:
            # The first one itself: whoever canceled the call knows its own cancellation by its message.
            raise wait if isinstance(wait, asyncio.CancelledError) else asyncio.CancelledError
        finally:
            del wait
    try:
        return task.result()
    finally:
        del task, fault  # as above
