"""Workers as operators see them, as statements of the engine."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.model.provenance import provenance
from holdfast.model.worker import LaneUse, ListedWorker, Quiet, WorkerJob
from holdfast.store.database import Session

__all__ = ["Roster"]


class Roster:
    """Lists workers and quiets them, in the role `operator`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, tenant: str | None, worker: str | None, after: str | None, limit: int) -> list[ListedWorker]:
        """Workers by id after the given one, or one worker."""
        return [_worker(row) for row in await self._session.rows("list_workers", tenant, worker, after, limit)]

    async def quiet(self, worker: str, *, by: str, note: str | None, by_key: UUID | None) -> bool | None:
        """Tell it to claim no more; whether anything changed, None if it is unknown."""
        (row,) = await self._session.rows("quiet_worker", worker, by, note, by_key, *provenance.get())
        return None if row[0] is None else bool(row[0])


def _worker(row: Any) -> ListedWorker:
    found = dict(row)
    lanes, used = json.loads(found.pop("lanes")), json.loads(found.pop("used") or "{}")
    since, by, note = found.pop("quiet_at"), found.pop("quiet_by"), found.pop("quiet_note")
    slots = sum(map(int, lanes.values()))
    jobs = [
        WorkerJob(**job | {"job_id": UUID(job["job_id"]), "started_at": datetime.fromisoformat(job["started_at"])})
        for job in json.loads(found.pop("jobs"))
    ]
    return ListedWorker(
        **found,
        lanes={lane: LaneUse(slots=int(count), used=used.get(lane)) for lane, count in lanes.items()},
        slots=slots,
        used=sum(used.values()) if used else min(slots, found["running"]),
        quiet=None if since is None else Quiet(since=since, by=by, note=note),
        jobs=jobs,
    )
