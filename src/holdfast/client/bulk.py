"""One action on all jobs that fit a filter, done by maintenance: start it, look at it, stop it.

A bulk operation is stored before it begins, and goes on whatever ends: the caller, a worker, the leader or PostgreSQL.
Each job is worked on once at most. Jobs that are recorded after the start are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.bounds import shown
from holdfast.client.letters import changed_options
from holdfast.client.turns import Turns
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.model.bulk import BULK_ACTIONS, Bulk, BulkPreview
from holdfast.model.names import did_you_mean
from holdfast.model.pages import checked_limit
from holdfast.model.query import Tree, parse_query
from holdfast.store.bulk import BulkStore
from holdfast.store.database import Database

__all__ = ["Bulks"]

#: What these do is bounded by what they are about: open dead letters.
_WITHOUT_FILTER = ("requeue", "ack")
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {"requeue": ("options",), "reprioritize": ("priority",)}


class Bulks:
    """The verbs, over a database in the role `operator`. `tenant` None means all of them."""

    def __init__(self, database: Database, browsing: Database, searching: Turns) -> None:
        """`browsing` has connections for what may take seconds, and `searching` turns for it."""
        self._store, self._found, self._searching = BulkStore(database), BulkStore(browsing), searching

    async def preview(
        self, action: str, query: str, *, args: Mapping[str, Any] | None = None, tenant: str | None = None
    ) -> BulkPreview:
        """How many jobs an action would be about now, and some of them. Changes nothing."""
        tree, checked = _asked(action, query, args)
        async with self._searching.one(tenant):
            return await self._found.preview(action, tree, checked, tenant)

    async def start(
        self,
        action: str,
        query: str,
        *,
        by: str,
        args: Mapping[str, Any] | None = None,
        note: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> UUID:
        """Start an action on all jobs that fit a query (see holdfast.model.query). Answers the id of the operation.

        `args`: for `requeue`, `{"options": {...}}` as in a requeue of one letter.
        """
        tree, checked = _asked(action, query, args)
        return await self._store.start(
            action, query, tree, by=by, args=checked, note=note, tenant=tenant, by_key=by_key
        )

    async def get(self, bulk_id: UUID, *, tenant: str | None = None) -> Bulk:
        """One bulk operation; NotFound if there is none, or no longer."""
        for bulk in await self._store.list(tenant=tenant, only=bulk_id):
            return bulk
        raise _unknown(bulk_id)

    async def list(self, *, tenant: str | None = None, before: UUID | None = None, limit: int = 50) -> Sequence[Bulk]:
        """Bulk operations, newest first, before the given one."""
        checked_limit(limit)
        return await self._store.list(tenant=tenant, before=before, limit=limit)

    async def is_maintained(self) -> bool:
        """Whether a leader of maintenance is alive; while none is, no bulk operation gets on."""
        return await self._store.is_maintained()

    async def stop(
        self,
        bulk_id: UUID,
        *,
        by: str,
        note: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> Bulk:
        """Stop one between two portions. What it has already done is kept."""
        state = await self._store.stop(bulk_id, by=by, note=note, tenant=tenant, by_key=by_key)
        if state is None:
            raise _unknown(bulk_id)
        if state == "done":
            raise Conflict(f"the bulk operation {bulk_id} is done: what it did can only be undone job by job")
        return await self.get(bulk_id, tenant=tenant)


def _asked(action: str, query: str, args: Mapping[str, Any] | None) -> tuple[Tree, dict[str, Any]]:
    """The tree of a query, and the arguments in the engine's names; InvalidInput for what cannot be asked."""
    if action not in BULK_ACTIONS:
        advice = did_you_mean(action, BULK_ACTIONS) or f"; there are {', '.join(BULK_ACTIONS)}"
        raise InvalidInput(f"unknown action {shown(action)}{advice}")
    checked = dict(args or {})
    for name in checked:
        if name not in _ARGUMENTS.get(action, ()):
            raise InvalidInput(f"{action} takes no argument {shown(name)}")
    if checked.get("options") is not None:
        if not isinstance(checked["options"], Mapping):
            raise InvalidInput("options must be an object")
        checked["options"] = changed_options(checked["options"])
    else:
        checked.pop("options", None)
    tree = parse_query(query)
    if not query.strip() and action not in _WITHOUT_FILTER:
        raise InvalidInput(f"a filter is required (e.g. state:queued): without one, {action} applies to every job")
    return tree, checked


def _unknown(bulk_id: UUID) -> NotFound:
    return NotFound(f"there is no bulk operation {bulk_id}")
