"""The children of a worker.

1. A child is started when a job needs one and none is idle: there are never more children than jobs running at once.
2. An idle child is kept for the next job of any type, and ends when it has been idle for a while.
3. A handler that must stop is interrupted by a signal; after a grace period its process is killed. Such a child is
   never used again. Neither is one that did not answer correctly, or still sends frames about an earlier order.
4. If a handler returned, or raised a signal about its job, that counts, even if it had been told to stop.
"""

from __future__ import annotations

import asyncio
import errno
import time
from typing import Any, Literal

from holdfast.definitions.job_type import JobType
from holdfast.errors import HandlerSignal
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import Late, NotBegun, ProcessDied, no_room
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.talk import ChildService, Talk

__all__ = ["ProcessPool"]

#: How long a child is kept without work; how long a job waits for its handler to begin (several children may import
#: much at once on a busy machine); and how long an interrupted handler may clean up.
IDLE_SECONDS = 300.0
START_SECONDS = 120.0
GRACE_SECONDS = 5.0

#: How long a handler that may begin can take to say that it does. Meanwhile no other job at its last chance begins.
_BEGIN_SECONDS = 10.0
#: How long idle children may take to leave their lifespans at the end, all together.
_LEAVE_SECONDS = 2.0
_KILLED_SECONDS = 2.0

#: There is currently no free process, descriptor or memory.
_SHORTAGES = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: A deployment has removed the interpreter; how long its jobs are left to other workers.
_GONE, _GONE_SECONDS = (errno.ENOENT, errno.EACCES), 30.0


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
        self._idle: dict[Child, asyncio.TimerHandle] = {}
        self._busy: set[Child] = set()
        self._children: set[Child] = set()

    async def run(self, claimed: Claimed, job_type: JobType, timeout: float | None, service: ChildService) -> Any:
        """Run the handler and return its value; raises its exception, CancelledError, or one of `worker.endings`."""
        child = self._take_or_not_begun()
        self._busy.add(child)
        talk = Talk(child, claimed, job_type, service)
        task = asyncio.create_task(talk.run(), name=f"child {child.pid}")
        fit = False
        try:
            wait = await _first({task, talk.ready}, self._start_seconds)
            if wait == "done":
                # At its last chance, the handler waits until its beginning is recorded, or its lease is over.
                wait = await _first({task, talk.cleared}, None)
            if wait == "done":
                wait = await _first({task, talk.began}, _BEGIN_SECONDS)
            if wait == "over":
                await self._stop(child, task, grace_seconds=0)
                if not talk.cleared.done():
                    raise ProcessDied(f"the handler's process did not begin within {self._start_seconds:g} s")
                if not talk.began.done():
                    raise NotBegun(f"the handler's process did not respond for {_BEGIN_SECONDS:g} s")
                raise ProcessDied(f"the handler's process did not say within {_BEGIN_SECONDS:g} s that it began")
            if wait == "done":
                wait = await _first({task}, timeout)
            if wait == "over":
                claimed.time_out()
            if wait != "done":
                await self._stop(child, task, grace_seconds=self._grace_seconds)
                return _despite(wait, task)
            fit = talk.in_order
        finally:
            self._busy.discard(child)
            self._give_back(child, fit=fit)
        if child.warm and not talk.began.done() and isinstance(task.exception(), ProcessDied):
            # The child died before it was given this job, so the job is run in another one.
            return await self.run(claimed, job_type, timeout, service)
        child.warm = True
        try:
            return task.result()
        finally:
            del task  # an error's traceback refers to this frame, and the task to the error

    def shutdown(self) -> None:
        """End all children: idle ones in good order if they are quick, busy ones at once."""
        end = time.monotonic() + _LEAVE_SECONDS
        for child, timer in self._idle.items():
            timer.cancel()
            child.leave()
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
        child = Child()
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._forget(child))
        return child

    def _give_back(self, child: Child, *, fit: bool) -> None:
        if fit and not child.ended.done():
            self._idle[child] = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire, child)
        else:
            child.kill()
            child.close()

    def _retire(self, child: Child) -> None:
        """End a child that has been idle for long."""
        self._idle.pop(child, None)
        child.leave()
        asyncio.get_running_loop().call_later(self._grace_seconds, child.kill)

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


async def _first(what: set[asyncio.Future[Any]], seconds: float | None) -> Literal["done", "over", "interrupted"]:
    """Wait until one of these is done, the time is over, or this task is canceled."""
    try:
        done, _ = await asyncio.wait(what, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        return "interrupted"
    return "done" if done else "over"


async def _patiently(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait for a task for `seconds`, however often the current task is canceled meanwhile."""
    end = time.monotonic() + seconds
    while not task.done() and (left := end - time.monotonic()) > 0:
        await _first({task}, left)


def _despite(wait: str, task: asyncio.Task[Any]) -> Any:
    """The result of a handler that was told to stop: its own, if it reached one."""
    fault = None if task.cancelled() else task.exception()
    if task.cancelled() or (fault is not None and not isinstance(fault, HandlerSignal)):
        if wait == "over":
            raise Late("the handler ran for too long") from fault
        raise asyncio.CancelledError from fault
    try:
        return task.result()
    finally:
        del task, fault  # as above
