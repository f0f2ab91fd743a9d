"""What a remote worker tells of its jobs: reports while they run, and how they ended."""

from __future__ import annotations

import json
import logging
from typing import Any

from holdfast.errors import Conflict, HoldfastError, InvalidInput, LeaseLost
from holdfast.model.outcome import Outcome
from holdfast.model.progress import Report, Reported
from holdfast.remote.held import Held
from holdfast.remote.protocol import WorkerCalls

__all__ = ["ENOUGH", "reported", "running", "settle"]

ENOUGH = "the job has as many items as were wanted, and has ended; nothing more is stored for it"
#: How the worker's outcomes are called in reports.
_KINDS = {"retry": "retryable"}

_log = logging.getLogger("holdfast")


def running(held: Held, number: int, report: Report) -> str:
    """A report of a job that goes on, as the members of a JSON object."""
    members = {"job_id": _json(str(held.job_id)), "attempt": _json(held.attempt), "seq": _json(number)}
    if report.items is not None:
        members["items"] = report.items
    if report.collection is not None:
        members["collection"] = _json(report.collection)
    if report.cursor is not None:
        members["cursor"] = report.cursor
    if report.items is None:
        members["progress"] = _json(report.progress)
    return _joined(members)


def reported(held: Held, answer: dict[str, Any]) -> Reported:
    """What a report has come to, for the handler."""
    count = answer["result_count"] or 0
    enough = held.has_enough or (held.target_count is not None and count >= held.target_count)
    return Reported(
        progress_count=answer["progress_count"] or 0,
        result_count=count,
        target_count=held.target_count,
        target_reached=enough,
    )


def _final(held: Held, outcome: Outcome) -> str:
    """The last report of an attempt, as the members of a JSON object."""
    members = {"job_id": _json(str(held.job_id)), "attempt": _json(held.attempt)}
    if outcome.kind == "success":
        members["done"] = "true"
        if held.done_reason is not None:
            members["done_reason"] = _json(held.done_reason)
        if outcome.result is not None:
            members["result"] = outcome.result
    else:
        kind = "snooze" if outcome.kind == "snoozed" else _KINDS.get(outcome.failure, outcome.failure)
        error = {
            "kind": kind,
            "message": outcome.message or outcome.error_type or outcome.kind,
            "type": outcome.error_type,
            "traceback": outcome.traceback,
            "delay_sec": outcome.delay_seconds,
            "circuit": outcome.circuit,
        }
        members["error"] = _json({name: value for name, value in error.items() if value is not None})
    if held.excerpt is not None:
        members["log"] = _json(held.excerpt)
    return _joined(members)


async def _hand_back(calls: WorkerCalls, held: Held, reason: str) -> str:
    """Hand a job back. Returns what became of it."""
    (answer,) = (await calls.release([held.key], reason))["leases"]
    if answer["state"] is None:
        raise LeaseLost("the job is somebody else's by now")
    return str(answer["state"])


async def settle(calls: WorkerCalls, held: Held, outcome: Outcome) -> str | None:
    """Tell how an attempt ended. Returns what became of the job; None if that is nobody's business any more."""
    if held.lost or held.has_enough:
        return None
    try:
        if outcome.kind in ("released", "canceled", "paused"):
            return await _hand_back(calls, held, outcome.message or outcome.kind)
        try:
            return str((await calls.report(_final(held, outcome)))["state"])
        except InvalidInput as fault:  # a result that is too large, and what else would be refused again
            return str((await calls.report(_final(held, Outcome.refused(str(fault)))))["state"])
    except LeaseLost:
        held.lost = True
    except Conflict as fault:
        _log.warning("%s: the job had ended before: %s", held.type, fault)
    except HoldfastError as fault:
        _log.error("%s: the outcome (%s) could not be told, and is dropped: %s", held.type, outcome.kind, fault)
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(members: dict[str, str]) -> str:
    return ",".join(f'"{name}":{text}' for name, text in members.items())
