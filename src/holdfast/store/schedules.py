"""Schedules, as statements of the engine: what operators decide (role: operator) and what workers declare (worker)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.model.provenance import provenance
from holdfast.model.schedule import Fire
from holdfast.store.database import Database, Session

__all__ = ["Declarations", "RefusedSchedule", "ScheduleStore"]


class RefusedSchedule(NamedTuple):
    """A declared schedule that the engine did not take, and why."""

    tenant: str
    name: str
    fault: str


class ScheduleStore:
    """The schedules of one tenant, or (None) of any."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def put(
        self,
        definition: Mapping[str, Any],
        payload: str,
        *,
        tenant: str,
        replace: bool,
        by: str,
        note: str | None,
        by_key: UUID | None,
    ) -> str:
        """Make a schedule, or change it. Answers `created`, `changed`, `exists` or `declared`.

        The payload is JSON text: as Python values it would take many times as much memory.
        """
        text = f'{json.dumps(definition)[:-1]},"payload":{payload}}}'
        asked = text, tenant, replace, by, note, by_key
        (row,) = await self._session.rows("put_schedule", *asked, *provenance.get())
        return str(row[0])

    async def pause(self, name: str, tenant: str, *, by: str, note: str | None, by_key: UUID | None) -> bool | None:
        """Stop it from firing. Whether anything changed; None if there is none."""
        return await self._decide("pause_schedule", name, tenant, by, note, by_key)  # type: ignore[no-any-return]

    async def resume(self, name: str, tenant: str, *, by: str, note: str | None, by_key: UUID | None) -> bool | None:
        """Let it fire again. Whether anything changed; None if there is none."""
        return await self._decide("resume_schedule", name, tenant, by, note, by_key)  # type: ignore[no-any-return]

    async def delete(self, name: str, tenant: str, *, by: str, note: str | None, by_key: UUID | None) -> str | None:
        """Remove it: `deleted` or `declared`; None if there is none."""
        return await self._decide("delete_schedule", name, tenant, by, note, by_key)  # type: ignore[no-any-return]

    async def run(
        self, name: str, tenant: str, *, by: str, note: str | None, by_key: UUID | None
    ) -> tuple[str, UUID] | None:
        """Record a job now: `recorded` and the job, or `overlap` and the open one; None if there is no schedule."""
        for row in await self._session.rows("run_schedule", name, tenant, by, note, by_key, *provenance.get()):
            return row["outcome"], row["job_id"]
        return None

    async def list(
        self,
        *,
        tenant: str | None,
        name: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 1,
        payload: bool = False,
    ) -> list[dict[str, Any]]:
        """Schedules by tenant and name, as the engine has them; payloads, as JSON text, only if asked for."""
        rows = await self._session.rows("list_schedules", tenant, name, *(after or (None, None)), limit, payload)
        return [dict(row) for row in rows]

    async def fires(self, schedule_id: int, *, before: datetime | None = None, limit: int = 20) -> Sequence[Fire]:
        """What became of the last fire times, newest first."""
        return [Fire(*row) for row in await self._session.rows("list_fires", schedule_id, before, limit)]

    async def _decide(self, statement: str, *asked: Any) -> Any:
        (row,) = await self._session.rows(statement, *asked, *provenance.get())
        return row[0]


class Declarations:
    """What the code of a worker declares, in the role `worker`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def declare(self, worker: str, definitions: str) -> list[RefusedSchedule]:
        """Declare schedules: a JSON array. Answers those that were refused."""
        return [RefusedSchedule(*row) for row in await self._database.rows("declare_schedules", worker, definitions)]
