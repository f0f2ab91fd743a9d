"""What operators see of failures, as statements of the engine. Role: operator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.failure import FailureGroup
from holdfast.store.database import Session

__all__ = ["FailurePage", "FailureStore", "LastSeen"]

#: Where a page ended: when that was last seen, its fingerprint and its tenant.
LastSeen = tuple[datetime, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePage:
    """Failures by fingerprint, the most recent first. `reached` is where to go on, None at the end."""

    groups: list[FailureGroup]
    reached: LastSeen | None


class FailureStore:
    """Reads over the failures of one tenant, or (None) of all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def page(self, tenant: str | None, job_type: str | None, before: LastSeen | None, limit: int) -> FailurePage:
        """One page."""
        rows = await self._session.rows("list_failures", tenant, job_type, *(before or (None, None, None)), limit + 1)
        groups = [FailureGroup(**dict(row)) for row in rows[:limit]]
        if len(rows) <= limit:
            return FailurePage(groups=groups, reached=None)
        last = groups[-1]
        return FailurePage(groups=groups, reached=(last.last_seen, last.fingerprint, last.tenant))
