"""Bulk operations, as statements of the engine. Role: operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast.model.bulk import Bulk, BulkPreview
from holdfast.model.provenance import provenance
from holdfast.model.query import Tree
from holdfast.store.browse import BrowseStore
from holdfast.store.database import Session

__all__ = ["BulkStore"]


class BulkStore:
    """The bulk operations on the jobs of one tenant, or (None) on those of any."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def preview(self, action: str, tree: Tree, args: Mapping[str, Any], tenant: str | None) -> BulkPreview:
        """How many jobs fit, and some of them."""
        (row,) = await self._session.rows("preview_bulk", action, json.dumps(tree), json.dumps(args), tenant)
        found = await BrowseStore(self._session).summaries(row["sample"], tenant) if row["sample"] else []
        return BulkPreview(row["matches"], row["exact"], sorted(found, key=lambda job: row["sample"].index(job.id)))

    async def start(
        self,
        action: str,
        query: str,
        tree: Tree,
        *,
        by: str,
        args: Mapping[str, Any],
        note: str | None,
        tenant: str | None,
        by_key: UUID | None,
    ) -> UUID:
        """Record a bulk operation. Answers its id."""
        asked = action, query, json.dumps(tree), by, json.dumps(args), note, tenant, by_key
        (row,) = await self._session.rows("start_bulk", *asked, *provenance.get())
        started: UUID = row[0]
        return started

    async def stop(
        self, bulk_id: UUID, *, by: str, note: str | None, tenant: str | None, by_key: UUID | None
    ) -> str | None:
        """Ask one to stop. Answers its state, None if there is none."""
        (row,) = await self._session.rows("stop_bulk", bulk_id, by, note, tenant, by_key, *provenance.get())
        state: str | None = row[0]
        return state

    async def is_maintained(self) -> bool:
        """Whether some process does maintenance."""
        (row,) = await self._session.rows("is_maintained")
        return bool(row[0])

    async def list(
        self, *, tenant: str | None, before: UUID | None = None, limit: int = 1, only: UUID | None = None
    ) -> list[Bulk]:
        """Bulk operations, newest first."""
        rows = await self._session.rows("list_bulks", tenant, before, limit, only)
        return [Bulk(**{**dict(row), "args": _arguments(row["args"])}) for row in rows]


def _arguments(text: str | None) -> dict[str, Any]:
    """The arguments; none if they cannot be read. However a row came there, it does not break a list."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
