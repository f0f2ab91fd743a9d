"""Waits for jobs to change, for any number of callers at once, with one statement for all of them.

The engine does not announce the end of every job: that would cost a notification per job. So one loop per process polls
for all waiting callers, often while states change and rarely while they do not. Progress reports do not shorten the
interval, because they never stop. While the database is away the loop keeps polling: callers decide how long they wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from holdfast.errors import DatabaseUnavailable, HoldfastError, NotFound
from holdfast.lifecycle.shared import start_shared
from holdfast.model.states import State
from holdfast.store.tenancy import PublicJob, TenancyStore

__all__ = ["Watcher"]

_OFTEN_SECONDS, _REPORTED_SECONDS, _RARELY_SECONDS, _SLOWER = 0.01, 0.1, 0.25, 1.3
_BATCH = 1000
#: So many jobs whose report was told are remembered.
_MOST_TOLD = 10_000

_Key = tuple[str, UUID]
#: How a job stands; and who waits until it does not stand so any more.
_Standing = tuple[State, datetime]
_Waiting = dict[asyncio.Future[PublicJob], _Standing]


class Watcher:
    """Everything that callers in this process wait for."""

    def __init__(self, store: TenancyStore) -> None:
        self._store = store
        self._waiting: dict[_Key, _Waiting] = {}
        #: Progress-only changes that were already delivered; resuming from one keeps the poll interval.
        self._told: dict[_Key, _Standing] = {}
        self._pause = _OFTEN_SECONDS
        self._task: asyncio.Task[None] | None = None

    async def changed(self, job: PublicJob, seconds: float) -> PublicJob:
        """The job once it is no longer as given; TimeoutError if that takes longer."""
        answer: asyncio.Future[PublicJob] = asyncio.get_running_loop().create_future()
        key = (job.tenant, job.id)
        if key not in self._waiting and self._told.pop(key, None) != _state(job):
            self._pause = _OFTEN_SECONDS
        self._waiting.setdefault(key, {})[answer] = _state(job)
        if self._task is None or self._task.done():
            self._task = start_shared(self._look(), name="watcher")
        try:
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            self._forget(key, answer)

    def _forget(self, key: _Key, answer: asyncio.Future[PublicJob]) -> None:
        others = self._waiting.get(key, {})
        others.pop(answer, None)
        if not others:
            self._waiting.pop(key, None)

    async def _look(self) -> None:
        """Ask for all that is waited for, until nobody waits."""
        while self._waiting:
            await asyncio.sleep(self._pause)
            self._pause = min(_RARELY_SECONDS, self._pause * _SLOWER)
            keys = list(self._waiting)
            for start in range(0, len(keys), _BATCH):
                try:
                    await self._ask(keys[start : start + _BATCH])
                except DatabaseUnavailable:
                    self._pause = _RARELY_SECONDS
                except HoldfastError as fault:
                    self._refuse(keys[start : start + _BATCH], fault)

    def _refuse(self, keys: Sequence[_Key], fault: HoldfastError) -> None:
        for key in keys:
            for answer in self._waiting.get(key, {}):
                if not answer.done():
                    answer.set_exception(fault)

    async def _ask(self, keys: Sequence[_Key]) -> None:
        found = {(job.tenant, job.id): job for job in await self._store.jobs(keys)}
        for key in keys:
            job = found.get(key)
            for answer, known in list(self._waiting.get(key, {}).items()):
                if answer.done():
                    continue
                if job is None:
                    answer.set_exception(NotFound(f"there is no job {key[1]}"))
                elif _state(job) != known:
                    self._hurry(key, known, job)
                    answer.set_result(job)

    def _hurry(self, key: _Key, known: _Standing, job: PublicJob) -> None:
        if job.state != known[0]:
            self._pause = _OFTEN_SECONDS
            return
        self._pause = min(self._pause, _REPORTED_SECONDS)
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[key] = _state(job)


def _state(job: PublicJob) -> _Standing:
    return job.state, job.updated_at
