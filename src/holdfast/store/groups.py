"""Groups concurrent calls that record one job each into shared statements. Each call gets its own answer.

1. No call waits for others to join. A call that finds a free slot runs its own statement, in its own task. Calls that
   arrive while all slots are taken are sent together next. There are two slots, and a slow statement gives up its slot.
2. Each job is recorded for its own tenant and creator.
3. A refused job does not harm the others: nothing of its group was recorded, so the group is sent again, in halves if
   no key is involved, and otherwise in one statement that leaves out what is refused.
4. A job whose key belongs to an open transaction is tried again and again, beside the others, for as long as a single
   call would wait. One statement records the jobs of a group whose keys are free, and leaves out the others: jobs with
   keys of their own do not wait for them.
5. Any other failure (a connection that was cut, no answer in time) is reported to each call of a group as to a single
   call. Whether the job was recorded is then unknown, unless the caller looks, or repeats the call with an idempotency
   key.
6. If a caller is gone before its group is sent, its job is left out; after that, the others still get their answers.

Only statements that commit by themselves can be grouped: calls on a caller's connection never come here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context
from itertools import groupby
from operator import attrgetter
from typing import Any

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError, NotOpen, SchemaError
from holdfast.lifecycle.portal import in_loop
from holdfast.lifecycle.shared import start_shared
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.calls import Call, LoopCall, ThreadCall, late, refuse_all
from holdfast.store.database import LOCK_SECONDS, STATEMENT_SECONDS, Session
from holdfast.store.jobs import JobStore, are_alike
from holdfast.store.tenancy import LeftOut, TenancyStore

__all__ = ["Groups"]

#: How many statements may be under way before calls wait; and how many if some of them take long.
_SLOTS, _MOST_STATEMENTS = 2, 4
#: A statement that takes longer is waiting for something: other calls do not wait for it.
_SLOW_SECONDS = 0.05
#: How many jobs, and how many characters of payloads, one statement records.
_MOST_JOBS, _MOST_CHARACTERS = 500, 2**20
#: A larger payload would delay the other calls, so it is sent alone.
_LARGE_CHARACTERS = 2**15
#: How many jobs with keys are tried in one statement, which waits a little for each that is locked.
_MOST_TRIED = 100
#: How many patient statements may wait for locks of others besides those in slots.
_STUCK = 1
#: Errors that concern every job of a group.
_OF_ALL = (DatabaseUnavailable, NotOpen, SchemaError)


class Groups:
    """The calls of one app, in one event loop at a time."""

    def __init__(self, session: Session) -> None:
        self._store, self._tenancy = JobStore(session), TenancyStore(session)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line: deque[Call] = deque()
        #: When each statement under way began.
        self._under_way: dict[object, float] = {}
        #: Whether the last statement recorded several jobs. Then more calls are expected in this turn of the loop.
        self._crowded = False
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck = asyncio.Semaphore(_STUCK)
        #: Calls with keys, one of which belongs to an open transaction, and until when they are tried.
        self._locked: deque[tuple[list[Call], float]] = deque()
        #: By key that is known to be locked: those that wait for the one call that is tried.
        self._behind: dict[tuple[str, str, str], list[tuple[Call, float]]] = {}
        self._tries_locked = False

    def open(self) -> None:
        """Begin in the running loop. Everything of an earlier loop is forgotten."""
        self._loop = asyncio.get_running_loop()
        self._under_way.clear()
        self._crowded, self._is_due, self._timer = False, False, None
        self._stuck = asyncio.Semaphore(_STUCK)
        self._behind.clear()
        self._tries_locked = False

    def close(self) -> None:
        """Tell all waiting calls that the app was closed; statements under way go on."""
        self._loop = None
        while self._locked:
            self._line.extend(self._locked.popleft()[0])
        for waiting in self._behind.values():
            self._line.extend(call for call, _ in waiting)
        self._behind.clear()
        while self._line:
            self._line.popleft().refuse(NotOpen("the app was closed"))

    async def enqueue_one(self, intent: Intent) -> Enqueued:
        """Record one job. In a thread without a loop this blocks the thread: see `immediately`."""
        loop = asyncio._get_running_loop()
        if loop is None:
            return self._enqueue_from_thread(intent)
        if loop is not self._loop or len(intent.payload) > _LARGE_CHARACTERS:
            return await self._store.enqueue_one(intent)  # it refuses a foreign loop
        if not self._crowded and not self._line and len(self._under_way) < _SLOTS:
            slot = self._take_slot(loop)
            try:
                return await self._store.enqueue_one(intent)
            finally:
                self._leave_slot(slot, loop)
        call = LoopCall(intent, loop.create_future())
        self._line.append(call)
        self._send_soon(loop)
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                return await call.answer
        except TimeoutError:
            raise late(call) from None
        finally:
            del call  # if its answer is an error, that refers to this frame

    def _enqueue_from_thread(self, intent: Intent) -> Enqueued:
        loop = self._loop
        if loop is None:
            raise NotOpen("the app is not open: use `async with hf:`, or the blocking `hf.sync`")
        if len(intent.payload) > _LARGE_CHARACTERS:
            return in_loop(self._store.enqueue_one(intent), loop)
        call = ThreadCall(intent)
        self._line.append(call)
        # The loop clears the mark before it takes calls from the line, so a mark that is set covers this call, too.
        if not self._is_due:
            self._is_due = True
            try:
                loop.call_soon_threadsafe(self._send_on, loop, context=Context())
            except RuntimeError:  # that loop is closed
                raise NotOpen("the app was closed") from None
        return call.wait()

    def _take_slot(self, loop: asyncio.AbstractEventLoop) -> object:
        slot = object()
        self._under_way[slot] = loop.time()
        return slot

    def _leave_slot(self, slot: object, loop: asyncio.AbstractEventLoop) -> None:
        self._under_way.pop(slot, None)
        if self._line:
            self._send_soon(loop)

    def _has_slot(self, loop: asyncio.AbstractEventLoop) -> bool:
        if len(self._under_way) < _SLOTS:
            return True
        lately = loop.time() - _SLOW_SECONDS
        fast = sum(began > lately for began in self._under_way.values())
        return fast < _SLOTS and len(self._under_way) < _MOST_STATEMENTS

    def _send_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send at the end of this turn of the loop, so that all calls of this turn can join."""
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._send_on, loop, context=Context())

    def _send_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due = False
        while self._line and self._has_slot(loop):
            group = self._next_group()
            if group:
                self._start(self._send(group, self._take_slot(loop), loop))
        if self._line and self._timer is None:
            self._timer = loop.call_later(_SLOW_SECONDS, self._look_again, loop, context=Context())

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._send_on(loop)

    def _next_group(self) -> list[Call]:
        """The next calls in line whose callers still wait."""
        group: list[Call] = []
        characters = 0
        while self._line and len(group) < _MOST_JOBS and characters < _MOST_CHARACTERS:
            call = self._line.popleft()
            if not call.over:
                group.append(call)
                characters += len(call.intent.payload)
        return group

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = start_shared(work, name="enqueue together")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, group: list[Call], slot: object, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._record(group)
        finally:
            self._crowded = len(group) > 1
            self._leave_slot(slot, loop)

    async def _record(self, group: list[Call], *, patient: bool = False, tried: bool = False) -> None:
        """Record these jobs, and answer the calls. A patient statement waits for locks as long as a single call.

        DatabaseBusy is raised where they are only tried.
        """
        for call in group:
            call.sent = True
        intents = [call.intent for call in group]
        patient = patient or are_alike(intents)
        try:
            answers = await (self._store.enqueue(intents) if patient else self._tenancy.submit(intents))
        except DatabaseBusy as fault:
            if tried:
                raise
            if patient:
                refuse_all(group, fault)
            else:
                await self._send_apart(group)
            return
        except _OF_ALL as fault:
            refuse_all(group, fault)
            return
        except HoldfastError as fault:
            if len(group) == 1:
                refuse_all(group, fault)
                return
        except BaseException as fault:
            refuse_all(group, fault)
            raise
        else:
            for call, enqueued in zip(group, answers, strict=True):
                call.accept(enqueued)
            return
        await self._sort_out(group, patient=patient)

    async def _sort_out(self, group: list[Call], *, patient: bool) -> None:
        """Record a group of which some are refused. In halves, each half with keys would wait for the same locks."""
        if patient:
            middle = len(group) // 2
            await self._record(group[:middle], patient=True)
            await self._record(group[middle:], patient=True)
            return
        left: list[Call] = []
        group = sorted(group, key=lambda call: bool(call.intent.keys))  # those without a key wait for none
        for start in range(0, len(group), _MOST_TRIED):
            left += await self._record_free(group[start : start + _MOST_TRIED])
        if left:
            await self._send_apart(left)

    async def _send_apart(self, group: list[Call]) -> None:
        """Send calls with a key apart: somebody holds a lock that one of the calls needs, most likely that of a key."""
        keyed, others = [call for call in group if call.intent.keys], [call for call in group if not call.intent.keys]
        if keyed:
            # The newest come first: those among them whose keys are free do not wait for older ones that are locked.
            self._locked.appendleft((keyed, asyncio.get_running_loop().time() + LOCK_SECONDS))
            self._start_trying()
        if keyed and others:
            await self._record(others)
            return
        for _, calls in groupby(sorted(others, key=attrgetter("names")), key=attrgetter("names")):
            self._start(self._wait_for_lock(list(calls)))

    def _start_trying(self) -> None:
        if self._locked and not self._tries_locked:
            self._tries_locked = True
            self._start(self._try_locked())

    async def _try_locked(self) -> None:
        """Record the calls whose keys are free, over one connection. Of each locked key, one call is tried on."""
        try:
            while self._locked:
                part, until = self._locked.popleft()
                part = [call for call in part if not call.over and not self._waits_behind(call, until)]
                if len(part) > _MOST_TRIED:
                    self._locked.appendleft((part[_MOST_TRIED:], until))
                for call in await self._record_free(part[:_MOST_TRIED]):
                    if not self._waits_behind(call, until):
                        self._try_alone(call, until)
        finally:
            self._tries_locked = False

    async def _record_free(self, part: list[Call]) -> list[Call]:
        """Record the jobs whose keys are free, and answer their calls. Returns the other calls."""
        if not part:
            return []
        for call in part:
            call.sent = True
        try:
            answers = await self._tenancy.submit_free([call.intent for call in part])
        except DatabaseBusy:
            return part
        except _OF_ALL as fault:
            refuse_all(part, fault)
            return []
        except HoldfastError as fault:
            if len(part) == 1:
                refuse_all(part, fault)
                return []
        except BaseException as fault:
            refuse_all(part, fault)
            raise
        else:
            return await self._answered(part, answers)
        middle = len(part) // 2
        return [*await self._record_free(part[:middle]), *await self._record_free(part[middle:])]

    async def _answered(self, part: list[Call], answers: list[Enqueued | LeftOut]) -> list[Call]:
        """Answer the calls of one statement. Returns those that are locked."""
        refused: list[Call] = []
        locked: list[Call] = []
        for call, answer in zip(part, answers, strict=True):
            if isinstance(answer, Enqueued):
                call.accept(answer)
            else:
                (refused if answer == "refused" else locked).append(call)
        for call in refused:
            try:
                await self._record([call], tried=True)
            except DatabaseBusy:
                locked.append(call)
        return locked

    def _waits_behind(self, call: Call, until: float) -> bool:
        """Have a call wait if one of its keys is known to be locked."""
        for key in call.intent.keys:
            if key in self._behind:
                self._behind[key].append((call, until))
                return True
        return False

    def _try_alone(self, call: Call, until: float) -> None:
        """Try a call whose key is locked, in a task of its own, until it is answered. Others with that key wait."""
        for key in call.intent.keys:
            self._behind.setdefault(key, [])
        self._start(self._try_again(call, until))

    async def _try_again(self, call: Call, until: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not call.over:
                async with self._stuck:
                    try:
                        await self._record([call], tried=True)
                    except DatabaseBusy as fault:
                        if loop.time() > until:
                            refuse_all([call], fault)
        finally:
            freed = [waiting for key in call.intent.keys for waiting in self._behind.pop(key, [])]
            for waiting, its in freed:
                self._locked.appendleft(([waiting], its))
            self._start_trying()

    async def _wait_for_lock(self, part: list[Call]) -> None:
        async with self._stuck:
            if left := [call for call in part if not call.over]:
                await self._record(left, patient=True)
