"""A job, its attempts and events, and what a worker gets with a claim."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from holdfast.model.states import State, Status, public_status

__all__ = ["Attempt", "Claim", "Enqueued", "HandlerFacts", "Job", "JobEvent", "ListedJob", "Stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job in a list: without payload, result and cursor, and with only the beginning of its last error."""

    id: UUID
    type: str
    queue: str
    lane: str
    tenant: str
    state: State
    reason: str | None
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    target: str | None
    idempotency_key: str | None
    dedup_key: str | None
    correlation_id: str
    parent_id: UUID | None
    retry_of: UUID | None
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None
    target_count: int | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    interrupt: str | None
    traceparent: str | None = None
    #: What the job has reported (see holdfast.model.progress); None where it has reported nothing.
    progress_count: int | None = None
    result_count: int | None = None
    last_progress_at: datetime | None = None
    done_reason: str | None = None

    @property
    def status(self) -> Status:
        """What clients see of the state."""
        return public_status(self.state)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Only asked for what is not there."""
            if name in ("payload", "result", "cursor"):
                raise AttributeError(f"a list does not fetch the {name} of its jobs: use `hf.get(job.id).{name}`")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ListedJob):
    """A job as the database has it at one moment."""

    payload: dict[str, Any]
    result: Any
    cursor: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One ended attempt."""

    job_id: UUID
    attempt: int
    worker: str
    started_at: datetime
    finished_at: datetime
    queue_ms: int | None
    duration_ms: int | None
    outcome: str
    error_type: str | None
    error_message: str | None
    traceback: str | None
    log_excerpt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One entry in a job's history, with who and why."""

    job_id: UUID
    at: datetime
    event: str
    by: str | None
    note: str | None


class Enqueued(NamedTuple):
    """The answer to one intent: `created`, `existing` (a key's job was there already) or `conflict`."""

    job_id: UUID
    state: State
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The jobs of one type, in one queue, of one tenant."""

    id: int
    tenant: str
    queue: str
    type: str
    #: Somebody limited how many of its jobs run.
    limited: bool = False
    #: And that per value of a field of their payloads.
    keyed: bool = False


class HandlerFacts(NamedTuple):
    """What a handler may know of its job beside id, type and attempt, wherever it runs. `cursor` is JSON text."""

    tenant: str
    correlation_id: str
    cursor: str | None
    failures: int
    max_attempts: int
    traceparent: str | None


@dataclass(slots=True, kw_only=True, eq=False)
class Claim:
    """A leased attempt, as a worker gets it. `payload` is JSON text; None: it is fetched before the handler runs."""

    job_id: UUID
    attempt: int
    stream: Stream
    rank: int
    seq: int
    payload: str | None
    correlation_id: str
    target: str | None
    failures: int
    max_attempts: int
    ready_at: datetime
    claimed_at: datetime
    lease_seconds: float
    #: Where the attempts before it had come to, as JSON text.
    cursor: str | None = None
    #: Of a job claimed ahead: it may begin once the database knows that jobs up to this number do.
    number: int | None = None
    #: One more lost lease would end or hold the job: it begins once the database knows that this very one does.
    last_chance: bool = False
    #: The trace that the job belongs to, as in W3C Trace Context.
    traceparent: str | None = None

    @property
    def facts(self) -> HandlerFacts:
        """What its handler may know."""
        return HandlerFacts(
            tenant=self.stream.tenant,
            correlation_id=self.correlation_id,
            cursor=self.cursor,
            failures=self.failures,
            max_attempts=self.max_attempts,
            traceparent=self.traceparent,
        )
