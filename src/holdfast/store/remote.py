"""What remote workers do, as statements of the engine, many of them in each. Role: remote.

Every request has its own answer: an error of one of them is a value here, and the others know nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.model.remote import (
    LeaseAsk,
    LeaseTold,
    PullAsk,
    PulledJob,
    PullTold,
    ReleaseAsk,
    ReportAsk,
    ReportTold,
)
from holdfast.store.database import Session
from holdfast.store.faults import refused_request

__all__ = ["News", "RemoteStore", "Stock"]

_JOB = tuple(PulledJob.__dataclass_fields__)
_REPORT = tuple(ReportTold.__dataclass_fields__)
_LEASE = tuple(LeaseTold.__dataclass_fields__)
T = TypeVar("T")


class Stock(NamedTuple):
    """A stream, and how many jobs can be claimed from it now."""

    stream: int
    tenant: str
    type: str
    queue: str
    ready: int


class News(NamedTuple):
    """What concerns a worker: one of its jobs, or (`drain`) itself."""

    worker: str
    job_id: UUID | None
    attempt: int | None
    directive: str


class RemoteStore:
    """Every request names its tenant; the engine refuses one without."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def pull(self, asked: Sequence[PullAsk]) -> list[PullTold | HoldfastError]:
        """Claim jobs, for each pull its own."""
        rows = await self._session.rows("remote_pull", *map(list, zip(*asked, strict=True)))
        answers: list[PullTold | HoldfastError | None] = [None] * len(asked)
        for row in rows:
            place = row["item"] - 1
            if row["fault"] is not None:
                answers[place] = _fault(row)
                continue
            told = answers[place]
            if told is None:
                told = answers[place] = PullTold(jobs=[], directive=row["directive"], repeated=row["repeated"])
            if row["job_id"] is not None and isinstance(told, PullTold):
                told.jobs.append(PulledJob(**{name: row[name] for name in _JOB}))
        return _whole(answers)

    async def report(self, asked: Sequence[ReportAsk]) -> list[ReportTold | HoldfastError]:
        """Record reports, each with what it ends."""
        rows = await self._session.rows("remote_report", *map(list, zip(*asked, strict=True)))
        answers: list[ReportTold | HoldfastError | None] = [None] * len(asked)
        for row in rows:
            answers[row["item"] - 1] = (
                _fault(row) if row["fault"] is not None else ReportTold(**{name: row[name] for name in _REPORT})
            )
        return _whole(answers)

    async def extend(self, asked: Sequence[LeaseAsk]) -> list[LeaseTold]:
        """Prolong leases."""
        rows = await self._session.rows("remote_extend", *map(list, zip(*asked, strict=True)))
        answers: list[LeaseTold | None] = [None] * len(asked)
        for row in rows:
            answers[row["item"] - 1] = LeaseTold(**{name: row[name] for name in _LEASE})
        return _whole(answers)

    async def release(self, asked: Sequence[ReleaseAsk]) -> list[str | HoldfastError | None]:
        """Hand jobs back. Answers each job's state; None for a lease that is lost."""
        rows = await self._session.rows("remote_release", *map(list, zip(*asked, strict=True)))
        answers: list[str | HoldfastError | None] = [None] * len(asked)
        for row in rows:
            answers[row["item"] - 1] = _fault(row) if row["fault"] is not None else row["state"]
        return answers

    async def beat(self, workers: Sequence[str]) -> set[str]:
        """Note that workers live. Returns those that are to claim no more."""
        return {row["worker"] for row in await self._session.rows("remote_beat", list(workers))}

    async def stock(
        self, tenants: Sequence[str], types: Sequence[str], announced: Sequence[int] | None, *, most: int
    ) -> list[Stock]:
        """Where there is work: for these pairs of tenant and type, or in those streams of the tenants."""
        rows = await self._session.rows("remote_stock", list(tenants), list(types), announced, most)
        return [Stock(*row) for row in rows]

    async def news(self, job_ids: Sequence[UUID] | None) -> list[News]:
        """What concerns workers: about these jobs, or about everything."""
        return [News(*row) for row in await self._session.rows("remote_news", job_ids)]

    async def repeats(self, asked: Sequence[PullAsk]) -> list[int]:
        """The places of those pulls that were given jobs before."""
        columns = ([ask.tenant for ask in asked], [ask.worker for ask in asked], [ask.request_id for ask in asked])
        return [row["item"] - 1 for row in await self._session.rows("remote_repeats", *columns)]


def _fault(row: Any) -> HoldfastError:
    return refused_request(row["fault"], row["detail"], row.get("pointer"))


def _whole(answers: Sequence[T | None]) -> list[T]:
    found = [answer for answer in answers if answer is not None]
    if len(found) < len(answers):
        raise HoldfastError("the engine left a request unanswered")
    return found
