"""What operators decide while everything runs: pause, resume, limits, weights, drain; and why a job does not run.

A pause stops claims: what runs goes on, what waits stays queued. `by` and `by_key` say who decides, and `tenant` for
which tenant its own operators do; None stands for the operators of the installation. Lists take turns with each other;
what is decided, and a look at one thing, wait for nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from holdfast.bounds import BOUNDS, shown
from holdfast.client.refusals import judge
from holdfast.client.turns import Turns
from holdfast.errors import Conflict, InvalidInput, NotFound, WaitTimeout
from holdfast.model.limits import Rate
from holdfast.model.subject import (
    Decision,
    Draining,
    Explanation,
    Kind,
    Lane,
    LimitChanges,
    Queue,
    Target,
    Tenant,
    Type,
)
from holdfast.store.database import Database
from holdfast.store.steering import Place, SteeringStore, TargetPage

__all__ = ["Place", "Steering", "TargetPage", "Verb"]

#: What an operator may ask for about a job.
Verb = Literal["cancel", "pause", "resume", "retry", "release", "delete"]

_LOOK_SECONDS = 0.5
_RESUMED = "somebody resumed work meanwhile"

#: How many of those behind the head of a target are shown with it.
_LINE = 20


class Steering:
    """The verbs, over a database in the role `operator`. `tenant` None means all of them."""

    def __init__(self, database: Database, browsing: Database) -> None:
        """`browsing` has connections for what may take seconds."""
        self._steering = SteeringStore(database)
        self._lists = SteeringStore(browsing)
        self._listing = Turns()

    async def pause(
        self,
        kind: Kind,
        name: str = "",
        *,
        by: str,
        reason: str | None = None,
        by_key: UUID | None = None,
        tenant: str | None = None,
        public: bool = False,
    ) -> bool:
        """Stop claims of a queue, type, lane or tenant. What is paused already stays as it is; False then.

        But where a tenant has paused itself, a pause by the installation's operators takes over: the tenant may not
        resume it. Tenants are told neither who of these paused something nor why, unless the reason is `public`.

        Claims that are under way may not have seen the pause, and are waited for: what is enqueued after this does not
        start. A claim that takes longer than half a second is not waited for.
        """
        changed = await self._steering.pause(
            kind, name, by=by, reason=reason, by_key=by_key, by_tenant=tenant, public=public
        )
        await self._steering.claims_ended()
        return changed

    async def resume(
        self,
        kind: Kind,
        name: str = "",
        *,
        by: str,
        reason: str | None = None,
        by_key: UUID | None = None,
        tenant: str | None = None,
    ) -> bool:
        """Let claims go on; False if nothing was paused, or, with a tenant, not by that tenant's own operators."""
        return await self._steering.resume(kind, name, by=by, reason=reason, by_key=by_key, by_tenant=tenant)

    async def limit(
        self,
        kind: Kind,
        name: str,
        *,
        limit: int | None = None,
        rate: Rate | str | None = None,
        by: str,
        by_key: UUID | None = None,
    ) -> bool:
        """Limit how many jobs of a queue, type or tenant run at once, or start per time ("100/min"); None clears."""
        return await self.change_limits(kind, name, {"limit": limit, "rate": rate}, by=by, by_key=by_key)

    async def weigh(self, tenant: str, weight: float | None, *, by: str, by_key: UUID | None = None) -> bool:
        """A tenant's share where tenants compete; None for the usual one, 1."""
        return await self.change_limits("tenant", tenant, {"weight": weight}, by=by, by_key=by_key)

    async def change_limits(
        self, kind: Kind, name: str, changes: LimitChanges, *, by: str, by_key: UUID | None = None
    ) -> bool:
        """Set or clear (None) what is named, all at once; the rest stays as it is. False if nothing changed."""
        return await self._steering.limit(kind, name, changes, by=by, by_key=by_key)

    async def close_type(self, name: str, *, by: str, reason: str | None = None, by_key: UUID | None = None) -> bool:
        """Take no new jobs of a type, from nobody: TypeClosed says who closed it, and why. False if it was closed.

        What was accepted before goes on, and an idempotency key that has a job is answered.
        """
        return await self._steering.close_type(name, by=by, reason=reason, by_key=by_key)

    async def open_type(self, name: str, *, by: str, reason: str | None = None, by_key: UUID | None = None) -> bool:
        """Take new jobs of a type again; False if it was not closed."""
        return await self._steering.open_type(name, by=by, reason=reason, by_key=by_key)

    async def drain(
        self,
        kind: Kind = "everything",
        name: str = "",
        *,
        by: str,
        reason: str | None = None,
        by_key: UUID | None = None,
        tenant: str | None = None,
        public: bool = False,
    ) -> Draining:
        """Stop claims of a queue, type, lane or tenant, or everywhere, as `pause` does; what still runs there."""
        await self.pause(kind, name, by=by, reason=reason, by_key=by_key, tenant=tenant, public=public)
        return await self.draining(kind, name, tenant=tenant)

    async def draining(self, kind: Kind = "everything", name: str = "", *, tenant: str | None = None) -> Draining:
        """Whether claims are stopped there, how many jobs still run, and whether none can begin any more."""
        if tenant is None:
            return await self._steering.drain(kind, name, tenant)
        async with self._listing.one(tenant):  # it may wait for claims: no tenant takes what others steer with
            return await self._lists.drain(kind, name, tenant)

    async def wait_drained(
        self,
        kind: Kind = "everything",
        name: str = "",
        *,
        tenant: str | None = None,
        timeout: float | None = None,
        progress: Callable[[Draining], None] | None = None,
    ) -> Draining:
        """Wait until nothing runs there any more, after `drain` or `pause`. Tells `progress` what each look has found.

        WaitTimeout if jobs still run after `timeout` seconds; Conflict if somebody resumes work meanwhile. Neither
        changes the pause.
        """
        if timeout is not None and not (timeout <= 0 or BOUNDS["delay"].holds(timeout)):
            raise InvalidInput(f"timeout must be {BOUNDS['delay']}, not {shown(timeout)}")
        end = None if timeout is None else time.monotonic() + timeout
        stopped = False
        while True:
            found = await self.draining(kind, name, tenant=tenant)
            if found.paused_at is None:
                raise Conflict(_RESUMED if stopped else "claims are not stopped there: drain or pause it first")
            stopped = True
            if progress is not None:
                progress(found)
            if found.drained:
                return found
            left = _LOOK_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{_what_runs(found.running)} after {timeout:g} s; claims stay stopped")
            await asyncio.sleep(min(_LOOK_SECONDS, left))

    async def decisions(self) -> list[Decision]:
        """What was decided and still holds."""
        return await self._steering.decisions()

    async def queues(
        self, *, tenant: str | None = None, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[Queue]:
        """Queues by name: what waits and runs there, pauses and limits."""
        async with self._listing.one(tenant):
            return await self._lists.queues(tenant, name, after, limit)

    async def types(
        self, *, tenant: str | None = None, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[Type]:
        """Job types by name, with what their code declares and how many live workers know them."""
        async with self._listing.one(tenant):
            return await self._lists.types(tenant, name, after, limit)

    async def lanes(self, *, tenant: str | None = None, name: str | None = None) -> list[Lane]:
        """Both lanes, with the slots of live workers."""
        async with self._listing.one(tenant):
            return await self._lists.lanes(tenant, name)

    async def tenants(
        self, *, tenant: str | None = None, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[Tenant]:
        """Tenants by name, with slots and weights."""
        async with self._listing.one(tenant):
            return await self._lists.tenants(tenant, name, after, limit)

    async def subject(self, kind: Kind, name: str, *, tenant: str | None = None) -> Queue | Type | Lane | Tenant:
        """One queue, type, lane or tenant, whether anything was ever done there or not."""
        found: list[Queue] | list[Type] | list[Lane] | list[Tenant]
        match kind:
            case "queue":
                found = await self._steering.queues(tenant, name, None, 1)
            case "type":
                found = await self._steering.types(tenant, name, None, 1)
            case "lane":
                found = await self._steering.lanes(tenant, name)
            case "tenant":
                found = await self._steering.tenants(tenant, name, None, 1)
            case _:
                raise InvalidInput("the kind everything has no list; ask for `draining`")
        return found[0]

    async def targets(
        self, *, tenant: str | None = None, blocked: bool = False, after: Place | None = None, limit: int = 50
    ) -> TargetPage:
        """Targets with open jobs, or only blocked ones, each with the job at its head and how many wait behind."""
        async with self._listing.one(tenant):
            return await self._lists.targets(tenant, blocked=blocked, after=after, limit=limit)

    async def target(self, target: str, *, tenant: str = "default") -> Target:
        """One target, with the first jobs behind its head; NotFound if nothing is open there."""
        for found in await self._steering.show([(tenant, target)], tenant, line=_LINE):
            return found
        raise NotFound(f"the target {target!r} has no open jobs")

    async def explain(self, job_id: UUID, *, tenant: str | None = None) -> Explanation:
        """Why a job does not run, in one sentence; NotFound if there is none."""
        async with self._listing.one(tenant):
            found = await self._lists.explain(job_id, tenant)
        if found.code == "unknown":
            raise NotFound(f"there is no job {job_id}")
        return found

    async def request(
        self,
        verb: Verb,
        job_id: UUID,
        *,
        by: str,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
        public: bool = False,
    ) -> UUID:
        """Ask that a job be canceled, paused, resumed, retried, released or deleted, and have it written down.

        Answers the job that runs then: another one where an ended job is retried. Clients are told the reason while the
        job is paused or canceled if it is `public`.
        """
        return await self._ask(verb, job_id, by=by, reason=reason, tenant=tenant, by_key=by_key, public=public)

    async def resolve(
        self,
        job_id: UUID,
        *,
        by: str,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
        public: bool = False,
    ) -> None:
        """Ask that a job be canceled because a person has dealt with it: its target goes on."""
        await self._ask("resolve", job_id, by=by, reason=reason, tenant=tenant, by_key=by_key, public=public)

    async def _ask(self, verb: str, job_id: UUID, **details: Any) -> UUID:
        answer, runs_as = await self._steering.request(verb, job_id, **details)
        judge(verb, job_id, answer)
        return runs_as


def _what_runs(jobs: int) -> str:
    if not jobs:
        return "claims that began before are still under way"
    return f"{jobs} job{'s' * (jobs != 1)} still run{'s' * (jobs == 1)}"
