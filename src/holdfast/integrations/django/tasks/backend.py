"""What Django's Tasks framework talks to.

Options (`"OPTIONS": {...}`):

- `RETRY_FAILURES` (False): whether a task that raised runs again, with backoff. The framework promises no
  retries, so by default a failure is final.
- `MAX_ATTEMPTS` (3): failures and lost workers that a task may have. A worker that died does not mean that the
  task failed, so it runs again in any case: a task must be able to bear that.
- `MODULES` ([]): packages beside the installed apps in which tasks may be.
- `APP` (the project's): `module:name` of the Holdfast app that records and runs the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from holdfast.app import Holdfast
from holdfast.errors import NotFound
from holdfast.integrations.django.project import app_named, project_app
from holdfast.integrations.django.settings import unknown_keys
from holdfast.integrations.django.tasks.framework import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from holdfast.integrations.django.tasks.naming import NotATask, UnknownTask, find_again, find_task, name_of
from holdfast.integrations.django.tasks.results import as_asked, priority_of, ready, result_of
from holdfast.integrations.django.tasks.running import JOB_TYPE, declare
from holdfast.model.equal_keys import repeated_key
from holdfast.model.job import Job

__all__ = ["HoldfastBackend"]

_DEFAULTS: Mapping[str, Any] = {"RETRY_FAILURES": False, "MAX_ATTEMPTS": 3, "MODULES": (), "APP": None}


class HoldfastBackend(BaseTaskBackend):  # type: ignore[misc]
    """Tasks become jobs. Inside `transaction.atomic()` they exist if and only if it commits."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        given = {**_DEFAULTS, **self.options}
        if faults := [*unknown_keys(f"OPTIONS of the task backend {alias!r}", self.options, _DEFAULTS), *_wrong(given)]:
            raise ImproperlyConfigured("; ".join(faults))
        self.retry_failures: bool = given["RETRY_FAILURES"]
        self.modules: tuple[str, ...] = tuple(given["MODULES"])
        self._max_attempts, self._app_name = given["MAX_ATTEMPTS"], given["APP"]

    @property
    def app(self) -> Holdfast:
        """The Holdfast app that records and runs the tasks."""
        if self._app_name is None:
            app = project_app()
        else:
            app = app_named(self._app_name, f"APP of the task backend {self.alias!r}")
        declare(app)
        return app

    def validate_task(self, task: Any) -> None:
        """Refuse what could not be run; also queues that are Holdfast's own."""
        super().validate_task(task)
        if not task.queue_name or len(task.queue_name) > 200 or task.queue_name == "holdfast":
            raise InvalidTask(f"Queue {task.queue_name!r} is not valid for Holdfast.")

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Record the task as a job."""
        self.validate_task(task)
        try:
            find_again(name_of(task), self.modules)
        except (UnknownTask, NotATask) as fault:
            raise InvalidTask(f"No worker would find this task: {fault}.") from fault
        payload = {
            "task": name_of(task),
            "args": _plain(args),
            "kwargs": _plain(kwargs),
            "backend": self.alias,
            "run_after": None if task.run_after is None else task.run_after.isoformat(),
        }
        ref = self.app.sync.enqueue(
            JOB_TYPE,
            payload,
            queue=task.queue_name,
            priority=priority_of(task.priority),
            run_at=_aware(task.run_after),
            max_attempts=self._max_attempts,
        )
        # Not looked up: if that failed, the caller would believe that nothing was enqueued, and do it again.
        result = ready(ref.id, task, payload, self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """How a task stands, and what came of it."""
        app = self.app
        try:
            job = app.sync.get(result_id)
            attempts = app.sync.attempts(job.id) if job.attempt else ()
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        return result_of(job, attempts, self.alias, self.task_of(job))

    def task_of(self, job: Job) -> Any:
        """The task that a job stands for, as it was asked for."""
        if job.type != JOB_TYPE or "task" not in job.payload or job.payload.get("backend") != self.alias:
            raise TaskResultDoesNotExist(str(job.id))
        try:
            task = find_task(job.payload["task"], self.modules)
        except (UnknownTask, NotATask) as fault:
            raise TaskResultDoesNotExist(str(fault)) from fault
        return as_asked(task, job, self.alias)

    def check(self, **_: Any) -> Iterable[Any]:
        """For Django's system checks."""
        if not apps.is_installed("holdfast.integrations.django"):
            yield checks.Error(
                f"The task backend {self.alias!r} needs the app of Holdfast.",
                hint="Put 'holdfast.integrations.django' into INSTALLED_APPS.",
                id="holdfast.E003",
            )


def _wrong(given: Mapping[str, Any]) -> list[str]:
    attempts = given["MAX_ATTEMPTS"]
    return [
        fault
        for wrong, fault in (
            (not isinstance(given["RETRY_FAILURES"], bool), "RETRY_FAILURES must be True or False"),
            (not isinstance(attempts, int) or attempts < 1, f"MAX_ATTEMPTS must be 1 or more, not {attempts!r}"),
            (not isinstance(given["MODULES"], list | tuple), "MODULES must be a list of package names"),
            (given["APP"] is not None and ":" not in str(given["APP"]), "APP must look like 'module:name'"),
        )
        if wrong
    ]


def _plain(value: Any) -> Any:
    """Arguments as a worker will find them; what JSON cannot carry is refused."""
    text = json.dumps(normalize_json(value), allow_nan=False)
    if (key := repeated_key(text)) is not None:
        raise ValueError(f"Two keys of an argument are both {key!r} in JSON: one of them would be lost.")
    return json.loads(text)


def _aware(moment: Any) -> Any:
    """Where the project has no time zones, moments are meant in its own."""
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
