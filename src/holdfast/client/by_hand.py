"""What operators decide about one job: fail, kill, end its lease, change its priority.

Each decision is recorded and carried out by maintenance, within 100 ms where it does not have to wait for a handler.
What the state machine forbids raises Conflict, or AlreadyFinal if the job has ended; the message says what to do
instead. So does a decision that comes after another one about the same attempt: it names the one that holds.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from holdfast.bounds import BOUNDS, shown
from holdfast.errors import AlreadyFinal, Conflict, InvalidInput, NotFound
from holdfast.store.by_hand import Answer, ByHandStore
from holdfast.store.database import Database

__all__ = ["ByHand"]

_Verb = Literal["fail", "kill", "expire-lease", "reprioritize"]

_WAITS = "no attempt of it runs that could fail"
#: What to do with a job in this state instead of failing or killing it.
_INSTEAD = {
    "created": "cancel it instead",
    "scheduled": "cancel it instead",
    "queued": "cancel it instead",
    "paused": "cancel it instead, or resume it",
    "retry": "it has failed and will be retried already",
    "error": "it has failed and is held; resume it to run it again, or fail it without a retry",
    "success": "retry it if it is to run again, as a new job",
    "dead": "requeue it, or retry it, if it is to run again, as a new job",
    "canceled": "retry it if it is to run again, as a new job",
}
#: What holds already, by what the lease says.
_DECIDED = {
    "cancel": "canceled",
    "resolve": "resolved",
    "retry": "failed, with a retry,",
    "fail": "failed, without a retry,",
    "kill": "killed",
}


class ByHand:
    """The verbs, over a database in the role `operator`. `tenant` None means the jobs of all of them."""

    def __init__(self, database: Database) -> None:
        self._by_hand = ByHandStore(database)

    async def fail(
        self,
        job_id: UUID,
        message: str | None = None,
        *,
        will_retry: bool = True,
        by: str,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> None:
        """Fail the attempt of a running job, with this message as its error; its handler is interrupted.

        With `will_retry`, the job is retried as after any failure, if it has attempts left. Without, it is dead then,
        and so is a job that waits for its retry or is held in `error`.
        """
        await self._act("fail", job_id, message, will_retry=will_retry, by=by, tenant=tenant, by_key=by_key)

    async def kill(
        self,
        job_id: UUID,
        *,
        by: str,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> None:
        """End a job as dead: one that runs (its handler is interrupted), waits for its retry, or is held in `error`."""
        await self._act("kill", job_id, reason, by=by, tenant=tenant, by_key=by_key)

    async def expire_lease(
        self,
        job_id: UUID,
        *,
        by: str,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> None:
        """Take a running job from its worker at once, as if its lease had lapsed: for workers that are known to be gone.

        A worker that lives learns of it when it renews its leases; until then, two attempts may run at the same time.
        """
        await self._act("expire-lease", job_id, reason, by=by, tenant=tenant, by_key=by_key)

    async def reprioritize(
        self,
        job_id: UUID,
        priority: int,
        *,
        by: str,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> None:
        """Give a job another priority: if it is queued, it moves at once; if it runs, its next attempt has it."""
        if not BOUNDS["priority"].holds(priority):
            raise InvalidInput(f"priority must be {BOUNDS['priority']}, not {shown(priority)}")
        await self._act("reprioritize", job_id, reason, priority=priority, by=by, tenant=tenant, by_key=by_key)

    async def _act(self, verb: _Verb, job_id: UUID, words: str | None, **details: Any) -> None:
        answer = await self._by_hand.act(verb, job_id, words=words, **details)
        match answer.outcome:
            case "not-found":
                raise NotFound(f"there is no job {job_id}")
            case "already-final":
                raise AlreadyFinal(f"job {job_id} has ended as {answer.state}{_instead(verb, answer)}")
            case "not-possible":
                raise Conflict(f"job {job_id} is {answer.state}{_instead(verb, answer)}")
            case "overruled":
                raise Conflict(_overruled(job_id, answer))


def _instead(verb: _Verb, answer: Answer) -> str:
    state = str(answer.state)
    if verb in ("fail", "kill"):
        fact = f", and {_WAITS}" if state in ("created", "scheduled", "queued", "paused") else ""
        return f"{fact}; {_INSTEAD[state]}"
    if verb == "expire-lease":
        return ", and has no lease; only a running job has one"
    return ", and does not run again; retry it with another priority as a new job"


def _overruled(job_id: UUID, answer: Answer) -> str:
    decided = _DECIDED.get(str(answer.decided), str(answer.decided))
    by = "somebody" if answer.decided_by is None else answer.decided_by
    return f"job {job_id} was {decided} by {by} before; that takes effect once its handler has ended"
