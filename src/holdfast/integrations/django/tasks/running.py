"""The job type that all tasks are, and how a worker runs one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from holdfast.app import Holdfast
from holdfast.errors import Fatal, HandlerSignal, Hold, Snooze
from holdfast.integrations.django.project import project_app
from holdfast.integrations.django.tasks.framework import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from holdfast.integrations.django.tasks.naming import NotATask, UnknownTask, find_task
from holdfast.integrations.django.tasks.results import TaskFailed, TaskFailedForGood, as_asked, result_of
from holdfast.model.foreign import message_of, traceback_of

__all__ = ["JOB_TYPE", "declare"]

JOB_TYPE = "django.task"

#: A worker of the release before does not know a new task: it waits for one that does.
_UNKNOWN_SECONDS = 30.0

#: After that time it is no deployment any more but a mistake, which a person has to see.
_UNKNOWN_FOR = timedelta(hours=1)


def declare(app: Holdfast) -> None:
    """Let workers of this app run tasks."""
    if app.registry.get(JOB_TYPE) is None:
        app.job(JOB_TYPE)(run_task)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """What a job says of the task that it is."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    run_after: str | None = None


def run_task(ctx: Any, call: TaskCall) -> Any:
    """Run one task, in a thread; coroutines get an event loop of their own there."""
    try:
        chosen = task_backends[call.backend]
        found = find_task(call.task, chosen.modules)
    except (UnknownTask, ImproperlyConfigured) as unknown:
        raise _until_it_is_known(ctx, str(unknown)) from unknown
    except NotATask as fault:
        raise Fatal(str(fault)) from fault
    job = chosen.app.sync.get(ctx.job_id)
    attempts = chosen.app.sync.attempts(job.id) if job.attempt > 1 else ()
    result = result_of(job, attempts, call.backend, as_asked(found, job, call.backend))
    last = not chosen.retry_failures or job.failures + 1 >= job.max_attempts
    return _run(type(chosen), result, call, last=last)


def _until_it_is_known(ctx: Any, message: str) -> HandlerSignal:
    """Waiting costs the task nothing, but it has an end, counted from when a worker first met the task."""
    if ctx.attempt > 1:
        attempts = project_app().sync.attempts(ctx.job_id)
        if attempts and datetime.now(UTC) - attempts[0].started_at > _UNKNOWN_FOR:
            return Hold(message)
    return Snooze(_UNKNOWN_SECONDS, message)


def _run(backend: type, result: Any, call: TaskCall, *, last: bool) -> Any:
    task_started.send_robust(sender=backend, task_result=result)
    task = result.task
    try:
        given = [TaskContext(task_result=result), *call.args] if task.takes_context else call.args
        value = normalize_json(task.call(*given, **call.kwargs))
    except HandlerSignal:
        raise
    except BaseException as error:  # Ctrl-C is not among them: it reaches the main thread only
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = (TaskFailedForGood if last else TaskFailed)(f"{path}: {message_of(error)}")
        if last:
            _end(result, TaskResultStatus.FAILED)
            result.errors.append(TaskError(exception_class_path=path, traceback=traceback_of(error)))
            task_finished.send_robust(sender=backend, task_result=result)
        raise failure from error
    _end(result, TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "_return_value", value)
    task_finished.send_robust(sender=backend, task_result=result)
    return value


def _end(result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
