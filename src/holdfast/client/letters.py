"""What operators do with dead letters: list, show, acknowledge, requeue.

A dead job never runs again. A requeue records a new job with the same intent and correlation id, once per letter: a
repeated requeue, and a `retry`, answer the same new job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from holdfast.bounds import shown
from holdfast.client.acceptance import Acceptance
from holdfast.client.turns import Turns
from holdfast.definitions.json_text import JsonText, encode_plain
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.model.job import Attempt, ListedJob
from holdfast.model.letter import Acknowledgement, DeadLetter, DeadLetterDetails, LetterPage, LetterPlace, RequeueAnswer
from holdfast.model.options import DECLARED, Intent, engine_options
from holdfast.model.pages import checked_limit
from holdfast.model.query import Tree, asks_for, parse_query
from holdfast.store.browse import BrowseStore
from holdfast.store.database import Database
from holdfast.store.letters import Decided, LetterStore

__all__ = ["DeadLetters", "changed_options"]

#: How many letters one page looks at before it ends early; fewer if their jobs must be read.
VISITED = 100_000

#: What a requeued job has from the dead one, and its letter's own answer to repeats.
_KEPT = ("correlation_id", "parent", "idempotency_key", "tenant", "created_by")

#: What to do instead with a job that is not dead.
_ADVICE = {
    "created": "release it to let it run",
    "scheduled": "`retry` runs it at once",
    "queued": "it runs when its turn comes, and `explain` says what it waits for",
    "running": "wait until it has ended, or cancel it",
    "retry": "`retry` runs it at once",
    "paused": "resume it",
    "error": "resume it",
    "success": "`retry` runs it again as a new job",
    "canceled": "`retry` runs it again as a new job",
}


class DeadLetters:
    """The verbs, over a database in the role `operator`. `tenant` None means all of them."""

    def __init__(self, database: Database, browsing: Database, searching: Turns, acceptance: Acceptance) -> None:
        """`browsing` has connections for what may take seconds, and `searching` turns for it."""
        self._store, self._jobs = LetterStore(database), BrowseStore(database)
        self._found, self._searching = LetterStore(browsing), searching
        self._acceptance = acceptance

    async def list(
        self,
        query: str = "",
        *,
        acknowledged: bool | Literal["all"] | None = None,
        fingerprint: str | None = None,
        tenant: str | None = None,
        before: LetterPlace | None = None,
        limit: int = 50,
    ) -> LetterPage:
        """Letters whose jobs fit a query (see holdfast.model.query), newest first.

        By default these are the letters that nobody has acknowledged, unless the query itself asks for `acknowledged`.
        """
        tree = parse_query(query)
        checked_limit(limit)
        async with self._searching.one(tenant):
            return await self._found.search(
                tree,
                tenant=tenant,
                acknowledged=_wanted(tree, acknowledged),
                fingerprint=fingerprint,
                before=before,
                limit=limit,
                visit=VISITED,
            )

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> DeadLetter:
        """One letter as lists show it; NotFound if there is none."""
        for letter in await self._store.get([job_id], tenant):
            return letter
        for job in await self._jobs.summaries([job_id], tenant):
            raise NotFound(f"job {job_id} is {job.state.value}: only dead jobs have a dead letter")
        raise NotFound(f"there is no job {job_id}")

    async def show(self, job_id: UUID, *, tenant: str | None = None) -> DeadLetterDetails:
        """One letter with the dead job and the end of its last attempt."""
        letter = await self.get(job_id, tenant=tenant)
        job = await self._jobs.job(job_id, tenant)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        details = await self._last_attempt(letter, tenant)
        return DeadLetterDetails(letter=letter, original_job=job, error_details=details)

    async def show_texts(
        self, job_id: UUID, *, tenant: str | None = None
    ) -> tuple[DeadLetter, ListedJob, dict[str, str], Attempt | None]:
        """The same with payload, result and cursor of the job as JSON text."""
        letter = await self.get(job_id, tenant=tenant)
        found = await self._jobs.job_texts(job_id, tenant)
        if found is None:
            raise NotFound(f"there is no job {job_id}")
        return letter, *found, await self._last_attempt(letter, tenant)

    async def ack(
        self,
        job_id: UUID,
        *,
        by: str,
        note: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> Acknowledgement:
        """Acknowledge a letter: somebody knows of it, and its retention begins. The first acknowledgement stays."""
        (decided,) = await self._store.acknowledge([job_id], by=by, note=note, tenant=tenant, by_key=by_key)
        _judge("acknowledge", decided)
        return Acknowledgement(await self.get(job_id, tenant=tenant), decided.outcome == "acknowledged")

    async def requeue(
        self,
        job_id: UUID,
        *,
        by: str,
        note: str | None = None,
        payload: Any = None,
        options: Mapping[str, Any] | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> UUID:
        """Run a dead job again as a new one, whose id is answered, and acknowledge its letter.

        `payload` replaces the whole payload. `options` are those of an enqueue; what is None there is left to the job
        type. Correlation id and parent stay.
        """
        answer = await self.requeued(
            job_id, by=by, note=note, payload=payload, options=options, tenant=tenant, by_key=by_key
        )
        return answer.runs_as

    async def requeued(
        self,
        job_id: UUID,
        *,
        by: str,
        note: str | None = None,
        payload: Any = None,
        options: Mapping[str, Any] | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> RequeueAnswer:
        """The same; answers, too, whether the job is new.

        If the dead job was requeued before, the job from then is answered, and `payload` and `options` are not used.
        """
        text = None if payload is None else await self._accepted(job_id, payload, tenant)
        (decided,) = await self._store.requeue(
            [job_id],
            by=by,
            note=note,
            payload=text,
            options=None if options is None else changed_options(options),
            tenant=tenant,
            by_key=by_key,
        )
        _judge("requeue", decided)
        assert decided.runs_as is not None  # noqa: S101 - what the engine answers then
        return RequeueAnswer(decided.runs_as, decided.outcome == "requeued")

    async def _last_attempt(self, letter: DeadLetter, tenant: str | None) -> Attempt | None:
        found, _ = await self._jobs.attempts(letter.job_id, tenant, after=letter.attempts - 1, limit=1)
        return found[0] if found else None

    async def _accepted(self, job_id: UUID, payload: Any, tenant: str | None) -> str:
        """A payload as JSON text; InvalidPayload if no live worker takes it."""
        for job in await self._jobs.summaries([job_id], tenant):
            text = payload if type(payload) is JsonText else encode_plain(job.type, payload)
            await self._acceptance.answers([Intent(job_id, job.type, text, tenant=job.tenant)])
            return text
        raise NotFound(f"there is no job {job_id}")


def _wanted(tree: Tree, acknowledged: bool | Literal["all"] | None) -> bool | None:
    if acknowledged is None:
        return None if asks_for(tree, "acknowledged") else False
    if acknowledged == "all":
        return None
    if not isinstance(acknowledged, bool):
        raise InvalidInput(f'acknowledged must be True, False or "all", not {shown(acknowledged)}')
    return acknowledged


def changed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in the engine's names; None for what is left to the job type."""
    kept = [name for name in _KEPT if name in options]
    if kept:
        raise InvalidInput(
            f"{', '.join(kept)} cannot be changed: a requeued job keeps tenant, correlation and parent, "
            "and a repeated requeue answers the same job"
        )
    cleared = {name: None for name, value in options.items() if value is None and name in DECLARED}
    return {**cleared, **engine_options(options)}


def _judge(verb: str, decided: Decided) -> None:
    """Raise for what the engine answers when it did not do what it was asked for."""
    job_id = decided.job_id
    match decided.outcome:
        case "not-found":
            raise NotFound(f"there is no job {job_id}")
        case "not-dead":
            advice = _ADVICE.get(decided.state or "", "")
            raise Conflict(f"job {job_id} is {decided.state}, and only dead jobs can be {verb}d: {advice}")
        case "erased":
            raise Conflict(f"the content of job {job_id} was erased, so it cannot run again: enqueue a new job instead")
        case "request":
            raise Conflict(f"job {job_id} is a request of the engine: make the request again instead")
