"""The desk where remote workers wait for jobs: entries in memory, without a connection each.

1. One connection hears notifications for all of them, and one look a second asks where there is work, for all of them
   together. After a notification it looks again a few times: other transactions may have committed later.
2. As many workers are woken as there are jobs: in the order in which they came, each for a stream of its tenant from
   which it would take. A worker that was woken claims; if others were faster, it waits on at its old place.
3. What somebody decides about a running job reaches its worker by a notification, too, and by a look every two seconds.
4. Workers that call are written down as alive, all of them together, each at most once in 30 seconds.
5. The desk works while somebody has called lately, and listens while somebody waits.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal
from uuid import UUID

from holdfast.client.bulletin import Bulletin
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.lifecycle.shared import start_shared
from holdfast.model.remote import PullAsk
from holdfast.store.ear import Ear
from holdfast.store.remote import RemoteStore, Stock

__all__ = ["Desk", "Group", "Waiter"]

#: Why a waiter does not wait any longer: there may be a job for it, or news; or a repeat of its call has come.
Why = Literal["turn", "news", "replaced"]

_LOOK_SECONDS, _NEWS_SECONDS = 1.0, 2.0
#: How often it is looked who lives, and how often a worker is written down.
_BEAT_EVERY_SECONDS, _BEAT_SECONDS = 5.0, 30.0
#: A group is known to be without work for as long after a look.
_FRESH_SECONDS = 2.0
#: How long the first look for a repeated pull waits for others, where nothing else is to be expected.
_TOGETHER_SECONDS = 0.3
#: When to look again after a notification, in seconds after the last look.
_LINGER = (0.005, 0.025, 0.07, 0.1, 0.1, 0.1, 0.1)
#: How long the desk works on after the last call.
_IDLE_SECONDS = 60.0
#: How many jobs of a stream are counted, and how many names of streams are kept.
_MOST, _NAMES = 1000, 100_000
#: How many workers are written down in one statement.
_BEATEN = 1000


class Group:
    """The waiters of a tenant for the same types and queues."""

    def __init__(self, tenant: str, types: frozenset[str], queues: frozenset[str] | None) -> None:
        self.tenant, self.types, self.queues = tenant, types, queues
        self.line: list[tuple[int, int, Waiter]] = []
        #: When it was last known that there is nothing for it.
        self.empty_at = float("-inf")

    def takes(self, job_type: str, queue: str) -> bool:
        """Whether its waiters would take from a stream."""
        return job_type in self.types and (self.queues is None or queue in self.queues)

    def first(self) -> Waiter | None:
        """The first one that still waits."""
        while self.line and self.line[0][-1].over:
            heapq.heappop(self.line)
        return self.line[0][-1] if self.line else None


class Waiter:
    """A call that waits."""

    __slots__ = ("most", "place", "stream", "why", "worker")

    def __init__(self, worker: str, most: int, place: int) -> None:
        self.worker, self.most, self.place = worker, most, place
        #: For which stream it was woken.
        self.stream: int | None = None
        self.why: asyncio.Future[Why] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether it waits no longer."""
        return self.why.done()

    def wake(self, why: Why) -> None:
        """End its wait."""
        if not self.why.done():
            self.why.set_result(why)


class Desk:
    """Everybody who waits in this process."""

    def __init__(self, store: RemoteStore, config: Config) -> None:
        self._store = store
        self.bulletin = Bulletin()
        self._ear = Ear(config, ("ready", "interrupt"), self._heard, role="remote")
        self._groups: dict[str, dict[tuple[frozenset[str], frozenset[str] | None], Group]] = {}
        self._waiting: dict[str, set[Waiter]] = {}  # by worker
        self._places = itertools.count()
        self._names: dict[int, tuple[str, str, str]] = {}
        #: Streams that were announced, and until when to look at them again.
        self._announced: set[int] = set()
        self._everywhere = False
        self._named: set[UUID] = set()
        self._linger: list[float] = []
        #: By stream: how many jobs were left to waiters that have not claimed yet.
        self._promised: Counter[int] = Counter()
        self._checks: list[tuple[PullAsk, asyncio.Future[bool]]] = []
        self._checks_due = False
        self._called: dict[str, float] = {}
        self._beaten: dict[str, float] = {}
        self._looked_at = self._news_at = self._beat_at = float("-inf")
        self._latest = time.monotonic()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hearing: asyncio.Task[None] | None = None

    def call(self, worker: str) -> None:
        """A worker has called."""
        self._called[worker] = self._latest = time.monotonic()
        if self._task is None or self._task.done():
            self._task = start_shared(self._work(), name="desk")

    def group(self, tenant: str, types: Sequence[str], queues: Sequence[str] | None) -> Group:
        """The group of a pull."""
        key = frozenset(types), None if queues is None else frozenset(queues)
        groups = self._groups.setdefault(tenant, {})
        if key not in groups:
            groups[key] = Group(tenant, *key)
        return groups[key]

    def is_empty(self, group: Group) -> bool:
        """Whether there is certainly nothing for a group, as of a moment ago."""
        return self._ear.listens and time.monotonic() - group.empty_at < _FRESH_SECONDS

    def join(self, worker: str, group: Group | None, most: int, place: int | None = None) -> Waiter:
        """Wait, for jobs or only for news. A waiter that comes back has its old place."""
        entry = next(self._places)
        waiter = Waiter(worker, most, entry if place is None else place)
        self._waiting.setdefault(worker, set()).add(waiter)
        if group is not None:
            heapq.heappush(group.line, (waiter.place, entry, waiter))
        if self._hearing is None or self._hearing.done():
            self._hearing = start_shared(self._ear.run(), name="desk ear")
        self._woken.set()
        return waiter

    async def wait(self, waiter: Waiter, seconds: float) -> Why | None:
        """Why its wait has ended; None if the time is over."""
        try:
            async with asyncio.timeout(seconds):
                return await waiter.why
        except TimeoutError:
            return None
        finally:
            waiter.why.cancel()
            others = self._waiting.get(waiter.worker, set())
            others.discard(waiter)
            if not others:
                self._waiting.pop(waiter.worker, None)

    def claimed(self, waiter: Waiter, *, given_up: bool = False) -> None:
        """A waiter that was woken for jobs has tried to claim them, or has gone before (`given_up`)."""
        if waiter.stream is None:
            return
        self._promised[waiter.stream] -= waiter.most
        if self._promised[waiter.stream] <= 0:
            del self._promised[waiter.stream]
        if given_up:
            self._announced.add(waiter.stream)
            self._linger = list(_LINGER)
            self._woken.set()
        waiter.stream = None

    async def is_repeat(self, ask: PullAsk) -> bool:
        """Whether a pull was given jobs before. Looked up together with others, a moment later."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not self._checks:
            asyncio.get_running_loop().call_later(_TOGETHER_SECONDS, self._check_now)
        self._checks.append((ask, answer))
        return await answer

    def _check_now(self) -> None:
        self._checks_due = True
        self._woken.set()

    async def close(self) -> None:
        """Stop."""
        for task in (self._task, self._hearing):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        for waiter in [waiter for waiters in self._waiting.values() for waiter in waiters]:
            waiter.wake("replaced")

    def _heard(self, topic: str, payload: str) -> None:
        if topic == "interrupt":
            with suppress(ValueError):
                self._named.add(UUID(payload))
        elif payload:
            ids = {int(part) for part in payload.split(",") if part.isdigit()}
            self._announced |= {one for one in ids if one not in self._names or self._matching(*self._names[one])}
        else:
            self._everywhere = True
        if self._announced or self._everywhere or self._named:
            self._linger = list(_LINGER)
            self._woken.set()

    def _takers(self, tenant: str, job_type: str, queue: str) -> list[Group]:
        """The groups with waiters that would take from a stream."""
        return [group for group in self._matching(tenant, job_type, queue) if group.first()]

    def _matching(self, tenant: str, job_type: str, queue: str) -> list[Group]:
        return [group for group in self._groups.get(tenant, {}).values() if group.takes(job_type, queue)]

    async def _work(self) -> None:
        while self._waiting or time.monotonic() - self._latest < _IDLE_SECONDS:
            self._woken.clear()
            try:
                pause = await self._round()
            except HoldfastError:
                pause = _LOOK_SECONDS / 2
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
        if self._hearing is not None:
            self._hearing.cancel()

    async def _round(self) -> float:
        """Look at what is due. Returns when to look again."""
        now = time.monotonic()
        if self._named:
            named, self._named = self._named, set()
            self._tell(self.bulletin.add(await self._store.news(list(named))))
        if self._waiting and now - self._news_at >= _NEWS_SECONDS:
            self._news_at = now
            self.bulletin.replace(await self._store.news(None))
            self._tell(set(self._waiting))
        if self._checks_due:
            await self._look_for_repeats()
        if now - self._looked_at >= _LOOK_SECONDS or self._everywhere:
            await self._look_everywhere(now)
        elif self._announced:
            await self._look_at(list(self._announced))
        await self._beat(now)
        return self._pause()

    def _pause(self) -> float:
        if self._announced:
            if self._linger:
                return self._linger.pop(0)
            self._announced.clear()
        return max(0.0, _LOOK_SECONDS - (time.monotonic() - self._looked_at)) if self._groups else _LOOK_SECONDS

    async def _look_everywhere(self, now: float) -> None:
        self._looked_at, self._everywhere = now, False
        groups = list(self._present_groups())
        if not groups:
            return
        pairs = sorted({(group.tenant, job_type) for group in groups for job_type in group.types})
        tenants, types = [tenant for tenant, _ in pairs], [job_type for _, job_type in pairs]
        stock = await self._store.stock(tenants, types, None, most=_MOST)
        stocked = [(one.tenant, one.type, one.queue) for one in stock if one.ready]
        for group in groups:
            if not any(tenant == group.tenant and group.takes(kind, queue) for tenant, kind, queue in stocked):
                group.empty_at = now
        self._deal(stock)

    async def _look_at(self, streams: list[int]) -> None:
        self._deal(await self._store.stock([], [], streams, most=_MOST))

    def _deal(self, stock: Sequence[Stock]) -> None:
        """Wake as many waiters as there are jobs."""
        for one in stock:
            if len(self._names) >= _NAMES:
                self._names.clear()
            self._names[one.stream] = one.tenant, one.type, one.queue
            left = one.ready - self._promised[one.stream]
            if one.ready:
                for group in self._matching(one.tenant, one.type, one.queue):
                    group.empty_at = float("-inf")
            while left > 0 and (takers := self._takers(one.tenant, one.type, one.queue)):
                group = min(takers, key=_place_of_first)
                *_, waiter = heapq.heappop(group.line)
                waiter.stream = one.stream
                self._promised[one.stream] += waiter.most
                left -= waiter.most
                waiter.wake("turn")

    def _tell(self, workers: set[str]) -> None:
        for worker in workers:
            if worker in self._waiting and self.bulletin.is_new(worker):
                for waiter in self._waiting[worker]:
                    waiter.wake("news")

    async def _look_for_repeats(self) -> None:
        checks, self._checks, self._checks_due = self._checks, [], False
        checks = [(ask, answer) for ask, answer in checks if not answer.done()]
        try:
            found = set(await self._store.repeats([ask for ask, _ in checks])) if checks else set()
        except HoldfastError:
            found = set(range(len(checks)))  # the pull itself finds out
        for place, (_, answer) in enumerate(checks):
            if not answer.done():
                answer.set_result(place in found)

    async def _beat(self, now: float) -> None:
        """Write down who lives: whoever has called, or waits."""
        if now - self._beat_at < _BEAT_EVERY_SECONDS:
            return
        self._beat_at = now
        self._called |= dict.fromkeys(self._waiting, now)
        due = [worker for worker in self._called if now - self._beaten.get(worker, float("-inf")) >= _BEAT_SECONDS]
        for start in range(0, len(due), _BEATEN):
            part = due[start : start + _BEATEN]
            await self._store.beat(part)
            for worker in part:
                self._beaten[worker] = now
                del self._called[worker]
        if due:
            self._beaten = {worker: at for worker, at in self._beaten.items() if now - at < 3 * _BEAT_SECONDS}

    def _present_groups(self) -> Iterator[Group]:
        """The groups with waiters; others are forgotten."""
        for tenant, groups in list(self._groups.items()):
            for key, group in list(groups.items()):
                if group.first():
                    yield group
                elif time.monotonic() - group.empty_at > _FRESH_SECONDS:
                    del groups[key]
            if not groups:
                del self._groups[tenant]


def _place_of_first(group: Group) -> int:
    first = group.first()
    return first.place if first else 0
