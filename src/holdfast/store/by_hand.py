"""What operators decide about single jobs. Role: operator."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from holdfast.model.provenance import provenance
from holdfast.store.database import Session

__all__ = ["ByHandStore", "HandAnswer"]


class HandAnswer(NamedTuple):
    """How a decision was taken, and the state that the job was in; if another decision holds, which, and whose."""

    outcome: str
    state: str | None
    decided: str | None
    decided_by: str | None


class ByHandStore:
    """Decisions about jobs of one tenant, or (None) of all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def act(
        self,
        verb: str,
        job_id: UUID,
        *,
        by: str,
        words: str | None,
        will_retry: bool | None = None,
        priority: int | None = None,
        tenant: str | None,
        by_key: UUID | None,
    ) -> HandAnswer:
        """Record a decision."""
        asked = verb, job_id, by, words, will_retry, priority, tenant, by_key
        (row,) = await self._session.rows("act_by_hand", *asked, *provenance.get())
        return HandAnswer(*row)
