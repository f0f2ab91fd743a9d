"""The children of a worker.

1. A child is started when a job needs one and none is idle: there are never more than jobs running at once.
2. An idle child is kept for the next job of any type, and leaves when it has had nothing to do for a while.
3. A handler that is to stop is interrupted by a signal; after a grace its process is killed. Such a child, and one
   that did not answer as it should, or still speaks of an earlier order, is never used again.
4. A handler that returned, or said what is to become of its job, has done so, even if it was to stop.
"""

from __future__ import annotations

import asyncio
import errno
import time
from typing import Any, Literal

from holdfast.definitions.job_type import JobType
from holdfast.errors import HandlerSignal
from holdfast.worker.endings import Late, NotBegun, ProcessDied, no_room
from holdfast.worker.held import Held
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.talk import Service, Talk

__all__ = ["ProcessPool"]

#: How long a child is kept without work, a job waits for its handler to begin (several children may import much at
#: once on a busy machine), an interrupted handler may clean up.
IDLE_SECONDS = 300.0
START_SECONDS = 120.0
GRACE_SECONDS = 5.0

#: How long a handler that may begin takes to say that it does. Meanwhile no other job at its last chance begins.
_BEGIN_SECONDS = 10.0
#: How long idle children may take to leave their lifespans at the end, all together.
_LEAVE_SECONDS = 2.0
_KILLED_SECONDS = 2.0

#: No process, no descriptor or no memory can be had for now.
_SHORTAGES = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


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

    async def run(self, held: Held, job_type: JobType, timeout: float | None, service: Service) -> Any:
        """What the handler returned; or raises what it raised, CancelledError, or one of `holdfast.worker.endings`."""
        child = self._take_or_not_begun()
        self._busy.add(child)
        talk = Talk(child, held, job_type, service)
        task = asyncio.create_task(talk.run(), name=f"child {child.pid}")
        fit = False
        try:
            wait = await _first({task, talk.ready}, self._start_seconds)
            if wait == "done":
                # At its last chance, the handler waits until it is recorded that it begins, or its lease is over.
                wait = await _first({task, talk.cleared}, None)
            if wait == "done":
                wait = await _first({task, talk.began}, _BEGIN_SECONDS)
            if wait == "over":
                await self._stop(child, task, grace_seconds=0)
                if not talk.cleared.done():
                    raise ProcessDied(f"the handler's process did not begin within {self._start_seconds:g} s")
                if not talk.began.done():
                    raise NotBegun(f"the handler's process stood still for {_BEGIN_SECONDS:g} s")
                raise ProcessDied(f"the handler's process did not say within {_BEGIN_SECONDS:g} s that it began")
            if wait == "done":
                wait = await _first({task}, timeout)
            if wait == "over":
                held.time_out()
            if wait != "done":
                await self._stop(child, task, grace_seconds=self._grace_seconds)
                return _despite(wait, task)
            fit = talk.in_order
        finally:
            self._busy.discard(child)
            self._give_back(child, fit=fit)
        if child.warm and not talk.began.done() and isinstance(task.exception(), ProcessDied):
            # It died of something before it was given this job.
            return await self.run(held, job_type, timeout, service)
        child.warm = True
        try:
            return task.result()
        finally:
            del task  # an error's traceback refers to this frame, and the task to the error

    def shutdown(self) -> None:
        """End all children: idle ones in good order if they are quick about it, busy ones at once."""
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
        except (RuntimeError, MemoryError) as fault:  # no thread can be had
            raise no_room(fault) from fault
        except OSError as fault:
            if fault.errno in _SHORTAGES:
                raise no_room(fault) from fault
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
        """It has had nothing to do for long."""
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
        """Interrupt the handler, and kill its process if it does not end; the conversation is then over."""
        child.interrupt()
        await _patiently(task, grace_seconds)
        child.kill()
        await _patiently(task, _KILLED_SECONDS)
        if not task.done():
            # The process is gone; something that it had asked for is still on its way.
            task.cancel()
            await _patiently(task, _KILLED_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # whoever stops it need not ask for it


async def _first(what: set[asyncio.Future[Any]], seconds: float | None) -> Literal["done", "over", "interrupted"]:
    """Wait until one of these is done, the time is over, or this task is cancelled."""
    try:
        done, _ = await asyncio.wait(what, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        return "interrupted"
    return "done" if done else "over"


async def _patiently(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait for a task for so long, however often this one is cancelled meanwhile."""
    end = time.monotonic() + seconds
    while not task.done() and (left := end - time.monotonic()) > 0:
        await _first({task}, left)


def _despite(wait: str, task: asyncio.Task[Any]) -> Any:
    """The end of a handler that was told to stop: its own, if it came to one."""
    fault = None if task.cancelled() else task.exception()
    if task.cancelled() or (fault is not None and not isinstance(fault, HandlerSignal)):
        if wait == "over":
            raise Late("the handler ran for too long") from fault
        raise asyncio.CancelledError from fault
    try:
        return task.result()
    finally:
        del task, fault  # as above
