"""Recording jobs: middleware, checks, and the cheapest statement that will do."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Unpack, cast
from uuid import UUID

from holdfast.client.acceptance import Acceptance
from holdfast.client.job_ref import JobRef
from holdfast.client.new_job import EnqueueMiddleware, NewJob, Record
from holdfast.client.recognition import recognized
from holdfast.definitions.json_text import JsonText, encode_plain
from holdfast.definitions.registry import Registry
from holdfast.errors import HoldfastError, InvalidInput, InvalidPayload, KeyConflict
from holdfast.model.ids import new_job_ids
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent, Options, engine_options
from holdfast.store.groups import Groups
from holdfast.store.jobs import JobStore, plain_intent
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import JobEnqueued

__all__ = ["Asked", "Recording"]

_log = logging.getLogger("holdfast")

#: How many jobs one statement records; larger batches are split.
BATCH = 2000

#: How many are checked before others have a turn.
_AT_A_TIME = 10

_LONGEST_TYPE = 200

#: Type, payload and options of a job, as somebody asked for it.
Asked = tuple[str, Any, Mapping[str, Any]]

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Recording:
    """The half of a client that records jobs."""

    def __init__(
        self,
        store: JobStore,
        registry: Registry,
        *,
        bus: Bus | None = None,
        middleware: Sequence[EnqueueMiddleware] = (),
        acceptance: Acceptance | None = None,
        groups: Groups | None = None,
    ) -> None:
        """With `groups`, calls that record one job each share statements."""
        self._store, self._registry = store, registry
        self._groups = groups
        self._bus = bus or Bus()
        self._middleware = middleware
        self._acceptance = acceptance

    @property
    def enqueues_from_threads(self) -> bool:
        """Whether `enqueue` may run in a thread without an event loop, which it blocks. Middleware may need a loop."""
        return self._groups is not None and self._acceptance is None and not self._middleware

    async def enqueue(self, job_type: str, payload: Any = None, **options: Unpack[Options]) -> JobRef:
        """Record one job. A key that has a job of another type or payload raises KeyConflict."""
        if not options and self._is_unobserved and isinstance(job_type, str) and 0 < len(job_type) <= _LONGEST_TYPE:
            return await self._store_plain(job_type, payload)
        (ref,) = await self._record([(job_type, payload, options)])
        if ref.conflict:
            raise _conflict(options.get("idempotency_key"), ref.id)
        return ref

    async def enqueue_many(self, jobs: Iterable[Sequence[Any]]) -> list[JobRef]:
        """Record many jobs: (type, payload) or (type, payload, options) each; answers come in that order.

        All are checked before any is recorded. A conflicting key is an answer with outcome `conflict`, and is logged.
        """
        jobs = jobs if isinstance(jobs, list) else list(jobs)
        kind = _only_type(jobs) if self._is_unobserved else None
        if kind is not None:
            return await self._store_alike(kind, [payload for _, payload in jobs])
        asked = [_asked(job) for job in jobs]
        refs = await self._record(asked)
        for ref, (_, _, options) in zip(refs, asked, strict=True):
            if ref.conflict:
                _log.warning(
                    "a job of %s was not recorded: %s", ref.type, _conflict(options.get("idempotency_key"), ref.id)
                )
        return refs

    async def enqueue_each(self, jobs: Sequence[Asked]) -> list[JobRef | HoldfastError]:
        """Record many jobs, each by itself: what is wrong with one of them is its own answer."""
        if self._middleware:  # which hears of each as it would of a single one
            return list(await asyncio.gather(*(self._enqueue_one(job) for job in jobs)))
        asked: list[Intent | Enqueued | HoldfastError] = []
        for start in range(0, len(jobs), _AT_A_TIME):
            some = jobs[start : start + _AT_A_TIME]
            for job_id, job in zip(new_job_ids(len(some)), some, strict=True):
                asked.append(await self._judged(job_id, job))
            await asyncio.sleep(0)  # give other tasks a turn
        recorded = iter(await self._store.enqueue_each([one for one in asked if isinstance(one, Intent)]))
        return [
            self._told(kind, options, next(recorded) if isinstance(one, Intent) else one)
            for one, (kind, _, options) in zip(asked, jobs, strict=True)
        ]

    async def _enqueue_one(self, job: Asked) -> JobRef | HoldfastError:
        kind, payload, options = job
        try:
            return await self.enqueue(kind, payload, **cast("Options", options))
        except HoldfastError as fault:
            return fault

    async def _judged(self, job_id: UUID, job: Asked) -> Intent | Enqueued | HoldfastError:
        """The job as it is to be recorded, unless it need not or cannot be."""
        try:
            intent = self._intent(job_id, *job)
            answered = await self._acceptance.answers([intent]) if self._acceptance is not None else {}
        except HoldfastError as fault:
            return fault
        return answered.get(0, intent)

    def _told(self, kind: str, options: Mapping[str, Any], answer: Enqueued | HoldfastError) -> JobRef | HoldfastError:
        if isinstance(answer, HoldfastError):
            return answer
        self._emit(kind, options.get("tenant") or "default", answer)
        if answer.outcome == "conflict":
            return _conflict(options.get("idempotency_key"), answer.job_id)
        return JobRef(kind, answer)

    @property
    def _is_unobserved(self) -> bool:
        """Whether nobody but the database is to hear of what is recorded."""
        return not self._middleware and self._acceptance is None and not self._bus.hears(JobEnqueued)

    async def _store_plain(self, job_type: str, payload: Any) -> JobRef:
        """The same as below for one job without options, with as little as possible made for it."""
        encode, queue = self._way_in(job_type)
        intent = plain_intent(job_type, encode({} if payload is None else payload), queue)
        return JobRef(job_type, await self._store_one(intent))

    async def _store_one(self, intent: Intent) -> Enqueued:
        if self._groups is not None:
            return await self._groups.enqueue_one(intent)
        (answer,) = await self._store.enqueue([intent])
        return answer

    async def _store_alike(self, job_type: str, payloads: list[Any]) -> list[JobRef]:
        """The same for jobs of one type."""
        encode, queue = self._way_in(job_type)
        texts = [encode({} if payload is None else payload) for payload in payloads]
        refs: list[JobRef] = []
        for start in range(0, len(texts), BATCH):
            answers = await self._store.enqueue_alike(job_type, texts[start : start + BATCH], queue=queue)
            refs += [JobRef(job_type, answer) for answer in answers]
        return refs

    def _way_in(self, job_type: str) -> tuple[Callable[[Any], str], str | None]:
        """How payloads of a type are written, and its queue where that is not the usual one."""
        known = self._registry.get(job_type)
        if known is None:
            return partial(encode_plain, job_type), None
        return known.payload.encode, None if known.queue == "default" else known.queue

    async def _record(self, asked: list[Asked]) -> list[JobRef]:
        """Record jobs, through all middleware, the first one outermost."""
        if not self._middleware:
            return await self._store_all(asked)
        record: Record = self._store_new
        for middleware in reversed(self._middleware):
            record = partial(middleware.enqueue, call_next=record)
        refs = await record([NewJob(kind, _read(payload), dict(options)) for kind, payload, options in asked])
        answered = len(refs) if isinstance(refs, list) else 0
        if answered != len(asked):
            raise HoldfastError(f"{len(asked)} jobs were to be recorded, but middleware answered for {answered}")
        return refs

    async def _store_new(self, jobs: list[NewJob]) -> list[JobRef]:
        return await self._store_all([(job.type, job.payload, job.options) for job in jobs])

    async def _store_all(self, asked: list[Asked]) -> list[JobRef]:
        intents = self._intents(asked)
        answered = await self._acceptance.answers(intents) if self._acceptance is not None else {}
        new = [intent for place, intent in enumerate(intents) if place not in answered] if answered else intents
        answers: list[Enqueued] = []
        if len(new) == 1:
            answers.append(await self._store_one(new[0]))
        else:
            for start in range(0, len(new), BATCH):
                answers += await self._store.enqueue(new[start : start + BATCH])
        if self._acceptance is None:  # strangers' payloads are recorded as they were sent
            answers = await recognized(self._store, self._registry, new, answers)
        for place in sorted(answered):
            answers.insert(place, answered[place])
        if self._bus.hears(JobEnqueued):
            for intent, answer in zip(intents, answers, strict=True):
                self._emit(intent.type, intent.tenant, answer)
        return [JobRef(intent.type, answer) for intent, answer in zip(intents, answers, strict=True)]

    def _emit(self, job_type: str, tenant: str, answer: Enqueued) -> None:
        if self._bus.hears(JobEnqueued):
            self._bus.emit(
                JobEnqueued(
                    job_id=answer.job_id,
                    type=job_type,
                    tenant=tenant,
                    state=answer.state.value,
                    outcome=answer.outcome,
                )
            )

    def _intents(self, asked: list[Asked]) -> list[Intent]:
        """Jobs to be recorded, checked as far as this process can."""
        ids: list[UUID] = []
        for start in range(0, len(asked), BATCH):
            ids += new_job_ids(min(BATCH, len(asked) - start))
        return [self._intent(job_id, *job) for job_id, job in zip(ids, asked, strict=True)]

    def _intent(self, job_id: UUID, job_type: str, payload: Any, options: Mapping[str, Any]) -> Intent:
        if not isinstance(job_type, str) or not job_type:
            raise InvalidInput("a job type must be a non-empty string")
        if len(job_type) > _LONGEST_TYPE:
            raise InvalidInput(f"a job type must have 1 to {_LONGEST_TYPE} characters")
        known = self._registry.get(job_type)
        payload = {} if payload is None else payload
        text = self._encoded(job_type, payload)
        if not options and (known is None or known.queue == "default"):
            return Intent(job_id, job_type, text)
        engine = engine_options(options)
        if known is not None and "queue" not in engine and known.queue != "default":
            engine["queue"] = known.queue
        tenant = options.get("tenant")
        return Intent(
            job_id, job_type, text, engine, "default" if tenant is None else tenant, options.get("created_by")
        )

    def _encoded(self, job_type: str, payload: Any) -> str:
        """A payload of a declared type as its handler gets it; a stranger's as it was sent.

        The handler of a release that is just being replaced might not take what this one makes of it.
        """
        known = self._registry.get(job_type)
        if known is None:
            return encode_plain(job_type, payload)
        if self._acceptance is not None:
            with suppress(InvalidPayload):  # middleware may have put in what only the type can write
                return encode_plain(job_type, payload)
        return known.payload.encode(payload)

    async def record(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record intents that were checked elsewhere, past all middleware."""
        return await recognized(self._store, self._registry, intents, await self._store.enqueue(intents))


def _conflict(key: Any, job_id: UUID) -> KeyConflict:
    return KeyConflict(f"the idempotency key {key!r} belongs to job {job_id}, which has another type or payload")


def _only_type(jobs: list[Any]) -> str | None:
    """The type that all have, if each is a pair of type and payload and nothing else."""
    if not jobs or not isinstance(jobs[0], tuple) or not isinstance(jobs[0][0] if jobs[0] else None, str):
        return None
    kind: str = jobs[0][0]
    return kind if kind and all(type(job) is tuple and len(job) == 2 and job[0] == kind for job in jobs) else None


def _read(payload: Any) -> Any:
    """As middleware expects it."""
    return json.loads(payload) if type(payload) is JsonText else payload


def _asked(job: Sequence[Any]) -> Asked:
    job_type, payload, options = (*job, None, None)[:3] if isinstance(job, tuple | list) else (job, None, None)
    if not isinstance(job_type, str) or (options is not None and not isinstance(options, Mapping)):
        raise InvalidInput('a job is ("type", {payload}) or ("type", {payload}, {options})')
    return job_type, payload, options or _NO_OPTIONS
