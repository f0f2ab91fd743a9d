"""The backend of Django's Tasks framework: what the framework promises, and what Holdfast adds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import asyncpg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from holdfast import Holdfast
from holdfast.integrations.django.apps import _is_ours
from holdfast.integrations.django.tasks import HoldfastBackend
from tests.harness.inprocess import reached, working
from tests.integrations.site.shop import tasks
from tests.integrations.site.shop.models import Order
from tests.sql.factories import claim, expire, make_due, sweep

READY, SUCCESSFUL, FAILED = TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED


class OwnBackend(HoldfastBackend):
    """As a project may derive one."""


def work(hf: Holdfast) -> None:
    hf.sync.run_worker(burst=True, lanes={"general": 1})


@pytest.fixture
def heard(site: Holdfast) -> Iterator[list[tuple[str, Any]]]:
    """The framework's signals, as they came."""
    heard: list[tuple[str, Any]] = []

    def enqueued(task_result: Any, **_: Any) -> None:
        heard.append(("enqueued", task_result.status))

    def started(task_result: Any, **_: Any) -> None:
        heard.append(("started", task_result.status))

    def finished(task_result: Any, **_: Any) -> None:
        heard.append(("finished", task_result.status))

    signals = [(task_enqueued, enqueued), (task_started, started), (task_finished, finished)]
    for signal, receiver in signals:
        signal.connect(receiver)
    yield heard
    for signal, receiver in signals:
        signal.disconnect(receiver)


def test_a_task_runs_and_its_result_is_found(site: Holdfast, heard: list[tuple[str, Any]]) -> None:
    result: Any = tasks.add.enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [1], {"b": 2}, 0)
    assert result.task == tasks.add
    assert result.enqueued_at is not None
    result.refresh()
    assert result == tasks.add.get_result(result.id)
    work(site)
    result.refresh()
    assert (result.status, result.return_value, result.attempts, result.errors) == (SUCCESSFUL, 3, 1, [])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert result.worker_ids == [attempt.worker for attempt in site.sync.attempts(result.id)]
    assert heard == [("enqueued", READY), ("started", "RUNNING"), ("finished", SUCCESSFUL)]


def test_coroutines_are_tasks_and_may_be_enqueued_by_coroutines(site: Holdfast) -> None:
    Order.objects.create(customer="ada")

    async def view() -> str:
        result = await tasks.add_later.aenqueue(1, 2)
        assert (await tasks.add_later.aget_result(result.id)).status == READY
        await result.arefresh()
        return str(result.id)

    result_id = asyncio.run(view())
    work(site)
    result: Any = tasks.add_later.get_result(result_id)
    assert result.return_value == 4


def test_a_task_enqueued_within_atomic_exists_if_it_commits(site: Holdfast) -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1)
        assert tasks.add.get_result(kept.id).status == READY
    with transaction.atomic():
        undone = tasks.add.enqueue(2)
        transaction.set_rollback(True)
    assert tasks.add.get_result(kept.id).status == READY
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(undone.id)


def test_a_failure_is_final_and_tells_what_was_raised(site: Holdfast, heard: list[tuple[str, Any]]) -> None:
    result = tasks.fail.enqueue("no chairs: left")
    work(site)
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 1)
    (error,) = result.errors
    assert error.exception_class is tasks.OutOfStock
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("OutOfStock: no chairs: left\n")
    assert "TaskFailed" not in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert heard[-1] == ("finished", FAILED)
    assert site.sync.get(result.id).state == "dead"


@pytest.mark.parametrize(("task", "kind"), [(tasks.leave, SystemExit), (tasks.unspeakable, TypeError)])
def test_a_task_that_exits_or_returns_no_json_has_failed(site: Holdfast, task: Any, kind: type) -> None:
    result = task.enqueue()
    work(site)
    result.refresh()
    assert result.status == FAILED
    assert result.errors[0].exception_class is kind


def test_failures_are_retried_where_the_backend_says_so(site: Holdfast, heard: list[tuple[str, Any]]) -> None:
    tasks.ran.clear()
    result: Any = tasks.stubborn.enqueue("again")
    work(site)
    result.refresh()
    assert tasks.ran == ["again", "again"]
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 2, 2)
    assert [error.exception_class for error in result.errors] == [tasks.OutOfStock] * 2
    assert result.started_at < result.last_attempted_at
    assert heard == [("enqueued", READY), ("started", "RUNNING"), ("started", "RUNNING"), ("finished", FAILED)]


def test_a_lost_worker_does_not_make_a_task_fail(site: Holdfast, database_url: str) -> None:
    """The lease of a dead worker is swept, and the task runs again, though failures are final."""
    result = tasks.introspect.enqueue("hello")
    asyncio.run(on(database_url, lambda conn: claim(conn, "django.task", worker="dead worker")))
    result.refresh()
    assert (result.status, result.worker_ids) == ("RUNNING", ["dead worker"])
    asyncio.run(on(database_url, lose))
    work(site)
    result.refresh()
    assert result.status == SUCCESSFUL
    assert result.return_value == ["hello", 2, result.id]
    assert [error.exception_class.__name__ for error in result.errors] == ["WorkerLost"]
    assert result.worker_ids[0] == "dead worker"


def test_higher_priority_goes_first_and_is_found_again(site: Holdfast) -> None:
    tasks.ran.clear()
    for priority in (-100, 0, 100, 7):
        result = tasks.add.using(priority=priority).enqueue(priority)
        assert tasks.add.get_result(result.id).task.priority == priority
    work(site)
    assert [a for a, _ in tasks.ran] == [100, 7, 0, -100]


def test_run_after_and_queue_are_kept(site: Holdfast) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add.using(run_after=later, queue_name="slow").enqueue(1)
    found = tasks.add.get_result(result.id)
    result.refresh()
    assert found == result
    assert (found.task.run_after, found.task.queue_name) == (later, "slow")
    job = site.sync.get(result.id)
    assert (job.state, job.queue, job.run_at) == ("scheduled", "slow", later)


def test_a_task_that_takes_context_gets_it(site: Holdfast) -> None:
    result = tasks.introspect.enqueue("hello")
    work(site)
    result.refresh()
    assert result.return_value == ["hello", 1, result.id]


def test_what_cannot_be_a_task_or_an_argument_is_refused(site: Holdfast) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(datetime.now(UTC))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="JSON"):
        tasks.add.enqueue(float("nan"))  # type: ignore[arg-type]
    with pytest.raises(InvalidTaskError, match="Queue"):
        tasks.add.using(queue_name="unknown")
    with pytest.raises(InvalidTaskError, match="priority"):
        tasks.add.using(priority=101)
    with pytest.raises(InvalidTaskError, match="aware"):
        tasks.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001
    assert site.sync.find() == []


def test_results_of_others_are_not_found(site: Holdfast) -> None:
    other = site.sync.enqueue("order.confirm", {"customer": "ada"})
    for unknown in ("123", str(other.id), "018f0000-0000-7000-8000-000000000000"):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(unknown)
    with pytest.raises(TaskResultMismatch):
        tasks.fail.get_result(tasks.add.enqueue(1).id)
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["stubborn"].get_result(tasks.add.enqueue(1).id)


@pytest.mark.parametrize(
    "name",
    [
        "tests.integrations.site.shop.tasks:plain",
        "tests.integrations.site.shop.tasks:OutOfStock",
        "os:getcwd",
        "this:d",
        "tests.integrations.site.shop.tasks:ran.append",
    ],
)
def test_a_payload_cannot_name_anything_but_a_task(site: Holdfast, name: str) -> None:
    tasks.ran.clear()
    forged = site.sync.enqueue("django.task", {"task": name, "args": [1], "kwargs": {}, "backend": "default"})
    work(site)
    job = site.sync.get(forged)
    assert job.state == "dead"
    assert job.attempt == 1
    assert tasks.ran == []
    assert "this" not in sys.modules
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(str(forged.id))


@pytest.mark.parametrize(("name", "backend"), [("new_one", "default"), ("add", "new_backend")])
def test_what_this_release_does_not_know_waits_for_one_that_does(
    site: Holdfast, database_url: str, name: str, backend: str
) -> None:
    """Waiting costs nothing; after an hour it is a person's turn."""
    task = f"tests.integrations.site.shop.tasks:{name}"
    ref = site.sync.enqueue("django.task", {"task": task, "args": [], "kwargs": {}, "backend": backend})
    asyncio.run(run_until(site, ref.id, "scheduled", "retry", "dead"))
    job = site.sync.get(ref)
    assert (job.state, job.failures) == ("scheduled", 0)
    assert job.run_at - job.updated_at > timedelta(seconds=20)

    async def an_hour_later(conn: asyncpg.Connection) -> None:
        await conn.execute("update job_attempts set started_at = started_at - interval '61 minutes'")
        await make_due(conn, ref.id)

    asyncio.run(on(database_url, an_hour_later))
    asyncio.run(run_until(site, ref.id, "error"))


def test_a_task_that_no_worker_would_find_is_refused_when_it_is_enqueued(
    site: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a module of no app is refused though the module is loaded here: a worker has no reason to load it."""
    module: Any = ModuleType("module_of_no_app")
    exec("def elsewhere(): pass", vars(module))
    module.elsewhere = task()(module.elsewhere)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    hidden: Any = tasks.add.using()
    object.__setattr__(hidden, "func", tasks.plain)  # as if the name of the module led to the bare function
    for strange in (module.elsewhere, hidden):
        with pytest.raises(InvalidTaskError, match="No worker would find"):
            strange.enqueue()
    assert site.sync.find() == []


def test_what_was_recorded_is_not_asked_for_again(site: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gets an error enqueues again, so nothing may fail once the job is there."""
    monkeypatch.setattr(type(site.sync), "get", None)
    result = tasks.add.enqueue(1, b=2)
    monkeypatch.undo()
    now = datetime.now(UTC)
    assert result.enqueued_at is not None
    assert abs(now - result.enqueued_at) < timedelta(minutes=1)
    assert (result.status, result.args, result.kwargs) == (READY, [1], {"b": 2})


def test_a_backend_made_from_holdfasts_counts(site: Holdfast) -> None:
    assert _is_ours(f"{__name__}.OwnBackend")
    assert not _is_ours("django_tasks.backends.dummy.DummyBackend")
    assert not _is_ours("holdfast.integrations.django.tasks.Nonsense")


def test_options_are_checked(site: Holdfast) -> None:
    with pytest.raises(ImproperlyConfigured, match="did you mean 'MAX_ATTEMPTS'"):
        HoldfastBackend("default", {"OPTIONS": {"max_attempts": 3}})
    with pytest.raises(ImproperlyConfigured, match="MAX_ATTEMPTS must be 1 or more"):
        HoldfastBackend("default", {"OPTIONS": {"MAX_ATTEMPTS": 0}})
    assert list(default_task_backend.check()) == []


async def lose(conn: asyncpg.Connection) -> None:
    """Let the leases of all workers be over, and have them swept."""
    await expire(conn, *[row["job_id"] for row in await conn.fetch("select job_id from leases")])
    await sweep(conn)


async def on(url: str, what: Callable[[asyncpg.Connection], Awaitable[object]]) -> None:
    conn = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    try:
        await what(conn)
    finally:
        await conn.close()


async def run_until(hf: Holdfast, job_id: Any, *states: str) -> None:
    async with hf, working(hf):
        await reached(hf, job_id, *states)
