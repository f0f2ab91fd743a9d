"""Holdfast in a Django project: transactions, handlers, settings, commands."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from holdfast import Context, Holdfast, InvalidPayload, NotFound
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.integrations.conftest import SETTINGS, use
from tests.integrations.site.shop import jobs
from tests.integrations.site.shop.models import Order


def count(hf: Holdfast) -> int:
    return len(hf.sync.find())


def test_an_enqueue_within_atomic_commits_with_it(site: Holdfast) -> None:
    with transaction.atomic():
        Order.objects.create(customer="ada")
        ref = jobs.confirm.sync.enqueue(customer="ada")
        assert site.sync.get(ref).state == "queued"
        assert outside(lambda: count(site)) == 0
    site.sync.run_worker(burst=True)
    assert site.sync.get(ref).result == 2


def test_an_enqueue_within_atomic_is_undone_with_it(site: Holdfast) -> None:
    with transaction.atomic():
        Order.objects.create(customer="ada")
        jobs.confirm.sync.enqueue(customer="ada")
        transaction.set_rollback(True)
    assert count(site) == 0
    assert Order.objects.count() == 0


def test_a_savepoint_takes_its_jobs_along(site: Holdfast) -> None:
    with transaction.atomic():
        kept = jobs.confirm.sync.enqueue(customer="ada")
        with transaction.atomic():
            jobs.confirm.sync.enqueue(customer="bob")
            transaction.set_rollback(True)
    assert [job.id for job in site.sync.find()] == [kept.id]


def test_outside_of_a_transaction_an_enqueue_takes_effect_at_once(site: Holdfast) -> None:
    ref = jobs.confirm.sync.enqueue(customer="ada")
    assert outside(lambda: site.sync.get(ref).state) == "queued"


def test_autocommit_switched_off_by_hand_is_a_transaction_too(site: Holdfast) -> None:
    transaction.set_autocommit(False)
    try:
        jobs.confirm.sync.enqueue(customer="ada")
        assert outside(lambda: count(site)) == 0
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert count(site) == 0


def test_a_project_without_autocommit_is_in_a_transaction_from_the_first_query_on(
    site: Holdfast, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    try:
        jobs.confirm.sync.enqueue(customer="ada")
        transaction.rollback()
    finally:
        connection.close()
        monkeypatch.undo()
    assert count(site) == 0


async def test_a_blocking_call_in_a_coroutine_is_refused_as_the_orm_refuses_it(site: Holdfast) -> None:
    """It would join the transaction of whatever else uses this thread."""
    with pytest.raises(SynchronousOnlyOperation):
        jobs.confirm.sync.enqueue(customer="ada")


def test_a_faulty_payload_leaves_the_transaction_usable(site: Holdfast) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidPayload):
            jobs.confirm.sync.enqueue(customer=["no", "text"])  # type: ignore[arg-type]
        Order.objects.create(customer="ada")
    assert Order.objects.count() == 1


def test_other_verbs_join_the_transaction_as_well(site: Holdfast) -> None:
    with transaction.atomic():
        ref = site.sync.enqueue("order.confirm", {"customer": "ada"}, hold=True)
        site.sync.release(ref)
        assert site.sync.get(ref).state == "queued"
        transaction.set_rollback(True)
    with pytest.raises(NotFound):
        site.sync.get(ref)


def test_asynchronous_views_enqueue_in_djangos_thread(site: Holdfast) -> None:
    @sync_to_async
    def place_order() -> None:
        with transaction.atomic():
            Order.objects.create(customer="ada")
            jobs.confirm.sync.enqueue(customer="ada")

    async def view() -> None:
        await place_order()

    asyncio.run(view())
    assert count(site) == 1


def test_handlers_use_djangos_models_and_transactions(site: Holdfast) -> None:
    good, bad = jobs.follow.sync.enqueue("ada"), jobs.follow.options(max_attempts=1).sync.enqueue("bob", fail=True)
    greeted = jobs.greet.sync.enqueue("ada")
    site.sync.run_worker(burst=True)
    assert site.sync.get(good).state == "success"
    assert site.sync.get(bad).state == "dead"
    assert site.sync.get(greeted).result == "hello ada"
    assert {order.customer for order in Order.objects.all()} == {"ada"}
    assert [site.sync.get(job).payload["customer"] for job in site.sync.find(types=["order.confirm"])] == ["ada"]


def test_a_handlers_writes_and_its_success_are_one(site: Holdfast) -> None:
    ref = jobs.post.sync.enqueue("ada")
    site.sync.run_worker(burst=True, types=["order.post"])
    done = site.sync.get(ref)
    assert (done.state, done.attempt) == ("success", 2)
    assert Order.objects.count() == 1
    assert len(site.sync.find(types=["order.follow"])) == 1


def test_what_django_would_not_commit_is_refused(site: Holdfast) -> None:
    ref = jobs.post.sync.enqueue("ada", autocommit=False)
    site.sync.run_worker(burst=True, types=["order.post"])
    done = site.sync.get(ref)
    assert done.state == "dead"
    assert "already in a transaction" in (done.last_error or "")
    assert Order.objects.count() == 0


def test_a_handler_can_be_called_like_a_function_within_atomic(site: Holdfast) -> None:
    with transaction.atomic():
        assert jobs.confirm(cast("Context", None), customer="ada") == 1
        assert connection.in_atomic_block


@pytest.mark.parametrize("age", [0, None])
def test_handlers_leave_no_session_behind(
    site: Holdfast, database_url: str, monkeypatch: pytest.MonkeyPatch, age: int | None
) -> None:
    """With CONN_MAX_AGE 0 each handler has a session of its own; with None they share it until the worker ends."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    jobs.sessions.clear()
    for _ in range(3):
        jobs.session.sync.enqueue()
    site.sync.run_worker(burst=True, lanes={"general": 1})
    assert [job.state for job in site.sync.find()] == ["success"] * 3
    assert len(set(jobs.sessions)) == (3 if age == 0 else 1)
    asyncio.run(all_end(database_url, set(jobs.sessions)))


async def test_between_handlers_no_session_is_held(site: Holdfast, database_url: str) -> None:
    jobs.sessions.clear()
    async with site, working(site):
        await reached(site, (await jobs.session.enqueue()).id, "success")
        await all_end(database_url, set(jobs.sessions))


def test_a_session_that_broke_fails_one_handler_at_most(site: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    jobs.sessions.clear()
    broken = jobs.session.options(max_attempts=1, priority=1).sync.enqueue(end_it=True)
    next_one = jobs.session.options(max_attempts=1).sync.enqueue()
    site.sync.run_worker(burst=True, lanes={"general": 1})
    assert site.sync.get(broken).state == "dead"
    assert site.sync.get(next_one).state == "success"
    assert len(set(jobs.sessions)) == 2


def test_a_handler_in_a_process_of_its_own_finds_django_set_up(site: Holdfast, database_url: str) -> None:
    """The child is told nothing but the settings module and its environment."""
    Order.objects.create(customer="ada")
    ref, report = jobs.compute.sync.enqueue("ada"), jobs.reports.report.options(priority=1).sync.enqueue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        patch.setenv("SITE_DATABASE_URL", database_url)
        site.sync.run_worker(burst=True, lanes={"general": 1})
    job = site.sync.get(ref)
    assert job.state == "success", job.last_error
    assert job.result["orders"] == 1
    assert job.result["pid"] != os.getpid()
    reported = site.sync.get(report)
    assert (reported.result, reported.attempt) == (1, 1), reported.last_error


def test_a_plain_login_that_is_a_member_of_the_api_role_enqueues(site: Holdfast, database_url: str) -> None:
    login = f"hf_{uuid4().hex[:12]}"
    asyncio.run(execute(database_url, f"create role {login} login password 'p:@/ä'", f"grant holdfast_api to {login}"))
    parts = urlsplit(database_url)
    host = parts.netloc.rpartition("@")[2]
    try:
        use(urlunsplit(parts._replace(netloc=f"{login}:p%3A%40%2F%C3%A4@{host}")))
        with transaction.atomic():
            ref = jobs.confirm.sync.enqueue(customer="ada")
            with pytest.raises(ProgrammingError), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("update holdfast.jobs set state = 'success'")
        # With connections of Holdfast's own, too: the password got into their URL whole.
        assert site.sync.get(ref).state == "queued"
        assert jobs.confirm.sync.enqueue(customer="bob").state == "queued"
    finally:
        site.sync.close()
        use(database_url)
        asyncio.run(execute(database_url, f"drop owned by {login}", f"drop role {login}"))


def outside(look: Any) -> Any:
    """What another thread sees, which has no part in this one's transaction."""
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(look()))
    thread.start()
    thread.join(30)
    return seen[0]


async def all_end(url: str, sessions: set[int]) -> None:
    """Wait until the server has none of these sessions any more; it learns of a closed one a moment later."""
    assert sessions
    conn = await asyncpg.connect(url)

    async def gone() -> bool:
        return not sessions & {row["pid"] for row in await conn.fetch("select pid from pg_stat_activity")}

    try:
        await until(gone, seconds=5, what="the sessions end")
    finally:
        await conn.close()


async def execute(url: str, *statements: str) -> None:
    conn = await asyncpg.connect(url)
    try:
        for statement in statements:
            await conn.execute(statement)
    finally:
        await conn.close()
