"""Stores reports of running attempts, over separate connections: no claim or settlement waits for them.

A report is numbered, so it can be sent again if it is unknown whether it arrived: it counts once.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, LeaseLost
from holdfast.model.progress import Report, Reported
from holdfast.store.database import Database

__all__ = ["ReportStore"]

_CONNECTIONS = 2
#: How long to wait before each further try.
_PAUSES = (0.1, 0.5, 2.0)


class ReportStore:
    """The reports of one worker. It connects when the first one is sent."""

    def __init__(self, config: Config, worker: str) -> None:
        self._database = Database(config, role="worker", size=_CONNECTIONS)
        self._worker = worker
        self._database.open_later()  # in this event loop: calls from another one are refused

    async def report(self, job_id: UUID, attempt: int, seq: int, report: Report) -> Reported:
        """Store a report. Raises LeaseLost if another worker has the job by now."""
        for pause in (*_PAUSES, None):
            try:
                return await self._send(job_id, attempt, seq, report)
            except DatabaseUnavailable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()

    async def _send(self, job_id: UUID, attempt: int, seq: int, report: Report) -> Reported:
        (row,) = await self._database.rows(
            "report",
            self._worker,
            job_id,
            attempt,
            seq,
            report.items,
            report.collection,
            report.cursor,
            report.progress,
            report.done_reason,
        )
        if row["state"] == "lease-lost":
            raise LeaseLost(f"attempt {attempt} of job {job_id} no longer owns it; nothing was stored")
        return Reported(
            progress_count=row["progress_count"],
            result_count=row["result_count"],
            target_count=row["target_count"],
            target_reached=row["target_reached"],
        )
