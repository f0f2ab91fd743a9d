"""What clients do to jobs: record, ask, read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Unpack
from uuid import UUID

from asyncpg.pgproto import pgproto

from holdfast.model.filters import Filters
from holdfast.model.ids import new_job_id_bytes
from holdfast.model.job import Attempt, Enqueued, Event, Job
from holdfast.model.names import refuse_unknown
from holdfast.model.options import Intent
from holdfast.model.progress import Item
from holdfast.model.states import State
from holdfast.store.database import Session
from holdfast.store.foreign import Foreign
from holdfast.store.rows import attempt_of, event_of, item_of, job_of

__all__ = ["JobStore"]

_TENANT_AND_CREATOR = attrgetter("tenant", "created_by")


class JobStore:
    """The client's verbs, as statements of the engine."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def over(self, conn: Any) -> JobStore:
        """The same verbs on a caller's connection, inside its transaction."""
        return JobStore(Foreign(conn, self._session.schema, self._session.disk))

    async def enqueue(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record intents, in order. One transaction per run of intents with the same tenant and creator."""
        answers: list[Enqueued] = []
        for (tenant, created_by), run in groupby(intents, key=_TENANT_AND_CREATOR):
            batch = list(run)
            if _is_plain(batch):
                first = batch[0]
                answers += await self._enqueue_plain(
                    first.type,
                    [i.payload for i in batch],
                    [i.id for i in batch],
                    queue=first.options.get("queue"),
                    tenant=tenant,
                    created_by=created_by,
                )
                continue
            options = [json.dumps(dict(i.options)) if i.options else None for i in batch]
            rows = await self._session.rows(
                "enqueue_many",
                [i.type for i in batch],
                [i.payload for i in batch],
                options if any(options) else None,
                tenant,
                created_by,
                [i.id for i in batch],
            )
            rows.sort(key=lambda row: row["item"])
            answers += [_enqueued(row) for row in rows]
        return answers

    async def enqueue_alike(self, job_type: str, payloads: list[str], *, queue: str | None) -> list[Enqueued]:
        """Record jobs of one type that say nothing but, perhaps, a queue, in one transaction."""
        # The driver's own UUID, which it would make of any other: less than half the work for a large batch.
        ids: list[UUID] = [pgproto.UUID(number) for number in new_job_id_bytes(len(payloads))]
        return await self._enqueue_plain(job_type, payloads, ids, queue=queue)

    async def _enqueue_plain(
        self,
        job_type: str,
        payloads: list[str],
        ids: list[UUID],
        *,
        queue: str | None,
        tenant: str = "default",
        created_by: str | None = None,
    ) -> list[Enqueued]:
        """The engine tells only of those that were not simply recorded."""
        alone = not self._session.inside_transaction
        rows = await self._session.rows("enqueue_plain", job_type, payloads, ids, queue, tenant, created_by, alone)
        answers = list(map(Enqueued, ids, repeat(State.QUEUED), repeat("created")))
        for row in rows:
            answers[row["item"] - 1] = _enqueued(row)
        return answers

    async def request(
        self, verb: str, job_ids: Sequence[UUID], *, by: str | None, note: str | None, tenant: str | None
    ) -> list[tuple[UUID, str, UUID | None]]:
        """Ask for something; (job, outcome, request or new job) each."""
        statement = "request_later" if self._session.inside_transaction else "request"
        rows = await self._session.rows(statement, verb, list(job_ids), by, note, tenant)
        return [(row["job_id"], row["outcome"], row["request_id"]) for row in rows]

    async def release_held(
        self, job_ids: Sequence[UUID], *, by: str | None, tenant: str | None
    ) -> list[tuple[UUID, str]]:
        """Release held jobs; (job, outcome) each."""
        rows = await self._session.rows("release_held", list(job_ids), by, tenant)
        return [(row["job_id"], row["outcome"]) for row in rows]

    async def get(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Job]:
        """The jobs that exist among the given ones, in no order."""
        return [job_of(row) for row in await self._session.rows("get_jobs", list(job_ids), tenant)]

    async def list(self, **filters: Unpack[Filters]) -> list[Job]:
        """Jobs, newest first."""
        refuse_unknown("filter", filters, Filters.__annotations__)
        asked = {"limit": 50, **filters}
        rows = await self._session.rows("list_jobs", *(asked.get(name) for name in Filters.__annotations__))
        return [job_of(row) for row in rows]

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """Every ended attempt of a job, oldest first."""
        return [attempt_of(row) for row in await self._session.rows("get_attempts", job_id)]

    async def events(self, job_id: UUID) -> Sequence[Event]:
        """The rarer moves of a job, oldest first."""
        return [event_of(row) for row in await self._session.rows("get_events", job_id)]

    async def items(self, job_id: UUID, *, after: int | None, limit: int) -> Sequence[Item]:
        """What a job has stored, in the order in which it did."""
        return [item_of(row) for row in await self._session.rows("get_items", job_id, after, limit)]

    async def backlog(self) -> dict[str, int]:
        """How much stands where."""
        return {row["measure"]: row["count"] for row in await self._session.rows("backlog")}

    async def verify(self, limit: int = 100) -> Sequence[tuple[str, UUID | None, str | None]]:
        """Offences against the invariants: (invariant, job, detail)."""
        rows = await self._session.rows("verify", limit)
        return [(row["invariant"], row["job_id"], row["detail"]) for row in rows]


def _is_plain(batch: list[Intent]) -> bool:
    """Whether all are of one type and say nothing but, perhaps, the same queue."""
    _, kind, _, options, *_ = batch[0]
    return (not options or options.keys() == {"queue"}) and all(i.type == kind and i.options == options for i in batch)


def _enqueued(row: Any) -> Enqueued:
    return Enqueued(row["job_id"], State(row["state"]), row["outcome"])
