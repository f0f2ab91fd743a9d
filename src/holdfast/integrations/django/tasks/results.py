"""A job and its attempts in the words of Django's Tasks framework."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

import holdfast.errors
from holdfast.integrations.django.tasks.framework import TaskError, TaskResult, TaskResultStatus
from holdfast.model.job import Attempt, Job
from holdfast.model.states import State

__all__ = ["TaskFailed", "TaskFailedForGood", "WorkerLost", "as_asked", "priority_of", "ready", "result_of"]

_STATUS = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCESS: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.ERROR: TaskResultStatus.FAILED,
    State.CANCELED: TaskResultStatus.FAILED,
}
_FAILURES = ("failed", "timeout", "lost", "canceled")

#: How Python joins the traceback of an error to that of the one raised from it.
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n"


class TaskFailed(holdfast.errors.HoldfastError):
    """A task raised; the message begins with the path of what it raised. It may run again."""

    code = "task-failed"


class TaskFailedForGood(holdfast.errors.Fatal):
    """The same, and the task does not run again."""

    code = "task-failed"


class WorkerLost(holdfast.errors.HoldfastError):
    """The worker that ran the task died, or was cut off for longer than its lease."""

    code = "worker-lost"


def priority_of(priority: int) -> int:
    """Theirs goes from -100 to 100, higher first; Holdfast's from 0, lower first, and 100 is the default."""
    return 100 - priority


def as_asked(task: Any, job: Job, alias: str) -> Any:
    """A task with the options that it was enqueued with."""
    moment = job.payload.get("run_after")
    return task.using(
        priority=100 - job.priority,
        queue_name=job.queue,
        run_after=None if moment is None else datetime.fromisoformat(moment),
        backend=alias,
    )


def ready(job_id: UUID, task: Any, payload: Mapping[str, Any], alias: str) -> Any:
    """The result object of a task that was just enqueued. Its id tells when, to the millisecond."""
    return TaskResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=_moment(datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_of(job: Job, attempts: Sequence[Attempt], alias: str, task: Any) -> Any:
    """The framework's result object."""
    running = job.state is State.RUNNING
    # Job and attempts were read one after the other: an attempt may have ended in between.
    ended = [a for a in attempts if a.attempt < job.attempt or (a.attempt == job.attempt and not running)]
    status = _STATUS.get(job.state, TaskResultStatus.READY)
    result = TaskResult(
        task=task,
        id=str(job.id),
        status=status,
        enqueued_at=_moment(job.created_at),
        started_at=_moment(ended[0].started_at if ended else job.started_at),
        last_attempted_at=_moment(job.started_at),
        finished_at=_moment(job.finished_at or (job.last_error_at if job.state is State.ERROR else None)),
        args=job.payload.get("args", []),
        kwargs=job.payload.get("kwargs", {}),
        backend=alias,
        errors=[_error(attempt) for attempt in ended if attempt.outcome in _FAILURES],
        worker_ids=[a.worker for a in ended] + ([job.lease_owner] if running and job.lease_owner else []),
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", job.result)
    return result


def _moment(moment: datetime | None) -> Any:
    """As the project writes moments; its own connection has them so already."""
    if moment is None or timezone.is_aware(moment) == settings.USE_TZ:
        return moment
    return timezone.make_aware(moment) if settings.USE_TZ else timezone.make_naive(moment)


def _error(attempt: Attempt) -> Any:
    traceback = attempt.traceback or ""
    if attempt.error_type in (TaskFailed.__name__, TaskFailedForGood.__name__):
        path = (attempt.error_message or "").partition(": ")[0]
        traceback = traceback.rpartition(_CAUSED)[0] or traceback
    else:
        path = _path(attempt)
    return TaskError(exception_class_path=path, traceback=traceback or f"{path}: {attempt.error_message or ''}\n")


def _path(attempt: Attempt) -> str:
    """Where the class of an error is that no task raised."""
    name = attempt.error_type or ""
    match attempt.outcome:
        case "timeout":
            return "builtins.TimeoutError"
        case "lost":
            return f"{WorkerLost.__module__}.{WorkerLost.__qualname__}"
        case "canceled":
            return "asyncio.exceptions.CancelledError"
    if name in holdfast.errors.__all__:
        return f"holdfast.errors.{name}"
    return f"builtins.{name}" if hasattr(builtins, name) else "builtins.Exception"
