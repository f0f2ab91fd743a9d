"""What scrapers of before send to `/api/report_results`, and what they are answered, as `/worker` has it.

The id of a job that they are handed carries the attempt and the worker. So it fences them, though they do not know it:
they send back what they got.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Annotated, Any, NamedTuple, Self
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from holdfast.bounds import BOUNDS
from holdfast.errors import HoldfastError
from holdfast.model.progress import DoneReason
from holdfast.model.remote import PulledJob, ReportTold
from holdfast.web.bodies import problem_of
from holdfast.web.problems import Problem, translated
from holdfast.web.remote.answers import milliseconds, object_text, report_of
from holdfast.web.remote.mending import mended
from holdfast.web.remote.schemas import ReportFields

__all__ = ["Handle", "PulledAnswer", "ResultsAnswer", "ScraperReport", "lease_of", "pulled_text", "worker_of"]

_SHORTEST, _LONGEST = 1.0, 3600.0
_INVISIBLE = re.compile(r"[^\x21-\x7e]+")
#: The states of seed 003's document; all others are `queued`.
_STATES = {"running": "processing", "success": "done", "dead": "failed", "error": "failed", "canceled": "failed"}


def lease_of(seconds: float | None) -> float | None:
    """A length of a lease within its bounds."""
    return None if seconds is None else min(max(seconds, _SHORTEST), _LONGEST)


def worker_of(named: str | None, address: str) -> str:
    """The name of a worker, from what it calls itself; by its address if it does not."""
    return _INVISIBLE.sub("-", named or "")[:100].strip("-") or _INVISIBLE.sub("-", f"at-{address}")[:100]


class Handle(NamedTuple):
    """What `job_id` stands for."""

    job_id: UUID
    attempt: int
    #: Whether the job has a target count, and so is done for want of results if its worker ends it earlier.
    counts: bool
    worker: str

    def text(self) -> str:
        """As the worker gets it."""
        head = self.job_id.bytes + self.attempt.to_bytes(4) + bytes([self.counts])
        return base64.urlsafe_b64encode(head + self.worker.encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The same again; None if this is no handle."""
        try:
            raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            worker = raw[21:].decode("ascii")
        except (binascii.Error, UnicodeError):
            return None
        if len(raw) < 22 or len(worker) > 100 or _INVISIBLE.search(worker):
            return None
        handle = cls(UUID(bytes=raw[:16]), int.from_bytes(raw[16:20]), raw[20] == 1, worker)
        return handle if 1 <= handle.attempt <= BOUNDS["max_attempts"].high else None


def _fraction(value: Any) -> Any:
    """A number that may come as text, as forms and PHP send it."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) else value


class ScraperReport(BaseModel):
    """What a scraper has found, and how far it is. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    job_id: Annotated[str, Field(max_length=300)]
    items: list[Any] | None = None
    cursor: Any = None
    done: bool | None = None
    done_reason: DoneReason | None = None
    extend_lease_sec: Annotated[float | None, BeforeValidator(_fraction)] = None
    error: str | None = None
    log: str | None = None

    @classmethod
    def mended(cls, raw: bytes) -> bytes | None:
        """A body with broken Unicode, as it can be read; None if something else is wrong with it."""
        return mended(raw)

    def report(self, handle: Handle, item_key: str) -> ReportFields:
        """As `/worker/report` takes it; a problem if it does not."""
        ends = {"done_reason": self.done_reason or ("no_more_results" if handle.counts else "worker_done")}
        given = {
            "job_id": handle.job_id,
            "attempt": handle.attempt,
            "items": None if self.items is None else [_item(item, item_key) for item in self.items],
            "cursor": self.cursor,
            "extend_lease_sec": lease_of(self.extend_lease_sec),
            "error": (self.error or "").strip() or None,
            "log": self.log,
            "seq": 1,
        }
        try:
            checked = ReportFields.model_validate({**given, **({"done": True, **ends} if self.done else {})})
        except ValidationError as fault:
            raise _pointing(problem_of(fault, ReportFields), item_key) from None
        return checked.model_copy(update={"seq": None})  # scrapers do not number their reports


def _item(item: Any, item_key: str) -> dict[str, Any]:
    """An item, with what identifies it as its key; without, the hash of its data is the key."""
    key = item.get(item_key) if isinstance(item, dict) else None
    named = isinstance(key, str | int) and not isinstance(key, bool) and str(key).strip() != ""
    return {"key": str(key).strip(), "data": item} if named else {"data": item}


def _pointing(problem: Problem, item_key: str) -> Problem:
    """A problem with a report that points to where things stand in what the scraper sent."""
    problem.errors = [{**error, "pointer": _place(error["pointer"], item_key)} for error in problem.errors]
    return problem


def _place(pointer: str, item_key: str) -> str:
    found = re.match(r"(/items/\d+)/(data|key)(.*)", pointer)
    if found is None:
        return pointer
    return found[1] + (found[3] if found[2] == "data" else f"/{item_key}")


class PulledAnswer(BaseModel):
    """A job for a scraper, or none. The members of its payload stand beside those that every job has."""

    ok: bool
    job: dict[str, Any] | None


class ResultsAnswer(BaseModel):
    """What became of a scraper's report. With `done`, there is nothing more to do about the job."""

    ok: bool
    done: bool
    status: str
    directive: str
    lease_expires_at: Any
    lease_remaining_ms: int | None
    progress_count: int | None
    result_count: int | None
    duplicate: bool

    @classmethod
    def of(cls, told: ReportTold | HoldfastError, item_key: str) -> Self:
        """The answer; a problem if the report did not count."""
        if isinstance(told, HoldfastError):
            raise _pointing(translated(told), item_key)
        if told.verdict == "already-reported" and told.outcome == "success":
            # It has ended its job itself, by its last items or with `done`: one more report changes nothing.
            return cls._with("success", "continue", duplicate=True)
        answer = report_of(told)
        return cls._with(**answer)

    @classmethod
    def _with(cls, state: str, directive: str, duplicate: bool, **more: Any) -> Self:
        return cls(
            ok=True,
            done=state == "success" or directive in ("cancel", "pause"),
            status=_STATES.get(state, "queued"),
            directive=directive,
            lease_expires_at=more.get("lease_expires_at"),
            lease_remaining_ms=more.get("lease_remaining_ms"),
            progress_count=more.get("progress_count"),
            result_count=more.get("result_count"),
            duplicate=duplicate,
        )


def pulled_text(job: PulledJob | None, worker: str) -> str:
    """The answer to a pull. Where the payload has a member of the same name, it stands in `payload` only."""
    if job is None:
        return '{"ok":true,"job":null}'
    handle = Handle(job.job_id, job.attempt, job.target_count is not None, worker).text()
    own = {
        "id": handle,
        "job_id": handle,
        "status": _STATES["running"],
        "type": job.type,
        "queue": job.queue,
        "attempts": job.attempt,
        "max_attempts": job.max_attempts,
        "progress_count": job.progress_count,
        "result_count": job.result_count,
        "target_count": job.target_count,
        "lease_sec": job.lease_seconds,
        "lease_expires_at": job.lease_expires_at,
        "lease_remaining_ms": milliseconds(job.lease_remaining),
    }
    texts = {"payload": job.payload, "cursor": job.cursor or "null", "last_cursor": job.cursor or "null"}
    members = {name: value for name, value in json.loads(job.payload).items() if name not in texts}
    return f'{{"ok":true,"job":{object_text(members | own, texts)}}}'
