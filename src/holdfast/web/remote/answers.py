"""The answers to remote workers, written as JSON: payloads and cursors pass as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from holdfast.model.remote import LeaseTold, PulledJob, ReportTold
from holdfast.web.problems import Problem

__all__ = ["job_text", "joined", "lease_of", "milliseconds", "object_text", "report_of"]


def milliseconds(seconds: float | None) -> int | None:
    """What is left of a lease; never less than nothing."""
    return None if seconds is None else max(0, int(seconds * 1000))


def object_text(values: dict[str, Any], texts: dict[str, str]) -> str:
    """A JSON object of values and of parts that are JSON already."""
    head = to_json(values).decode()[:-1]
    return f"{head}{''.join(f',{to_json(name).decode()}:{text}' for name, text in texts.items())}}}"


def job_text(job: PulledJob) -> str:
    """A job as its worker gets it."""
    return object_text(
        {
            "job_id": job.job_id,
            "type": job.type,
            "queue": job.queue,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "correlation_id": job.correlation_id,
            "target": job.target,
            "progress_count": job.progress_count,
            "result_count": job.result_count,
            "target_count": job.target_count,
            "traceparent": job.traceparent,
            "timeout_sec": job.timeout_seconds,
            "lease_sec": job.lease_seconds,
            **_lease(job.lease_expires_at, job.lease_remaining),
        },
        {"payload": job.payload, "cursor": job.cursor or "null"},
    )


def lease_of(told: LeaseTold) -> dict[str, Any]:
    """How a lease stands."""
    return {"owned": told.owned, "directive": told.directive, **_lease(told.lease_expires_at, told.lease_remaining)}


def report_of(told: ReportTold) -> dict[str, Any]:
    """What became of a report, or the problem with it."""
    if told.verdict == "lease-lost":
        raise Problem(409, "lease-lost", "This attempt no longer owns its job; nothing was changed.")
    if told.verdict == "already-reported":
        raise Problem(409, "already-reported", f"The worker has ended this attempt before: {told.outcome}.")
    return {
        "state": told.state,
        "owned": told.owned,
        "directive": told.directive,
        **_lease(told.lease_expires_at, told.lease_remaining),
        "progress_count": told.progress_count,
        "result_count": told.result_count,
        "duplicate": told.verdict == "repeated",
    }


def _lease(expires_at: datetime | None, remaining: float | None) -> dict[str, Any]:
    return {"lease_expires_at": expires_at, "lease_remaining_ms": milliseconds(remaining)}


def joined(texts: Iterable[str]) -> str:
    """A JSON list of parts that are JSON already."""
    return f"[{','.join(texts)}]"
