"""Judges handlers that block the worker's event loop: by the clock, from the lease keeper's thread.

1. Timers do not fire in a blocked loop, so neither the handler's timeout nor the worker's own look at stuck handlers
   comes to anything. This clock does not depend on that loop.
2. asyncio knows which task a loop executes at the moment. The attempt that blocks is the one in that task, or in a task
   that waits for it (`wait_for`, `gather`, `TaskGroup` and others run what they are given in tasks of their own).
3. An attempt may block for as long as it may run: its timeout and the time after which a handler is called stuck. Where
   the worker has no job at all, an observer or a task that was left behind blocks, and only that time counts. A worker
   that drains waits for its grace at most. Then the loop is given up.
4. A loop is given up only if it was silent, in the same task, for several looks in a row: a process that was frozen
   finds all clocks ahead, and its loop answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import types
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from holdfast.telemetry.aside import Aside
from holdfast.telemetry.events import LoopBlocked
from holdfast.worker.held import Held, HeldAttempts

__all__ = ["Blockage"]

#: Longer than a loop that works takes to answer.
_LOOK_SECONDS = 1.0
_SILENT_LOOKS = 3
#: How often people are told of a blocked loop.
_TELL_SECONDS = 30.0
#: How many objects are looked at, at most, between a task and one that waits for it.
_MOST_LINKS = 1000


class Blockage:
    """Whether the event loop that this was made in answers, and who keeps it from answering.

    `time_over` says until when an attempt may run, `drain_over` when a drain must have ended (None: there is none).
    `give_up` is called in the watching thread, at each look at which the loop is to be given up.
    """

    def __init__(
        self,
        worker: str,
        held: HeldAttempts,
        aside: Aside,
        *,
        time_over: Callable[[Held | None], float],
        stuck_after_seconds: float,
        drain_over: Callable[[], float | None],
        give_up: Callable[[Held | None, bool], Awaitable[None]],
    ) -> None:
        self._worker, self._held, self._aside = worker, held, aside
        self._time_over, self._drain_over, self._give_up = time_over, drain_over, give_up
        self._stuck_after_seconds = stuck_after_seconds
        self._loop = asyncio.get_running_loop()
        self._answered = self._told = time.monotonic()
        self._blocker: Held | None = None
        self._seen = self._answered
        self._looks = 0
        #: The loop has been given up and has not answered since.
        self.given_up = False

    def answer(self) -> None:
        """The loop is not blocked: it says so itself, several times a second."""
        self._answered = time.monotonic()

    def blocker(self) -> Held | None:
        """The attempt that the loop executes at this moment, if there is one."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        running = {h.task: h for h in self._held.all() if h.running}
        return next((running[t] for t in _waiting_for(task) if t in running), None)

    async def watch(self) -> None:
        """Look every second, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(MemoryError):  # the next look may find some
                await self._look()

    async def _look(self) -> None:
        answered = self._answered
        if answered != self._seen:
            self._seen, self._looks, self.given_up, self._told = answered, 0, False, answered
            return
        blocker = self.blocker()
        if blocker is not self._blocker:
            self._blocker, self._looks = blocker, 0
        self._looks += 1
        now = time.monotonic()
        over, drained = self._limit(blocker, answered)
        if self._looks >= _SILENT_LOOKS and now > over:
            if not self.given_up:
                self._tell(now)
            self.given_up = True
            await self._give_up(blocker, drained)
        elif now - self._told > _TELL_SECONDS:
            self._tell(now)

    def _limit(self, blocker: Held | None, answered: float) -> tuple[float, bool]:
        """When the loop is given up, and whether that is because the worker drains."""
        if blocker is not None:
            over = self._time_over(blocker)
        else:
            # Any of those that run may have caused it: nobody is given up before its time.
            held = list(self._held.all())
            running = [self._time_over(h) for h in held if h.running]
            longest = self._time_over(None) if held else self._stuck_after_seconds
            over = max(running, default=answered + longest)
        drain = self._drain_over()
        return (over, False) if drain is None or over < drain else (drain, True)

    def _tell(self, now: float) -> None:
        self._told = now
        blocker = self._blocker
        self._aside.emit(
            LoopBlocked(
                worker=self._worker,
                seconds=now - self._answered,
                job_id=None if blocker is None else blocker.job_id,
                type=None if blocker is None else blocker.type,
                attempt=None if blocker is None else blocker.attempt,
            )
        )


def _waiting_for(task: asyncio.Task[Any]) -> Iterator[asyncio.Task[Any]]:
    """This task, and those that wait for it, directly or through others, as far as callbacks on futures tell."""
    ahead, seen = deque[object]([task]), dict[int, object]()
    while ahead and len(seen) < _MOST_LINKS:
        thing = ahead.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        match thing:
            case asyncio.TaskGroup():
                ahead.extend(vars(thing).values())
            case types.FunctionType():
                ahead.extend(thing.__closure__ or ())
            case asyncio.Future() | partial() | types.BuiltinFunctionType() | types.MethodType():
                if isinstance(thing, asyncio.Task):
                    yield thing
                ahead.extend(gc.get_referents(thing))
            case types.CellType() | tuple() | list():
                ahead.extend(gc.get_referents(thing))
