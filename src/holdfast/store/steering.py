"""What operators set and see for queues, types, lanes, tenants and targets. Role: operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from holdfast.errors import InvalidInput
from holdfast.model.limits import Rate
from holdfast.model.provenance import provenance
from holdfast.model.subject import (
    Decision,
    Draining,
    Explanation,
    Kind,
    Lane,
    LimitChanges,
    Queue,
    Subject,
    Target,
    Tenant,
    Type,
)
from holdfast.store.database import Session

__all__ = ["Place", "SteeringStore", "TargetPage"]

#: (tenant, target) of the last target that was looked at.
Place = tuple[str, str]

_SUBJECT = TypeVar("_SUBJECT", bound=Subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPage:
    """Targets by tenant and name; `reached` is where to go on, None if everything was looked at."""

    targets: list[Target]
    reached: Place | None


class SteeringStore:
    """Steering of one tenant, or (None) of all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def pause(
        self,
        kind: Kind,
        name: str,
        *,
        by: str,
        reason: str | None,
        by_key: UUID | None,
        by_tenant: str | None,
        public: bool,
    ) -> bool:
        """Stop claims. Returns whether anything changed."""
        return await self._changed("pause_scope", kind, name, by, reason, by_key, by_tenant, public, *provenance.get())

    async def claims_ended(self) -> bool:
        """Wait for the claims that are under way, for a moment. Returns whether all of them have ended."""
        return await self._changed("claims_ended")

    async def resume(
        self, kind: Kind, name: str, *, by: str, reason: str | None, by_key: UUID | None, by_tenant: str | None
    ) -> bool:
        """Let claims go on. Returns whether anything changed."""
        return await self._changed("resume_scope", kind, name, by, reason, by_key, by_tenant, *provenance.get())

    async def limit(self, kind: Kind, name: str, changes: LimitChanges, *, by: str, by_key: UUID | None) -> bool:
        """Set or clear limits. Returns whether anything changed."""
        rate = Rate.of(changes.get("rate"))
        if rate is not None and rate.key is not None:
            raise InvalidInput("only the code of a job type declares the key of a rate; operators set the number")
        starts = (None, None) if rate is None else (rate.count, rate.per)
        values = (changes.get("limit"), *starts, changes.get("weight"))
        return await self._changed("change_limits", kind, name, list(changes), *values, by, by_key, *provenance.get())

    async def close_type(self, name: str, *, by: str, reason: str | None, by_key: UUID | None) -> bool:
        """Close a type to new jobs. Returns whether anything changed."""
        return await self._changed("close_type", name, by, reason, by_key, *provenance.get())

    async def open_type(self, name: str, *, by: str, reason: str | None, by_key: UUID | None) -> bool:
        """Open a type to new jobs again. Returns whether anything changed."""
        return await self._changed("open_type", name, by, reason, by_key, *provenance.get())

    async def request(
        self,
        verb: str,
        job_id: UUID,
        *,
        by: str,
        reason: str | None,
        tenant: str | None,
        by_key: UUID | None,
        public: bool,
    ) -> tuple[str, UUID]:
        """Make a request. Returns the outcome, and the job that runs then."""
        asked = verb, job_id, by, reason, tenant, by_key, public
        (row,) = await self._session.rows("operator_request", *asked, *provenance.get())
        return row["outcome"], row["runs_as"]

    async def decisions(self) -> list[Decision]:
        """All pauses, limits and weights that operators have set."""
        return [Decision(**dict(row)) for row in await self._session.rows("list_controls")]

    async def queues(self, tenant: str | None, name: str | None, after: str | None, limit: int) -> list[Queue]:
        """Queues by name."""
        return await self._subjects("list_queues", Queue, tenant, name, after, limit)

    async def types(self, tenant: str | None, name: str | None, after: str | None, limit: int) -> list[Type]:
        """Job types by name."""
        return await self._subjects("list_types", Type, tenant, name, after, limit)

    async def lanes(self, tenant: str | None, name: str | None) -> list[Lane]:
        """Both lanes, or one."""
        return await self._subjects("list_lanes", Lane, tenant, name)

    async def tenants(self, tenant: str | None, name: str | None, after: str | None, limit: int) -> list[Tenant]:
        """Tenants by name."""
        return await self._subjects("list_tenants", Tenant, tenant, name, after, limit)

    async def drain(self, kind: Kind, name: str, tenant: str | None) -> Draining:
        """Whether claims of a subject are stopped, and what still runs there."""
        (row,) = await self._session.rows("drain_progress", kind, name, tenant)
        return Draining(**dict(row))

    async def targets(self, tenant: str | None, *, blocked: bool, after: Place | None, limit: int) -> TargetPage:
        """One page of targets."""
        (page,) = await self._session.rows("list_targets", tenant, blocked, *(after or (None, None)), limit)
        reached = None if page["reached_target"] is None else (page["reached_tenant"], page["reached_target"])
        names = list(zip(page["tenants"], page["targets"], strict=True))
        return TargetPage(targets=await self.show(names, tenant, line=0) if names else [], reached=reached)

    async def show(self, names: Sequence[Place], tenant: str | None, *, line: int) -> list[Target]:
        """The given targets, as far as they have open jobs."""
        rows = await self._session.rows(
            "show_targets", [tenant for tenant, _ in names], [target for _, target in names], tenant, line
        )
        return [Target(**dict(row)) for row in rows]

    async def explain(self, job_id: UUID, tenant: str | None) -> Explanation:
        """Why a job does not run."""
        (row,) = await self._session.rows("explain", job_id, tenant)
        culprit = None if row["culprit"] is None else json.loads(row["culprit"])
        return Explanation(code=row["code"], sentence=row["sentence"], culprit=culprit)

    async def _changed(self, statement: str, *arguments: object) -> bool:
        (row,) = await self._session.rows(statement, *arguments)
        return bool(row[0])

    async def _subjects(self, statement: str, kind: type[_SUBJECT], *arguments: object) -> list[_SUBJECT]:
        return [kind(**dict(row)) for row in await self._session.rows(statement, *arguments)]
