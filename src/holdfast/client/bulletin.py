"""What remote workers should know about their jobs: that they are to stop them, or have lost them.

A worker that has been told needs a moment to obey. Meanwhile its calls do not end early for the same news again and
again; but if the answer was lost, the worker is told once more a few seconds later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from holdfast.store.remote import News

__all__ = ["Bulletin", "JobNews"]

#: How long a worker has to obey before it is told again.
_AGAIN_SECONDS = 5.0
#: For how long a worker is told that it has lost a job.
_LOST_SECONDS = 30.0


class JobNews(NamedTuple):
    """A job that a worker is to stop, or has lost."""

    job_id: UUID
    attempt: int
    directive: str


class Bulletin:
    """The news of one process."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[tuple[UUID, int], str]] = {}
        self._lost_at: dict[tuple[UUID, int], float] = {}
        self._quiet: set[str] = set()
        self._told: dict[tuple[object, ...], float] = {}

    def replace(self, news: Iterable[News]) -> None:
        """These are all news, but for lost jobs."""
        now = time.monotonic()
        self._lost_at = {job: at for job, at in self._lost_at.items() if now - at < _LOST_SECONDS}
        self._jobs = {
            worker: left
            for worker, jobs in self._jobs.items()
            if (left := {job: told for job, told in jobs.items() if told == "lost" and job in self._lost_at})
        }
        self._quiet = set()
        self._told = {what: at for what, at in self._told.items() if now - at < _AGAIN_SECONDS}
        self.add(news)

    def add(self, news: Iterable[News]) -> set[str]:
        """Something has happened. Returns whom it concerns."""
        concerned = set()
        for one in news:
            concerned.add(one.worker)
            if one.job_id is None or one.attempt is None:
                self._quiet.add(one.worker)
                continue
            self._jobs.setdefault(one.worker, {})[one.job_id, one.attempt] = one.directive
            if one.directive == "lost":
                self._lost_at[one.job_id, one.attempt] = time.monotonic()
        return concerned

    def of(self, worker: str) -> list[JobNews]:
        """What a worker should know."""
        return [JobNews(*job, directive) for job, directive in self._jobs.get(worker, {}).items()]

    def is_quiet(self, worker: str) -> bool:
        """Whether it is to claim no more."""
        return worker in self._quiet

    def is_new(self, worker: str) -> bool:
        """Whether there is something that a worker has not been told lately."""
        if worker in self._quiet and self.new(worker, "drain"):
            return True
        return any(self.new(worker, *one) for one in self.of(worker))

    def tell(self, worker: str) -> list[JobNews]:
        """What a worker should know, which it is told now."""
        if worker in self._quiet:
            self.note(worker, "drain")
        told = self.of(worker)
        for one in told:
            self.note(worker, *one)
        return told

    def new(self, worker: str, *what: object) -> bool:
        """Whether a worker has not been told this lately."""
        at = self._told.get((worker, *what))
        return at is None or time.monotonic() - at >= _AGAIN_SECONDS

    def note(self, worker: str, *what: object) -> None:
        """A worker is told."""
        self._told[worker, *what] = time.monotonic()
