"""What clients do with jobs: record, request, read."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Unpack
from uuid import UUID

from asyncpg.pgproto import pgproto

from holdfast.errors import HoldfastError, PayloadTooLarge
from holdfast.model.filters import Filters, checked_filters
from holdfast.model.ids import new_job_id_bytes
from holdfast.model.job import Attempt, Enqueued, Job, JobEvent, ListedJob
from holdfast.model.names import Named
from holdfast.model.options import Intent
from holdfast.model.progress import Item
from holdfast.model.states import State
from holdfast.store.database import Session
from holdfast.store.foreign import Foreign
from holdfast.store.rows import attempt_of, event_of, item_of, job_of, listed_job_of

__all__ = ["JobStore", "Published", "Recorder", "are_alike", "plain_intent"]

_TENANT_AND_CREATOR = attrgetter("tenant", "created_by")
_QUEUE = {"queue"}
#: How many characters of payloads one statement records; a single larger payload is sent alone.
_CHARACTERS = 4 * 2**20
#: A payload of more characters is measured before it is sent.
_LARGE_CHARACTERS = 2**20


class Published(NamedTuple):
    """A shape by which payloads of a type are judged, or none. Its text is missing if the caller has it already."""

    type: str
    mode: str
    digest: str | None
    shape: str | None


class Recorder(Protocol):
    """Records jobs in place of a store's own statements."""

    async def enqueue(self, intents: Sequence[Intent], /) -> list[Enqueued]:
        """Record intents, in order."""
        ...

    async def enqueue_each(self, intents: Sequence[Intent], /) -> list[Enqueued | HoldfastError]:
        """Record intents, each by itself: an error of one of them is its own answer."""
        return await _one_by_one(self.enqueue, intents)


class JobStore:
    """The client's verbs, as statements of the engine."""

    def __init__(self, session: Session, *, recorder: Recorder | None = None) -> None:
        """With a recorder, it records the jobs; all other calls use the session."""
        self._session, self._recorder = session, recorder

    def over(self, conn: Any) -> JobStore:
        """The same methods on a caller's connection, inside its transaction."""
        return JobStore(Foreign(conn, self._session.schema, self._session.disk))

    async def enqueue_one(self, intent: Intent) -> Enqueued:
        """Record one intent."""
        job_id, job_type, payload, options, tenant, created_by = intent
        if len(payload) > _LARGE_CHARACTERS or not (not options or options.keys() == _QUEUE):
            (answer,) = await self.enqueue([intent])
        else:
            (answer,) = await self._enqueue_plain(
                job_type, [payload], [job_id], queue=options.get("queue"), tenant=tenant, created_by=created_by
            )
        return answer

    async def enqueue(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record intents, in order. Each statement records those of one tenant and creator, up to a number of bytes."""
        if self._recorder is not None:
            return await self._recorder.enqueue(intents)
        await self._refuse_large((i.type, i.payload) for i in intents)
        answers: list[Enqueued] = []
        for (tenant, created_by), batch in _batches(intents):
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

    async def enqueue_each(self, intents: Sequence[Intent]) -> list[Enqueued | HoldfastError]:
        """Record intents, each by itself: an error of one of them is its own answer."""
        if self._recorder is not None:
            return await self._recorder.enqueue_each(intents)
        return await _one_by_one(self.enqueue, intents)

    async def enqueue_alike(self, job_type: str, payloads: list[str], *, queue: str | None) -> list[Enqueued]:
        """Record jobs of one type without options except for the queue; each statement up to a number of bytes."""
        ids = _new_ids(len(payloads))
        if sum(map(len, payloads)) <= _LARGE_CHARACTERS:
            return await self._enqueue_plain(job_type, payloads, ids, queue=queue)
        await self._refuse_large((job_type, payload) for payload in payloads)
        answers: list[Enqueued] = []
        for start, end in _parts(payloads):
            answers += await self._enqueue_plain(job_type, payloads[start:end], ids[start:end], queue=queue)
        return answers

    async def _refuse_large(self, jobs: Iterable[tuple[str, str]]) -> None:
        """Raise PayloadTooLarge for payloads that the engine would refuse, before they are sent. The engine decides."""
        large = [(job_type, payload) for job_type, payload in jobs if len(payload) > _LARGE_CHARACTERS]
        if not large:
            return
        (row,) = await self._session.rows("payload_limit")
        most = int(row["bytes"])
        for job_type, payload in large:
            if (size := len(payload.encode())) > most:
                raise PayloadTooLarge.of(job_type, size, most)

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
        """Record plain jobs. The engine returns only those that were not simply recorded."""
        alone = not self._session.inside_transaction
        rows = await self._session.rows("enqueue_plain", job_type, payloads, ids, queue, tenant, created_by, alone)
        answers = list(map(Enqueued, ids, repeat(State.QUEUED), repeat("created")))
        for row in rows:
            answers[row["item"] - 1] = _enqueued(row)
        return answers

    async def accepted_payloads(self, types: Sequence[str], known: Sequence[str]) -> list[Published]:
        """The shapes by which payloads of these types are judged, newest first: a row each, or one without a shape."""
        rows = await self._session.rows("accepted_payloads", list(types), list(known))
        return [Published(row["type"], row["mode"], row["digest"], row["shape"]) for row in rows]

    async def other_names(self, kind: Named, name: str) -> list[str] | None:
        """The known names if the given one is unknown; None if it is known."""
        (row,) = await self._session.rows("other_names", kind, name)
        names: list[str] | None = row["names"]
        return names

    async def answered_key(self, intent: Intent) -> Enqueued | None:
        """The answer to an intent whose idempotency key already has a job."""
        key = intent.options["idempotency_key"]
        for row in await self._session.rows("answered_key", intent.tenant, key, intent.type, intent.payload):
            return _enqueued(row)
        return None

    async def request(
        self, verb: str, job_ids: Sequence[UUID], *, by: str | None, reason: str | None, tenant: str | None
    ) -> list[tuple[UUID, str, UUID | None]]:
        """Make a request. Returns (job, outcome, request or new job) for each."""
        statement = "request_later" if self._session.inside_transaction else "request"
        rows = await self._session.rows(statement, verb, list(job_ids), by, reason, tenant)
        return [(row["job_id"], row["outcome"], row["request_id"]) for row in rows]

    async def release_held(
        self, job_ids: Sequence[UUID], *, by: str | None, tenant: str | None
    ) -> list[tuple[UUID, str]]:
        """Release held jobs. Returns (job, outcome) for each."""
        rows = await self._session.rows("release_held", list(job_ids), by, tenant)
        return [(row["job_id"], row["outcome"]) for row in rows]

    async def get(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Job]:
        """Those of the given jobs that exist, in no order."""
        return [job_of(row) for row in await self._session.rows("get_jobs", list(job_ids), tenant)]

    async def listed(self, job_ids: Sequence[UUID]) -> list[ListedJob]:
        """Those of the given jobs that exist, without payloads and results, in no order."""
        return [listed_job_of(row) for row in await self._session.rows("summaries", list(job_ids), None)]

    async def list(self, **filters: Unpack[Filters]) -> list[ListedJob]:
        """Jobs, newest first."""
        asked = checked_filters(filters)
        rows = await self._session.rows("list_jobs", *(asked.get(name) for name in Filters.__annotations__))
        return [listed_job_of(row) for row in rows]

    async def attempts(self, job_id: UUID, *, after: int, limit: int) -> Sequence[Attempt]:
        """Ended attempts of a job, oldest first, after this number; fewer than `limit` if they are large."""
        return [attempt_of(row) for row in await self._session.rows("attempts_page", job_id, None, after, limit)]

    async def events(self, job_id: UUID, *, after: int, limit: int) -> Sequence[JobEvent]:
        """A job's history, oldest first, without the first `after` events; fewer than `limit` if they are large."""
        return [event_of(row) for row in await self._session.rows("events_page", job_id, None, after, limit)]

    async def items(self, job_id: UUID, *, after: int | None, limit: int) -> Sequence[Item]:
        """The items of a job, in the order in which it stored them; fewer than `limit` if they are large."""
        return [item_of(row) for row in await self._session.rows("items_page", job_id, after, limit)]

    async def backlog(self) -> dict[str, int]:
        """How many jobs are ready, running, due, waiting and dead."""
        return {row["measure"]: row["count"] for row in await self._session.rows("backlog")}

    async def verify(self, limit: int = 100) -> Sequence[tuple[str, UUID | None, str | None]]:
        """Violations of the invariants: (invariant, job, detail)."""
        rows = await self._session.rows("verify", limit)
        return [(row["invariant"], row["job_id"], row["detail"]) for row in rows]


async def _one_by_one(
    enqueue: Callable[[Sequence[Intent]], Awaitable[list[Enqueued]]], intents: Sequence[Intent]
) -> list[Enqueued | HoldfastError]:
    """The answer to each intent, or its error, if they are recorded one after the other."""
    answers: list[Enqueued | HoldfastError] = []
    for intent in intents:
        try:
            answers += await enqueue([intent])
        except HoldfastError as fault:
            answers.append(fault)
    return answers


def _batches(intents: Sequence[Intent]) -> Iterator[tuple[tuple[str, str | None], list[Intent]]]:
    """(tenant, creator) and the intents of one statement."""
    for names, run in groupby(intents, key=_TENANT_AND_CREATOR):
        batch = list(run)
        for start, end in _parts([intent.payload for intent in batch]):
            yield names, batch[start:end]


def _parts(payloads: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges to send at once: one message to PostgreSQL has a limit, and takes memory at both ends."""
    start = weight = 0
    for place, payload in enumerate(payloads):
        weight += len(payload)
        if weight > _CHARACTERS and place > start:
            yield start, place
            start, weight = place, len(payload)
    if start < len(payloads):
        yield start, len(payloads)


def plain_intent(job_type: str, payload: str, queue: str | None) -> Intent:
    """A new job without options except for the queue."""
    (job_id,) = _new_ids(1)
    return Intent(job_id, job_type, payload) if queue is None else Intent(job_id, job_type, payload, {"queue": queue})


def are_alike(intents: Sequence[Intent]) -> bool:
    """Whether one plain statement can record all: one tenant, creator and type, and no option except for the queue."""
    _, _, _, _, tenant, created_by = intents[0]
    return _is_plain(intents) and all(i.tenant == tenant and i.created_by == created_by for i in intents)


def _is_plain(batch: Sequence[Intent]) -> bool:
    """Whether all have one type and no option except, perhaps, the same queue."""
    _, kind, _, options, *_ = batch[0]
    return (not options or options.keys() == _QUEUE) and all(i.type == kind and i.options == options for i in batch)


def _new_ids(count: int) -> list[UUID]:
    """The driver's own UUIDs, to which it would convert any others: less than half the work for a large batch."""
    return [pgproto.UUID(number) for number in new_job_id_bytes(count)]


def _enqueued(row: Any) -> Enqueued:
    return Enqueued(row["job_id"], State(row["state"]), row["outcome"])
