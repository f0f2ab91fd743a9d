"""What operators decide about one job: fail, kill, end its lease, change its priority.

Each decision is recorded and carried out by maintenance, within 100 ms where it does not have to wait for a handler.
What the state machine forbids raises Conflict, or AlreadyFinal if the job has ended; the message says what to do
instead. So does a decision that comes after another one about the same attempt: it names the one that holds.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from holdfast.bounds import BOUNDS, shown
from holdfast.client.refusals import judge_by_hand
from holdfast.errors import InvalidInput
from holdfast.store.by_hand import ByHandStore
from holdfast.store.database import Database

__all__ = ["ByHand"]

_Verb = Literal["fail", "kill", "expire-lease", "reprioritize"]


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
        """Take a running job from its worker at once, as if its lease had lapsed: for a worker that is gone.

        If it lives, it learns of this when it renews its leases; until then, two attempts may run at the same time.
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
        judge_by_hand(verb, job_id, await self._by_hand.act(verb, job_id, words=words, **details))
