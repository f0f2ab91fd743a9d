"""Detects handlers that block the worker's event loop, by the clock, from the lease keeper's thread.

1. Timers do not fire in a blocked loop, so neither the handler's timeout nor the worker's own check for stuck handlers
   works. This clock does not depend on that loop.
2. asyncio knows which task a loop is executing. The blocking attempt is the one that runs in that task, or in a task
   that waits for it (`wait_for`, `gather`, `TaskGroup` and others run their coroutines in separate tasks), or the one
   that started it (`holdfast.worker.owners`). A task that an ended attempt left behind, and an observer in a task of
   the worker, belong to no claimed attempt: then none is to blame. For callbacks outside of tasks, and for foreign
   tasks, the blocker is unknown.
3. An attempt may block for as long as it may run: its timeout plus the time after which a handler counts as stuck. If
   the worker has no job at all, an observer or a task that was left behind is blocking, and only the latter time
   counts. A draining worker waits for its grace period at most. Then the loop is given up.
4. A loop is given up only if it was silent, in the same task, for several looks in a row: a process that was frozen
   finds all clocks ahead, but its loop answers at once.
5. Long before that, it notes who blocks a loop in which handlers wait: they get the time back (`silence`).
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
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.owners import owner_of
from holdfast.worker.silence import Blocker, Silence

__all__ = ["Blockage"]

#: Longer than a working loop takes to answer.
_LOOK_SECONDS = 1.0
_SILENT_LOOKS = 3
#: How often it looks whether the loop keeps handlers waiting; less often if there are none.
_SAMPLE_SECONDS, _IDLE_SECONDS = 0.1, 0.25
#: How often a blocked loop is reported.
_TELL_SECONDS = 30.0
#: The maximal number of objects to look at between a task and one that waits for it.
_MOST_LINKS = 1000


class Blockage:
    """Whether the event loop in which this was created answers, and which attempt blocks it.

    `time_over` says until when an attempt may run, `drain_over` when a drain must have ended (None: no drain).
    `give_up` is called in the watching thread, at each look at which the loop must be given up.
    """

    def __init__(
        self,
        worker: str,
        claimed: ClaimedAttempts,
        aside: Aside,
        *,
        time_over: Callable[[Claimed | None], float],
        stuck_after_seconds: float,
        drain_over: Callable[[], float | None],
        give_up: Callable[[Blocker, bool], Awaitable[None]],
        silence: Silence | None = None,
    ) -> None:
        self._silence = silence or Silence()
        self._worker, self._claimed, self._aside = worker, claimed, aside
        self._time_over, self._drain_over, self._give_up = time_over, drain_over, give_up
        self._stuck_after_seconds = stuck_after_seconds
        self._loop = asyncio.get_running_loop()
        self._answered = self._told = time.monotonic()
        self._blocker = Blocker(None, known=False)
        self._seen = self._answered
        self._looks = 0
        #: The loop has been given up and has not answered since.
        self.given_up = False

    @property
    def answered_at(self) -> float:
        """When the loop answered last."""
        return self._answered

    def answer(self) -> None:
        """Note that the loop is not blocked. The loop itself calls this several times a second."""
        self._answered = time.monotonic()

    def blocker(self) -> Blocker:
        """The attempt whose code the loop executes at this moment."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return Blocker(None, known=False)
        running = {h.task: h for h in self._claimed.all() if h.running}
        attempt = next((running[t] for t in _waiting_for(task) if t in running), None)
        if attempt is not None:
            return Blocker(attempt, known=True)
        owner = owner_of(task)
        if owner is None:
            return Blocker(None, known=False)
        if owner.attempt is None or not owner.attempt.running:
            return Blocker(None, known=True)
        return Blocker(None, known=False) if owner.shared else Blocker(owner.attempt, known=True)

    async def watch(self) -> None:
        """Look every second, for ever, and in between only for whoever keeps handlers waiting."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS if len(self._claimed) else _IDLE_SECONDS)
            with contextlib.suppress(MemoryError):  # there may be memory again at the next look
                if self._silence.lasts:
                    self._silence.note(self.blocker())
                if (now := time.monotonic()) - looked >= _LOOK_SECONDS:
                    looked = now
                    await self._look()

    async def _look(self) -> None:
        answered = self._answered
        if answered != self._seen:
            self._seen, self._looks, self.given_up, self._told = answered, 0, False, answered
            return
        blocker = self.blocker()
        if blocker != self._blocker:
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

    def _limit(self, blocker: Blocker, answered: float) -> tuple[float, bool]:
        """When to give up the loop, and whether that is because the worker drains."""
        if blocker.attempt is not None:
            over = self._time_over(blocker.attempt)
        else:
            # Threads and processes go on, and any attempt may be the cause: none is given up before its time.
            claimed = list(self._claimed.all())
            running = [self._time_over(h) for h in claimed if h.running]
            longest = self._time_over(None) if claimed else self._stuck_after_seconds
            over = max(running, default=answered + longest)
        drain = self._drain_over()
        return (over, False) if drain is None or over < drain else (drain, True)

    def _tell(self, now: float) -> None:
        self._told = now
        blocker = self._blocker.attempt
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
    """This task, and those that wait for it, directly or through others, as far as the callbacks of futures show."""
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
