"""Dead letters, as statements of the engine. Role: operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.model.letter import DeadLetter, LetterPage, LetterPlace
from holdfast.model.provenance import provenance
from holdfast.model.query import Tree
from holdfast.store.database import Session

__all__ = ["Decided", "LetterStore"]


class Decided(NamedTuple):
    """What became of a decision about one job; `state` is the job's, and `runs_as` the job that it runs again as."""

    job_id: UUID
    outcome: str
    state: str | None
    runs_as: UUID | None = None


class LetterStore:
    """The letters of one tenant, or (None) of all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def search(
        self,
        tree: Tree,
        *,
        tenant: str | None,
        acknowledged: bool | None,
        fingerprint: str | None,
        before: LetterPlace | None,
        limit: int,
        visit: int,
    ) -> LetterPage:
        """One page of letters; `acknowledged` None means all."""
        asked = json.dumps(tree), tenant, acknowledged, fingerprint, *(before or (None, None)), limit, visit
        (row,) = await self._session.rows("search_letters", *asked)
        letters = await self.get(row["ids"], tenant) if row["ids"] else []
        reached = None if row["reached_id"] is None else LetterPlace(row["reached_at"], row["reached_id"])
        return LetterPage(letters=letters, reached=reached)

    async def get(self, job_ids: Sequence[UUID], tenant: str | None) -> list[DeadLetter]:
        """The letters of these jobs, in this order, as far as there are any."""
        return [DeadLetter(**dict(row)) for row in await self._session.rows("get_letters", job_ids, tenant)]

    async def acknowledge(
        self, job_ids: Sequence[UUID], *, by: str, note: str | None, tenant: str | None, by_key: UUID | None
    ) -> list[Decided]:
        """Acknowledge letters. Answers what became of each."""
        asked = job_ids, by, note, tenant, by_key
        rows = await self._session.rows("acknowledge_letters", *asked, *provenance.get())
        return [Decided(row["job_id"], row["outcome"], row["state"]) for row in rows]

    async def requeue(
        self,
        job_ids: Sequence[UUID],
        *,
        by: str,
        note: str | None,
        payload: str | None,
        options: Mapping[str, Any] | None,
        tenant: str | None,
        by_key: UUID | None,
    ) -> list[Decided]:
        """Run dead jobs again; `payload` is JSON text. Answers what became of each."""
        asked = job_ids, by, note, payload, None if options is None else json.dumps(options), tenant, by_key
        rows = await self._session.rows("requeue_letters", *asked, *provenance.get())
        return [Decided(row["job_id"], row["outcome"], row["state"], row["runs_as"]) for row in rows]
